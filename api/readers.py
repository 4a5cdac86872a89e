"""One reader of a channel's events: from the durable log, then live, to a word about why it ended.

What Server-Sent Events (``streaming``) and WebSockets (``sockets``) have in common: the JSON of an event, where a
reader begins, what it may hold back, how it ends, and how many there may be. It must not know how bytes reach anybody.

A reader is closed as slow when it is further behind the live channel than `MAX_BACKLOG_BYTES` of payload, or than
the events that an ``EventStream`` holds. Nothing is lost: it resumes after the last sequence it has.

Spec: RELIABLE-CHANNEL-API, events.
"""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from reliable_channel import (
    ChannelEvent,
    MessageReceivedEvent,
    ReliableChannel,
    ReliableChannelError,
    SlowConsumerError,
)
from reliable_channel.errors import one_line
from reliable_channel.types import Nanoseconds

MAX_BACKLOG_BYTES: Final = 64 << 20
"""Payload bytes that came since a reader began and that it has not taken, before it is closed as slow."""

MAX_SEQUENCE: Final = 2**63 - 1
"""Largest sequence that a store can hold."""

Kind: TypeAlias = Literal["sse", "websocket"]
"""How a reader is connected."""

EndName: TypeAlias = Literal["stream:slow", "stream:closing", "stream:closed", "stream:failed"]
"""What the last event of a stream is called."""

END_NAMES: Final[tuple[EndName, ...]] = (
    "stream:slow",
    "stream:closing",
    "stream:closed",
    "stream:failed",
)

RETRY_AFTER_SEC: Final = 5
"""When to try again where too many streams are open, seconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_NS = int((datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH).total_seconds()) * 10**9


class InvalidCursorError(ReliableChannelError, ValueError):
    """Where to go on from is not a sequence of the channel's events.

    Args:
        text: What is wrong and what to do.
    """


class TooManyStreamsError(ReliableChannelError):
    """As many event streams and sockets are open as the service allows; one may be free later.

    Args:
        limit: How many may be open.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.retry_after_sec = RETRY_AFTER_SEC
        super().__init__(
            f"{limit} event streams are open already; close one, or try again in {RETRY_AFTER_SEC} s"
        )


# --- JSON ----------------------------------------------------------------------------------------


def rfc3339(time_ns: Nanoseconds) -> str:
    """Return Unix nanoseconds as a UTC time of RFC 3339 with microseconds."""
    moment = _EPOCH + timedelta(microseconds=min(max(time_ns, 0), _LATEST_NS) // 1000)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


@cache
def _wire_fields(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """Return the fields that only this kind of event has, and their names in JSON."""
    common = ("channel_id", "sequence", "time_ns")
    names = [item.name for item in fields(kind) if item.name not in common]
    return tuple((name, "payload" if name == "message" else _camel(name)) for name in names)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _wire_value(name: str, value: Any) -> Any:
    match name:
        case "message":
            return base64.b64encode(value).decode("ascii")
        case "expected_at":
            return rfc3339(value)
        case "acknowledged":
            return dict(value)
        case _:
            return list(value) if isinstance(value, tuple) else value


def event_json(event: ChannelEvent) -> dict[str, Any]:
    """Return an event as the service shows it everywhere: camelCase, payload in base64, times by RFC 3339.

    ``sequence`` is 0 for what is live only; what is not known (None) is left out.
    """
    body: dict[str, Any] = {
        "sequence": event.sequence,
        "name": event.name,
        "channelId": event.channel_id,
        "time": rfc3339(event.time_ns),
    }
    kind: Any = type(event)
    for name, shown in _wire_fields(kind):
        value = getattr(event, name)
        if value is not None:
            body[shown] = _wire_value(name, value)
    return body


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last thing that a reader gets."""

    name: EndName
    channel_id: str
    reason: str
    """For people."""
    resume_after: int
    """The last sequence that went before it."""

    def json(self) -> dict[str, Any]:
        """Return it as the service shows it."""
        return {
            "name": self.name,
            "channelId": self.channel_id,
            "reason": self.reason,
            "resumeAfter": self.resume_after,
        }


# --- Where to begin ------------------------------------------------------------------------------


def parse_cursor(text: str, what: str) -> int:
    """Return the sequence that a text holds.

    Args:
        text: Decimal digits.
        what: Where it came from, for people.

    Raises:
        InvalidCursorError: It is none.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= MAX_SEQUENCE):
        problem = f"{what} must be a sequence from 0 to {MAX_SEQUENCE}, in digits"
        raise InvalidCursorError(problem)
    return int(text)


async def check_cursor(channel: ReliableChannel, after: int | None) -> None:
    """Do nothing if a reader can begin after a sequence.

    Raises:
        CursorAheadError: There is no such sequence yet.
        EventsExpiredError: Retention removed what comes after it.
        StoreUnavailableError: The store failed.
    """
    if after is not None:
        await channel.read_events(after=after, limit=1)


# --- Readers -------------------------------------------------------------------------------------


class OpenStreams:
    """All readers of a service: no more than allowed, and all of them end when the service closes.

    Args:
        limit: How many may be open at once.
        closing: Set when the service begins to close.

    Attributes:
        open: Readers by kind.
        ended: Readers that have ended since the process began, by kind and `EndName`, or
            ``stream:left`` where the client went or took no more bytes.
    """

    def __init__(self, limit: int, closing: asyncio.Event) -> None:
        self.limit = limit
        self.closing = closing
        self.open: Counter[Kind] = Counter()
        self.ended: Counter[tuple[Kind, str]] = Counter()
        self._readers: set[EventReader] = set()
        self._watch: asyncio.Task[None] | None = None

    def add(self, reader: EventReader) -> None:
        """Count a reader in.

        Raises:
            TooManyStreamsError: No more are allowed.
        """
        if len(self._readers) >= self.limit:
            raise TooManyStreamsError(self.limit)
        self._readers.add(reader)
        self.open[reader.kind] += 1
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._end_all())

    def remove(self, reader: EventReader) -> None:
        """Count a reader out; harmless when repeated."""
        if reader not in self._readers:
            return
        self._readers.remove(reader)
        self.open[reader.kind] -= 1
        self.ended[reader.kind, reader.ending] += 1
        if not self._readers and self._watch is not None:
            self._watch.cancel()
            self._watch = None

    async def _end_all(self) -> None:
        """Wake every reader when the service closes; each then says why it ends."""
        await self.closing.wait()
        for reader in list(self._readers):
            await reader.wake()


