"""Deadlines by key, earliest first.

It must not read a clock: callers pass the time. Setting a key again replaces its deadline. Putting one off, which
happens with every message, only notes it: the entry in the heap is moved when it comes up. Entries that were replaced
or cancelled are skipped then, and swept when they outnumber the live ones.
"""

from __future__ import annotations

import heapq
from typing import TypeAlias

from reliable_channel.types import Nanoseconds

TimerKey: TypeAlias = tuple[str, str | int]
"""What the timer is for, and of which object."""

Entry: TypeAlias = tuple[Nanoseconds, int, TimerKey]
"""A deadline, when it was set among all, and whose it is."""


class Timers:
    """A set of named deadlines; each has an entry in the heap that is no later."""

    def __init__(self) -> None:
        self.deadlines: dict[TimerKey, Entry] = {}
        self.heap: list[Entry] = []
        self.order = 0

    def __len__(self) -> int:
        return len(self.deadlines)

    def __contains__(self, key: TimerKey) -> bool:
        return key in self.deadlines

    def deadline(self, key: TimerKey) -> Nanoseconds | None:
        """Return when the timer ends, or None when it does not run."""
        entry = self.deadlines.get(key)
        return None if entry is None else entry[0]

    def set(self, key: TimerKey, deadline: Nanoseconds) -> None:
        """Let the timer end at a time, also when it runs already."""
        current = self.deadlines.get(key)
        if current is not None and current[0] == deadline:
            return
        self.order += 1
        entry = self.deadlines[key] = (deadline, self.order, key)
        if current is None or deadline < current[0]:
            heapq.heappush(self.heap, entry)
            if len(self.heap) > 2 * len(self.deadlines) + 64:
                self.sweep()

    def set_earlier(self, key: TimerKey, deadline: Nanoseconds) -> None:
        """Let the timer end at a time unless it ends earlier already."""
        current = self.deadlines.get(key)
        if current is None or deadline < current[0]:
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
        """Drop cancelled entries from the front, and move those that were put off."""
        heap, deadlines = self.heap, self.deadlines
        while heap and (entry := deadlines.get(heap[0][2])) != heap[0]:
            if entry is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, entry)

    def sweep(self) -> None:
        """Drop all replaced and cancelled entries."""
        self.heap = list(self.deadlines.values())
        heapq.heapify(self.heap)
