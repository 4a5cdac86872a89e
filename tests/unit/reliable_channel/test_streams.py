"""Event streams: live, replayed, resumed; slow ones; ends. Alone first, then on channels."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from messaging_adapter import NodeConfig, WakuNode, create_node
from reliable_channel import (
    ChannelClosedError,
    ChannelEvent,
    ConfigurationError,
    CursorAheadError,
    EventsExpiredError,
    EventStream,
    MessageDeliveredEvent,
    MessageProgressEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    ReliableChannel,
    SdsConfig,
    SlowConsumerError,
    StoreUnavailableError,
    create_reliable_channel,
)
from reliable_channel.errors import ChannelFailedError
from reliable_channel.events import event_to_record
from reliable_channel.ports import ChannelStore
from reliable_channel.records import EventRecord
from reliable_channel.streams import MAX_PENDING, PAGE
from reliable_channel.volatile import VolatileStore
from tests.support.failing_store import TOPIC, FailingStore, soon, virtual_clock
from tests.support.virtual_loop import START_NS, virtual_time


async def drain(stream: EventStream, seconds: float = 1) -> list[int]:
    """Read what is there, or comes within the time, and return the sequences."""
    found = []
    with suppress(StopAsyncIteration, TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                found.append((await anext(stream)).sequence)
    return found


class Source:
    """Stands in for a channel and its store: what is emitted was stored before.

    Args:
        events: How many there are already.
        read_sec: How long the store takes to answer.
    """

    def __init__(self, events: int = 0, *, read_sec: float = 0.0) -> None:
        self.records: list[EventRecord] = []
        self.streams: list[EventStream] = []
        self.closed: list[EventStream] = []
        self.read_sec = read_sec
        self.failure: Exception | None = None
        self.expired = 0
        for _ in range(events):
            self.emit()

    def stream(self, *, after: int | None = None, max_pending: int = MAX_PENDING) -> EventStream:
        stream = EventStream(
            "room",
            self.read,
            last_sequence=len(self.records),
            after=after,
            on_close=self.closed.append,
            max_pending=max_pending,
        )
        self.streams.append(stream)
        return stream

    async def read(self, after: int, limit: int) -> list[EventRecord]:
        if self.failure is not None:
            raise self.failure
        if after < self.expired:
            raise EventsExpiredError(after, self.expired + 1)
        page = self.records[after : after + limit]
        if self.read_sec:
            await asyncio.sleep(self.read_sec)
        return page

    def store(self) -> ChannelEvent:
        """Make the next event durable, without showing it yet."""
        sequence = len(self.records) + 1
        event = MessageSentEvent(channel_id="room", sequence=sequence, request_id=f"r{sequence}")
        self.records.append(event_to_record(event))
        return event

    def show(self, event: ChannelEvent) -> None:
        for stream in self.streams:
            stream.push(event)

    def emit(self, count: int = 1) -> None:
        for _ in range(count):
            self.show(self.store())

    def emit_progress(self) -> None:
        self.show(
            MessageProgressEvent(
                channel_id="room", request_id="r", sent=1, acknowledged=(), total=1
            )
        )


def numbers(first: int, last: int) -> list[int]:
    return list(range(first, last + 1))


# --- Live ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_stream_gives_what_comes_after_it_was_made() -> None:
    source = Source(3)
    stream = source.stream()
    source.emit(2)
    assert await drain(stream) == [4, 5]


@virtual_time
async def test_streams_do_not_take_events_from_each_other() -> None:
    source = Source()
    first, second = source.stream(), source.stream()
    source.emit(4)
    assert await drain(first) == await drain(second) == numbers(1, 4)


@virtual_time
async def test_a_read_waits_for_the_next_event() -> None:
    source = Source()
    stream = source.stream()
    asyncio.get_running_loop().call_later(5, source.emit)
    assert (await anext(stream)).sequence == 1
    assert asyncio.get_running_loop().time() == 5


@virtual_time
async def test_cancelling_a_read_loses_no_event() -> None:
    source = Source()
    stream = source.stream()
    loop = asyncio.get_running_loop()
    found = []
    for moment in range(20):  # events come before, at and after the moment of the cancellation
        loop.call_later(1 + (moment - 10) / 10, source.emit)
    for _ in range(10):
        reading = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.15)
        if not reading.done():
            reading.cancel()
        found += [
            event.sequence
            for event in await asyncio.gather(reading, return_exceptions=True)
            if not isinstance(event, BaseException)
        ]
    found += await drain(stream)
    assert found == numbers(1, 20)


@virtual_time
async def test_live_only_events_do_not_move_the_resume_point() -> None:
    source = Source(2)
    stream = source.stream()
    assert stream.last_sequence == 2
    source.emit_progress()
    source.emit()
    source.emit_progress()
    assert await drain(stream) == [0, 3, 0]
    assert stream.last_sequence == 3


# --- Replay --------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0, 1, PAGE, PAGE + 1, 2 * PAGE - 1, 2 * PAGE])
@virtual_time
async def test_a_replay_goes_on_live_without_gap_or_duplicate(after: int) -> None:
    source = Source(2 * PAGE)
    stream = source.stream(after=after)
    assert await drain(stream) == numbers(after + 1, 2 * PAGE)
    source.emit(3)
    assert await drain(stream) == numbers(2 * PAGE + 1, 2 * PAGE + 3)


@pytest.mark.parametrize("pace", [0.01, 0.5, 1.0, 1.5])
@virtual_time
async def test_a_replay_takes_what_comes_meanwhile_from_the_store(pace: float) -> None:
    """The store answers after a second, and events keep coming."""
    source = Source(2 * PAGE, read_sec=1)
    stream = source.stream(after=0)
    loop = asyncio.get_running_loop()
    for number in range(50):
        loop.call_later(number * pace, source.emit)
    assert await drain(stream, 200) == numbers(1, 2 * PAGE + 50)


@virtual_time
async def test_nothing_is_given_out_twice_that_was_stored_but_not_yet_shown() -> None:
    """A store that has applied a commit may show it before the commit has returned."""
    source = Source(2)
    stream = source.stream(after=0)
    event = source.store()
    assert (await anext(stream)).sequence == 1  # the page was read
    source.show(event)
    source.emit()
    assert await drain(stream) == [2, 3, 4]


@virtual_time
async def test_an_empty_log_is_replayed_to_nothing() -> None:
    source = Source()
    stream = source.stream(after=0)
    source.emit(2)
    assert await drain(stream) == [1, 2]


@virtual_time
async def test_cancelling_a_replay_loses_no_event() -> None:
    source = Source(PAGE + 5, read_sec=1)
    stream = source.stream(after=0)
    with pytest.raises(TimeoutError):
        await soon(anext(stream), 0.5)
    source.emit()
    assert await drain(stream, 30) == numbers(1, PAGE + 6)


@virtual_time
async def test_a_replay_goes_on_after_the_store_has_failed() -> None:
    source = Source(3)
    stream = source.stream(after=0)
    source.failure = StoreUnavailableError("locked")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await anext(stream)
    source.emit()
    source.failure = None
    assert await drain(stream) == numbers(1, 4)


@virtual_time
async def test_expired_events_are_an_error_that_says_where_to_go_on() -> None:
    source = Source(10)
    source.expired = 4
    stream = source.stream(after=1)
    with pytest.raises(EventsExpiredError) as caught:
        await anext(stream)
    assert (caught.value.after, caught.value.oldest) == (1, 5)
    again = source.stream(after=caught.value.oldest - 1)
    assert await drain(again) == numbers(5, 10)


# --- Slow consumers ------------------------------------------------------------------------------


@virtual_time
async def test_a_slow_stream_ends_and_says_where_to_resume() -> None:
    source = Source(1)
    stream = source.stream(max_pending=3)
    source.emit(2)
    assert (await anext(stream)).sequence == 2
    source.emit(10)
    for _ in range(2):
        with pytest.raises(SlowConsumerError, match=r"events\(after=2\)") as caught:
            await anext(stream)
    assert (caught.value.last_sequence, caught.value.pending) == (2, 3)
    again = source.stream(after=caught.value.last_sequence)
    source.emit()
    assert await drain(again) == numbers(3, 14)


@virtual_time
async def test_a_slow_stream_leaves_the_others_alone() -> None:
    source = Source()
    slow, quick = source.stream(max_pending=3), source.stream(max_pending=4)
    source.emit(4)
    assert await drain(quick) == numbers(1, 4)
    source.emit(4)
    assert await drain(quick) == numbers(5, 8)
    with pytest.raises(SlowConsumerError):
        await anext(slow)


@virtual_time
async def test_a_full_buffer_is_not_yet_too_slow() -> None:
    source = Source()
    stream = source.stream(max_pending=5)
    source.emit(5)
    assert await drain(stream) == numbers(1, 5)


@virtual_time
async def test_the_resume_point_is_the_last_event_that_was_given_out() -> None:
    """Of a page that was read, the rest is still given out after the live events overflowed."""
    source = Source(5)
    stream = source.stream(after=0, max_pending=3)
    given = [(await anext(stream)).sequence]
    source.emit(4)
    given += [(await anext(stream)).sequence for _ in range(4)]
    with pytest.raises(SlowConsumerError) as caught:
        await anext(stream)
    assert caught.value.last_sequence == given[-1] == stream.last_sequence
    again = source.stream(after=caught.value.last_sequence)
    assert given + await drain(again) == numbers(1, 9)


@virtual_time
async def test_a_replay_is_never_too_slow() -> None:
    source = Source(5)
    stream = source.stream(after=0, max_pending=3)
    source.emit(100)
    assert await drain(stream) == numbers(1, 105)


# --- Ends ----------------------------------------------------------------------------------------


@virtual_time
async def test_a_stream_ends_after_what_it_still_holds() -> None:
    source = Source()
    stream = source.stream()
    source.emit(2)
    stream.end()
    assert [event.sequence async for event in stream] == [1, 2]
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@virtual_time
async def test_an_end_wakes_whoever_waits() -> None:
    stream = Source().stream()
    asyncio.get_running_loop().call_later(1, stream.end)
    assert [event async for event in stream] == []


@virtual_time
async def test_a_failure_is_raised_after_what_the_stream_still_holds() -> None:
    source = Source()
    stream = source.stream()
    source.emit()
    stream.end(ChannelFailedError("room", KeyError("bug")))
    assert (await anext(stream)).sequence == 1
    for _ in range(2):
        with pytest.raises(ChannelFailedError):
            await anext(stream)


@virtual_time
async def test_a_replay_under_way_is_finished_when_the_channel_closes() -> None:
    source = Source(PAGE + 10)
    stream = source.stream(after=0)
    await anext(stream)
    stream.end()
    assert [event.sequence async for event in stream] == numbers(2, PAGE + 10)


@virtual_time
async def test_a_closed_stream_gives_nothing_more_and_is_forgotten_once() -> None:
    source = Source(3)
    stream = source.stream(after=0)
    async with stream as entered:
        assert entered is stream
        await anext(stream)
        source.emit()
    await stream.close()
    assert [event async for event in stream] == []
    assert source.closed == [stream]


# --- On channels ---------------------------------------------------------------------------------


async def open_node(store: ChannelStore | None = None, **sds: Any) -> WakuNode:
    config = NodeConfig(transport="memory://lab", sds_config=SdsConfig(persistence=store, **sds))
    return await create_node(config, clock=virtual_clock())


async def open_channel(node: WakuNode, sender_id: str = "alice") -> ReliableChannel:
    return await create_reliable_channel(node, "room", TOPIC, sender_id)


def durable(events: list[Any]) -> list[Any]:
    return [event for event in events if event.sequence]


@virtual_time
async def test_sequences_begin_at_one_and_grow_without_gaps_across_openings() -> None:
    store = VolatileStore()
    live: list[int] = []
    async with await open_node(store) as a, await open_node() as b, await open_channel(b, "bob"):
        for opening in range(4):
            async with await open_channel(a) as alice, alice.events() as events:
                request_ids = [await alice.send(b"%d" % opening) for _ in range(5)]
                for request_id in request_ids:
                    await soon(alice.wait_delivered(request_id))
                live += [number for number in await drain(events) if number]
        async with await open_channel(a) as alice, alice.events(after=0) as events:
            assert await drain(events) == live == numbers(1, 40)


@virtual_time
async def test_replayed_events_equal_those_that_were_shown() -> None:
    async with await open_node() as a, await open_node() as b:
        async with await open_channel(a) as alice, await open_channel(b, "bob") as bob:
            streams = alice.events(), bob.events()
            await alice.send(bytes(250_000))
            await soon(bob.wait_delivered(await bob.send(b"back", ephemeral=False)))
            await bob.send(b"passing", ephemeral=True)
            await asyncio.sleep(30)
            replays = alice.events(after=0), bob.events(after=0)
        for stream, replay in zip(streams, replays, strict=True):
            shown = durable([event async for event in stream])
            assert shown == [event async for event in replay]
            assert {type(event) for event in shown} == {
                MessageReceivedEvent,
                MessageSentEvent,
                *([MessageDeliveredEvent] if stream is streams[0] or len(shown) > 2 else []),
            }
            assert {event.channel_id for event in shown} == {"room"}
            assert all(event.time_ns >= START_NS for event in shown)


@virtual_time
async def test_a_stream_is_registered_when_it_is_made() -> None:
    async with await open_node() as node, await open_channel(node) as channel:
        stream = channel.events()
        request_id = await channel.send(b"hello", ephemeral=True)
        await asyncio.sleep(1)
        late = channel.events()
        event = await soon(anext(stream))
        assert (event.name, event.request_id) == ("reliable:message:sent", request_id)
        assert await drain(late) == []


@pytest.mark.parametrize("commit_sec", [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3)])
@virtual_time
async def test_replays_that_begin_at_any_time_see_everything_once(
    commit_sec: tuple[float, float],
) -> None:
    """Events keep coming; commits take their time before, or after, they are visible."""
    store = FailingStore()
    async with await open_node(store) as a, await open_node() as b, await open_channel(b, "bob"):
        async with await open_channel(a) as alice:
            store.before_commit_sec, store.after_commit_sec = commit_sec
            streams = []
            for number in range(40):
                await alice.send(b"%d" % number)
                streams.append(alice.events(after=0))
                await asyncio.sleep(0.07)
                streams.append(alice.events(after=number))
            readers = [asyncio.create_task(drain(stream, 60)) for stream in streams]
            found = [[number for number in await reader if number] for reader in readers]
        for number, (whole, part) in enumerate(zip(found[::2], found[1::2], strict=True)):
            assert whole == numbers(1, 80)
            assert part == numbers(number + 1, 80)


@virtual_time
async def test_a_channel_goes_on_while_a_stream_is_not_read() -> None:
    """It ends with an error, loses nothing for those who resume, and harms no other stream."""
    async with await open_node() as node, await open_channel(node) as channel:
        slow, quick, seen = channel.events(), channel.events(), []

        async def read() -> None:
            seen.extend([event async for event in quick])

        reading = asyncio.create_task(read())
        for _ in range(MAX_PENDING // 2 + 1):  # sent and progress, each time
            await channel.send(b"x", ephemeral=True)
        await asyncio.sleep(1)
        with pytest.raises(SlowConsumerError) as caught:
            await anext(slow)
        assert caught.value.last_sequence == 0
        assert caught.value.pending == MAX_PENDING
        again = channel.events(after=caught.value.last_sequence)
        resumed = await drain(again)
    await reading
    assert (
        resumed == [event.sequence for event in durable(seen)] == numbers(1, MAX_PENDING // 2 + 1)
    )


@virtual_time
async def test_events_that_retention_removed_are_an_error() -> None:
    store = VolatileStore(max_events=3)
    async with await open_node(store) as node, await open_channel(node) as channel:
        for _ in range(5):
            await channel.send(b"x", ephemeral=True)
        await asyncio.sleep(1)
        with pytest.raises(EventsExpiredError) as caught:
            await anext(channel.events(after=0))
        assert await drain(channel.events(after=caught.value.oldest - 1)) == [3, 4, 5]


@virtual_time
async def test_pages_of_events_can_be_read_without_a_stream() -> None:
    store = VolatileStore(max_events=3)
    async with await open_node(store) as node:
        channel = await open_channel(node)
        assert channel.last_event_sequence == 0
        assert await channel.read_events(after=0, limit=9) == []
        for _ in range(5):
            await channel.send(b"x", ephemeral=True)
        await asyncio.sleep(1)
        assert channel.last_event_sequence == 5
        with pytest.raises(EventsExpiredError) as caught:
            await channel.read_events(after=0, limit=9)
        assert caught.value.oldest == 3
        page = await channel.read_events(after=2, limit=2)
        assert [event.sequence for event in page] == [3, 4]
        async with channel.events(after=2) as stream:
            assert page == [await anext(stream) for _ in range(2)]
        assert [item.sequence for item in await channel.read_events(after=4, limit=9)] == [5]
        assert await channel.read_events(after=5, limit=9) == []
        for after in (6, 1 << 70):
            with pytest.raises(CursorAheadError):
                await channel.read_events(after=after, limit=9)
            with pytest.raises(CursorAheadError):
                channel.events(after=after)
        for after, limit in ((-1, 1), (0, 0), (0, -1)):
            with pytest.raises(ConfigurationError, match=f"not {after} and {limit}"):
                await channel.read_events(after=after, limit=limit)
        await channel.close()
        assert channel.last_event_sequence == 5
        with pytest.raises(ChannelClosedError):
            await channel.read_events(after=2, limit=9)
        async with await open_channel(node) as again:
            assert again.last_event_sequence == 5


@virtual_time
async def test_a_cursor_of_a_purged_channel_is_refused() -> None:
    """Its sequence begins again: nothing of the new log may be taken for what the old one had."""
    store = VolatileStore()
    async with await open_node(store) as node:
        async with await open_channel(node) as channel:
            for _ in range(5):
                await channel.send(b"x", ephemeral=True)
            await asyncio.sleep(1)
            cursor = channel.last_event_sequence
        await store.purge_channel("room")
        async with await open_channel(node) as channel:
            with pytest.raises(CursorAheadError) as caught:
                channel.events(after=cursor)
            assert (caught.value.after, caught.value.last) == (5, 0)
            stream = channel.events(after=caught.value.last)
            await channel.send(b"new", ephemeral=True)
            assert await drain(stream) == [1, 0]


@virtual_time
async def test_iteration_ends_when_the_channel_closes() -> None:
    async with await open_node() as node:
        channel = await open_channel(node)
        streams = [channel.events(), channel.events(after=0)]
        await channel.send(b"x", ephemeral=True)
        await asyncio.sleep(1)
        waiting = asyncio.create_task(drain(streams[0], 60))
        await asyncio.sleep(1)
        await channel.close()
        assert (await waiting)[:1] == [1]
        assert asyncio.get_running_loop().time() == 2
        assert [event.sequence async for event in streams[1] if event.sequence] == [1]
        with pytest.raises(ChannelClosedError):
            channel.events()


@virtual_time
async def test_a_stream_that_is_left_early_is_forgotten() -> None:
    async with await open_node() as node, await open_channel(node) as channel:
        async with channel.events() as events:
            await channel.send(b"x", ephemeral=True)
            async for event in events:
                assert event.channel_id == "room"
                break
        await channel.send(b"x", ephemeral=True)
        await asyncio.sleep(1)
        assert await drain(events) == []
