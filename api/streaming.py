"""Server-Sent Events and long polling over a channel's events.

An event stream begins in the durable log where the client asks for it and goes on live, without a gap and without a
repeat; every reader has its own place, so that readers never take events from each other. It must not decide what
happened, nor which client may read.

Spec: RELIABLE-CHANNEL-API, events; WHATWG HTML, Server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, Protocol

from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.requests import HTTPConnection, Request
from starlette.types import Receive, Scope, Send

from api.readers import (
    MAX_BACKLOG_BYTES,
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
from reliable_channel import ChannelEvent, ReliableChannel

__all__ = (
    "EventStreamResponse",
    "InvalidCursorError",
    "OpenStreams",
    "StreamingService",
    "TooManyStreamsError",
    "cursor_of",
    "event_json",
    "event_response",
    "poll_events",
    "rfc3339",
    "streams_of",
)

SEND_TIMEOUT_SEC: Final = 20.0
"""A client whose connection takes no bytes for so long is disconnected, seconds."""

SHUTDOWN_GRACE_SEC: Final = 2.0
"""How long a stream may take to say goodbye when the server stops, seconds."""

MAX_WAIT_SEC: Final = 30.0
"""Longest wait of one poll, seconds."""

MAX_POLL_EVENTS: Final = 1_000
"""Most events that one poll returns."""

MAX_POLL_BYTES: Final = 4 << 20
"""Payload bytes after which a poll returns what it has, though more were asked for."""

POLL_PAGE: Final = 32
"""Events read at once for a poll: what is read beyond `MAX_POLL_BYTES` was read in vain."""

logger = logging.getLogger(__name__)


class StreamingSettings(Protocol):
    """The settings that streams need."""

    @property
    def heartbeat_sec(self) -> float:
        """Seconds between heartbeats."""

    @property
    def max_streams(self) -> int:
        """Event streams and sockets that may be open at once."""


class StreamingService(Protocol):
    """What streams need of the service."""

    closing: asyncio.Event
    """Set when the service begins to close: streams end then."""

    @property
    def settings(self) -> StreamingSettings:
        """The settings that streams need."""


def streams_of(connection: HTTPConnection, service: StreamingService) -> OpenStreams:
    """Return all readers of the application that a request came to; made with the first."""
    state = connection.app.state
    streams: OpenStreams | None = getattr(state, "streams", None)
    if streams is None:
        streams = state.streams = OpenStreams(service.settings.max_streams, service.closing)
    return streams


def cursor_of(headers: Mapping[str, str], after: int | None) -> int | None:
    """Return where a reader wants to begin: ``Last-Event-ID`` beats ``?after=``; None is from now on.

    Raises:
        InvalidCursorError: The header is not a sequence.
    """
    last = headers.get("last-event-id")
    return after if last is None else parse_cursor(last, "Last-Event-ID")


async def event_response(
    service: StreamingService,
    channel: ReliableChannel,
    request: Request,
    *,
    after: int | None,
    send_timeout_sec: float = SEND_TIMEOUT_SEC,
    max_backlog_bytes: int = MAX_BACKLOG_BYTES,
) -> EventStreamResponse:
    """Return a stream of a channel's events; it is open from now on.

    Args:
        service: Whose shutdown ends it.
        channel: Whose events.
        request: Its ``Last-Event-ID`` beats ``after``.
        after: Begin after this sequence; None begins with what comes from now on.
        send_timeout_sec: See `SEND_TIMEOUT_SEC`.
        max_backlog_bytes: See `api.readers.MAX_BACKLOG_BYTES`.

    Raises:
        CursorAheadError: There is no such sequence yet.
        EventsExpiredError: Retention removed what comes after it.
        TooManyStreamsError: No more streams are allowed.
        ChannelClosedError: The channel is closed.
        ChannelFailedError: The channel stopped working.
        StoreUnavailableError: The store failed.
    """
    begin = cursor_of(request.headers, after)
    reader = EventReader(
        channel,
        after=begin,
        kind="sse",
        streams=streams_of(request, service),
        max_backlog_bytes=max_backlog_bytes,
    )
    try:
        await check_cursor(channel, begin)
    except BaseException:
        await reader.close()
        raise
    return EventStreamResponse(
        reader, heartbeat_sec=service.settings.heartbeat_sec, send_timeout_sec=send_timeout_sec
    )


class EventStreamResponse(EventSourceResponse):
    """What a reader gets, as Server-Sent Events; closes the reader whatever happens.

    Args:
        reader: Where the events come from.
        heartbeat_sec: Seconds between comment lines that keep the connection alive.
        send_timeout_sec: See `SEND_TIMEOUT_SEC`.
    """

    def __init__(
        self, reader: EventReader, *, heartbeat_sec: float, send_timeout_sec: float
    ) -> None:
        self._reader = reader
        super().__init__(
            _frames(reader),
            ping=heartbeat_sec,
            sep="\n",
            ping_message_factory=lambda: ServerSentEvent(comment="heartbeat", sep="\n"),
            send_timeout=send_timeout_sec,
            shutdown_grace_period=SHUTDOWN_GRACE_SEC,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the reader ends or the client goes."""
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            logger.info(
                "an event stream took no bytes for %s s and was closed; its client can resume after %s",
                self.send_timeout,
                self._reader.last_sequence,
            )
        finally:
            await self._reader.close()


