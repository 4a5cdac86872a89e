"""What one reader of events gets: JSON of each kind, cursors, bounds, endings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.readers import (
    EventReader,
    InvalidCursorError,
    OpenStreams,
    StreamEnd,
    TooManyStreamsError,
    check_cursor,
    event_json,
    parse_cursor,
    rfc3339,
)
from persistence import MemoryStore, open_store
from reliable_channel import (
    ChannelClosedError,
    ChannelEvent,
    CursorAheadError,
    EventsExpiredError,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageProgressEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    ReliableChannel,
    SenderIdConflictEvent,
)
from reliable_channel.events import EVENT_NAMES
from reliable_channel.records import EventRecord
from reliable_channel.types import ChannelId, MessageId, ParticipantId, RequestId
from tests.support.streaming import room

ROOM: dict[str, Any] = {
    "channel_id": ChannelId("room"),
    "sequence": 7,
    "time_ns": 1_767_225_600_123_456_789,
}
COMMON = {"channelId": "room", "sequence": 7, "time": "2026-01-01T00:00:00.123456Z"}
REQUEST = RequestId("r1")
BOB = ParticipantId("bob")

EVENTS: list[tuple[ChannelEvent, dict[str, Any]]] = [
    (
        MessageReceivedEvent(**ROOM, message=b"\x00\xff", sender_id=BOB, message_id=MessageId("m")),
        {
            "payload": "AP8=",
            "senderId": "bob",
            "messageId": "m",
            "ephemeral": False,
            "late": False,
        },
    ),
    (MessageSentEvent(**ROOM, request_id=REQUEST), {"requestId": "r1"}),
    (
        MessageDeliveredEvent(**ROOM, request_id=REQUEST, recipients=(BOB,)),
        {"requestId": "r1", "recipients": ["bob"]},
    ),
    (
        MessageSendErrorEvent(**ROOM, request_id=REQUEST, error="no"),
        {"requestId": "r1", "error": "no"},
    ),
    (
        MessageDeliveryErrorEvent(**ROOM, request_id=REQUEST, error="no"),
        {"requestId": "r1", "error": "no"},
    ),
    (
        MessageQueuedEvent(**ROOM, request_id=REQUEST, expected_at=1_767_225_660_000_000_000),
        {"requestId": "r1", "expectedAt": "2026-01-01T00:01:00.000000Z"},
    ),
    (
        MessageLostEvent(**ROOM, message_id=MessageId("m"), reason="parking_full"),
        {"messageId": "m", "reason": "parking_full", "explanation": ""},
    ),
    (
        MessageProgressEvent(
            **ROOM, request_id=REQUEST, sent=3, acknowledged=((BOB, 2),), total=4, participants=5
        ),
        {
            "requestId": "r1",
            "sent": 3,
            "acknowledged": {"bob": 2},
            "total": 4,
            "recipients": [],
            "participants": 5,
        },
    ),
    (
        SenderIdConflictEvent(**ROOM, sender_id=BOB, message_id=MessageId("m")),
        {"senderId": "bob", "messageId": "m"},
    ),
]


@pytest.mark.parametrize(("event", "own"), EVENTS, ids=[event.name for event, _ in EVENTS])
def test_every_event_has_a_json_form(event: ChannelEvent, own: dict[str, Any]) -> None:
    assert event_json(event) == {**COMMON, "name": event.name, **own}


def test_the_table_has_every_event() -> None:
    assert {event.name for event, _ in EVENTS} == set(EVENT_NAMES)


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (999, "1970-01-01T00:00:00.000000Z"),
        (1_000, "1970-01-01T00:00:00.000001Z"),
        (-5, "1970-01-01T00:00:00.000000Z"),
        (1 << 70, "9999-12-31T00:00:00.000000Z"),
    ],
)
def test_times(time_ns: int, text: str) -> None:
    assert rfc3339(time_ns) == text


@given(st.integers(0, 2**63 - 1))
def test_cursors_are_read_as_they_are_written(sequence: int) -> None:
    assert parse_cursor(str(sequence), "after") == sequence


@given(st.text())
def test_whatever_else_a_cursor_is_it_is_refused(text: str) -> None:
    try:
        number = parse_cursor(text, "after")
    except InvalidCursorError as error:
        assert "after" in str(error)  # noqa: PT017
    else:
        assert text.isascii()
        assert int(text) == number <= 2**63 - 1


# --- On a channel --------------------------------------------------------------------------------


def streams(limit: int = 10) -> OpenStreams:
    return OpenStreams(limit, asyncio.Event())


async def say(alice: ReliableChannel, bob: ReliableChannel, payloads: list[bytes]) -> None:
    async with bob.events() as heard:
        for payload in payloads:
            await alice.send(payload, ephemeral=True)
            await anext(heard)


async def test_only_what_is_there_is_a_cursor() -> None:
    async with room(open_store("memory://", max_events=2)) as (alice, bob):
        await say(alice, bob, [b"1", b"2", b"3", b"4"])
        for good in (None, 2, 3, 4):
            await check_cursor(bob, good)
        with pytest.raises(CursorAheadError):
            await check_cursor(bob, 5)
        with pytest.raises(EventsExpiredError):
            await check_cursor(bob, 1)


async def test_a_reader_that_is_read_is_never_behind() -> None:
    async with room() as (alice, bob):
        readers = streams()
        await say(alice, bob, [bytes(60)] * 20)  # the replay counts for nothing
        reader = EventReader(bob, after=0, kind="sse", streams=readers, max_backlog_bytes=100)
        items = reader.items()
        for sequence in range(1, 21):
            assert getattr(await anext(items), "sequence", None) == sequence
        for sequence in range(21, 60):
            await say(alice, bob, [bytes(60)])
            assert getattr(await anext(items), "sequence", None) == sequence
        await reader.close()
        assert readers.ended == {("sse", "stream:left"): 1}


async def test_a_reader_too_far_behind_ends_after_what_it_holds() -> None:
    async with room() as (alice, bob):
        reader = EventReader(bob, after=None, kind="sse", streams=streams(), max_backlog_bytes=100)
        await say(alice, bob, [bytes(60)] * 5)
        *events, end = [item async for item in reader.items()]
        await reader.close()
    assert [getattr(event, "sequence", 0) for event in events] == [1, 2]
    assert isinstance(end, StreamEnd)
    assert (end.name, end.resume_after) == ("stream:slow", 2)
    assert end.json()["resumeAfter"] == 2


async def test_what_is_replayed_gives_no_credit() -> None:
    async with room() as (alice, bob):
        await say(alice, bob, [bytes(60)] * 5)
        reader = EventReader(bob, after=0, kind="sse", streams=streams(), max_backlog_bytes=100)
        items = reader.items()
        for _ in range(5):
            await anext(items)
        await say(alice, bob, [bytes(60)] * 5)
        *events, end = [item async for item in items]
        await reader.close()
    assert [getattr(event, "sequence", 0) for event in events] == [6, 7]
    assert getattr(end, "resume_after", 0) == 7


class GatedStore(MemoryStore):
    """Answers questions for events when its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.asked = asyncio.Event()

    async def read_events(
        self, channel_id: ChannelId, *, after: int, limit: int
    ) -> list[EventRecord]:
        self.asked.set()
        await self.gate.wait()
        return await super().read_events(channel_id, after=after, limit=limit)


