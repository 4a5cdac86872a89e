"""Segment messages on the wire, against bytes written by hand."""

from __future__ import annotations

from dataclasses import fields

import pytest

from reliable_channel.core.wire.segment import SegmentMessage
from reliable_channel.errors import DecodeError

FULL = SegmentMessage(
    entire_message_hash=b"\xaa\xbb",
    data_segment_index=1,
    data_segment_count=300,
    payload=b"part",
    parity_segment_index=2,
    parity_segment_count=3,
    is_parity=True,
    original_payload_length=2**33,
    parity_code=1,
    wrap_time_ns=2**63,
)
FULL_BYTES = (
    b"\x0a\x02\xaa\xbb"
    b"\x10\x01"
    b"\x18\xac\x02"
    b"\x22\x04part"
    b"\x28\x02"
    b"\x30\x03"
    b"\x38\x01"
    b"\x40\x80\x80\x80\x80\x20"
    b"\x48\x01"
    b"\x50\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"
)

UINT32_FIELDS = (
    "data_segment_index",
    "data_segment_count",
    "parity_segment_index",
    "parity_segment_count",
    "parity_code",
)
UINT64_FIELDS = ("original_payload_length", "wrap_time_ns")


def test_default_segment_encodes_to_no_bytes_and_back() -> None:
    assert SegmentMessage().encode() == b""
    assert SegmentMessage.decode(b"") == SegmentMessage()


def test_fields_are_written_in_ascending_order_under_their_numbers() -> None:
    assert FULL.encode() == FULL_BYTES


def test_every_field_is_read_from_under_its_number() -> None:
    assert SegmentMessage.decode(FULL_BYTES) == FULL


def test_field_at_its_default_is_omitted_wherever_it_stands() -> None:
    for item in fields(SegmentMessage):
        alone = SegmentMessage(**{item.name: getattr(FULL, item.name)})
        assert alone.encode() in FULL_BYTES
        assert SegmentMessage.decode(alone.encode()) == alone


def test_explicit_defaults_are_read_and_not_written_again() -> None:
    data = b"\x0a\x00\x10\x00\x18\x00\x22\x00\x28\x00\x30\x00\x38\x00\x40\x00\x48\x00\x50\x00"
    assert SegmentMessage.decode(data) == SegmentMessage()
    assert SegmentMessage.decode(data).encode() == b""


def test_segment_of_a_sender_without_our_fields_has_them_at_their_defaults() -> None:
    segment = SegmentMessage.decode(FULL_BYTES[: FULL_BYTES.index(b"\x40\x80")])
    assert segment.is_parity
    assert segment.original_payload_length == 0
    assert segment.parity_code == 0
    assert segment.wrap_time_ns == 0


def test_unknown_fields_are_skipped_and_not_written_again() -> None:
    data = b"\x98\x06\x07" + FULL_BYTES + b"\x92\x03\x02ab"
    assert SegmentMessage.decode(data) == FULL
    assert SegmentMessage.decode(data).encode() == FULL_BYTES


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(FULL_BYTES[:-1], id="truncated in a number"),
        pytest.param(b"\x22\x05ab", id="length past the end"),
        pytest.param(b"\x22\xff\xff\xff\xff\x0f", id="absurd length"),
        pytest.param(b"\x10" + b"\xff" * 10 + b"\x01", id="varint of eleven bytes"),
        pytest.param(b"\x00", id="field number 0"),
        pytest.param(b"hello world, not a segment", id="text"),
    ],
)
def test_malformed_bytes_raise_decode_error(data: bytes) -> None:
    with pytest.raises(DecodeError, match="SegmentMessage"):
        SegmentMessage.decode(data)


@pytest.mark.parametrize("name", UINT32_FIELDS)
@pytest.mark.parametrize("value", [-1, 2**32])
def test_number_outside_32_bits_raises_value_error(name: str, value: int) -> None:
    with pytest.raises(ValueError, match="SegmentMessage cannot be encoded"):
        SegmentMessage(**{name: value}).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize("name", UINT64_FIELDS)
@pytest.mark.parametrize("value", [-1, 2**64])
def test_number_outside_64_bits_raises_value_error(name: str, value: int) -> None:
    with pytest.raises(ValueError, match="SegmentMessage cannot be encoded"):
        SegmentMessage(**{name: value}).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, 2**32 - 1) for name in UINT32_FIELDS] + [(name, 2**64 - 1) for name in UINT64_FIELDS],
)
def test_largest_numbers_survive(name: str, value: int) -> None:
    segment = SegmentMessage(**{name: value})  # type: ignore[arg-type]
    assert SegmentMessage.decode(segment.encode()) == segment


def test_segments_compare_by_value() -> None:
    segment = SegmentMessage.decode(FULL_BYTES)
    assert hash(segment) == hash(FULL)
    assert not hasattr(segment, "__dict__")


def test_text_form_shows_no_payload() -> None:
    assert "secret" not in repr(SegmentMessage(payload=b"secret"))


SEVERAL = SegmentMessage(entire_message_hash=bytes(32), data_segment_count=2, payload=b"x")


@pytest.mark.parametrize(
    ("data", "is_plain"),
    {
        "as encoded": (SEVERAL.encode(), True),
        "unknown field": (SEVERAL.encode() + b"\x7a\x01\x00", False),
        "default written out": (SEVERAL.encode() + b"\x30\x00", False),
        "count in two bytes": (SEVERAL.encode().replace(b"\x18\x02", b"\x18\x82\x00"), False),
        "another order": (b"\x18\x02" + SEVERAL.encode().replace(b"\x18\x02", b""), False),
    }.values(),
)
def test_a_segment_knows_whether_its_bytes_are_those_it_is_encoded_as(
    data: bytes, is_plain: bool
) -> None:
    decoded = SegmentMessage.decode(data)
    assert decoded == SEVERAL
    assert decoded.is_plain is is_plain is (decoded.encode() == data)
