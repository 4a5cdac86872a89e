"""One participant: its machine while it is up, and the rows and the journal that outlive the machine.

It must not decide when its machine is called, nor carry out what needs a network.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence, for the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias

from benchmarks.simulation.journal import Journal, Step
from benchmarks.simulation.links import Link
from benchmarks.simulation.scenario import Crash, Moment
from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.events import MessageReceivedEvent, event_from_record
from reliable_channel.records import (
    Changes,
    ChannelRecord,
    EventRecord,
    Record,
    RecordKey,
)
from reliable_channel.types import ChannelId, Nanoseconds, ParticipantId

Rows: TypeAlias = dict[type[Record], dict[RecordKey, Record]]


@dataclass(slots=True, eq=False)
class ArmedCrash:
    """A crash that waits for its moment."""

    crash: Crash
    passes: int
    """Moments that it still lets pass."""


@dataclass(slots=True)
class Participant:
    """One participant: its machine while it is up, and what outlives the machine."""

    index: int
    sender_id: ParticipantId
    journal: Journal
    link: Link
    """On which its copies come."""
    node: Random
    """Draws what its node does."""
    offset_ns: Nanoseconds = 0
    """How far its clock is ahead."""
    machine: ChannelMachine | None = None
    rows: Rows = field(default_factory=dict)
    generation: int = 0
    """Starts so far; reports to an earlier one are lost."""
    node_free_ns: Nanoseconds = 0
    wake_ns: Nanoseconds | None = None
    torn: bool = False
    armed: list[ArmedCrash] = field(default_factory=list)
    committing: bool = False
    """A transaction is under way."""
    inputs: list[Callable[[Any], Effects]] = field(default_factory=list)
    """What has come since it began."""

    def __repr__(self) -> str:
        return f"<Participant {self.sender_id}>"

    def machine_of(self, generation: int) -> ChannelMachine | None:
        """Return the machine unless it is down, or not the one of that start any more."""
        return self.machine if self.generation == generation else None

    def found(self) -> dict[type[Record], list[Record]]:
        """Return the kept rows by type, as a store gives them, and those of the budget."""
        return {kind: list(table.values()) for kind, table in self.rows.items() if table}

    def channels(self) -> Iterator[ChannelRecord]:
        """Give the kept rows about the channel: one, or none before the first start."""
        for record in self.rows.get(ChannelRecord, {}).values():
            assert isinstance(record, ChannelRecord)
            yield record

    def keep_rows(self, changes: Changes) -> None:
        """Change the rows as a machine asks for."""
        for (kind, key), record in changes.items():
            table = self.rows.setdefault(kind, {})
            if record is None:
                table.pop(key, None)
            else:
                table[key] = record

    def deliveries(self, effects: Effects, now: Nanoseconds, cause: int = 0) -> list[Step]:
        """Return what the journal gets of the messages that effects deliver.

        Args:
            effects: What one input asks for.
            now: Virtual time.
            cause: What that input was, as a `Step` has it.
        """
        return [
            Step(
                message_id=event.message_id,
                sender_id=event.sender_id,
                payload=event.message,
                time_ns=now,
                ephemeral=event.ephemeral,
                late=event.late,
                cause=cause,
            )
            for event in effects.events
            if isinstance(event, MessageReceivedEvent)
        ]

    def read_on(self, channel_id: ChannelId) -> None:
        """Let the application read the kept events that follow the last one it has taken."""
        shown = self.journal.shown
        kept = self.rows.get(EventRecord, {})
        sequence = shown[-1].sequence + 1 if shown else 1
        while (record := kept.get((sequence,))) is not None:
            assert isinstance(record, EventRecord)
            shown.append(event_from_record(channel_id, record))
            sequence += 1

    def fatal(self, moment: Moment) -> Crash | None:
        """Return the armed crash that this moment brings, if any; it is armed no longer."""
        for item in self.armed:
            if item.crash.moment != moment:
                continue
            if not item.passes:
                self.armed.remove(item)
                return item.crash
            item.passes -= 1
        return None
