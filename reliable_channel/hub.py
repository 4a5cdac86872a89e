"""Where a channel's events go: streams, handlers, and those who wait for a request to end.

It must not decide what happened, nor let one reader hold up another.

Spec: RELIABLE-CHANNEL-API, events.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

from reliable_channel.errors import ConfigurationError, CursorAheadError, ReliableChannelError
from reliable_channel.events import (
    EVENT_NAMES,
    ChannelEvent,
    MessageSentEvent,
    event_from_record,
)
from reliable_channel.streams import EventStream, ReadEvents
from reliable_channel.types import ChannelId, RequestId

logger = logging.getLogger("reliable_channel.channel")

Handler: TypeAlias = Callable[[Any], Awaitable[None] | None]
"""Takes an event; a function or a coroutine function."""

_FINAL = frozenset(
    f"reliable:message:{ending}" for ending in ("delivered", "send-error", "delivery-error")
)


class Waiter(NamedTuple):
    """Somebody who waits for a request to end."""

    future: asyncio.Future[ChannelEvent]
    ephemeral: bool


def is_final(event: ChannelEvent) -> bool:
    """Tell whether an event is the last of its request; sent is that too for an ephemeral one."""
    return event.name in _FINAL


class EventHub:
    """Gives each event to everybody who asked for it.

    Args:
        channel_id: The channel.
        read: Reads durable events from the store.
        last_sequence: Sequence of the last event of the kept log.
    """

    def __init__(
        self,
        channel_id: ChannelId,
        read: ReadEvents,
        *,
        last_sequence: int,
    ) -> None:
        self._channel_id = channel_id
        self._read = read
        self._shown = last_sequence
        self._streams: dict[EventStream, None] = {}
        self._handlers: dict[str, dict[object, Handler]] = {}
        self._waiters: dict[RequestId, list[Waiter]] = {}
        self.handler_tasks: set[asyncio.Task[None]] = set()

    @property
    def last_sequence(self) -> int:
        """Sequence of the last durable event that was shown; 0 when there was none."""
        return self._shown

    async def read(self, after: int, limit: int) -> list[ChannelEvent]:
        """Return a page of the durable events that were shown.

        Args:
            after: Those that follow this sequence.
            limit: At most so many.

        Raises:
            CursorAheadError: No event of that sequence was shown.
            EventsExpiredError: Some of them were removed by retention.
            StoreUnavailableError: The store failed.
        """
        self._check_cursor(after)
        if after == self._shown:
            return []
        page = await self._read(after, min(limit, self._shown - after))
        return [event_from_record(self._channel_id, record) for record in page]

    def stream(self, after: int | None) -> EventStream:
        """Return a stream, registered; see ``EventStream``.

        Raises:
            CursorAheadError: No event of the sequence ``after`` was shown.
        """
        self._check_cursor(after or 0)
        stream = EventStream(
            self._channel_id,
            self._read,
            last_sequence=self._shown,
            after=after,
            on_close=self._forget,
        )
        self._streams[stream] = None
        return stream

    def _check_cursor(self, after: int) -> None:
        """Refuse a cursor of another log: what comes next here would be taken for known."""
        if after > self._shown:
            raise CursorAheadError(after, self._shown)

    def _forget(self, stream: EventStream) -> None:
        self._streams.pop(stream, None)

    def on(self, name: str, handler: Handler) -> Callable[[], None]:
        """Call a handler for each event of a name; return a function that ends it.

        Raises:
            ConfigurationError: No event has that name.
        """
        if name not in EVENT_NAMES:
            text = f"no event {name!r}; there are {', '.join(EVENT_NAMES)}"
            raise ConfigurationError(text)
        handlers = self._handlers.setdefault(name, {})
        registration = object()
        handlers[registration] = handler

        def remove() -> None:
            handlers.pop(registration, None)

        return remove

    async def wait_final(
        self, request_id: RequestId, timeout: float | None, *, ephemeral: bool
    ) -> ChannelEvent:
        """Wait for the final event of a request that was not shown yet.

        Args:
            request_id: The request.
            timeout: Seconds, or None.
            ephemeral: It ends when it is sent.

        Raises:
            TimeoutError: It has not ended in time.
            ReliableChannelError: What ``end`` was given.
        """
        future: asyncio.Future[ChannelEvent] = asyncio.get_running_loop().create_future()
        waiters = self._waiters.setdefault(request_id, [])
        waiter = Waiter(future, ephemeral)
        waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            waiters.remove(waiter)
            if not waiters:
                self._waiters.pop(request_id, None)

    def emit(self, event: ChannelEvent) -> None:
        """Show an event to streams, handlers and waiters."""
        if event.sequence:
            self._shown = event.sequence
        for stream in list(self._streams):
            stream.push(event)
        for handler in tuple(self._handlers.get(event.name, {}).values()):
            self._call(handler, event)
        for waiter in self._waiters.get(getattr(event, "request_id", ""), ()):
            ends = is_final(event) or (waiter.ephemeral and isinstance(event, MessageSentEvent))
            if ends and not waiter.future.done():
                waiter.future.set_result(event)

    def _call(self, handler: Handler, event: ChannelEvent) -> None:
        """Call a handler; its failure is its own."""
        try:
            result = handler(event)
        except (Exception, asyncio.CancelledError):
            logger.exception("channel %s: a handler of %s failed", self._channel_id, event.name)
            return
        if inspect.isawaitable(result):
            task = asyncio.ensure_future(self._await_handler(result, event.name))
            self.handler_tasks.add(task)
            task.add_done_callback(self.handler_tasks.discard)

    async def _await_handler(self, result: Awaitable[None], name: str) -> None:
        try:
            await result
        except Exception:
            logger.exception("channel %s: a handler of %s failed", self._channel_id, name)

    def end(self, waiters: ReliableChannelError, streams: ReliableChannelError | None) -> None:
        """Let nobody wait any longer.

        Args:
            waiters: What those get who wait for a request.
            streams: What streams end with after what they still hold; None is an ordinary end.
        """
        for waiting in self._waiters.values():
            for waiter in waiting:
                if not waiter.future.done():
                    waiter.future.set_exception(waiters)
        for stream in list(self._streams):
            stream.end(streams)
