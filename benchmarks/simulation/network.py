"""Everything between one machine's ``Publish`` and another's ``receive``: nodes, links and the store.

::

    publish ─► node ─► link of each receiver ─► arrive
                │ └──► store ─► query, since
                └► report

What goes wrong is drawn from the stream of whom it befalls, so that what one receiver misses does not depend on who
else is there. It must not look into messages, and calls no machine.

Spec: 14/WAKU2-MESSAGE and 13/STORE, in outline; MESSAGING-API for the outcomes that are reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from benchmarks.simulation.journal import Charge
from benchmarks.simulation.participant import Participant
from benchmarks.simulation.scenario import START_NS, Scenario
from benchmarks.simulation.schedule import Schedule
from reliable_channel.core.effects import Publish
from reliable_channel.types import MS, Nanoseconds, RequestId

Kind: TypeAlias = Literal["segment", "sync", "repair"]
"""Of a transmission: a data or parity segment from its sender, a sync message, the answer to a repair request."""


class Transmission(NamedTuple):
    """One message that a node gave to the network."""

    number: int
    """From 1, over all participants; its transport hash is made of it."""
    sender: int
    segment_id: RequestId
    data: bytes
    message_hash: bytes
    ephemeral: bool
    time_ns: Nanoseconds

    @property
    def kind(self) -> Kind:
        """What it is, by the name that its machine gave it: ``sync:1``, ``repair:1``, or a request's id and ``:1``."""
        if self.segment_id.startswith("sync:"):
            return "sync"
        if self.segment_id.startswith("repair:"):
            return "repair"
        return "segment"


class StoredMessage(NamedTuple):
    """What the network's store has of a transmission."""

    sent_ns: Nanoseconds
    visible_ns: Nanoseconds
    """From then on it can be found."""
    data: bytes


LinkFilter: TypeAlias = Callable[[Transmission, int], bool]
"""Says whether the network carries a transmission to the participant with this index."""

Refusal: TypeAlias = Callable[[Publish, int], bool | None]
"""What the node of a participant says to a publication: None takes it, True fails it for now, False for good."""

Arrival: TypeAlias = Callable[[Participant, Transmission], None]
"""Is told of each copy that arrives."""

Outcome: TypeAlias = bool | Literal["expired"] | None
"""As of a `Refusal`, or that the epoch was over in which the message was counted."""

Report: TypeAlias = Callable[[Participant, int, Transmission, Outcome], None]
"""Is told what a node said: to whom, in which of its starts, about what."""


