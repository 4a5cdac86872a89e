"""The node's own messages: restored budget, order, durable counting, epoch boundaries."""

from __future__ import annotations

import asyncio

import pytest

from reliable_channel.budget import BudgetGate, EpochRateLimiter, duration, restore_budget
from reliable_channel.clock import LoopClock
from reliable_channel.config import RateLimitConfig
from reliable_channel.errors import (
    NodeUnavailableError,
    PublishRejectedError,
    StoreUnavailableError,
)
from reliable_channel.ports import ChannelStore
from reliable_channel.records import Changes, LedgerRecord
from reliable_channel.types import SECOND
from reliable_channel.volatile import VolatileStore
from tests.support.virtual_loop import START_NS, virtual_time

EPOCH_SEC = 600
EPOCH = START_NS // (EPOCH_SEC * SECOND) + 1
EPOCH_START = EPOCH * EPOCH_SEC * SECOND
SCOPE = f"node:{EPOCH_SEC}"


def limited(messages: int) -> RateLimitConfig:
    return RateLimitConfig(enabled=True, epoch_period_sec=EPOCH_SEC, messages_per_epoch=messages)


class BrokenStore(VolatileStore):
    """Loses its disk when told to."""

    broken = False

    async def commit(self, channel_id: str, changes: Changes) -> None:
        if self.broken:
            raise StoreUnavailableError
        await super().commit(channel_id, changes)


class Bench:
    """A budget, its store, and a clock that starts at the beginning of an epoch."""

    def __init__(self, budget: EpochRateLimiter, store: ChannelStore) -> None:
        self.budget = budget
        self.store = store
        self.clock = LoopClock(asyncio.get_running_loop(), EPOCH_START)
        self.gate = BudgetGate(budget, store, clock=self.clock, jitter=lambda: 0.5)

    @property
    def second(self) -> float:
        """Seconds since the beginning of the first epoch."""
        return (self.clock.now_ns() - EPOCH_START) / SECOND

    async def pass_through(self) -> float:
        """Pass, and return when."""
        async with self.gate.transmission():
            return self.second

    async def fail(self, error: Exception) -> None:
        """Pass, and fail an epoch later."""
        async with self.gate.transmission():
            await asyncio.sleep(EPOCH_SEC)
            raise error

    async def saved(self) -> LedgerRecord | None:
        return await self.store.load_ledger(SCOPE)


async def bench(messages: int = 100, store: VolatileStore | None = None) -> Bench:
    store = store or VolatileStore()
    await store.open()
    return Bench(await restore_budget(limited(messages), store), store)


@virtual_time
async def test_a_message_is_counted_durably_before_it_is_transmitted() -> None:
    b = await bench()
    async with b.gate.transmission():
        assert await b.saved() == LedgerRecord(scope=SCOPE, epoch=EPOCH, used=1, in_flight=1)


@virtual_time
async def test_what_is_restored_is_used_up() -> None:
    first = await bench(messages=3)
    for _ in range(3):
        await first.pass_through()
    again = Bench(await restore_budget(limited(3), first.store), first.store)
    assert await again.pass_through() > EPOCH_SEC


@virtual_time
async def test_another_length_of_epoch_is_another_ledger() -> None:
    """Its epoch numbers can lie years ahead, and a ledger never goes back."""
    store = VolatileStore()
    await store.open()
    short = RateLimitConfig(enabled=True, epoch_period_sec=1, messages_per_epoch=3)
    budget = await restore_budget(short, store)
    async with BudgetGate(
        budget,
        store,
        clock=LoopClock(asyncio.get_running_loop(), EPOCH_START),
        jitter=lambda: 0.0,
    ).transmission():
        pass
    assert (await bench(messages=3, store=store)).budget.used == 0


@virtual_time
async def test_an_epoch_takes_what_it_may_and_the_rest_waits_in_order() -> None:
    b = await bench(messages=5)
    order: list[int] = []

    async def one(number: int) -> float:
        async with b.gate.transmission():
            order.append(number)
            return b.second

    times = await asyncio.gather(*(one(number) for number in range(12)))
    assert order == list(range(12))
    for epoch in range(3):
        in_epoch = [at for at in times if epoch * EPOCH_SEC <= at < (epoch + 1) * EPOCH_SEC]
        assert len(in_epoch) <= 5
    assert max(times) < 3 * EPOCH_SEC


