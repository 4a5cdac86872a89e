"""The virtual-time loop itself: jumps, order, deadlocks, executors, refusal of I/O."""

from __future__ import annotations

import asyncio
import time

import pytest

from reliable_channel.clock import LoopClock
from reliable_channel.types import SECOND
from tests.support.virtual_loop import START_NS, VirtualDeadlockError, run_virtual, virtual_time


def test_hours_pass_at_once_and_exactly() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(7200)
        return loop.time(), await asyncio.wait_for(asyncio.sleep(0.25, loop.time()), 1)

    started = time.monotonic()
    assert run_virtual(main) == (7200.0, 7200.0)
    assert time.monotonic() - started < 5


def test_timers_fire_in_order_of_their_time() -> None:
    async def main() -> list[int]:
        order: list[int] = []
        loop = asyncio.get_running_loop()
        for delay in (3, 1, 2):
            loop.call_later(delay, order.append, delay)
        loop.call_soon(order.append, 0)
        await asyncio.sleep(4)
        return order

    assert run_virtual(main) == [0, 1, 2, 3]


def test_what_is_ready_goes_before_time() -> None:
    async def main() -> float:
        for _ in range(100):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 0.0


def test_timeouts_work() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 90)
        return asyncio.get_running_loop().time()

    assert run_virtual(main) == 90.0


def test_deadlock_is_an_error_that_names_who_waits() -> None:
    async def main() -> None:
        await asyncio.sleep(1.5)
        await asyncio.create_task(asyncio.Event().wait(), name="the one that waits")

    with pytest.raises(
        VirtualDeadlockError, match=r"1\.500 s; .*the one that waits \(Event.wait\)"
    ):
        run_virtual(main)


def test_tasks_that_are_left_are_cancelled() -> None:
    cancelled = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def main() -> None:
        task = asyncio.create_task(forever())
        await asyncio.sleep(1)
        assert not task.done()

    run_virtual(main)
    assert cancelled == [True]


def test_threads_take_no_time_and_give_their_outcome() -> None:
    async def main() -> tuple[int, float]:
        with pytest.raises(ZeroDivisionError):
            await asyncio.to_thread(lambda: 1 // 0)
        return await asyncio.to_thread(max, 1, 2), asyncio.get_running_loop().time()

    assert run_virtual(main) == (2, 0.0)


def test_real_sockets_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(NotImplementedError, match="no real I/O"):
            await asyncio.open_connection("127.0.0.1", 9)

    run_virtual(main)


def test_a_clock_follows_the_loop() -> None:
    async def main() -> int:
        await asyncio.sleep(5)
        clock = LoopClock(asyncio.get_running_loop(), START_NS)
        await asyncio.sleep(3600)
        return clock.now_ns()

    assert run_virtual(main) == START_NS + 3600 * SECOND


@pytest.fixture
def number() -> int:
    return 7


@pytest.mark.parametrize("factor", [2, 3])
@virtual_time
async def test_the_decorator_keeps_fixtures_and_parameters(number: int, factor: int) -> None:
    await asyncio.sleep(1000)
    assert asyncio.get_running_loop().time() == 1000.0
    assert number * factor in {14, 21}
