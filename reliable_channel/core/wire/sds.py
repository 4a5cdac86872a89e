"""SDS messages as value objects: encode to and decode from protobuf.

Nothing here decides whether a message is acceptable: limits on ids, Lamport times and sizes are
enforced where a message is received.

Spec: LIP-109 (SDS), wire format; SDS-R, repair requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, cast

from reliable_channel import values
from reliable_channel.core.wire.proto import sds_pb2
from reliable_channel.core.wire.protobuf import check_wire_types, parse, read, undivided
from reliable_channel.core.wire.writing import ONE_BYTE, delimited, size, varint

USUAL_BYTES: Final = 256
"""Longest encoded entry that is remembered."""

KEPT_ENTRIES: Final = 256
"""Entries that are remembered in a process, about 0.5 kB each."""

UNDIVIDED: Final[Any] = undivided(sds_pb2.SdsMessage)
"""`SdsMessage` with its entries as bytes."""

MANY_ENTRIES: Final = 8
"""Histories of so many are those of syncs, which name again what the last one named."""

HISTORY_TAG: Final = b"\x5a"

CONTENT_TAG: Final = b"\xa2\x01"
"""Field 20, length-delimited: (20 << 3 | 2) as a varint."""


class SdsKind(StrEnum):
    """What an SDS message is for; told by which of its fields are set."""

    CONTENT = "content"
    """Carries a payload in causal order; wants to be acknowledged."""
    SYNC = "sync"
    """Carries acknowledgements and knowledge, no payload."""
    EPHEMERAL = "ephemeral"
    """Carries a payload outside causal order; nobody acknowledges it."""


@values.dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One reference to an earlier message."""

    message_id: str = ""
    retrieval_hint: bytes | None = None
    """Transport hash under which a store may have it."""
    sender_id: str | None = None
    """Who sent it first."""

    def encode(self) -> bytes:
        """Return the protobuf bytes: fields ascending, plain fields at their default omitted.

        Raises:
            ValueError: A text is not encodable as UTF-8.
        """
        try:
            data = delimited(b"\n", self.message_id.encode()) if self.message_id else b""
            if self.retrieval_hint is not None:
                data += delimited(b"\x12", self.retrieval_hint)
            if self.sender_id is not None:
                data += delimited(b"\x1a", self.sender_id.encode())
        except ValueError as error:
            problem = f"HistoryEntry cannot be encoded: {error}"
            raise ValueError(problem) from error
        return data

    @classmethod
    def decode(cls, data: bytes) -> HistoryEntry:
        """Return the entry that the bytes encode; unknown fields are skipped.

        Raises:
            DecodeError: Malformed protobuf, a field of another type, or a text that is not UTF-8.
        """
        return history_entry_of(parse(sds_pb2.HistoryEntry, data))


