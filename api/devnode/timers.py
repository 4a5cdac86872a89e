"""Time for a stand-in network: what time it is, and what is to happen later.

The asyncio loop's here; tests bring one that they turn by hand. Nothing here knows what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from reliable_channel.clock import SystemClock
from reliable_channel.ports import Clock
from reliable_channel.types import Nanoseconds


class Timers(Protocol):
    """The time, and what happens later."""

    def now(self) -> Nanoseconds:
        """Return Unix time, nanoseconds."""
        ...

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something once, so many seconds from now."""
        ...


class LoopTimers:
    """The running event loop's; nothing happens any more once they are closed.

    Args:
        clock: Unix time; None is the machine's clock.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self._handles: set[asyncio.TimerHandle] = set()

    def now(self) -> Nanoseconds:
        """Return Unix time, nanoseconds."""
        return self._clock.now_ns()

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something once, so many seconds from now."""

        def act() -> None:
            self._handles.discard(handle)
            action()

        handle = asyncio.get_running_loop().call_later(delay_s, act)
        self._handles.add(handle)

    def close(self) -> None:
        """Have nothing happen any more; harmless when repeated."""
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()
