"""What reading protobuf refuses beyond what every runtime refuses, and what the runtime must be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reliable_channel.core.build import IS_COMPILED
from reliable_channel.core.wire import (
    HistoryEntry,
    SdsMessage,
    SegmentMessage,
    WakuMessage,
    proto,
)
from reliable_channel.core.wire.proto import sds_pb2
from reliable_channel.core.wire.protobuf import parse, undivided
from reliable_channel.errors import DecodeError
from tests.support.cpu_time import cpu_seconds


@pytest.mark.parametrize(
    ("message_type", "data"),
    [
        pytest.param(HistoryEntry, b"\x08\x01", id="entry's message_id as varint"),
        pytest.param(SdsMessage, b"\x08\x05", id="sender_id as varint"),
        pytest.param(SdsMessage, b"\x52\x01\x01", id="lamport_timestamp as bytes"),
        pytest.param(SdsMessage, b"\x51" + bytes(8), id="lamport_timestamp as fixed64"),
        pytest.param(SdsMessage, b"\x5b\x5c", id="causal_history as group"),
        pytest.param(SdsMessage, b"\x5a\x02\x08\x01", id="message_id in causal_history as varint"),
        pytest.param(SdsMessage, b"\x6a\x02\x10\x01", id="hint in repair_request as varint"),
        pytest.param(SdsMessage, b"\x98\x06\x07\x08\x05", id="after an unknown field"),
        pytest.param(SegmentMessage, b"\x12\x01\x01", id="data_segment_index as bytes"),
        pytest.param(WakuMessage, b"\x52\x01\x01", id="timestamp as bytes"),
    ],
)
def test_field_of_another_wire_type_is_refused_not_skipped(
    message_type: type[HistoryEntry | SdsMessage | SegmentMessage | WakuMessage], data: bytes
) -> None:
    with pytest.raises(DecodeError, match="wire type"):
        message_type.decode(data)


OTHERS = b"".join(
    [
        b"\x98\x06\x07",  # 99, a varint
        b"\x99\x06" + bytes(8),
        b"\x92\x03\x02ab",  # 50, bytes
        b"\x9d\x06" + bytes(4),
        b"\x9b\x06\x08\x05\x9c\x06",  # 99, a group with a varint of number 1
    ]
)
"""Fields of other numbers, one of each wire type."""


def test_fields_of_other_numbers_are_left_unread() -> None:
    raw = parse(sds_pb2.SdsMessage, OTHERS + b"\x0a\x01a" + OTHERS)
    assert raw == sds_pb2.SdsMessage(sender_id="a")
    entry = b"\x0a\x01e" + OTHERS
    message = SdsMessage.decode(b"\x5a" + bytes([len(entry)]) + entry)
    assert message == SdsMessage(causal_history=(HistoryEntry("e"),))


WRONG = {0: b"\x01", 1: bytes(8), 2: b"\x01\x01", 3: b"", 5: bytes(4)}
"""A value for each wire type."""


@pytest.mark.parametrize("around", [b"", OTHERS], ids=["alone", "with others"])
@pytest.mark.parametrize("wire_type", WRONG)
def test_every_known_number_is_refused_under_every_other_wire_type(
    wire_type: int, around: bytes
) -> None:
    """Said in more bytes than it takes, empty or twice, a field of its own type is none of them."""
    numbers = sds_pb2.SdsMessage.DESCRIPTOR.fields_by_number
    for number in (*numbers, 4, 9, 21):
        key = b"%c" % (number << 3 | wire_type) if number < 16 else b"\xa2\x01"
        if number >= 16:
            key = bytes([(number << 3 | wire_type) & 0x7F | 0x80, number >> 4])
        end = b""
        if wire_type == 3:
            end = bytes([key[0] + 1]) + key[1:]
        data = around + key + WRONG[wire_type] + end + b"\x0a\x00\x50\x80\x00" + around
        own = 0 if number == 10 else 2
        if wire_type == 2 and number in (11, 13):
            data = around + key + b"\x00" + around
        if number not in numbers or wire_type == own:
            parse(sds_pb2.SdsMessage, data)
        else:
            with pytest.raises(DecodeError, match=f"field {number} has wire type {wire_type}"):
                parse(sds_pb2.SdsMessage, data)


LARGEST = 150 * 1024
"""Bytes of the largest message of the network."""

COSTLY = {
    "empty entries": b"\x5a\x00",
    "empty repair requests": b"\x6a\x00",
    "groups": b"\x2b\x2c",
    "groups in groups": b"\x2b" * 40 + b"\x2c" * 40,
    "entries with unknown fields": b"\x5a\x02\x20\x01",
    "entries with many unknown fields": b"\x5a\x94\x01" + b"\x20\x01" * 74,
    "varints": b"\x20\x01",
    "empty unknown fields": b"\x22\x00",
    "the same field": b"\x0a\x00",
}


@pytest.mark.parametrize("part", COSTLY.values(), ids=COSTLY)
def test_the_largest_message_costs_little_whatever_it_is_made_of(part: bytes) -> None:
    data = part * (LARGEST // len(part))
    costs = [cpu_seconds(lambda: SdsMessage.decode(data, max_entries=1_024)) for _ in range(3)]
    assert min(costs) < 0.04  # a tenth of that is usual


def test_error_names_the_message_and_keeps_the_cause() -> None:
    with pytest.raises(DecodeError) as caught:
        parse(sds_pb2.SdsMessage, b"\xff")
    assert caught.value.what == "SdsMessage"
    # Compiled code keeps it only as what was being handled.
    error = caught.value
    assert (error.__context__ if IS_COMPILED else error.__cause__) is not None


def test_generated_code_is_of_the_version_that_runtimes_6_and_7_read() -> None:
    """A runtime reads generated code of its own and of the previous major version."""
    (folder,) = proto.__path__
    generated = sorted(Path(folder).glob("*_pb2.py"))
    assert [path.name for path in generated] == ["sds_pb2.py", "segment_pb2.py", "waku_pb2.py"]
    for path in generated:
        assert "# Protobuf Python Version: 6.30." in path.read_text(encoding="utf-8")


def test_runtime_without_its_c_extension_reads_and_refuses_the_same() -> None:
    program = """
