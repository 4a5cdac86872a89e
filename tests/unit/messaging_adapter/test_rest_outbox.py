"""Seeing messages into a store: asked every 3 s, repeated on misses, given up after 60 s."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from messaging_adapter import rest_outbox
from messaging_adapter.rest_client import RestError, Trouble
from messaging_adapter.rest_outbox import Outbox
from reliable_channel.core.wire import WakuMessage
from reliable_channel.errors import (
    NodeClosedError,
    NodeUnavailableError,
    PublishRejectedError,
)
from tests.support.virtual_loop import virtual_time

MESSAGE = WakuMessage(b"hello", "/app/1/room/proto")


@dataclass
class Store:
    """A store and a node, as the outbox sees them."""

    has: set[bytes] = field(default_factory=set)
    error: Exception | None = None
    asked: list[tuple[float, int]] = field(default_factory=list)
    published: list[float] = field(default_factory=list)
    refuses: Exception | None = None

    async def present(self, hashes: Sequence[bytes]) -> set[bytes]:
        self.asked.append((asyncio.get_running_loop().time(), len(hashes)))
        if self.error is not None:
            raise self.error
        return self.has & set(hashes)

    async def publish_again(self, message: WakuMessage) -> bool:
        self.published.append(round(asyncio.get_running_loop().time(), 3))
        if self.refuses is not None:
            raise self.refuses
        return True


@asynccontextmanager
async def outbox(store: Store, *, expires: bool = False) -> AsyncIterator[Outbox]:
    box = Outbox(store.present, store.publish_again, period=3.0, patience=60.0, expires=expires)
    tasks = [asyncio.create_task(box.run()), asyncio.create_task(box.run_again())]
    yield box
    assert not any(task.done() for task in tasks)
    box.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@virtual_time
async def test_what_a_store_has_is_confirmed_and_not_asked_for_again() -> None:
    store = Store({b"a"})
    async with outbox(store) as box:
        box.add(MESSAGE, b"a")
        assert await box.outcome(b"a") is True
        assert store.asked == [(3.0, 1)]
        await asyncio.sleep(100)
        assert len(store.asked) == 1
        assert (len(box), box.confirmed, store.published) == (0, 1, [])


@virtual_time
async def test_what_is_missing_is_published_again_ever_more_rarely_and_given_up_after_a_minute() -> (
    None
):
    store = Store()
    async with outbox(store) as box:
        box.add(MESSAGE, b"a")
        with pytest.raises(PublishRejectedError, match="no store had the message within 60 s"):
            await box.outcome(b"a")
        assert store.published == [3.0, 6.0, 12.0, 24.0, 48.0]
        assert [time for time, _ in store.asked] == [3.0 * n for n in range(1, 21)]
        assert (len(box), box.given_up, box.republished) == (0, 1, 5)


@virtual_time
async def test_where_proofs_expire_nothing_is_published_again_that_relays_would_refuse() -> None:
    store = Store()
    async with outbox(store, expires=True) as box:
        box.add(MESSAGE, b"a")
        with pytest.raises(PublishRejectedError):
            await box.outcome(b"a")
        assert store.published == [3.0, 6.0, 12.0]


@pytest.mark.parametrize("error", [RestError(Trouble.FAILED, "no peer"), ValueError("ours")])
@virtual_time
async def test_a_store_that_cannot_be_asked_proves_nothing(error: Exception) -> None:
    store = Store(error=error)
    async with outbox(store) as box:
        box.add(MESSAGE, b"a")
        with pytest.raises(NodeUnavailableError, match="no store could be asked"):
            await box.outcome(b"a")
        assert store.published == []
        assert len(store.asked) < 20


@virtual_time
async def test_a_miss_before_the_store_went_away_counts() -> None:
    store = Store()
    async with outbox(store) as box:
        box.add(MESSAGE, b"a")
        await asyncio.sleep(10)
        store.error = RestError(Trouble.FAILED, "no peer")
        with pytest.raises(PublishRejectedError):
            await box.outcome(b"a")


@pytest.mark.parametrize("error", [RestError(Trouble.TIMEOUT, "no"), ValueError("ours")])
@virtual_time
async def test_a_repetition_that_fails_is_followed_by_the_next(error: Exception) -> None:
    store = Store(refuses=error)
    async with outbox(store) as box:
        box.add(MESSAGE, b"a")
        await asyncio.sleep(7)
        assert (store.published, box.republished) == ([3.0, 6.0], 0)
        store.has.add(b"a")
        assert await box.outcome(b"a") is True


@virtual_time
async def test_a_hundred_hashes_are_asked_for_at_once() -> None:
    store = Store()
    async with outbox(store) as box:
        for number in range(250):
            box.add(MESSAGE, b"%d" % number)
        await asyncio.sleep(4)
        assert [count for _, count in store.asked] == [100, 100, 50]


@virtual_time
async def test_too_many_are_let_go_unconfirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_outbox, "MAX_OUTGOING", 2)
    async with outbox(Store()) as box:
        for name in (b"a", b"b", b"c"):
            box.add(MESSAGE, name)
        with pytest.raises(NodeUnavailableError, match="too much"):
            await box.outcome(b"a")
        assert (len(box), box.dropped) == (2, 1)
        monkeypatch.setattr(rest_outbox, "MAX_OUTGOING_BYTES", 3)
        box.add(MESSAGE, b"d")
        assert (len(box), box.dropped) == (1, 3)


@virtual_time
async def test_outcomes_that_nobody_asks_for_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest_outbox, "MAX_OUTCOMES", 2)
    async with outbox(Store({b"a", b"b", b"c"})) as box:
        for name in (b"a", b"b", b"c"):
            box.add(MESSAGE, name)
        await asyncio.sleep(4)
        assert await box.outcome(b"a") is False
        assert await box.outcome(b"c") is True


@virtual_time
async def test_who_gives_up_waiting_takes_nothing_away() -> None:
    store = Store()
    async with outbox(store) as box:
        box.add(MESSAGE, b"a")
        waiter = asyncio.create_task(box.outcome(b"a"))
        await asyncio.sleep(1)
        waiter.cancel()
        store.has.add(b"a")
        await asyncio.sleep(3)
        assert (len(box), box.confirmed) == (0, 1)


@virtual_time
async def test_closing_ends_all_waiting() -> None:
    async with outbox(Store()) as box:
        box.add(MESSAGE, b"a")
        waiter = asyncio.create_task(box.outcome(b"a"))
        await asyncio.sleep(0)
        box.close()
        with pytest.raises(NodeClosedError):
            await waiter
        box.add(MESSAGE, b"b")
        assert len(box) == 0
