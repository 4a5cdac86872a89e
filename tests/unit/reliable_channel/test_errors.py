"""The tree of errors: what catches what, one line each, data as attributes."""

from __future__ import annotations

import inspect
import re

import pytest

from reliable_channel import errors
from reliable_channel.errors import (
    BudgetInUseError,
    ChannelClosedError,
    ChannelError,
    ChannelExistsError,
    ChannelFailedError,
    ChannelFullError,
    ConfigurationError,
    CursorAheadError,
    DecodeError,
    DecryptError,
    EmptyPayloadError,
    EncryptError,
    EventsExpiredError,
    IdempotencyConflictError,
    InvalidContentTopicError,
    InvalidPayloadError,
    InvalidSegmentError,
    LeaseLostError,
    MessageTooLargeError,
    NodeClosedError,
    ReliableChannelError,
    RequestFailedError,
    RequestNotFoundError,
    SendOutcomeUnknownError,
    SlowConsumerError,
    StoreClosedError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    UnrecoverableError,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ReliableChannelError)
]

EXAMPLES: list[tuple[ReliableChannelError, dict[str, object]]] = [
    (ConfigurationError("a is wrong"), {"problems": ("a is wrong",)}),
    (ConfigurationError(["a", "b"]), {"problems": ("a", "b")}),
    (
        InvalidContentTopicError("/a\n", "ends"),
        {"content_topic": "/a\n", "reason": "ends"},
    ),
    (ChannelExistsError("room"), {"channel_id": "room"}),
    (ChannelExistsError("room", "on this store"), {"channel_id": "room"}),
    (ChannelClosedError("ro\nom"), {"channel_id": "ro\nom"}),
    (ChannelFailedError("room", OSError("disk")), {"channel_id": "room"}),
    (ChannelFullError("room", 3, 4), {"channel_id": "room", "messages": 3, "octets": 4}),
    (SendOutcomeUnknownError("ro\nom"), {"channel_id": "ro\nom"}),
    (StoreOutcomeUnknownError("hung up"), {"reason": "hung up"}),
    (EmptyPayloadError(), {}),
    (IdempotencyConflictError("room", "a\n"), {"channel_id": "room", "key": "a\n"}),
    (InvalidPayloadError("text"), {}),
    (MessageTooLargeError(5, 4), {"size": 5, "limit": 4}),
    (MessageTooLargeError(5, 4, "message"), {"size": 5, "limit": 4}),
    (LeaseLostError("ro\nom"), {"channel_id": "ro\nom"}),
    (DecodeError("SdsMessage", "cut"), {"what": "SdsMessage", "detail": "cut"}),
    (InvalidSegmentError("data_index"), {"reason": "data_index"}),
    (UnrecoverableError(1, 2), {"held": 1, "needed": 2}),
    (EncryptError("key"), {"reason": "key"}),
    (DecryptError("key"), {"reason": "key"}),
    (NodeClosedError(), {}),
    (StoreClosedError(), {}),
    (BudgetInUseError("node:600"), {"scope": "node:600"}),
    (EventsExpiredError(3, 9), {"after": 3, "oldest": 9}),
    (CursorAheadError(50, 10), {"after": 50, "last": 10}),
    (CursorAheadError(10**900, 10), {"after": 10**900, "last": 10}),
    (RequestNotFoundError("r"), {"request_id": "r"}),
    (
        RequestFailedError("r", "reliable:message:send-error", "no peers"),
        {"request_id": "r", "event_name": "reliable:message:send-error", "error": "no peers"},
    ),
    (SlowConsumerError(7, 100), {"last_sequence": 7, "pending": 100}),
]


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    drawn: dict[str, tuple[int, str]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ([│├└─ ]*)(\w+Error)\b(?: \((\w+)\))?", line)
        if found:
            depth = len(found[1]) // 4
            path[depth:] = [found[2]]
            drawn[found[2]] = (depth, path[depth - 1] if depth else "Exception")
            if found[3]:
                assert found[3] in {base.__name__ for base in getattr(errors, found[2]).__bases__}
    assert {kind.__name__ for kind in CLASSES} == drawn.keys()
    for kind in CLASSES:
        assert kind.__bases__[0].__name__ == drawn[kind.__name__][1]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_is_documented_and_ends_in_error(kind: type[ReliableChannelError]) -> None:
    assert (kind.__doc__ or "").strip()
    assert kind.__name__.endswith("Error")


@pytest.mark.parametrize(
    ("error", "attributes"), EXAMPLES, ids=[ascii(str(error))[:60] for error, _ in EXAMPLES]
)
def test_an_error_keeps_its_data_and_says_it_in_one_line(
    error: ReliableChannelError, attributes: dict[str, object]
) -> None:
    assert {name: getattr(error, name) for name in attributes} == attributes
    text = str(error)
    assert text
    assert "\n" not in text
    assert len(text) < 300


def test_the_text_of_a_foreign_cause_becomes_one_line() -> None:
    """The module promises texts of one line; SQLAlchemy's, for one, have several."""
    cause = OSError("(sqlite3.OperationalError) disk I/O error\n[SQL: COMMIT]\n(Background: ...)")
    assert "\n" not in str(ChannelFailedError("room", cause))


def test_a_long_content_topic_is_shown_in_part() -> None:
    text = str(InvalidContentTopicError("/" + "x" * 10_000, "is too long"))
    assert len(text) < 250
    assert "is too long" in text


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (ConfigurationError, ValueError),
        (InvalidPayloadError, TypeError),
        (DecodeError, ValueError),
    ],
)
def test_errors_that_python_has_a_name_for_are_caught_by_it(
    kind: type[Exception], builtin: type[Exception]
) -> None:
    assert issubclass(kind, builtin)


def test_who_is_told_that_nothing_was_sent_can_rely_on_it() -> None:
    """Whoever catches StoreUnavailableError of ``send`` sends again."""
    assert not issubclass(SendOutcomeUnknownError, StoreUnavailableError | ChannelClosedError)


def test_the_texts_say_what_to_do() -> None:
    full = str(ChannelFullError("room", 3, 4))
    assert "max_outgoing_messages" in full
    assert "3 messages, 4 bytes" in full
    assert str(MessageTooLargeError(5, 4)) == (
        "payload of 5 bytes is above the limit of 4 bytes; send less at once"
    )
    assert "read from 8" in str(EventsExpiredError(3, 9))
    assert "channel.last_event_sequence" in str(CursorAheadError(50, 10))
    assert "events(after=7)" in str(SlowConsumerError(7, 100))
    assert str(InvalidPayloadError("x")) == "payload must be bytes, not str"


def test_a_channel_error_takes_any_text() -> None:
    assert str(ChannelError("room", "so it is")) == "so it is"
