"""What the databases differ in, as one small face: `persistence.sqlite` and `persistence.postgresql` have it.

Everything else about a store is the same for all of them and stands in `persistence.database`. Nothing here does
anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from persistence.leases import Leases

MAX_BUSY_TIMEOUT_MS: Final = 3_600_000
"""Longest wait for others that may be asked for, milliseconds: an hour."""


_T = TypeVar("_T")


class Backend(Protocol):
    """One kind of database, told apart by its URL."""

    name: str
    """Identifies the database in errors; holds no password."""
    another_place: ClassVar[str]
    """What to do where the database has tables of another program."""
    read_options: ClassVar[dict[str, str]]
    """Execution options of transactions that only read; all their statements see one state."""
    write_options: ClassVar[dict[str, str]]
    """Execution options of transactions that write."""
    mendable: ClassVar[frozenset[str]]
    """States (SQLSTATE) of refusals that whoever runs the database can undo; the same call works after that."""

    patience_s: float | None
    """How long a job may take before ``hang_up_if_silent``, seconds; None: it is not asked."""

    def engine(self) -> Engine:
        """Return an engine that connects when it is first used."""

    def check(self, connection: Connection) -> None:
        """Do nothing if the database is fit for our tables.

        Raises:
            ConfigurationError: It is not.
        """

    def prepare(self, engine: Engine) -> None:
        """Change what is lasting about a database that is ours, or empty."""

    def lock_schema(self, connection: Connection) -> None:
        """Let nobody else change the tables until the end of the transaction that writes."""

    def leases(self, connection: Connection) -> Leases:
        """Return what keeps two from driving one channel here."""

    def look(self, job: Callable[[Connection], _T]) -> _T:
        """Do a job in a transaction that cannot write, and leave no trace; it may be done more than once.

        Raises:
            ConfigurationError: There is no such database.
        """

    def is_broken(self, connection: Connection) -> bool:
        """Say whether a connection can only be replaced."""

    def hurry(self, connection: Connection) -> None:
        """Wait less long, in this transaction, for what others hold: it was waited for before, for others' sake."""

    def hang_up_if_silent(self) -> None:
        """Ask whether the database still answers; where it does not in time, end what waits for it.

        This is for a thread of its own; it blocks, and raises nothing.
        """

    def has_rolled_back(self, connection: Connection, error: SQLAlchemyError) -> bool:
        """Say whether a COMMIT that failed certainly applied nothing, and will not."""
