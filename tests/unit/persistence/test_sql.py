"""The store in an SQLite file: the suite for all stores, and what only files have."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from persistence import SqlStore
from persistence.migrations import REVISIONS, VERSION_TABLE
from persistence.retention import SWEEP_PAGES
from persistence.testing import (
    DurableStoreSuite,
    deleted,
    exact,
    rows_of,
    sample_event,
    sample_records,
    written,
)
from reliable_channel.errors import (
    ChannelExistsError,
    ConfigurationError,
    EventsExpiredError,
    StoreClosedError,
    StoreError,
    StoreUnavailableError,
)
from reliable_channel.ports import ChannelStore
from reliable_channel.records import LogRecord
from reliable_channel.types import SECOND
from tests.support.held_up import held_up
from tests.support.kept import A_MOMENT, lost

ROOT = Path(__file__).parents[3]


class TestSqlStore(DurableStoreSuite):
    @pytest.fixture(autouse=True)
    def _in_folder(self, tmp_path: Path) -> None:
        self._url = url_of(tmp_path / "store.db")

    async def make_store(self, **limits: Any) -> SqlStore:
        self._limits = limits
        return self._make()

    async def reopen_store(self, store: ChannelStore) -> SqlStore:
        return self._make()

    def _make(self) -> SqlStore:
        return SqlStore(self._url, **self._limits)


def url_of(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "alice.db"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Write to the file as another process would, until the block ends."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


def query(path: Path, statement: str) -> list[tuple[object, ...]]:
    """Use the file as another process would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement).fetchall()


def beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def move(path: Path, target: Path) -> None:
    path.replace(target)


def delete(path: Path) -> None:
    path.unlink()


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def contents(path: Path) -> bytes:
    return path.read_bytes()


# --- The file ------------------------------------------------------------------------------------


async def test_the_file_is_in_wal_mode_and_says_its_version(path: Path) -> None:
    async with SqlStore(url_of(path)):
        assert query(path, "PRAGMA journal_mode") == [("wal",)]
        assert query(path, f"SELECT version_num FROM {VERSION_TABLE}") == [(REVISIONS[-1],)]


async def test_closing_leaves_one_file_and_an_empty_one(path: Path) -> None:
    async with SqlStore(url_of(path)) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a")]))
    assert sorted(found.name for found in path.parent.iterdir()) == ["alice.db", "alice.db-lease"]
    assert contents(path.parent / "alice.db-lease") == b""


@pytest.mark.parametrize("missing", ["", "-wal", "-shm"])
async def test_a_file_that_was_moved_away_takes_nothing_until_it_is_back(
    path: Path, missing: str
) -> None:
    """What would be written to it would be gone with it."""
    file, away = beside(path, missing), path.with_name("away")
    async with SqlStore(url_of(path)) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("before"), sample_event(1)]))
        move(file, away)
        for _ in range(2):
            with pytest.raises(StoreUnavailableError) as error:
                await store.commit("room", written([lost("meanwhile")]))
            assert str(error.value).startswith(f"{file} was replaced or removed while open; ")
            with pytest.raises(StoreUnavailableError):
                await store.read_events("room", after=0, limit=9)
            with pytest.raises(StoreUnavailableError):
                await store.purge_channel("room")
        assert file not in list(path.parent.iterdir())
        write(file, b"another")
        with pytest.raises(StoreUnavailableError):
            await store.commit("room", written([lost("meanwhile")]))
        with pytest.raises(StoreUnavailableError):
            await store.read_events("room", after=0, limit=9)
        assert contents(file) == b"another"
        move(away, file)
        await store.commit("room", written([lost("after")]))
        assert await store.read_events("room", after=0, limit=9) == [sample_event(1)]
    async with SqlStore(url_of(path)) as store:
        assert rows_of(await store.acquire_channel("room")) == exact(
            [lost("before"), lost("after")]
        )


