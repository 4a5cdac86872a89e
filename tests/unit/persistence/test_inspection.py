"""What is told of a database, and that telling it leaves no trace."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from persistence import SqlStore
from persistence.inspection import ChannelReport, inspect_store, ledger_period
from persistence.migrations import REVISIONS, VERSION_TABLE
from persistence.retention import event_size
from persistence.sql import backend_of
from persistence.testing import sample_event, sample_records, written
from reliable_channel.errors import ConfigurationError, StoreUnavailableError
from reliable_channel.records import (
    BodyRecord,
    ChannelRecord,
    LedgerRecord,
    LogRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    RequestRecord,
)
from reliable_channel.types import SECOND
from tests.support.postgres import run_sql

ROOT = Path(__file__).parents[3]

DRIVE = """
import asyncio, sys
from persistence import SqlStore

async def main():
    async with SqlStore(sys.argv[1]) as store:
        await store.acquire_channel("room")
        print("driven", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'alice.db'}"
    return str(request.getfixturevalue("postgres_url"))


@contextmanager
def driver_of_room(url: str) -> Iterator[None]:
    """Have another process drive a channel until the block ends."""
    child = subprocess.Popen(
        [sys.executable, "-c", DRIVE, url],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"driven\n"
        try:
            yield
        finally:
            child.communicate()


def channel(url: str, channel_id: str = "room") -> ChannelReport:
    return {found.channel_id: found for found in inspect_store(url).channels}[channel_id]


def read(path: Path) -> bytes:
    return path.read_bytes()


def request(
    name: str, *, age_sec: int, state: str = "open", ephemeral: bool = False
) -> RequestRecord:
    return replace(
        sample_records(RequestRecord)[1],
        request_id=name,
        created_ns=time.time_ns() - age_sec * SECOND,
        state=state,
        ephemeral=ephemeral,
    )


# --- What is told --------------------------------------------------------------------------------


@pytest.mark.timeout(60)  # the first one waits for the server
async def test_rows_and_their_bytes_are_counted(url: str) -> None:
    events = [sample_event(sequence) for sequence in (1, 2)]
    pending = replace(sample_records(PendingRecord)[1], history=bytes(3), content=bytes(70))
    parity = replace(sample_records(ParityRecord)[1], history=bytes(5), chunk=bytes(600))
    bodies = [BodyRecord(message_id=name, part="content", data=bytes(4_000)) for name in "ab"]
    async with SqlStore(url) as store:
        state = replace(sample_records(ChannelRecord)[1], sender_id="alice")
        rows = [state, *sample_records(LogRecord), *sample_records(OutgoingRecord)[:2]]
        await store.commit("room", written([*rows, pending, parity, *bodies, *events]))
        await store.acquire_channel("hall")
        await store.commit("hall", written(sample_records(LogRecord)[:1]))
        report = inspect_store(url)
    assert report.schema_revision == REVISIONS[-1]
    assert [found.channel_id for found in report.channels] == ["hall", "room"]
    hall, room = report.channels
    assert room == ChannelReport(
        channel_id="room",
        sender_id="alice",
        driven=False,
        log_entries=3,
        events=2,
        kept_bytes=2 * event_size(events[0]) + 73 + 605 + 8_000,
        outgoing_segments=2,
        pending_segments=1,
        parity_segments=1,
        open_requests=0,
        oldest_unacknowledged=None,
    )
    assert (hall.sender_id, hall.log_entries, hall.kept_bytes, hall.driven) == (None, 1, 0, True)


async def test_the_oldest_request_that_waits_for_acknowledgements_is_named(url: str) -> None:
    requests = [
        request("young", age_sec=10),
        request("old", age_sec=100),
        request("ephemeral", age_sec=1_000, ephemeral=True),
        request("done", age_sec=10_000, state="delivered"),
    ]
    async with SqlStore(url) as store:
        await store.commit("room", written(requests))
        found = channel(url)
    assert found.open_requests == 3
    assert found.oldest_unacknowledged is not None
    assert found.oldest_unacknowledged.request_id == "old"
    assert 100 <= found.oldest_unacknowledged.age_sec < 200


async def test_budgets_say_whether_their_epoch_is_over(url: str) -> None:
    now = time.time_ns() // SECOND // 1_000_000
    ledgers = [
        LedgerRecord(scope="channel:a:b:1000000", epoch=now - 1, used=3),
        LedgerRecord(scope="node:1000000", epoch=now, used=7),
    ]
    async with SqlStore(url) as store:
        await store.commit("", written(ledgers))
        report = inspect_store(url)
    assert report.channels == ()
    assert [
        (found.scope, found.period_sec, found.epoch, found.used, found.is_over)
        for found in report.ledgers
    ] == [
        ("channel:a:b:1000000", 1_000_000, now - 1, 3, True),
        ("node:1000000", 1_000_000, now, 7, False),
    ]


@pytest.mark.parametrize(
    ("scope", "period"),
    [("node:600", 600), ("channel:a:7:5", 5), ("node", None), ("600", None), ("node:0", None)],
)
def test_scopes_name_the_length_of_an_epoch(scope: str, period: int | None) -> None:
    assert ledger_period(scope) == period


# --- Beside a process that drives the channel ----------------------------------------------------


@pytest.mark.timeout(60)
async def test_it_is_told_while_another_process_drives_the_channel(url: str) -> None:
    with driver_of_room(url):
        async with SqlStore(url) as store:
            await store.acquire_channel("hall")
            await store.commit("hall", written(sample_records(LogRecord)))
            await store.commit("room", written(sample_records(LogRecord)))
            for _ in range(2):  # asking takes nothing away
                assert (channel(url, "hall").driven, channel(url).driven) == (True, True)
            await store.release_channel("hall")
            assert (channel(url, "hall").driven, channel(url).driven) == (False, True)
    assert (channel(url, "hall").driven, channel(url).driven) == (False, False)


async def test_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    url = f"sqlite:///{path}?busy_timeout_ms=0"
    async with SqlStore(url) as store:
        await store.commit("room", written(sample_records(LogRecord)))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("DELETE FROM log")
            assert channel(url).log_entries == 3
            other.execute("COMMIT")
        assert channel(url).log_entries == 0


# --- No trace ------------------------------------------------------------------------------------


async def test_nothing_can_be_written(url: str) -> None:
    async with SqlStore(url):
        pass
    backend = backend_of(url)
    with pytest.raises(DBAPIError, match=r"read.?only"):
        backend.look(lambda connection: connection.execute(text("DELETE FROM log")))


async def test_a_file_that_nobody_has_open_stays_alone_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "a b%41#.db"  # some of which would mean something else in a URI
    async with SqlStore(f"sqlite:///{path}") as store:
        await store.commit("room", written(sample_records(LogRecord)))
    contents = read(path)
    assert channel(f"sqlite:///{path}").log_entries == 3
    assert sorted(os.listdir(tmp_path)) == [path.name]
    assert read(path) == contents


async def test_what_a_killed_process_left_is_read_and_stays(tmp_path: Path) -> None:
    """Its newest commits are in the file beside the database."""
    path, copy = tmp_path / "alice.db", tmp_path / "copy.db"
    async with SqlStore(f"sqlite:///{path}") as store:
        await store.commit("room", written(sample_records(LogRecord)))
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
    left = read(copy), read(Path(f"{copy}-wal"))
    assert channel(f"sqlite:///{copy}").log_entries == 3
    assert (read(copy), read(Path(f"{copy}-wal"))) == left


def test_a_file_that_is_written_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    readings = 0

    def count_and_write(connection: object) -> int:
        nonlocal readings
        readings += 1
        if readings < 3:
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("INSERT INTO numbers VALUES (1)")
        return readings

    assert backend_of(f"sqlite:///{path}").look(count_and_write) == 3


# --- Databases that are not ours -----------------------------------------------------------------


def refusal(url: str, error: type[Exception] = ConfigurationError) -> str:
    with pytest.raises(error) as refused:
        inspect_store(url)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'alice.db'}"
    assert refusal(url).endswith("alice.db: there is no such file")
    assert not list(tmp_path.iterdir())


