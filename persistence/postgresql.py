"""PostgreSQL as a backend: one schema of a database, which other programs may share.

The tables are in the schema that the connection's ``search_path`` names first. Transactions that read see one state;
those that write are READ COMMITTED, which is enough where one process writes a channel. It must not know tables.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, make_url, select
from sqlalchemy.exc import SQLAlchemyError

from persistence.backend import MAX_BUSY_TIMEOUT_MS
from persistence.leases import AdvisoryLeases, lock_number
from persistence.sessions import Sessions
from reliable_channel.errors import ConfigurationError

CONNECT_TIMEOUT_S: Final = 5
"""How long a connection may take unless the URL says otherwise, seconds."""

SEND_TIMEOUT_MS: Final = 10_000
"""How long the server may leave what was sent to it unacknowledged, milliseconds."""

CHECK_INTERVAL_MS: Final = 200
"""How often the server looks, within a statement, whether its client is still there, milliseconds.

A statement that waits for a lock would otherwise hold the leases of a process that was killed until the wait ends.
"""

CHECK_CLIENT: Final = (
    "SELECT set_config(name, %s, false) FROM pg_settings "
    "WHERE name = 'client_connection_check_interval' AND setting = '0'"
)
"""Does nothing on servers before 14, which cannot, and where the operator has said how often."""

KEEPALIVES: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 5}
"""After how many seconds of silence the network is asked for the server, how often, and how many times."""

PATIENCE_S: Final = 5.0
"""How long a call may take before the server is asked on another connection whether it is there, seconds."""

HURRIES: Final = 64
"""Into how many waits that of `busy_timeout_ms` is divided for those who come after one that waited in vain."""

DRIVER: Final = "postgresql+psycopg"
"""The scheme of the URLs."""

_T = TypeVar("_T")


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
    mendable: ClassVar[frozenset[str]] = frozenset({"42501", "42P01", "3F000"})
    """Insufficient privilege, undefined table, invalid schema name."""

    def __init__(self, url: str, *, busy_timeout_ms: int) -> None:
        self._url = _checked(url)
        self.name = self._url.set(query={}).render_as_string(hide_password=True)
        if not 0 <= busy_timeout_ms <= MAX_BUSY_TIMEOUT_MS:
            problem = f"busy_timeout_ms must be from 0 to {MAX_BUSY_TIMEOUT_MS}"
            raise ConfigurationError(problem)
        self._busy_timeout_ms = busy_timeout_ms
        self.patience_s = None if self._waits_for_ever() else PATIENCE_S
        self._sessions = Sessions()

    def engine(self) -> Engine:
        """Return an engine whose connections are set up, and tried before they are used again."""
        try:
            engine = create_engine(
                self._url,
                paramstyle="format",  # statements are executed with tuples
                pool_pre_ping=True,
                connect_args=self._connect_args(),
            )
        except ModuleNotFoundError as error:
            problem = (
                f"{DRIVER}:// needs a driver that is not installed ({error}); "
                "pip install 'reliable-channel[postgres]'"
            )
            raise ConfigurationError(problem) from error
        refusal = engine.dialect.loaded_dbapi.Error
        event.listen(engine, "connect", lambda connection, _: self._configure(connection, refusal))
        event.listen(engine, "close", lambda connection, _: self._sessions.remove(connection))
        return engine

    def check(self, connection: Connection) -> None:
        """Do nothing if tables can be made and can hold any text.

        Raises:
            ConfigurationError: The schema does not exist, or the database is not in UTF-8.
        """
        encoding = connection.exec_driver_sql("SHOW server_encoding").scalar_one()
        if encoding != "UTF8":
            problem = f"{self.name} is encoded in {encoding}; name a database in UTF8"
            raise ConfigurationError(problem)
        if connection.scalar(select(func.current_schema())) is None:
            problem = f"{self.name}: no schema of its search_path exists; create it first"
            raise ConfigurationError(problem)

    def prepare(self, engine: Engine) -> None:
        """Do nothing."""

    def lock_schema(self, connection: Connection) -> None:
        """Wait until nobody else makes tables in this schema."""
        schema = connection.scalar(select(func.current_schema()))
        number = lock_number("tables", str(schema))
        connection.execute(select(func.pg_advisory_xact_lock(number)))

    def leases(self, connection: Connection) -> AdvisoryLeases:
        """Return locks of the session."""
        schema = connection.scalar(select(func.current_schema()))
        return AdvisoryLeases(str(schema))

    def look(self, job: Callable[[Connection], _T]) -> _T:
        """Do a job in a transaction that the server lets only read."""
        engine = self.engine()
        try:
            reading = engine.execution_options(**self.read_options, postgresql_readonly=True)
            with reading.begin() as connection:
                return job(connection)
        finally:
            engine.dispose()

    def is_broken(self, connection: Connection) -> bool:
        """Say whether the server hung up."""
        if connection.closed or connection.invalidated:
            return True
        driver: Any = connection.connection.dbapi_connection
        return driver is None or bool(driver.closed)

    def hurry(self, connection: Connection) -> None:
        """Wait less long for locks, in this transaction: as long again for all that may follow as for the first."""
        timeout_ms = max(1, self._busy_timeout_ms // HURRIES)
        if self._busy_timeout_ms:  # 0 is for ever, here and there
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {timeout_ms}")

    def hang_up_if_silent(self) -> None:
        """Ask for another session; where nobody answers within ``connect_timeout``, end all that are open.

        A refusal is an answer, and so is one that says that the server is full, or starting.
        """
        dialect = self.engine().dialect
        arguments, options = dialect.create_connect_args(self._url)
        driver: Any = dialect.loaded_dbapi
        try:
            dialect.connect(*arguments, **{**options, **self._connect_args()}).close()
        except driver.errors.ConnectionTimeout:
            self._sessions.hang_up()
        except driver.Error:
            pass

    def has_rolled_back(self, connection: Connection, error: SQLAlchemyError) -> bool:
        """Say whether the server said so, in a session that goes on."""
        has_answered = getattr(getattr(error, "orig", None), "sqlstate", None) is not None
        return has_answered and not self.is_broken(connection)

    def _waits_for_ever(self) -> bool:
        """Say whether a connection may take as long as it likes: then nobody can tell that there is no answer."""
        try:
            return int(float(str(self._url.query.get("connect_timeout", CONNECT_TIMEOUT_S)))) <= 0
        except (ValueError, OverflowError):
            return False  # the driver refuses it

    def _connect_args(self) -> dict[str, Any]:
        """Return options of the driver that the URL does not give."""
        defaults = {
            "connect_timeout": CONNECT_TIMEOUT_S,
            "tcp_user_timeout": SEND_TIMEOUT_MS,
            "application_name": "reliable-channel",
            **KEEPALIVES,
        }
        return {name: defaults[name] for name in defaults if name not in self._url.query}

    def _configure(self, connection: Any, refusal: type[Exception]) -> None:
        self._sessions.add(connection)
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {self._busy_timeout_ms}")
            connection.commit()
            try:
                cursor.execute(CHECK_CLIENT, (str(CHECK_INTERVAL_MS),))
                connection.commit()
            except refusal:  # its system cannot tell; then a wait ends with `lock_timeout`
                connection.rollback()


def _checked(url: str) -> URL:
    problem = f"a PostgreSQL store is {DRIVER}://user:password@host/database"
    try:
        parsed = make_url(url)
    except (SQLAlchemyError, ValueError) as error:
        raise ConfigurationError(problem) from error
    if parsed.drivername != DRIVER:
        raise ConfigurationError(problem)
    return parsed