async def test_no_connection_is_made_to_another_file(path: Path) -> None:
    """The first read needs one of its own; it must not make a file, nor read another one later."""
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written([sample_event(1)]))
        away, endings = beside(path, "-away"), ("", "-wal", "-shm")
        for ending in endings:
            move(beside(path, ending), beside(away, ending))
        with pytest.raises(StoreUnavailableError, match="replaced or removed"):
            await store.read_events("room", after=0, limit=9)
        assert path not in list(path.parent.iterdir())
        query(path, "CREATE TABLE another (x)")
        with pytest.raises(StoreUnavailableError, match="replaced or removed"):
            await store.read_events("room", after=0, limit=9)
        for ending in endings:
            move(beside(away, ending), beside(path, ending))
        assert await store.read_events("room", after=0, limit=9) == [sample_event(1)]


async def test_what_is_missing_before_the_first_commit_is_missed_too(path: Path) -> None:
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written([lost("before")]))
        async with SqlStore(url_of(path)) as second:
            assert rows_of(await second.acquire_channel("room")) == exact([lost("before")])
            move(beside(path, "-wal"), beside(path, "-away"))
            for _ in range(2):
                with pytest.raises(StoreUnavailableError, match="-wal"):
                    await second.commit("room", written([lost("meanwhile")]))
            move(beside(path, "-away"), beside(path, "-wal"))
            await second.commit("room", written([lost("after")]))
    assert query(path, "SELECT count(*) FROM lost") == [(2,)]


@pytest.mark.parametrize("missing", ["", "-wal", "-shm"])
async def test_what_was_committed_is_kept_where_a_file_beside_it_is_deleted(
    path: Path, missing: str
) -> None:
    """If only the store is closed then: of the database itself, a copy is put back."""
    async with SqlStore(url_of(path)) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("before")]))
        query(path, f"VACUUM INTO '{path}-backup'")
        delete(beside(path, missing))
        with pytest.raises(StoreUnavailableError):
            await store.commit("room", written([lost("meanwhile")]))
    if not missing:
        move(beside(path, "-backup"), path)
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    async with SqlStore(url_of(path)) as store:
        assert rows_of(await store.acquire_channel("room")) == exact([lost("before")])


async def test_a_file_put_in_the_place_of_an_open_one_is_not_touched(path: Path) -> None:
    """Nor what another process has open beside it, not even by closing."""
    store = SqlStore(url_of(path))
    await store.open()
    await store.acquire_channel("room")
    await store.commit("room", written([lost("before")]))
    query(path, f"VACUUM INTO '{path}-backup'")
    for ending in ("-wal", "-shm"):
        delete(beside(path, ending))
    move(beside(path, "-backup"), path)
    async with SqlStore(url_of(path)) as other:
        await other.acquire_channel("hall")
        await other.commit("hall", written([lost("theirs")]))
        files = [beside(path, ending) for ending in ("", "-wal")]
        before = [contents(file) for file in files]
        with pytest.raises(StoreUnavailableError):
            await store.commit("room", written([lost("ours")]))
        with pytest.raises(StoreUnavailableError):
            await store.read_events("room", after=0, limit=9)
        await store.close()
        assert [contents(file) for file in files] == before
    async with store:  # opened again, it takes what is there
        await store.acquire_channel("hall")
        await store.acquire_channel("room")
        await store.commit("room", written([lost("ours")]))
    ids = query(path, "SELECT message_id FROM lost ORDER BY message_id")
    assert ids == [("before",), ("ours",), ("theirs",)]


async def test_a_store_can_be_opened_again(path: Path) -> None:
    store = SqlStore(url_of(path))
    for number in range(3):
        async with store:
            await store.commit("room", written([lost(str(number))]))
            assert len(rows_of(await store.acquire_channel("room"))) == number + 1


