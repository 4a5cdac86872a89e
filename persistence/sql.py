"""A durable store on SQLAlchemy Core.

`SqlStore` is the asyncio side: it hands each call to one worker thread of its own, so that the
event loop never waits for a disk. `_Database` is the blocking side and runs in that thread. Nothing
here knows the protocol.

Each commit is one transaction. With ``synchronous="FULL"`` it is on the disk when `commit` returns;
with ``"NORMAL"`` the newest commits can be lost when the machine (not only the process) stops, but
never parts of one.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from threading import Lock
from typing import Final, Literal, ParamSpec, Self, TypeAlias, TypeVar, cast
from weakref import WeakValueDictionary

from sqlalchemy import URL, Connection, Engine, create_engine, event, insert, inspect, select
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from persistence.retention import EventRetention, EventTotals, event_size
from persistence.statements import (
    ADD_CHANNEL,
    COUNT_EVENTS,
    DELETE_CHANNEL,
    DELETE_EVENTS,
    RECOUNT_EVENTS,
    SELECT_EVENT_SIZES,
    SELECT_EVENTS,
    SELECT_LEDGER,
    SELECT_REMOVED_THROUGH,
    SELECT_ROWS,
    SET_TOTALS,
    RecordStatements,
    RowValues,
    compile_text,
)
from persistence.tables import SCHEMA_VERSION, TABLES, metadata, schema_version
from reliable_channel.errors import (
    ChannelExistsError,
    ConfigurationError,
    EventsExpiredError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from reliable_channel.records import Changes, EventRecord, LedgerRecord, Record, Snapshot
from reliable_channel.types import ChannelId
from reliable_channel.volatile import MAX_EVENTS

MAX_EVENT_BYTES: Final = 1 << 30
"""Size of the events kept of each channel unless said otherwise, bytes.

More than in memory: an application may be down for long.
"""

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a call waits while another process writes unless said otherwise, milliseconds."""

MAX_BUSY_TIMEOUT_MS: Final = 3_600_000
"""Largest accepted, milliseconds: an hour."""

