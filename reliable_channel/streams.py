"""Event streams: what ``channel.events()`` gives out, and callbacks beside it.

A stream first replays from the store where it was asked to, then goes on live without a gap. Live events wait in a
bounded buffer; a stream that is not read fast enough ends with ``SlowConsumerError`` and never blocks the channel or
other streams. It must not decide what happened.

Spec: RELIABLE-CHANNEL-API, events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from reliable_channel.errors import ReliableChannelError, SlowConsumerError
from reliable_channel.events import ChannelEvent, event_from_record
from reliable_channel.records import EventRecord
from reliable_channel.types import ChannelId

MAX_PENDING: Final = 10_000
"""Live events that wait in a stream before it ends with SlowConsumerError."""

PAGE: Final = 256
"""Events read from the store at once."""

ReadEvents = Callable[[int, int], Awaitable[list[EventRecord]]]
"""Reads a page of durable events: after which sequence, how many at most."""


class EventStream:
    """Events of one channel, in order; an async iterator and an async context manager.

    It is registered when made: nothing that happens from then on is missed. Iteration ends when the channel or the
    stream is closed. Cancelling a read loses no event.

    Args:
        channel_id: The channel.
        read: Reads durable events from the store.
        last_sequence: Sequence of the last event shown on the channel so far.
        after: Replay from the store what comes after this sequence, which is at most ``last_sequence``; None begins
            with what comes from now on.
        on_close: Called once when the stream closes.
        max_pending: Live events that may wait.
    """

    def __init__(
        self,
        channel_id: ChannelId,
        read: ReadEvents,
        *,
        last_sequence: int,
        after: int | None,
        on_close: Callable[[EventStream], None],
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._channel_id = channel_id
        self._read = read
        self._shown = last_sequence
        self._cursor = last_sequence if after is None else after
        self._replaying = after is not None and after < last_sequence
        self._replayed: deque[ChannelEvent] = deque()
        self._pending: deque[ChannelEvent] = deque()
        self._max_pending = max_pending
        self._wake = asyncio.Event()
        self._closed = False
        self._error: ReliableChannelError | None = None
        self._overflow = 0
        self._on_close = on_close

    @property
    def last_sequence(self) -> int:
        """Sequence of the last durable event given out, or where the stream began."""
        return self._cursor

    def push(self, event: ChannelEvent) -> None:
        """Take an event from the channel; while the stream replays, the store keeps it instead."""
        if event.sequence:
            self._shown = event.sequence
        if self._replaying or self._overflow or self._error is not None:
            return
        if len(self._pending) >= self._max_pending:
            self._overflow = len(self._pending)
            self._pending.clear()
        else:
            self._pending.append(event)
        self._wake.set()

    def end(self, error: ReliableChannelError | None = None) -> None:
        """End the stream after what it still holds: the channel closed, or failed."""
        self._closed = True
        self._error = self._error or error
        self._wake.set()

    async def close(self) -> None:
        """Stop receiving; harmless when repeated."""
        if self._on_close is not _nothing:
            on_close, self._on_close = self._on_close, _nothing
            on_close(self)
        self._pending.clear()
        self._replayed.clear()
        self._replaying = False
        self.end()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChannelEvent:
        """Return the next event.

        Raises:
            StopAsyncIteration: The channel or the stream was closed.
            SlowConsumerError: Too many events waited; resume with ``after``.
            EventsExpiredError: The replay was asked for events that retention removed.
            ChannelFailedError: The channel stopped working.
        """
        while True:
            if self._replaying and not self._replayed:
                await self._replay()
            source = self._replayed or self._pending
            if source:
                event = source.popleft()
                self._cursor = event.sequence or self._cursor
                return event
            if self._replaying:
                continue
            if self._overflow:
                raise SlowConsumerError(self._cursor, self._overflow)
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()

    async def _replay(self) -> None:
        """Read the next page of what was shown live; after the last, go on live.

        The store may have more, which is not shown yet: nobody's cursor is to be ahead of the channel.
        """
        page = await self._read(self._cursor, min(PAGE, self._shown - self._cursor))
        for record in page:
            self._replayed.append(event_from_record(self._channel_id, record))
        reached = page[-1].sequence if page else self._cursor
        if reached >= self._shown or not page:
            self._replaying = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _nothing(stream: EventStream) -> None:
    """Stand in for a callback that was called."""
