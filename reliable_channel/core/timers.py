"""Deadlines by key, earliest first.

It must not read a clock: callers pass the time. Setting a key again replaces its deadline; entries that were
replaced or cancelled are skipped when they come up, and swept when they outnumber the live ones.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from reliable_channel.types import Nanoseconds

TimerKey: TypeAlias = tuple[str, str | int]
"""What the timer is for, and of which object."""


class Timers:
    """A set of named deadlines."""

    def __init__(self) -> None:
        self.deadlines: dict[TimerKey, Nanoseconds] = {}
        self.heap: list[tuple[Nanoseconds, int, TimerKey]] = []
        self.order = 0

    def __len__(self) -> int:
        return len(self.deadlines)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self.deadlines

    def deadline(self, key: TimerKey) -> Nanoseconds | None:
        """Return when the timer ends, or None when it does not run."""
        return self.deadlines.get(key)

    def set(self, key: TimerKey, deadline: Nanoseconds) -> None:
        """Let the timer end at a time, also when it runs already."""
        if self.deadlines.get(key) == deadline:
            return
        self.deadlines[key] = deadline
        self.order += 1
        heapq.heappush(self.heap, (deadline, self.order, key))
        if len(self.heap) > 2 * len(self.deadlines) + 64:
            self.sweep()

    def set_earlier(self, key: TimerKey, deadline: Nanoseconds) -> None:
        """Let the timer end at a time unless it ends earlier already."""
        current = self.deadlines.get(key)
        if current is None or deadline < current:
            self.set(key, deadline)

    def cancel(self, key: TimerKey) -> None:
        """Stop the timer; harmless when it does not run."""
        self.deadlines.pop(key, None)

    def next_deadline(self) -> Nanoseconds | None:
        """Return the earliest deadline, or None when no timer runs."""
        self.skip_stale()
        return self.heap[0][0] if self.heap else None

    def pop_due(self, now: Nanoseconds) -> TimerKey | None:
        """Remove and return the earliest timer that has ended, or None."""
        self.skip_stale()
        if not self.heap or self.heap[0][0] > now:
            return None
        key = heapq.heappop(self.heap)[2]
        del self.deadlines[key]
        return key

    def skip_stale(self) -> None:
        """Drop replaced and cancelled entries from the front."""
        heap, deadlines = self.heap, self.deadlines
        while heap and deadlines.get(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)

    def sweep(self) -> None:
        """Drop all replaced and cancelled entries."""
        live: dict[TimerKey, tuple[Nanoseconds, int, TimerKey]] = {}
        for entry in self.heap:
            if self.deadlines.get(entry[2]) == entry[0]:
                live[entry[2]] = entry
        self.heap = list(live.values())
        heapq.heapify(self.heap)
