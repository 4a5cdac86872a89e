"""Brings the tables of a database up to date, with Alembic; done whenever a store is opened.

Versions are in ``versions``: each has a number and a function ``upgrade`` that is given Alembic's operations. There is
no way back but a backup. A database that is up to date is told without Alembic, which takes a while to load. Nothing
here may know what the tables mean.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, column, func, inspect, select, table

from reliable_channel.errors import ConfigurationError

if TYPE_CHECKING:
    from alembic.runtime.migration import MigrationContext

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006")
"""All that this release knows, oldest first."""

VERSION_TABLE: Final = "reliable_channel_version"
"""Where Alembic keeps the revision; not its usual name, which a program beside us may use."""

FIRST_TABLES: Final = frozenset({"schema_version", "channels", "channel_states", "ledger"})
"""What tells a database of the first revision that was made before there were migrations."""


def is_up_to_date(connection: Connection, name: str, another_place: str) -> bool:
    """Say whether the tables are those of this release.

    Args:
        connection: To the database.
        name: Of the database, for errors.
        another_place: What to do where the tables are another program's, for the error.

    Raises:
        ConfigurationError: The tables are another program's, or a newer release's.
    """
    return revision_of(connection, name, another_place) == REVISIONS[-1]


def revision_of(connection: Connection, name: str, another_place: str) -> str | None:
    """Return the revision of the tables; None where there are none.

    Args:
        connection: To the database.
        name: Of the database, for errors.
        another_place: What to do where the tables are another program's, for the error.

    Raises:
        ConfigurationError: The tables are another program's, or a newer release's.
    """
    tables = table_names(connection)
    if VERSION_TABLE in tables:
        versions = table(VERSION_TABLE, column("version_num"))
        revision = connection.scalar(select(versions.c.version_num))
        if revision is not None and revision not in REVISIONS:
            problem = (
                f"{name} has schema version {revision}, this release knows up to {REVISIONS[-1]}; "
                "use the release that wrote it, or a newer one"
            )
            raise ConfigurationError(problem)
        return revision
    if tables and not tables >= FIRST_TABLES:
        problem = f"{name} is a database of another program; {another_place}"
        raise ConfigurationError(problem)
    return REVISIONS[0] if tables else None


def table_names(connection: Connection) -> set[str]:
    """Return the names of the tables that are found without naming a schema, as they all were at one time.

    PostgreSQL says of a table that another process has dropped since that it is not visible, though it says of the
    tables made in its place that they are not there yet: so the schemas are gone through that it would look in.
    """
    found = inspect(connection)
    if connection.dialect.name != "postgresql":
        return set(found.get_table_names())
    schemas = connection.scalar(select(func.current_schemas(False)))
    return {name for schema in schemas or () for name in found.get_table_names(schema=schema)}


def upgrade(connection: Connection, revision: str = REVISIONS[-1]) -> None:
    """Bring the tables up to a revision within the transaction that the connection is in.

    Nothing happens where they are there already. The caller keeps everybody else out.

    Args:
        connection: In a transaction that writes.
        revision: Which one; older ones are for tests.
    """
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    # The functions are given the operations: Alembic's global ones would be shared by threads.
    script = ScriptDirectory(str(Path(__file__).parent))

    def steps(current: Any, _: MigrationContext) -> Any:
        return script._upgrade_revs(revision, current)

    context = MigrationContext.configure(
        connection, opts={"fn": steps, "version_table": VERSION_TABLE, "script": script}
    )
    if context.get_current_revision() is None and table_names(connection) >= FIRST_TABLES:
        context.stamp(script, REVISIONS[0])
    context.run_migrations(operations=Operations(context))
