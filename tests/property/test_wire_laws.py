"""Laws of the wire formats: encoding loses nothing, decoding is total.

Spec: LIP-109 (SDS); LIP-243 (segmentation); 14/WAKU2-MESSAGE; wire formats.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, TypeAlias

import pytest
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import example, given
from hypothesis import strategies as st

from reliable_channel.core.wire import (
    DecodeError,
    HistoryEntry,
    SdsMessage,
    SegmentMessage,
    WakuMessage,
    content_suffix,
)
from reliable_channel.core.wire.proto import sds_pb2, segment_pb2, waku_pb2

# How long one example takes says more about the machine than about the code.

Message: TypeAlias = HistoryEntry | SdsMessage | SegmentMessage | WakuMessage

# Sizes on both sides of a one-byte length.
OCTETS = st.one_of(st.binary(max_size=40), st.binary(min_size=126, max_size=130))
TEXTS = st.text(max_size=70)
UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)

ENTRIES = st.builds(HistoryEntry, TEXTS, st.none() | OCTETS, st.none() | TEXTS)
HISTORIES = st.lists(ENTRIES, max_size=3).map(tuple)
SDS_MESSAGES = st.builds(
    SdsMessage,
    sender_id=TEXTS,
    message_id=TEXTS,
    channel_id=TEXTS,
    lamport_timestamp=st.none() | UINT64,
    causal_history=HISTORIES,
    bloom_filter=st.none() | OCTETS,
    repair_request=HISTORIES,
    content=st.none() | OCTETS,
)
SEGMENTS = st.builds(
    SegmentMessage,
    entire_message_hash=OCTETS,
    data_segment_index=UINT32,
    data_segment_count=UINT32,
    payload=OCTETS,
    parity_segment_index=UINT32,
    parity_segment_count=UINT32,
    is_parity=st.booleans(),
    original_payload_length=UINT64,
    parity_code=UINT32,
    wrap_time_ns=UINT64,
)
WAKU_MESSAGES = st.builds(
    WakuMessage,
    payload=OCTETS,
    content_topic=TEXTS,
    version=st.none() | UINT32,
    timestamp=st.none() | st.integers(-(2**63), 2**63 - 1),
    meta=st.none() | OCTETS,
    rate_limit_proof=st.none() | OCTETS,
    ephemeral=st.none() | st.booleans(),
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(ENTRIES, SDS_MESSAGES, SEGMENTS, WAKU_MESSAGES)
GENERATED: Final = {
    HistoryEntry: sds_pb2.HistoryEntry,
    SdsMessage: sds_pb2.SdsMessage,
    SegmentMessage: segment_pb2.SegmentMessage,
    WakuMessage: waku_pb2.WakuMessage,
}
TYPES = st.sampled_from([HistoryEntry, SdsMessage, SegmentMessage, WakuMessage])


@st.composite
def mutated(draw: st.DrawFn) -> tuple[type[Message], bytes]:
    """Draw a valid encoding with a few bits flipped, bytes cut out or bytes put in."""
    message = draw(MESSAGES)
    data = bytearray(message.encode())
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "insert"])):
            case "flip" if position < len(data):
                data[position] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[position : position + draw(st.integers(1, 8))]
            case _:
                data[position:position] = draw(st.binary(min_size=1, max_size=8))
    return type(message), bytes(data)


def assert_total(kind: type[Message], data: bytes) -> None:
    """Assert that the bytes are a value, which then survives its own encoding, or refused."""
    try:
        message = kind.decode(data)
    except DecodeError:
        return
    assert kind.decode(message.encode()) == message


@given(MESSAGES)
def test_decoding_undoes_encoding(message: Message) -> None:
    assert type(message).decode(message.encode()) == message


@given(MESSAGES)
def test_the_bytes_are_those_of_the_protobuf_runtime(message: Message) -> None:
    """What was written by hand, read and written again by the generated class, is the same."""
    raw = GENERATED[type(message)].FromString(message.encode())
    assert raw.SerializeToString(deterministic=True) == message.encode()
    assert not UnknownFieldSet(raw)


@given(
    SEGMENTS.filter(lambda segment: segment.data_segment_count > 0),
    st.lists(OCTETS.filter(bool), max_size=3),
    st.sampled_from([0, 1, 126, 127, 254]),
)
def test_segments_encoded_together_are_those_encoded_one_by_one(
    segment: SegmentMessage, payloads: list[bytes], place: int
) -> None:
    first = replace(segment, data_segment_index=place)
    assert first.encode_each([memoryview(item) for item in payloads]) == [
        replace(first, data_segment_index=place + index, payload=payload).encode()
        for index, payload in enumerate(payloads)
    ]


@given(MESSAGES, MESSAGES)
def test_messages_of_one_type_have_equal_bytes_only_when_equal(
    one: Message, other: Message
) -> None:
    if type(one) is type(other):
        assert (one.encode() == other.encode()) == (one == other)


@given(TYPES, st.binary(max_size=300))
@example(SdsMessage, b"\x0a\x01\xff")
@example(WakuMessage, b"\x9b\x06" * 100)
def test_any_bytes_are_a_value_or_a_decode_error(kind: type[Message], data: bytes) -> None:
    assert_total(kind, data)


@given(mutated())
def test_mutated_messages_are_a_value_or_a_decode_error(case: tuple[type[Message], bytes]) -> None:
    assert_total(*case)


@given(SEGMENTS, TYPES)
def test_bytes_of_another_type_are_a_value_or_a_decode_error(
    segment: SegmentMessage, kind: type[Message]
) -> None:
    assert_total(kind, segment.encode())


@given(SDS_MESSAGES, st.binary(min_size=1, max_size=40))
def test_content_can_be_appended_to_an_encoded_header(header: SdsMessage, content: bytes) -> None:
    """Of two contents the later counts, so the law holds whether or not there was one before."""
    whole = SdsMessage.decode(header.encode() + content_suffix(content))
    assert whole.content == content
    if header.content is None:
        assert whole.encode() == header.encode() + content_suffix(content)


@given(SDS_MESSAGES)
def test_every_prefix_of_a_message_is_a_value_or_a_decode_error(message: SdsMessage) -> None:
    data = message.encode()
    for length in range(len(data)):
        assert_total(SdsMessage, data[:length])


def test_a_decode_error_is_a_value_error_and_names_the_type() -> None:
    with pytest.raises(ValueError, match="SegmentMessage"):
        SegmentMessage.decode(b"\xff")
