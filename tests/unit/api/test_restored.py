"""What ``restored`` says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from api.cli import FAILED, MISUSED, run
from api.restored import lines_of, moment
from persistence import SqlStore
from persistence.restoration import Restoration
from persistence.testing import sample_records, written
from reliable_channel.records import LedgerRecord, LogRecord
from reliable_channel.types import SECOND


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """A database with a channel, without a budget."""
    url = f"sqlite:///{tmp_path / 'alice.db'}"
    async with SqlStore(url) as store:
        await store.commit("room", written(sample_records(LogRecord)))
    return url


def test_a_budget_that_the_backup_lacks_is_asked_for(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["restored", "--database", url]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == "channels: 1; their wrap times go on from now"
    assert "--epoch-period-sec" in second


def test_a_budget_can_be_named(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    period = 1_000_000_000
    assert run(["restored", "--database", url, "--epoch-period-sec", str(period)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        f"budget node:{period}: used up until 2033-05-18 03:33:20 UTC"
    ]


def test_a_clock_that_was_ahead(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = LedgerRecord(scope="node:1000000000", epoch=9, used=4)

    async def count() -> None:
        async with SqlStore(url) as store:
            await store.commit("", written([ledger]))

    asyncio.run(count())
    assert run(["restored", "--database", url]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "budget node:1000000000: used up until 2286-11-20 17:46:40 UTC",
        "budget node:1000000000: was counted in an epoch that begins only at 2255-03-14 16:00:00 "
        "UTC; if the clock is right, repeat this with --forget-future",
    ]
    assert run(["restored", "--database", url, "--forget-future"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "budget node:1000000000: used up until 2033-05-18 03:33:20 UTC",
        "budget node:1000000000: was counted in an epoch that begins at 2255-03-14 16:00:00 UTC; "
        "forgotten",
    ]


def test_scopes_without_a_period_are_said() -> None:
    done = Restoration(channels=(), budgets={"node:5": 5 * SECOND}, unmarked=("odd",))
    assert list(lines_of(done)) == [
        "channels: 0; their wrap times go on from now",
        "budget node:5: used up until 1970-01-01 00:00:05 UTC",
        "budget odd: says no period, left as it is",
    ]


def test_times_beyond_the_calendar() -> None:
    assert moment((1 << 62) * SECOND) == f"{1 << 62} s since 1970"


async def test_a_channel_in_use_is_one_line(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with SqlStore(url) as store:
        await store.acquire_channel("room")
        code = await asyncio.to_thread(run, ["restored", "--database", url])
    assert code == FAILED
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "'room'" in err


def test_a_database_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["restored", "--database", f"sqlite:///{tmp_path / 'alice.db'}"]) == MISUSED
    assert capsys.readouterr().err.endswith("there is no such file\n")
