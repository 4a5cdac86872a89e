"""Segments to payloads: collects the segments of a set until any k of its k+m are there.

It must not know about causal order: a completed payload goes to ``sds.causal``. Segments that disagree about anything
that identifies a payload belong to different sets, so that one bad segment poisons nothing.

Spec: LIP-243 (Segmentation), Reassembly.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from reliable_channel.config import SegmentationConfig
from reliable_channel.core import reed_solomon
from reliable_channel.core.hashing import keccak256, zeros_until
from reliable_channel.core.wire import HistoryEntry, SegmentMessage
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId

SetKey: TypeAlias = tuple[ParticipantId, bytes, int, int, int, int, int]
"""sender, payload hash, wrap time, data count, parity count, payload length, parity code."""

PARITY_CODES: Final = ("leopard", "reedsolo")
"""Names of the values of the ``parity_code`` field."""


@dataclass(slots=True, eq=False)
class IncomingPayload:
    """A payload on its way in: incomplete, then complete and perhaps parked.

    Attributes:
        serial: Distinguishes payloads within a channel's run.
        key: What identifies its set.
        ephemeral: It is outside causal order: not known, not logged, not parked.
        data: Chunks by data segment index.
        parity: Chunks by parity segment index.
        ids: Message id by data segment index, received or rebuilt.
        lamports: Lamport time by data segment index.
        dependencies: Entries of its segments' histories by id, own ids included until it completes.
        unmet: Ids it waits for, once complete.
        octets: Bytes it holds.
        completed_ns: When it became complete; 0 before.
        message: The payload, once complete.
    """

    serial: int
    key: SetKey
    ephemeral: bool
    data: dict[int, bytes] = field(default_factory=dict)
    parity: dict[int, bytes] = field(default_factory=dict)
    ids: dict[int, MessageId] = field(default_factory=dict)
    lamports: dict[int, int] = field(default_factory=dict)
    dependencies: dict[MessageId, HistoryEntry] = field(default_factory=dict)
    unmet: dict[MessageId, None] = field(default_factory=dict)
    octets: int = 0
    completed_ns: Nanoseconds = 0
    message: bytes = b""

    @property
    def sender_id(self) -> ParticipantId:
        """Who sent it."""
        return self.key[0]

    @property
    def data_count(self) -> int:
        """Data segments that it has in all."""
        return self.key[3]

    @property
    def position(self) -> tuple[int, MessageId]:
        """Lamport time and id of its first known segment: its place in the order of messages."""
        index = min(self.ids)
        return self.lamports[index], self.ids[index]

    @property
    def message_id(self) -> MessageId:
        """Id of the first data segment, or of the first known one where that cannot be inferred."""
        return self.ids[min(self.ids)]

    def drop_id(self, message_id: MessageId) -> None:
        """Forget the id of one data segment; its bytes, once part of the whole, stay."""
        index = next(index for index, item in self.ids.items() if item == message_id)
        del self.ids[index], self.lamports[index]


class Reassembler:
    """The sets of a channel that are not complete yet.

    Args:
        config: Bounds and timeouts.
    """

    def __init__(self, config: SegmentationConfig) -> None:
        self.config = config
        self.sets: dict[SetKey, IncomingPayload] = {}
        self.octets = 0
        self.sender_sets: dict[ParticipantId, int] = {}
        self.sender_octets: dict[ParticipantId, int] = {}
        self.completed: OrderedDict[bytes, int] = OrderedDict()
        self.serial = 0

    def key_of(self, sender_id: ParticipantId, segment: SegmentMessage) -> SetKey:
        """Return what identifies the set that a segment belongs to."""
        return (
            sender_id,
            segment.entire_message_hash,
            segment.wrap_time_ns,
            segment.data_segment_count,
            segment.parity_segment_count,
            segment.original_payload_length,
            segment.parity_code,
        )

    def refusal(self, key: SetKey, segment: SegmentMessage, extra: int = 0) -> str | None:
        """Return why a segment cannot be taken now, as a word, or None when it can.

        Args:
            key: Its set.
            segment: The segment.
            extra: Bytes kept besides its payload.

        A refused segment is not acknowledged, so its sender tries again later.
        """
        sender_id, size = key[0], len(segment.payload) + extra
        held = self.sets.get(key)
        if held is None:
            if len(self.sets) >= self.config.max_incomplete_payloads:
                return "incomplete_payloads_full"
            if self.sender_sets.get(sender_id, 0) >= self.config.max_incomplete_payloads_per_sender:
                return "incomplete_payloads_of_sender_full"
        elif segment.is_parity:
            if segment.parity_segment_index in held.parity:
                return "duplicate_parity"
        elif segment.data_segment_index in held.data:
            return "conflicting_segment"
        if self.octets + size > self.config.max_incomplete_bytes:
            return "incomplete_bytes_full"
        if (
            self.sender_octets.get(sender_id, 0) + size
            > self.config.max_incomplete_bytes_per_sender
        ):
            return "incomplete_bytes_of_sender_full"
        return None

    def add(
        self, key: SetKey, segment: SegmentMessage, *, ephemeral: bool, extra: int = 0
    ) -> IncomingPayload:
        """Take a segment for which ``refusal`` said None and return its set."""
        payload = self.sets.get(key)
        if payload is None:
            payload = self.open_set(key, ephemeral=ephemeral)
        payload.ephemeral = payload.ephemeral and ephemeral
        if segment.is_parity:
            payload.parity[segment.parity_segment_index] = segment.payload
        else:
            payload.data[segment.data_segment_index] = segment.payload
        size = len(segment.payload) + extra
        payload.octets += size
        self.octets += size
        self.sender_octets[key[0]] = self.sender_octets.get(key[0], 0) + size
        return payload

    def open_set(self, key: SetKey, *, ephemeral: bool) -> IncomingPayload:
        """Begin a set."""
        self.serial += 1
        payload = IncomingPayload(serial=self.serial, key=key, ephemeral=ephemeral)
        self.sets[key] = payload
        self.sender_sets[key[0]] = self.sender_sets.get(key[0], 0) + 1
        return payload

    def take_back(self, payload: IncomingPayload, message_id: MessageId) -> None:
        """Take a data segment out of a set: its id turned out to be another message's."""
        index = next(index for index, item in payload.ids.items() if item == message_id)
        freed = len(payload.data.pop(index))
        payload.drop_id(message_id)
        payload.octets -= freed
        self.octets -= freed
        self.sender_octets[payload.sender_id] -= freed

    def drop_data(self, payload: IncomingPayload) -> None:
        """Let go of the data segments of a set; its parity stays."""
        freed = sum(map(len, payload.data.values()))
        payload.data.clear()
        payload.ids.clear()
        payload.octets -= freed
        self.octets -= freed
        self.sender_octets[payload.sender_id] -= freed

    def remove(self, payload: IncomingPayload) -> None:
        """Let go of a set: it is complete, or given up."""
        del self.sets[payload.key]
        sender_id = payload.sender_id
        self.octets -= payload.octets
        for counts, amount in ((self.sender_sets, 1), (self.sender_octets, payload.octets)):
            counts[sender_id] -= amount
            if not counts[sender_id]:
                del counts[sender_id]

    def is_complete(self, payload: IncomingPayload) -> bool:
        """Tell whether enough segments are there to have the payload, one data segment among them.

        Parity alone would not tell who sent the payload when: it carries no id that anybody waits for.
        """
        return bool(payload.data) and len(payload.data) + len(payload.parity) >= payload.data_count

    def remember(self, digest: bytes, held: int) -> bytes | None:
        """Remember that a payload was rebuilt; return the digest forgotten for it, if any.

        Args:
            digest: What ``set_digest`` gives for it.
            held: Bit mask of the data segments whose ids are known.
        """
        self.completed[digest] = held
        self.completed.move_to_end(digest)
        if len(self.completed) > self.config.max_completed_payloads:
            return self.completed.popitem(last=False)[0]
        return None


