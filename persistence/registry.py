"""Settings of the channels that a service has open, kept beside their state.

A service that starts again opens these channels again. Settings are one text for each channel; what it says is the
service's own. Nothing here may read it, take a channel, or touch a channel's rows; nor do retention, ``purge_channel``
and a lost lease touch what is kept here.

Spec: none; docs/design.md, the files of a store.
"""

from __future__ import annotations

from typing import Final, Protocol

from sqlalchemy import Connection, bindparam, delete, func, select
from sqlalchemy.dialects import postgresql, sqlite

from persistence.database import Database
from persistence.memory import MemoryStore
from persistence.sql import SqlStore
from persistence.tables import registry
from reliable_channel.errors import ConfigurationError
from reliable_channel.identifiers import check_identifier
from reliable_channel.types import ChannelId


class Registry(Protocol):
    """Remembers channels and their settings; made by ``open_registry``."""

    async def channels(self) -> dict[ChannelId, str]:
        """Return the settings of all channels, in the order in which these were first put.

        Raises:
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed.
        """

    async def put(self, channel_id: ChannelId, settings: str) -> None:
        """Remember a channel, durably; one that is known keeps its place and gets these settings.

        Raises:
            ConfigurationError: The id may not be one, or the settings are not a text that can be kept.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed; nothing was changed.
            StoreOutcomeUnknownError: It failed while committing: that was done, or not; it may be repeated.
        """

    async def remove(self, channel_id: ChannelId) -> None:
        """Forget a channel, durably; harmless when it is not known. Its state stays where it is.

        Raises:
            ConfigurationError: The id may not be one.
            StoreClosedError: The store is not open.
            StoreUnavailableError: The database failed; nothing was changed.
            StoreOutcomeUnknownError: It failed while committing: that was done, or not; it may be repeated.
        """


def open_registry(store: MemoryStore | SqlStore) -> Registry:
    """Return the registry that a store's database has; with a ``MemoryStore`` it lives as long as the object.

    Nothing is touched yet. The store has to be open whenever the registry is used.

    Raises:
        ConfigurationError: The store is of another kind.
    """
    if isinstance(store, SqlStore):
        return SqlRegistry(store)
    if isinstance(store, MemoryStore):
        return MemoryRegistry(store)
    problem = f"open_registry takes what open_store returns, not {type(store).__name__}"
    raise ConfigurationError(problem)


def check_entry(channel_id: object, settings: object = "") -> None:
    """Refuse what not every database can keep.

    Raises:
        ConfigurationError: It cannot.
    """
    check_identifier("channel_id", channel_id)
    if not isinstance(settings, str):
        problem = f"settings must be text, not {type(settings).__name__}"
        raise ConfigurationError(problem)
    if "\0" in settings or any("\ud800" <= letter <= "\udfff" for letter in settings):
        problem = "settings must be text without NUL and surrogates, for example JSON in ASCII"
        raise ConfigurationError(problem)


class MemoryRegistry:
    """Implements ``Registry`` in a store's memory.

    Args:
        store: Whose.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def channels(self) -> dict[ChannelId, str]:
        """Return the settings of all channels."""
        return dict(self._store.registered())

    async def put(self, channel_id: ChannelId, settings: str) -> None:
        """Remember a channel."""
        check_entry(channel_id, settings)
        self._store.registered()[channel_id] = settings

    async def remove(self, channel_id: ChannelId) -> None:
        """Forget a channel."""
        check_entry(channel_id)
        self._store.registered().pop(channel_id, None)


_SELECT: Final = select(registry.c.channel_id, registry.c.settings).order_by(
    registry.c.position, registry.c.channel_id
)
_DELETE: Final = delete(registry).where(registry.c.channel_id == bindparam("channel"))
_LAST_POSITION: Final = select(func.coalesce(func.max(registry.c.position), 0)).scalar_subquery()


def _put(connection: Connection, channel_id: ChannelId, settings: str) -> None:
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(registry).values(
        channel_id=channel_id, position=_LAST_POSITION + 1, settings=settings
    )
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["channel_id"], set_={"settings": statement.excluded.settings}
        )
    )


class SqlRegistry:
    """Implements ``Registry`` in a store's database, in the store's own thread and connections.

    Args:
        store: Whose.
    """

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    async def channels(self) -> dict[ChannelId, str]:
        """Return the settings of all channels."""

        def read(connection: Connection) -> dict[ChannelId, str]:
            return {row.channel_id: row.settings for row in connection.execute(_SELECT)}

        database = self._database()
        return await database.run(database.read, read)

    async def put(self, channel_id: ChannelId, settings: str) -> None:
        """Remember a channel."""
        check_entry(channel_id, settings)
        database = self._database()
        await database.run(
            database.write, lambda connection: _put(connection, channel_id, settings)
        )

    async def remove(self, channel_id: ChannelId) -> None:
        """Forget a channel."""
        check_entry(channel_id)

        def forget(connection: Connection) -> None:
            connection.execute(_DELETE, {"channel": channel_id})

        database = self._database()
        await database.run(database.write, forget)

    def _database(self) -> Database:
        return self._store.opened()
