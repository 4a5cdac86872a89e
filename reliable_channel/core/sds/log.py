"""What a participant knows, and what it may name: known ids and the ordered log.

*Known* ids were accepted, rebuilt or are our own: they deduplicate, acknowledge, enter the bloom filter and end
fetching. *Logged* ids are those of delivered payloads and of our own, ordered by (Lamport time, message id); causal
histories are taken from the log only. Nothing here decides what is delivered.

Spec: LIP-109 (SDS), Participant state.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from heapq import nlargest
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.bloom import BloomFilter, HashPair, hash_pair
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import LogRecord
from reliable_channel.types import MessageId, ParticipantId

MAX_BRANCHES: Final = 16
"""Ids of concurrent messages that a history names beyond ``causal_history_size``."""

MAX_LATE_HINTS: Final = 16
"""Earlier messages of ours that a history names because their retrieval hints were not known before."""

ENTRY_OVERHEAD: Final = 32 + 16
"""Bytes of a history entry besides its ids: the retrieval hint, tags and lengths."""

HELD_OVERHEAD: Final = 48
"""Bytes that a history entry which is held takes besides its ids and hint, about."""

MAX_PAYLOAD_PLACES: Final = 1_024
"""Places of the order that are looked through for the segments of one payload."""

MAX_FRONTIER: Final = 256
"""Ids of concurrent messages that are remembered until a message of ours names them."""


class KnownMessage:
    """One known id: when and by whom it was sent, which segment of its payload it is, where to fetch it.

    It is *proven* when the content gives it, or it is ours or rebuilt; an id that is only claimed gives way to a
    message that proves it (docs/adr/0013-what-a-stranger-may-not-do.md).
    """

    __slots__ = (
        "hint",
        "index",
        "lamport",
        "logged",
        "message_id",
        "proven",
        "segment_count",
        "sender_id",
    )

    def __init__(
        self,
        message_id: MessageId,
        lamport: int,
        sender_id: ParticipantId,
        *,
        index: int,
        segment_count: int,
        hint: bytes | None,
        logged: bool,
        proven: bool = True,
    ) -> None:
        self.message_id = message_id
        self.lamport = lamport
        self.sender_id = sender_id
        self.index = index
        self.segment_count = segment_count
        self.hint = hint
        self.logged = logged
        self.proven = proven

    @property
    def payload(self) -> tuple[ParticipantId, int]:
        """Sender and Lamport time of the payload's first segment: what its segments share."""
        return self.sender_id, self.lamport - self.index

    def record(self) -> LogRecord:
        """Return its row."""
        return LogRecord(
            message_id=self.message_id,
            lamport_timestamp=self.lamport,
            sender_id=self.sender_id,
            retrieval_hint=self.hint,
            logged=self.logged,
            segment_index=self.index,
            segment_count=self.segment_count,
            proven=self.proven,
        )


