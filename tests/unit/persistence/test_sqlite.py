"""SQLite as a backend: how its connections are set up. What it does is in the tests of the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from persistence import SqlStore
from persistence.inspection import inspect_store
from persistence.sqlite import SqliteBackend
from reliable_channel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("synchronous", "level", "checkpoint"), [("FULL", 2, 4_000), ("NORMAL", 1, 1_000)]
)
def test_connections_are_set_up(
    tmp_path: Path, synchronous: str, level: int, checkpoint: int
) -> None:
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
            "cache_size": -16_000,
            "wal_autocheckpoint": checkpoint,
        }.items():
            assert connection.exec_driver_sql(f"PRAGMA {pragma}").scalar() == expected
    engine.dispose()


@pytest.mark.parametrize(
    ("options", "level", "timeout"),
    [
        ("", 2, 1234),
        ("?synchronous=NORMAL", 1, 1234),
        ("?busy_timeout_ms=0", 2, 0),
        ("?busy_timeout_ms=5&synchronous=NORMAL", 1, 5),
    ],
)
def test_a_url_may_hold_settings(tmp_path: Path, options: str, level: int, timeout: int) -> None:
    url = f"sqlite:///{tmp_path}/a.db{options}"
    backend = SqliteBackend(url, synchronous="FULL", busy_timeout_ms=1234)
    assert backend.name == f"{tmp_path}/a.db"
    engine = backend.engine()
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == level
        assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar() == timeout
    engine.dispose()


@pytest.mark.parametrize(
    "options",
    ["synchronous=OFF", "synchronous=", "busy_timeout_ms=-1", "busy_timeout_ms=3600001"],
)
def test_settings_of_a_url_are_checked(options: str) -> None:
    with pytest.raises(ConfigurationError, match=options.partition("=")[0]) as refused:
        SqliteBackend(f"sqlite:///a.db?{options}", synchronous="FULL", busy_timeout_ms=1)
    assert "must be" in str(refused.value)


def files_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def test_a_file_with_another_name_is_refused(tmp_path: Path) -> None:
    """SQLite and the leases tell files apart by their names: two processes would write at once."""
    path, link = tmp_path / "a.db", tmp_path / "b.db"
    async with SqlStore(f"sqlite:///{path}") as store:
        await store.acquire_channel("room")
        os.link(path, link)
        for name in (path, link):
            with pytest.raises(ConfigurationError, match="has 2 names") as refused:
                await SqlStore(f"sqlite:///{name}").open()
            assert str(refused.value).startswith(f"{name} has")
            assert "\n" not in str(refused.value)
            with pytest.raises(ConfigurationError, match="hard links"):
                inspect_store(f"sqlite:///{name}")
        await store.commit("room", {})  # goes on: it is the only one
        assert files_in(tmp_path) == ["a.db", "a.db-lease", "a.db-shm", "a.db-wal", "b.db"]
        link.unlink()
        async with SqlStore(f"sqlite:///{path}"):
            pass


@pytest.mark.parametrize("name", ["a?b.db", "a?b=c.db", "what?.db"])
def test_a_question_mark_in_the_name_of_a_file_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"a file with '\?' in its name"):
        SqliteBackend(f"sqlite:///{name}", synchronous="FULL", busy_timeout_ms=1)


def test_what_names_no_file_is_not_said_to_have_a_question_mark() -> None:
    with pytest.raises(ConfigurationError, match="use memory://") as refused:
        SqliteBackend("sqlite:///:memory:?cache=shared", synchronous="FULL", busy_timeout_ms=1)
    assert "in its name" not in str(refused.value)


@pytest.mark.parametrize("name", ["a b.db", "per%20cent.db", "hash#x.db", "q'uote.db", "ünï.db"])
async def test_other_names_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    url = f"sqlite:///{tmp_path}/{name}"
    async with SqlStore(url) as store:
        await store.acquire_channel("room")
    assert (tmp_path / name).is_file()
    assert inspect_store(url).database == f"{tmp_path}/{name}"
