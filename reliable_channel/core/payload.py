"""A payload on its way in: its segments, of which several may claim one place, until it is whole and delivered.

It must not decide what is taken (``reassembly``), what makes the whole (``assembly``) or when its turn has come
(``sds.causal``).

Spec: LIP-243 (Segmentation), Reassembly; docs/adr/0013-what-a-stranger-may-not-do.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from reliable_channel.core.wire import HistoryEntry, SegmentMessage
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId


class SetKey(NamedTuple):
    """What identifies a set of segments: all that the segments of a payload have in common.

    A payload that was sent as ephemeral is another one: a copy made to look so, or not to, must not keep it away.
    """

    sender_id: ParticipantId
    payload_hash: bytes
    wrap_time_ns: Nanoseconds
    data_count: int
    parity_count: int
    payload_bytes: int
    """0 where the sender does not say."""
    parity_code: int
    ephemeral: bool = False
    """Outside causal order: not known, not logged, not parked. So is a set that has only parity: it may be either."""

    @property
    def sibling(self) -> SetKey:
        """The same but for the kind; parity may belong to either."""
        return self._replace(ephemeral=not self.ephemeral)


SEGMENT_OCTETS: Final = 704
"""Bytes of memory that a segment which is held takes besides its payload and history, about, with its id and debt."""


class Candidate(NamedTuple):
    """One of several segments for one data index."""

    chunk: bytes
    message_id: MessageId
    lamport: int
    history: tuple[HistoryEntry, ...]


class HeldParity(NamedTuple):
    """A parity segment as a restart needs it."""

    arrival: int
    """Its place in the order in which segments were taken in."""
    segment_index: int
    chunk: bytes
    history: tuple[HistoryEntry, ...]
    received_ns: Nanoseconds


@dataclass(slots=True, eq=False, init=False)
class IncomingPayload:
    """A payload on its way in: incomplete, then complete and perhaps parked.

    Attributes:
        serial: Distinguishes payloads within a channel's run.
        key: What identifies its set.
        data: Chunks by data segment index, of the first candidate each.
        parity: Chunks by parity segment index, of the first candidate each.
        ids: Message id by data segment index, received or rebuilt.
        lamports: Lamport time by data segment index.
        histories: What each data segment names, by index.
        rivals: Further candidates by data segment index; most often there are none.
        parity_rivals: Further chunks by parity segment index.
        held_parity: All parity segments in the order in which they came.
        parity_rows: Arrivals of those that have rows: the first so many, once it has data that is no ephemeral's.
        has_odd: A segment came whose bytes are not those that its fields are written in.
        failures: Times that it could not be put together.
        looked: Patterns of its segments that were looked at (``assembly``).
        tried: Marks of those that make nothing.
        progress_ns: When it was given a segment last.
        dependencies: Entries of its segments' histories by id, own ids included until it completes.
        unmet: Ids it waits for, once complete.
        segments: Segments it holds, while incomplete.
        octets: Bytes it holds.
        message: The payload, once complete.
        chunk_bytes: Of its data segments but the last, once complete.
        digest: What ``set_digest`` gives for its key, where that was asked for; empty before.
    """

    serial: int
    key: SetKey
    data: dict[int, bytes]
    parity: dict[int, bytes]
    ids: dict[int, MessageId]
    lamports: dict[int, int]
    histories: dict[int, tuple[HistoryEntry, ...]]
    rivals: dict[int, list[Candidate]]
    parity_rivals: dict[int, list[bytes]]
    held_parity: list[HeldParity]
    parity_rows: list[int]
    has_odd: bool
    failures: int
    looked: int
    tried: set[int]
    progress_ns: Nanoseconds
    dependencies: dict[MessageId, HistoryEntry]
    unmet: dict[MessageId, None]
    segments: int
    octets: int
    message: bytes
    chunk_bytes: int
    digest: bytes

    def __init__(self, serial: int, key: SetKey, octets: int = 0) -> None:
        """Begin with nothing; written out, since each message makes one and a factory a field takes twice as long."""
        self.serial = serial
        self.key = key
        self.data = {}
        self.parity = {}
        self.ids = {}
        self.lamports = {}
        self.histories = {}
        self.rivals = {}
        self.parity_rivals = {}
        self.held_parity = []
        self.parity_rows = []
        self.has_odd = False
        self.failures = 0
        self.looked = 0
        self.tried = set()
        self.progress_ns = 0
        self.dependencies = {}
        self.unmet = {}
        self.segments = 0
        self.octets = octets
        self.message = b""
        self.chunk_bytes = 0
        self.digest = b""

    @property
    def sender_id(self) -> ParticipantId:
        """Who sent it."""
        return self.key.sender_id

    @property
    def ephemeral(self) -> bool:
        """Whether it is outside causal order."""
        return self.key.ephemeral

    @property
    def data_count(self) -> int:
        """Data segments that it has in all."""
        return self.key.data_count

    @property
    def position(self) -> tuple[int, MessageId]:
        """Lamport time and id of its first known segment: its place in the order of messages."""
        index = min(self.ids)
        return self.lamports[index], self.ids[index]

    @property
    def message_id(self) -> MessageId:
        """Id of the first data segment, or of the first known one where that cannot be inferred."""
        return self.ids[min(self.ids)]

    def own_ids(self) -> set[MessageId]:
        """Return the ids of its segments, also of those that were rebuilt and whose id only the next one says.

        What a later segment names last is the one before it; so a payload does not wait for itself.
        """
        own = set(self.ids.values())
        for index, history in self.histories.items():
            if history and index > 0 and index - 1 not in self.ids:
                own.add(history[-1].message_id)
        return own

    def pieces(self) -> dict[int, bytes]:
        """Return the chunks of the data segments of a whole payload by index."""
        size = self.chunk_bytes
        return {
            index: self.message[index * size : (index + 1) * size]
            for index in range(self.data_count)
        }

    def is_part(self, segment: SegmentMessage) -> bool:
        """Tell whether a data segment of its set has the bytes that the whole has in its place."""
        start = segment.data_segment_index * self.chunk_bytes
        return self.message[start : start + self.chunk_bytes] == segment.payload

    def drop_id(self, message_id: MessageId) -> None:
        """Forget the id of one data segment; its bytes, once part of the whole, stay."""
        index = next(index for index, item in self.ids.items() if item == message_id)
        del self.ids[index], self.lamports[index]

    def candidates(self, index: int) -> list[Candidate]:
        """Return what is held for a data index, in the order in which it came."""
        first = Candidate(
            self.data.get(index, b""),
            self.ids.get(index, ""),
            self.lamports.get(index, 0),
            self.histories.get(index, ()),
        )
        return [first, *self.rivals.get(index, ())]

    def enter(
        self, index: int, message_id: MessageId, lamport: int, history: tuple[HistoryEntry, ...]
    ) -> None:
        """Say which message the data segment that was added last came in."""
        if self.ids.setdefault(index, message_id) == message_id:
            self.lamports[index] = lamport
            self.histories[index] = history
            dependencies = self.dependencies
            for entry in history:
                dependencies.setdefault(entry.message_id, entry)
        else:
            last = self.rivals[index][-1]
            self.rivals[index][-1] = Candidate(last.chunk, message_id, lamport, history)

    def enter_parity(self, parity: HeldParity) -> None:
        """Say which parity segment was added last."""
        self.held_parity.append(parity)
        for entry in parity.history:
            self.dependencies.setdefault(entry.message_id, entry)

    def choose(self, index: int, chosen: Candidate) -> None:
        """Put a candidate in the place of the first one, which becomes one of the others."""
        first, *others = self.candidates(index)
        if chosen is first or chosen == first:
            return
        self.rivals[index] = [first, *(item for item in others if item is not chosen)]
        for entry in first.history:
            self.dependencies.pop(entry.message_id, None)
        self.data[index], self.ids[index], self.lamports[index], self.histories[index] = chosen

    def expel(self, index: int) -> None:
        """Make all candidates for a data index rivals: none of them is part of the whole, whose bytes stay."""
        self.rivals[index] = self.candidates(index)
        self.ids.pop(index, None)
        self.lamports.pop(index, None)
        for entry in self.histories.pop(index, ()):
            self.dependencies.pop(entry.message_id, None)

    def settle(
        self,
        data: dict[int, bytes],
        chosen: dict[int, Candidate],
        parity: dict[int, bytes],
        chunk_bytes: int,
    ) -> None:
        """Take the whole's data segments; the candidates that are part of it come first, the others are rivals.

        Args:
            data: Chunks by index, all of them.
            chosen: The candidates that it was put together from.
            parity: The parity that it was put together with; the rest of it counts for nothing.
            chunk_bytes: Of all of them but the last data segment.
        """
        self.chunk_bytes = chunk_bytes
        self.parity = parity
        self.parity_rivals.clear()
        for index in list(self.data):
            held = self.candidates(index)
            item = chosen.get(index) or next(
                (one for one in held if one.chunk == data[index]), None
            )
            if item is not None:
                self.choose(index, item)
            else:
                self.expel(index)
        self.data = data
        if self.rivals:
            self.gather()

    def gather(self) -> None:
        """Let it depend on what its first candidates and its parity name, again: some entries went with others."""
        for history in self.histories.values():
            for entry in history:
                self.dependencies.setdefault(entry.message_id, entry)
        for entry in self.named_by_parity():
            self.dependencies.setdefault(entry.message_id, entry)

    def named_by_parity(self) -> tuple[HistoryEntry, ...]:
        """Return what its parity segments name, each id once: the history of its first data segment, if that lacks."""
        if 0 in self.ids:
            return ()
        named = {entry.message_id: entry for item in self.held_parity for entry in item.history}
        return tuple(named.values())