class MessageLog:
    """Known ids, the ordered log of those that may be named, and the bloom filter over the known ones.

    Args:
        config: Bounds and the filter's parameters.
        outbox: Where row changes go.
    """

    def __init__(self, config: SdsConfig, outbox: Outbox) -> None:
        self.config = config
        self.outbox = outbox
        self.known: dict[MessageId, KnownMessage] = {}
        self.order: list[tuple[int, MessageId]] = []
        self.frontier: dict[MessageId, None] = {}
        self.late_hints: dict[MessageId, None] = {}
        self.withdrawn: dict[MessageId, tuple[MessageId, ...]] = {}
        self.unsent: set[MessageId] = set()
        """Ours that wait for their first turn: nobody could be given them yet, so syncs do not name them."""
        self.evict_above = config.max_known_ids
        self.bloom = (
            BloomFilter(config.bloom_capacity, config.bloom_error_rate)
            if config.bloom_capacity
            else None
        )

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self.known

    @property
    def is_full(self) -> bool:
        """Whether so many ids are known that some are to be forgotten."""
        return len(self.known) > self.evict_above

    def __len__(self) -> int:
        return len(self.known)

    def restore(self, records: Iterable[LogRecord]) -> None:
        """Take kept rows back; the bloom filter is rebuilt from them."""
        for record in records:
            self.known[record.message_id] = KnownMessage(
                record.message_id,
                record.lamport_timestamp,
                record.sender_id,
                index=record.segment_index,
                segment_count=record.segment_count,
                hint=record.retrieval_hint,
                logged=record.logged,
                proven=record.proven,
            )
        self.order = sorted(
            (item.lamport, item.message_id) for item in self.known.values() if item.logged
        )
        self.rebuild_bloom(self.config.bloom_capacity)

    def add(
        self, message: KnownMessage, pair: HashPair | None = None, *, has_row: bool = True
    ) -> None:
        """Make an id known; when it is logged already, it may be named from now on.

        Args:
            message: What is known of it.
            pair: The hashes of its id, where the caller has them.
            has_row: Its row is written here; the caller sees to it otherwise, if nothing else has before.
        """
        self.known[message.message_id] = message
        if self.bloom is not None:
            if self.bloom.count >= self.config.bloom_capacity:
                self.rebuild_bloom(max(1, self.config.bloom_capacity // 2))
            self.bloom.add_pair(pair or hash_pair(message.message_id))
        if message.logged:
            self.insert(message)
        if has_row:
            self.keep(message)

    def keep(self, message: KnownMessage) -> None:
        """Write the row of a known id."""
        self.outbox.put_at((message.message_id,), message.record())

    def log(self, message_id: MessageId) -> None:
        """Let a known id be named: its payload is delivered."""
        message = self.known[message_id]
        if not message.logged:
            message.logged = True
            self.insert(message)
            self.outbox.put_at((message_id,), message.record())

    def insert(self, message: KnownMessage) -> None:
        """Put an id at its place in the order, most often the end."""
        place = (message.lamport, message.message_id)
        if not self.order or place > self.order[-1]:
            self.order.append(place)
        else:
            insort(self.order, place)

    def withdraw(self, message_id: MessageId, named: tuple[MessageId, ...]) -> None:
        """Forget an id of ours that nobody is to wait for; what it named takes its place in later histories.

        Args:
            message_id: The id.
            named: Its history.
        """
        message = self.known.pop(message_id)
        self.unsent.discard(message_id)
        self.frontier.pop(message_id, None)
        self.late_hints.pop(message_id, None)
        self.withdrawn[message_id] = named
        if len(self.withdrawn) > MAX_FRONTIER:
            del self.withdrawn[next(iter(self.withdrawn))]
        self.frontier.update(dict.fromkeys(item for item in named if item in self.known))
        self.leave_order(message)
        self.outbox.delete(LogRecord, message_id)

    def leave_order(self, message: KnownMessage) -> None:
        """Take an id out of the order; harmless when it is not there."""
        place = (message.lamport, message.message_id)
        index = bisect_left(self.order, place)
        if index < len(self.order) and self.order[index] == place:
            del self.order[index]

    def confirm_own(self, message_id: MessageId, hint: bytes) -> None:
        """Remember the transport hash of a message of ours, and that nobody was told it yet."""
        self.set_hint(message_id, hint)
        self.late_hints[message_id] = None
        if len(self.late_hints) > MAX_FRONTIER:
            del self.late_hints[next(iter(self.late_hints))]

    def told(self, message_ids: Iterable[MessageId]) -> None:
        """Note that a message of ours names ids with the hints that are known now."""
        for message_id in message_ids:
            self.late_hints.pop(message_id, None)

    def dispatch_history(self, fixed: tuple[MessageId, ...]) -> tuple[HistoryEntry, ...]:
        """Return the entries that a message of ours carries when it goes out first, oldest first.

        Those fixed at ``send``, and messages of ours whose hints became known since: sent in a burst, each names its
        predecessors before their transport hash is known, and a receiver that lost one could not ask for it. So every
        message of ours is named with its hint by a later one, and whoever receives any can fetch the whole chain.

        Deviation: LIP-109 names the last ids only (docs/adr/0010-hints-that-come-late.md).
        """
        named = self.entries(
            self.standing(fixed)[-self.config.causal_history_size - MAX_BRANCHES :]
        )
        self.told([entry.message_id for entry in named if entry.retrieval_hint])
        fixed = tuple([entry.message_id for entry in named])
        late = [item for item in self.late_hints if item not in fixed][:MAX_LATE_HINTS]
        if not late:
            return named
        self.told(late)
        return self.entries(self.in_order((*late, *fixed)))

    def standing(self, message_ids: tuple[MessageId, ...]) -> tuple[MessageId, ...]:
        """Return the known ids of a history in order, withdrawn ones replaced by what they had named."""
        if not self.withdrawn:
            return self.in_order(message_ids)
        found: dict[MessageId, None] = {}
        stack = list(reversed(message_ids))
        seen: set[MessageId] = set()
        while stack:
            message_id = stack.pop()
            if message_id in seen:
                continue
            seen.add(message_id)
            if message_id in self.withdrawn and message_id not in self.known:
                stack.extend(reversed(self.withdrawn[message_id]))
            else:
                found[message_id] = None
        return self.in_order(found)

    def in_order(self, message_ids: Iterable[MessageId]) -> tuple[MessageId, ...]:
        """Return those of the ids that are known, by (Lamport time, id)."""
        known = self.known
        places = [(known[item].lamport, item) for item in message_ids if item in known]
        places.sort()
        return tuple([item for _, item in places])

    def forget(self, message_id: MessageId) -> None:
        """Let go of a known id: its payload was given up, or it turned out to be another message's."""
        message = self.known.pop(message_id, None)
        self.unsent.discard(message_id)
        if message is None:
            return
        if message.logged:
            self.leave_order(message)
            self.frontier.pop(message_id, None)
        self.outbox.delete(LogRecord, message_id)

    def set_hint(self, message_id: MessageId, hint: bytes | None) -> None:
        """Remember under which transport hash a message can be fetched; the first one stays."""
        message = self.known.get(message_id)
        if hint and message is not None and message.hint is None:
            message.hint = hint
            self.outbox.put_at((message_id,), message.record())

    def extend_frontier(
        self, message_id: MessageId, named: Iterable[MessageId], *, keep: bool = True
    ) -> None:
        """Note a logged message that nobody names yet, and that it names others.

        Args:
            message_id: The last segment of a delivered payload, or a segment of ours.
            named: Its dependencies.
            keep: It is not named by a logged message.
        """
        frontier = self.frontier
        for item in named:
            frontier.pop(item, None)
        if keep:
            frontier[message_id] = None
            if len(frontier) > MAX_FRONTIER:
                del frontier[next(iter(frontier))]

    def next_history(self) -> tuple[MessageId, ...]:
        """Return the ids that a message of ours names, oldest first.

        The last ``causal_history_size`` ids of the log, and those concurrent ones that no logged message names:
        without them, two of three concurrent messages would be named and the third could come out after its effect.

        Deviation: LIP-109 names the last ids only (docs/adr/0003-histories-name-every-branch.md).
        """
        newest = self.newest(self.config.causal_history_size)
        branches = [item for item in self.frontier if item not in newest and item in self.known]
        if not branches:
            return newest
        places = sorted((self.known[item].lamport, item) for item in branches)
        return tuple([item for _, item in places[-MAX_BRANCHES:]]) + newest

    def newest(self, count: int) -> tuple[MessageId, ...]:
        """Return the last ids of the log, oldest first."""
        return tuple([place[1] for place in self.order[-count:]]) if count else ()

    def newest_sent(self) -> Iterator[MessageId]:
        """Yield the ids of the log that somebody may have, from the newest on."""
        for _, message_id in reversed(self.order):
            if message_id not in self.unsent:
                yield message_id

    def payload_ids(self, known: KnownMessage) -> tuple[MessageId, ...]:
        """Return the logged ids of the payload that a known id belongs to, in order.

        Lamport times of a payload's segments are consecutive. Where others sent very many messages in that time, not
        all of it is looked through.
        """
        sender_id, first = known.payload
        start = bisect_left(self.order, (first, ""))
        end = bisect_left(self.order, (first + known.segment_count, ""))
        found = [item for _, item in self.order[start : min(end, start + MAX_PAYLOAD_PLACES)]]
        return tuple([item for item in found if self.known[item].payload == (sender_id, first)])

    def entries(self, message_ids: Iterable[MessageId]) -> tuple[HistoryEntry, ...]:
        """Return the history entries that name those of the ids that are known."""
        known = self.known
        return tuple(
            [
                HistoryEntry(message_id, message.hint, message.sender_id)
                for message_id in message_ids
                if (message := known.get(message_id)) is not None
            ]
        )

    def evict(self, is_open: Callable[[MessageId], bool]) -> list[tuple[int, MessageId]]:
        """Forget the lowest logged ids above the bound; return them with their Lamport times, in order.

        It works in batches of one sixteenth of the bound, so that the cost of one message stays flat.

        Args:
            is_open: Tells whether an id is one of ours that we still wait to be acknowledged: those stay.
        """
        limit = self.config.max_known_ids
        if not self.is_full:
            return []
        batch = len(self.known) - limit + limit // 16
        excess = self.order[:batch]
        stay = [place for place in excess if is_open(place[1])]
        if stay:
            excess, stay = self.evictable(batch, is_open)
        self.order[: len(excess) + len(stay)] = stay
        # Where too many stay, not every message is to go through them again.
        self.evict_above = max(limit, len(self.known) - len(excess) + limit // 16 if stay else 0)
        for _, message_id in excess:
            del self.known[message_id]
            self.frontier.pop(message_id, None)
            self.late_hints.pop(message_id, None)
            self.outbox.delete(LogRecord, message_id)
        return excess

    def evictable(
        self, count: int, is_open: Callable[[MessageId], bool]
    ) -> tuple[list[tuple[int, MessageId]], list[tuple[int, MessageId]]]:
        """Return so many of the lowest places that may be forgotten, and those among them that may not."""
        excess: list[tuple[int, MessageId]] = []
        stay: list[tuple[int, MessageId]] = []
        for place in self.order:
            if len(excess) == count:
                break
            (stay if is_open(place[1]) else excess).append(place)
        return excess, stay

    def rebuild_bloom(self, count: int) -> None:
        """Make the bloom filter anew from that many of the newest known ids, logged or not.

        Spec: LIP-109 leaves the roll-over open; the newest half of the capacity is kept (docs/wire.md).
        """
        if self.bloom is None:
            return
        self.bloom.clear()
        places = [
            (item.lamport, item.message_id) for item in self.known.values() if not item.logged
        ]
        if places:
            places += self.order[-count:]
            newest = [message_id for _, message_id in nlargest(count, places)]
        else:
            newest = list(self.newest(count))
        self.bloom.add_many(newest)

    def bloom_bytes(self) -> bytes | None:
        """Return the filter for a message, or None when filters are switched off."""
        return None if self.bloom is None else self.bloom.to_bytes()


def history_octets(entries: Iterable[HistoryEntry]) -> int:
    """Return about how many bytes a causal history takes while the payload it belongs to waits."""
    octets = 0
    for entry in entries:
        # Each of the two is almost always ASCII: then its length is known without encoding it.
        text = entry.message_id + (entry.sender_id or "")
        octets += len(text) if text.isascii() else len(text.encode())
        octets += HELD_OVERHEAD + len(entry.retrieval_hint or b"")
    return octets
