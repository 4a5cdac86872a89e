"""Time of a running loop: what is to happen does, until it is closed."""

from __future__ import annotations

import asyncio
import time

from api.devnode.timers import LoopTimers
from reliable_channel.types import SECOND


async def test_things_happen_in_their_order() -> None:
    timers = LoopTimers()
    seen: list[int] = []
    done = asyncio.Event()
    timers.later(0.02, done.set)
    timers.later(0.01, lambda: seen.append(2))
    timers.later(0.0, lambda: seen.append(1))
    await done.wait()
    assert seen == [1, 2]


async def test_nothing_happens_after_the_end() -> None:
    timers = LoopTimers()
    seen: list[int] = []
    timers.later(0.0, lambda: seen.append(1))
    timers.close()
    timers.close()
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, done.set)
    await done.wait()
    assert seen == []


async def test_the_time_is_the_machines() -> None:
    assert abs(LoopTimers().now() - time.time_ns()) < 5 * SECOND
