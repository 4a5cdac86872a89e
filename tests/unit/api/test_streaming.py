"""Cursors of event streams, and long polling on a real channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.readers import InvalidCursorError
from api.streaming import MAX_POLL_EVENTS, POLL_PAGE, cursor_of, poll_events
from persistence import open_store
from reliable_channel import (
    ChannelClosedError,
    CursorAheadError,
    EventsExpiredError,
    ReliableChannel,
    create_reliable_channel,
)
from tests.support.streaming import TOPIC, room


@pytest.fixture
async def ends() -> AsyncIterator[tuple[ReliableChannel, ReliableChannel]]:
    async with room() as (alice, bob):
        yield alice, bob


async def say(alice: ReliableChannel, bob: ReliableChannel, payloads: list[bytes]) -> None:
    async with bob.events() as heard:
        for payload in payloads:
            await alice.send(payload, ephemeral=True)
            await anext(heard)


@pytest.mark.parametrize(
    ("headers", "after", "begin"),
    [
        ({}, None, None),
        ({}, 3, 3),
        ({"last-event-id": "5"}, None, 5),
        ({"last-event-id": "5"}, 9, 5),
        ({"last-event-id": "0"}, 9, 0),
    ],
)
def test_the_header_beats_the_query(
    headers: dict[str, str], after: int | None, begin: int | None
) -> None:
    assert cursor_of(headers, after) == begin


def test_a_bad_header_is_refused() -> None:
    with pytest.raises(InvalidCursorError, match="Last-Event-ID"):
        cursor_of({"last-event-id": "-1"}, 3)


async def test_a_poll_returns_what_is_there(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    alice, bob = ends
    await say(alice, bob, [b"%d" % number for number in range(2 * POLL_PAGE + 3)])
    closing = asyncio.Event()
    first = await poll_events(bob, after=0, limit=2, closing=closing)
    assert [event["sequence"] for event in first["events"]] == [1, 2]
    assert first["next"] == 2
    rest = await poll_events(bob, after=2, limit=MAX_POLL_EVENTS, wait=30, closing=closing)
    assert [event["sequence"] for event in rest["events"]] == list(range(3, 2 * POLL_PAGE + 4))
    assert await poll_events(bob, after=rest["next"], limit=5, closing=closing) == {
        "events": [],
        "next": rest["next"],
    }


async def test_a_poll_ends_with_its_bytes(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    alice, bob = ends
    await say(alice, bob, [bytes(60)] * 5)
    found = []
    cursor = 0
    for _ in range(3):
        page = await poll_events(bob, after=cursor, limit=5, closing=asyncio.Event(), max_bytes=120)
        found.append(len(page["events"]))
        cursor = page["next"]
    assert found == [2, 2, 1]
    one = await poll_events(bob, after=0, limit=5, closing=asyncio.Event(), max_bytes=1)
    assert len(one["events"]) == 1


async def test_a_poll_waits_for_the_first_durable_event(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    polls = [
        asyncio.ensure_future(
            poll_events(bob, after=after, limit=9, wait=30, closing=asyncio.Event())
        )
        for after in (0, None)
    ]
    async with bob.events() as heard:
        await asyncio.sleep(0)
        await alice.send(b"x", ephemeral=True)
        await anext(heard)
    for poll in polls:
        page = await poll
        assert [event["payload"] for event in page["events"]] == ["eA=="]
        assert page["next"] == 1


class Gate:
    """Encrypts one message at once and the others when it is open."""

    overhead_bytes = 0

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self._is_first = True

    async def encrypt(self, content: bytes) -> bytes:
        if not self._is_first:
            await self.open.wait()
        self._is_first = False
        return content

    def decrypt(self, payload: bytes) -> bytes:
        return payload


async def test_progress_ends_no_poll(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    gate = Gate()
    async with (
        await create_reliable_channel(ends[0]._node, "gated", TOPIC, "alice", gate) as channel,
        channel.events() as live,
    ):
        poll = asyncio.ensure_future(
            poll_events(channel, after=0, limit=9, wait=30, closing=asyncio.Event())
        )
        await channel.send(bytes(250_000))  # three segments, one of which goes out
        assert (await anext(live)).sequence == 0
        for _ in range(50):
            await asyncio.sleep(0)
        assert not poll.done()
        gate.open.set()
        page = await poll
    assert page["events"][0]["name"] == "reliable:message:sent"


async def test_a_poll_ends_when_the_time_is_over(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    page = await poll_events(ends[1], after=0, limit=9, wait=0.01, closing=asyncio.Event())
    assert page == {"events": [], "next": 0}


async def test_a_poll_ends_with_the_service(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    closing = asyncio.Event()
    poll = asyncio.ensure_future(poll_events(ends[1], after=0, limit=9, wait=30, closing=closing))
    await asyncio.sleep(0)
    closing.set()
    assert await poll == {"events": [], "next": 0}


async def test_a_poll_ends_with_the_channel(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    bob = ends[1]
    poll = asyncio.ensure_future(
        poll_events(bob, after=0, limit=9, wait=30, closing=asyncio.Event())
    )
    await asyncio.sleep(0)
    await bob.close()
    with pytest.raises(ChannelClosedError):
        await poll


async def test_an_expired_cursor_is_refused() -> None:
    async with room(open_store("memory://", max_events=2)) as (alice, bob):
        await say(alice, bob, [b"1", b"2", b"3"])
        with pytest.raises(EventsExpiredError):
            await poll_events(bob, after=0, limit=9, closing=asyncio.Event())
        with pytest.raises(CursorAheadError):
            await poll_events(bob, after=4, limit=9, closing=asyncio.Event())
