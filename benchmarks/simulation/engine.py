"""A group of real channel machines on a lossy network, in virtual time: a whole conversation in a fraction of a second.

::

    workload ─► send ─► machine ─► persist ─► node ─► network ─► receive ─► machine ─► …
                           ▲          │         │        └─► store ─► fetched
                           └ snapshot ┘         └─► published / publish_failed

A `Scenario` is data and says everything: who takes part, what the network, the nodes and the store do wrong, when
somebody joins, restarts or is cut off. `Simulation` is driven by ``workload``, which plays it, or step by step. The
same scenario gives the same trace, byte for byte: every draw comes from a stream of its own, named by seed and purpose,
so that another workload does not change the faults and another machine does not change the workload.

It must not sleep, read a clock or run concurrently. Encryption and segment sizes of a real node are not
simulated; machines see the bytes that other machines published.

Spec: RELIABLE-CHANNEL-API; docs/design.md for the order in which effects are carried out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Final

from benchmarks.simulation.breakage import START_DAMAGE
from benchmarks.simulation.driver import Batch, Driver, Input
from benchmarks.simulation.invariants import (
    InvariantError,
    problems_of,
)
from benchmarks.simulation.journal import FROM_STORE, Charge, Journal, Step
from benchmarks.simulation.links import Link
from benchmarks.simulation.network import LinkFilter, Network, Outcome, Refusal, Transmission
from benchmarks.simulation.participant import ArmedCrash, Participant
from benchmarks.simulation.scenario import START_NS, Crash, Scenario
from benchmarks.simulation.schedule import Schedule
from benchmarks.simulation.settling import Settling
from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine, ChannelStatus
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter
from reliable_channel.events import ChannelEvent
from reliable_channel.records import LedgerRecord, rows_of
from reliable_channel.types import MS, SECOND, Nanoseconds, RequestId

CHANNEL_ID: Final = "simulation"
"""Of the one channel that everybody opens."""

CONTENT_TOPIC: Final = "/simulation/1/group/proto"

CATCH_UP_MARGIN_NS: Final = 5 * SECOND
"""After a restart the store is asked from this long before the last message seen, as the driver does."""

SETTLE_STEP_MS: Final = 250.0
"""How often `Simulation.settle` looks whether there is anything left to do, milliseconds of virtual time."""


class Simulation:
    """A group in virtual time.

    ``workload.play`` runs a whole scenario. To script one instead: ``start``, then ``send``, ``after``, ``run``,
    ``settle``.

    Args:
        scenario: What to play.
        trace: Takes a line for every input and effect; None writes none.
        wire: Takes every transmission that reaches the network; None keeps none.
        carries: Asked for each copy besides the scenario's partitions; None carries all.
        refusal: Asked for each publication besides the scenario's faults; None takes all.
        on_event: The application of all participants: told of each event after its effects are carried out.
        streams: Gives the random stream of a purpose; None derives it from the scenario's seed.
        keeps_rows: Rows are kept also where the scenario starts nobody again: ``problems`` looks at them.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        trace: list[bytes] | None = None,
        wire: list[Transmission] | None = None,
        carries: LinkFilter | None = None,
        refusal: Refusal | None = None,
        on_event: Callable[[int, ChannelEvent], None] | None = None,
        streams: Callable[[str], Random] | None = None,
        keeps_rows: bool = True,
    ) -> None:
        self.scenario = scenario
        self.streams = streams
        self.trace = trace
        self.wire = wire
        self.on_event = on_event
        self.counters: Counter[str] = Counter()
        self.schedule = Schedule()
        self.participants = [self._participant(index) for index in range(scenario.participants)]
        self.settling = Settling(self.schedule, self.participants, excused=scenario.is_excused)
        self.network = Network(
            scenario,
            self.schedule,
            self.participants,
            self.stream("store"),
            self.counters,
            wire=wire,
            carries=carries,
            refusal=refusal,
            arrive=self._arrive,
            report=self._report,
        )
        self.driver = Driver(
            scenario,
            self.schedule,
            self.network,
            fetch=self._fetch,
            wake=self._schedule,
            due=self._due,
            die=self._die,
            note=self._note,
            show=self._show,
        )
        self.driver.traces = trace is not None
        self.driver.keeps_rows = keeps_rows or scenario.starts_again

    def stream(self, purpose: str) -> Random:
        """Return a random stream that depends on nothing but the seed and its purpose."""
        if self.streams is not None:
            return self.streams(purpose)
        return Random(f"{self.scenario.seed}/{purpose}")

    def _participant(self, index: int) -> Participant:
        sender_id = f"p{index}"
        skew = self.stream(f"clock/{index}").uniform(-1, 1) * self.scenario.clock_skew_ms
        return Participant(
            index=index,
            sender_id=sender_id,
            journal=Journal(sender_id=sender_id, is_live=False),
            link=Link(self.scenario, index, self.stream),
            node=self.stream(f"node/{index}"),
            offset_ns=int(skew * MS),
        )

    @property
    def carries(self) -> LinkFilter | None:
        """Asked for each copy besides the scenario's partitions; None carries all."""
        return self.network.carries

    @carries.setter
    def carries(self, carries: LinkFilter | None) -> None:
        self.network.carries = carries

    @property
    def refusal(self) -> Refusal | None:
        """Asked for each publication besides the scenario's faults; None takes all."""
        return self.network.refusal

    @refusal.setter
    def refusal(self, refusal: Refusal | None) -> None:
        self.network.refusal = refusal

    @property
    def transmissions(self) -> int:
        """How many messages the nodes were given."""
        return self.network.transmissions

    @property
    def charges(self) -> list[Charge]:
        """What counts against the epoch budgets."""
        return self.network.charges

    # -- time -------------------------------------------------------------------------------------

    @property
    def now(self) -> Nanoseconds:
        """Virtual Unix time."""
        return self.schedule.now

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do something later; 0 does it next."""
        self.schedule.at(self.now + int(delay_ms * MS), action)

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        self.schedule.run(duration_ms)

    def settle(self, limit_ms: float | None = None) -> bool:
        """Let time pass until nothing is left to do; say whether that was within the limit.

        Args:
            limit_ms: Longest time, the scenario's ``settle_ms`` when None.
        """
        limit = self.scenario.settle_ms if limit_ms is None else limit_ms
        end = self.now + int(limit * MS)
        while not self.is_settled():
            if self.now >= end:
                return False
            self.schedule.step(SETTLE_STEP_MS, end)
        return True

    def is_settled(self) -> bool:
        """Tell whether nothing is under way, every channel is quiet and everybody has everything."""
        return self.settling.is_over()

    # -- who is there -----------------------------------------------------------------------------

    @property
    def journals(self) -> list[Journal]:
        """The journals of all participants."""
        return [participant.journal for participant in self.participants]

    def machine(self, index: int) -> ChannelMachine:
        """Return the machine of a participant that is up."""
        machine = self.participants[index].machine
        assert machine is not None, f"p{index} is down"
        return machine

    def statuses(self) -> list[ChannelStatus]:
        """Return the status of every channel that is up."""
        return [item.machine.status() for item in self.participants if item.machine is not None]

    def counted(self, name: str) -> int:
        """Return the sum of a counter over the channels that are up."""
        return sum(status.counters.get(name, 0) for status in self.statuses())

    def start(self, *indexes: int) -> None:
        """Open the channel at participants, at all when none is named; kept rows are gone on from."""
        for index in indexes or range(len(self.participants)):
            self._start(self.participants[index])

    def _start(self, who: Participant) -> None:
        scenario, now = self.scenario, self.now + who.offset_ns
        found = who.found()
        if (damage := START_DAMAGE.get(scenario.broken)) is not None:
            found = damage(found, who.sender_id)
        ledger = next((row for row in rows_of(found, LedgerRecord)), None)
        limiter = EpochRateLimiter(scenario.rate_limit, restored=ledger)
        who.generation += 1
        who.machine = machine = ChannelMachine(
            channel_id=CHANNEL_ID,
            sender_id=who.sender_id,
            content_topic=CONTENT_TOPIC,
            now=now,
            seed=self.stream(f"protocol/{who.index}/{who.generation}").getrandbits(64),
            sds=scenario.sds,
            segmentation=scenario.segmentation,
            budget=ChannelBudget(limiter, None, CHANNEL_ID),
            snapshot=found,
        )
        who.node_free_ns = self.now
        who.wake_ns = None
        who.torn = False
        who.read_on(CHANNEL_ID)
        effects = Effects()
        if who.generation == 1:
            who.journal.joined_ns = self.now
        elif scenario.store.catch_up and scenario.store.enabled:
            effects.merge(self._catch_up(who, machine, now))
        who.journal.is_live = True
        if who.generation == 1 or scenario.broken != "never_start_again":
            effects.merge(machine.start(now))
        self._note(who, "start", b"")
        self.driver.give(who, partial(self._take_start, effects))

    def _take_start(self, effects: Effects, batch: Batch) -> Effects:
        batch.cause = FROM_STORE  # nothing else brings messages before a start
        return effects

    def _catch_up(self, who: Participant, machine: ChannelMachine, now: Nanoseconds) -> Effects:
        """Take what the store has since the last message seen, as the driver does before it starts."""
        effects = Effects()
        for record in who.channels():
            last_ns = record.last_seen_ns or record.created_ns
            since = last_ns - who.offset_ns - CATCH_UP_MARGIN_NS
            for message_hash, data in self.network.since(since):
                self._note(who, "catch up", data)
                effects.merge(machine.receive(data, message_hash, now, from_store=True))
        return effects

    def crash(self, index: int) -> None:
        """Let a participant vanish at once: what its node has not transmitted is lost, the kept rows stay."""
        who = self.participants[index]
        who.machine = None
        who.committing = False
        who.inputs.clear()
        who.journal.is_live = False
        self._note(who, "crash", b"")

    def tear(self, index: int) -> None:
        """Let a participant crash with its next effects, after they are kept and before they are carried out."""
        self.participants[index].torn = True

    def arm(self, crash: Crash) -> None:
        """Let a participant crash at a moment of its work; at once, it does so only if it is up."""
        who = self.participants[crash.participant]
        if crash.moment != "now":
            who.armed.append(ArmedCrash(crash, crash.passes))
        elif who.machine is not None:
            self._die(who, crash)

    def _die(self, who: Participant, crash: Crash | None) -> None:
        """Crash, and start again later where the crash says when."""
        self.crash(who.index)
        if crash is not None:
            self.counters[f"crashes_{crash.moment}"] += 1
            self.after(crash.down_ms, partial(self._revive, who, crash))

    def _revive(self, who: Participant, crash: Crash) -> None:
        if who.machine is None:
            who.offset_ns += int(crash.clock_ms * MS)
            self._start(who)

    # -- inputs -----------------------------------------------------------------------------------

    def send(
        self, index: int, payload: bytes, *, ephemeral: bool = False, key: str | None = None
    ) -> RequestId:
        """Send a payload and carry the effects out.

        Returns:
            The request's id; empty where it has to wait for the transaction that is under way.
        """
        who = self.participants[index]
        self.machine(index)
        return self.driver.give(who, partial(self._send, who, payload, ephemeral, key)).request_id

    def _send(
        self, who: Participant, payload: bytes, ephemeral: bool, key: str | None, batch: Batch
    ) -> Effects:
        machine = self.machine(who.index)
        is_repeat = machine.knows_key(key)
        request_id, effects = machine.send(
            payload, self.now + who.offset_ns, ephemeral=ephemeral, idempotency_key=key
        )
        batch.request_id = request_id
        if is_repeat:
            self.counters["repeats"] += 1
            return effects
        segments = machine.outgoing.book.requests[request_id].segments
        step = Step(
            message_id=segments[0].message_id,
            sender_id=who.sender_id,
            payload=payload,
            time_ns=self.now,
            ephemeral=ephemeral,
            request_id=request_id,
            segments=tuple(segment.message_id for segment in segments),
            wrap_ns=machine.state.last_wrap_ns,
            key=key or "",
        )
        batch.steps.append(step)
        self._note(who, "send", payload)
        return effects

    def inject(self, index: int, data: bytes, message_hash: bytes | None = None) -> None:
        """Let a participant receive bytes from nowhere."""
        who = self.participants[index]
        self.driver.give(who, partial(self._receive, who, data, message_hash, 0))

    def _receive(
        self, who: Participant, data: bytes, message_hash: bytes | None, number: int, batch: Batch
    ) -> Effects:
        self._note(who, "receive", data)
        batch.cause = number
        return self.machine(who.index).receive(
            data, message_hash, self.schedule.now + who.offset_ns
        )

    def _wake(self, who: Participant, generation: int) -> None:
        if who.machine_of(generation) is None or who.wake_ns != self.now:
            return
        who.wake_ns = None
        if not who.committing:  # else the next batch takes it along
            self.driver.give(who, partial(self._tick, who))

    def _tick(self, who: Participant, _: Batch) -> Effects:
        self._note(who, "tick", b"")
        return self.machine(who.index).tick(self.now + who.offset_ns)

    def _due(self, who: Participant) -> Input | None:
        """Return a tick where a deadline has come."""
        deadline = self.machine(who.index).next_deadline()
        if deadline is None or deadline > self.now + who.offset_ns:
            return None
        return partial(self._tick, who)

    def _arrive(self, who: Participant, transmission: Transmission) -> None:
        if who.machine is None:
            return
        self.counters["copies_received"] += 1
        message_hash = None if transmission.ephemeral else transmission.message_hash
        item = partial(self._receive, who, transmission.data, message_hash, transmission.number)
        self.driver.give(who, item)

    def _report(
        self, who: Participant, generation: int, transmission: Transmission, outcome: Outcome
    ) -> None:
        """Tell a machine what became of a publication; None: it was published."""
        if who.machine_of(generation) is not None:
            self.driver.give(who, partial(self._take_report, who, transmission, outcome))

    def _take_report(
        self, who: Participant, transmission: Transmission, outcome: Outcome, batch: Batch
    ) -> Effects:
        machine, now = self.machine(who.index), self.schedule.now + who.offset_ns
        segment_id = transmission.segment_id
        batch.reports.append((transmission, now))
        if outcome is None:
            self._note(who, "published", segment_id.encode())
            return machine.published(segment_id, transmission.message_hash, now)
        if outcome == "expired":
            self._note(who, "expired", segment_id.encode())
            return machine.expired(segment_id, now)
        self._note(who, f"failed {outcome}", segment_id.encode())
        return machine.publish_failed(segment_id, "the node failed", now, retryable=outcome)

    def _answer(
        self, who: Participant, generation: int, found: list[tuple[bytes, bytes]] | None
    ) -> None:
        """Give a machine the answer of the store; None: it could not be asked."""
        if who.machine_of(generation) is not None:
            self.driver.give(who, partial(self._take_answer, who, found))

    def _take_answer(
        self, who: Participant, found: list[tuple[bytes, bytes]] | None, batch: Batch
    ) -> Effects:
        machine, now = self.machine(who.index), self.schedule.now + who.offset_ns
        if found is None:
            self._note(who, "fetch failed", b"")
            return machine.fetch_failed(now)
        batch.cause = FROM_STORE
        if self.trace is not None:
            self._note(who, "fetched", b"".join(data for _, data in found))
        return machine.fetched(found, now)

    # -- effects ----------------------------------------------------------------------------------

    def _show(self, who: Participant, event: ChannelEvent) -> None:
        if self.on_event is not None:
            self.on_event(who.index, event)

    def _schedule(self, who: Participant) -> None:
        """See to it that the machine is woken at its deadline."""
        deadline = who.machine.next_deadline() if who.machine is not None else None
        if deadline is None:
            return
        wake_ns = max(self.schedule.now, deadline - who.offset_ns)
        if who.wake_ns is None or wake_ns < who.wake_ns:
            who.wake_ns = wake_ns
            self.schedule.wake(wake_ns, partial(self._wake, who, who.generation))

    def _fetch(self, who: Participant, hashes: Sequence[bytes]) -> None:
        """Ask the store; what it can be asked for now is in its answer."""
        self._note(who, "fetch", b"".join(hashes))
        found = self.network.query(hashes)
        answered_ns = self.now + int(self.scenario.store.answer_ms * MS)
        self.schedule.at(answered_ns, partial(self._answer, who, who.generation, found))

    def _note(self, who: Participant, what: str, data: bytes) -> None:
        """Write a line of the trace."""
        if self.trace is not None:
            digest = blake2b(data, digest_size=16).hexdigest()
            line = f"{self.now - START_NS} {who.sender_id} {what} {len(data)} {digest}"
            self.trace.append(line.encode())

    # -- what must hold ---------------------------------------------------------------------------

    def problems(self) -> dict[str, list[str]]:
        """Return what the run broke, by the name of what must hold; empty when all is well."""
        return problems_of(self.scenario, self.participants, self.charges)

    def check(self, *, besides: Collection[str] = ()) -> Simulation:
        """Raise unless everything holds that must.

        Args:
            besides: Names of what need not hold here: ``delivery``, ``order``, ``requests``, ``sequence``, ``shown``,
                ``wraps``, ``acknowledged``, ``quiet``, ``rows``, ``budget``.

        Raises:
            InvariantError: With the seed, and the command that plays the scenario again.
        """
        found = {name: texts for name, texts in self.problems().items() if name not in besides}
        if found:
            raise InvariantError(self.scenario, found)
        return self
