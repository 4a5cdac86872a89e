"""Segments to payloads: collects the segments of a set until any k of its k+m are there.

It must not know about causal order: a completed payload goes to ``sds.causal``. Segments that disagree about anything
that identifies a payload belong to different sets. Those that agree and have other bytes, for one index, are
*candidates*: anybody can make one, so none keeps the others away and none ends the set
(docs/adr/0013-what-a-stranger-may-not-do.md).

Spec: LIP-243 (Segmentation), Reassembly.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Final, NamedTuple, TypeAlias

from reliable_channel.config import SegmentationConfig
from reliable_channel.core import reed_solomon
from reliable_channel.core.hashing import keccak256, zeros_until
from reliable_channel.core.sds.log import history_octets
from reliable_channel.core.wire import HistoryEntry, SegmentMessage
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId

SetKey: TypeAlias = tuple[ParticipantId, bytes, int, int, int, int, int]
"""sender, payload hash, wrap time, data count, parity count, payload length, parity code."""

PARITY_CODES: Final = ("leopard", "reedsolo")
"""Names of the values of the ``parity_code`` field."""

MAX_CANDIDATES: Final = 4
"""Segments that are held for one index: the true one and a few that somebody made up, in whichever order they come."""

MAX_NAMED_CANDIDATES: Final = 4
"""As many again for those that the candidates of the next index name: the true segments name each other, so a stranger
who was faster has to make up whole chains to keep one out."""

MAX_ASSEMBLIES: Final = 8
"""Times that one received segment may have a payload put together and hashed."""

MAX_PARITY_CHOICES: Final = 64
"""Combinations of parity segments that are looked at, of which those with two candidates of one index are left out."""


class Candidate(NamedTuple):
    """One of several segments for one data index."""

    chunk: bytes
    message_id: MessageId
    lamport: int
    history: tuple[HistoryEntry, ...]


@dataclass(slots=True, eq=False)
class IncomingPayload:
    """A payload on its way in: incomplete, then complete and perhaps parked.

    Attributes:
        serial: Distinguishes payloads within a channel's run.
        key: What identifies its set.
        ephemeral: It is outside causal order: not known, not logged, not parked.
        data: Chunks by data segment index, of the first candidate each.
        parity: Chunks by parity segment index, of the first candidate each.
        ids: Message id by data segment index, received or rebuilt.
        lamports: Lamport time by data segment index.
        histories: What each data segment names, by index; empty once complete.
        rivals: Further candidates by data segment index; most often there are none.
        parity_rivals: Further chunks by parity segment index.
        failures: Times that it could not be put together.
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
    histories: dict[int, tuple[HistoryEntry, ...]] = field(default_factory=dict)
    rivals: dict[int, list[Candidate]] = field(default_factory=dict)
    parity_rivals: dict[int, list[bytes]] = field(default_factory=dict)
    failures: int = 0
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

    def held_ids(self) -> list[MessageId]:
        """Return the ids of all its data segments, further candidates included."""
        rivals = [item.message_id for items in self.rivals.values() for item in items]
        return [*self.ids.values(), *rivals]

    def candidates(self, index: int) -> list[Candidate]:
        """Return what is held for a data index, in the order in which it came."""
        first = Candidate(
            self.data[index],
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
            for entry in history:
                self.dependencies.setdefault(entry.message_id, entry)
        else:
            last = self.rivals[index][-1]
            self.rivals[index][-1] = Candidate(last.chunk, message_id, lamport, history)

    def choose(self, index: int, chosen: Candidate) -> None:
        """Put a candidate in the place of the first one, which becomes one of the others."""
        first, *others = self.candidates(index)
        if chosen is first or chosen == first:
            return
        self.rivals[index] = [first, *(item for item in others if item is not chosen)]
        for entry in first.history:
            self.dependencies.pop(entry.message_id, None)
        self.data[index], self.ids[index], self.lamports[index], self.histories[index] = chosen

    def gather(self) -> None:
        """Let it depend on what its first candidates name, again: some entries went with others."""
        for history in self.histories.values():
            for entry in history:
                self.dependencies.setdefault(entry.message_id, entry)


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

    def refusal(
        self, key: SetKey, segment: SegmentMessage, extra: int = 0, message_id: MessageId = ""
    ) -> str | None:
        """Return why a segment cannot be taken now, as a word, or None when it can.

        Args:
            key: Its set.
            segment: The segment.
            extra: Bytes kept besides its payload.
            message_id: Of the message it came in.

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
                reason = refuse_parity(held, segment)
                if reason is not None:
                    return reason
        elif segment.data_segment_index in held.data and not has_place(held, segment, message_id):
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
        freed = len(gone.chunk) + history_octets(gone.history)
        payload.octets -= freed
        self.octets -= freed
        self.sender_octets[payload.sender_id] -= freed

    def drop_data(self, payload: IncomingPayload) -> None:
        """Let go of the data segments of a set; its parity stays."""
        rivals = [item.chunk for items in payload.rivals.values() for item in items]
        freed = sum(map(len, (*payload.data.values(), *rivals)))
        payload.data.clear()
        payload.ids.clear()
        payload.histories.clear()
        payload.rivals.clear()
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


def assemble(payload: IncomingPayload, latest: SegmentMessage | None = None) -> bytes | None:
    """Return the payload that the segments of a complete set make, or None when they make no such payload.

    Missing data segments are rebuilt from parity and put into ``payload.data``; of several candidates the right ones
    come first afterwards. The hash is always checked. Where it does not match, the set is as before.

    Args:
        payload: A complete set.
        latest: The segment it was given last: what does without it was tried before. None to try everything.

    At most ``MAX_ASSEMBLIES`` are tried.
    """
    for chosen, parity in islice(attempts(payload, latest), MAX_ASSEMBLIES):
        data = (
            {index: item.chunk for index, item in chosen.items()} if chosen else payload.data.copy()
        )
        message = put_together(payload.key, data, parity)
        if message is not None:
            for index, item in chosen.items():
                payload.choose(index, item)
            if chosen:
                payload.gather()
            payload.data = data
            return message
        payload.failures += 1
    return None


Attempt: TypeAlias = tuple[dict[int, Candidate], dict[int, bytes]]
"""Data candidates by index, empty for the only ones there are, and parity chunks by index."""


def attempts(payload: IncomingPayload, latest: SegmentMessage | None) -> Iterator[Attempt]:
    """Yield what may make the payload, the likeliest first.

    Each candidate of the last index gets the same share: only one of them is the end of the true chain.
    """
    if not payload.rivals:
        for parity in parity_choices(payload, latest):
            yield {}, parity
        return
    options = {index: payload.candidates(index) for index in sorted(payload.data, reverse=True)}
    if latest is not None and not latest.is_parity:
        index = latest.data_segment_index
        options[index] = [item for item in options[index] if item.chunk is latest.payload]
    order = list(options)
    share = max(1, MAX_ASSEMBLIES // len(options[order[0]]))
    for last in options[order[0]]:
        pairs = (
            (chosen, parity)
            for chosen in chains(options, order, last)
            for parity in parity_choices(payload, latest)
        )
        yield from islice(pairs, share)


def chains(
    options: dict[int, list[Candidate]], order: Sequence[int], last: Candidate
) -> Iterator[dict[int, Candidate]]:
    """Yield a candidate for each index, ending in the given one; those that name each other come first.

    A sender fixes the histories of a payload's segments in one step, so each of them names the one before.

    Args:
        options: Candidates by index.
        order: The indices, last to first.
        last: Of the last index.
    """
    stack = [(1, {order[0]: last})]
    while stack:
        place, chosen = stack.pop()
        while place < len(order) and len(options[order[place]]) == 1:
            chosen[order[place]] = options[order[place]][0]
            place += 1
        if place == len(order):
            yield chosen
            continue
        named = {entry.message_id for entry in chosen[order[place - 1]].history}
        ranked = sorted(options[order[place]], key=lambda item: item.message_id not in named)
        stack += [(place + 1, {**chosen, order[place]: item}) for item in reversed(ranked)]


def parity_choices(
    payload: IncomingPayload, latest: SegmentMessage | None
) -> Iterator[dict[int, bytes]]:
    """Yield parity segments that may stand in for the missing data segments, just enough of them."""
    missing = payload.data_count - len(payload.data)
    is_parity = latest is not None and latest.is_parity
    if not missing:
        if not is_parity:
            yield {}
        return
    shards = [
        (index, chunk)
        for index, first in payload.parity.items()
        for chunk in (first, *payload.parity_rivals.get(index, ()))
    ]
    needed: tuple[tuple[int, bytes], ...] = ()
    if latest is not None and is_parity:
        needed = ((latest.parity_segment_index, latest.payload),)
        shards = [item for item in shards if item[0] != latest.parity_segment_index]
    for rest in islice(combinations(shards, missing - len(needed)), MAX_PARITY_CHOICES):
        choice = dict((*needed, *rest))
        if len(choice) == missing:
            yield choice


def put_together(key: SetKey, data: dict[int, bytes], parity: dict[int, bytes]) -> bytes | None:
    """Return the payload that data and parity segments make, or None when its hash is another one.

    Args:
        key: What identifies the set.
        data: Chunks by data segment index; rebuilt ones are added.
        parity: Chunks by parity segment index.
    """
    if len(data) < key[3] and not rebuild(key, data, parity):
        return None
    message = data[0] if len(data) == 1 else b"".join([data[index] for index in range(len(data))])
    return message if keccak256(message) == key[1] else None


def rebuild(key: SetKey, data: dict[int, bytes], parity: dict[int, bytes]) -> bool:
    """Rebuild missing data segments from parity; say whether that was possible.

    Shards are zero-padded to the chunk for coding; the last data segment travels unpadded.
    """
    count, parity_count, code = key[3], key[4], key[6]
    chunk = max(map(len, (*data.values(), *parity.values())))
    shards = [data[index].ljust(chunk, b"\0") if index in data else None for index in range(count)]
    if code >= len(PARITY_CODES):
        return False
    try:
        rebuilt = reed_solomon.recover(
            shards, [parity.get(index) for index in range(parity_count)], PARITY_CODES[code]
        )
    except (reed_solomon.UnrecoverableError, ValueError):
        return False
    last = data.get(count - 1)
    for index in range(count):
        data.setdefault(index, rebuilt[index])
    if last is None:
        return cut_last(key, data, chunk)
    return True


def cut_last(key: SetKey, data: dict[int, bytes], chunk: int) -> bool:
    """Cut the padding off a rebuilt last segment; say whether a length was found.

    Where the sender gave no length, trailing zero bytes are cut until the hash matches.
    """
    digest, count, length = key[1], key[3], key[5]
    last_index = count - 1
    last = data[last_index]
    if length:
        data[last_index] = last[: length - last_index * chunk]
        return True
    shortest = last.rstrip(b"\0")
    head = b"".join([*(data[index] for index in range(last_index)), shortest])
    zeros = zeros_until(head, digest, len(last) - len(shortest))
    if zeros is None:
        return False
    data[last_index] = last[: len(shortest) + zeros]
    return True