class Network:
    """The nodes of all participants, the links between them, and the store.

    Args:
        scenario: What goes wrong.
        schedule: Where it takes its time.
        participants: Who is connected, by index.
        draws: Decides what the store does.
        counters: Where failures and queries are counted.
        wire: Takes every transmission that reaches the network; None keeps none.
        carries: Asked for each copy besides the scenario's partitions; None carries all.
        refusal: Asked for each publication besides the scenario's faults; None takes all.
        arrive: Told of each copy that arrives.
        report: Told of each outcome.

    Attributes:
        began_ns: From when on the times of the scenario's partitions count; None while nobody is cut off.
    """

    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        participants: Sequence[Participant],
        draws: Random,
        counters: Counter[str],
        *,
        wire: list[Transmission] | None,
        carries: LinkFilter | None,
        refusal: Refusal | None,
        arrive: Arrival,
        report: Report,
    ) -> None:
        self.scenario = scenario
        self.schedule = schedule
        self.participants = participants
        self.draws = draws
        self.counters = counters
        self.wire = wire
        self.carries = carries
        self.refusal = refusal
        self.arrive = arrive
        self.report = report
        self.transmissions = 0
        self.began_ns: Nanoseconds | None = START_NS
        self.charges: list[Charge] = []
        self.charge_of: dict[int, int] = {}
        self.stored: dict[bytes, StoredMessage] = {}

    # -- nodes ------------------------------------------------------------------------------------

    def publish(self, who: Participant, publish: Publish) -> None:
        """Hand a message to the node, which transmits one after the other."""
        now = self.schedule.now
        who.node_free_ns = max(now, who.node_free_ns) + int(self.scenario.node.transmit_ms * MS)
        if who.node_free_ns <= now:
            self._transmit(who, who.generation, publish)
        else:
            again = partial(self._transmit_later, who, who.generation, publish)
            self.schedule.at(who.node_free_ns, again)

    def _transmit_later(self, who: Participant, generation: int, publish: Publish) -> None:
        if who.machine_of(generation) is not None:
            self._transmit(who, generation, publish)

    def _transmit(self, who: Participant, generation: int, publish: Publish) -> None:
        """Give a message to the network, unless the node fails, and report the outcome in time."""
        faults, now = self.scenario.node, self.schedule.now
        outcome: Outcome = self._node_outcome(who, publish)
        if 0 < publish.expires_ns <= now + who.offset_ns:
            outcome = "expired"
        self.transmissions += 1
        transmission = Transmission(
            number=self.transmissions,
            sender=who.index,
            segment_id=publish.segment_id,
            data=publish.data,
            message_hash=self.transmissions.to_bytes(32, "big"),
            ephemeral=publish.ephemeral,
            time_ns=now,
        )
        in_doubt = outcome is True and who.node.random() < faults.false_failure
        delay_ms = faults.report_ms + who.node.random() * faults.report_jitter_ms
        made_ns = now
        if faults.late_ms:
            made_ns += int(who.node.random() * faults.late_ms * MS)
        if outcome is None or in_doubt:
            # From here on it is the node's: it goes out whatever becomes of the process.
            if made_ns > now:
                self.schedule.at(made_ns, partial(self._make, who, generation, transmission, now))
            else:
                self._make(who, generation, transmission, now)
        else:
            self.counters["publish_failures"] += 1
        told = partial(self.report, who, generation, transmission, outcome)
        self.schedule.at(made_ns + int(delay_ms * MS), told)

    def _make(
        self, who: Participant, generation: int, transmission: Transmission, taken_ns: Nanoseconds
    ) -> None:
        """Give a message that the node has taken to the network, and count it."""
        self._broadcast(transmission)
        if who.machine_of(generation) is None:
            self.counters["made_after_death"] += 1
        if self.scenario.rate_limit.enabled:
            made_ns = self.schedule.now + who.offset_ns
            self.charge_of[transmission.number] = len(self.charges)
            charge = Charge(who.sender_id, taken_ns + who.offset_ns, made_ns, made_ns)
            self.charges.append(charge)

    def charge_again(self, transmission: Transmission, reported_ns: Nanoseconds) -> None:
        """Note when a transmission was reported, by its sender's clock, and the report was kept."""
        place = self.charge_of.get(transmission.number)
        if place is not None:
            self.charges[place] = self.charges[place]._replace(reported_ns=reported_ns)

    def _node_outcome(self, who: Participant, publish: Publish) -> bool | None:
        """Draw what the node says: None takes the message, True fails it for now, False for good."""
        faults, draw = self.scenario.node, who.node.random()
        if self.refusal is not None and (said := self.refusal(publish, who.index)) is not None:
            return said
        if draw < faults.rejection:
            return False
        if draw < faults.rejection + faults.failure + faults.false_failure:
            return True
        return None

    # -- links ------------------------------------------------------------------------------------

    def _broadcast(self, transmission: Transmission) -> None:
        """Put a copy on its way to each participant, and one into the store."""
        if self.wire is not None:
            self.wire.append(transmission)
        now, is_sync = self.schedule.now, transmission.kind == "sync"
        filtered = bool(self.scenario.partitions) or self.carries is not None
        for receiver in self.participants:
            if receiver.index == transmission.sender:
                delays = [0] if receiver.node.random() < self.scenario.node.echo else []
            else:
                delays = receiver.link.copies(now, is_sync=is_sync)
                if filtered and not self._is_carried(transmission, receiver.index):
                    delays = []
            for delay in delays:
                self.schedule.at(now + delay, partial(self.arrive, receiver, transmission))
        self._store(transmission)

    def _is_carried(self, transmission: Transmission, receiver: int) -> bool:
        elapsed_ms = (self.schedule.now - (self.began_ns or 0)) / MS
        for cut in self.scenario.partitions if self.began_ns is not None else ():
            apart = (transmission.sender in cut.side) != (receiver in cut.side)
            if apart and cut.from_ms <= elapsed_ms < cut.until_ms:
                return False
        return self.carries is None or self.carries(transmission, receiver)

    # -- store ------------------------------------------------------------------------------------

    def _store(self, transmission: Transmission) -> None:
        store, now = self.scenario.store, self.schedule.now
        lost = self.draws.random() < store.loss
        if store.enabled and not transmission.ephemeral and not lost:
            stored = StoredMessage(now, now + int(store.lag_ms * MS), transmission.data)
            self.stored[transmission.message_hash] = stored

    def query(self, hashes: Sequence[bytes]) -> list[tuple[bytes, bytes]] | None:
        """Return what the store can be asked for now; None where the query fails."""
        self.counters["fetches"] += 1
        found = [
            (message_hash, stored.data)
            for message_hash in hashes
            if (stored := self.stored.get(message_hash)) and stored.visible_ns <= self.schedule.now
        ]
        failed = self.draws.random() < self.scenario.store.failure
        return None if failed else found

    def since(self, time_ns: Nanoseconds) -> Iterator[tuple[bytes, bytes]]:
        """Give what was transmitted from a time on and can be looked up now."""
        for message_hash, stored in self.stored.items():
            if stored.sent_ns >= time_ns and stored.visible_ns <= self.schedule.now:
                yield message_hash, stored.data
