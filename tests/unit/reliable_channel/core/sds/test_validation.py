"""Which messages are valid messages of a channel, and the word for those that are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliable_channel.core.sds.validation import MAX_LAMPORT, is_message_id, refusal
from reliable_channel.core.wire import HistoryEntry, SdsMessage
from tests.support.builders import (
    CHANNEL,
    HELLO,
    NO_FILTER,
    bob,
    content_message,
    entries,
    entry,
    ephemeral_message,
    sync_message,
)

MANY = tuple(HistoryEntry(str(number)) for number in range(1025))

INVALID: dict[str, tuple[SdsMessage, str]] = {
    "nothing at all": (SdsMessage(), "foreign_channel"),
    "another channel": (replace(HELLO, channel_id="other"), "foreign_channel"),
    "no channel": (replace(HELLO, channel_id=""), "foreign_channel"),
    "neither time nor content": (
        replace(HELLO, lamport_timestamp=None, content=None),
        "malformed_kind",
    ),
    "no time, empty content": (
        replace(HELLO, lamport_timestamp=None, content=b""),
        "malformed_kind",
    ),
    "no sender": (replace(HELLO, sender_id=""), "invalid_sender_id"),
    "a sender of 256 bytes": (replace(HELLO, sender_id="x" * 256), "invalid_sender_id"),
    "a sender of 86 wide letters": (replace(HELLO, sender_id="€" * 86), "invalid_sender_id"),
    "a sender with a control character": (replace(HELLO, sender_id="a\n"), "invalid_sender_id"),
    "no message id": (replace(HELLO, message_id=""), "invalid_message_id"),
    "a message id of 257 bytes": (replace(HELLO, message_id="x" * 257), "invalid_message_id"),
    "a message id of 86 wide letters": (
        replace(HELLO, message_id="€" * 86),
        "invalid_message_id",
    ),
    "a sync without message id": (
        replace(sync_message(), message_id=""),
        "invalid_message_id",
    ),
    "a negative time to others": (
        replace(HELLO, lamport_timestamp=1 << 63),
        "invalid_lamport_timestamp",
    ),
    "the largest time": (
        replace(HELLO, lamport_timestamp=(1 << 64) - 1),
        "invalid_lamport_timestamp",
    ),
    "a history of 1025": (replace(HELLO, causal_history=MANY), "history_too_long"),
    "1025 repair requests": (replace(HELLO, repair_request=MANY), "history_too_long"),
    "a sync with a history of 1025": (
        replace(sync_message(), causal_history=MANY),
        "history_too_long",
    ),
    "an entry without id": (
        replace(HELLO, causal_history=(HistoryEntry("a"), HistoryEntry())),
        "invalid_history_entry",
    ),
    "an entry of 257 bytes": (
        replace(HELLO, causal_history=entries("x" * 257)),
        "invalid_history_entry",
    ),
    "a repair request without id": (
        replace(HELLO, repair_request=(HistoryEntry("a"), HistoryEntry())),
        "invalid_history_entry",
    ),
    "a repair request of 257 bytes": (
        replace(sync_message(), repair_request=entries("x" * 257)),
        "invalid_history_entry",
    ),
    "a hint of 257 bytes": (
        replace(HELLO, causal_history=(entry("a", hint=bytes(257)),)),
        "invalid_history_entry",
    ),
    "a hint of 257 bytes in a repair request": (
        replace(HELLO, repair_request=(entry("a", hint=bytes(257)),)),
        "invalid_history_entry",
    ),
    "an entry with a sender of 256 bytes": (
        sync_message(entry("a", sender_id="x" * 256)),
        "invalid_history_entry",
    ),
    "an entry with a sender of 86 wide letters": (
        sync_message(entry("a", sender_id="€" * 86)),
        "invalid_history_entry",
    ),
    "an entry of 86 wide letters": (
        replace(HELLO, causal_history=entries("€" * 86)),
        "invalid_history_entry",
    ),
}


@pytest.mark.parametrize(("message", "reason"), INVALID.values(), ids=INVALID)
def test_an_invalid_message_is_refused_with_a_reason(message: SdsMessage, reason: str) -> None:
    assert refusal(message, CHANNEL, 1024) == reason


@pytest.mark.parametrize(
    "message",
    [HELLO, sync_message(), sync_message(entry("a")), ephemeral_message(b"now")],
    ids=["content", "sync", "sync that names", "ephemeral"],
)
def test_a_message_of_each_kind_is_valid(message: SdsMessage) -> None:
    assert refusal(message, CHANNEL, 1024) is None
    assert refusal(message, "other", 1024) == "foreign_channel"


def test_lamport_times_are_those_that_signed_readers_see_as_such() -> None:
    assert refusal(replace(HELLO, lamport_timestamp=MAX_LAMPORT - 1), CHANNEL, 1024) is None
    assert refusal(replace(HELLO, lamport_timestamp=MAX_LAMPORT), CHANNEL, 1024) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", True),
        ("0" * 64, True),
        ("a b/c", True),
        ("x" * 256, True),
        ("€" * 85, True),
        ("", False),
        ("x" * 257, False),
        ("/" * 257, False),
        ("€" * 86, False),
        ("a\0", False),
        ("a\n", False),
    ],
)
def test_message_ids_are_texts_of_1_to_256_bytes(text: str, *, expected: bool) -> None:
    assert is_message_id(text) is expected


@pytest.mark.parametrize(
    "message",
    [
        replace(HELLO, causal_history=MANY[:1024]),
        replace(HELLO, lamport_timestamp=(1 << 63) - 1),
        replace(HELLO, lamport_timestamp=0),
        replace(HELLO, lamport_timestamp=1_700_000_000),  # the Nim implementation counts seconds
        replace(HELLO, causal_history=entries("x" * 256)),
        replace(HELLO, causal_history=(entry("a", hint=bytes(256), sender_id="x" * 255),)),
        replace(HELLO, repair_request=(entry("a", hint=b"", sender_id="€" * 85),)),
        replace(HELLO, causal_history=(HistoryEntry("a", None, ""),)),
        content_message(b"plain", message_id="x" * 256, sender_id="y" * 255),
        content_message(b"plain", message_id="€" * 85, sender_id="€" * 85),
    ],
    ids=[
        "1024 entries",
        "latest",
        "zero",
        "seconds",
        "entry",
        "longest",
        "widest",
        "empty",
        "longest ids",
        "widest ids",
    ],
)
def test_what_is_just_within_a_bound_is_accepted(message: SdsMessage) -> None:
    assert refusal(message, CHANNEL, 1024) is None
    receiver = bob()
    receiver.receive(message)
    assert receiver.dropped() == {}
    assert receiver.status().known_messages == 1


def test_the_bound_of_histories_is_a_setting() -> None:
    receiver = bob(sds=replace(NO_FILTER, max_history_entries=2))
    receiver.receive(replace(HELLO, causal_history=entries("a", "b", "c")))
    assert receiver.dropped() == {"history_too_long": 1}
    receiver.receive(replace(HELLO, causal_history=entries("a", "b")))
    assert receiver.status().known_messages == 1
