"""Who is shown an event: handlers on channels, then the hub alone."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from reliable_channel import (
    ChannelClosedError,
    ConfigurationError,
    CursorAheadError,
    MessageReceivedEvent,
    MessageSentEvent,
)
from reliable_channel.events import event_to_record
from reliable_channel.hub import EventHub
from reliable_channel.records import EventRecord
from tests.support.failing_store import outcome, pair, side, soon
from tests.support.virtual_loop import virtual_time


@virtual_time
async def test_handlers_may_be_functions_and_coroutine_functions() -> None:
    async with pair() as (alice, bob):
        plain: list[bytes] = []
        slow: list[bytes] = []

        async def handle(event: MessageReceivedEvent) -> None:
            await asyncio.sleep(1)
            slow.append(event.message)

        bob.channel.on("reliable:message:received", lambda event: plain.append(event.message))
        bob.channel.on("reliable:message:received", handle)
        for payload in (b"one", b"two"):
            await alice.channel.send(payload)
        await asyncio.sleep(0.5)
        assert (plain, slow) == ([b"one", b"two"], [])
        await asyncio.sleep(1)
        assert slow == [b"one", b"two"]


@virtual_time
async def test_a_handler_gets_the_events_of_its_name_only() -> None:
    async with pair() as (alice, _):
        sent: list[Any] = []
        alice.channel.on("reliable:message:sent", sent.append)
        await alice.channel.send(b"hello")
        await asyncio.sleep(10)
        assert [type(event) for event in sent] == [MessageSentEvent]
        assert len(alice.seen) > 1


@virtual_time
async def test_an_unknown_name_is_refused_and_the_known_ones_named() -> None:
    async with side("alice") as alice:
        for name in ("received", "reliable:message:recieved", "", MessageReceivedEvent, None):
            with pytest.raises(ConfigurationError, match="reliable:message:received"):
                alice.channel.on(name, print)


@pytest.mark.parametrize("is_async", [False, True])
@virtual_time
async def test_a_handler_that_raises_a_cancellation_does_not_stop_the_channel(
    *, is_async: bool
) -> None:
    """As when it asks a cancelled future for its result."""

    def fail(event: Any) -> None:
        raise asyncio.CancelledError

    async def fail_later(event: Any) -> None:
        fail(event)

    async with pair() as (alice, bob):
        bob.channel.on("reliable:message:received", fail_later if is_async else fail)
        for payload in (b"one", b"two"):
            request_id = await alice.channel.send(payload)
            assert await outcome(alice.channel.wait_delivered(request_id)) == ("bob",)
        assert isinstance(await outcome(bob.channel.send(b"still working")), str)
    assert bob.received == [b"one", b"two"]


@pytest.mark.parametrize("is_async", [False, True])
@virtual_time
async def test_a_raising_handler_hurts_nobody(
    caplog: pytest.LogCaptureFixture, *, is_async: bool
) -> None:
    async with pair() as (alice, bob):

        def fail(event: Any) -> None:
            raise ValueError("in the handler")

        async def fail_later(event: Any) -> None:
            await asyncio.sleep(0.1)
            raise ValueError("in the handler")

        bob.channel.on("reliable:message:received", fail_later if is_async else fail)
        after: list[Any] = []
        bob.channel.on("reliable:message:received", after.append)
        stream = bob.channel.events()
        for payload in (b"one", b"two"):
            await soon(alice.channel.wait_delivered(await alice.channel.send(payload)))
        assert [event.message for event in after] == [b"one", b"two"]
        assert (await anext(stream)).message == b"one"
    assert bob.received == [b"one", b"two"]
    lines = [item for item in caplog.records if item.levelno == logging.ERROR]
    assert len(lines) == 2
    assert all("room" in line.getMessage() and line.exc_info for line in lines)


@virtual_time
async def test_a_removed_handler_is_not_called_any_more() -> None:
    async with pair() as (alice, bob):
        seen: list[Any] = []
        remove = bob.channel.on("reliable:message:received", seen.append)
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"one")))
        for _ in range(2):
            remove()
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"two")))
        assert [event.message for event in seen] == [b"one"]


@virtual_time
async def test_removing_one_registration_leaves_another_of_the_same_handler() -> None:
    async with pair() as (alice, bob):
        seen: list[Any] = []
        remove = bob.channel.on("reliable:message:received", seen.append)
        bob.channel.on("reliable:message:received", seen.append)
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"one")))
        for _ in range(2):
            remove()
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"two")))
        assert [event.message for event in seen] == [b"one", b"one", b"two"]


@virtual_time
async def test_a_handler_may_send_remove_itself_and_close() -> None:
    async with pair() as (alice, bob):

        async def answer(event: MessageReceivedEvent) -> None:
            remove()
            await bob.channel.send(b"answer to " + event.message)
            await asyncio.sleep(10)
            await bob.channel.close()
            bob.trace.append("closed")

        remove = bob.channel.on("reliable:message:received", answer)
        for payload in (b"one", b"two"):
            await alice.channel.send(payload)
        await asyncio.sleep(20)
        assert alice.received == [b"answer to one"]
        assert bob.trace[-1] == "closed"
        assert isinstance(await outcome(bob.channel.send(b"x")), ChannelClosedError)


# --- The hub alone -------------------------------------------------------------------------------


def sent(sequence: int, request_id: str = "r") -> MessageSentEvent:
    return MessageSentEvent(channel_id="room", sequence=sequence, request_id=request_id)


async def read_nothing(after: int, limit: int) -> list[EventRecord]:
    return []


def hub() -> EventHub:
    return EventHub("room", read_nothing, last_sequence=3)


@virtual_time
async def test_streams_begin_after_what_was_shown() -> None:
    shown = hub()
    stream = shown.stream(None)
    assert stream.last_sequence == 3
    shown.emit(sent(4))
    assert shown.stream(None).last_sequence == 4
    assert (await anext(stream)).sequence == 4


@virtual_time
async def test_pages_end_with_what_was_shown() -> None:
    """The store may have events already that are about to be shown."""
    asked: list[tuple[int, int]] = []

    async def read(after: int, limit: int) -> list[EventRecord]:
        asked.append((after, limit))
        sequences = range(after + 1, min(after + limit, 5) + 1)
        return [event_to_record(sent(sequence)) for sequence in sequences]

    shown = EventHub("room", read, last_sequence=3)
    for after, limit, found in (
        (0, 2, [1, 2]),
        (1, 9, [2, 3]),
        (2, 1 << 70, [3]),
        (3, 1, []),
    ):
        assert [event.sequence for event in await shown.read(after, limit)] == found
    shown.emit(sent(4))
    assert shown.last_sequence == 4
    assert await shown.read(3, 9) == [sent(4)]
    assert asked == [(0, 2), (1, 2), (2, 1), (3, 1)]


@virtual_time
async def test_a_stream_replays_what_was_shown_and_no_more() -> None:
    """Where it got to is a cursor, which would otherwise be ahead of the channel."""
    records = [event_to_record(sent(sequence)) for sequence in range(1, 6)]

    async def read(after: int, limit: int) -> list[EventRecord]:
        return records[after : after + limit]

    shown = EventHub("room", read, last_sequence=3)
    stream = shown.stream(0)
    found = [await anext(stream) for _ in range(3)]
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(1)
    assert not waiting.done()
    assert shown.stream(stream.last_sequence).last_sequence == 3
    shown.emit(sent(4))
    assert [event.sequence for event in (*found, await waiting)] == [1, 2, 3, 4]


@pytest.mark.parametrize("after", [4, 50, 1 << 70])
@virtual_time
async def test_a_cursor_ahead_of_the_log_is_refused(after: int) -> None:
    """Or what comes next would be passed over, as if it were known."""
    shown = hub()
    with pytest.raises(CursorAheadError) as caught:
        shown.stream(after)
    assert (caught.value.after, caught.value.last) == (after, 3)
    with pytest.raises(CursorAheadError) as caught:
        await shown.read(after, 1)
    assert (caught.value.after, caught.value.last) == (after, 3)


@virtual_time
async def test_a_handler_may_read_on_from_the_event_that_it_gets() -> None:
    """Whoever is told of an event first, it counts as shown by then."""
    shown = hub()
    streams = []
    shown.on("reliable:message:sent", lambda event: streams.append(shown.stream(event.sequence)))
    before = shown.stream(None)
    for sequence in (4, 5):
        shown.emit(sent(sequence))
    assert [stream.last_sequence for stream in streams] == [4, 5]
    assert [(await anext(stream)).sequence for stream in (before, streams[0])] == [4, 5]


@virtual_time
async def test_a_final_event_wakes_those_who_wait_for_its_request_only() -> None:
    shown = hub()
    waits = {
        name: asyncio.create_task(shown.wait_final(name, 5, ephemeral=name == "ephemeral"))
        for name in ("ephemeral", "other")
    }
    await asyncio.sleep(0)
    shown.emit(sent(4, "other"))
    shown.emit(sent(5, "ephemeral"))
    assert (await waits["ephemeral"]).sequence == 5
    with pytest.raises(TimeoutError):
        await waits["other"]


@virtual_time
async def test_an_end_is_told_to_streams_and_waiters() -> None:
    shown = hub()
    stream = shown.stream(None)
    waiting = asyncio.create_task(shown.wait_final("r", None, ephemeral=False))
    await asyncio.sleep(0)
    shown.end(ChannelClosedError("room"), None)
    with pytest.raises(ChannelClosedError):
        await waiting
    assert [event async for event in stream] == []
