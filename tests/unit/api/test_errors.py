"""What can go wrong in the service says what to do."""

from __future__ import annotations

import pytest

from api.errors import (
    ChannelConflictError,
    ChannelNotFoundError,
    ChannelUnavailableError,
    ServiceClosingError,
    ServiceStartingError,
    TooManyChannelsError,
    UnknownKeyError,
)
from reliable_channel import ReliableChannelError

ERRORS = [
    (ServiceStartingError(), "try again"),
    (ServiceClosingError(), "try again"),
    (TooManyChannelsError(7), "7 channels are open"),
    (ChannelNotFoundError("a\nb"), r"no channel 'a\nb'"),
    (ChannelConflictError("room", ("sds", "senderId")), "(sds, senderId)"),
    (ChannelUnavailableError("room", "no key", 3.5), "no key"),
    (UnknownKeyError("A"), "no key is named 'A'"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=lambda item: type(item).__name__)
def test_each_is_one_line_in_the_tree(error: ReliableChannelError, text: str) -> None:
    assert isinstance(error, ReliableChannelError)
    assert text in str(error)
    assert "\n" not in str(error)


def test_data_are_attributes() -> None:
    error = ChannelUnavailableError("room", "no key", 3.5)
    assert (error.channel_id, error.reason, error.retry_after_sec) == ("room", "no key", 3.5)
