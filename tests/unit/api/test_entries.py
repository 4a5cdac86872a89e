"""What a service knows of its channels."""

from __future__ import annotations

from itertools import islice

import pytest

from api.entries import kept_entry, retry_distances
from api.models import ChannelRequest
from tests.support.served import channel_body


def test_what_the_registry_holds_is_read_back() -> None:
    asked = ChannelRequest.model_validate(channel_body(sds={"maxInFlight": 4}))
    assert kept_entry("room", asked.to_text()).request == asked


@pytest.mark.parametrize("text", ["", "{}", '{"channelId": 5}', "[]", "\x00"])
def test_what_cannot_be_read_is_an_entry_that_says_so(text: str) -> None:
    entry = kept_entry("room", text)
    assert entry.request is None
    assert "cannot be read" in entry.reason


def test_tries_come_at_doubled_distances_up_to_a_minute() -> None:
    assert list(islice(retry_distances(), 9)) == [1, 2, 4, 8, 16, 32, 60, 60, 60]
