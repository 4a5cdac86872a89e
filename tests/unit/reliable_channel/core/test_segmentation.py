"""Cutting payloads, the room that headers leave, and which received segments contradict themselves."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

import pytest

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.sds.log import MAX_BRANCHES, MAX_LATE_HINTS
from reliable_channel.core.segmentation import (
    REPAIR_ENTRIES,
    Segmenter,
    check_segment,
    chunk_of,
    is_segmented,
    sds_header_bytes,
    segment_header_bytes,
    waku_header_bytes,
)
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage, WakuMessage
from reliable_channel.errors import ConfigurationError, InvalidSegmentError, MessageTooLargeError
from tests.support.builders import ALICE, CHANNEL, NOW, SMALL, TOPIC, cut

LIMIT = 150 * 1024

CONTENT_SIZES = [1, 127, 128, 16_383, 16_384, LIMIT]
"""On both sides of where the length of a field takes another byte."""


def make_segmenter(
    segmentation: SegmentationConfig = SMALL,
    *,
    sds: SdsConfig | None = None,
    max_message_bytes: int = LIMIT,
    encryption_overhead: int = 0,
    content_topic: str = TOPIC,
) -> Segmenter:
    return Segmenter(
        channel_id=CHANNEL,
        sender_id=ALICE,
        content_topic=content_topic,
        segmentation=segmentation,
        sds=sds or SdsConfig(),
        max_message_bytes=max_message_bytes,
        encryption_overhead=encryption_overhead,
    )


def parity_config(rate: float, **changes: Any) -> SegmentationConfig:
    return replace(SMALL, enable_reed_solomon=True, parity_rate=rate, **changes)


def headers_of(segmenter_topic: str, sds: SdsConfig) -> int:
    return (
        waku_header_bytes(segmenter_topic)
        + sds_header_bytes(CHANNEL, ALICE, sds)
        + segment_header_bytes()
    )


# --- Headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", CONTENT_SIZES)
@pytest.mark.parametrize("content_topic", [TOPIC, "/a/1/" + "x" * 300 + "/proto"])
def test_no_waku_message_has_a_larger_header(size: int, content_topic: str) -> None:
    message = WakuMessage(
        payload=bytes(size),
        content_topic=content_topic,
        version=(1 << 32) - 1,
        timestamp=-(1 << 63),
        meta=b"m" * 64,
        rate_limit_proof=bytes(512),
        ephemeral=True,
    )
    assert len(message.encode()) - size <= waku_header_bytes(content_topic)


@pytest.mark.parametrize("size", CONTENT_SIZES)
@pytest.mark.parametrize("is_parity", [False, True])
def test_no_segment_has_a_larger_header(size: int, *, is_parity: bool) -> None:
    segment = SegmentMessage(
        entire_message_hash=b"h" * 32,
        data_segment_index=0 if is_parity else 255,
        data_segment_count=256,
        payload=bytes(size),
        parity_segment_index=255 if is_parity else 0,
        parity_segment_count=255,
        is_parity=is_parity,
        original_payload_length=(1 << 64) - 1,
        parity_code=1,
        wrap_time_ns=(1 << 64) - 1,
    )
    assert len(segment.encode()) - size <= segment_header_bytes()


@pytest.mark.parametrize("size", CONTENT_SIZES)
@pytest.mark.parametrize(
    "config",
    [
        SdsConfig(),
        SdsConfig(bloom_capacity=0, causal_history_size=1),
        SdsConfig(causal_history_size=64, bloom_capacity=20_000),
    ],
    ids=["default", "smallest", "wide"],
)
@pytest.mark.parametrize("who", ["a", "€" * 85], ids=["short ids", "long ids"])
def test_no_sds_message_has_a_larger_header(size: int, config: SdsConfig, who: str) -> None:
    """WIRE: full history with hints, 3 repair entries, filter; ids of others up to 256 bytes."""
    entry = HistoryEntry("x" * 256, bytes(32), "y" * 255)
    bits = 15 * config.bloom_capacity
    message = SdsMessage(
        sender_id=who,
        message_id="0" * 64,
        channel_id=who,
        lamport_timestamp=(1 << 63) - 1,
        causal_history=(entry,) * (config.causal_history_size + MAX_BRANCHES + MAX_LATE_HINTS),
        bloom_filter=bytes(8 * (1 + bits // 64)) if bits else None,
        repair_request=(entry,) * REPAIR_ENTRIES,
        content=bytes(size),
    )
    assert REPAIR_ENTRIES == 3
    assert len(message.encode()) - size <= sds_header_bytes(who, who, config)


@pytest.mark.parametrize("history", [1, 2, 10])
@pytest.mark.parametrize("bloom_capacity", [0, 500])
def test_a_sync_has_the_room_that_one_of_a_single_entry_leaves(
    history: int, bloom_capacity: int
) -> None:
    """However long the histories of content messages may be."""
    sds = SdsConfig(bloom_capacity=bloom_capacity, causal_history_size=history)
    entry = HistoryEntry("x" * 256, bytes(32), "x" * 255)
    sync = SdsMessage(
        sender_id=ALICE,
        message_id="x" * 64,
        channel_id=CHANNEL,
        lamport_timestamp=(1 << 64) - 1,
        causal_history=(entry,),
        bloom_filter=bytes(944) if bloom_capacity else None,
        repair_request=(entry,) * REPAIR_ENTRIES,
        content=b"",
    )
    most = waku_header_bytes(TOPIC) + 28 + len(sync.encode())
    room = make_segmenter(sds=sds, encryption_overhead=28).sync_entry_room
    assert LIMIT - most - 3 == room


# --- Chunks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("segment_size_bytes", "chunk"),
    [(64, 64), (65, 64), (127, 64), (128, 128), (1000, 960), (102_400, 102_400)],
)
def test_chunks_are_the_segment_size_rounded_down_to_64(
    segment_size_bytes: int, chunk: int
) -> None:
    segmenter = make_segmenter(SegmentationConfig(segment_size_bytes=segment_size_bytes))
    assert segmenter.chunk_bytes == chunk


@pytest.mark.parametrize("overhead", [0, 28, 1024])
@pytest.mark.parametrize("sds", [SdsConfig(), SdsConfig(bloom_capacity=0)], ids=["bloom", "none"])
def test_chunks_are_what_headers_leave_rounded_down_to_64(overhead: int, sds: SdsConfig) -> None:
    largest = SegmentationConfig(segment_size_bytes=1 << 20)
    segmenter = make_segmenter(largest, sds=sds, encryption_overhead=overhead)
    room = LIMIT - headers_of(TOPIC, sds) - overhead
    assert segmenter.chunk_bytes == room // 64 * 64
    assert segmenter.chunk_bytes % 64 == 0


def test_headers_that_leave_no_room_are_refused_with_the_sizes() -> None:
    headers = headers_of(TOPIC, SdsConfig())
    assert make_segmenter(max_message_bytes=headers + 64).chunk_bytes == 64
    with pytest.raises(ConfigurationError) as caught:
        make_segmenter(max_message_bytes=headers + 63)
    text = str(caught.value)
    assert f"{headers} bytes" in text
    assert f"{headers + 63} bytes" in text
    assert "bloom_capacity" in text
    assert "\n" not in text


# --- Parity count --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rate", "data_count", "expected"),
    [
        (0.125, 2, 1),
        (0.125, 8, 1),
        (0.125, 9, 2),
        (0.125, 226, 29),
        (0.25, 40, 10),
        (0.07, 100, 7),  # 0.07 * 100 is a little more than 7 in binary fractions
        (0.1, 30, 3),
        (0.000001, 200, 1),
        (0.0000001, 200, 0),
        (0.0, 200, 0),
        (1.0, 2, 2),
        (1.0, 100, 100),
        (0.999999, 100, 100),
    ],
)
def test_parity_count_is_the_rate_rounded_up_but_no_more_than_the_data(
    rate: float, data_count: int, expected: int
) -> None:
    assert make_segmenter(parity_config(rate)).parity_count(data_count) == expected


@pytest.mark.parametrize("millionths", [1, 9, 100_000, 124_999, 125_000, 333_333, 700_000, 999_999])
def test_parity_count_is_exact_for_every_count(millionths: int) -> None:
    """WIRE: min(k, ceil(rate · k)) in integer arithmetic (rate scaled by 10^6), none for k = 1."""
    segmenter = make_segmenter(parity_config(millionths / 1_000_000))
    for count in range(2, 256):
        exact = ceil(Fraction(millionths, 1_000_000) * count)
        assert segmenter.parity_count(count) == min(count, exact)


def test_there_is_no_parity_for_one_segment_or_when_switched_off() -> None:
    assert make_segmenter(parity_config(1.0)).parity_count(1) == 0
    off = replace(SMALL, parity_rate=1.0)
    assert [make_segmenter(off).parity_count(count) for count in (1, 2, 255)] == [0, 0, 0]


# --- Limits --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "largest"),
    [
        (SMALL, 255),
        (parity_config(0.125), 226),
        (parity_config(1.0), 127),
        (parity_config(0.0), 255),
        (replace(SMALL, max_total_segments=1), 1),
        (parity_config(1.0, max_total_segments=1), 1),
        (parity_config(1.0, max_total_segments=2), 1),
        (parity_config(1.0, max_total_segments=3), 1),
        (parity_config(1.0, max_total_segments=4), 2),
        (parity_config(0.5, max_total_segments=3), 2),
    ],
)
def test_data_and_parity_together_are_at_most_255(config: SegmentationConfig, largest: int) -> None:
    """WIRE: we send at most 255 segments."""
    segmenter = make_segmenter(config)
    limit = min(255, config.max_total_segments)
    assert segmenter.largest_data_count() == largest
    assert largest + segmenter.parity_count(largest) <= limit
    assert largest == limit or largest + 1 + segmenter.parity_count(largest + 1) > limit


def test_the_largest_payload_is_cut_and_one_byte_more_is_refused() -> None:
    segmenter = make_segmenter(parity_config(0.125))
    assert segmenter.max_payload_bytes == 226 * 64
    plan = segmenter.plan(226 * 64)
    assert (plan.chunk_bytes, plan.data_count, plan.parity_count) == (64, 226, 29)
    for action in (lambda: segmenter.plan(226 * 64 + 1), lambda: segmenter.split(b"x" * 14_465, 1)):
        with pytest.raises(MessageTooLargeError) as caught:
            action()
        assert (caught.value.size, caught.value.limit) == (226 * 64 + 1, 226 * 64)


@pytest.mark.parametrize(
    ("size", "count"), [(1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (129, 3), (255 * 64, 255)]
)
def test_a_payload_takes_as_few_segments_as_hold_it(size: int, count: int) -> None:
    assert make_segmenter().plan(size).data_count == count


# --- Splitting -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 63, 64, 65, 127, 128, 129, 1000, 255 * 64])
def test_joining_the_segments_gives_the_payload(size: int) -> None:
    payload = bytes(index * 7 % 251 for index in range(size))
    segments = [SegmentMessage.decode(item) for item in make_segmenter().split(payload, NOW)]
    assert b"".join(segment.payload for segment in segments) == payload
    assert {len(segment.payload) for segment in segments[:-1]} <= {64}
    for index, segment in enumerate(segments):
        assert segment == SegmentMessage(
            entire_message_hash=keccak256(payload),
            data_segment_index=index,
            data_segment_count=len(segments),
            payload=segment.payload,
            original_payload_length=size,
            wrap_time_ns=NOW,
        )
        check_segment(segment, 256, LIMIT)


@pytest.mark.parametrize(("code", "tag"), [("reedsolo", 1), ("leopard", 0)])
def test_data_segments_say_how_much_parity_there_is_and_of_which_code(code: Any, tag: int) -> None:
    """WIRE: fields 3, 6, 8, 9, 10 are the same on all segments of a payload."""
    segmenter = make_segmenter(parity_config(0.5, parity_code=code))
    segments = [SegmentMessage.decode(item) for item in segmenter.split(b"x" * 300, NOW)]
    common = {
        (
            segment.data_segment_count,
            segment.parity_segment_count,
            segment.original_payload_length,
            segment.parity_code,
            segment.wrap_time_ns,
            segment.is_parity,
        )
        for segment in segments
    }
    assert common == {(5, 3, 300, tag, NOW, False)}


def test_a_payload_without_parity_names_no_code() -> None:
    segments = make_segmenter(parity_config(0.5)).split(b"x", NOW)
    assert SegmentMessage.decode(segments[0]).parity_code == 0


def test_without_wrap_time_equal_payloads_give_equal_segments() -> None:
    segmenter = make_segmenter()
    assert segmenter.split(b"x" * 100, 0) == segmenter.split(b"x" * 100, 0)
    assert SegmentMessage.decode(segmenter.split(b"x", 0)[0]).wrap_time_ns == 0
    assert segmenter.split(b"x", 1) != segmenter.split(b"x", 2)


@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
def test_parity_of_a_payload_is_that_of_a_peer(code: Any) -> None:
    """LIP-243: the last chunk is padded with zeros to the others' length."""
    segmenter = make_segmenter(parity_config(0.5, segment_size_bytes=64, parity_code=code))
    payload = bytes(range(200))
    contents = segmenter.split(payload, NOW)
    expected = cut(payload, parity_count=2, code=code)
    assert [SegmentMessage.decode(item) for item in segmenter.add_parity(contents)] == expected[4:]


