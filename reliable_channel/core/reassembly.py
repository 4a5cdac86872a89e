"""Segments to payloads: collects the segments of a set until any k of its k+m are there.

Segments that disagree about anything that identifies a payload belong to different sets. Those that agree and have
other bytes, for one index, are *candidates*: anybody can make one, so none keeps the others away and none ends the set
(docs/adr/0013-what-a-stranger-may-not-do.md). It must not know about causal order (``sds.causal``) nor put payloads
together (``assembly``).

Spec: LIP-243 (Segmentation), Reassembly.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.payload import (
    SEGMENT_OCTETS,
    Candidate,
    HeldParity,
    IncomingPayload,
    SetKey,
)
from reliable_channel.core.sds.log import history_octets
from reliable_channel.core.wire import SegmentMessage
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId

MAX_CANDIDATES: Final = 4
"""Segments that are held for one index: the true one and a few that somebody made up, in whichever order they come."""

MAX_NAMED_CANDIDATES: Final = 4
"""As many again for those that the candidates of the next index name: the true segments name each other, so a stranger
who was faster has to make up whole chains to keep one out."""


@dataclass(slots=True)
class Usage:
    """What the incomplete payloads of one sender take.

    Attributes:
        sets: How many they are.
        segments: Segments that are held.
        octets: Bytes, ``SEGMENT_OCTETS`` for each segment among them.
    """

    sets: int = 0
    segments: int = 0
    octets: int = 0


NOTHING: Final = Usage()


class Reassembler:
    """The sets of a channel that are not complete yet.

    Args:
        config: Bounds and timeouts.
        max_known_ids: Ids that the channel remembers. Those of incomplete payloads are not evicted, so they may be half
            of them, of one sender a quarter; always enough for one payload.
    """

    def __init__(self, config: SegmentationConfig, max_known_ids: int = 100_000) -> None:
        self.config = config
        self.max_segments = max(max_known_ids // 2, config.max_total_segments)
        self.max_segments_per_sender = max(max_known_ids // 4, config.max_total_segments)
        self.sets: dict[SetKey, IncomingPayload] = {}
        self.segments = 0
        self.octets = 0
        self.senders: dict[ParticipantId, Usage] = {}
        self.completed: OrderedDict[bytes, int] = OrderedDict()
        self.serial = 0

    def key_of(
        self, sender_id: ParticipantId, segment: SegmentMessage, *, ephemeral: bool = False
    ) -> SetKey:
        """Return what identifies the set that a segment belongs to."""
        return SetKey(
            sender_id,
            segment.entire_message_hash,
            segment.wrap_time_ns,
            segment.data_segment_count,
            segment.parity_segment_count,
            segment.original_payload_length,
            segment.parity_code,
            ephemeral,
        )

    def home(self, key: SetKey) -> SetKey:
        """Return the set that parity belongs to, which says nothing of its kind: the one with content, if there is one.

        In both, one copy of a segment that claims to be ephemeral would have the payload delivered twice.
        """
        content = key._replace(ephemeral=False)
        return content if content in self.sets else key._replace(ephemeral=True)

    def refusal(
        self, key: SetKey, segment: SegmentMessage, extra: int = 0, message_id: MessageId = ""
    ) -> str | None:
        """Return why a segment cannot be taken now, as a word, or None when it can.

        Args:
            key: Its set.
            segment: The segment.
            extra: Bytes kept besides its payload.
            message_id: Of the message it came in.

        A refused segment is not acknowledged, so its sender tries again later. That the table is full is the last
        reason: then nothing else is in the way.
        """
        sender_id, size = key.sender_id, len(segment.payload) + extra + SEGMENT_OCTETS
        held, config = self.sets.get(key), self.config
        if held is None:
            pass
        elif segment.is_parity:
            if segment.parity_segment_index in held.parity:
                reason = refuse_parity(held, segment)
                if reason is not None:
                    return reason
        elif segment.data_segment_index in held.data and not has_place(held, segment, message_id):
            return "conflicting_segment"
        used = self.senders.get(sender_id, NOTHING)
        if self.octets + size > config.max_incomplete_bytes:
            return "incomplete_bytes_full"
        if used.octets + size > config.max_incomplete_bytes_per_sender:
            return "incomplete_bytes_of_sender_full"
        if self.segments >= self.max_segments:
            return "incomplete_segments_full"
        if used.segments >= self.max_segments_per_sender:
            return "incomplete_segments_of_sender_full"
        if held is None:
            if used.sets >= config.max_incomplete_payloads_per_sender:
                return "incomplete_payloads_of_sender_full"
            if len(self.sets) >= config.max_incomplete_payloads:
                return "incomplete_payloads_full"
        return None

    def stale(self, sender_id: ParticipantId | None, before: Nanoseconds) -> IncomingPayload | None:
        """Return the set whose place a new one may take, the smallest that makes no progress; None if all do.

        Args:
            sender_id: Whose; None for anybody's.
            before: When it was given a segment last, at the latest.
        """
        found = [
            item
            for item in self.sets.values()
            if item.progress_ns <= before and sender_id in (None, item.sender_id)
        ]
        return min(found, key=lambda item: (item.octets, item.progress_ns), default=None)

    def add(self, key: SetKey, segment: SegmentMessage, *, extra: int = 0) -> IncomingPayload:
        """Take a segment for which ``refusal`` said None and return its set."""
        payload = self.sets.get(key)
        if payload is None:
            payload = self.open_set(key)
        if segment.is_parity:
            index = segment.parity_segment_index
            if index in payload.parity:
                payload.parity_rivals.setdefault(index, []).append(segment.payload)
            else:
                payload.parity[index] = segment.payload
        else:
            index = segment.data_segment_index
            if index in payload.data:
                payload.rivals.setdefault(index, []).append(Candidate(segment.payload, "", 0, ()))
            else:
                payload.data[index] = segment.payload
        self.charge(payload, 1, len(segment.payload) + extra)
        return payload

    def charge(self, payload: IncomingPayload, segments: int, octets: int) -> None:
        """Count segments that a set takes, or lets go of.

        Args:
            payload: The set.
            segments: How many; negative when they go.
            octets: Of their payloads and histories; negative when they go.
        """
        octets += segments * SEGMENT_OCTETS
        used = self.senders[payload.key.sender_id]
        payload.segments += segments
        payload.octets += octets
        self.segments += segments
        self.octets += octets
        used.segments += segments
        used.octets += octets

    def open_set(self, key: SetKey, *, serial: int = 0) -> IncomingPayload:
        """Begin a set.

        Args:
            key: What identifies it.
            serial: Its number; 0 gives it the next one.
        """
        if not serial:
            self.serial += 1
            serial = self.serial
        payload = IncomingPayload(serial=serial, key=key)
        self.sets[key] = payload
        self.senders.setdefault(key.sender_id, Usage()).sets += 1
        return payload

    def take_back(self, payload: IncomingPayload, message_id: MessageId) -> None:
        """Take a data segment out of a set: its id turned out to be another message's."""
        index = next(
            index
            for index in payload.ids
            if any(item.message_id == message_id for item in payload.candidates(index))
        )
        candidates = payload.candidates(index)
        gone = next(item for item in candidates if item.message_id == message_id)
        rest = [item for item in candidates if item is not gone]
        if rest:
            payload.choose(index, rest[0])
            payload.rivals.pop(index)
            if rest[1:]:
                payload.rivals[index] = rest[1:]
        else:
            del payload.data[index], payload.ids[index]
            del payload.lamports[index], payload.histories[index]
            for entry in gone.history:
                payload.dependencies.pop(entry.message_id, None)
        payload.gather()
        self.charge(payload, -1, -len(gone.chunk) - history_octets(gone.history))

    def give_parity(self, payload: IncomingPayload) -> list[HeldParity]:
        """Take the parity of a set, which turns out to be another one's."""
        given, payload.held_parity = payload.held_parity, []
        payload.parity.clear()
        payload.parity_rivals.clear()
        octets = sum(len(item.chunk) + history_octets(item.history) for item in given)
        self.charge(payload, -len(given), -octets)
        return given

    def remove(self, payload: IncomingPayload) -> None:
        """Let go of a set: it is complete, or given up."""
        del self.sets[payload.key]
        used = self.senders[payload.sender_id]
        used.sets -= 1
        for counts in (self, used):
            counts.segments -= payload.segments
            counts.octets -= payload.octets
        if not used.sets:
            del self.senders[payload.sender_id]

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


