"""Both sides of the comparison write what they are said to write."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks import durable_speed
from benchmarks.durable_speed import Load


async def test_all_messages_are_kept_and_published(tmp_path: Path) -> None:
    run = await durable_speed.send_all(f"sqlite:///{tmp_path}/a.db", Load(4, 30))
    assert sum(run.batches) == 30
    assert max(run.batches) > 1, "writers share commits"
    assert max(run.batches) <= 4
    assert run.commits >= len(run.batches)
    assert run.rows["EventRecord"] == 30
    assert 0 < run.kept.wall <= run.published.wall
    with sqlite3.connect(tmp_path / "a.db") as kept:
        (count,) = kept.execute("SELECT count(*) FROM events WHERE name LIKE '%sent'").fetchone()
    assert count == 30


async def test_one_writer_commits_each_message_alone(tmp_path: Path) -> None:
    run = await durable_speed.send_all(f"sqlite:///{tmp_path}/a.db", Load(1, 5))
    assert run.batches == (1,) * 5


@pytest.mark.parametrize(("synchronous", "level"), [("FULL", 2), ("NORMAL", 1)])
def test_the_bare_database_has_the_settings_of_the_store(
    tmp_path: Path, synchronous: durable_speed.Synchronous, level: int
) -> None:
    engine = durable_speed.engine_of(f"sqlite:///{tmp_path}/a.db", synchronous)
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == level
    engine.dispose()


def test_the_bare_database_writes_transactions_of_the_given_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    engine_of = durable_speed.engine_of

    def traced(url: str, synchronous: durable_speed.Synchronous) -> durable_speed.Engine:
        engine = engine_of(url, synchronous)
        connection = engine.raw_connection()
        driver = connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        driver.set_trace_callback(lambda text: written.append(text.split()[0]))
        connection.close()  # back to the pool
        return engine

    monkeypatch.setattr(durable_speed, "engine_of", traced)
    spent = durable_speed.write_bare(f"sqlite:///{tmp_path}/a.db", "FULL", (1, 3))
    assert spent.wall > 0
    assert written[2:-1] == ["BEGIN", "INSERT", "COMMIT", "BEGIN", *["INSERT"] * 3, "COMMIT"]


def test_each_load_is_compared_in_each_round_but_the_first() -> None:
    loads = (Load(1, 3), Load(2, 4, "NORMAL"))
    found = durable_speed.compare(loads, rounds=2)
    assert [item.load for item in found] == list(loads)
    for item in found:
        assert (len(item.runs), len(item.bare)) == (2, 2)
        assert all(max(run.batches) <= item.load.writers for run in item.runs)
        assert all(run.published.wall > 0 for run in item.runs)
        assert all(spent.wall > 0 for spent in item.bare)


def test_the_rows_of_a_send_are_counted() -> None:
    rows = durable_speed.rows_of_a_send(Load(1, 10))
    assert rows["BodyRecord"] == pytest.approx(2)
    assert rows["EventRecord"] == pytest.approx(1)
