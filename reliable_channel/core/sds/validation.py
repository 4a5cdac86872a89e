"""Which decoded messages are valid messages of a channel.

Functions of the message alone: it must not know what was received before, count or raise. Segments inside the
content are checked by ``segmentation``.

Spec: LIP-109 (SDS), Message; docs/wire.md for the limits.
"""

from __future__ import annotations

from typing import Final

from reliable_channel.core.segmentation import MAX_MESSAGE_ID_BYTES
from reliable_channel.core.wire import HistoryEntry, SdsMessage
from reliable_channel.identifiers import CONTROL, MAX_IDENTIFIER_BYTES, is_identifier
from reliable_channel.types import ChannelId

MAX_LAMPORT: Final = 1 << 63
"""Lamport times from here on are malformed: signed 64-bit readers would see them negative."""

MAX_HINT_BYTES: Final = 256
"""Longest retrieval hint; a transport hash has 32."""


def refusal(message: SdsMessage, channel_id: ChannelId, max_history_entries: int) -> str | None:
    """Return why a message is no valid message of a channel, as a word, or None.

    Args:
        message: Decoded.
        channel_id: The channel.
        max_history_entries: Entries that a causal history or a repair request may have.

    Spec: LIP-109 (SDS), Message; docs/wire.md for the limits.
    """
    if message.channel_id != channel_id:
        return "foreign_channel"
    if message.kind is None:
        return "malformed_kind"
    if not is_identifier(message.sender_id):
        return "invalid_sender_id"
    if not is_message_id(message.message_id):
        return "invalid_message_id"
    if message.lamport_timestamp is not None and message.lamport_timestamp >= MAX_LAMPORT:
        return "invalid_lamport_timestamp"
    if max(len(message.causal_history), len(message.repair_request)) > max_history_entries:
        return "history_too_long"
    history_is_valid = message.is_usual or all(map(is_entry, message.causal_history))
    if history_is_valid and all(map(is_entry, message.repair_request)):
        return None
    return "invalid_history_entry"


def is_entry(entry: HistoryEntry) -> bool:
    """Tell whether an entry may stand in a history or repair request: nothing in it is longer than it may be."""
    message_id, sender_id, hint = entry.message_id, entry.sender_id, entry.retrieval_hint
    if hint is not None and len(hint) > MAX_HINT_BYTES:
        return False
    if sender_id is not None and (
        len(sender_id) > MAX_IDENTIFIER_BYTES
        or (not sender_id.isascii() and len(sender_id.encode()) > MAX_IDENTIFIER_BYTES)
    ):
        return False
    # What is_message_id says, without the call: a sync has 64 entries.
    if message_id.isascii() and message_id.isprintable():
        return 0 < len(message_id) <= MAX_MESSAGE_ID_BYTES
    return is_message_id(message_id)


def is_message_id(text: str) -> bool:
    """Tell whether a text may be a message id: 1 to 256 bytes of UTF-8 without control characters."""
    if text.isascii() and text.isprintable():
        return 0 < len(text) <= MAX_MESSAGE_ID_BYTES
    return 0 < len(text.encode()) <= MAX_MESSAGE_ID_BYTES and not CONTROL.search(text)