from google.protobuf.internal import api_implementation
from reliable_channel.core.wire import DecodeError, HistoryEntry, SdsMessage
assert api_implementation.Type() == "python"
message = SdsMessage("a", "", "c", 0, (HistoryEntry("e", b""),), b"", (), b"x")
encoded = message.encode()
assert SdsMessage.decode(encoded) == message
print(encoded.hex())
assert SdsMessage.decode(encoded + b"\\x98\\x06\\x07") == message
inner = b"\\x5a\\x02\\x08\\x01"
for data in (b"\\x0a\\x01\\xff", b"\\x9b\\x06" * 10000, b"\\x08\\x05", encoded[:-1], inner):
    try:
        SdsMessage.decode(data)
    except DecodeError:
        print("refused")
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
        capture_output=True,
        text=True,
        check=True,
    )
    message = SdsMessage("a", "", "c", 0, (HistoryEntry("e", b""),), b"", (), b"x")
    assert result.stdout.split() == [message.encode().hex()] + ["refused"] * 5


def test_a_class_that_leaves_messages_undivided_reads_all_else_alike() -> None:
    entry = HistoryEntry("id", b"hint", "bob")
    message = SdsMessage("alice", "id", "room", 7, (entry,), b"filter", (entry,), b"content")
    raw = undivided(sds_pb2.SdsMessage).FromString(message.encode())
    assert raw.causal_history[:] == raw.repair_request[:] == [entry.encode()]
    assert (raw.sender_id, raw.lamport_timestamp, raw.content) == ("alice", 7, b"content")
    assert raw.SerializeToString() == message.encode()
