"""What reading protobuf refuses beyond what every runtime refuses, and what the runtime must be."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reliable_channel.core.wire import (
    HistoryEntry,
    SdsMessage,
    SegmentMessage,
    WakuMessage,
    proto,
)
from reliable_channel.core.wire.proto import sds_pb2
from reliable_channel.core.wire.protobuf import check_wire_types, parse
from reliable_channel.errors import DecodeError


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


def test_fields_of_other_numbers_are_left_unread() -> None:
    check_wire_types(parse(sds_pb2.SdsMessage, b"\x98\x06\x07\x92\x03\x02ab"))


def test_error_names_the_message_and_keeps_the_cause() -> None:
    with pytest.raises(DecodeError) as caught:
        parse(sds_pb2.SdsMessage, b"\xff")
    assert caught.value.what == "SdsMessage"
    assert caught.value.__cause__ is not None


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
for data in (b"\\x0a\\x01\\xff", b"\\x9b\\x06" * 10000, b"\\x08\\x05", encoded[:-1]):
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
    assert result.stdout.split() == [message.encode().hex()] + ["refused"] * 4