def test_most_payloads_have_no_parity() -> None:
    single = make_segmenter(parity_config(0.5, segment_size_bytes=64))
    for segmenter, payload in ((single, b"x"), (make_segmenter(SMALL), b"x" * 200)):
        assert segmenter.add_parity(segmenter.split(payload, NOW)) == []


def test_segments_of_a_peer_are_those_of_ours() -> None:
    """The builder of the tests and the segmenter agree to the byte."""
    payload = bytes(range(200))
    segmenter = make_segmenter(parity_config(0.5))
    ours = segmenter.split(payload, NOW)
    peers = [segment.encode() for segment in cut(payload, parity_count=2)]
    assert peers[: len(ours)] == ours


# --- Received segments ---------------------------------------------------------------------------

FIRST, SECOND, LAST, PARITY, LAST_PARITY = cut(bytes(range(150)), parity_count=2)
"""Segments of 64, 64 and 22 bytes, and two of parity."""

SINGLE = cut(b"x" * 10)[0]


@pytest.mark.parametrize(
    "segment",
    [
        pytest.param(FIRST, id="first"),
        pytest.param(SECOND, id="second"),
        pytest.param(LAST, id="last"),
        pytest.param(PARITY, id="parity"),
        pytest.param(LAST_PARITY, id="last parity"),
        pytest.param(SINGLE, id="single"),
        pytest.param(replace(FIRST, original_payload_length=129), id="one byte in the last"),
        pytest.param(replace(FIRST, original_payload_length=192), id="full last"),
        pytest.param(replace(PARITY, original_payload_length=129), id="parity, one byte"),
        pytest.param(replace(PARITY, original_payload_length=192), id="parity, full last"),
        pytest.param(replace(LAST, original_payload_length=66), id="last as long as a chunk"),
        pytest.param(replace(FIRST, original_payload_length=0), id="no length"),
        pytest.param(replace(LAST, original_payload_length=0), id="last, no length"),
        pytest.param(replace(SINGLE, original_payload_length=0), id="single, no length"),
        pytest.param(
            replace(FIRST, data_segment_count=254, original_payload_length=0, parity_code=0),
            id="256 in all",
        ),
        pytest.param(
            replace(
                FIRST,
                data_segment_count=256,
                parity_segment_count=0,
                original_payload_length=0,
                parity_code=0,
            ),
            id="256 data",
        ),
        pytest.param(
            replace(
                FIRST,
                data_segment_count=256,
                data_segment_index=255,
                parity_segment_count=0,
                original_payload_length=0,
                parity_code=0,
            ),
            id="highest index",
        ),
        pytest.param(
            replace(FIRST, payload=bytes(LIMIT), original_payload_length=0), id="largest chunk"
        ),
        pytest.param(
            replace(LAST, original_payload_length=2 * LIMIT + 22), id="last of the largest chunk"
        ),
        pytest.param(replace(FIRST, parity_code=2), id="data beside parity of an unknown code"),
        pytest.param(
            replace(FIRST, parity_segment_count=250, parity_code=2),
            id="data beside more parity than known codes make",
        ),
        pytest.param(
            replace(FIRST, parity_segment_count=3, parity_code=0), id="as much leopard as data"
        ),
        pytest.param(
            replace(FIRST, data_segment_count=253, original_payload_length=0), id="255 of reedsolo"
        ),
        # Parity of one segment is never used: whatever is said of it does no harm.
        pytest.param(replace(SINGLE, parity_segment_count=1), id="single, parity"),
        pytest.param(replace(SINGLE, parity_segment_count=255), id="single, much parity"),
        pytest.param(
            replace(SINGLE, parity_segment_count=1, parity_code=9), id="single, unknown parity"
        ),
    ],
)
def test_a_consistent_segment_is_accepted(segment: SegmentMessage) -> None:
    assert is_segmented(segment)
    check_segment(segment, 256, LIMIT)


