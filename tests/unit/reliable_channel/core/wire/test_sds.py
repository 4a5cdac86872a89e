"""SDS messages on the wire, against bytes written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from reliable_channel.core.wire.proto import sds_pb2
from reliable_channel.core.wire.sds import HistoryEntry, SdsKind, SdsMessage, content_suffix
from reliable_channel.errors import DecodeError

FULL_ENTRY = HistoryEntry("e", b"\x01\x02", "bob")
FULL_ENTRY_BYTES = b"\x0a\x01e" + b"\x12\x02\x01\x02" + b"\x1a\x03bob"

FULL = SdsMessage(
    sender_id="é",
    message_id="id",
    channel_id="room",
    lamport_timestamp=300,
    causal_history=(FULL_ENTRY, HistoryEntry("f")),
    bloom_filter=b"\xff\x00",
    repair_request=(HistoryEntry("g"),),
    content=b"hello",
)
FULL_BYTES = (
    b"\x0a\x02\xc3\xa9"
    b"\x12\x02id"
    b"\x1a\x04room"
    b"\x50\xac\x02"  # field 10, varint
    b"\x5a\x0c" + FULL_ENTRY_BYTES + b"\x5a\x03\x0a\x01f"
    b"\x62\x02\xff\x00"  # field 12
    b"\x6a\x03\x0a\x01g"  # field 13
    b"\xa2\x01\x05hello"  # field 20
)

MALFORMED = {
    "truncated in a value": FULL_BYTES[:-1],
    "truncated after a tag": b"\x0a",
    "tag cut short": b"\xa2",
    "length past the end": b"\x0a\x05ab",
    "length above 2**31": b"\xa2\x01\xff\xff\xff\xff\x0f",
    "length above 2**63": b"\xa2\x01\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    "varint of eleven bytes": b"\x50" + b"\x80" * 10 + b"\x01",
    "group without end": b"\x9b\x06",
    "end of a group that never began": b"\x9c\x06",
    "groups nested without end": b"\x9b\x06" * 100_000,
    "wire type 6": b"\x9e\x06",
    "sender_id not UTF-8": b"\x0a\x01\xff",
    "message_id not UTF-8": b"\x12\x02\xc3\x28",
    "channel_id with a surrogate": b"\x1a\x03\xed\xa0\x80",
    "history entry cut short": b"\x5a\x02\x0a\x05",
    "sender_id in a history entry not UTF-8": b"\x5a\x03\x1a\x01\xff",
    "message_id in a repair request not UTF-8": b"\x6a\x03\x0a\x01\xff",
}


def test_default_message_encodes_to_no_bytes_and_back() -> None:
    assert SdsMessage().encode() == b""
    assert SdsMessage.decode(b"") == SdsMessage()


def test_fields_are_written_in_ascending_order_under_their_numbers() -> None:
    assert FULL.encode() == FULL_BYTES


def test_every_field_is_read_from_under_its_number() -> None:
    assert SdsMessage.decode(FULL_BYTES) == FULL


def test_history_entry_stands_for_itself_on_the_wire() -> None:
    assert FULL_ENTRY.encode() == FULL_ENTRY_BYTES
    assert HistoryEntry.decode(FULL_ENTRY_BYTES) == FULL_ENTRY
    assert HistoryEntry().encode() == b""
    assert HistoryEntry.decode(b"") == HistoryEntry()


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        pytest.param(SdsMessage(lamport_timestamp=0), b"\x50\x00", id="lamport_timestamp"),
        pytest.param(SdsMessage(bloom_filter=b""), b"\x62\x00", id="bloom_filter"),
        pytest.param(SdsMessage(content=b""), b"\xa2\x01\x00", id="content"),
        pytest.param(
            SdsMessage(causal_history=(HistoryEntry(retrieval_hint=b""),)),
            b"\x5a\x02\x12\x00",
            id="retrieval_hint",
        ),
        pytest.param(
            SdsMessage(repair_request=(HistoryEntry(sender_id=""),)),
            b"\x6a\x02\x1a\x00",
            id="sender_id of an entry",
        ),
        pytest.param(
            SdsMessage(causal_history=(HistoryEntry(),)), b"\x5a\x00", id="entry of defaults"
        ),
    ],
)
def test_optional_field_that_is_set_and_empty_is_not_an_absent_one(
    message: SdsMessage, encoded: bytes
) -> None:
    assert message.encode() == encoded
    assert SdsMessage.decode(encoded) == message
    assert SdsMessage.decode(encoded) != SdsMessage()


def test_explicit_empty_plain_fields_read_as_defaults_and_are_not_written_again() -> None:
    assert SdsMessage.decode(b"\x0a\x00\x12\x00\x1a\x00").encode() == b""


@pytest.mark.parametrize("octets", [1, 2, 63, 64, 126, 127, 128, 129, 300, 16_384])
@pytest.mark.parametrize("place", ["sender_id", "message_id", "channel_id"])
def test_names_of_every_length_are_written_as_the_runtime_does(place: str, octets: int) -> None:
    names = {"sender_id": "a", "message_id": "b", "channel_id": "c", place: "n" * octets}
    assert SdsMessage(**names).encode() == sds_pb2.SdsMessage(**names).SerializeToString()


@pytest.mark.parametrize("octets", [1, 2, 27, 28, 63, 64, 126, 127, 128, 129, 300, 16_384])
@pytest.mark.parametrize("place", ["message_id", "retrieval_hint", "sender_id"])
@pytest.mark.parametrize("has_hint", [True, False])
def test_entries_of_every_length_are_written_as_the_runtime_does(
    place: str, octets: int, *, has_hint: bool
) -> None:
    entry: dict[str, Any] = {"message_id": "m" * 64, "sender_id": "s"}
    if has_hint or place == "retrieval_hint":
        entry["retrieval_hint"] = bytes(32)
    entry[place] = b"h" * octets if place == "retrieval_hint" else "n" * octets
    ours = SdsMessage(
        causal_history=(HistoryEntry(**entry),) * 2, repair_request=(HistoryEntry(**entry),)
    )
    raw = sds_pb2.HistoryEntry(**entry)
    whole = sds_pb2.SdsMessage(causal_history=[raw, raw], repair_request=[raw])
    assert ours.encode() == whole.SerializeToString()


@pytest.mark.parametrize("lamport", [0, 1, 127, 128, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
def test_lamport_timestamp_covers_64_bits(lamport: int) -> None:
    message = SdsMessage(lamport_timestamp=lamport)
    assert SdsMessage.decode(message.encode()) == message


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(b"\x98\x06\x07", id="varint"),
        pytest.param(b"\x92\x03\x02ab", id="bytes"),
        pytest.param(b"\xe5\x03\x01\x02\x03\x04", id="fixed32"),
        pytest.param(b"\xe9\x03\x01\x02\x03\x04\x05\x06\x07\x08", id="fixed64"),
        pytest.param(b"\x9b\x06\x08\x01\x9c\x06", id="group"),
    ],
)
def test_unknown_fields_are_skipped_and_not_written_again(unknown: bytes) -> None:
    assert SdsMessage.decode(unknown + FULL_BYTES + unknown) == FULL
    assert SdsMessage.decode(b"\x5a" + bytes([len(unknown)]) + unknown) == SdsMessage(
        causal_history=(HistoryEntry(),)
    )
    assert SdsMessage.decode(unknown + FULL_BYTES).encode() == FULL_BYTES


def test_fields_are_read_in_any_order_and_the_last_of_a_plain_field_counts() -> None:
    data = b"\xa2\x01\x01x\x0a\x01a\x50\x05\x0a\x01b\xa2\x01\x01y"
    assert SdsMessage.decode(data) == SdsMessage(sender_id="b", lamport_timestamp=5, content=b"y")


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_malformed_bytes_raise_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="SdsMessage"):
        SdsMessage.decode(data)


@pytest.mark.parametrize("data", [b"\x0a\x01\xff", b"\x12\x05a", b"\x1a"])
def test_malformed_entry_raises_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="HistoryEntry"):
        HistoryEntry.decode(data)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(SdsMessage(lamport_timestamp=-1), id="lamport below 0"),
        pytest.param(SdsMessage(lamport_timestamp=2**64), id="lamport above 64 bits"),
        pytest.param(SdsMessage(sender_id="\ud800"), id="lone surrogate"),
        pytest.param(
            SdsMessage(causal_history=(HistoryEntry("\udfff"),)), id="lone surrogate in an entry"
        ),
    ],
)
def test_unencodable_values_raise_value_error_naming_the_message(message: SdsMessage) -> None:
    with pytest.raises(ValueError, match="SdsMessage cannot be encoded") as caught:
        message.encode()
    assert type(caught.value) is ValueError


def test_unencodable_entry_raises_value_error_naming_it() -> None:
    with pytest.raises(ValueError, match="HistoryEntry cannot be encoded"):
        HistoryEntry(sender_id="\ud800").encode()


@pytest.mark.parametrize(
    ("lamport", "content", "kind"),
    [
        (1, b"x", SdsKind.CONTENT),
        (0, b"x", SdsKind.CONTENT),
        (1, None, SdsKind.SYNC),
        (0, b"", SdsKind.SYNC),
        (None, b"x", SdsKind.EPHEMERAL),
        (None, None, None),
        (None, b"", None),
    ],
)
def test_kind_follows_from_lamport_time_and_content(
    lamport: int | None, content: bytes | None, kind: SdsKind | None
) -> None:
    assert SdsMessage(lamport_timestamp=lamport, content=content).kind is kind


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 102_400, 2_097_152])
def test_content_suffix_completes_an_encoded_header(size: int) -> None:
    content = b"c" * size
    header = SdsMessage("alice", "id", "room", 7, (FULL_ENTRY,), b"\x01", (HistoryEntry("g"),))
    whole = SdsMessage(
        "alice", "id", "room", 7, (FULL_ENTRY,), b"\x01", (HistoryEntry("g"),), content
    )
    assert header.encode() + content_suffix(content) == whole.encode()


def test_messages_compare_by_value() -> None:
    message = SdsMessage.decode(FULL_BYTES)
    assert message is not FULL
    assert hash(message) == hash(FULL)
    assert not hasattr(message, "__dict__")


def test_text_form_shows_neither_content_nor_filter() -> None:
    text = repr(SdsMessage(bloom_filter=b"filter", content=b"secret"))
    assert "secret" not in text
    assert "filter=" not in text


@pytest.mark.parametrize("name", ["causal_history", "repair_request"])
def test_of_too_many_entries_one_too_many_is_read(name: str) -> None:
    """So whoever judges the message sees that there are too many, and nobody builds them all."""
    named = tuple(HistoryEntry(str(number)) for number in range(9))
    message = SdsMessage(**{name: named})  # type: ignore[arg-type]
    for most in (2, 8):
        read = SdsMessage.decode(message.encode(), max_entries=most)
        assert getattr(read, name) == named[: most + 1]
    assert SdsMessage.decode(message.encode(), max_entries=9) == message
    assert SdsMessage.decode(message.encode()) == message


LONG_HISTORY = tuple(HistoryEntry(f"{index:064x}", bytes(32), "bob") for index in range(64))

ODD_ENTRIES = {
    "no hint": (HistoryEntry("id", None, "bob"), True),
    "empty hint": (HistoryEntry("id", b"", "bob"), False),
    "no sender": (HistoryEntry("id", bytes(32)), False),
    "empty sender": (HistoryEntry("id", bytes(32), ""), False),
    "no id": (HistoryEntry("", bytes(32), "bob"), False),
    "id not ASCII": (HistoryEntry("é", bytes(32), "bob"), False),
    "control character": (HistoryEntry("i\nd", bytes(32), "bob"), False),
    "id of 128 bytes": (HistoryEntry("i" * 128, None, "bob"), False),
    "hint of 128 bytes": (HistoryEntry("id", bytes(128), "bob"), False),
    "sender of 128 bytes": (HistoryEntry("id", None, "b" * 128), False),
    "id of 300 bytes": (HistoryEntry("i" * 300, None, "bob"), False),
}


@pytest.mark.parametrize(("entry", "is_usual"), ODD_ENTRIES.values(), ids=ODD_ENTRIES)
def test_an_entry_of_a_long_history_is_the_same_however_odd(
    entry: HistoryEntry, is_usual: bool
) -> None:
    message = SdsMessage("alice", "id", "room", 1, (*LONG_HISTORY, entry), content=b"hello")
    for _ in range(2):  # the second time from memory
        decoded = SdsMessage.decode(message.encode(), max_entries=65)
        assert decoded == message
        assert decoded.is_usual is is_usual


@pytest.mark.parametrize(
    "odd",
    {
        "unknown field": b"\x0a\x02id\x1a\x03bob\x20\x01",
        "field twice": b"\x0a\x02no\x0a\x02id\x1a\x03bob",
        "length in two bytes": b"\x0a\x82\x00id\x1a\x03bob",
    }.items(),
    ids=lambda odd: odd[0],
)
def test_a_long_history_may_have_entries_that_are_written_otherwise(odd: tuple[str, bytes]) -> None:
    data = SdsMessage(causal_history=LONG_HISTORY).encode() + b"\x5a%c%b" % (len(odd[1]), odd[1])
    decoded = SdsMessage.decode(data)
    assert decoded.causal_history == (*LONG_HISTORY, HistoryEntry("id", None, "bob"))
    assert not decoded.is_usual


@pytest.mark.parametrize("tail", [b"\x5a\x02\x08\x01", b"\x58\x01", b"\x5a\x05\x1a\x03bo"])
def test_a_long_history_with_a_wrong_field_raises(tail: bytes) -> None:
    with pytest.raises(DecodeError, match="SdsMessage"):
        SdsMessage.decode(SdsMessage(causal_history=LONG_HISTORY).encode() + tail)


def test_a_history_longer_than_is_of_interest_is_read_to_one_more() -> None:
    decoded = SdsMessage.decode(SdsMessage(causal_history=LONG_HISTORY).encode(), max_entries=10)
    assert decoded.causal_history == LONG_HISTORY[:11]
    assert not decoded.is_usual
