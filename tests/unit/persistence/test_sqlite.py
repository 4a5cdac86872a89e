"""SQLite as a backend: how its connections are set up. What it does is in the tests of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistence.sqlite import SqliteBackend


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_connections_are_set_up(tmp_path: Path, synchronous: str, level: int) -> None:
    backend = SqliteBackend(
        f"sqlite:///{tmp_path}/a.db",
        synchronous=synchronous,  # type: ignore[arg-type]
        busy_timeout_ms=1234,
    )
    engine = backend.engine()
    with engine.connect() as connection:
        for pragma, expected in {
            "synchronous": level,
            "foreign_keys": 1,
            "busy_timeout": 1234,
        }.items():
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == expected
    engine.dispose()
