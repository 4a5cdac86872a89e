"""SQLite as a backend: one file, in WAL mode, on a disk of this machine.

It must not know tables or channels.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from typing import Any, ClassVar, Final, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DatabaseError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from persistence.backend import MAX_BUSY_TIMEOUT_MS
from persistence.leases import FileLeases
from persistence.opened_file import OpenedFile
from reliable_channel.errors import ConfigurationError, StoreUnavailableError

WAL_RETRY_S: Final = 0.01
"""Distance of attempts to put a new file into WAL mode, seconds."""

CACHE_KIB: Final = 16_000
"""Memory for pages, of each connection: ids are random, so a long log is written to all over."""

CHECKPOINT_PAGES: Final = 4_000
"""Pages of the write-ahead log (16 MB) after which it is copied to the file, with ``FULL``.

SQLite's own 1,000 are 50 messages alone, and each checkpoint waits for the disk twice.
"""

BESIDE: Final = ("-wal", "-shm")
"""What SQLite has open beside the file: what was committed lately, and who reads what."""

OPTIONS: Final = frozenset({"synchronous", "busy_timeout_ms"})
"""What a URL may set."""

Synchronous: TypeAlias = Literal["FULL", "NORMAL"]
"""How SQLite waits for the disk."""

_T = TypeVar("_T")


class SqliteBackend:
    """A file; implements ``Backend``.

    Args:
        url: ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; its options are the settings
            below, and count more.
        synchronous: ``FULL`` or ``NORMAL``.
        busy_timeout_ms: How long a call waits while another process writes, milliseconds.

    Raises:
        ConfigurationError: The URL or a setting is unusable.
    """

    another_place: ClassVar[str] = "name a new file"
    read_options: ClassVar[dict[str, str]] = {"begin": "BEGIN"}
    # The write lock at once: SQLite does not wait where a read lock has to become one.
    write_options: ClassVar[dict[str, str]] = {"begin": "BEGIN IMMEDIATE"}
    mendable: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, url: str, *, synchronous: Synchronous, busy_timeout_ms: int) -> None:
        self.patience_s: float | None = None
        self.name, options = _parse(url)
        self._synchronous = options.get("synchronous", synchronous)
        timeout = options.get("busy_timeout_ms", str(busy_timeout_ms))
        problems = []
        if self._synchronous not in ("FULL", "NORMAL"):
            problems.append(f"synchronous must be FULL or NORMAL, not {self._synchronous!r}")
        if not (timeout.isdecimal() and int(timeout) <= MAX_BUSY_TIMEOUT_MS):
            problems.append(f"busy_timeout_ms must be from 0 to {MAX_BUSY_TIMEOUT_MS}")
        if problems:
            raise ConfigurationError(problems)
        self._busy_timeout_ms = int(timeout)
        self._opened: list[OpenedFile] = []

    def engine(self) -> Engine:
        """Return an engine whose connections are set up, for one opening of the file.

        It begins no transaction while other files are where those are that it has open.
        """
        self._opened = []
        engine = create_engine(URL.create("sqlite", database=self.name), creator=self._connect)
        event.listen(engine, "begin", self._begin)
        return engine

    def check(self, connection: Connection) -> None:
        """Do nothing: every file is fit for tables."""

    def prepare(self, engine: Engine) -> None:
        """Let reads go on beside a write; the file stays in this mode.

        SQLite does not wait here while others use the file, so we do.
        """
        deadline = time.monotonic() + self._busy_timeout_ms / 1000
        with engine.connect() as connection:
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

    def lock_schema(self, connection: Connection) -> None:
        """Do nothing: a transaction that writes excludes all others."""

    def leases(self, connection: Connection) -> FileLeases:
        """Return locks in a file beside this one."""
        return FileLeases(f"{self.name}-lease")

    def look(self, job: Callable[[Connection], _T]) -> _T:
        """Do a job in a transaction that cannot write, and leave no trace.

        SQLite would leave two files beside one that nobody has open, even where it only reads. So such a file is read
        as one that does not change, and read again if it did.
        """
        if not os.path.isfile(self.name):
            problem = f"{self.name}: there is no such file"
            raise ConfigurationError(problem)
        self._check_names()
        before = self._state()
        while not before[0]:
            try:
                result = self._look(job, "mode=ro&immutable=1")
            except DatabaseError:
                if self._state() == before:
                    raise
            else:
                if self._state() == before:
                    return result
            before = self._state()
        return self._look(job, "mode=ro")

    def _state(self) -> tuple[bool, int, int]:
        """Return whether anybody has the file open, or did not close it, and what tells its contents apart."""
        status = os.stat(self.name)
        return os.path.exists(f"{self.name}-wal"), status.st_size, status.st_mtime_ns

    def _look(self, job: Callable[[Connection], _T], options: str) -> _T:
        url = f"file:{quote(self.name)}?{options}"
        engine = create_engine(
            "sqlite://",
            creator=lambda: sqlite3.connect(
                url, uri=True, isolation_level=None, timeout=self._busy_timeout_ms / 1000
            ),
            poolclass=NullPool,
        ).execution_options(**self.read_options)
        event.listen(engine, "begin", _begin)
        with engine.begin() as connection:
            return job(connection)

    def is_broken(self, connection: Connection) -> bool:
        """Say no: there is nobody who could hang up."""
        return False

    def hurry(self, connection: Connection) -> None:
        """Do nothing: who has begun to write waits for nobody."""

    def hang_up_if_silent(self) -> None:
        """Do nothing, for the same reason."""

    def has_rolled_back(self, connection: Connection, error: SQLAlchemyError) -> bool:
        """End the transaction where it is still open, and say whether it can come back.

        After a full disk or a lock there is no end of it in the write-ahead log. After an I/O error there may be one,
        which counts if the machine or this process stops before the next transaction takes its place.
        """
        connection.connection.rollback()
        code: int = getattr(getattr(error, "orig", None), "sqlite_errorcode", sqlite3.SQLITE_IOERR)
        return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)

    def _check_names(self) -> None:
        """Refuse a file with several names: SQLite and our leases would take it for as many files."""
        names = os.stat(self.name).st_nlink if os.path.isfile(self.name) else 1
        if names > 1:
            problem = (
                f"{self.name} has {names} names (hard links), and under another of them a second process "
                "could drive its channels; remove the others, or use a copy"
            )
            raise ConfigurationError(problem)

    def _connect(self) -> sqlite3.Connection:
        if self._opened:
            self._opened[0].check()  # or an empty file would be made where it was
        else:
            self._check_names()
        # We begin transactions ourselves: Python's module does it late, and not for reads.
        connection = sqlite3.connect(
            self.name,
            isolation_level=None,
            timeout=self._busy_timeout_ms / 1000,
            check_same_thread=False,  # all are used in the store's thread, and may be collected in any
        )
        try:
            if not self._opened:
                self._opened.append(OpenedFile.at(self.name))
            self._opened[0].check()
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if (
            self._synchronous == "FULL"
        ):  # with NORMAL, a power cut may undo what is not checkpointed
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")

    def _begin(self, connection: Connection) -> None:
        for file in self._opened:
            file.check()
        _begin(connection)
        writes = connection.get_execution_options().get("begin") == self.write_options["begin"]
        if len(self._opened) == 1 and writes:  # by now they are open, and stay while we are
            try:
                self._opened += [OpenedFile.at(self.name + ending) for ending in BESIDE]
            except StoreUnavailableError:
                connection.connection.rollback()
                raise


def _parse(url: str) -> tuple[str, dict[str, str]]:
    """Return the file that a URL names, as an absolute path without symbolic links, and its options."""
    scheme, _, rest = url.partition(":///")
    path, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = sorted(options.keys() - OPTIONS)
    is_file = scheme == "sqlite" and path not in ("", ":memory:", "file::memory:")
    if not is_file or unknown:
        problem = (
            "an SQLite store is sqlite:///relative.db or sqlite:////absolute.db, with no options but "
            "synchronous and busy_timeout_ms; use memory:// to keep nothing"
        )
        if is_file:
            problem += f" ({unknown[0]!r} is no option; a file with '?' in its name needs another)"
        raise ConfigurationError(problem)
    return os.path.realpath(path), options


def _begin(connection: Connection) -> None:
    statement = connection.get_execution_options().get("begin")
    if statement is not None:
        # By the driver: SQLAlchemy's execution would cost more than SQLite's work.
        driver: Any = connection.connection.driver_connection
        driver.execute(statement)
