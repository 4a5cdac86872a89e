"""What waits for the machine's task: its order, how much is taken at once, who is woken."""

from __future__ import annotations

import asyncio

from api.serving import loop_factory
from reliable_channel.core.effects import Effects
from reliable_channel.inputs import MAX_BATCH, Input, InputQueue
from tests.support.failing_store import settle
from tests.support.virtual_loop import virtual_time


def inputs(count: int) -> list[Input]:
    return [lambda _: Effects() for _ in range(count)]


def filled(items: list[Input]) -> InputQueue:
    queue = InputQueue()
    for item in items:
        queue.put(item)
    return queue


def now_sec() -> float:
    return asyncio.get_running_loop().time()


def test_inputs_are_taken_in_their_order_as_many_as_share_a_transaction() -> None:
    items = inputs(MAX_BATCH + 1)
    queue = filled(items)
    assert queue.take() == items[:-1]
    assert queue.take() == items[-1:]
    assert queue.take() == []
    assert not queue


@virtual_time
async def test_an_input_or_a_call_wakes_the_task_once() -> None:
    queue = InputQueue()
    for wake in (queue.wake, lambda: queue.put(inputs(1)[0])):
        wake()
        await queue.wait()
        waiting = asyncio.create_task(queue.wait())
        await settle()
        assert not waiting.done()
        wake()
        await waiting


@virtual_time
async def test_the_task_wakes_by_itself_when_its_time_has_come() -> None:
    queue = InputQueue()
    await queue.wait(2.5)
    assert now_sec() == 2.5
    queue.wake()
    await queue.wait(60)
    waiting = asyncio.create_task(queue.wait())
    await asyncio.sleep(120)
    assert not waiting.done(), "the time that was not waited for must not wake it later"
    waiting.cancel()


@virtual_time
async def test_a_time_that_is_put_off_or_brought_forward_wakes_the_task_when_it_has_come() -> None:
    queue = InputQueue()
    for seconds in (60, 5, 30):  # the timer of one must not wake who waits for the next
        queue.wake()
        await queue.wait(seconds)
    began = now_sec()
    await queue.wait(20)
    assert now_sec() == began + 20
    await queue.wait(40)
    assert now_sec() == began + 60


@virtual_time
async def test_who_can_hold_back_waits_while_a_whole_transaction_waits() -> None:
    queue = filled(inputs(2 * MAX_BATCH))
    waiting = asyncio.create_task(queue.wait_for_room())
    await settle()
    queue.take()
    await settle()
    assert not waiting.done()
    queue.take()
    await settle()
    assert waiting.done()
    await filled(inputs(MAX_BATCH - 1)).wait_for_room()


def test_shortest_times_wake_the_task_on_the_loop_that_serves() -> None:
    """On a loop that makes no timer for less than a millisecond, too."""

    async def wait_often() -> int:
        queue = InputQueue()
        for number in range(200):
            if number % 2:
                queue.wake()
            await queue.wait(number % 7 * 1e-4)
        return number

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        assert runner.run(asyncio.wait_for(wait_often(), 10)) == 199
