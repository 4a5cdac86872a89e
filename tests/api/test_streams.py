"""Event streams over real sockets: replay then live, resuming, slow readers, heartbeats, the end of the service."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator

import pytest

from persistence import open_store
from reliable_channel import MessageReceivedEvent, ReliableChannel
from tests.support.streaming import (
    EventClient,
    Frame,
    SmallService,
    SmallSettings,
    room,
    running,
    small_app,
)

pytestmark = pytest.mark.timeout(120)

EPHEMERAL = {"ephemeral": True}


async def say(alice: ReliableChannel, bob: ReliableChannel, first: int, last: int) -> None:
    """Have bob receive messages with the numbers of a range; they become his events in that order."""
    async with bob.events() as heard:
        for number in range(first, last + 1):
            await alice.send(str(number).encode(), ephemeral=True)
        async for event in heard:
            if isinstance(event, MessageReceivedEvent) and event.message == str(last).encode():
                return


def ids(frames: list[Frame]) -> list[int]:
    return [int(frame.id or 0) for frame in frames]


@pytest.fixture
async def ends() -> AsyncIterator[tuple[ReliableChannel, ReliableChannel]]:
    async with room() as (alice, bob):
        yield alice, bob


async def test_replay_goes_over_into_live_without_a_gap_under_concurrent_sends(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    service = SmallService(channels={"room": bob})
    await say(alice, bob, 1, 600)
    async with running(small_app(service)) as port:
        sending = asyncio.create_task(say(alice, bob, 601, 900))
        async with EventClient(port, "?after=0") as client:
            frames = await client.take(900)
        await sending
    assert ids(frames) == list(range(1, 901))
    assert [base64.b64decode(frame.data["payload"]) for frame in frames] == [
        str(number).encode() for number in range(1, 901)
    ]
    assert {frame.event for frame in frames} == {"reliable:message:received"}
    assert all(frame.data["sequence"] == int(frame.id or 0) for frame in frames)


async def test_without_a_cursor_a_stream_begins_now(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    await say(alice, bob, 1, 3)
    async with (
        running(small_app(SmallService(channels={"room": bob}))) as port,
        EventClient(port) as client,
    ):
        await say(alice, bob, 4, 5)
        assert ids(await client.take(2)) == [4, 5]


async def test_only_durable_events_have_an_id(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, _ = ends
    async with (
        running(small_app(SmallService(channels={"room": alice}))) as port,
        EventClient(port) as client,
    ):
        await alice.send(b"hello")
        found: dict[str, Frame] = {}
        async for frame in client.frames():
            found[frame.event] = frame
            if len(found) == 2:
                break
    assert {name: (frame.id, frame.data["sequence"]) for name, frame in found.items()} == {
        "reliable:message:sent": ("1", 1),
        "reliable:message:progress": (None, 0),
    }


async def test_the_header_beats_the_query(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    alice, bob = ends
    await say(alice, bob, 1, 5)
    async with (
        running(small_app(SmallService(channels={"room": bob}))) as port,
        EventClient(port, "?after=1", headers={"Last-Event-ID": "3"}) as client,
    ):
        assert ids(await client.take(2)) == [4, 5]


async def test_two_readers_never_take_from_each_other(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    async with (
        running(small_app(SmallService(channels={"room": bob}))) as port,
        EventClient(port) as one,
        EventClient(port, "?after=0") as other,
    ):
        await say(alice, bob, 1, 100)
        both = await asyncio.gather(one.take(100), other.take(100))
    assert ids(both[0]) == ids(both[1]) == list(range(1, 101))


@pytest.mark.parametrize("seed", range(4))
async def test_whoever_disconnects_at_any_moment_resumes_with_every_event_once(
    ends: tuple[ReliableChannel, ReliableChannel], seed: int
) -> None:
    alice, bob = ends
    rng = random.Random(seed)
    total = 400
    seen: list[int] = []
    async with running(small_app(SmallService(channels={"room": bob}))) as port:
        sending = asyncio.create_task(say(alice, bob, 1, total))
        while len(seen) < total:
            last = str(seen[-1]) if seen else "0"
            async with EventClient(port, headers={"Last-Event-ID": last}) as client:
                count = min(rng.randrange(60), total - len(seen))
                seen += ids(await client.take(count))
        await sending
    assert seen == list(range(1, total + 1))


async def test_a_reader_that_falls_behind_is_told_so_and_resumes_without_a_gap(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    service = SmallService(channels={"room": bob})
    app = small_app(service, max_backlog_bytes=1 << 20)
    big = bytes(50_000)
    async with running(app) as port:
        async with EventClient(port, receive_buffer=4096) as slow, bob.events() as heard:
            for _ in range(300):  # more than sockets and the backlog hold
                await alice.send(big, ephemeral=True)
                await anext(heard)
            frames = [frame async for frame in slow.frames()]
        *taken, end = frames
        assert end.event == "stream:slow"
        assert end.id is None
        assert 0 < len(taken) < 300
        assert end.data["resumeAfter"] == len(taken)
        assert end.data["reason"]
        async with EventClient(port, headers={"Last-Event-ID": taken[-1].id or ""}) as again:
            rest = await again.take(300 - len(taken))
    assert ids([*taken, *rest]) == list(range(1, 301))
    assert app.state.streams.ended["sse", "stream:slow"] == 1


async def test_a_reader_that_never_reads_is_let_go_and_holds_nothing_up(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    app = small_app(SmallService(channels={"room": bob}), send_timeout_sec=0.2)
    big = bytes(60_000)
    async with (
        running(app) as port,
        EventClient(port, receive_buffer=4096),
        EventClient(port, "?after=0") as quick,
        bob.events() as heard,
    ):
        sent = 0
        while app.state.streams.ended["sse", "stream:left"] == 0:
            await alice.send(big, ephemeral=True)
            await anext(heard)
            sent += 1
            [frame] = await quick.take(1)
            assert frame.id == str(sent)
        assert app.state.streams.open["sse"] == 1


async def test_heartbeats_are_comments(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    service = SmallService(SmallSettings(heartbeat_sec=0.02), channels={"room": ends[1]})
    async with running(small_app(service)) as port, EventClient(port) as client:
        frames = client.frames(comments=True)
        assert [(await anext(frames)).comment for _ in range(3)] == ["heartbeat"] * 3


async def test_the_end_of_the_service_ends_streams_at_once(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    service = SmallService(channels={"room": bob})
    async with running(small_app(service)) as port:
        await say(alice, bob, 1, 2)
        async with EventClient(port, "?after=0") as client:
            assert ids(await client.take(2)) == [1, 2]
            service.closing.set()
            frames = [frame async for frame in client.frames()]
        assert [(frame.event, frame.data["resumeAfter"]) for frame in frames] == [
            ("stream:closing", 2)
        ]
        async with EventClient(port, "?after=0") as late:
            assert [frame.event async for frame in late.frames()] == ["stream:closing"]


async def test_a_closed_channel_ends_its_streams(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    async with (
        running(small_app(SmallService(channels={"room": bob}))) as port,
        EventClient(port) as client,
    ):
        await say(alice, bob, 1, 1)
        await bob.close()
        frames = [frame async for frame in client.frames()]
    assert [frame.event for frame in frames] == ["reliable:message:received", "stream:closed"]


async def test_an_expired_cursor_is_refused_before_the_stream_begins() -> None:
    async with room(open_store("memory://", max_events=5)) as (alice, bob):
        await say(alice, bob, 1, 20)
        app = small_app(SmallService(channels={"room": bob}))
        async with running(app) as port:
            async with EventClient(port, "?after=3") as client:
                assert (client.status, json.loads(client.body)) == (
                    409,
                    {"type": "EventsExpiredError"},
                )
            async with EventClient(port, "?after=15") as client:
                assert ids(await client.take(5)) == [16, 17, 18, 19, 20]
        assert not any(app.state.streams.open.values())


@pytest.mark.parametrize(
    ("cursor", "error"),
    [
        *(
            (text, "InvalidCursorError")
            for text in ("x", "-1", "1.5", "", "²", "9" * 30, str(2**63))
        ),
        ("8", "CursorAheadError"),
    ],
)
async def test_a_bad_cursor_is_refused(
    ends: tuple[ReliableChannel, ReliableChannel], cursor: str, error: str
) -> None:
    alice, bob = ends
    await say(alice, bob, 1, 7)
    app = small_app(SmallService(channels={"room": bob}))
    headers = {"Last-Event-ID": cursor.encode().decode("latin-1")}
    async with running(app) as port, EventClient(port, headers=headers) as client:
        assert (client.status, json.loads(client.body)) == (409, {"type": error})
    assert not any(app.state.streams.open.values())


async def test_only_so_many_streams_are_open(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    service = SmallService(SmallSettings(max_streams=2), channels={"room": ends[1]})
    async with (
        running(small_app(service)) as port,
        EventClient(port) as first,
        EventClient(port) as second,
        EventClient(port) as third,
    ):
        assert [first.status, second.status, third.status] == [200, 200, 409]
        assert json.loads(third.body) == {"type": "TooManyStreamsError"}
