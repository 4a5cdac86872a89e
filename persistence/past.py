"""What a database still knows of its channels' past: durable events, requests, sent messages, in pages.

It only reads, each page in a short transaction of its own: it makes no tables, takes no channel, and a process that
drives the channels meanwhile neither waits for it nor has its write-ahead log held back by it. Payloads stay where
they are; only their sizes are read. What anything means is the caller's business.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from sqlalchemy import Connection, Select, func, select, tuple_

from persistence.inspection import check_revision, database_of, read_only
from persistence.leases import LEDGER_LEASE
from persistence.tables import TABLES, channels
from reliable_channel.records import ChannelRecord, EventRecord, LogRecord, RequestRecord
from reliable_channel.types import MS, ChannelId, MessageId, Nanoseconds, ParticipantId, RequestId

PAGE: Final = 2_000
"""Events read in one transaction."""

SENT_PAGE: Final = 20_000
"""Sent messages read in one transaction: each looks through all message ids of the channel."""

IDS_AT_ONCE: Final = 500
"""Message ids asked for in one statement."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelPast:
    """Of which channel, and of what time, there are events. Nothing that comes later is read."""

    channel_id: ChannelId
    sender_id: ParticipantId
    since_ns: Nanoseconds
    """From then on all events are there: its beginning, or where retention has removed the first ones, the time of the
    oldest that is left."""
    until_ns: Nanoseconds
    """Of its last sign of life: an event, or a message that came in."""
    oldest: int
    """Sequence before the first event."""
    newest: int
    """Sequence of the last event."""
    lamport_clock: int
    """Lamport time of the last message."""


class PastRequest(NamedTuple):
    """A ``send`` that is not forgotten."""

    request_id: RequestId
    created_ns: Nanoseconds
    payload_bytes: int
    segment_count: int
    ephemeral: bool
    lamport_timestamp: int
    """Of its first data segment; 0 when ephemeral."""


class PastEvent(NamedTuple):
    """A durable event without its payload."""

    sequence: int
    name: str
    time_ns: Nanoseconds
    request_id: RequestId | None
    message_id: MessageId | None
    sender_id: ParticipantId | None
    payload_bytes: int
    detail: str
    lamport_timestamp: int
    """Of the message that was received, milliseconds; 0 where there is none, or its id is not in the log."""


class PastMessage(NamedTuple):
    """An own message, found by its first data segment."""

    message_id: MessageId
    lamport_timestamp: int
    """At least the time of ``send``, Unix milliseconds; later only while segments were made faster than one a
    millisecond, or another participant's clock was ahead."""
    segment_count: int