async def test_many_may_open_a_new_file_at_once(path: Path) -> None:
    stores = [SqlStore(url_of(path)) for _ in range(6)]
    await asyncio.gather(*(store.open() for store in stores for _ in range(2)))
    for number, store in enumerate(stores):
        await store.commit("room", written([lost(str(number))]))
    assert len(rows_of(await stores[0].acquire_channel("room"))) == len(stores)
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_newer_schema_is_refused_in_one_line(path: Path) -> None:
    async with SqlStore(url_of(path)):
        pass
    query(path, f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    before = contents(path)
    store = SqlStore(url_of(path))
    with pytest.raises(
        ConfigurationError, match=r"9999, .*; use the release that wrote it"
    ) as refused:
        await store.open()
    assert "\n" not in str(refused.value)
    with pytest.raises(StoreClosedError):
        await store.acquire_channel("room")
    await store.close()
    assert contents(path) == before


async def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    query(path, "CREATE TABLE bookmarks (url TEXT)")
    before = contents(path)
    with pytest.raises(ConfigurationError, match="another program"):
        await SqlStore(url_of(path)).open()
    assert contents(path) == before


async def test_what_is_no_database_is_left_alone(path: Path) -> None:
    diary = b"Dear diary, " * 100
    write(path, diary)
    with pytest.raises(StoreUnavailableError, match="not a database"):
        await SqlStore(url_of(path)).open()
    assert contents(path) == diary


@pytest.mark.parametrize("name", ["missing/alice.db", "."])
async def test_a_file_that_cannot_be_is_unavailable(tmp_path: Path, name: str) -> None:
    store = SqlStore(url_of(tmp_path / name))
    with pytest.raises(StoreUnavailableError, match="unable to open") as failed:
        await store.open()
    assert str(tmp_path) in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_opening_works_once_the_cause_is_gone(tmp_path: Path) -> None:
    store = SqlStore(url_of(tmp_path / "later" / "alice.db"))
    with pytest.raises(StoreUnavailableError):
        await store.open()
    (tmp_path / "later").mkdir()
    async with store:
        await store.commit("room", written([lost("a")]))


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """A folder in which this process may not write: for root, by being somebody else for a while."""
    if not hasattr(os, "geteuid"):
        pytest.skip("needs POSIX permissions")
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            folder.chmod(0o700)


async def test_a_read_only_folder_is_unavailable(read_only_folder: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="unable to open"):
        await SqlStore(url_of(read_only_folder / "alice.db")).open()


@pytest.mark.parametrize(
    "settings",
    [{"synchronous": "OFF"}, {"busy_timeout_ms": -1}, {"max_events": 0}, {"max_event_bytes": 0}],
)
def test_settings_are_checked(path: Path, settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        SqlStore(url_of(path), **settings)  # type: ignore[arg-type]


async def test_a_backup_that_was_made_while_in_use_can_be_opened(path: Path) -> None:
    """As docs/operations.md says."""
    backup = path.parent / "backup.db"
    async with SqlStore(url_of(path)) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a"), sample_event(1)]))
        query(path, f"VACUUM INTO '{backup}'")
        await store.commit("room", written([lost("b")]))
        async with SqlStore(url_of(backup)) as restored:
            assert rows_of(await restored.acquire_channel("room")) == exact([lost("a")])
            assert await restored.read_events("room", after=0, limit=9) == [sample_event(1)]


# --- Failures ------------------------------------------------------------------------------------


async def test_while_another_process_writes_commits_fail_and_reads_work(path: Path) -> None:
    async with SqlStore(url_of(path), busy_timeout_ms=0) as store:
        await store.commit("room", written([lost("a"), sample_event(1)]))
        with locked(path):
            for _ in range(2):
                with pytest.raises(StoreUnavailableError, match="locked") as failed:
                    await store.commit("room", written([lost("b"), sample_event(2)]))
                assert "\n" not in str(failed.value)
                with pytest.raises(StoreUnavailableError):
                    await store.purge_channel("room")
            assert rows_of(await store.acquire_channel("room")) == exact([lost("a")])
            assert await store.read_events("room", after=0, limit=9) == [sample_event(1)]
        await store.release_channel("room")
        await store.commit("room", written([lost("c"), sample_event(2)]))
        assert rows_of(await store.acquire_channel("room")) == exact([lost("a"), lost("c")])


async def test_waiting_for_another_process_does_not_block_the_loop(path: Path) -> None:
    async with SqlStore(url_of(path), busy_timeout_ms=60_000) as store:
        with locked(path):
            commit = asyncio.create_task(store.commit("room", written([lost("a")])))
            # If the loop were blocked, the lock would never be given back.
            await asyncio.wait([commit], timeout=A_MOMENT)
            assert not commit.done()
        await commit
        assert rows_of(await store.acquire_channel("room")) == exact([lost("a")])


async def test_cancelled_while_waiting_a_commit_is_applied_or_not(path: Path) -> None:
    async with SqlStore(url_of(path), busy_timeout_ms=60_000) as store:
        with locked(path):
            tasks = [
                asyncio.create_task(store.commit("room", written([lost(name), lost(name * 2)])))
                for name in "abc"
            ]
            await asyncio.wait(tasks, timeout=A_MOMENT)
            for task in tasks[:2]:
                task.cancel()
            await asyncio.wait(tasks[:2])
        await tasks[2]
        found = rows_of(await store.acquire_channel("room"))
        begun = exact([lost("a"), lost("aa")])
        assert found - begun == exact([lost("c"), lost("cc")]), "what was waiting never began"
        assert found & begun in (exact([]), begun)


async def test_a_cancelled_release_gives_back_all_the_same(path: Path) -> None:
    async with SqlStore(url_of(path), busy_timeout_ms=60_000) as store:
        await store.acquire_channel("room")
        with locked(path):
            commit = asyncio.create_task(store.commit("room", written([lost("a")])))
            await asyncio.wait([commit], timeout=A_MOMENT)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await store.release_channel("room")
            with pytest.raises(ChannelExistsError):  # not while something of it is under way
                await store.acquire_channel("room")
        await store.commit("room", {})  # after the release
        assert rows_of(await store.acquire_channel("room")) == exact([lost("a")])


async def test_what_becomes_of_the_changes_later_does_not_matter(path: Path) -> None:
    async with SqlStore(url_of(path), busy_timeout_ms=60_000) as store:
        changes = written([lost("a")])
        with locked(path):
            begun = asyncio.create_task(store.commit("hall", written([lost("a")])))
            waiting = asyncio.create_task(store.commit("room", changes))
            await asyncio.wait([begun, waiting], timeout=A_MOMENT)
            changes.clear()
        await asyncio.gather(begun, waiting)
        assert rows_of(await store.acquire_channel("room")) == exact([lost("a")])


async def test_a_row_that_the_database_refuses_undoes_the_commit(path: Path) -> None:
    before, after, _ = sample_records(LogRecord)
    strange = replace(lost("a"), lost_ns=None)  # type: ignore[arg-type]
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written([before, sample_event(1)]))
        changes = written([after, sample_event(2), strange]) | deleted([before])
        with pytest.raises(StoreError, match=r"lost\.lost_ns") as refused:
            await store.commit("room", changes)
        assert not isinstance(refused.value, StoreUnavailableError), "trying again is of no use"
        assert rows_of(await store.acquire_channel("room")) == exact([before])
        assert await store.read_events("room", after=0, limit=9) == [sample_event(1)]


async def test_errors_hold_no_payload(path: Path) -> None:
    async with SqlStore(url_of(path)) as store:
        event = replace(sample_event(1, payload=b"secret"), detail="secret", name=None)  # type: ignore[arg-type]
        with pytest.raises(StoreError) as refused:
            await store.commit("room", written([event]))
    error: BaseException | None = refused.value
    while error is not None:
        assert "secret" not in str(error)
        error = error.__cause__ or error.__context__


FILL = """
import asyncio, resource, signal, sys
from persistence import SqlStore
from persistence.testing import written
from reliable_channel.errors import StoreUnavailableError
from reliable_channel.records import BodyRecord

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def body(number):
    return BodyRecord(message_id=str(number), part="content", data=bytes(50_000))

async def main():
    async with SqlStore(sys.argv[1]) as store:
        limit(1_000_000)
        stored = 0
        try:
            while True:
                await store.commit("room", written([body(stored), body(-1 - stored)]))
                stored += 1
        except StoreUnavailableError as error:
            assert len(str(error).splitlines()) == 1, error
        rows = await store.acquire_channel("room")
        assert len(rows[BodyRecord]) == 2 * stored > 0, (len(rows[BodyRecord]), stored)
        limit(resource.RLIM_INFINITY)
        await store.commit("room", written([body(stored)]))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX limits")
def test_a_full_disk_is_unavailable_until_there_is_room(path: Path) -> None:
    done = subprocess.run(child(FILL, path), env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


# --- Who drives a channel ------------------------------------------------------------------------


async def test_two_stores_on_one_file_do_not_drive_one_channel(path: Path) -> None:
    (path.parent / "folder").mkdir()
    (path.parent / "link.db").symlink_to(path)
    async with (
        SqlStore(url_of(path)) as one,
        SqlStore(url_of(path.parent / "folder" / ".." / "link.db")) as other,
    ):
        await one.acquire_channel("room")
        with pytest.raises(ChannelExistsError):
            await other.acquire_channel("room")
        with pytest.raises(ChannelExistsError):
            await other.purge_channel("room")
        await other.release_channel("room")  # is not its own to give back
        with pytest.raises(ChannelExistsError):
            await other.acquire_channel("room")
        await other.acquire_channel("hall")
        await one.release_channel("room")
        await other.acquire_channel("room")
        await one.close()  # gives back its own channels only
        async with SqlStore(url_of(path)) as third:
            with pytest.raises(ChannelExistsError):
                await third.acquire_channel("room")


async def test_channels_of_different_files_are_different(tmp_path: Path) -> None:
    async with SqlStore(url_of(tmp_path / "a.db")) as a, SqlStore(url_of(tmp_path / "b.db")) as b:
        await a.acquire_channel("room")
        await b.acquire_channel("room")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_a_forgotten_store_drives_nothing(path: Path) -> None:
    store = SqlStore(url_of(path))
    await store.open()
    await store.acquire_channel("room")
    del store
    gc.collect()
    async with SqlStore(url_of(path)) as other:
        await other.acquire_channel("room")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.timeout(20)
async def test_a_forgotten_store_is_gone_without_a_collection_of_garbage(path: Path) -> None:
    """What its thread has not let go of by then would keep its channels until the next one."""
    store = SqlStore(url_of(path))
    await store.open()
    await store.commit("room", written([lost("a")]))
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    watched = weakref.ref(store.opened(), lambda _: loop.call_soon_threadsafe(gone.set))
    gc.disable()
    try:
        del store
        await gone.wait()
        assert watched() is None
    finally:
        gc.enable()


async def fail(store: SqlStore) -> StoreError:
    """Return an error of the store, whose traceback keeps everything in use alive."""
    strange = replace(lost("strange"), lost_ns=None)  # type: ignore[arg-type]
    with pytest.raises(StoreError) as refused:
        await store.commit("room", written([strange]))
    return refused.value


async def test_a_closed_store_drives_nothing_even_if_an_error_of_it_is_kept(path: Path) -> None:
    async with SqlStore(url_of(path)) as store:
        await store.acquire_channel("room")
        kept = await fail(store)
    async with SqlStore(url_of(path)) as other:
        await other.acquire_channel("room")
    del kept


async def test_an_acquisition_that_fails_holds_nothing(path: Path) -> None:
    async with SqlStore(url_of(path)) as store:
        query(path, "ALTER TABLE log RENAME TO hidden")
        with pytest.raises(StoreUnavailableError):
            await store.acquire_channel("room")
        query(path, "ALTER TABLE hidden RENAME TO log")
        await store.acquire_channel("room")


# --- The worker thread ---------------------------------------------------------------------------


async def open_with_worker(store: SqlStore) -> threading.Thread:
    before = threading.enumerate()
    await store.open()
    (worker,) = [
        thread
        for thread in threading.enumerate()
        if thread not in before and "reliable-channel-store" in thread.name
    ]
    return worker


async def test_closing_finishes_what_was_begun_and_ends_the_thread(path: Path) -> None:
    store = SqlStore(url_of(path))
    worker = await open_with_worker(store)
    tasks = [
        asyncio.create_task(store.commit("room", written([lost(str(number))])))
        for number in range(20)
    ]
    await asyncio.gather(*tasks, store.close())
    worker.join()
    async with store:
        assert len(rows_of(await store.acquire_channel("room"))) == 20


async def test_a_cancelled_close_closes_all_the_same(path: Path) -> None:
    store = SqlStore(url_of(path), busy_timeout_ms=60_000)
    worker = await open_with_worker(store)
    await store.acquire_channel("room")
    kept = await fail(store)
    with locked(path):
        commit = asyncio.create_task(store.commit("room", written([lost("a")])))
        await asyncio.wait([commit], timeout=A_MOMENT)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(A_MOMENT):
                await store.close()
    await commit
    worker.join()
    async with SqlStore(url_of(path)) as other:
        assert rows_of(await other.acquire_channel("room")) == exact([lost("a")])
    del kept


async def test_a_store_that_fails_to_open_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.enumerate()
    with pytest.raises(StoreUnavailableError):
        await SqlStore(url_of(tmp_path)).open()
    for thread in threading.enumerate():
        if thread not in before:
            thread.join()


async def test_a_new_file_waits_while_another_process_uses_it(path: Path) -> None:
    with locked(path):
        with pytest.raises(StoreUnavailableError, match="locked"):
            await SqlStore(url_of(path), busy_timeout_ms=30).open()
        store = SqlStore(url_of(path), busy_timeout_ms=60_000)
        opening = asyncio.create_task(store.open())
        await asyncio.wait([opening], timeout=A_MOMENT)
        assert not opening.done()
    await opening
    await store.close()


async def test_a_cancelled_opening_can_be_repeated(path: Path) -> None:
    store = SqlStore(url_of(path), busy_timeout_ms=60_000)
    with locked(path):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(A_MOMENT):
                await asyncio.gather(store.open(), store.open())
        with pytest.raises(StoreClosedError):
            await store.load_ledger("node")
    async with store:
        assert await store.load_ledger("node") is None


# --- Events --------------------------------------------------------------------------------------


async def first_retained(store: SqlStore) -> int:
    oldest = 1
    try:
        await store.read_events("room", after=0, limit=1)
    except EventsExpiredError as expired:
        oldest = expired.oldest
    found = await store.read_events("room", after=oldest - 1, limit=1)
    assert [event.sequence for event in found] == [oldest]
    return oldest


async def test_exactly_the_newest_events_are_kept(path: Path) -> None:
    async with SqlStore(url_of(path), max_events=5) as store:
        for sequence in range(1, 21):
            await store.commit("room", written([sample_event(sequence)]))
            assert await first_retained(store) == max(1, sequence - 4)


async def test_smaller_bounds_count_from_the_next_event(path: Path) -> None:
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written(sample_event(place) for place in range(1, 101)))
    async with SqlStore(url_of(path), max_events=10) as store:
        await store.commit("room", written([lost("a")]))
        assert await first_retained(store) == 1
        await store.commit("room", written([sample_event(101)]))
        assert await first_retained(store) == 92


async def test_many_old_events_go_in_small_transactions(path: Path) -> None:
    """A commit does not wait until all are gone, and a reader meanwhile misses none unknowingly."""
    hour_ago = time.time_ns() - 3_600 * SECOND
    events = [replace(sample_event(place), time_ns=hour_ago) for place in range(1, 5_001)]
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written(events))
    async with SqlStore(url_of(path), max_event_age_sec=60) as store:
        await store.acquire_channel("room")
        cursor, missed = 0, 0
        with ExitStack() as looking:
            with held_up(store.opened()):
                committing = asyncio.create_task(store.commit("room", written([lost("a")])))
                await asyncio.sleep(0)
                looking.enter_context(held_up(store.opened()))  # what comes after it
            await committing
            [(removed,)] = query(path, "SELECT removed_through FROM channels")
        assert removed == sum(SWEEP_PAGES)
        while cursor < 5_000:
            try:
                page = await store.read_events("room", after=cursor, limit=50)
            except EventsExpiredError as expired:
                missed += expired.oldest - 1 - cursor
                cursor = expired.oldest - 1
            else:
                assert [event.sequence for event in page] == [
                    *range(cursor + 1, cursor + 1 + len(page))
                ]
                cursor += len(page)
        assert missed > 0
        while len(query(path, "SELECT sequence FROM events")) > 1:
            await store.load_ledger("node")  # takes its turn among the transactions
        assert await first_retained(store) == 5_000


async def test_a_quiet_channel_loses_its_old_events_too(path: Path) -> None:
    """Without an event: with whatever it writes."""
    now = time.time_ns()
    times = [now - 59 * SECOND, now - 58 * SECOND, now]
    events = [replace(sample_event(place), time_ns=at) for place, at in enumerate(times, start=1)]
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written(events))
    async with SqlStore(url_of(path), max_event_age_sec=58) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a")]))
        assert await first_retained(store) == 3


async def test_closing_does_not_wait_for_old_events(path: Path) -> None:
    hour_ago = time.time_ns() - 3_600 * SECOND
    events = [replace(sample_event(place), time_ns=hour_ago) for place in range(1, 20_001)]
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written(events))
    async with SqlStore(url_of(path), max_event_age_sec=60) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a")]))
    [(count,)] = query(path, "SELECT count(*) FROM events")
    assert query(path, "SELECT event_count FROM channels") == [(count,)]
    assert 1 < int(str(count)) < 20_000


async def test_what_is_written_last_is_written_though_old_events_wait(path: Path) -> None:
    old = [replace(sample_event(place), time_ns=1) for place in range(1, 2_001)]
    async with SqlStore(url_of(path)) as store:
        await store.commit("room", written(old))
    async with SqlStore(url_of(path), max_event_age_sec=60) as store:
        await store.acquire_channel("room")
        with locked(path):
            committing = asyncio.create_task(store.commit("room", written([lost("a")])))
            closing = asyncio.create_task(store.close())
            await asyncio.sleep(0)  # both are asked for
        await asyncio.gather(committing, closing)
    assert query(path, "SELECT message_id FROM lost") == [("a",)]


async def test_replaced_and_deleted_events_are_counted_as_what_they_are(path: Path) -> None:
    async with SqlStore(url_of(path), max_event_bytes=50_000) as store:
        large = [sample_event(place, payload=bytes(15_000)) for place in (1, 2, 3)]
        await store.commit("room", written(large))
        await store.commit("room", written([sample_event(1)]))  # makes room
        await store.commit("room", written([sample_event(4, payload=bytes(15_000))]))
        assert await first_retained(store) == 1
        await store.commit("room", deleted([large[1]]))  # so does this
        await store.commit("room", written([sample_event(5, payload=bytes(15_000))]))
        assert await first_retained(store) == 1
        await store.commit("room", written([sample_event(6, payload=bytes(15_000))]))
        assert await first_retained(store) == 4


# --- The end of the process ----------------------------------------------------------------------

WRITE = """
import asyncio, sys
from persistence import SqlStore
from persistence.testing import sample_event, written
from reliable_channel.records import BodyRecord, LostRecord

async def main():
    async with SqlStore(sys.argv[1]) as store:
        found = await store.acquire_channel("room")
        number = len(found.get(LostRecord, ()))
        while True:
            number += 1
            rows = [
                LostRecord(message_id=str(number), lost_ns=number),
                BodyRecord(message_id=str(number), part="content", data=bytes(20_000)),
                sample_event(number),
            ]
            await store.commit("room", written(rows))
            print(number, flush=True)

asyncio.run(main())
"""


def child(code: str, path: Path) -> list[str]:
    return [sys.executable, "-c", code, url_of(path)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def kill_a_writer(path: Path, after: int) -> int:
    """Kill a writing process once it has reported so many commits; return what it reported last."""
    command = child(WRITE, path)
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= after:
                process.kill()
                break
        return max([after, *(int(line) for line in process.stdout if line.endswith("\n"))])


async def test_nothing_is_lost_or_torn_when_the_process_is_killed(path: Path) -> None:
    for after in (7, 30, 61):
        reported = kill_a_writer(path, after)
        async with SqlStore(url_of(path)) as store:
            rows = await store.acquire_channel("room")
            events = await store.read_events("room", after=0, limit=1_000)
        counts = {len(found) for found in rows.values() if found} | {len(events)}
        assert len(counts) == 1, "each commit wrote one row of each type"
        assert counts.pop() >= reported
        assert query(path, "PRAGMA integrity_check") == [("ok",)]
