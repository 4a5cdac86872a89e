"""Waku messages as value objects: encode to and decode from protobuf, and their hash.

Nothing here publishes or checks limits; a node adapter does.

Spec: 14/WAKU2-MESSAGE, wire format and Deterministic message hashing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import EncodeError

from reliable_channel.core.wire.proto import waku_pb2
from reliable_channel.core.wire.protobuf import parse

MAX_RATE_LIMIT_PROOF_BYTES: Final = 512
"""Room that is kept for the proof which a node adds: 17/WAKU2-RLN-RELAY's has 320 bytes in seven fields."""

HELD_BYTES: Final = 2_047
"""Hashed at once: for more ``hashlib`` lets other threads run, and to get one's turn back costs more than the hash."""


@dataclass(frozen=True, slots=True)
class WakuMessage:
    """What a Waku network carries; a field that is None is absent, which differs from empty."""

    payload: bytes = field(default=b"", repr=False)
    content_topic: str = ""
    version: int | None = None
    """How the payload is encrypted; 0, as when absent: the network does not know."""
    timestamp: int | None = None
    """Unix time in nanoseconds, signed, 64 bits."""
    meta: bytes | None = None
    """At most 64 bytes, for the application protocol's own use."""
    rate_limit_proof: bytes | None = field(default=None, repr=False)
    ephemeral: bool | None = None
    """Store nodes do not keep it."""

    def encode(self) -> bytes:
        """Return the protobuf bytes: fields ascending, plain fields at their default omitted.

        Raises:
            ValueError: A number is out of its field's range, or the content topic is not encodable
                as UTF-8.
        """
        try:
            raw = waku_pb2.WakuMessage(
                payload=self.payload,
                content_topic=self.content_topic,
                version=self.version,
                timestamp=self.timestamp,
                meta=self.meta,
                rate_limit_proof=self.rate_limit_proof,
            )
            if self.ephemeral is not None:
                raw.ephemeral = self.ephemeral
            return raw.SerializeToString()
        except (ValueError, EncodeError) as error:
            problem = f"WakuMessage cannot be encoded: {error}"
            raise ValueError(problem) from error

    @classmethod
    def decode(cls, data: bytes) -> WakuMessage:
        """Return the message that the bytes encode; unknown fields are skipped.

        Raises:
            DecodeError: Malformed protobuf, a field of another type, or a content topic that is not
                UTF-8.
        """
        raw = parse(waku_pb2.WakuMessage, data, "payload")
        # Presence is asked for only where the value leaves it open: it costs as much as reading.
        return cls(
            raw.payload,
            raw.content_topic,
            raw.version or (0 if raw.HasField("version") else None),
            raw.timestamp or (0 if raw.HasField("timestamp") else None),
            raw.meta or (b"" if raw.HasField("meta") else None),
            raw.rate_limit_proof or (b"" if raw.HasField("rate_limit_proof") else None),
            raw.ephemeral or (False if raw.HasField("ephemeral") else None),
        )


def waku_message_hash(pubsub_topic: str, message: WakuMessage) -> bytes:
    """Return the deterministic hash under which relays and stores know a message, 32 bytes.

    SHA-256 over pubsub topic, payload, content topic, meta and timestamp. An absent meta and an
    absent timestamp add nothing, and neither does a timestamp of 0: the specification is silent
    there, and the JavaScript implementation reads it so.

    Args:
        pubsub_topic: The topic that the message travels on.
        message: The message; version, proof and ephemeral flag have no part in its hash.

    Raises:
        ValueError: The timestamp does not fit in 64 bits, or a topic is not encodable as UTF-8.

    Spec: 14/WAKU2-MESSAGE, Deterministic message hashing.
    """
    digest = hashlib.sha256(pubsub_topic.encode())
    for start in range(0, len(message.payload), HELD_BYTES):
        digest.update(message.payload[start : start + HELD_BYTES])
    digest.update(message.content_topic.encode())
    if message.meta:
        digest.update(message.meta)
    if message.timestamp:
        try:
            digest.update(message.timestamp.to_bytes(8, "big", signed=True))
        except OverflowError as error:
            problem = f"timestamp does not fit in 64 bits: {message.timestamp}"
            raise ValueError(problem) from error
    return digest.digest()
