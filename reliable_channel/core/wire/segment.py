"""Segments of a payload as value objects: encode to and decode from protobuf.

Nothing here splits, joins or judges: whether a decoded segment makes sense is for segmentation.

Spec: LIP-243 (segmentation), wire format. Fields 8 to 10 are this project's; other readers skip
them.
"""

from __future__ import annotations

from dataclasses import field

from google.protobuf.message import EncodeError

from reliable_channel import values
from reliable_channel.core.wire.proto import segment_pb2
from reliable_channel.core.wire.protobuf import parse


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

    @classmethod
    def decode(cls, data: bytes) -> SegmentMessage:
        """Return the segment that the bytes encode; unknown fields are skipped.

        Raises:
            DecodeError: Malformed protobuf, or a field of another type.
        """
        raw = parse(segment_pb2.SegmentMessage, data, "payload")
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
        )