WAL_RETRY_S: Final = 0.01
"""Distance of attempts to put a new file into WAL mode, seconds."""

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]
"""How SQLite waits for the disk."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class SqlStore:
    """Keeps the state of channels in an SQLite file; implements ``ChannelStore``.

    Cancelling a call does not harm the store: what has begun in the worker thread finishes there,
    what has not begun never does. A closed store can be opened again. An object belongs to one
    event loop; other objects of the process may use the same file, but not the same channel.

    Args:
        url: ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; the folder must exist.
        max_events: Events kept of each channel; the oldest go first.
        max_event_bytes: Size of the events kept of each channel, bytes; the newest always stays.
        synchronous: ``FULL`` or ``NORMAL``; what they promise is said above.
        busy_timeout_ms: How long a call waits while another process writes, milliseconds.

    Raises:
        ConfigurationError: The URL or a setting is unusable.
    """

    def __init__(
        self,
        url: str,
        *,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> None:
        problems = []
        if synchronous not in ("FULL", "NORMAL"):
            problems.append(f"synchronous must be 'FULL' or 'NORMAL', not {synchronous!r}")
        if not 0 <= busy_timeout_ms <= MAX_BUSY_TIMEOUT_MS:
            problems.append(f"busy_timeout_ms must be from 0 to {MAX_BUSY_TIMEOUT_MS}")
        if problems:
            raise ConfigurationError(problems)
        self._path = _sqlite_path(url)
        self._retention = EventRetention(max_events=max_events, max_event_bytes=max_event_bytes)
        self._synchronous = synchronous
        self._busy_timeout_ms = busy_timeout_ms
        self._opening = asyncio.Lock()
        self._database: _Database | None = None

    async def open(self) -> None:
        """Open the file, and make the tables where it is new; harmless when repeated.

        Raises:
            ConfigurationError: The file belongs to another program or to a newer release.
            StoreUnavailableError: The file cannot be opened or written.
        """
        async with self._opening:
            if self._database is not None:
                return
            engine = _sqlite_engine(self._path, self._synchronous, self._busy_timeout_ms)
            database = _Database(engine, self._path, self._retention)
            try:
                await database.run(database.prepare)
            except BaseException:
                database.stop()
                raise
            self._database = database

    async def close(self) -> None:
        """Finish what was begun, give all channels back, close the file; harmless when repeated."""
        async with self._opening:
            database, self._database = self._database, None
        if database is not None:
            await asyncio.shield(asyncio.wrap_future(database.stop()))

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def acquire_channel(self, channel_id: ChannelId) -> Snapshot:
        """Take the channel and return its rows, but for the events.

        Raises:
            ChannelExistsError: A store object of this process drives it already.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """
        database = self._opened()
        database.claim(channel_id)
        try:
            return await database.run(database.load, channel_id)
        except BaseException:
            database.disclaim(channel_id)
            raise

    async def release_channel(self, channel_id: ChannelId) -> None:
        """Give the channel back once what was begun is done; harmless when it is not held."""
        database = self._database
        if database is not None:
            await asyncio.shield(database.run(database.disclaim, channel_id))

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Apply all changes durably in one transaction, or none.

        A ledger row belongs to no channel and is never deleted: the larger of (epoch, used) stays.

        Raises:
            StoreClosedError: The store is not open.
            StoreError: The database refuses a row for good; nothing was applied.
            StoreUnavailableError: The database failed; nothing was applied.
        """
        database = self._opened()
        await database.run(database.commit, channel_id, dict(changes))

    async def read_events(
        self, channel_id: ChannelId, *, after: int, limit: int
    ) -> list[EventRecord]:
        """Return events with a larger sequence, ascending, at most ``limit``.

        Raises:
            EventsExpiredError: Some of them were removed by retention.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """
        database = self._opened()
        return await database.run(database.read_events, channel_id, after, limit)

    async def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Return the ledger row of a scope, or None.

        Raises:
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """
        database = self._opened()
        return await database.run(database.load_ledger, scope)

    async def purge_channel(self, channel_id: ChannelId) -> None:
        """Forget everything about a channel but its ledger: what was transmitted stays transmitted.

        Raises:
            ChannelExistsError: Another store object drives it.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed; nothing was forgotten.
        """
        database = self._opened()
        await database.run(database.purge, channel_id)

    def _opened(self) -> _Database:
        if self._database is None:
            raise StoreClosedError
        return self._database


# --- The blocking side ---------------------------------------------------------------------------

_holders: WeakValueDictionary[tuple[str, ChannelId], _Database] = WeakValueDictionary()
"""Who drives a channel, by database and channel; an object that is gone drives nothing."""

_holders_lock: Final = Lock()


class _Database:
    """One opening of a database, and the thread in which everything that blocks is done.

    Args:
        engine: Connects when first used; begins transactions as its option ``begin`` says.
        name: Identifies the database within the process and in errors; holds no password.
        retention: Bounds of each channel's events.
    """

    def __init__(self, engine: Engine, name: str, retention: EventRetention) -> None:
        self._engine = engine
        self._reads = engine.execution_options(begin="BEGIN")
        # The write lock at once: SQLite does not wait where a read lock has to become one.
        self._writes = engine.execution_options(begin="BEGIN IMMEDIATE")
        self._name = name
        self._retention = retention
        self._statements: dict[type[Record], RecordStatements] = {}
        self._add_channel = ""
        self._writer: Connection | None = None
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="reliable-channel-store")

    # On the event loop.

    def run(
        self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> asyncio.Future[_T]:
        """Have a job done in the worker thread, after those before it."""
        return asyncio.wrap_future(self._submit(job, *args, **kwargs))

    def stop(self) -> Future[None]:
        """Have the worker thread do what it was given, close the database and end."""
        disposed = self._submit(self.dispose)
        self._worker.shutdown(wait=False)
        return disposed

    def claim(self, channel_id: ChannelId) -> None:
        """Take a channel.

        Raises:
            ChannelExistsError: It is taken.
        """
        with _holders_lock:
            if (self._name, channel_id) in _holders:
                raise ChannelExistsError(channel_id, "on this store")
            _holders[self._name, channel_id] = self

    def disclaim(self, channel_id: ChannelId) -> None:
        """Give a channel back if it is held."""
        with _holders_lock:
            if _holders.get((self._name, channel_id)) is self:
                del _holders[self._name, channel_id]

    # In the worker thread.

    def prepare(self) -> None:
        """Make the tables where there are none, refuse those that we do not know."""
        with self._reads.begin() as connection:
            is_new = self._is_new(connection)
        _enter_wal_mode(self._engine)  # only now: what is not ours stays as it was
        if is_new:
            with self._writes.begin() as connection:
                if self._is_new(connection):  # still: another process may have been faster
                    metadata.create_all(connection)
                    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))
        dialect = self._engine.dialect
        self._statements = {kind: RecordStatements(kind, dialect) for kind in TABLES}
        self._add_channel = compile_text(ADD_CHANNEL, dialect)

    def dispose(self) -> None:
        """Give all channels back and close the database."""
        try:
            if self._writer is not None:
                self._writer.close()
            self._engine.dispose()
        finally:
            with _holders_lock:
                for place in [place for place, holder in _holders.items() if holder is self]:
                    del _holders[place]

    def load(self, channel_id: ChannelId) -> Snapshot:
        """Return the rows of a channel, but for the events."""
        snapshot: dict[type[Record], list[Record]] = {}
        with self._reads.begin() as connection:
            for kind, statement in SELECT_ROWS.items():
                rows = connection.execute(statement, {"channel": channel_id})
                record = self._statements[kind].record
                snapshot[kind] = [record(row) for row in rows]
        return snapshot

    def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Apply all changes in one transaction."""
        writer = self._writing()
        kinds = {kind for kind, _ in changes}
        batches = self._batches(channel_id, changes)
        with writer.begin():
            # The driver's own cursor: SQLAlchemy's execution would cost more than SQLite's work.
            with closing(writer.connection.cursor()) as cursor:
                if kinds - {LedgerRecord}:
                    cursor.execute(self._add_channel, (channel_id,))
                for statement, rows in batches.items():
                    cursor.executemany(statement, rows)
            if EventRecord in kinds:
                totals = self._count_events(writer, channel_id, changes)
                if self._retention.is_exceeded(totals):
                    self._remove_oldest(writer, channel_id, totals)

    def read_events(self, channel_id: ChannelId, after: int, limit: int) -> list[EventRecord]:
        """Return events with a larger sequence, if none of them was removed."""
        with self._reads.begin() as connection:
            removed = connection.scalar(SELECT_REMOVED_THROUGH, {"channel": channel_id})
            if removed is not None and after < removed:
                raise EventsExpiredError(after, removed + 1)
            page = {"channel": channel_id, "after": after, "limit": limit}
            rows = connection.execute(SELECT_EVENTS, page)
            build = self._statements[EventRecord].record
            return [cast("EventRecord", build(row)) for row in rows]

    def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Return the ledger row of a scope."""
        with self._reads.begin() as connection:
            row = connection.execute(SELECT_LEDGER, {"scope": scope}).one_or_none()
        if row is None:
            return None
        return cast("LedgerRecord", self._statements[LedgerRecord].record(row))

    def purge(self, channel_id: ChannelId) -> None:
        """Delete everything of a channel that nobody else drives."""
        writer = self._writing()
        with _holders_lock:
            holder = _holders.get((self._name, channel_id), self)
        if holder is not self:
            raise ChannelExistsError(channel_id, "on this store")
        with writer.begin():
            writer.execute(DELETE_CHANNEL, {"channel": channel_id})

    def _submit(self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        return self._worker.submit(self._translate_errors, job, *args, **kwargs)

    def _translate_errors(
        self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Do a job and turn the database's errors into ours; the only place where that is done."""
        driver = self._engine.dialect.loaded_dbapi
        try:
            return job(*args, **kwargs)
        except (SQLAlchemyError, driver.Error) as error:
            cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
            lasting = (driver.DataError, driver.IntegrityError, driver.ProgrammingError)
            translated = StoreError if isinstance(cause, lasting) else StoreUnavailableError
            reason = str(cause).partition("\n")[0] or type(cause).__name__
            message = f"{self._name}: {reason}"
            raise translated(message) from cause

    def _writing(self) -> Connection:
        """Return the connection of all commits; getting one costs as much as using it."""
        if self._writer is None:
            self._writer = self._writes.connect()
        return self._writer

    def _is_new(self, connection: Connection) -> bool:
        """Say whether there are no tables yet; refuse those that are not ours."""
        names = inspect(connection).get_table_names()
        if schema_version.name in names:
            version = connection.scalar(select(schema_version.c.version))
            if version == SCHEMA_VERSION:
                return False
            problem = (
                f"{self._name} has schema version {version}, this release knows {SCHEMA_VERSION}; "
                "use the release that wrote it, or a newer one"
            )
            raise ConfigurationError(problem)
        if names:
            problem = f"{self._name} is a database of another program; name a new file"
            raise ConfigurationError(problem)
        return True

    def _batches(self, channel_id: ChannelId, changes: Changes) -> dict[str, list[RowValues]]:
        """Return parameters by statement: each statement is executed once for all its rows."""
        batches: defaultdict[str, list[RowValues]] = defaultdict(list)
        for (kind, key), record in changes.items():
            statements = self._statements[kind]
            if record is not None:
                batches[statements.upsert].append(statements.row(channel_id, record))
            elif kind is not LedgerRecord:
                batches[statements.delete].append(statements.key(channel_id, key))
        return batches

    def _count_events(
        self, connection: Connection, channel_id: ChannelId, changes: Changes
    ) -> EventTotals:
        """Bring the numbers of the event log up to date after changes of events."""
        sequences = [cast("int", key[0]) for kind, key in changes if kind is EventRecord]
        events = [record for record in changes.values() if isinstance(record, EventRecord)]
        channel = {"channel": channel_id}
        row = None
        if len(events) == len(sequences):
            appended = {
                "first": min(sequences),
                "last": max(sequences),
                "count": len(events),
                "octets": sum(map(event_size, events)),
            }
            row = connection.execute(COUNT_EVENTS, channel | appended).one_or_none()
        if row is None:  # some were replaced or deleted
            row = connection.execute(RECOUNT_EVENTS, channel).one()
        return EventTotals(*row)

    def _remove_oldest(
        self, connection: Connection, channel_id: ChannelId, totals: EventTotals
    ) -> None:
        """Remove the oldest events until the rest is within the bounds."""
        oldest = connection.execute(SELECT_EVENT_SIZES, {"channel": channel_id})
        totals = self._retention.trim(totals, oldest)
        oldest.close()
        kept = {
            "channel": channel_id,
            "count": totals.count,
            "octets": totals.octets,
            "through": totals.removed_through,
        }
        connection.execute(DELETE_EVENTS, kept)
        connection.execute(SET_TOTALS, kept)


