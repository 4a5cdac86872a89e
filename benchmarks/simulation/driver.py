"""Carries out what a machine asks for, as the real driver does, and lets the process die on the way.

::

    inputs ─► one batch ─► before ─► persist ─► publish ─► fetch ─► show ─► next batch
                             ✕       ✕      ✕      ✕         ✕        ✕

Where transactions take time, inputs that come meanwhile share the next one. It must not decide which moment is fatal
(``scenario``), judge what came of it (``invariants``), nor know what the network does.

Spec: docs/design.md, the contract of the core: persist, publish, fetch, emit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from benchmarks.simulation.breakage import WRITE_DAMAGE
from benchmarks.simulation.journal import Step
from benchmarks.simulation.network import Network, Transmission
from benchmarks.simulation.participant import Participant
from benchmarks.simulation.scenario import Crash, Moment, Scenario
from benchmarks.simulation.schedule import Schedule
from reliable_channel.core.effects import Effects
from reliable_channel.events import ChannelEvent
from reliable_channel.records import Changes, LedgerRecord
from reliable_channel.types import MS, Nanoseconds, RequestId

NOTHING: Final = Effects()
"""What a batch asks for before it has an input; nobody adds to it."""


@dataclass(slots=True, eq=False)
class Batch:
    """Inputs that share a transaction."""

    effects: Effects = field(default_factory=lambda: NOTHING)
    steps: list[Step] = field(default_factory=list)
    """What the journal gets when the batch is kept, in the order of the inputs."""
    events_ns: list[Nanoseconds] = field(default_factory=list)
    """When the input came that brought each event that has a sequence."""
    reports: list[tuple[Transmission, Nanoseconds]] = field(default_factory=list)
    """What the node has reported, and when."""
    request_id: RequestId = ""
    """Of the last ``send`` among the inputs."""
    cause: int = 0
    """Of the last input, as a `Step` has it."""


class ProcessDied(Exception):
    """The process died at a moment of its work.

    Args:
        crash: The armed crash that this moment brought; None for the torn one.
    """

    def __init__(self, crash: Crash | None) -> None:
        self.crash = crash
        super().__init__()


Input: TypeAlias = Callable[[Batch], Effects]
"""Gives a machine one input; what it asks for is added to the batch by the caller."""


class Driver:
    """Between the machines and everything else.

    Args:
        scenario: How long a transaction takes, and what is broken.
        schedule: Where it takes its time.
        network: Takes publications.
        fetch: Asks the store.
        wake: Sees to it that a machine is woken at its deadline.
        due: Returns the input of a deadline that has come, or None.
        die: Ends a process by an armed crash.
        note: Writes a line of the trace.
        show: Tells the application of an event.

    Attributes:
        traces: Somebody takes the lines of the trace.
        keeps_rows: Rows are kept; without them nobody can be started again, and nothing be said about them.
    """

    def __init__(
        self,
        scenario: Scenario,
        schedule: Schedule,
        network: Network,
        *,
        fetch: Callable[[Participant, tuple[bytes, ...]], None],
        wake: Callable[[Participant], None],
        due: Callable[[Participant], Input | None],
        die: Callable[[Participant, Crash | None], None],
        note: Callable[[Participant, str, bytes], None],
        show: Callable[[Participant, ChannelEvent], None],
    ) -> None:
        self.scenario = scenario
        self.schedule = schedule
        self.network = network
        self.fetch = fetch
        self.wake = wake
        self.due = due
        self.die = die
        self.note = note
        self.show = show
        self.traces = False
        self.keeps_rows = True

    # -- inputs -----------------------------------------------------------------------------------

    def give(self, who: Participant, item: Input) -> Batch:
        """Give a machine an input now, or after the transaction that is under way.

        Returns:
            Its batch; an empty one where it has to wait.
        """
        batch = Batch()
        if who.committing:
            who.inputs.append(item)
            return batch
        self.apply(who, item, batch)
        self.commit(who, batch)
        return batch

    def apply(self, who: Participant, item: Input, batch: Batch) -> None:
        """Add an input to a batch."""
        batch.cause = 0
        effects = item(batch)
        if effects.events:
            batch.steps += who.deliveries(effects, self.schedule.now, batch.cause)
            numbered = sum(event.sequence > 0 for event in effects.events)
            batch.events_ns += [self.schedule.now] * numbered
        if batch.effects is NOTHING:
            batch.effects = effects
        else:
            batch.effects.merge(effects)

    def commit(self, who: Participant, batch: Batch) -> None:
        """Make a batch durable and carry it out, at once or when the transaction's time has passed."""
        duration_ns = int(self.scenario.commit_ms * MS)
        if not duration_ns or not batch.effects.changes:
            self.carry_out(who, batch)
            return
        who.committing = True
        later = partial(self.committed, who, who.generation, batch)
        self.schedule.at(self.schedule.now + duration_ns, later)

    def committed(self, who: Participant, generation: int, batch: Batch) -> None:
        """Go on after a transaction, with whatever has come meanwhile."""
        if who.machine_of(generation) is None:
            return
        who.committing = False
        self.carry_out(who, batch)
        if who.machine_of(generation) is None:
            return
        items, who.inputs = who.inputs, []
        due = self.due(who)
        if due is not None:
            items.append(due)
        if items:
            following = Batch()
            for item in items:
                self.apply(who, item, following)
            self.commit(who, following)

    # -- effects ----------------------------------------------------------------------------------

    def carry_out(self, who: Participant, batch: Batch) -> None:
        """Carry a batch out, up to the moment at which the process dies, if it does."""
        try:
            self.do_all(who, batch)
        except ProcessDied as death:
            self.die(who, death.crash)

    def survive(self, who: Participant, moment: Moment) -> None:
        """Go on after a moment of the work.

        Raises:
            ProcessDied: The process does not.
        """
        if who.torn and moment == "kept":
            raise ProcessDied(None)
        if who.armed and (crash := who.fatal(moment)) is not None:
            raise ProcessDied(crash)

    def do_all(self, who: Participant, batch: Batch) -> None:
        """Carry a batch out step by step; the process may die between any two."""
        broken = self.scenario.broken
        effects = batch.effects
        if broken == "publish_before_persist":
            self.publish(who, effects)
        if broken == "emit_before_persist":
            self.emit(who, effects)
        self.survive(who, "before")
        self.persist(who, batch)
        if effects.publishes and broken != "publish_before_persist":
            self.publish(who, effects)
        for fetch in effects.fetches:
            self.fetch(who, fetch.hashes)
        self.wake(who)
        self.survive(who, "fetched")
        if effects.events and broken != "emit_before_persist":
            self.emit(who, effects)
        self.survive(who, "end")

    def persist(self, who: Participant, batch: Batch) -> None:
        """Keep the rows, what the journal gets, and what the node has reported."""
        if self.keeps_rows:
            self.keep(who, batch.effects.changes)
        if batch.steps:
            who.journal.steps += batch.steps
        if batch.effects.events:
            who.journal.events += [event for event in batch.effects.events if event.sequence]
            who.journal.events_ns += batch.events_ns
        for transmission, reported_ns in batch.reports:
            self.network.charge_again(transmission, reported_ns)
        if self.traces:
            for (kind, key), record in batch.effects.changes.items():
                self.note(who, f"persist {kind.__name__}", repr((key, record)).encode())
        self.survive(who, "kept")

    def keep(self, who: Participant, changes: Changes) -> None:
        """Keep the rows: those of the budget in a transaction of their own, as where another store has them."""
        damage = WRITE_DAMAGE.get(self.scenario.broken)
        if damage is not None:
            changes = damage(changes, who.sender_id)
        if self.scenario.rate_limit.enabled:
            ledger = {key: row for key, row in changes.items() if key[0] is LedgerRecord}
            if ledger:
                who.keep_rows(ledger)
                self.survive(who, "within")
        who.keep_rows(changes)

    def publish(self, who: Participant, effects: Effects) -> None:
        """Give messages to the node, one after the other."""
        for publish in effects.publishes:
            if self.traces:
                self.note(who, f"publish {publish.segment_id} {publish.ephemeral}", publish.data)
            self.network.publish(who, publish)
            self.survive(who, "publish")

    def emit(self, who: Participant, effects: Effects) -> None:
        """Show events to the application, one after the other."""
        for event in effects.events:
            if self.traces:
                self.note(who, "emit", repr(event).encode())
            if event.sequence:
                who.journal.shown.append(event)
            self.show(who, event)
            self.survive(who, "event")
