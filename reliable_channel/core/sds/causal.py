"""Causal order of whole payloads: what a payload waits for, and what its delivery sets free.

A complete payload whose dependencies are all met is delivered at once; another is parked under each id it waits for,
so that the last missing one releases a chain without a sweep. A dependency that is only parked is not met. It must
not fetch anything (``missing``) nor know how payloads are put together (``reassembly``).

Spec: LIP-109 (SDS), Deliver. Deviation: order is kept between payloads, not segments (docs/adr).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.payload import IncomingPayload, SetKey
from reliable_channel.core.sds.cycles import components
from reliable_channel.core.sds.log import MessageLog
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import LostRecord
from reliable_channel.types import SECOND, MessageId, Nanoseconds, ParticipantId

MET_RING: Final = 4096
"""Ids of syncs and ephemerals that are remembered, ours and others' apart: foreign implementations name them."""

SEARCH_CREDIT: Final = 4096
"""Ids that parked payloads wait for which may be gone through for cycles with one input; more wait for a timer."""

CYCLE_LOOKS: Final = 32
"""Ids that are looked at to see that a payload closes no cycle; after them it may close one."""

CYCLE_TIMER: Final = ("cycles", "")

CYCLE_WAIT_NS: Final = SECOND
"""Distance of searches for cycles that do not fit into one input, at least."""

EDGES_PER_WAIT: Final = 1 << 16
"""Ids that are gone through for one such distance: more are gone through less often."""


