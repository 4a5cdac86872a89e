"""The background tasks of a channel: who is told when one dies, and how they end.

It must not know what they do.

Spec: RELIABLE-CHANNEL-API, createReliableChannel, closeChannel.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Set
from typing import Any, TypeAlias

Task: TypeAlias = asyncio.Task[None]


class Workers:
    """Tasks that go on until they are stopped; the first one has something to end.

    Args:
        owner: Stands in their names.
        on_death: Called with the name of a task that has failed or was cancelled, and with why.
    """

    def __init__(self, owner: str, on_death: Callable[[str, BaseException], None]) -> None:
        self._owner = owner
        self._on_death = on_death
        self._tasks: list[Task] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        """Do some work in a task of its own."""
        task = asyncio.get_running_loop().create_task(work, name=f"{self._owner} {name}")
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: Task) -> None:
        cause = asyncio.CancelledError() if task.cancelled() else task.exception()
        if cause is not None:
            self._on_death(task.get_name(), cause)

    async def stop(
        self, *, patience_sec: float, others: Set[Task], spared: Set[asyncio.Task[Any] | None]
    ) -> bool:
        """Wait for the end of the first task, which was asked to end, then cancel all others.

        Args:
            patience_sec: When the first task is cancelled, too.
            others: Cancelled as well, those that are there by then.
            spared: Not cancelled: whoever waits for this.

        Returns:
            Whether the first task ended by itself.
        """
        late: Set[Task] = set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks[:1], timeout=patience_sec)
        stopped = {*self._tasks, *others} - spared
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)
        return not late
