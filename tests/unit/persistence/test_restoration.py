"""What is marked in a restored database, and that nothing else is touched."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from persistence import SqlStore
from persistence.inspection import inspect_store
from persistence.migrations import REVISIONS, upgrade
from persistence.restoration import USED_UP, mark_restored
from persistence.testing import exact, rows_of, sample_records, written
from reliable_channel.budget import restore_budget
from reliable_channel.config import RateLimitConfig
from reliable_channel.errors import BudgetInUseError, ChannelExistsError, ConfigurationError
from reliable_channel.records import ChannelRecord, LedgerRecord, LogRecord
from reliable_channel.types import SECOND

PERIOD = 1_000_000_000
"""Of an epoch, seconds: the next one begins in 2033."""

LATER = 1 << 62
"""A wrap time in the far future, Unix nanoseconds."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'alice.db'}"
    return str(request.getfixturevalue("postgres_url"))


def ledgers(url: str) -> dict[str, tuple[int, int]]:
    return {found.scope: (found.epoch, found.used) for found in inspect_store(url).ledgers}


@pytest.mark.timeout(60)  # the first one waits for the server
async def test_the_epochs_of_all_budgets_are_used_up(url: str) -> None:
    epoch = time.time_ns() // (PERIOD * SECOND)
    rows = [
        LedgerRecord(scope=f"node:{PERIOD}", epoch=epoch - 1, used=9),
        LedgerRecord(scope=f"channel:a:5:{PERIOD}", epoch=epoch, used=0),
        LedgerRecord(scope=f"channel:ahead:{PERIOD}", epoch=epoch + 7, used=1),
        LedgerRecord(scope="odd", epoch=1, used=1),
    ]
    async with SqlStore(url) as store:
        await store.commit("", written(rows))
    for _ in range(2):
        done = await mark_restored(url)
        assert ledgers(url) == {
            f"node:{PERIOD}": (epoch, USED_UP),
            f"channel:a:5:{PERIOD}": (epoch, USED_UP),
            f"channel:ahead:{PERIOD}": (epoch + 7, USED_UP),
            "odd": (1, 1),
        }
    assert done.unmarked == ("odd",)
    assert done.budgets[f"node:{PERIOD}"] == (epoch + 1) * PERIOD * SECOND


@pytest.mark.timeout(60)
async def test_budgets_of_the_future_can_be_forgotten(url: str) -> None:
    now = time.time_ns()
    epoch, short = now // (PERIOD * SECOND), now // (600 * SECOND)
    rows = [
        LedgerRecord(scope=f"node:{PERIOD}", epoch=epoch, used=9, in_flight=3, held=2),
        LedgerRecord(scope=f"channel:ahead:{PERIOD}", epoch=epoch + 7, used=1, in_flight=1),
        LedgerRecord(scope="node:600", epoch=short + 52_560, used=100),
        LedgerRecord(scope="odd", epoch=1, used=1),
    ]
    async with SqlStore(url) as store:
        await store.commit("", written(rows))
    left = await mark_restored(url)
    assert left.ahead == {
        f"channel:ahead:{PERIOD}": (epoch + 7) * PERIOD * SECOND,
        "node:600": (short + 52_560) * 600 * SECOND,
    }
    assert ledgers(url)["node:600"] == (short + 52_560, USED_UP)
    done = await mark_restored(url, forget_future=True)
    assert done.ahead == left.ahead
    found = ledgers(url)
    assert found.pop("node:600")[0] in (short, short + 1)
    assert found == {
        f"node:{PERIOD}": (epoch, USED_UP),
        f"channel:ahead:{PERIOD}": (epoch, USED_UP),
        "odd": (1, 1),
    }
    open_ones = {item.scope: (item.in_flight, item.held) for item in inspect_store(url).ledgers}
    assert open_ones[f"node:{PERIOD}"] == (3, 2)
    assert (await mark_restored(url, forget_future=True)).ahead == {}
    config = RateLimitConfig(enabled=True)
    async with SqlStore(url) as store:
        budget = await restore_budget(config, store)
    later = time.time_ns() + 600 * SECOND
    assert budget.remaining(later) == 100


