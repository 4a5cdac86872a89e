"""The blocking side of a store: transactions on a database, in one thread of their own.

It knows channels, rows and events, but neither the protocol nor which database it is: that is the backend's part.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Concatenate, ParamSpec, TypeVar, cast

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from persistence import migrations
from persistence.backend import Backend
from persistence.event_log import EventLog
from persistence.leases import Leases, ledger_lease
from persistence.retention import EventRetention
from persistence.shared_commits import Attempt, Commit, SharedCommits
from persistence.statements import (
    DELETE_CHANNEL,
    SELECT_LEDGER,
    RecordStatements,
    RowValues,
    add_channel,
)
from persistence.tables import TABLES
from persistence.watch import Watch
from reliable_channel.collector import collector_paused
from reliable_channel.errors import (
    BudgetInUseError,
    ChannelExistsError,
    LeaseLostError,
    StoreClosedError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.records import Changes, EventRecord, LedgerRecord, Record, Snapshot
from reliable_channel.types import ChannelId

_P = ParamSpec("_P")
_T = TypeVar("_T")


class CommitUnknownError(Exception):
    """The end of a transaction was not heard of; the driver's error is its cause."""


class Database:
    """One opening of a database, and the thread in which everything that blocks is done.

    Args:
        backend: Which database.
        retention: Bounds of each channel's events.

    Raises:
        ConfigurationError: The database's driver is not installed.
    """

    def __init__(self, backend: Backend, retention: EventRetention) -> None:
        self._backend = backend
        self._engine = backend.engine()
        self._reads = self._engine.execution_options(**backend.read_options)
        self._writes = self._engine.execution_options(**backend.write_options)
        self._retention = retention
        self._statements: dict[type[Record], RecordStatements] = {}
        self._add_channel = ""
        self._writer: Connection | None = None
        self._leases: Leases | None = None
        self._event_log: EventLog | None = None
        self._claimed: set[ChannelId] = set()
        self._is_stopping = False
        self._watch = Watch(backend.patience_s, backend.hang_up_if_silent)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="reliable-channel-store")
        self._commits = SharedCommits(self._worker.submit)

    # On the event loop.

    def run(
        self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> asyncio.Future[_T]:
        """Have a job done in the worker thread, after those before it."""
        submitted = self._submit(job, *args, **kwargs)
        self._watch.until(submitted)
        return asyncio.wrap_future(submitted)

    def commit(self, channel_id: ChannelId, changes: Changes) -> asyncio.Future[None]:
        """Apply all changes in one transaction, after the jobs before it; commits that wait meanwhile may share it."""
        commit = Commit(channel_id, changes)
        self._watch.until(self._commits.add(commit, self._apply))
        return commit.told

    def stop(self) -> Future[None]:
        """Have the worker thread do what it was given, close the database and end."""
        self._is_stopping = True
        disposed = self._submit(self.dispose)
        self._watch.until(disposed)
        self._worker.shutdown(wait=False)
        return disposed

    def claim(self, channel_id: ChannelId) -> None:
        """Let nobody else take a channel through this object; `acquire` comes next.

        Raises:
            ChannelExistsError: Somebody has.
        """
        if channel_id in self._claimed:
            raise ChannelExistsError(channel_id, "on this store")
        self._claimed.add(channel_id)

    def give_up(self, channel_id: ChannelId) -> None:
        """Undo a claim; what `acquire` took, or is about to take, is given back before any other job."""
        self._claimed.discard(channel_id)
        with suppress(RuntimeError):  # the worker has ended: nothing is held any more
            self._submit(self._give_back, channel_id)

    def release(self, channel_id: ChannelId) -> asyncio.Future[None]:
        """Give a channel back; harmless when it is not held."""
        released = self.run(self._give_back, channel_id)
        released.add_done_callback(lambda _: self._claimed.discard(channel_id))
        return released

    # In the worker thread.

    def prepare(self) -> None:
        """Bring the tables up to date, refuse those that we do not know."""
        with self._reads.begin() as connection:
            self._backend.check(connection)
            self._leases = self._backend.leases(connection)
            is_up_to_date = self._is_up_to_date(connection)
        self._backend.prepare(self._engine)  # only now: what is not ours stays as it was
        if not is_up_to_date:
            with self._writes.begin() as connection:
                self._backend.lock_schema(connection)
                if not self._is_up_to_date(connection):  # another process may have been faster
                    migrations.upgrade(connection)
        dialect = self._engine.dialect
        self._statements = {kind: RecordStatements(kind, dialect) for kind in TABLES}
        self._add_channel = add_channel(dialect)
        self._event_log = EventLog(dialect, self._statements[EventRecord], self._retention)

    def dispose(self) -> None:
        """Give all channels back and close the database."""
        try:
            if self._leases is not None:
                with suppress(SQLAlchemyError):  # the server hung up: that gives back, too
                    self._leases.close(self._living_writer())
        finally:
            self._hang_up()
            self._engine.dispose()

    def acquire(self, channel_id: ChannelId) -> Snapshot:
        """Take a channel that was claimed, and return its rows, but for the events."""
        self._write(self._leasing.take, channel_id)
        return self._load(channel_id)

    def take_lease(self, name: ChannelId) -> None:
        """Take what was claimed and has no rows of its own: a ledger."""
        self._write(self._leasing.take, name)

    def _give_back(self, channel_id: ChannelId) -> None:
        try:
            self._leasing.give_back(self._living_writer(), channel_id)
        except SQLAlchemyError:  # the server hung up, or will now: what was held ends with that
            self._hang_up()

    def _load(self, channel_id: ChannelId) -> Snapshot:
        snapshot: dict[type[Record], list[Record]] = {}
        with self._reads.begin() as connection, closing(connection.connection.cursor()) as cursor:
            # The driver's own cursor, as in `_write_rows`: there may be a hundred thousand rows.
            for kind, statements in self._statements.items():
                if kind not in (EventRecord, LedgerRecord):
                    cursor.execute(statements.select, (channel_id,))
                    with collector_paused():
                        snapshot[kind] = statements.records(cursor.fetchall())
        return snapshot

    def _apply(self, attempt: Attempt) -> None:
        """Apply commits in one transaction, or none of them."""
        try:
            self._translate_errors(self._write, self._commit, attempt)
        except Exception:
            if self._living_writer() is None:
                attempt.blame_database()
            raise

    def _commit(self, writer: Connection, attempt: Attempt) -> None:
        attempt.blame_database()
        self._leasing.check_place()
        for commit in attempt.check_each():
            self._check(commit.channel_id, commit.changes)
        try:
            with self._transaction(writer):
                if attempt.is_hurried:
                    self._backend.hurry(writer)
                for commit in attempt.write_each():
                    self._write_rows(writer, commit.channel_id, commit.changes)
        except BaseException:
            for commit in attempt.commits:  # what was removed from their events is there again
                self._events.forget(commit.channel_id)
            raise

    def _check(self, channel_id: ChannelId, changes: Changes) -> None:
        self._leasing.check(channel_id)
        for kind, key in changes:
            if kind is LedgerRecord:
                self._check_ledger(str(key[0]))

    def _write_rows(self, writer: Connection, channel_id: ChannelId, changes: Changes) -> None:
        kinds = {kind for kind, _ in changes}
        # The driver's own cursor: SQLAlchemy's execution would cost more than SQLite's work.
        with closing(writer.connection.cursor()) as cursor:
            if kinds - {LedgerRecord}:
                cursor.execute(self._add_channel, (channel_id,))
            for statement, rows in self._batches(channel_id, changes).items():
                cursor.executemany(statement, rows)
            totals = self._events.count_appended(cursor, channel_id, changes)
        if EventRecord in kinds:
            self._sweep_later(channel_id, has_more=self._events.trim(writer, channel_id, totals))
        elif self._events.is_due(channel_id) and self._leasing.holds(channel_id):
            self._sweep_later(channel_id, has_more=self._events.sweep(writer, channel_id))

    def _check_ledger(self, scope: str) -> None:
        try:
            self._leasing.check(ledger_lease(scope))
        except LeaseLostError as error:
            raise BudgetInUseError(scope) from error

    def read_events(self, channel_id: ChannelId, after: int, limit: int) -> list[EventRecord]:
        """Return events with a larger sequence, if none of them was removed."""
        with self._reads.begin() as connection:
            return self._events.read(connection, channel_id, after, limit)

    def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Return the ledger row of a scope."""
        with self._reads.begin() as connection:
            row = connection.execute(SELECT_LEDGER, {"scope": scope}).one_or_none()
        if row is None:
            return None
        return cast("LedgerRecord", self._statements[LedgerRecord].record(row))

    def read(self, job: Callable[[Connection], _T]) -> _T:
        """Do a job in a transaction that only reads."""
        with self._reads.begin() as connection:
            return job(connection)

    def write(self, job: Callable[[Connection], None]) -> None:
        """Do a job in a transaction; it may be done twice where the server hung up."""

        def in_transaction(writer: Connection) -> None:
            with self._transaction(writer):
                job(writer)

        self._write(in_transaction)

    def purge(self, channel_id: ChannelId) -> None:
        """Delete everything of a channel that nobody else drives."""
        is_held = self._leasing.holds(channel_id)
        if not is_held:
            self._write(self._leasing.take, channel_id)
        try:
            self._write(self._purge, channel_id)
        finally:
            if not is_held:
                self._give_back(channel_id)

    def _purge(self, writer: Connection, channel_id: ChannelId) -> None:
        self._leasing.check_place()
        self._leasing.check(channel_id)
        with self._transaction(writer):
            writer.execute(DELETE_CHANNEL, {"channel": channel_id})
            self._events.forget(channel_id)
            self._leasing.confirm(writer, channel_id)

    def _submit(self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        submitted = self._worker.submit(self._translate_errors, job, *args, **kwargs)
        self._commits.part()
        return submitted

    def _translate_errors(
        self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Do a job and turn the database's errors into ours; the only place where that is done."""
        driver = self._engine.dialect.loaded_dbapi
        try:
            with self._watch.job():
                return job(*args, **kwargs)
        except CommitUnknownError as error:
            cause = _cause(error.__cause__ or error)
            raise StoreOutcomeUnknownError(self._describe(cause)) from cause
        except (SQLAlchemyError, driver.Error) as error:
            cause = _cause(error)
            refusals = (driver.DataError, driver.IntegrityError, driver.ProgrammingError)
            is_mendable = getattr(cause, "sqlstate", None) in self._backend.mendable
            is_lasting = isinstance(cause, refusals) and not is_mendable
            translated = StoreError if is_lasting else StoreUnavailableError
            raise translated(self._describe(cause)) from cause

    def _describe(self, cause: BaseException) -> str:
        reason = str(cause).partition("\n")[0] or type(cause).__name__
        return f"{self._backend.name}: {reason}"

    def _write(
        self,
        job: Callable[Concatenate[Connection, _P], None],
        /,
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> None:
        """Do a job on the connection of all commits; getting one costs as much as using it.

        Where the server hung up, it is done again on a new connection. That is safe even if the end of the first
        transaction was not heard of: rows are written whole, so that writing them twice changes nothing. Where it
        cannot be done again, that end stays unknown, whatever kept us from it.
        """
        used_before = self._writer is not None
        try:
            job(self._writing(), *args, **kwargs)
        except Exception as error:
            if self._writer is None or not self._backend.is_broken(self._writer):
                raise
            self._hang_up()
            if not used_before:
                raise
            try:
                job(self._writing(), *args, **kwargs)
            except Exception:
                if isinstance(error, CommitUnknownError):
                    raise error from error.__cause__
                raise

    @contextmanager
    def _transaction(self, writer: Connection) -> Iterator[None]:
        """Do what is in the block in one transaction.

        Raises:
            CommitUnknownError: It failed while it was committed, and may be committed all the same.
        """
        with writer.begin() as transaction:
            yield
            try:
                transaction.commit()
            except SQLAlchemyError as error:
                is_certain = self._backend.has_rolled_back(writer, error)
                transaction.rollback()  # of SQLAlchemy's; the driver's has ended
                if is_certain:
                    raise
                raise CommitUnknownError from error

    def _writing(self) -> Connection:
        if self._writer is None:
            writer = self._writes.connect()
            try:
                self._leasing.resume(writer)
            except BaseException:
                writer.invalidate()  # what it holds by now is not wanted
                writer.close()
                raise
            self._writer = writer
        return self._writer

    @property
    def _leasing(self) -> Leases:
        if self._leases is None:
            raise StoreClosedError
        return self._leases

    @property
    def _events(self) -> EventLog:
        if self._event_log is None:
            raise StoreClosedError
        return self._event_log

    def _living_writer(self) -> Connection | None:
        writer = self._writer
        return None if writer is None or self._backend.is_broken(writer) else writer

    def _hang_up(self) -> None:
        """Give the connection of all commits away; one that is broken is not used again."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        if self._backend.is_broken(writer) and not writer.invalidated:
            writer.invalidate()
        writer.close()

    def _is_up_to_date(self, connection: Connection) -> bool:
        backend = self._backend
        return migrations.is_up_to_date(connection, backend.name, backend.another_place)

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

    def _sweep_on(self, channel_id: ChannelId) -> None:
        """Remove events for which the last transaction had no room; what was asked for meanwhile came first."""
        if not self._is_stopping and self._leasing.holds(channel_id):
            self._write(self._sweep, channel_id)

    def _sweep(self, writer: Connection, channel_id: ChannelId) -> None:
        self._leasing.check_place()
        self._leasing.check(channel_id)
        with self._transaction(writer):
            self._sweep_later(channel_id, has_more=self._events.sweep(writer, channel_id))

    def _sweep_later(self, channel_id: ChannelId, *, has_more: bool) -> None:
        """Have another transaction remove what this one has no room for."""
        if has_more:
            with suppress(RuntimeError):  # the store is being closed: next time
                self._submit(self._sweep_on, channel_id)


def _cause(error: BaseException) -> BaseException:
    """Return the driver's error."""
    return error.orig if isinstance(error, DBAPIError) and error.orig else error