def set_digest(key: SetKey, *, ephemeral: bool = False) -> bytes:
    """Return 16 bytes that stand for a set in the memory of completed ones.

    A payload sent as ephemeral is another one: a copy made to look so must not keep the message itself away.
    """
    return keccak256(repr((key, ephemeral)).encode())[:16]


def assemble(payload: IncomingPayload) -> bytes | None:
    """Return the payload that the segments of a complete set make, or None when they make no such payload.

    Missing data segments are rebuilt from parity and put into ``payload.data``. The hash is always checked.
    """
    if len(payload.data) < payload.data_count and not rebuild(payload):
        return None
    data = payload.data
    message = data[0] if len(data) == 1 else b"".join([data[index] for index in range(len(data))])
    return message if keccak256(message) == payload.key[1] else None


def rebuild(payload: IncomingPayload) -> bool:
    """Rebuild missing data segments from parity; say whether that was possible.

    Shards are zero-padded to the chunk for coding; the last data segment travels unpadded.
    """
    _, digest, _, count, parity_count, length, code = payload.key
    chunk = max(map(len, (*payload.data.values(), *payload.parity.values())))
    shards = [
        payload.data[index].ljust(chunk, b"\0") if index in payload.data else None
        for index in range(count)
    ]
    parity = [payload.parity.get(index) for index in range(parity_count)]
    if code >= len(PARITY_CODES):
        return False
    try:
        rebuilt = reed_solomon.recover(shards, parity, PARITY_CODES[code])
    except (reed_solomon.UnrecoverableError, ValueError):
        return False
    last = payload.data.get(count - 1)
    for index in range(count):
        payload.data.setdefault(index, rebuilt[index])
    if last is None:
        return cut_last(payload, length, chunk, digest)
    return True


def cut_last(payload: IncomingPayload, length: int, chunk: int, digest: bytes) -> bool:
    """Cut the padding off a rebuilt last segment; say whether a length was found.

    Where the sender gave no length, trailing zero bytes are cut until the hash matches.
    """
    last_index = payload.data_count - 1
    last = payload.data[last_index]
    if length:
        payload.data[last_index] = last[: length - last_index * chunk]
        return True
    shortest = last.rstrip(b"\0")
    head = b"".join([*(payload.data[index] for index in range(last_index)), shortest])
    zeros = zeros_until(head, digest, len(last) - len(shortest))
    if zeros is None:
        return False
    payload.data[last_index] = last[: len(shortest) + zeros]
    return True
