"""What is said to the database: statements, and the way from records to rows and back.

The mapping is the same for all record types: a row is the channel (where it belongs to one) and the
record's fields in order. What writes rows is compiled to text once, to be executed with tuples:
SQLAlchemy's own way with parameters would cost more than SQLite's work. Nothing is executed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    Boolean,
    ClauseElement,
    ColumnElement,
    Dialect,
    LargeBinary,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    delete,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from persistence.tables import TABLES, channels
from reliable_channel.records import EventRecord, LedgerRecord, Record, RecordKey
from reliable_channel.types import ChannelId
from reliable_channel.volatile import EVENT_OVERHEAD_BYTES

RowValues: TypeAlias = tuple[object, ...]
"""Parameters of a compiled statement."""

_events: Final = TABLES[EventRecord]
_THIS_CHANNEL: Final = channels.c.channel_id == bindparam("channel")
_EVENTS_OF_CHANNEL: Final = _events.c.channel_id == bindparam("channel")
_EVENT_SIZE: Final = (
    EVENT_OVERHEAD_BYTES
    + func.length(_events.c.detail)
    + func.coalesce(func.length(_events.c.payload), 0)
)
_TOTALS: Final = (channels.c.event_count, channels.c.event_bytes, channels.c.removed_through)


def _columns(kind: type[Record]) -> list[ColumnElement[Any]]:
    """Return the columns that hold the record's fields, in their order."""
    return [TABLES[kind].c[field.name] for field in fields(kind)]


def compile_text(statement: ClauseElement, dialect: Dialect) -> str:
    """Return the statement's SQL, to be executed with a tuple of parameters."""
    return str(statement.compile(dialect=dialect))


# --- Rows of records -----------------------------------------------------------------------------


class RecordStatements:
    """Writing and reading the rows of one record type.

    Args:
        kind: The record type.
        dialect: The database's SQL and its way with values.
    """

    def __init__(self, kind: type[Record], dialect: Dialect) -> None:
        table = TABLES[kind]
        columns = _columns(kind)
        self._kind = kind
        self._names = tuple(column.name for column in columns)
        self._values = _values_reader(self._names)
        self._has_channel = "channel_id" in table.c
        self._writers = _converters(columns, dialect, _writer)
        self._readers = _converters(columns, dialect, _reader)
        self.upsert = compile_text(_upsert(table, dialect), dialect)
        """Writes a row, given ``row``."""
        in_this_row = [column == bindparam(None) for column in table.primary_key]
        self.delete = compile_text(delete(table).where(*in_this_row), dialect)
        """Deletes a row, given ``key``."""
        of_channel = [table.c.channel_id == bindparam(None)] if self._has_channel else []
        self.select = compile_text(select(*columns).where(*of_channel), dialect)
        """Reads the rows of a channel, given its id, for ``records``."""

    def row(self, channel_id: ChannelId, record: Record) -> RowValues:
        """Return the parameters of ``upsert``."""
        values = self._values(record)
        if self._writers:
            values = _converted(values, self._writers)
        return (channel_id, *values) if self._has_channel else values

    def key(self, channel_id: ChannelId, key: RecordKey) -> RowValues:
        """Return the parameters of ``delete``."""
        return (channel_id, *key) if self._has_channel else key

    def record(self, values: RowValues) -> Record:
        """Return the record whose fields SQLAlchemy has read."""
        build: Callable[..., Record] = self._kind
        return build(**dict(zip(self._names, values, strict=True)))

    def records(self, rows: Iterable[RowValues]) -> list[Record]:
        """Return the records of rows as the driver gives them for ``select``."""
        names, readers = self._names, self._readers
        build: Callable[..., Record] = self._kind
        if readers:
            rows = (_converted(row, readers) for row in rows)
        return [build(**dict(zip(names, row, strict=True))) for row in rows]


Convert: TypeAlias = Callable[[Any], object]
"""What a value needs on its way into the database or out of it."""


def _values_reader(names: tuple[str, ...]) -> Callable[[Record], RowValues]:
    """Return what reads the values of a record in one call."""
    read: Callable[[Record], Any] = attrgetter(*names)
    return read if len(names) > 1 else lambda record: (read(record),)


def _converted(values: RowValues, converters: list[tuple[int, Convert]]) -> RowValues:
    """Return the values with some of them converted."""
    changed = list(values)
    for position, convert in converters:
        changed[position] = convert(changed[position])
    return tuple(changed)


def _converters(
    columns: list[ColumnElement[Any]],
    dialect: Dialect,
    choose: Callable[[ColumnElement[Any], Dialect], Convert | None],
) -> list[tuple[int, Convert]]:
    """Return what values need, by position; most need nothing."""
    found = [(position, choose(column, dialect)) for position, column in enumerate(columns)]
    return [(position, convert) for position, convert in found if convert is not None]


def _writer(column: ColumnElement[Any], dialect: Dialect) -> Convert | None:
    if isinstance(column.type, Boolean | LargeBinary):
        return None  # all drivers take these as they are; SQLAlchemy would check and wrap them
    if dialect.name == "postgresql" and isinstance(column.type, Text):
        return _without_nul
    return column.type.dialect_impl(dialect).bind_processor(dialect)


