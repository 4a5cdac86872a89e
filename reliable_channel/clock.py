"""Clocks that tell Unix time and never go back.

The protocol counts on it: wrap times, Lamport times and epochs must not repeat when somebody sets
the machine's clock. Nothing here sleeps or sets timers.

Spec: LIP-173, wrap time; 17/WAKU2-RLN-RELAY, epochs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from reliable_channel.types import SECOND, Nanoseconds


class SystemClock:
    """The machine's clock, but for steps back; implements ``Clock``.

    After a step back it runs at half speed, by the monotonic clock, until the wall clock has caught
    up: it stays useful for timers, and the error halves instead of lasting. Steps forward are
    followed at once. It belongs to one thread.

    Args:
        wall_ns: Reads Unix time, nanoseconds.
        monotonic_ns: Reads a clock that nobody can set, nanoseconds.
    """

    __slots__ = ("_last_ns", "_measured_ns", "_monotonic_ns", "_wall_ns")

    def __init__(
        self,
        *,
        wall_ns: Callable[[], Nanoseconds] = time.time_ns,
        monotonic_ns: Callable[[], Nanoseconds] = time.monotonic_ns,
    ) -> None:
        self._wall_ns = wall_ns
        self._monotonic_ns = monotonic_ns
        self._last_ns = wall_ns()
        self._measured_ns = monotonic_ns()

    def now_ns(self) -> Nanoseconds:
        """Return Unix time in nanoseconds, not below any earlier answer."""
        measured = self._monotonic_ns()
        half = (measured - self._measured_ns) // 2
        self._last_ns = max(self._wall_ns(), self._last_ns + half)
        self._measured_ns = measured
        return self._last_ns


class LoopClock:
    """Follows the time of an event loop, which may be virtual; implements ``Clock``.

    Args:
        loop: The loop whose ``time`` is followed.
        start_ns: Unix time to tell at the moment of construction, nanoseconds.
    """

    __slots__ = ("_loop", "_origin", "_start_ns")

    def __init__(self, loop: asyncio.AbstractEventLoop, start_ns: Nanoseconds) -> None:
        self._loop = loop
        self._origin = loop.time()
        self._start_ns = start_ns

    def now_ns(self) -> Nanoseconds:
        """Return the start and what the loop has counted since, nanoseconds."""
        return self._start_ns + round((self._loop.time() - self._origin) * SECOND)