@pytest.mark.parametrize(
    ("segment", "changes", "reason"),
    [
        # index not below the count of its class
        (FIRST, {"data_segment_index": 3}, "data_index"),
        (FIRST, {"data_segment_index": (1 << 32) - 1}, "data_index"),
        (SINGLE, {"data_segment_index": 1}, "data_index"),
        (PARITY, {"parity_segment_index": 2}, "parity_index"),
        (PARITY, {"parity_segment_index": (1 << 32) - 1}, "parity_index"),
        # parity without parity count
        (PARITY, {"parity_segment_count": 0}, "parity_without_count"),
        (FIRST, {"is_parity": True, "parity_segment_count": 0}, "parity_without_count"),
        # total above 256
        (FIRST, {"data_segment_count": 255}, "too_many_segments"),
        (FIRST, {"data_segment_count": 257, "parity_segment_count": 0}, "too_many_segments"),
        (FIRST, {"data_segment_count": (1 << 32) - 1}, "too_many_segments"),
        (FIRST, {"parity_segment_count": 254}, "too_many_segments"),
        (FIRST, {"parity_segment_count": (1 << 32) - 1}, "too_many_segments"),
        (PARITY, {"parity_segment_count": 254}, "too_many_segments"),
        # an index of the class that it is not of
        (FIRST, {"parity_segment_index": 1}, "index_of_other_class"),
        (PARITY, {"data_segment_index": 1}, "index_of_other_class"),
        (SINGLE, {"parity_segment_index": 1}, "index_of_other_class"),
        # parity that no code makes
        (FIRST, {"parity_segment_count": 4, "parity_code": 0}, "parity_count"),
        (PARITY, {"parity_segment_count": 4, "parity_code": 0}, "parity_count"),
        (FIRST, {"data_segment_count": 254, "original_payload_length": 0}, "parity_count"),
        (FIRST, {"parity_segment_count": 253}, "parity_count"),
        (PARITY, {"parity_segment_count": 253}, "parity_count"),
        # a code of no parity, parity of no code
        (FIRST, {"parity_segment_count": 0}, "parity_code_without_count"),
        (SINGLE, {"parity_code": 1}, "parity_code_without_count"),
        (SINGLE, {"parity_code": 7}, "parity_code_without_count"),
        (PARITY, {"parity_code": 2}, "unknown_parity_code"),
        (PARITY, {"parity_code": (1 << 32) - 1}, "unknown_parity_code"),
        # nothing in it
        (FIRST, {"payload": b""}, "empty_segment"),
        (LAST, {"payload": b""}, "empty_segment"),
        (PARITY, {"payload": b""}, "empty_segment"),
        (SINGLE, {"payload": b"", "original_payload_length": 0}, "empty_segment"),
        # payload above the network limit
        (FIRST, {"payload": bytes(LIMIT + 1)}, "segment_too_large"),
        (PARITY, {"payload": bytes(LIMIT + 1)}, "segment_too_large"),
        (SINGLE, {"payload": bytes(LIMIT + 1)}, "segment_too_large"),
        # length not within (k-1)·chunk < length <= k·chunk where the chunk is known
        (FIRST, {"original_payload_length": 128}, "length"),
        (FIRST, {"original_payload_length": 193}, "length"),
        (FIRST, {"original_payload_length": 1}, "length"),
        (FIRST, {"original_payload_length": (1 << 64) - 1}, "length"),
        (SECOND, {"original_payload_length": 128}, "length"),
        (SECOND, {"original_payload_length": 193}, "length"),
        (PARITY, {"original_payload_length": 128}, "length"),
        (PARITY, {"original_payload_length": 193}, "length"),
        (LAST, {"original_payload_length": 151}, "length"),  # no chunk gives this
        (LAST, {"original_payload_length": 64}, "length"),  # a chunk of 21, but 22 are here
        (LAST, {"original_payload_length": 22}, "length"),
        # a chunk above the network limit
        (LAST, {"original_payload_length": 2 * (LIMIT + 1) + 22}, "length"),
        (LAST, {"original_payload_length": (1 << 64) - 2}, "length"),
        (LAST, {"original_payload_length": 21}, "length"),
        (SINGLE, {"original_payload_length": 9}, "length"),
        (SINGLE, {"original_payload_length": 11}, "length"),
    ],
)
def test_a_segment_that_contradicts_itself_is_refused(
    segment: SegmentMessage, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidSegmentError) as caught:
        check_segment(replace(segment, **changes), 256, LIMIT)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("index", "length", "size", "chunk"),
    [
        (0, 0, 64, 64),
        (1, 150, 64, 64),
        (None, 0, 64, 64),
        (None, 150, 64, 64),
        (2, 150, 22, 64),
        (2, 151, 22, 64),
        (2, 0, 22, 0),
    ],
)
def test_a_segment_tells_the_chunk_of_its_payload_unless_it_is_the_last_without_length(
    index: int | None, length: int, size: int, chunk: int
) -> None:
    assert chunk_of(3, length, index, size) == chunk


@pytest.mark.parametrize("limit", [1, 4, 5, 6])
def test_the_number_of_segments_is_limited_by_the_setting(limit: int) -> None:
    if limit >= 5:
        check_segment(FIRST, limit, LIMIT)
    else:
        with pytest.raises(InvalidSegmentError, match="too_many_segments"):
            check_segment(FIRST, limit, LIMIT)


@pytest.mark.parametrize(
    "changes",
    [
        {"entire_message_hash": b""},
        {"entire_message_hash": b"h" * 31},
        {"entire_message_hash": b"h" * 33},
        {"data_segment_count": 0},
    ],
)
def test_content_without_hash_or_count_is_no_segment(changes: dict[str, Any]) -> None:
    """WIRE: content without a valid 32-byte hash and count is an unsegmented message."""
    assert not is_segmented(replace(FIRST, **changes))
    assert not is_segmented(SegmentMessage())