def _reader(column: ColumnElement[Any], dialect: Dialect) -> Convert | None:
    if isinstance(column.type, TypeDecorator):  # ours
        return column.type.dialect_impl(dialect).result_processor(dialect, None)
    is_number = isinstance(column.type, Boolean) and not dialect.supports_native_boolean
    return bool if is_number else None


def _without_nul(value: object) -> object:
    """Return a text that PostgreSQL takes: ids have no such character, but what a node says may."""
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def _insert(table: Table, dialect: Dialect) -> sqlite.Insert | postgresql.Insert:
    """Return an insertion that knows what a conflict is; both databases say it alike."""
    return postgresql.insert(table) if dialect.name == "postgresql" else sqlite.insert(table)


def _upsert(table: Table, dialect: Dialect) -> sqlite.Insert | postgresql.Insert:
    statement = _insert(table, dialect)
    values = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    if not values:
        return statement.on_conflict_do_nothing()
    newer = None
    if table is TABLES[LedgerRecord]:  # it never goes back
        given, kept = statement.excluded, table.c
        # Crosswise: of two that have counted as much, the one with fewer open outcomes is the newer.
        newer = tuple_(given.epoch, given.used, kept.in_flight + kept.held) > tuple_(
            kept.epoch, kept.used, given.in_flight + given.held
        )
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key), set_=values, where=newer
    )


# --- Reading -------------------------------------------------------------------------------------

SELECT_EVENTS: Final = (
    select(*_columns(EventRecord))
    .where(_EVENTS_OF_CHANNEL, _events.c.sequence > bindparam("after"))
    .order_by(_events.c.sequence)
    .limit(bindparam("limit"))
)
"""A page of the channel's events."""

SELECT_REMOVED_THROUGH: Final = select(channels.c.removed_through).where(_THIS_CHANNEL)
"""Up to which sequence retention has removed the channel's events."""

SELECT_LEDGER: Final = select(*_columns(LedgerRecord)).where(
    TABLES[LedgerRecord].c.scope == bindparam("scope")
)
"""The ledger row of a scope."""

SET_LEDGER: Final = (
    update(TABLES[LedgerRecord])
    .where(TABLES[LedgerRecord].c.scope == bindparam("of"))
    .values(epoch=bindparam("now_in"), used=bindparam("now_used"))
)
"""Sets a ledger back, which a commit never does: for a database that nobody uses."""


# --- Channels and their event logs ---------------------------------------------------------------


SELECT_LEASE: Final = select(channels.c.lease).where(_THIS_CHANNEL)
"""Who took the channel last, on PostgreSQL."""

TAKE_CHANNEL: Final = (
    postgresql.insert(channels)
    .values(channel_id=bindparam("channel"), lease=bindparam("lease"))
    .on_conflict_do_update(index_elements=["channel_id"], set_={"lease": bindparam("lease")})
)
"""Writes who took the channel, on PostgreSQL."""


def add_channel(dialect: Dialect) -> str:
    """Return what makes a channel known, given its id; its rows refer to it."""
    statement = _insert(channels, dialect).values(channel_id=bindparam("channel"))
    return compile_text(statement.on_conflict_do_nothing(), dialect)


DELETE_CHANNEL: Final = delete(channels).where(_THIS_CHANNEL)
"""Forgets a channel with all its rows."""


def count_events(dialect: Dialect) -> str:
    """Return what counts appended events and returns the totals; nothing where not all came after the newest.

    It is given how many they are, their bytes, the last sequence, the channel id and the first sequence.
    """
    statement = (
        update(channels)
        .where(channels.c.channel_id == bindparam(None), channels.c.newest_event < bindparam(None))
        .ordered_values(
            (channels.c.event_count, channels.c.event_count + bindparam(None)),
            (channels.c.event_bytes, channels.c.event_bytes + bindparam(None)),
            (channels.c.newest_event, bindparam(None)),
        )
        .returning(*_TOTALS)
    )
    return compile_text(statement, dialect)


RECOUNT_EVENTS: Final = (
    update(channels)
    .where(_THIS_CHANNEL)
    .values(
        {
            name: select(value).where(_EVENTS_OF_CHANNEL).scalar_subquery()
            for name, value in {
                "event_count": func.count(),
                "event_bytes": func.coalesce(func.sum(_EVENT_SIZE), 0),
                "newest_event": func.coalesce(func.max(_events.c.sequence), 0),
            }.items()
        }
    )
    .returning(*_TOTALS)
)
"""Counts all events of the channel anew and returns the totals."""

SELECT_EVENT_SIZES: Final = (
    select(_events.c.sequence, _EVENT_SIZE, _events.c.time_ns)
    .where(_EVENTS_OF_CHANNEL, _events.c.sequence > bindparam("after"))
    .order_by(_events.c.sequence)
    .limit(bindparam("limit"))
)
"""Sequence, size and time of a page of the channel's events, oldest first."""

SELECT_TOTALS: Final = select(*_TOTALS).where(_THIS_CHANNEL)
"""The channel's event log in numbers."""

DELETE_EVENTS: Final = delete(_events).where(
    _EVENTS_OF_CHANNEL, _events.c.sequence <= bindparam("through")
)
"""Removes the channel's events up to a sequence."""

SET_TOTALS: Final = (
    update(channels)
    .where(_THIS_CHANNEL)
    .values(
        event_count=bindparam("count"),
        event_bytes=bindparam("octets"),
        removed_through=bindparam("through"),
    )
)
"""Says what the event log is after a removal."""