async def _frames(reader: EventReader) -> AsyncIterator[ServerSentEvent]:
    """Write what a reader gives; only durable events have an id to resume from."""
    async for item in reader.items():
        yield _end_frame(item) if isinstance(item, StreamEnd) else _event_frame(item)


def _event_frame(event: ChannelEvent) -> ServerSentEvent:
    sequence = str(event.sequence) if event.sequence else None
    return ServerSentEvent(to_text(event_json(event)), event=event.name, id=sequence, sep="\n")


def _end_frame(end: StreamEnd) -> ServerSentEvent:
    return ServerSentEvent(to_text(end.json()), event=end.name, sep="\n")


def to_text(body: dict[str, Any]) -> str:
    """Return a JSON text without line breaks."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


# --- Long polling --------------------------------------------------------------------------------


async def poll_events(
    channel: ReliableChannel,
    *,
    after: int | None,
    limit: int,
    wait: float = 0,
    closing: asyncio.Event,
    max_bytes: int = MAX_POLL_BYTES,
) -> dict[str, Any]:
    """Return durable events; where there is none yet, wait for the first.

    Args:
        channel: Whose events.
        after: Begin after this sequence; None begins with what comes from now on.
        limit: At most so many events, 1 to `MAX_POLL_EVENTS`.
        wait: At most so long, 0 to `MAX_WAIT_SEC`, seconds.
        closing: Ends the wait at once.
        max_bytes: See `MAX_POLL_BYTES`; one event comes in any case.

    Returns:
        ``events`` as of `event_json`, and ``next``, where to begin the next time.

    Raises:
        CursorAheadError: There is no such sequence yet.
        EventsExpiredError: Retention removed what comes after it.
        ChannelClosedError: The channel is closed.
        ChannelFailedError: The channel stopped working.
        StoreUnavailableError: The store failed.
    """
    limit = min(max(limit, 1), MAX_POLL_EVENTS)
    wait = min(max(wait, 0), MAX_WAIT_SEC)
    begin = channel.last_event_sequence if after is None else after
    await check_cursor(channel, begin)
    async with channel.events() as stream:  # before the first look: nothing comes unseen in between
        events = await _read(channel, begin, limit, max_bytes)
        if not events and wait and not closing.is_set():
            await _first_of(stream, closing, wait)
            events = await _read(channel, begin, limit, max_bytes)
    return {
        "events": [event_json(event) for event in events],
        "next": events[-1].sequence if events else begin,
    }


async def _read(
    channel: ReliableChannel, after: int, limit: int, max_bytes: int
) -> list[ChannelEvent]:
    """Return the durable events after a sequence that a poll may hold."""
    events: list[ChannelEvent] = []
    size = 0
    while len(events) < limit:
        wanted = min(POLL_PAGE, limit - len(events))
        page = await channel.read_events(after=after, limit=wanted)
        for event in page:
            size += len(getattr(event, "message", b""))
            if size > max_bytes and events:
                return events
            events.append(event)
        if len(page) < wanted:
            break
        after = page[-1].sequence
    return events


async def _first_of(
    stream: AsyncIterator[ChannelEvent], closing: asyncio.Event, wait: float
) -> None:
    """Return when a durable event has come, the channel or the service closes, or the time is over."""

    async def durable() -> None:
        async for event in stream:
            if event.sequence:
                return

    tasks = [asyncio.ensure_future(durable()), asyncio.ensure_future(closing.wait())]
    try:
        done, _ = await asyncio.wait(tasks, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