# --- SQLite --------------------------------------------------------------------------------------


def _sqlite_path(url: str) -> str:
    """Return the file that a URL names, as an absolute path without symbolic links."""
    scheme, _, path = url.partition(":///")
    if scheme != "sqlite" or path in ("", ":memory:") or "?" in path:
        problem = (
            "an SQLite store is sqlite:///relative.db or sqlite:////absolute.db, without options; "
            "use memory:// to keep nothing"
        )
        raise ConfigurationError(problem)
    return os.path.realpath(path)


def _sqlite_engine(path: str, synchronous: Synchronous, busy_timeout_ms: int) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=path),
        # We begin transactions ourselves: Python's module does it late, and not for reads.
        connect_args={"isolation_level": None, "timeout": busy_timeout_ms / 1000},
    )

    def configure(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {synchronous}")

    def begin(connection: Connection) -> None:
        statement = connection.get_execution_options().get("begin")
        if statement is not None:
            connection.exec_driver_sql(statement)

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    return engine


def _enter_wal_mode(engine: Engine) -> None:
    """Let reads go on beside a write; the file stays in this mode.

    SQLite does not wait here while others use the file, so we do.
    """
    with engine.connect() as connection:
        timeout_ms = connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()
        deadline = time.monotonic() + timeout_ms / 1000
        while True:
            try:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
            except OperationalError as error:
                code = getattr(error.orig, "sqlite_errorcode", None)
                if code != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(WAL_RETRY_S)
            else:
                return
