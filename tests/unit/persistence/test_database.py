"""The blocking side: one thread, and the database's errors as ours."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import IntegrityError, OperationalError

from persistence.database import Database
from persistence.retention import EventRetention
from persistence.sqlite import SqliteBackend
from persistence.testing import sample_event, written
from reliable_channel.errors import (
    ChannelExistsError,
    EventsExpiredError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.records import LostRecord
from reliable_channel.types import SECOND
from tests.support.held_up import OK, ends, held_up
from tests.support.kept import lost


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


# --- Commits that share a transaction ------------------------------------------------------------


REFUSED = LostRecord(message_id="refused", lost_ns=None)  # type: ignore[arg-type]
"""What no database takes."""


@contextmanager
def counted(database: Database, statement: str) -> Iterator[list[str]]:
    """Give what grows with each time that the connection of all commits executes a statement."""
    assert database._writer is not None
    driver: Any = database._writer.connection.driver_connection
    found: list[str] = []

    def note(text: str) -> None:
        if text == statement:
            found.append(text)

    driver.set_trace_callback(note)
    try:
        yield found
    finally:
        driver.set_trace_callback(None)


@contextmanager
def failing_ends(database: Database, code: int, times: int = 1_000) -> Iterator[None]:
    """Let COMMIT fail so often."""
    left = [None] * times

    def fail(_: Connection) -> None:
        if left:
            left.pop()
            error = sqlite3.OperationalError("the disk")
            error.sqlite_errorcode = code
            raise OperationalError("COMMIT", None, error)

    event.listen(database._engine, "commit", fail)
    try:
        yield
    finally:
        event.remove(database._engine, "commit", fail)


async def lost_rows(database: Database, room: str) -> set[str]:
    """Return which rows of a channel there are."""
    snapshot = await database.run(database.acquire, room)
    await database.release(room)
    return {cast("LostRecord", row).message_id for row in snapshot.get(LostRecord, [])}


async def test_commits_that_wait_share_a_transaction(database: Database) -> None:
    await database.run(database.prepare)
    rooms = [f"room {number}" for number in range(10)]
    await database.commit("room 0", written([lost("before")]))
    with counted(database, "COMMIT") as ended:
        with held_up(database):
            commits = [database.commit(room, written([lost(room)])) for room in rooms]
        assert await ends(commits) == [OK] * 10
    assert len(ended) == 1
    for room in rooms[1:]:
        assert await lost_rows(database, room) == {room}


async def test_commits_are_done_in_their_place_among_other_jobs(database: Database) -> None:
    await database.run(database.prepare)
    with held_up(database):
        before = [database.commit(room, written([lost("1")])) for room in ("one", "two")]
        purged = database.run(database.purge, "one")
        after = [database.commit(room, written([lost("2")])) for room in ("one", "two")]
        seen = database.run(database.acquire, "two")
        last = database.commit("two", written([lost("3")]))
    assert await ends([*before, *after, last]) == [OK] * 5
    await purged
    assert {cast("LostRecord", row).message_id for row in (await seen)[LostRecord]} == {"1", "2"}
    assert await lost_rows(database, "one") == {"2"}


async def test_the_last_commit_of_a_channel_counts_whoever_shares(database: Database) -> None:
    await database.run(database.prepare)
    with held_up(database):
        commits = [
            database.commit(room, written([LostRecord(message_id="a", lost_ns=number)]))
            for number in range(5)
            for room in ("one", "two")
        ]
    assert await ends(commits) == [OK] * 10
    for room in ("one", "two"):
        snapshot = await database.run(database.acquire, room)
        assert snapshot[LostRecord] == [LostRecord(message_id="a", lost_ns=4)]


async def test_a_commit_that_the_database_refuses_undoes_none_of_those_that_share(
    database: Database,
) -> None:
    await database.run(database.prepare)
    with held_up(database):
        commits = [
            database.commit("one", written([lost("a")])),
            database.commit("two", written([lost("a"), REFUSED])),
            database.commit("three", written([lost("a")])),
        ]
    assert await ends(commits) == [OK, StoreError, OK]
    for room, rows in (("one", {"a"}), ("two", set()), ("three", {"a"})):
        assert await lost_rows(database, room) == rows


async def test_an_unknown_end_is_told_to_all_and_doing_it_again_doubles_nothing(
    database: Database,
) -> None:
    await database.run(database.prepare)
    rooms = ("one", "two", "three")

    def commits() -> list[asyncio.Future[None]]:
        with held_up(database):
            return [database.commit(room, written([lost("a"), sample_event(1)])) for room in rooms]

    with failing_ends(database, sqlite3.SQLITE_IOERR_FSYNC):
        assert await ends(commits()) == [StoreOutcomeUnknownError] * 3
    for _ in range(2):
        assert await ends(commits()) == [OK] * 3
    for room in rooms:
        assert await lost_rows(database, room) == {"a"}
        assert await database.run(database.read_events, room, 0, 9) == [sample_event(1)]


async def test_an_end_that_certainly_failed_is_tried_again_with_each_alone(
    database: Database,
) -> None:
    await database.run(database.prepare)
    with failing_ends(database, sqlite3.SQLITE_FULL, times=2):
        with held_up(database):
            commits = [database.commit(room, written([lost("a")])) for room in ("one", "two")]
        assert await ends(commits) == [StoreUnavailableError, OK]
    assert await lost_rows(database, "one") == set()
    assert await lost_rows(database, "two") == {"a"}


async def test_a_file_that_another_process_writes_is_waited_for_once(
    database: Database, tmp_path: Path
) -> None:
    await database.run(database.prepare)
    await database.commit("room 1", written([lost("a")]))
    with (
        closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other,
        counted(database, "BEGIN IMMEDIATE") as begun,
    ):
        other.execute("BEGIN IMMEDIATE")
        with held_up(database):
            commits = [
                database.commit(f"room {number}", written([lost("a")])) for number in range(500)
            ]
        assert await ends(commits) == [StoreUnavailableError] * 500
    assert len(begun) == 1
    await database.commit("room 1", written([lost("b")]))


async def test_stopping_does_what_waits(database: Database, tmp_path: Path) -> None:
    await database.run(database.prepare)
    url = f"sqlite:///{tmp_path}/a.db"
    again = Database(
        SqliteBackend(url, synchronous="FULL", busy_timeout_ms=1_000), EventRetention()
    )
    with held_up(again):
        prepared = again.run(again.prepare)
        commits = [again.commit(f"room {number}", written([lost("a")])) for number in range(200)]
        stopped = again.stop()
        with pytest.raises(RuntimeError):
            again.commit("late", written([lost("a")]))
    await asyncio.wrap_future(stopped)
    await prepared
    assert await ends(commits) == [OK] * 200
    assert await lost_rows(database, "room 199") == {"a"}
    assert await lost_rows(database, "late") == set()


async def test_what_was_cancelled_while_it_waited_is_not_done(database: Database) -> None:
    await database.run(database.prepare)
    rooms = [f"room {number}" for number in range(6)]
    with held_up(database):
        commits = [database.commit(room, written([lost("a")])) for room in rooms]
        for commit in commits[::2]:
            commit.cancel()
        await asyncio.wait(commits[::2])
    assert await ends(commits[1::2]) == [OK] * 3
    assert [await lost_rows(database, room) for room in rooms] == [set(), {"a"}] * 3


@pytest.mark.parametrize("order", [("good", "bad"), ("bad", "good")])
async def test_old_events_go_also_where_others_undo_the_first_try(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    """What was removed is there again, and is looked at again."""
    url = f"sqlite:///{tmp_path}/b.db"
    backend = SqliteBackend(url, synchronous="FULL", busy_timeout_ms=100)
    database = Database(backend, EventRetention(max_event_age_sec=3_600))
    await database.run(database.prepare)
    now = time.time_ns()
    old = replace(sample_event(1), time_ns=now - 3_590 * SECOND)
    young = [replace(sample_event(sequence), time_ns=now) for sequence in (2, 3)]
    await database.commit("good", written([old, young[0]]))
    later = now + 20 * SECOND
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistence.event_log.time.time_ns", lambda: later)
        changes = {"good": written([young[1]]), "bad": written([REFUSED])}
        with held_up(database):
            commits = {room: database.commit(room, changes[room]) for room in order}
        await ends(commits.values())
    assert commits["good"].exception() is None
    assert type(commits["bad"].exception()) is StoreError
    assert await database.run(database.read_events, "good", 1, 9) == young
    with pytest.raises(EventsExpiredError):
        await database.run(database.read_events, "good", 0, 9)
    await asyncio.wrap_future(database.stop())
