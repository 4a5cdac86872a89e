"""Collects the effects of one input while the parts of the machine work.

The parts of the core share one outbox: each writes the rows it owns and the events it decides. It must not decide
anything itself.
"""

from __future__ import annotations

from collections import Counter

from reliable_channel.core.effects import Effects, Fetch, Publish
from reliable_channel.events import ChannelEvent, MessageProgressEvent, event_to_record
from reliable_channel.records import KEY_READERS, Record, RecordKey


class Outbox:
    """Effects being collected, and the counters of everything that happened.

    Args:
        last_sequence: Sequence of the last durable event of the channel.
    """

    def __init__(self, last_sequence: int = 0) -> None:
        self.effects = Effects()
        self.last_sequence = last_sequence
        self.counters: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.replaced: set[tuple[type[Record], RecordKey]] = set()

    def take(self) -> Effects:
        """Return what was collected and begin anew."""
        effects, self.effects = self.effects, Effects()
        if self.replaced:
            self.replaced.clear()
        return effects

    def put(self, record: Record) -> None:
        """Write a row, whole."""
        kind = type(record)
        self.effects.changes[kind, KEY_READERS[kind](record)] = record

    def put_at(self, key: RecordKey, record: Record) -> None:
        """Write a row whose key the caller has at hand."""
        self.effects.changes[type(record), key] = record

    def reserve(self, kind: type[Record], *key: str | int | bytes) -> None:
        """Give a row its place among the changes; whoever does so writes it before the input ends."""
        self.effects.changes[kind, key] = None

    def delete(self, kind: type[Record], *key: str | int | bytes) -> None:
        """Delete a row; harmless when there is none."""
        self.effects.changes[kind, key] = None

    def discard(self, kind: type[Record], *key: str | int | bytes) -> None:
        """Delete a row that is written only once: what this input wrote is simply not written."""
        if self.effects.changes.pop((kind, key), None) is None or (kind, key) in self.replaced:
            self.effects.changes[kind, key] = None

    def replace(self, kind: type[Record], *key: str | int | bytes) -> None:
        """Delete a row in whose place this input may write, and discard, another one."""
        self.delete(kind, *key)
        self.replaced.add((kind, key))

    def publish(self, publish: Publish) -> None:
        """Have bytes published."""
        self.effects.publishes.append(publish)

    def fetch(self, hashes: tuple[bytes, ...]) -> None:
        """Have the store asked."""
        self.effects.fetches.append(Fetch(hashes))

    def emit(self, event: ChannelEvent) -> None:
        """Give a durable event its place in the log, store it and show it; a live one is only shown.

        Args:
            event: Just made: nobody else has it yet.
        """
        if not isinstance(event, MessageProgressEvent):
            self.last_sequence += 1
            # In place, since nobody has seen it: a copy takes longer than everything else here.
            object.__setattr__(event, "sequence", self.last_sequence)
            self.put_at((self.last_sequence,), event_to_record(event))
        self.effects.events.append(event)

    def count(self, name: str, amount: int = 1) -> None:
        """Count something that happened."""
        self.counters[name] += amount

    def drop(self, reason: str) -> None:
        """Count something from the network that was refused."""
        self.dropped[reason] += 1