@values.dataclass(frozen=True, slots=True)
class SdsMessage:
    """One message of the SDS layer; a field that is None is absent, which differs from empty."""

    sender_id: str = ""
    message_id: str = ""
    channel_id: str = ""
    lamport_timestamp: int | None = None
    """0 to 2**64 - 1; ours are milliseconds since the Unix epoch or later."""
    causal_history: tuple[HistoryEntry, ...] = ()
    """Oldest first."""
    bloom_filter: bytes | None = field(default=None, repr=False)
    """Ids that the sender knows, as `reliable_channel.core.sds.bloom` lays them out."""
    repair_request: tuple[HistoryEntry, ...] = ()
    """Messages that the sender lacks and asks anybody to repeat."""
    content: bytes | None = field(default=None, repr=False)
    is_usual: bool = field(default=False, compare=False, repr=False)
    """It was decoded, and its history has many entries, all usual ones (`usual_entry`): they need no check."""

    @property
    def kind(self) -> SdsKind | None:
        """What the message is for; None when it is malformed (neither Lamport time nor content).

        Spec: LIP-109 (SDS), Message, Ephemeral messages, Sync messages.
        """
        if self.lamport_timestamp is None:
            return SdsKind.EPHEMERAL if self.content else None
        return SdsKind.CONTENT if self.content else SdsKind.SYNC

    def encode(self) -> bytes:
        """Return the protobuf bytes: fields ascending, plain fields at their default omitted.

        Equal messages give equal bytes, on every machine and version.

        Raises:
            ValueError: The Lamport time is out of range, or a text is not encodable as UTF-8.
        """
        try:
            parts = [names_field(self.sender_id, self.message_id, self.channel_id)]
            if self.lamport_timestamp is not None:
                parts += (b"\x50", varint(self.lamport_timestamp))
            if self.causal_history:
                parts.append(history_field(self.causal_history))
            if self.bloom_filter is not None:
                parts += (b"\x62", size(len(self.bloom_filter)), self.bloom_filter)
            for entry in self.repair_request:
                parts.append(entry_field(b"\x6a", entry))
            if self.content is not None:
                parts += (CONTENT_TAG, size(len(self.content)), self.content)
            return b"".join(parts)
        except ValueError as error:
            problem = f"SdsMessage cannot be encoded: {error}"
            raise ValueError(problem) from error

    @classmethod
    def decode(cls, data: bytes, *, max_entries: int | None = None) -> SdsMessage:
        """Return the message that the bytes encode; unknown fields are skipped.

        Args:
            data: What was received.
            max_entries: Entries of a list that are of interest. Where there are more, one more is
                read and nothing is said about the types of fields: such a message is for refusing.

        Raises:
            DecodeError: Malformed protobuf, a field of another type, or a text that is not UTF-8.
        """
        raw = read(sds_pb2.SdsMessage, data)
        bloom_filter, content = raw.bloom_filter, raw.content
        most = len(data) if max_entries is None else max_entries + 1
        bulk = len(bloom_filter) + len(content)
        usual: tuple[HistoryEntry, ...] = ()
        if MANY_ENTRIES <= len(raw.causal_history) < most:
            usual, octets = usual_entries(data)
            bulk += octets
        # Copied once: each look at an entry makes an object for it.
        history = [] if usual else raw.causal_history[:most]
        requests = raw.repair_request[:most]
        if max(len(history), len(requests)) < most:
            check_wire_types(raw, data, bulk=bulk, inside=history + requests)
        # Presence is asked for only where the value leaves it open: it costs as much as reading.
        return cls(
            raw.sender_id,
            raw.message_id,
            raw.channel_id,
            raw.lamport_timestamp or (0 if raw.HasField("lamport_timestamp") else None),
            usual or tuple([history_entry_of(entry) for entry in history]),
            bloom_filter or (b"" if raw.HasField("bloom_filter") else None),
            tuple([history_entry_of(entry) for entry in requests]),
            content or (b"" if raw.HasField("content") else None),
            bool(usual),
        )


def content_suffix(content: bytes) -> bytes:
    """Return the encoded content field alone.

    Appended to a message that was encoded without content it gives the encoded whole, since
    content has the highest field number: a header can be encoded once and kept.

    Args:
        content: The content; when empty, the field is set and empty, not absent.
    """
    return b"".join((CONTENT_TAG, size(len(content)), content))


def names_field(sender_id: str, message_id: str, channel_id: str) -> bytes:
    """Return the first three fields of a message.

    Raises:
        ValueError: A text is not encodable as UTF-8.
    """
    sender, message, channel = sender_id.encode(), message_id.encode(), channel_id.encode()
    lengths = len(sender), len(message), len(channel)
    if min(lengths) > 0 and max(lengths) < ONE_BYTE:
        # As almost all are: made in one step.
        return b"\n%c%b\x12%c%b\x1a%c%b" % (
            lengths[0], sender, lengths[1], message, lengths[2], channel,
        )  # fmt: skip
    tagged = zip((b"\n", b"\x12", b"\x1a"), (sender, message, channel), strict=True)
    return b"".join([delimited(tag, name) for tag, name in tagged if name])


