"""Payload to segments: how large a chunk may be, how many there are, and what each one says.

It must not know about SDS state or time beyond the wrap time it is given. Every payload is wrapped, also one that
fits in a single segment. Where enabled, ``reed_solomon`` makes parity segments that follow the data segments.

Spec: LIP-243 (Segmentation); RELIABLE-CHANNEL-API, Outgoing message processing, step 1.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from reliable_channel import values
from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core import reed_solomon
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.reed_solomon.coding import MAX_SHARDS
from reliable_channel.core.sds.bloom import BloomShape
from reliable_channel.core.sds.log import MAX_BRANCHES, MAX_LATE_HINTS
from reliable_channel.core.sds.repair import REPAIR_ENTRIES
from reliable_channel.core.wire import (
    MAX_RATE_LIMIT_PROOF_BYTES,
    HistoryEntry,
    SdsMessage,
    SegmentMessage,
    WakuMessage,
)
from reliable_channel.errors import ConfigurationError, InvalidSegmentError, MessageTooLargeError
from reliable_channel.types import ChannelId, Nanoseconds, ParticipantId

MAX_SENT_SEGMENTS: Final = 255
"""Data and parity segments of a payload of ours: readers of LIP-243's text refuse a total of 256."""

CHUNK_ALIGNMENT: Final = 64
"""Chunks are multiples of this many bytes, which both parity codes can work on (LIP-243)."""

DEFAULT_ENCRYPTION_OVERHEAD: Final = 1024
"""Bytes kept free for an encryption hook that does not say how much it adds."""

MAX_META_BYTES: Final = 64
"""Longest meta field of 14/WAKU2-MESSAGE."""

MAX_MESSAGE_ID_BYTES: Final = 256
"""Longest message id that is taken from others."""

PARITY_CODES: Final = ("leopard", "reedsolo")
"""Names of the values of the ``parity_code`` field."""

HASH_BYTES: Final = 32

_RATE_SCALE: Final = 1_000_000
_MAX_UINT64: Final = (1 << 64) - 1


@values.dataclass(frozen=True, slots=True)
class SegmentPlan:
    """How one payload is cut.

    Attributes:
        chunk_bytes: Payload bytes in each data segment but the last, a multiple of 64.
        data_count: Data segments.
        parity_count: Parity segments.
    """

    chunk_bytes: int
    data_count: int
    parity_count: int


def sds_header_bytes(channel_id: ChannelId, sender_id: ParticipantId, config: SdsConfig) -> int:
    """Return the largest size in bytes that all fields of an SDS message but its content can have here.

    Args:
        channel_id: The channel.
        sender_id: Ours.
        config: Size of histories and filter.

    Spec: RELIABLE-CHANNEL-API, Outgoing message processing, step 1: "all that is not content".
    """
    bloom = None
    if config.bloom_capacity:
        bloom = bytes(BloomShape(config.bloom_capacity, config.bloom_error_rate).byte_length)
    largest = SdsMessage(
        sender_id=sender_id,
        message_id="x" * 64,
        channel_id=channel_id,
        lamport_timestamp=_MAX_UINT64,
        bloom_filter=bloom,
    )
    entries = config.causal_history_size + MAX_BRANCHES + MAX_LATE_HINTS + REPAIR_ENTRIES
    return len(largest.encode()) + entries * entry_bytes() + 6


@cache
def entry_bytes() -> int:
    """Return the largest size in bytes of a history entry or repair request in a message."""
    entry = HistoryEntry(
        message_id="x" * MAX_MESSAGE_ID_BYTES, retrieval_hint=bytes(HASH_BYTES), sender_id="x" * 255
    )
    return len(SdsMessage(causal_history=(entry,)).encode())


@cache
def segment_header_bytes() -> int:
    """Return the largest size in bytes that all fields of a segment but its payload can have."""
    largest = SegmentMessage(
        entire_message_hash=bytes(HASH_BYTES),
        data_segment_index=255,
        data_segment_count=256,
        parity_segment_index=255,
        parity_segment_count=256,
        is_parity=True,
        original_payload_length=_MAX_UINT64,
        parity_code=1,
        wrap_time_ns=_MAX_UINT64,
    )
    return len(largest.encode()) + 5


def waku_header_bytes(content_topic: str) -> int:
    """Return the largest size in bytes that all fields of a WakuMessage but its payload can have.

    The proof that a node adds where the network limits rates is among them.
    """
    largest = WakuMessage(
        content_topic=content_topic,
        version=(1 << 32) - 1,
        timestamp=-(1 << 63),
        meta=bytes(MAX_META_BYTES),
        rate_limit_proof=bytes(MAX_RATE_LIMIT_PROOF_BYTES),
        ephemeral=True,
    )
    return len(largest.encode()) + 5


