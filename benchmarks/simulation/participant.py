"""One participant: its machine while it is up, and the rows and the journal that outlive the machine.

It must not decide when its machine is called, nor carry out what needs a network.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence, for the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from benchmarks.simulation.journal import Journal, Step
from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.events import MessageReceivedEvent
from reliable_channel.records import ChannelRecord, LedgerRecord, Record, RecordKey
from reliable_channel.types import Nanoseconds, ParticipantId

Rows: TypeAlias = dict[type[Record], dict[RecordKey, Record]]


@dataclass(slots=True)
class Participant:
    """One participant: its machine while it is up, and what outlives the machine."""

    index: int
    sender_id: ParticipantId
    journal: Journal
    link: Random
    """Draws what becomes of its copies."""
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

    def __repr__(self) -> str:
        return f"<Participant {self.sender_id}>"

    def machine_of(self, generation: int) -> ChannelMachine | None:
        """Return the machine unless it is down, or not the one of that start any more."""
        return self.machine if self.generation == generation else None

    def ledger(self) -> LedgerRecord | None:
        """Return the kept ledger of the epoch budget."""
        for record in self.rows.get(LedgerRecord, {}).values():
            assert isinstance(record, LedgerRecord)
            return record
        return None

    def channels(self) -> Iterator[ChannelRecord]:
        """Give the kept rows about the channel: one, or none before the first start."""
        for record in self.rows.get(ChannelRecord, {}).values():
            assert isinstance(record, ChannelRecord)
            yield record

    def keep_rows(self, effects: Effects) -> None:
        """Change the rows as a machine asks for."""
        for (kind, key), record in effects.changes.items():
            table = self.rows.setdefault(kind, {})
            if record is None:
                table.pop(key, None)
            else:
                table[key] = record

    def keep_events(self, effects: Effects, now: Nanoseconds) -> None:
        """Write down what the application is told, or will be when it is up again.

        Durable events are kept with their effects: an application that was down reads them later.
        """
        for event in effects.events:
            if event.sequence:
                self.journal.events.append(event)
            if isinstance(event, MessageReceivedEvent):
                step = Step(
                    message_id=event.message_id,
                    sender_id=event.sender_id,
                    payload=event.message,
                    time_ns=now,
                    ephemeral=event.ephemeral,
                    late=event.late,
                )
                self.journal.steps.append(step)
