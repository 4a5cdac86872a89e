"""Virtual time: what is to be done when, in an order that depends on nothing but the calls.

It must not know who takes part or what is done; it reads no clock and sleeps nowhere.

Spec: none of its own; docs/design.md for virtual time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from benchmarks.simulation.scenario import START_NS
from reliable_channel.types import MS, Nanoseconds


class Schedule:
    """Actions by their times; those for the same time are done in the order of setting."""

    def __init__(self) -> None:
        self.now: Nanoseconds = START_NS
        self.under_way = 0
        """Actions set by `at` and not done yet."""
        self._actions: list[tuple[Nanoseconds, int, Callable[[], None], bool]] = []
        """The last says whether it is under way."""
        self._order = 0

    def at(self, time_ns: Nanoseconds, action: Callable[[], None]) -> None:
        """Do something at a time; it counts as under way until then."""
        self.under_way += 1
        self._order += 1
        heapq.heappush(self._actions, (max(time_ns, self.now), self._order, action, True))

    def wake(self, time_ns: Nanoseconds, action: Callable[[], None]) -> None:
        """Do something at a time; nobody has to wait for it."""
        self._order += 1
        heapq.heappush(self._actions, (max(time_ns, self.now), self._order, action, False))

    def run(self, duration_ms: float) -> None:
        """Let time pass."""
        end = self.now + int(duration_ms * MS)
        actions = self._actions
        while actions and actions[0][0] <= end:
            self.now, _, action, is_under_way = heapq.heappop(actions)
            self.under_way -= is_under_way
            action()
        self.now = end

    def step(self, step_ms: float, end_ns: Nanoseconds) -> None:
        """Let time pass in whole steps, up to the first after which something was done, or which reaches an end.

        Args:
            step_ms: Length of a step, milliseconds.
            end_ns: The end.
        """
        step = int(step_ms * MS)
        target = min(self._actions[0][0], end_ns) if self._actions else end_ns
        steps = max(1, -((self.now - target) // step))
        self.run(steps * step_ms)