def history_field(entries: Sequence[HistoryEntry]) -> bytes:
    """Return the fields of a causal history: what an `SdsMessage` that has nothing else is encoded as.

    Raises:
        ValueError: A text is not encodable as UTF-8.
    """
    if len(entries) < MANY_ENTRIES:
        return b"".join([entry_field(HISTORY_TAG, entry) for entry in entries])
    return b"".join(
        [kept_field(entry.message_id, entry.retrieval_hint, entry.sender_id) for entry in entries]
    )


@lru_cache(maxsize=KEPT_ENTRIES)
def kept_field(message_id: str, hint: bytes | None, sender_id: str | None) -> bytes:
    """Return a field of a causal history; what a long one names, the next one names again."""
    return entry_field(HISTORY_TAG, HistoryEntry(message_id, hint, sender_id))


def entry_field(tag: bytes, entry: HistoryEntry) -> bytes:
    """Return a field that holds an entry.

    Raises:
        ValueError: A text is not encodable as UTF-8.
    """
    hint, sender_id = entry.retrieval_hint, entry.sender_id
    if entry.message_id and sender_id is not None:
        # As almost all are: all fields short, made in one step.
        message, sender = entry.message_id.encode(), sender_id.encode()
        octets, senders = len(message), len(sender)
        if octets < ONE_BYTE and senders < ONE_BYTE:
            if hint is None:
                length = size(octets + senders + 4)
                return b"%b%b\n%c%b\x1a%c%b" % (tag, length, octets, message, senders, sender)
            hints = len(hint)
            if hints < ONE_BYTE:
                length = size(octets + hints + senders + 6)
                return b"%b%b\n%c%b\x12%c%b\x1a%c%b" % (
                    tag, length, octets, message, hints, hint, senders, sender,
                )  # fmt: skip
    return delimited(tag, entry.encode())


def usual_entries(data: bytes) -> tuple[tuple[HistoryEntry, ...], int]:
    """Return the entries of a history if all of them are usual ones, and their bytes; nothing where some are not.

    Args:
        data: An encoded `SdsMessage` that has entries.
    """
    encoded = UNDIVIDED.FromString(data).causal_history[:]
    if max(map(len, encoded)) > USUAL_BYTES:
        return (), 0
    entries = tuple(map(usual_entry, encoded))
    if not all(entries):
        return (), 0
    return cast("tuple[HistoryEntry, ...]", entries), sum(map(len, encoded))


@lru_cache(maxsize=KEPT_ENTRIES)
def usual_entry(data: bytes) -> HistoryEntry | None:
    """Return an entry that has what most have: an id, a sender, perhaps a hint, short and in printable ASCII; or None.

    A sync names the newest 64, most of which the last one named: they are read and checked once.

    Args:
        data: A decodable entry of at most ``USUAL_BYTES``: what is kept must be bounded, whoever sends it.
    """
    raw = sds_pb2.HistoryEntry.FromString(data)
    message_id, hint, sender_id = raw.message_id, raw.retrieval_hint, raw.sender_id
    texts = message_id + sender_id
    # A short field takes two bytes more than its value. Where that adds up, there is nothing else in the entry.
    octets = len(texts) + len(hint) + (6 if hint else 4)
    if octets != len(data) or not (message_id and sender_id):
        return None
    if not (texts.isascii() and texts.isprintable()):
        return None
    return HistoryEntry(message_id, hint or None, sender_id)


def history_entry_of(raw: sds_pb2.HistoryEntry) -> HistoryEntry:
    """Return the value of a decoded protobuf entry."""
    return HistoryEntry(
        raw.message_id,
        raw.retrieval_hint or (b"" if raw.HasField("retrieval_hint") else None),
        raw.sender_id or ("" if raw.HasField("sender_id") else None),
    )
