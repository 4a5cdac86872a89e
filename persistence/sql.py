"""A durable store on SQLAlchemy Core, in an SQLite file or a PostgreSQL schema.

`SqlStore` is the asyncio side: it hands each call to one worker thread of its own, so that the
event loop never waits for a disk or a server. Nothing here knows the protocol.

Each commit is all or nothing; those of several channels that wait at once share a transaction. On
SQLite with ``synchronous="FULL"`` it is on the disk when `commit` returns; with ``"NORMAL"`` the
newest commits can be lost when the machine (not only the process) stops, but never parts of one.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

from persistence.backend import Backend
from persistence.database import Database
from persistence.leases import ledger_lease
from persistence.postgresql import PostgresqlBackend
from persistence.retention import EventRetention
from persistence.sqlite import SqliteBackend, Synchronous
from reliable_channel.errors import (
    BudgetInUseError,
    ChannelExistsError,
    ConfigurationError,
    StoreClosedError,
)
from reliable_channel.records import Changes, EventRecord, LedgerRecord, Snapshot
from reliable_channel.types import ChannelId
from reliable_channel.volatile import MAX_EVENTS

MAX_EVENT_BYTES: Final = 1 << 30
"""Size of the events kept of each channel unless said otherwise, bytes.

More than in memory: an application may be down for long.
"""

BUSY_TIMEOUT_MS: Final = 5_000
"""How long a call waits while another process writes unless said otherwise, milliseconds."""


class SqlStore:
    """Keeps the state of channels in a database; implements ``ChannelStore``.

    Cancelling a call does not harm the store: what has begun in the worker thread finishes there,
    what has not begun never does. A closed store can be opened again. An object belongs to one
    event loop; others may use the same database, but not the same channel.

    Args:
        url: ``sqlite:///relative.db``, ``sqlite:////absolute.db`` (the folder must exist) or
            ``postgresql+psycopg://user:password@host/database``.
        max_events: Events kept of each channel; the oldest go first.
        max_event_bytes: Size of the events kept of each channel, bytes; the newest always stays.
        max_event_age_sec: How long events are kept, seconds; the newest always stays. None: as long
            as the other bounds allow.
        synchronous: SQLite only: ``FULL`` or ``NORMAL``; what they promise is said above. A URL may
            say it instead: ``sqlite:///alice.db?synchronous=NORMAL``.
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
        max_event_age_sec: int | None = None,
        synchronous: Synchronous = "FULL",
        busy_timeout_ms: int = BUSY_TIMEOUT_MS,
    ) -> None:
        self._backend = backend_of(url, synchronous, busy_timeout_ms)
        self._retention = EventRetention(
            max_events=max_events,
            max_event_bytes=max_event_bytes,
            max_event_age_sec=max_event_age_sec,
        )
        self._opening = asyncio.Lock()
        self._database: Database | None = None

    async def open(self) -> None:
        """Open the database, and make the tables where it is new; harmless when repeated.

        Raises:
            ConfigurationError: The tables belong to another program or to a newer release.
            StoreUnavailableError: The database cannot be reached or written.
        """
        async with self._opening:
            if self._database is not None:
                return
            database = Database(self._backend, self._retention)
            try:
                await database.run(database.prepare)
            except BaseException:
                database.stop()
                raise
            self._database = database

    async def close(self) -> None:
        """Finish what was begun, give all channels back, disconnect; harmless when repeated."""
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
            ChannelExistsError: It is driven already, by whichever process or store object.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """
        database = self.opened()
        database.claim(channel_id)
        try:
            return await database.run(database.acquire, channel_id)
        except BaseException:
            database.give_up(channel_id)
            raise

    async def release_channel(self, channel_id: ChannelId) -> None:
        """Give the channel back once what was begun is done; harmless when it is not held."""
        database = self._database
        if database is not None:
            await asyncio.shield(database.release(channel_id))

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Apply all changes durably in one transaction, or none; those of other channels may share it.

        A ledger row belongs to no channel and is never deleted: the newer one stays.

        Raises:
            StoreClosedError: The store is not open.
            LeaseLostError: The channel was taken, but another process took it since.
            StoreError: The database refuses a row for good; nothing was applied.
            StoreUnavailableError: The database failed; nothing was applied.
            StoreOutcomeUnknownError: It failed while committing: all was applied, or nothing.
        """
        await self.opened().commit(channel_id, dict(changes))

    async def read_events(
        self, channel_id: ChannelId, *, after: int, limit: int
    ) -> list[EventRecord]:
        """Return events with a larger sequence, ascending, at most ``limit``.

        Raises:
            EventsExpiredError: Some of them were removed by retention.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """
        database = self.opened()
        return await database.run(database.read_events, channel_id, after, limit)

    async def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Return the ledger row of a scope, or None.

        Raises:
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """
        database = self.opened()
        return await database.run(database.load_ledger, scope)

    async def acquire_ledger(self, scope: str) -> None:
        """Take a ledger, and those that go with it, for one node; a process that ends gives it back, however it ends.

        Raises:
            BudgetInUseError: Another process, store object or node counts in one of them.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """
        database = self.opened()
        lease = ledger_lease(scope)
        try:
            database.claim(lease)
        except ChannelExistsError as error:
            raise BudgetInUseError(scope) from error
        try:
            await database.run(database.take_lease, lease)
        except BaseException as error:
            database.give_up(lease)
            if isinstance(error, ChannelExistsError):
                raise BudgetInUseError(scope) from error
            raise

    async def release_ledger(self, scope: str) -> None:
        """Give the ledger back; harmless when it is not held."""
        await self.release_channel(ledger_lease(scope))

    async def purge_channel(self, channel_id: ChannelId) -> None:
        """Forget everything about a channel but its ledger: what was transmitted stays transmitted.

        Raises:
            ChannelExistsError: Another process or store object drives it.
            LeaseLostError: As above.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed; nothing was forgotten.
            StoreOutcomeUnknownError: It failed while committing: all was forgotten, or nothing.
        """
        database = self.opened()
        await database.run(database.purge, channel_id)

    def opened(self) -> Database:
        """Return the open database, for other modules of this package.

        Raises:
            StoreClosedError: The store is not open.
        """
        if self._database is None:
            raise StoreClosedError
        return self._database


def backend_of(
    url: str, synchronous: Synchronous = "FULL", busy_timeout_ms: int = BUSY_TIMEOUT_MS
) -> Backend:
    """Return the backend that a URL names.

    Raises:
        ConfigurationError: The URL or a setting is unusable.
    """
    if url.startswith("sqlite:"):
        return SqliteBackend(url, synchronous=synchronous, busy_timeout_ms=busy_timeout_ms)
    if synchronous != "FULL":
        problem = "synchronous is a setting of SQLite; leave it out with PostgreSQL"
        raise ConfigurationError(problem)
    return PostgresqlBackend(url, busy_timeout_ms=busy_timeout_ms)