class EventReader:
    """The events of a channel for one client, registered when made: nothing from then on is missed.

    Args:
        channel: Whose events.
        after: Begin after this sequence, see `check_cursor`; None begins with what comes from now on.
        kind: How the client is connected.
        streams: All readers of the service.
        max_backlog_bytes: See `MAX_BACKLOG_BYTES`.

    Raises:
        TooManyStreamsError: No more readers are allowed.
        ChannelClosedError: The channel is closed.
        ChannelFailedError: The channel stopped working.
    """

    def __init__(
        self,
        channel: ReliableChannel,
        *,
        after: int | None,
        kind: Kind,
        streams: OpenStreams,
        max_backlog_bytes: int = MAX_BACKLOG_BYTES,
    ) -> None:
        self.kind: Kind = kind
        self.ending = "stream:left"
        self._channel_id = channel.channel_id
        self._streams = streams
        self._max_backlog = max_backlog_bytes
        self._backlog = 0
        self._counted_from = MAX_SEQUENCE + 1
        self._stream = channel.events(after=after)
        self.last_sequence = self._stream.last_sequence
        """The last durable event given out, or where it began."""
        self._unwatch = channel.on(MessageReceivedEvent.name, self._arrived)
        try:
            streams.add(self)
        except BaseException:
            self._unwatch()
            self._stream.end()
            raise

    def _arrived(self, event: MessageReceivedEvent) -> None:
        """Count what the reader has to take; end it where that is too much, after what it holds."""
        self._counted_from = min(self._counted_from, event.sequence)
        self._backlog += len(event.message)
        if self._backlog > self._max_backlog:
            self._stream.end(SlowConsumerError(self.last_sequence, 1))

    def _taken(self, event: ChannelEvent) -> None:
        self.last_sequence = event.sequence or self.last_sequence
        if isinstance(event, MessageReceivedEvent) and event.sequence >= self._counted_from:
            self._backlog -= len(event.message)

    async def items(self) -> AsyncIterator[ChannelEvent | StreamEnd]:
        """Give events in order, each once, then one word about why that was all."""
        closing = self._streams.closing
        try:
            if not closing.is_set():
                async for event in self._stream:
                    if closing.is_set():
                        break
                    self._taken(event)
                    yield event
        except SlowConsumerError:
            yield self._end("stream:slow", "events came faster than they were read")
        except ReliableChannelError as error:
            yield self._end("stream:failed", one_line(error))
        else:
            if closing.is_set():
                yield self._end("stream:closing", "the service is shutting down")
            else:
                yield self._end("stream:closed", "the channel was closed")

    def _end(self, name: EndName, reason: str) -> StreamEnd:
        self.ending = name
        return StreamEnd(name, self._channel_id, reason, self.last_sequence)

    async def wake(self) -> None:
        """Let `items` come to its end at once."""
        await self._stream.close()

    async def close(self) -> None:
        """Let go of everything; harmless when repeated."""
        self._unwatch()
        self._streams.remove(self)
        await self._stream.close()