class Segmenter:
    """Cuts payloads so that no message made from a segment exceeds the network's limit.

    Args:
        channel_id: The channel.
        sender_id: Ours.
        content_topic: The channel's.
        segmentation: Largest chunk, parity.
        sds: What decides the size of the SDS header.
        max_message_bytes: Largest encoded WakuMessage, bytes.
        encryption_overhead: Bytes that encryption adds at most.

    Raises:
        ConfigurationError: The headers leave no room for 64 bytes of payload.
    """

    def __init__(
        self,
        *,
        channel_id: ChannelId,
        sender_id: ParticipantId,
        content_topic: str,
        segmentation: SegmentationConfig,
        sds: SdsConfig,
        max_message_bytes: int,
        encryption_overhead: int,
    ) -> None:
        self.config = segmentation
        wrapping = waku_header_bytes(content_topic) + encryption_overhead
        sds_header = sds_header_bytes(channel_id, sender_id, sds)
        headers = wrapping + sds_header + segment_header_bytes()
        room = min(segmentation.segment_size_bytes, max_message_bytes - headers)
        self.chunk_bytes = room // CHUNK_ALIGNMENT * CHUNK_ALIGNMENT
        if self.chunk_bytes < CHUNK_ALIGNMENT:
            text = (
                f"message headers of up to {headers} bytes leave no room for payload under the "
                f"limit of {max_message_bytes} bytes; lower bloom_capacity or causal_history_size"
            )
            raise ConfigurationError(text)
        entries = sds.causal_history_size + MAX_BRANCHES + MAX_LATE_HINTS
        # As if a sync named one entry: what it names beyond that has to fit into the rest.
        self.sync_entry_room = (
            max_message_bytes - wrapping - sds_header + (entries - 1) * entry_bytes()
        )
        self.max_segments = min(segmentation.max_total_segments, MAX_SENT_SEGMENTS)
        self.max_payload_bytes = self.largest_data_count() * self.chunk_bytes

    def parity_count(self, data_count: int) -> int:
        """Return how many parity segments go with so many data segments.

        min(k, ceil(rate * k)) in integer arithmetic, none for one segment.
        """
        if not self.config.enable_reed_solomon or data_count == 1:
            return 0
        scaled = round(self.config.parity_rate * _RATE_SCALE)
        return min(data_count, -(-scaled * data_count // _RATE_SCALE))

    def largest_data_count(self) -> int:
        """Return the largest number of data segments that with their parity stay within the limit."""
        count = self.max_segments
        while count > 1 and count + self.parity_count(count) > self.max_segments:
            count -= 1
        return count

    def check_size(self, payload_bytes: int) -> None:
        """Refuse a payload of so many bytes if it cannot be cut.

        Raises:
            MessageTooLargeError: It needs more segments than a payload may have.
        """
        if payload_bytes > self.max_payload_bytes:
            raise MessageTooLargeError(payload_bytes, self.max_payload_bytes)

    def data_count(self, payload_bytes: int) -> int:
        """Return how many data segments a payload of so many bytes makes.

        Raises:
            MessageTooLargeError: It needs more segments than a payload may have.
        """
        self.check_size(payload_bytes)
        return -(-payload_bytes // self.chunk_bytes)

    def plan(self, payload_bytes: int) -> SegmentPlan:
        """Return how a payload of so many bytes is cut.

        Raises:
            MessageTooLargeError: It needs more segments than a payload may have.
        """
        count = self.data_count(payload_bytes)
        return SegmentPlan(self.chunk_bytes, count, self.parity_count(count))

    def split(self, payload: bytes, wrap_time_ns: Nanoseconds) -> list[bytes]:
        """Return the encoded data segments of a payload, in order.

        Args:
            payload: Not empty.
            wrap_time_ns: Written into each; 0 leaves it out (message ids are then of the content alone).

        Raises:
            MessageTooLargeError: It needs more segments than a payload may have.
        """
        octets, chunk = len(payload), self.chunk_bytes
        count = self.data_count(octets)
        parity_count = self.parity_count(count)
        first = SegmentMessage(
            entire_message_hash=keccak256(payload),
            data_segment_count=count,
            payload=payload if count == 1 else b"",
            parity_segment_count=parity_count,
            original_payload_length=octets,
            parity_code=1 if parity_count and self.config.parity_code == "reedsolo" else 0,
            wrap_time_ns=wrap_time_ns,
        )
        if count == 1:
            return [first.encode()]
        view = memoryview(payload)
        return first.encode_each([view[at : at + chunk] for at in range(0, octets, chunk)])

    def add_parity(self, contents: list[bytes]) -> list[bytes]:
        """Return the encoded parity segments that go with data segments, in order; most often none.

        Args:
            contents: All data segments of a payload, as ``split`` gave them.

        Spec: LIP-243, Reed-Solomon.
        """
        first = SegmentMessage.decode(contents[0])
        if not first.parity_segment_count:
            return []
        chunk = len(first.payload)
        shards = [SegmentMessage.decode(item).payload.ljust(chunk, b"\0") for item in contents]
        code = PARITY_CODES[first.parity_code]
        parity = reed_solomon.encode_parity(shards, first.parity_segment_count, code)
        return [
            SegmentMessage(
                entire_message_hash=first.entire_message_hash,
                data_segment_count=first.data_segment_count,
                payload=shard,
                parity_segment_index=index,
                parity_segment_count=first.parity_segment_count,
                is_parity=True,
                original_payload_length=first.original_payload_length,
                parity_code=first.parity_code,
                wrap_time_ns=first.wrap_time_ns,
            ).encode()
            for index, shard in enumerate(parity)
        ]


def is_segmented(segment: SegmentMessage) -> bool:
    """Tell whether content that decoded as a segment is one, and not some other protobuf."""
    return len(segment.entire_message_hash) == HASH_BYTES and segment.data_segment_count > 0


def check_segment(segment: SegmentMessage, max_total_segments: int, max_message_bytes: int) -> None:
    """Refuse a segment that contradicts itself.

    Raises:
        InvalidSegmentError: With the reason as a word.

    Spec: LIP-243, Reassembly; docs/wire.md, Segment.
    """
    data_count, parity_count = segment.data_segment_count, segment.parity_segment_count
    if data_count + parity_count > max_total_segments:
        raise InvalidSegmentError("too_many_segments")
    if segment.is_parity:
        if not parity_count:
            raise InvalidSegmentError("parity_without_count")
        if segment.parity_segment_index >= parity_count:
            raise InvalidSegmentError("parity_index")
    elif segment.data_segment_index >= data_count:
        raise InvalidSegmentError("data_index")
    if segment.data_segment_index if segment.is_parity else segment.parity_segment_index:
        raise InvalidSegmentError("index_of_other_class")
    check_code(segment)
    if not segment.payload:
        raise InvalidSegmentError("empty_segment")
    if len(segment.payload) > max_message_bytes:
        raise InvalidSegmentError("segment_too_large")
    check_length(segment, max_message_bytes)


def check_code(segment: SegmentMessage) -> None:
    """Refuse parity that no code makes, or none that we know.

    What belongs to parity of an unknown code is good without it. Of a single segment the parity is never used.

    Raises:
        InvalidSegmentError: With the reason as a word.
    """
    data_count, parity_count = segment.data_segment_count, segment.parity_segment_count
    if not parity_count:
        if segment.parity_code:
            raise InvalidSegmentError("parity_code_without_count")
    elif data_count > 1:
        if segment.parity_code >= len(PARITY_CODES):
            if segment.is_parity:
                raise InvalidSegmentError("unknown_parity_code")
            return
        code = PARITY_CODES[segment.parity_code]
        too_many = data_count + parity_count > MAX_SHARDS[code]
        if too_many or (code == "leopard" and parity_count > data_count):
            raise InvalidSegmentError("parity_count")


def chunk_of(count: int, length: int, index: int | None, size: int) -> int:
    """Return the chunk of the payload that a segment belongs to, bytes; 0 when it does not tell.

    All data segments but the last, and all parity segments, are one chunk long.

    Args:
        count: Data segments of the payload, at least two.
        length: Of the payload; 0 where the sender gave none.
        index: Of a data segment; None for parity.
        size: Bytes in the segment.
    """
    if index != count - 1:
        return size
    return (length - size) // (count - 1) if length else 0


def check_length(segment: SegmentMessage, max_message_bytes: int) -> None:
    """Refuse a segment whose size cannot belong to a payload of the length it names.

    Args:
        segment: The segment.
        max_message_bytes: Largest encoded WakuMessage, bytes: no chunk is larger.

    Raises:
        InvalidSegmentError: With the reason as a word.
    """
    length, count, size = (
        segment.original_payload_length,
        segment.data_segment_count,
        len(segment.payload),
    )
    if not length:
        return
    if count == 1:
        if length != size:
            raise InvalidSegmentError("length")
        return
    index = None if segment.is_parity else segment.data_segment_index
    chunk = chunk_of(count, length, index, size)
    last = length - (count - 1) * chunk
    if chunk > max_message_bytes or not 0 < last <= chunk or (index == count - 1 and last != size):
        raise InvalidSegmentError("length")
