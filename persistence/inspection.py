"""What a database holds, in numbers, for people who run it; also while other processes drive its channels.

It only reads, in one transaction: it makes no tables, brings none up to date, takes no channel. It must not know the
protocol, only rows.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Select, func, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from persistence.backend import Backend
from persistence.leases import LEDGER_LEASE
from persistence.migrations import REVISIONS, revision_of
from persistence.sql import backend_of
from persistence.tables import TABLES, channels
from reliable_channel.errors import ConfigurationError, StoreUnavailableError
from reliable_channel.records import (
    BodyRecord,
    ChannelRecord,
    LedgerRecord,
    LogRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    RequestRecord,
)
from reliable_channel.types import SECOND, ChannelId, Nanoseconds, RequestId

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRequest:
    """A request that has no final event yet."""

    request_id: RequestId
    age_sec: float
    """Since ``send``, by this machine's clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelReport:
    """One channel in numbers."""

    channel_id: ChannelId
    sender_id: str | None
    """None before the channel was first opened."""
    driven: bool | None
    """Whether a process drives it now; None where that cannot be told."""
    log_entries: int
    """Message ids that are known."""
    events: int
    """Events that can be replayed."""
    kept_bytes: int
    """Events, messages for repair, and what is under way in both directions; without ids and the like."""
    outgoing_segments: int
    """Segments of open requests."""
    pending_segments: int
    """Received data segments of payloads that are not delivered: incomplete, or parked."""
    parity_segments: int
    """Received parity segments of those payloads."""
    open_requests: int
    """Requests that have no final event yet."""
    oldest_unacknowledged: OpenRequest | None
    """The oldest of them that waits for acknowledgements: no ephemeral one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerReport:
    """What is counted of an epoch budget. How many messages an epoch may have is not in the database."""

    scope: str
    """Whose: ``node:<period>`` or ``channel:<id>:<period>``."""
    period_sec: int | None
    """Length of an epoch, seconds; None where the scope does not name it."""
    epoch: int
    """The newest in which anything was counted."""
    used: int
    """Transmissions counted in it."""
    in_flight: int
    """Of those, how many the node has not reported: they count in the next epoch too."""
    held: int
    """Of the epoch before, how many the node has not reported: they count in this one too."""
    is_over: bool
    """That epoch has ended, so that the whole budget is there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReport:
    """What a database holds."""

    database: str
    """The file, or the URL without its password."""
    schema_revision: str
    channels: tuple[ChannelReport, ...]
    """By their ids."""
    ledgers: tuple[LedgerReport, ...]
    """By their scopes."""


def inspect_store(url: str) -> StoreReport:
    """Return what a database holds. It blocks, for as long as counting all rows takes.

    Args:
        url: As for ``open_store``.

    Raises:
        ConfigurationError: The URL is unusable, there is no such database, or its tables are not those of this release.
        StoreUnavailableError: The database cannot be read.
    """
    backend = database_of(url)
    return read_only(backend, lambda connection: _report(backend, connection))


def database_of(url: str) -> Backend:
    """Return the backend that the URL of a database names.

    Raises:
        ConfigurationError: The URL names none, or is unusable.
    """
    if url.partition(":")[0] not in ("sqlite", "postgresql+psycopg"):
        problem = (
            "a database is named sqlite:///relative.db, sqlite:////absolute.db or "
            "postgresql+psycopg://user:password@host/database"
        )
        raise ConfigurationError(problem)
    return backend_of(url)


def read_only(backend: Backend, job: Callable[[Connection], _T]) -> _T:
    """Do a job in a transaction that cannot write.

    Raises:
        ConfigurationError: There is no such database.
        StoreUnavailableError: It cannot be read.
    """
    try:
        return backend.look(job)
    except SQLAlchemyError as error:
        cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
        reason = str(cause).partition("\n")[0] or type(cause).__name__
        message = f"{backend.name}: {reason}"
        raise StoreUnavailableError(message) from cause


def revision_in(backend: Backend, connection: Connection) -> str:
    """Return the revision of a database's tables.

    Raises:
        ConfigurationError: They are another program's or a newer release's, or there are none.
    """
    revision = revision_of(connection, backend.name, backend.another_place)
    if revision is None:
        problem = f"{backend.name} is empty; no store was ever opened there"
        raise ConfigurationError(problem)
    return revision


def check_revision(backend: Backend, connection: Connection) -> str:
    """Return the revision of a database's tables, which is this release's.

    Raises:
        ConfigurationError: It is another one.
    """
    backend.check(connection)
    revision = revision_in(backend, connection)
    if revision != REVISIONS[-1]:
        problem = (
            f"{backend.name} has schema version {revision}, this release reads {REVISIONS[-1]}; "
            "open it with this release once, which brings it up to date"
        )
        raise ConfigurationError(problem)
    return revision