def digest_of(payload: IncomingPayload) -> bytes:
    """Return what ``set_digest`` gives for a set, whose segments all ask for it."""
    if not payload.digest:
        payload.digest = set_digest(payload.key)
    return payload.digest


def set_digest(key: SetKey) -> bytes:
    """Return 16 bytes that stand for a set in the memory of completed ones."""
    return keccak256(repr(tuple(key)).encode())[:16]


def refuse_parity(payload: IncomingPayload, segment: SegmentMessage) -> str | None:
    """Return why a parity segment is not taken for an index that one is held for, or None when it is."""
    index = segment.parity_segment_index
    rivals = payload.parity_rivals.get(index, [])
    if segment.payload == payload.parity[index] or segment.payload in rivals:
        return "duplicate_parity"
    return None if len(rivals) + 1 < MAX_CANDIDATES else "conflicting_segment"


def has_place(payload: IncomingPayload, segment: SegmentMessage, message_id: MessageId) -> bool:
    """Tell whether one more data segment is taken for an index that one is held for.

    None of those that are held goes for it: they are acknowledged.
    """
    index = segment.data_segment_index
    count = len(payload.rivals.get(index, ())) + 1
    if count < MAX_CANDIDATES:
        return True
    return (
        count < MAX_CANDIDATES + MAX_NAMED_CANDIDATES
        and index + 1 in payload.data
        and any(
            entry.message_id == message_id
            for item in payload.candidates(index + 1)
            for entry in item.history
        )
    )
