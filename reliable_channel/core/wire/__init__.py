"""Bytes on the wire and back: total functions between encoded messages and value objects.

Decoding says what the bytes mean or raises `DecodeError`; whether a message is welcome is for the
layers above.

Spec: LIP-109 (SDS); LIP-243 (segmentation); 14/WAKU2-MESSAGE; 23/TOPICS.
"""

from __future__ import annotations

from reliable_channel.core.wire.sds import (
    HistoryEntry,
    SdsKind,
    SdsMessage,
    content_suffix,
    history_field,
)
from reliable_channel.core.wire.segment import SegmentMessage
from reliable_channel.core.wire.topics import (
    ContentTopic,
    parse_content_topic,
    pubsub_topic,
    shard_of,
)
from reliable_channel.core.wire.waku import (
    MAX_RATE_LIMIT_PROOF_BYTES,
    WakuMessage,
    waku_message_hash,
)
from reliable_channel.errors import DecodeError

__all__ = (
    "MAX_RATE_LIMIT_PROOF_BYTES",
    "ContentTopic",
    "DecodeError",
    "HistoryEntry",
    "SdsKind",
    "SdsMessage",
    "SegmentMessage",
    "WakuMessage",
    "content_suffix",
    "history_field",
    "parse_content_topic",
    "pubsub_topic",
    "shard_of",
    "waku_message_hash",
)