async def test_a_page_that_comes_after_the_end_of_the_service_is_not_given_out() -> None:
    store = GatedStore()
    async with room(store) as (alice, bob):
        await say(alice, bob, [b"1", b"2"])
        readers = streams()
        reader = EventReader(bob, after=0, kind="sse", streams=readers)
        first = asyncio.ensure_future(anext(reader.items()))
        await store.asked.wait()
        readers.closing.set()
        store.gate.set()
        end = await first
        await reader.close()
    assert (getattr(end, "name", ""), getattr(end, "resume_after", -1)) == ("stream:closing", 0)


async def test_a_closed_reader_counts_no_more() -> None:
    async with room() as (alice, bob):
        readers = streams(limit=1)
        reader = EventReader(bob, after=None, kind="websocket", streams=readers)
        with pytest.raises(TooManyStreamsError) as refused:
            EventReader(bob, after=None, kind="sse", streams=readers)
        assert refused.value.limit == 1
        await reader.close()
        await reader.close()
        assert dict(readers.open) == {"websocket": 0}
        again = EventReader(bob, after=None, kind="sse", streams=readers)
        await say(alice, bob, [b"1"])
        await again.close()
        assert readers.ended == {("websocket", "stream:left"): 1, ("sse", "stream:left"): 1}


async def test_a_failed_channel_says_why() -> None:
    async with room() as (_, bob):
        reader = EventReader(bob, after=None, kind="sse", streams=streams())
        await bob._node.close()
        [end] = [item async for item in reader.items()]
        await reader.close()
    assert isinstance(end, StreamEnd)
    assert end.name == "stream:failed"
    assert "NodeClosedError" in end.reason


async def test_all_readers_end_when_the_service_closes() -> None:
    async with room() as (alice, bob):
        readers = streams()
        holding = EventReader(bob, after=None, kind="sse", streams=readers)
        await say(alice, bob, [b"1", b"2"])
        waiting = EventReader(bob, after=None, kind="sse", streams=readers)
        first = asyncio.ensure_future(anext(waiting.items()))
        await asyncio.sleep(0)
        items = holding.items()
        await anext(items)
        readers.closing.set()
        ends = [await first, await anext(items)]
        await waiting.close()
        await holding.close()
    assert [getattr(end, "name", "") for end in ends] == ["stream:closing"] * 2
    assert [getattr(end, "resume_after", -1) for end in ends] == [2, 1]


async def test_a_closed_channel_has_no_readers() -> None:
    async with room() as (alice, _):
        await alice.close()
        with pytest.raises(ChannelClosedError):
            EventReader(alice, after=None, kind="sse", streams=streams())
