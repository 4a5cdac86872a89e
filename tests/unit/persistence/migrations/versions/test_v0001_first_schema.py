"""The first schema is what the code of that time made."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sqlalchemy import create_engine

from persistence.migrations import VERSION_TABLE, upgrade

FIRST_SCHEMA = Path(__file__).parents[2] / "data" / "first_schema.sql"


def test_it_makes_the_tables_of_that_time(tmp_path: Path) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(FIRST_SCHEMA.read_text("utf-8"))
        query = "SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"
        expected = dict(connection.execute(query).fetchall())
    engine = create_engine("sqlite://")
    with engine.begin() as migrated:
        upgrade(migrated, "0001")
        found = {row.name: row.sql for row in migrated.exec_driver_sql(query)}
        assert migrated.exec_driver_sql("SELECT version FROM schema_version").all() == [(1,)]
    engine.dispose()
    del found[VERSION_TABLE]
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].split() == expected[name].split()