class Past:
    """Reads a database.

    Args:
        url: As for ``open_store``, but not ``memory://``.

    Raises:
        ConfigurationError: The URL is unusable.
    """

    def __init__(self, url: str) -> None:
        self._backend = database_of(url)

    @property
    def name(self) -> str:
        """The file, or the URL without its password."""
        return self._backend.name

    def channels(self) -> tuple[ChannelPast, ...]:
        """Return the channels that have been opened, by their ids.

        Raises:
            ConfigurationError: There is no such database, or its tables are not those of this release.
            StoreUnavailableError: The database cannot be read.
        """

        def job(connection: Connection) -> tuple[ChannelPast, ...]:
            check_revision(self._backend, connection)
            rows = connection.execute(_CHANNELS).all()
            return tuple(_channel_past(connection, row) for row in rows)

        return self._read(job)

    def requests(self, channel_id: ChannelId) -> list[PastRequest]:
        """Return the requests that are open, or final and not forgotten (``SdsConfig.max_finished_requests``).

        Raises:
            StoreUnavailableError: The database cannot be read.
        """
        statement = select(*(_requests.c[name] for name in PastRequest._fields)).where(
            _requests.c.channel_id == channel_id
        )
        return [PastRequest._make(row) for row in self._rows(statement)]

    def events(self, past: ChannelPast, page: int = PAGE) -> Iterator[PastEvent]:
        """Give a channel's events in their order; those that retention removes meanwhile are left out.

        Raises:
            StoreUnavailableError: The database cannot be read.
        """
        after = past.oldest
        while after < past.newest:
            rows = self._read(partial(_events_after, past=past, after=after, limit=page))
            yield from rows
            if len(rows) < page:
                return
            after = rows[-1].sequence

    def sent(self, past: ChannelPast, page: int = SENT_PAGE) -> Iterator[PastMessage]:
        """Give a channel's own messages by their Lamport time, since the log's beginning; no ephemeral ones.

        Raises:
            StoreUnavailableError: The database cannot be read.
        """
        after = (past.since_ns // MS, "")
        while True:
            statement = (
                select(*(_log.c[name] for name in PastMessage._fields))
                .where(
                    _log.c.channel_id == past.channel_id,
                    _log.c.sender_id == past.sender_id,
                    _log.c.segment_index == 0,
                    _log.c.lamport_timestamp <= past.lamport_clock,
                    tuple_(_log.c.lamport_timestamp, _log.c.message_id) > tuple_(*after),
                )
                .order_by(_log.c.lamport_timestamp, _log.c.message_id)
                .limit(page)
            )
            rows = [PastMessage._make(row) for row in self._rows(statement)]
            yield from rows
            if len(rows) < page:
                return
            after = (rows[-1].lamport_timestamp, rows[-1].message_id)

    def _rows(self, statement: Select[Any]) -> Sequence[Any]:
        return self._read(lambda connection: connection.execute(statement).all())

    def _read(self, job: Callable[[Connection], _T]) -> _T:
        return read_only(self._backend, job)


# --- Rows ----------------------------------------------------------------------------------------

_state: Final = TABLES[ChannelRecord]
_requests: Final = TABLES[RequestRecord]
_log: Final = TABLES[LogRecord]
_events: Final = TABLES[EventRecord]

_CHANNELS: Final = (
    select(
        channels.c.channel_id,
        channels.c.removed_through,
        channels.c.newest_event,
        _state.c.sender_id,
        _state.c.created_ns,
        _state.c.last_seen_ns,
        _state.c.lamport_clock,
    )
    .join_from(channels, _state, _state.c.channel_id == channels.c.channel_id)
    .where(~channels.c.channel_id.startswith(LEDGER_LEASE))
    .order_by(channels.c.channel_id)
)


def _channel_past(connection: Connection, row: Any) -> ChannelPast:
    of_channel = select(_events.c.time_ns).where(_events.c.channel_id == row.channel_id).limit(1)
    oldest_ns = connection.scalar(of_channel.order_by(_events.c.sequence))
    newest_ns = connection.scalar(of_channel.order_by(_events.c.sequence.desc()))
    return ChannelPast(
        channel_id=row.channel_id,
        sender_id=row.sender_id,
        since_ns=(row.removed_through and oldest_ns) or row.created_ns,
        until_ns=max(row.last_seen_ns, newest_ns or 0),
        oldest=row.removed_through,
        newest=row.newest_event,
        lamport_clock=row.lamport_clock,
    )


def _events_after(
    connection: Connection, past: ChannelPast, after: int, limit: int
) -> list[PastEvent]:
    statement = (
        select(
            _events.c.sequence,
            _events.c.name,
            _events.c.time_ns,
            _events.c.request_id,
            _events.c.message_id,
            _events.c.sender_id,
            func.coalesce(func.length(_events.c.payload), 0),
            _events.c.detail,
        )
        .where(
            _events.c.channel_id == past.channel_id,
            _events.c.sequence > after,
            _events.c.sequence <= past.newest,
        )
        .order_by(_events.c.sequence)
        .limit(limit)
    )
    rows = connection.execute(statement).all()
    ids = [row.message_id for row in rows if row.message_id is not None]
    lamports: dict[MessageId, int] = {}
    for place in range(0, len(ids), IDS_AT_ONCE):
        found = select(_log.c.message_id, _log.c.lamport_timestamp).where(
            _log.c.channel_id == past.channel_id,
            _log.c.message_id.in_(ids[place : place + IDS_AT_ONCE]),
        )
        lamports.update((name, lamport) for name, lamport in connection.execute(found))
    return [PastEvent(*row, lamports.get(row.message_id, 0)) for row in rows]
