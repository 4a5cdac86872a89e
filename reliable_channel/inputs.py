"""What has happened and the machine was not told of yet, in order; and the bell of the task that tells it.

It must not know what an input is about: nodes, timers and senders put, one task takes.

Spec: RELIABLE-CHANNEL-API, The Reliable Channel API.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeAlias

from reliable_channel.core.effects import Effects
from reliable_channel.types import Nanoseconds

MAX_BATCH: Final = 256
"""Inputs that share one transaction."""

Input: TypeAlias = Callable[[Nanoseconds], Effects]
"""Tells the machine, at the time it is given, what has happened."""


class InputQueue:
    """Inputs that wait for the machine's task."""

    def __init__(self) -> None:
        self._inputs: deque[Input] = deque()
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()

    def __len__(self) -> int:
        return len(self._inputs)

    def put(self, item: Input) -> None:
        """Add an input and wake the machine's task."""
        self._inputs.append(item)
        self._wake.set()

    def take(self) -> list[Input]:
        """Return the oldest inputs, as many as one transaction takes."""
        count = min(len(self._inputs), MAX_BATCH)
        taken = [self._inputs.popleft() for _ in range(count)]
        self._drained.set()
        return taken

    def wake(self) -> None:
        """Let the machine's task look around: something else than an input has come."""
        self._wake.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Return once the task is woken, at once where it was since the last time.

        Args:
            seconds: Or when so much time has passed; None for no limit.
        """
        loop = asyncio.get_running_loop()
        timer = None if seconds is None else loop.call_later(seconds, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            self._wake.clear()
            if timer is not None:
                timer.cancel()

    async def wait_for_room(self) -> None:
        """Return once less than a whole transaction waits, for those who can hold back what they have."""
        while len(self._inputs) >= MAX_BATCH:
            self._drained.clear()
            await self._drained.wait()
