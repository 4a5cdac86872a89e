"""Segments of a payload as value objects: encode to and decode from protobuf.

Nothing here splits, joins or judges: whether a decoded segment makes sense is for segmentation.

Spec: LIP-243 (segmentation), wire format. Fields 8 to 10 are this project's; other readers skip
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import Final

from google.protobuf.message import EncodeError

from reliable_channel import values
from reliable_channel.core.wire.proto import segment_pb2
from reliable_channel.core.wire.protobuf import parse
from reliable_channel.core.wire.writing import delimited, size, varint

HASH_TAG: Final = b"\x0a"
INDEX_TAG: Final = b"\x10"
COUNT_TAG: Final = b"\x18"
PAYLOAD_TAG: Final = b"\x22"
"""Fields 1 to 4: (number << 3 | wire type), 0 of which is a varint and 2 is length-delimited."""


@values.dataclass(frozen=True, slots=True)
class SegmentMessage:
    """One data or parity segment; every field at its default is absent on the wire."""

    entire_message_hash: bytes = b""
    """keccak-256 of the whole payload, 32 bytes."""
    data_segment_index: int = 0
    data_segment_count: int = 0
    payload: bytes = field(default=b"", repr=False)
    parity_segment_index: int = 0
    parity_segment_count: int = 0
    is_parity: bool = False
    original_payload_length: int = 0
    """Of the whole payload, in bytes; 0 where the sender gave none."""
    parity_code: int = 0
    """0: Leopard, 1: reedsolo."""
    wrap_time_ns: int = 0
    """When the payload was wrapped, Unix time in nanoseconds; 0 where the sender gave none."""
    is_plain: bool = field(default=False, compare=False, repr=False)
    """It is a decoded data segment, one of several, whose bytes are those that ``encode`` gives."""

    def encode(self) -> bytes:
        """Return the protobuf bytes: fields ascending, fields at their default omitted.

        Equal segments give equal bytes, on every machine and version: message ids rest on it.

        Raises:
            ValueError: A number is negative or too large for its field.
        """
        try:
            raw = segment_pb2.SegmentMessage(
                entire_message_hash=self.entire_message_hash,
                data_segment_index=self.data_segment_index,
                data_segment_count=self.data_segment_count,
                payload=self.payload,
                parity_segment_index=self.parity_segment_index,
                parity_segment_count=self.parity_segment_count,
                is_parity=self.is_parity,
                original_payload_length=self.original_payload_length,
                parity_code=self.parity_code,
                wrap_time_ns=self.wrap_time_ns,
            )
            return raw.SerializeToString()
        except (ValueError, EncodeError) as error:
            problem = f"SegmentMessage cannot be encoded: {error}"
            raise ValueError(problem) from error

    def encode_each(self, payloads: Iterable[bytes | memoryview]) -> list[bytes]:
        """Return encoded data segments of one set that carry these payloads, none of them empty.

        The first has this one's place, each other one the next. What all say is encoded once, and each payload is
        copied once, where the runtime copies it several times. The set has at least one data segment.

        Raises:
            ValueError: As for ``encode``.
        """
        # Fields are written in ascending order: 1, 2 (its place), 3, 4 (the payload), all others.
        before = delimited(HASH_TAG, self.entire_message_hash) if self.entire_message_hash else b""
        between = COUNT_TAG + varint(self.data_segment_count) + PAYLOAD_TAG
        after = SegmentMessage(
            parity_segment_index=self.parity_segment_index,
            parity_segment_count=self.parity_segment_count,
            is_parity=self.is_parity,
            original_payload_length=self.original_payload_length,
            parity_code=self.parity_code,
            wrap_time_ns=self.wrap_time_ns,
        ).encode()
        encoded = []
        for index, payload in enumerate(payloads, self.data_segment_index):
            place = INDEX_TAG + varint(index) if index else b""
            encoded.append(b"".join((before, place, between, size(len(payload)), payload, after)))
        return encoded

    @classmethod
    def decode(cls, data: bytes) -> SegmentMessage:
        """Return the segment that the bytes encode; unknown fields are skipped.

        Raises:
            DecodeError: Malformed protobuf, or a field of another type.
        """
        raw = parse(segment_pb2.SegmentMessage, data, "payload")
        is_one_of_several = raw.data_segment_count > 1 and not raw.is_parity
        return cls(
            raw.entire_message_hash,
            raw.data_segment_index,
            raw.data_segment_count,
            raw.payload,
            raw.parity_segment_index,
            raw.parity_segment_count,
            raw.is_parity,
            raw.original_payload_length,
            raw.parity_code,
            raw.wrap_time_ns,
            # What the runtime read it writes again at once: making a message of the fields takes three times as long.
            is_one_of_several and raw.SerializeToString() == data,
        )