@pytest.mark.real
def test_a_database_that_is_not_there(postgres_server: str) -> None:
    url = postgres_server.replace("/postgres?", "/nowhere?")
    assert 'database "nowhere" does not exist' in refusal(url, StoreUnavailableError)


@pytest.mark.real
def test_an_empty_schema_stays_empty(postgres_url: str) -> None:
    assert "is empty; no store was ever opened there" in refusal(postgres_url)
    tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
    assert run_sql(postgres_url, tables) == []


@pytest.mark.parametrize(
    ("revision", "line"),
    [("0001", "open it with this release once"), ("9999", "this release knows up to")],
)
async def test_databases_of_other_releases_are_refused(url: str, revision: str, line: str) -> None:
    async with SqlStore(url):
        pass
    change = f"UPDATE {VERSION_TABLE} SET version_num = '{revision}'"
    if url.startswith("sqlite"):
        with closing(sqlite3.connect(url.partition("///")[2])) as connection, connection:
            connection.execute(change)
    else:
        run_sql(url, change)
    assert f"has schema version {revision}" in refusal(url)
    assert line in refusal(url)


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    path.write_bytes(b"Dear diary, " * 200)
    assert refusal(f"sqlite:///{path}", StoreUnavailableError).endswith("file is not a database")


def test_there_is_nothing_to_tell_of_memory() -> None:
    assert refusal("memory://").startswith("a database is named sqlite:///")
