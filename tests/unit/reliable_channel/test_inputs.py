"""What waits for the machine's task: its order, how much is taken at once, who is woken."""

from __future__ import annotations

import asyncio

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
    for seconds in (60, 5, 30):  # their timers would be late, or early
        queue.wake()
        await queue.wait(seconds)
    began = now_sec()
    await queue.wait(20)
    assert now_sec() == began + 20
    await queue.wait(40)
    assert now_sec() == began + 60


@virtual_time
async def test_a_clock_that_was_stopped_wakes_nobody() -> None:
    queue = InputQueue()
    queue.wake()
    await queue.wait(5)
    queue.stop_clock()
    waiting = asyncio.create_task(queue.wait(60))
    await settle()
    queue.stop_clock()
    await asyncio.sleep(120)
    assert not waiting.done()
    waiting.cancel()


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
