"""The watch over a thread: it asks when a job takes long, and only then."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from persistence.watch import Watch


class Asked:
    """Counts questions."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.questions: asyncio.Queue[int] = asyncio.Queue()

    def __call__(self) -> None:
        self._loop.call_soon_threadsafe(self.questions.put_nowait, threading.get_ident())


@contextmanager
def freed(*ends: threading.Event) -> Iterator[None]:
    """Let jobs end whatever happens to the test."""
    try:
        yield
    finally:
        for end in ends:
            end.set()


@pytest.mark.timeout(30)
async def test_it_asks_again_and_again_while_a_job_does_not_end() -> None:
    asked, end = Asked(), threading.Event()
    watch = Watch(0.01, asked)

    def job() -> None:
        with watch.job():
            end.wait()

    with ThreadPoolExecutor(1) as worker, freed(end):
        watch.until(worker.submit(job))
        for _ in range(3):
            assert await asyncio.wait_for(asked.questions.get(), 10) != threading.get_ident(), (
                "it may block"
            )
        behind = worker.submit(int)
        watch.until(behind)
        behind.cancel()  # the last has ended, the first has not
        for _ in range(3):
            await asyncio.wait_for(asked.questions.get(), 10)


@pytest.mark.timeout(30)
async def test_a_job_behind_one_that_was_given_up_is_watched_too() -> None:
    """Its caller is gone, and nothing else is submitted."""
    asked, ends = Asked(), [threading.Event(), threading.Event()]
    watch = Watch(0.01, asked)

    def job(end: threading.Event) -> None:
        with watch.job():
            end.wait()

    with ThreadPoolExecutor(1) as worker, freed(*ends):
        for end in ends:
            watch.until(worker.submit(job, end))
        await asyncio.wait_for(asked.questions.get(), 10)
        ends[0].set()
        await asyncio.wait_for(asked.questions.get(), 10)
        await asyncio.wait_for(asked.questions.get(), 10)


@pytest.mark.timeout(30)
async def test_nobody_asks_while_somebody_waits_for_an_answer() -> None:
    """What swallows the question may hold whoever asks for as long as it likes."""
    asked, answer, end = Asked(), threading.Event(), threading.Event()
    before = set(threading.enumerate())

    def ask() -> None:
        asked()
        answer.wait()

    watch = Watch(0.01, ask)

    def job() -> None:
        with watch.job():
            end.wait()

    with ThreadPoolExecutor(1) as worker, freed(answer, end):
        watch.until(worker.submit(job))
        await asyncio.wait_for(asked.questions.get(), 10)
        for _ in range(3):
            assert watch._timer is not None
            watch._timer.cancel()
            watch._look()
        assert len(set(threading.enumerate()) - before) == 2, "who works, and who asks"
        answer.set()
        await asyncio.wait_for(asked.questions.get(), 10)


@pytest.mark.timeout(30)
async def test_it_ends_with_the_last_job_and_begins_again() -> None:
    asked = Asked()
    watch = Watch(60, asked)  # it looks when we say so

    def job() -> None:
        with watch.job():
            pass

    with ThreadPoolExecutor(1) as worker:
        for _ in range(2):
            future = worker.submit(job)
            watch.until(future)
            await asyncio.wrap_future(future)
            assert watch._timer is not None
            watch._timer.cancel()
            watch._look()
            assert watch._timer is None
    assert asked.questions.empty()


async def test_a_thread_that_may_take_its_time_is_not_watched() -> None:
    watch = Watch(None, Asked())
    with ThreadPoolExecutor(1) as worker:
        watch.until(worker.submit(int))
    assert watch._timer is None