class IdRing:
    """A bounded memory of ids, the oldest forgotten first.

    Args:
        limit: Ids that are remembered.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.ids: OrderedDict[MessageId, None] = OrderedDict()

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self.ids

    def remove(self, message_id: MessageId) -> None:
        """Forget an id, where it is remembered."""
        self.ids.pop(message_id, None)

    def add(self, message_id: MessageId) -> MessageId | None:
        """Remember an id; return the one forgotten for it, if any."""
        self.ids[message_id] = None
        if len(self.ids) > self.limit:
            return self.ids.popitem(last=False)[0]
        return None


@dataclass(slots=True)
class SenderParking:
    """What is parked of one sender: payloads by serial, and their bytes together."""

    payloads: dict[int, IncomingPayload] = field(default_factory=dict)
    octets: int = 0


class CausalOrder:
    """Payloads that are held (incomplete or parked), and who waits for whom.

    Args:
        config: Bounds.
        log: Delivered and own ids.
        outbox: Where row changes go.
        passing: Ids of our own syncs and ephemerals, and of messages from before our time.
        deliver: Called with each payload when its turn has come, in causal order.

    Attributes:
        edges: Ids that parked payloads wait for, each counted for every payload that does.
        cycle_suspected: There may be a cycle that was not looked for yet.
        search_credit: Such ids that may be gone through for cycles before the current input ends.
    """

    def __init__(
        self,
        config: SdsConfig,
        log: MessageLog,
        outbox: Outbox,
        passing: IdRing,
        deliver: Callable[[IncomingPayload], None],
    ) -> None:
        self.config = config
        self.log = log
        self.outbox = outbox
        self.deliver = deliver
        self.floor = 0
        self.holder: dict[MessageId, IncomingPayload] = {}
        self.parked: dict[int, IncomingPayload] = {}
        self.parked_octets = 0
        self.parked_of: dict[ParticipantId, SenderParking] = {}
        self.waiting: dict[MessageId, dict[int, IncomingPayload]] = {}
        self.edges = 0
        self.cycle_suspected = False
        self.search_credit = SEARCH_CREDIT
        self.lost = IdRing(config.max_lost_ids)
        self.passing = passing
        # Ids under which others sent syncs and ephemerals. Nothing proves that they are of such, so nobody takes them
        # as met: a real message may have the id.
        self.claimed = IdRing(MET_RING)
        # Excused ids that are waited for after all: some of what names them may have been delivered.
        self.overtaken = IdRing(MET_RING)

    def hold(self, message_id: MessageId, payload: IncomingPayload) -> None:
        """Note that an accepted id belongs to a payload that is not delivered yet."""
        self.holder[message_id] = payload

    def is_met(self, message_id: MessageId) -> bool:
        """Tell whether nobody needs to wait for an id: delivered, ours, lost, or outside the order."""
        if message_id in self.log.known and message_id not in self.holder:
            return True
        return message_id in self.lost.ids or message_id in self.passing.ids

    def lacks(self, message_id: MessageId) -> bool:
        """Tell whether an id is neither known nor excused: it would have to be fetched."""
        return not (
            message_id in self.log.known or message_id in self.lost or message_id in self.passing
        )

    def was_given_up(self, message_ids: Iterable[MessageId]) -> bool:
        """Tell whether any of the ids was lost or excused: what holds it comes late."""
        lost, passing, overtaken = self.lost.ids, self.passing.ids, self.overtaken.ids
        return any(item in lost or item in passing or item in overtaken for item in message_ids)

    def is_awaited(self, message_id: MessageId) -> bool:
        """Tell whether a parked payload waits for an id."""
        return message_id in self.waiting

    def complete(self, payload: IncomingPayload) -> bool:
        """Deliver a complete payload, or park it; say whether it was delivered.

        Payloads below the floor wait for nothing: a late joiner does not fetch the past without end.
        """
        if payload.position[0] >= self.floor:
            unmet = [item for item in payload.dependencies if not self.is_met(item)]
            if unmet:
                own = payload.own_ids()
                payload.unmet = {item: None for item in unmet if item not in own}
        if not payload.unmet:
            if self.waiting:
                self.release([payload])
            else:
                self.hand_over(payload)
            return True
        self.park(payload)
        self.watch_cycles((payload,))
        return payload.serial not in self.parked

    def park(self, payload: IncomingPayload) -> None:
        """Let a payload wait."""
        self.parked[payload.serial] = payload
        self.parked_octets += payload.octets
        sender = self.parked_of.setdefault(payload.sender_id, SenderParking())
        sender.payloads[payload.serial] = payload
        sender.octets += payload.octets
        self.edges += len(payload.unmet)
        for message_id in payload.unmet:
            self.waiting.setdefault(message_id, {})[payload.serial] = payload

    def parked_as(self, key: SetKey) -> IncomingPayload | None:
        """Return the parked payload with this key, if there is one."""
        sender = self.parked_of.get(key.sender_id)
        payloads = () if sender is None else sender.payloads.values()
        return next((item for item in payloads if item.key == key), None)

    def unpark(self, payload: IncomingPayload) -> None:
        """Take a payload out of the parking lot; harmless when it is not there."""
        if self.parked.pop(payload.serial, None) is None:
            return
        self.parked_octets -= payload.octets
        sender = self.parked_of[payload.sender_id]
        del sender.payloads[payload.serial]
        sender.octets -= payload.octets
        if not sender.payloads:
            del self.parked_of[payload.sender_id]
        self.edges -= len(payload.unmet)
        for message_id in payload.unmet:
            waiters = self.waiting[message_id]
            waiters.pop(payload.serial, None)
            if not waiters:
                del self.waiting[message_id]
        payload.unmet.clear()

    def release(self, ready: list[IncomingPayload]) -> None:
        """Deliver payloads and everything that waited only for them, lowest (Lamport time, id) first."""
        self.watch_cycles(self.release_all(ready))

    def release_all(self, ready: list[IncomingPayload]) -> list[IncomingPayload]:
        """Deliver payloads and what waited only for them; return what waits for less now."""
        heap = [(payload.position, payload.serial, payload) for payload in ready]
        heapify(heap)
        nearer: dict[int, IncomingPayload] = {}
        while heap:
            payload = heappop(heap)[2]
            self.unpark(payload)
            self.hand_over(payload)
            for message_id in payload.ids.values():
                for waiter in self.meet(message_id):
                    if waiter.unmet:
                        nearer[waiter.serial] = waiter
                    else:
                        heappush(heap, (waiter.position, waiter.serial, waiter))
        return list(nearer.values())

    def hand_over(self, payload: IncomingPayload) -> None:
        """Deliver a payload that is not parked; its ids may be named from now on."""
        ids, log = payload.ids, self.log
        for message_id in ids.values():
            self.holder.pop(message_id, None)
            log.log(message_id)
        log.extend_frontier(ids[max(ids)], payload.dependencies)
        self.deliver(payload)

    def meet(self, message_id: MessageId) -> list[IncomingPayload]:
        """Note that an id needs no more waiting; return the payloads that waited for it."""
        waiting = self.waiting.pop(message_id, None)
        if waiting is None:
            return []
        waiters = list(waiting.values())
        self.edges -= len(waiters)
        for payload in waiters:
            payload.unmet.pop(message_id, None)
        return waiters

    def release_waiters(self, message_ids: Iterable[MessageId]) -> None:
        """Deliver what waited only for these ids, which need no more waiting."""
        waiters = {
            payload.serial: payload
            for message_id in message_ids
            for payload in self.meet(message_id)
        }
        nearer = self.release_all([payload for payload in waiters.values() if not payload.unmet])
        self.watch_cycles([*nearer, *waiters.values()])

    def await_again(self, message_id: MessageId) -> None:
        """Let an excused id be waited for after all; who did not wait has been delivered, so it comes late."""
        self.passing.remove(message_id)
        self.overtaken.add(message_id)

    def excuse(self, message_ids: Sequence[MessageId]) -> None:
        """Let ids count as met without a trace: they are from before our time, or outside the order."""
        for message_id in message_ids:
            self.passing.add(message_id)
        self.release_waiters(message_ids)

    def lose(self, message_id: MessageId, now: Nanoseconds) -> None:
        """Give an id up: it counts as met from now on, and what still comes of it comes late."""
        forgotten = self.lost.add(message_id)
        if forgotten is not None:
            self.outbox.delete(LostRecord, forgotten)
        self.outbox.put(LostRecord(message_id=message_id, lost_ns=now))
        self.release_waiters((message_id,))

    def force(self, payload: IncomingPayload) -> None:
        """Deliver a parked payload now, parked ones that it waits for first."""
        chain, _ = self.closure(payload)
        for member in chain:
            self.unpark(member)
        self.release(chain)

    def closure(
        self, payload: IncomingPayload
    ) -> tuple[list[IncomingPayload], dict[MessageId, HistoryEntry]]:
        """Return the parked payloads that one waits for, itself included, and what nobody parked holds."""
        chain: dict[int, IncomingPayload] = {payload.serial: payload}
        missing: dict[MessageId, HistoryEntry] = {}
        stack = [payload]
        while stack:
            member = stack.pop()
            for message_id in member.unmet:
                holder = self.holder.get(message_id)
                if holder is None or holder.serial not in self.parked:
                    missing[message_id] = member.dependencies[message_id]
                elif holder.serial not in chain:
                    chain[holder.serial] = holder
                    stack.append(holder)
        return list(chain.values()), missing

    # -- cycles -----------------------------------------------------------------------------------
    #
    # Only foreign or hostile senders produce cycles: ours fix the histories of a payload's segments in one step. So
    # they may wait, while everything else must cost little however much is parked.

    def next_search(self) -> Nanoseconds | None:
        """End an input; return after how long cycles are to be looked for, None when there is no need."""
        self.search_credit = SEARCH_CREDIT
        if not self.cycle_suspected:
            return None
        return CYCLE_WAIT_NS * max(1, self.edges // EDGES_PER_WAIT)

    def watch_cycles(self, payloads: Iterable[IncomingPayload]) -> None:
        """Break cycles that payloads which have just begun to wait, or wait for less now, may have closed.

        Args:
            payloads: The others wait for what they have waited for before.
        """
        if not self.cycle_suspected:
            self.cycle_suspected = any(
                item.serial in self.parked and self.may_close_cycle(item) for item in payloads
            )
        if self.cycle_suspected and self.edges <= self.search_credit:
            self.search_credit -= self.edges
            self.break_cycles()

    def may_close_cycle(self, payload: IncomingPayload) -> bool:
        """Tell whether a parked payload may wait only for payloads that in the end wait for it.

        A short look along what it waits for says no of almost all that are in no cycle.
        """
        if not any(message_id in self.waiting for message_id in payload.ids.values()):
            return False
        seen = {payload.serial}
        stack = [payload]
        looks = CYCLE_LOOKS
        while stack:
            for message_id in stack.pop().unmet:
                holder = self.holder.get(message_id)
                if holder is None or holder.serial not in self.parked:
                    return False
                looks -= 1
                if not looks:
                    return True
                if holder.serial not in seen:
                    seen.add(holder.serial)
                    stack.append(holder)
        return True

    def break_cycles(self) -> None:
        """Deliver all that waits for nothing but what is parked: of each cycle the lowest (Lamport time, id) first.

        Cycles that others wait for come before those; what is in none comes free by itself.
        """
        self.cycle_suspected = False
        stuck = self.stuck()
        graph = {
            serial: {self.holder[message_id].serial: None for message_id in payload.unmet}
            for serial, payload in stuck.items()
        }
        for group in components(graph):
            members = [stuck[serial] for serial in group if serial in self.parked]
            for member in members:
                self.unpark(member)
            self.release_all(members)

    def stuck(self) -> dict[int, IncomingPayload]:
        """Return the parked payloads by serial that do not wait, in the end, for anything that is not parked."""
        parked, holder, waiting = self.parked, self.holder, self.waiting
        reached = []
        for payload in parked.values():
            for message_id in payload.unmet:
                held = holder.get(message_id)
                if held is None or held.serial not in parked:
                    reached.append(payload)
                    break
        stuck = dict(parked)
        for payload in reached:
            del stuck[payload.serial]
        while reached and stuck:
            for message_id in reached.pop().ids.values():
                for serial, waiter in waiting.get(message_id, {}).items():
                    if serial in stuck:
                        del stuck[serial]
                        reached.append(waiter)
        return stuck

    def overflow(self, sender_id: ParticipantId) -> IncomingPayload | None:
        """Return the oldest parked payload where the parking lot is above its bounds, else None.

        Args:
            sender_id: Whose payload was parked last: above its own bounds, its oldest goes.
        """
        config, sender = self.config, self.parked_of.get(sender_id)
        if sender is not None and (
            len(sender.payloads) > config.max_parked_messages_per_sender
            or sender.octets > config.max_parked_bytes_per_sender
        ):
            return next(iter(sender.payloads.values()))
        if (
            len(self.parked) > config.max_parked_messages
            or self.parked_octets > config.max_parked_bytes
        ):
            return next(iter(self.parked.values()))
        return None
