"""The blocking side: one thread, and the database's errors as ours."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import IntegrityError, OperationalError

from persistence.database import Database
from persistence.retention import EventRetention
from persistence.sqlite import SqliteBackend
from persistence.testing import written
from reliable_channel.errors import (
    ChannelExistsError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.records import LostRecord


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    url = f"sqlite:///{tmp_path}/a.db"
    backend = SqliteBackend(url, synchronous="FULL", busy_timeout_ms=100)
    database = Database(backend, EventRetention())
    yield database
    await asyncio.wrap_future(database.stop())


async def test_jobs_are_done_in_order_in_one_thread(database: Database) -> None:
    done: list[int] = []
    threads: list[int] = []

    def job(number: int) -> None:
        done.append(number)
        threads.append(threading.get_ident())

    await asyncio.gather(*(database.run(job, number) for number in range(100)))
    assert done == list(range(100))
    assert len(set(threads)) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("statement", "kind"),
    [("SELECT * FROM nothing", StoreUnavailableError), ("INSERT INTO t VALUES (1)", StoreError)],
)
async def test_errors_of_the_driver_become_ours(
    database: Database, statement: str, kind: type[StoreError]
) -> None:
    def job() -> None:
        with database._engine.connect() as connection:
            connection.exec_driver_sql("CREATE TABLE t (a INTEGER PRIMARY KEY)")
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")
            connection.exec_driver_sql(statement)

    with pytest.raises(StoreError) as failed:
        await database.run(job)
    assert type(failed.value) is kind
    assert not isinstance(failed.value.__cause__, OperationalError | IntegrityError), "the driver's"


async def test_errors_of_a_job_stay_what_they_are(database: Database) -> None:
    def job() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.run(job)


async def test_a_channel_is_claimed_once(database: Database) -> None:
    database.claim("room")
    with pytest.raises(ChannelExistsError):
        database.claim("room")
    database.give_up("room")
    database.claim("room")


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreUnavailableError),  # the end of the transaction is nowhere
        (errno.EIO, StoreOutcomeUnknownError),
    ],
    ids=["disk full", "I/O error"],
)
async def test_a_commit_of_sqlite_that_fails_says_what_is_known(
    database: Database, number: int, kind: type[StoreError]
) -> None:
    """The transaction ends all the same."""
    codes = {errno.ENOSPC: sqlite3.SQLITE_FULL, errno.EIO: sqlite3.SQLITE_IOERR_FSYNC}
    await database.run(database.prepare)

    def fail(connection: Connection) -> None:
        error = sqlite3.OperationalError(os.strerror(number))
        error.sqlite_errorcode = codes[number]
        raise OperationalError("COMMIT", None, error)

    event.listen(database._engine, "commit", fail)
    with pytest.raises(kind, match=os.strerror(number)) as failed:
        await database.commit("room", written([LostRecord(message_id="a", lost_ns=1)]))
    assert type(failed.value) is kind
    assert "\n" not in str(failed.value)
    event.remove(database._engine, "commit", fail)
    rows = (await database.run(database.acquire, "room")).get(LostRecord)
    assert not rows
    await database.commit("room", written([LostRecord(message_id="b", lost_ns=1)]))


async def test_commits_that_wait_share_a_transaction(database: Database) -> None:
    await database.run(database.prepare)
    ends: list[Connection] = []

    def ended(connection: Connection) -> None:
        ends.append(connection)

    event.listen(database._engine, "commit", ended)
    rooms = [f"room {number}" for number in range(10)]
    blocked = threading.Event()
    waiting = database.run(blocked.wait)
    commits = [
        database.commit(room, written([LostRecord(message_id=room, lost_ns=1)])) for room in rooms
    ]
    blocked.set()
    await asyncio.gather(waiting, *commits)
    event.remove(database._engine, "commit", ended)
    assert len(ends) == 1
    for room in rooms:
        (row,) = (await database.run(database.acquire, room))[LostRecord]
        assert row == LostRecord(message_id=room, lost_ns=1)


async def test_a_commit_that_the_database_refuses_undoes_none_of_those_that_share(
    database: Database,
) -> None:
    await database.run(database.prepare)
    blocked = threading.Event()
    waiting = database.run(blocked.wait)
    good = written([LostRecord(message_id="a", lost_ns=1)])
    refused = written([LostRecord(message_id="b", lost_ns=None)])  # type: ignore[arg-type]
    commits = [
        database.commit(room, changes)
        for room, changes in (("one", good), ("two", {**good, **refused}), ("three", good))
    ]
    blocked.set()
    found = await asyncio.gather(waiting, *commits, return_exceptions=True)
    assert [type(item) for item in found] == [bool, type(None), StoreError, type(None)]
    for room, count in (("one", 1), ("two", 0), ("three", 1)):
        rows = (await database.run(database.acquire, room)).get(LostRecord, [])
        assert len(rows) == count