def ledger_period(scope: str) -> int | None:
    """Return the length of an epoch, seconds, that a ledger's scope names; None where it names none."""
    period = scope.rpartition(":")[2]
    return int(period) if ":" in scope and period.isdecimal() and int(period) else None


# --- Rows ----------------------------------------------------------------------------------------


def _per_channel(kind: type[Any], *sizes: str) -> Select[Any]:
    """Return what counts the rows of each channel, and adds up the lengths of some columns."""
    table = TABLES[kind]
    octets = sum((func.length(table.c[name]) for name in sizes[1:]), func.length(table.c[sizes[0]]))
    return select(table.c.channel_id, func.count(), func.coalesce(func.sum(octets), 0)).group_by(
        table.c.channel_id
    )


_state: Final = TABLES[ChannelRecord]
_requests: Final = TABLES[RequestRecord]
_ledger: Final = TABLES[LedgerRecord]

_CHANNELS: Final = (
    select(
        channels.c.channel_id, _state.c.sender_id, channels.c.event_count, channels.c.event_bytes
    )
    .outerjoin_from(channels, _state, _state.c.channel_id == channels.c.channel_id)
    .where(~channels.c.channel_id.startswith(LEDGER_LEASE))
    .order_by(channels.c.channel_id)
)
_OPEN_REQUESTS: Final = (
    select(
        _requests.c.channel_id,
        _requests.c.request_id,
        _requests.c.created_ns,
        _requests.c.ephemeral,
    )
    .where(_requests.c.state == "open")
    .order_by(_requests.c.created_ns)
)
_LEDGERS: Final = select(
    _ledger.c.scope, _ledger.c.epoch, _ledger.c.used, _ledger.c.in_flight, _ledger.c.held
).order_by(_ledger.c.scope)

_COUNTED: Final = {
    LogRecord: _per_channel(LogRecord, "message_id"),
    OutgoingRecord: _per_channel(OutgoingRecord, "message_id"),
    PendingRecord: _per_channel(PendingRecord, "history", "content"),
    ParityRecord: _per_channel(ParityRecord, "history", "chunk"),
    BodyRecord: _per_channel(BodyRecord, "data"),
}
"""Rows and their bytes, by record type."""


def _report(backend: Backend, connection: Connection) -> StoreReport:
    revision = check_revision(backend, connection)
    now = time.time_ns()
    return StoreReport(
        database=backend.name,
        schema_revision=revision,
        channels=_channels(backend, connection, now),
        ledgers=tuple(_ledger_report(*row, now=now) for row in connection.execute(_LEDGERS)),
    )


def _channels(
    backend: Backend, connection: Connection, now: Nanoseconds
) -> tuple[ChannelReport, ...]:
    found = connection.execute(_CHANNELS).all()
    driven = backend.leases(connection).driven(connection, [row.channel_id for row in found])
    counted = {
        kind: {
            channel_id: (count, octets) for channel_id, count, octets in connection.execute(rows)
        }
        for kind, rows in _COUNTED.items()
    }
    requests: dict[ChannelId, list[OpenRequest]] = {}
    oldest: dict[ChannelId, OpenRequest] = {}
    for channel_id, request_id, created_ns, is_ephemeral in connection.execute(_OPEN_REQUESTS):
        request = OpenRequest(request_id=request_id, age_sec=(now - created_ns) / SECOND)
        requests.setdefault(channel_id, []).append(request)
        if not is_ephemeral:
            oldest.setdefault(channel_id, request)

    def count(kind: type[Any], channel_id: ChannelId) -> int:
        return int(counted[kind].get(channel_id, (0, 0))[0])

    def octets(kind: type[Any], channel_id: ChannelId) -> int:
        return int(counted[kind].get(channel_id, (0, 0))[1])

    kept = (PendingRecord, ParityRecord, BodyRecord)
    return tuple(
        ChannelReport(
            channel_id=channel_id,
            sender_id=sender_id,
            driven=driven[channel_id],
            log_entries=count(LogRecord, channel_id),
            events=event_count,
            kept_bytes=event_bytes + sum(octets(kind, channel_id) for kind in kept),
            outgoing_segments=count(OutgoingRecord, channel_id),
            pending_segments=count(PendingRecord, channel_id),
            parity_segments=count(ParityRecord, channel_id),
            open_requests=len(requests.get(channel_id, ())),
            oldest_unacknowledged=oldest.get(channel_id),
        )
        for channel_id, sender_id, event_count, event_bytes in found
    )


def _ledger_report(
    scope: str, epoch: int, used: int, in_flight: int, held: int, *, now: Nanoseconds
) -> LedgerReport:
    period = ledger_period(scope)
    return LedgerReport(
        scope=scope,
        period_sec=period,
        epoch=epoch,
        used=used,
        in_flight=in_flight,
        held=held,
        is_over=period is not None and now // (period * SECOND) > epoch,
    )