async def test_a_budget_in_use_is_refused_and_not_marked(url: str) -> None:
    async with SqlStore(url) as store:
        await store.commit("", written([LedgerRecord(scope="node:600", epoch=1, used=1)]))
        for scope in ("node:600", "node:60", "node:7"):
            await store.acquire_ledger(scope)
            with pytest.raises(BudgetInUseError):
                await mark_restored(url, epoch_periods=[60])
            await store.release_ledger(scope)
        assert ledgers(url) == {"node:600": (1, 1)}


async def test_a_budget_that_is_newer_than_the_backup_can_be_named(url: str) -> None:
    config = RateLimitConfig(enabled=True, epoch_period_sec=PERIOD, messages_per_epoch=1 << 31)
    async with SqlStore(url):
        pass
    await mark_restored(url, epoch_periods=[PERIOD])
    async with SqlStore(url) as store:
        budget = await restore_budget(config, store)
    now = time.time_ns()
    assert budget.remaining(now) == 0
    assert budget.remaining(budget.epoch_end(now)) == 1 << 31


async def test_wrap_times_go_on_from_now_and_nothing_else_changes(url: str) -> None:
    state = replace(sample_records(ChannelRecord)[1], last_wrap_ns=5)
    log = sample_records(LogRecord)
    async with SqlStore(url) as store:
        await store.commit("room", written([state, *log]))
        await store.commit("ahead", written([replace(state, last_wrap_ns=LATER)]))
        await store.commit("bare", written(log))
    before = time.time_ns()
    done = await mark_restored(url)
    assert set(done.channels) == {"room", "ahead", "bare"}
    async with SqlStore(url) as store:
        room = await store.acquire_channel("room")
        [moved] = room[ChannelRecord]
        assert isinstance(moved, ChannelRecord)
        assert before <= moved.last_wrap_ns <= time.time_ns()
        assert rows_of(room) == exact([replace(state, last_wrap_ns=moved.last_wrap_ns), *log])
        ahead = await store.acquire_channel("ahead")
        assert rows_of(ahead) == exact([replace(state, last_wrap_ns=LATER)])
        assert rows_of(await store.acquire_channel("bare")) == exact(log)


async def test_a_database_in_use_is_refused_and_not_marked(url: str) -> None:
    row = LedgerRecord(scope="node:600", epoch=1, used=1)
    async with SqlStore(url) as store:
        await store.commit("room", written([row, *sample_records(LogRecord)]))
        await store.acquire_channel("room")
        with pytest.raises(ChannelExistsError):
            await mark_restored(url)
        assert ledgers(url) == {"node:600": (1, 1)}
    await mark_restored(url)
    assert ledgers(url)["node:600"][1] == USED_UP


async def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        await mark_restored(f"sqlite:///{tmp_path / 'alice.db'}")
    with closing(sqlite3.connect(tmp_path / "notes.db")) as connection:
        connection.execute("VACUUM")
    with pytest.raises(ConfigurationError, match="no store was ever opened there"):
        await mark_restored(f"sqlite:///{tmp_path / 'notes.db'}")
    assert os.listdir(tmp_path) == ["notes.db"]


async def test_an_older_backup_is_brought_up_to_date(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'alice.db'}"
    engine = create_engine(url)
    with engine.begin() as connection:
        upgrade(connection, REVISIONS[0])
        connection.execute(text("INSERT INTO ledger VALUES ('node:600', 1, 1)"))
    engine.dispose()
    await mark_restored(url)
    assert inspect_store(url).schema_revision == REVISIONS[-1]
    assert ledgers(url)["node:600"][1] == USED_UP