@virtual_time
async def test_waiting_can_be_cancelled_and_leaves_the_turn_to_the_next() -> None:
    b = await bench(messages=1)
    await b.pass_through()
    waiting = asyncio.create_task(b.pass_through())
    following = asyncio.create_task(b.pass_through())
    await asyncio.sleep(1)
    waiting.cancel()
    assert EPOCH_SEC < await following < 2 * EPOCH_SEC
    assert waiting.cancelled()


@virtual_time
async def test_what_ends_after_the_boundary_counts_in_both_epochs() -> None:
    b = await bench()
    async with b.gate.transmission():
        await asyncio.sleep(EPOCH_SEC)
    assert await b.saved() == LedgerRecord(scope=SCOPE, epoch=EPOCH + 1, used=1)


@virtual_time
async def test_a_failure_in_doubt_counts_like_a_success() -> None:
    b = await bench()
    with pytest.raises(NodeUnavailableError):
        await b.fail(NodeUnavailableError())
    assert await b.saved() == LedgerRecord(scope=SCOPE, epoch=EPOCH + 1, used=1)


@virtual_time
async def test_what_was_rejected_counts_once() -> None:
    b = await bench()
    with pytest.raises(PublishRejectedError):
        await b.fail(PublishRejectedError())
    assert await b.saved() == LedgerRecord(scope=SCOPE, epoch=EPOCH, used=1, in_flight=1)


@virtual_time
async def test_what_cannot_be_counted_is_not_transmitted() -> None:
    store = BrokenStore()
    b = await bench(messages=2, store=store)
    store.broken = True
    with pytest.raises(StoreUnavailableError):
        await b.pass_through()
    store.broken = False
    assert await b.pass_through() < EPOCH_SEC
    assert await b.saved() == LedgerRecord(scope=SCOPE, epoch=EPOCH, used=2, in_flight=1)


@virtual_time
async def test_a_late_count_that_cannot_be_saved_is_saved_with_the_next_message() -> None:
    store = BrokenStore()
    b = await bench(store=store)
    async with b.gate.transmission():
        await asyncio.sleep(EPOCH_SEC)
        store.broken = True
    store.broken = False
    await b.pass_through()
    assert await b.saved() == LedgerRecord(scope=SCOPE, epoch=EPOCH + 1, used=2, in_flight=1)


@virtual_time
async def test_without_a_limit_nothing_waits_and_nothing_is_written() -> None:
    store = VolatileStore()
    await store.open()
    b = Bench(await restore_budget(RateLimitConfig(epoch_period_sec=EPOCH_SEC), store), store)
    assert [await b.pass_through() for _ in range(500)] == [0.0] * 500
    assert await b.saved() is None


@virtual_time
async def test_a_clean_end_leaves_nothing_open() -> None:
    b = await bench(messages=10)
    for _ in range(4):
        await b.pass_through()
    await b.gate.close()
    assert await b.saved() == LedgerRecord(scope=SCOPE, epoch=EPOCH, used=4)
    await b.gate.close()


@virtual_time
async def test_what_was_open_at_a_crash_counts_in_the_next_epoch_too() -> None:
    b = await bench(messages=10)
    async with b.gate.transmission(), b.gate.transmission():
        again = await restore_budget(limited(10), b.store)
    assert again.remaining(EPOCH_START + EPOCH_SEC * SECOND) == 8


@virtual_time
async def test_an_end_without_a_store_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    store = BrokenStore()
    b = await bench(store=store)
    await b.pass_through()
    store.broken = True
    await b.gate.close()
    assert "the next epoch will have less: its budget is not saved" in caplog.text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "0.2 seconds"),
        (119, "119.0 seconds"),
        (120, "2 minutes"),
        (7_200, "2 hours"),
        (31_536_000, "365 days"),
        (10**10, "115,741 days"),
    ],
)
def test_lengths_of_time_are_in_words(seconds: float, words: str) -> None:
    assert duration(int(seconds * SECOND)) == words
