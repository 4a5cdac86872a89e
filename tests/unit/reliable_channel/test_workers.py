"""Background tasks: their names, who is told of a death, the order of their end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from reliable_channel.workers import Workers
from tests.support.failing_store import settle
from tests.support.virtual_loop import virtual_time

Deaths = list[tuple[str, BaseException]]


def workers_of(deaths: Deaths) -> Workers:
    return Workers("room", lambda name, cause: deaths.append((name, cause)))


async def wait_for(awaitable: Awaitable[Any]) -> None:
    await awaitable


@pytest.mark.parametrize("error", [RuntimeError("a bug"), asyncio.CancelledError()], ids=repr)
@virtual_time
async def test_a_task_that_fails_or_is_cancelled_is_told_by_name(error: BaseException) -> None:
    deaths: Deaths = []
    workers = workers_of(deaths)
    ends = [asyncio.get_running_loop().create_future() for _ in range(2)]
    for number, end in enumerate(ends):
        workers.start(f"number {number}", wait_for(end))
    ends[0].set_result(None)
    await settle()
    assert deaths == []
    ends[1].set_exception(error)
    await settle()
    assert [(name, type(cause)) for name, cause in deaths] == [("room number 1", type(error))]


@pytest.mark.parametrize(("patience_sec", "ends"), [(10, True), (1, False)])
@virtual_time
async def test_the_first_task_has_its_time_and_the_others_go_on_until_then(
    patience_sec: float, *, ends: bool
) -> None:
    deaths: Deaths = []
    workers = workers_of(deaths)
    for name, seconds in (("first", 5), ("second", 500)):
        workers.start(name, asyncio.sleep(seconds))
    other = asyncio.create_task(asyncio.sleep(500))
    spared = asyncio.create_task(asyncio.sleep(500))
    stopping = asyncio.create_task(
        workers.stop(patience_sec=patience_sec, others={other, spared}, spared={spared})
    )
    await settle()
    assert not other.cancelling()
    assert await stopping is ends
    assert asyncio.get_running_loop().time() == min(patience_sec, 5)
    assert (other.cancelled(), spared.done()) == (True, False)
    assert (
        [name for name, _ in deaths] == ["room second"] if ends else ["room first", "room second"]
    )
    spared.cancel()


@virtual_time
async def test_none_that_was_started_means_nothing_to_wait_for() -> None:
    assert await workers_of([]).stop(patience_sec=1, others=set(), spared=set())
