"""PostgreSQL as a backend: one schema of a database, which other programs may share.

The tables are in the schema that the connection's ``search_path`` names first. Transactions that read see one state;
those that write are READ COMMITTED, which is enough where one process writes a channel. It must not know tables.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import hashlib
from typing import Any, ClassVar, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import SQLAlchemyError

from reliable_channel.errors import ConfigurationError

CONNECT_TIMEOUT_S: Final = 5
"""How long a connection may take unless the URL says otherwise, seconds."""

SEND_TIMEOUT_MS: Final = 10_000
"""How long the server may leave what was sent to it unacknowledged, milliseconds."""

DRIVER: Final = "postgresql+psycopg"
"""The scheme of the URLs."""


class PostgresqlBackend:
    """A schema of a database; implements ``Backend``.

    Args:
        url: ``postgresql+psycopg://user:password@host/database``, with the driver's options.
        busy_timeout_ms: How long a call waits for a row that another process writes, milliseconds.

    Raises:
        ConfigurationError: The URL is unusable, or the driver is not installed.
    """

    another_place: ClassVar[str] = (
        "name an empty schema (?options=-csearch_path%3Dname) or a database of its own"
    )
    read_options: ClassVar[dict[str, str]] = {"isolation_level": "REPEATABLE READ"}
    write_options: ClassVar[dict[str, str]] = {}

    def __init__(self, url: str, *, busy_timeout_ms: int) -> None:
        self._url = _checked(url)
        self.name = self._url.set(query={}).render_as_string(hide_password=True)
        self._busy_timeout_ms = busy_timeout_ms

    def engine(self) -> Engine:
        """Return an engine whose connections are set up, and tried before they are used again."""
        defaults = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "tcp_user_timeout": SEND_TIMEOUT_MS,
            "application_name": "reliable-channel",
        }
        given = self._url.query
        try:
            engine = create_engine(
                self._url,
                paramstyle="format",  # statements are executed with tuples
                pool_pre_ping=True,
                connect_args={name: defaults[name] for name in defaults if name not in given},
            )
        except ModuleNotFoundError as error:
            problem = (
                f"{DRIVER}:// needs a driver that is not installed ({error}); "
                "pip install 'reliable-channel[postgres]'"
            )
            raise ConfigurationError(problem) from error
        event.listen(engine, "connect", self._configure)
        return engine

    def identify(self, connection: Connection) -> str:
        """Return the database's identity and the schema.

        Raises:
            ConfigurationError: The schema does not exist, or the database is not in UTF-8.
        """
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            problem = f"{self.name} is encoded in {encoding}; name a database in UTF8"
            raise ConfigurationError(problem)
        schema = connection.scalar(select(func.current_schema()))
        if schema is None:
            problem = f"{self.name}: no schema of its search_path exists; create it first"
            raise ConfigurationError(problem)
        return f"{self.name} {schema}"

    def prepare(self, engine: Engine) -> None:
        """Do nothing."""

    def lock_schema(self, connection: Connection) -> None:
        """Wait until nobody else makes tables in this schema."""
        schema = connection.scalar(select(func.current_schema()))
        key = advisory_key("tables", str(schema))
        connection.execute(select(func.pg_advisory_xact_lock(key)))

    def is_broken(self, connection: Connection) -> bool:
        """Say whether the server hung up."""
        if connection.closed or connection.invalidated:
            return True
        driver: Any = connection.connection.dbapi_connection
        return driver is None or bool(driver.closed)

    def _configure(self, connection: Any, _: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {self._busy_timeout_ms}")
        connection.commit()


def advisory_key(*parts: str) -> int:
    """Return the number of an advisory lock of ours: 63 bits that hardly anything else gives."""
    text = "\0".join(["reliable-channel", *parts])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _checked(url: str) -> URL:
    problem = f"a PostgreSQL store is {DRIVER}://user:password@host/database"
    try:
        parsed = make_url(url)
    except (SQLAlchemyError, ValueError) as error:
        raise ConfigurationError(problem) from error
    if parsed.drivername != DRIVER:
        raise ConfigurationError(problem)
    return parsed
