"""From any schema that there was to the one that there is, on both databases."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Boolean, Connection, MetaData, create_engine, text

from persistence import migrations, open_store
from persistence.migrations import REVISIONS, VERSION_TABLE, is_up_to_date, upgrade
from persistence.tables import metadata
from persistence.testing import ROW_TYPES, exact, rows_of, sample_event, sample_records
from reliable_channel.errors import ConfigurationError, EventsExpiredError
from reliable_channel.records import (
    AnswerRecord,
    AskedRecord,
    ChannelRecord,
    LedgerRecord,
    MissingRecord,
    OutgoingRecord,
    Record,
    RequestRecord,
)

ROOT = Path(__file__).parents[4]
FIRST_SCHEMA = ROOT / "tests" / "unit" / "persistence" / "data" / "first_schema.sql"
"""Written by the code of that time, with the rows that `check_first_data` knows."""

BOTH = [
    "sqlite",
    pytest.param("postgresql", marks=[pytest.mark.real, pytest.mark.timeout(60)]),
]


@pytest.fixture(params=BOTH)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
def connection(url: str) -> Iterator[Connection]:
    engine = create_engine(url)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def check(connection: Connection) -> bool:
    return is_up_to_date(connection, "here", "go there")


def make_first_schema(url: str) -> None:
    """Make what the dump holds, as the first revision would have it."""
    engine = create_engine(url)
    with engine.begin() as connection, closing(sqlite3.connect(":memory:")) as dumped:
        dumped.executescript(FIRST_SCHEMA.read_text("utf-8"))
        upgrade(connection, REVISIONS[0])
        tables = MetaData()
        tables.reflect(connection)
        for table in tables.sorted_tables:
            connection.execute(table.delete())
            if table.name == VERSION_TABLE:
                continue
            rows = dumped.execute(f"SELECT * FROM {table.name}").fetchall()
            assert rows, table.name
            booleans = [isinstance(column.type, Boolean) for column in table.columns]
            for row in rows:
                values = [
                    bool(value) if is_boolean else value
                    for value, is_boolean in zip(row, booleans, strict=True)
                ]
                connection.execute(table.insert().values(values))
        connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
    engine.dispose()


LATER_ROWS: Final = (MissingRecord, AskedRecord, AnswerRecord)
"""Types of rows that the first schema did not have."""

LATER_FIELDS: Final[dict[type[Record], dict[str, Any]]] = {
    ChannelRecord: {
        "sync_due_ns": 0,
        "idle_due_ns": 0,
        "resumed_ns": 0,
        "resumed_before_ns": 0,
    },
    RequestRecord: {"idempotency_key": "", "payload_digest": b""},
    OutgoingRecord: {"passed": 0, "spared": False, "in_flight": False},
}
"""What is in columns that it did not have."""


def before_it_was_kept(record: Record) -> Record:
    """Return a row as the first schema had it."""
    return replace(record, **LATER_FIELDS.get(type(record), {}))


async def check_first_data(url: str) -> None:
    """Check that everything is there that the dump holds."""
    async with open_store(url) as store:
        kinds = [kind for kind in ROW_TYPES if kind not in LATER_ROWS]
        expected = [before_it_was_kept(sample_records(kind)[1]) for kind in kinds]
        assert rows_of(await store.acquire_channel("room")) == exact(expected)
        assert rows_of(await store.acquire_channel("hall")) == exact(
            map(before_it_was_kept, sample_records(ROW_TYPES[1])[:2])
        )
        assert await store.read_events("room", after=2, limit=9) == [
            sample_event(sequence) for sequence in (3, 4, 5)
        ]
        with pytest.raises(EventsExpiredError):
            await store.read_events("room", after=1, limit=9)
        ledger = LedgerRecord(scope="node:600", epoch=3, used=4)
        assert await store.load_ledger("node:600") == ledger


def test_migrations_make_the_tables_of_the_code(connection: Connection) -> None:
    upgrade(connection)
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    assert compare_metadata(context, metadata) == []


def test_every_revision_is_known_and_leads_to_the_last() -> None:
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    found = [step.revision for step in script.walk_revisions()]
    assert tuple(reversed(found)) == REVISIONS


def test_only_the_last_revision_is_up_to_date(connection: Connection) -> None:
    assert not check(connection)
    for revision in REVISIONS[:-1]:
        upgrade(connection, revision)
        assert not check(connection)
    upgrade(connection)
    assert check(connection)
    upgrade(connection)
    assert check(connection)


def test_a_newer_revision_is_refused(connection: Connection) -> None:
    upgrade(connection)
    connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(ConfigurationError) as refused:
        check(connection)
    assert str(refused.value) == (
        f"here has schema version 9999, this release knows up to {REVISIONS[-1]}; "
        "use the release that wrote it, or a newer one"
    )


def test_tables_of_others_are_refused(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE schema_version (version INTEGER)"))
    with pytest.raises(ConfigurationError, match="here is a database of another program; go there"):
        check(connection)


async def test_data_of_the_first_schema_stays(url: str) -> None:
    make_first_schema(url)
    await check_first_data(url)


async def test_a_file_of_the_first_schema_stays(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(FIRST_SCHEMA.read_text("utf-8"))
    await check_first_data(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


OPEN = """
import asyncio, sys
from persistence import open_store

async def main():
    store = open_store(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    async with store:
        await store.load_ledger("node")

asyncio.run(main())
"""


@pytest.mark.real
@pytest.mark.timeout(60)
def test_who_looks_while_another_process_migrates_sees_all_tables_or_none(
    postgres_url: str,
) -> None:
    """What began to look before the other was done sees the old tables, also those that are dropped by now."""
    make_first_schema(postgres_url)
    engine = create_engine(postgres_url, isolation_level="REPEATABLE READ")
    with engine.begin() as looking:
        looking.execute(text("SELECT 1"))  # from now on it sees what there is now
        with engine.begin() as migrating:
            upgrade(migrating)
        assert not check(looking)
    with engine.begin() as connection:
        assert check(connection)
    engine.dispose()


def test_processes_that_open_at_once_migrate_once(url: str) -> None:
    make_first_schema(url)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", OPEN, url],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    engine = create_engine(url)
    with engine.begin() as connection:
        assert check(connection)
        versions = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).all()
        assert [tuple(row) for row in versions] == [(REVISIONS[-1],)]
    engine.dispose()
