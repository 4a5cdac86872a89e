"""Who drives a channel: real processes that contend for it, end in every way, and lose the server."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from persistence import SqlStore
from persistence.inspection import inspect_store
from persistence.leases import FileLeases, lock_number
from persistence.testing import exact, rows_of, written
from reliable_channel.errors import (
    BudgetInUseError,
    ChannelExistsError,
    LeaseLostError,
    StoreUnavailableError,
)
from reliable_channel.records import LedgerRecord
from tests.support.kept import lost
from tests.support.postgres import hang_up

ROOT = Path(__file__).parents[3]

TAKEOVER_S = 1.0
"""A restart after SIGKILL takes over within this time."""

real = [pytest.mark.real, pytest.mark.timeout(60)]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    found: str = request.getfixturevalue("postgres_url")
    return found


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlStore]:
    async with SqlStore(url) as store:
        yield store


# --- Processes -----------------------------------------------------------------------------------

HOLD = """
import asyncio, os, sys
from persistence import SqlStore
from persistence.testing import written
from reliable_channel.records import LostRecord

async def main():
    store = SqlStore(sys.argv[1])
    await store.open()
    await store.acquire_channel("room")
    await store.acquire_ledger("node:600")
    await store.commit("room", written([LostRecord(message_id="theirs", lost_ns=1)]))
    if sys.argv[2] == "fork" and os.fork() == 0:
        sys.stdin.read()
        os._exit(0)
    print("held", flush=True)
    sys.stdin.readline()
    if sys.argv[2] == "release":
        await store.release_channel("room")
        print("released", flush=True)
        sys.stdin.readline()
    if sys.argv[2] == "exit":
        os._exit(1)

asyncio.run(main())
"""


@contextmanager
def holder(url: str, what: str = "wait") -> Iterator[subprocess.Popen[str]]:
    """Run a process that holds the channel ``room``."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", HOLD, url, what],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            expect(process, "held")
            yield process
        finally:
            process.kill()


def expect(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


async def take_over(store: SqlStore) -> float:
    """Take the channel as soon as it can be had, and return how long that took, seconds."""
    began = time.monotonic()
    while True:
        try:
            rows = await store.acquire_channel("room")
        except ChannelExistsError:
            assert time.monotonic() < began + 10
        else:
            assert exact([lost("theirs")]) <= rows_of(rows)
            return time.monotonic() - began


async def test_a_second_process_is_refused_in_one_line(store: SqlStore, url: str) -> None:
    with holder(url):
        for attempt in (store.acquire_channel, store.purge_channel):
            with pytest.raises(ChannelExistsError, match="another process") as refused:
                await attempt("room")
            assert "\n" not in str(refused.value)
            assert "'room'" in str(refused.value)
        await store.acquire_channel("hall")
        await store.commit("hall", written([lost("a")]))


@pytest.mark.parametrize("what", ["wait", "fork"])
async def test_a_killed_process_is_followed_within_a_second(
    store: SqlStore, url: str, what: str
) -> None:
    """Also where children that it forked live on."""
    for _ in range(3):
        with holder(url, what) as process:
            with pytest.raises(ChannelExistsError):
                await store.acquire_channel("room")
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert await take_over(store) < TAKEOVER_S
        await store.release_channel("room")


async def test_a_budget_is_counted_in_by_one_process(store: SqlStore, url: str) -> None:
    with holder(url) as process:
        with pytest.raises(BudgetInUseError, match="database") as refused:
            await store.acquire_ledger("node:600")
        assert "\n" not in str(refused.value)
        assert "'node:600'" in str(refused.value)
        await store.acquire_ledger("channel:room:600")
        process.kill()
        process.wait()
        began = time.monotonic()
        while True:
            try:
                await store.acquire_ledger("node:600")
                break
            except BudgetInUseError:
                assert time.monotonic() < began + 1


async def test_a_budget_is_counted_in_by_one_node(store: SqlStore, url: str) -> None:
    await store.acquire_ledger("node:600")
    with pytest.raises(BudgetInUseError):
        await store.acquire_ledger("node:600")
    async with SqlStore(url) as other:
        with pytest.raises(BudgetInUseError):
            await other.acquire_ledger("node:600")
        await store.release_ledger("node:600")
        await store.release_ledger("node:600")
        await other.acquire_ledger("node:600")
    await store.acquire_ledger("node:600")
    assert inspect_store(url).channels == ()


async def test_one_node_counts_whatever_the_length_of_its_epochs(store: SqlStore, url: str) -> None:
    """One database is one membership's, and that has one period."""
    await store.acquire_ledger("node:600")
    async with SqlStore(url) as other:
        for nodes in (store, other):
            with pytest.raises(BudgetInUseError, match="'node:601'"):
                await nodes.acquire_ledger("node:601")
        await other.acquire_ledger("channel:room:601")
        await store.release_ledger("node:600")
        await other.acquire_ledger("node:601")


async def test_a_process_that_ends_without_closing_is_followed(store: SqlStore, url: str) -> None:
    with holder(url, "exit") as process:
        go_on(process)
        process.wait()
        assert await take_over(store) < TAKEOVER_S


async def test_a_process_gives_a_channel_back(store: SqlStore, url: str) -> None:
    with holder(url, "release") as process:
        go_on(process)
        expect(process, "released")
        await store.acquire_channel("room")


async def test_our_channels_are_refused_to_others(store: SqlStore, url: str) -> None:
    await store.acquire_channel("room")
    with pytest.raises(AssertionError), holder(url):
        pass
    await store.release_channel("room")
    with holder(url):
        pass


# --- Stores of one process -----------------------------------------------------------------------


async def test_two_stores_exclude_each_other(store: SqlStore, url: str) -> None:
    async with SqlStore(url) as other:
        await store.acquire_channel("room")
        await other.acquire_channel("hall")
        for _ in range(2):
            with pytest.raises(ChannelExistsError):
                await other.acquire_channel("room")
            with pytest.raises(ChannelExistsError):
                await store.acquire_channel("hall")
        with pytest.raises(ChannelExistsError):
            await other.purge_channel("room")
        await other.release_channel("room")  # is not its own to give back
        with pytest.raises(ChannelExistsError):
            await other.acquire_channel("room")
        await store.close()
        await other.acquire_channel("room")


async def test_what_another_store_gives_back_leaves_our_locks(store: SqlStore, url: str) -> None:
    await store.acquire_channel("room")
    async with SqlStore(url) as other:
        await other.acquire_channel("hall")
    with pytest.raises(AssertionError), holder(url):
        pass


async def test_a_channel_that_is_held_can_be_purged(store: SqlStore, url: str) -> None:
    await store.acquire_channel("room")
    await store.commit("room", written([lost("a")]))
    await store.purge_channel("room")
    await store.commit("room", written([lost("b")]))
    async with SqlStore(url) as other:
        with pytest.raises(ChannelExistsError):
            await other.acquire_channel("room")
    await store.release_channel("room")
    assert rows_of(await store.acquire_channel("room")) == exact([lost("b")])


# --- The file ------------------------------------------------------------------------------------


def test_lock_numbers_tell_places_apart() -> None:
    parts = [("a", "bc"), ("ab", "c"), ("abc",), ("a", "b", "c")]
    numbers = {lock_number(*each) for each in parts}
    assert len(numbers) == len(parts)
    assert all(0 <= number < 2**62 for number in numbers)


def test_a_lock_file_that_cannot_be_is_unavailable(tmp_path: Path) -> None:
    engine = create_engine("sqlite://")
    with engine.connect() as writer:
        leases = FileLeases(str(tmp_path / "missing" / "file"))
        with pytest.raises(StoreUnavailableError, match="cannot be opened: No such file"):
            leases.take(writer, "room")
        leases = FileLeases(str(tmp_path / "file"))
        leases.take(writer, "room")
        with pytest.raises(ChannelExistsError):
            FileLeases(str(tmp_path / "file")).take(writer, "room")
        leases.close(writer)
        leases.close(writer)
        leases.take(writer, "room")
        leases.close(writer)
    engine.dispose()


async def test_without_its_lock_file_a_store_writes_no_more(tmp_path: Path) -> None:
    """Another process may have taken the channel by then, and does; what it wrote is not written over later."""
    url, locks, away = f"sqlite:///{tmp_path}/a.db", tmp_path / "a.db-lease", tmp_path / "away"
    async with SqlStore(url) as ours:
        await ours.acquire_channel("room")
        locks.rename(away)
        with holder(url):
            with pytest.raises(StoreUnavailableError) as error:
                await ours.commit("room", written([lost("ours")]))
            assert str(error.value).startswith(f"{locks} was replaced or removed while open")
            assert "\n" not in str(error.value)
            with pytest.raises(StoreUnavailableError, match="replaced or removed"):
                await ours.acquire_channel("hall")
            with pytest.raises(StoreUnavailableError, match="replaced or removed"):
                await ours.purge_channel("room")
            away.replace(locks)
        with pytest.raises(StoreUnavailableError, match="replaced or removed"):
            await ours.commit("room", written([lost("ours")]))
        await ours.release_channel("room")
        snapshot = await ours.acquire_channel("room")
        assert rows_of(snapshot) == exact([lost("theirs")])
        await ours.acquire_channel("hall")
        await ours.commit("room", written([lost("ours")]))
        assert inspect_store(url).channels[0].driven in (True, None)


async def test_a_lock_file_that_nobody_holds_may_be_deleted(tmp_path: Path) -> None:
    url, locks = f"sqlite:///{tmp_path}/a.db", tmp_path / "a.db-lease"
    async with SqlStore(url) as store:
        for number in range(3):
            await store.acquire_channel("room")
            await store.commit("room", written([lost(str(number))]))
            await store.release_channel("room")
            locks.unlink()


# --- The session ---------------------------------------------------------------------------------

postgresql = pytest.mark.parametrize("url", [pytest.param("postgresql", marks=real)], indirect=True)


@postgresql
async def test_a_lost_session_is_replaced_and_the_lease_kept(store: SqlStore, url: str) -> None:
    await store.acquire_channel("room")
    await store.commit("room", written([lost("a")]))
    hang_up(url)
    await store.commit("room", written([lost("b")]))
    async with SqlStore(url) as other:
        with pytest.raises(ChannelExistsError):
            await other.acquire_channel("room")
    await store.release_channel("room")
    assert rows_of(await store.acquire_channel("room")) == exact([lost("a"), lost("b")])


@postgresql
@pytest.mark.parametrize("are_they_still_there", [True, False])
@pytest.mark.parametrize("do_they_purge", [True, False])
async def test_who_was_taken_over_writes_no_more(
    store: SqlStore, url: str, *, are_they_still_there: bool, do_they_purge: bool
) -> None:
    await store.acquire_channel("room")
    await store.acquire_channel("hall")
    await store.commit("room", written([lost("a")]))
    hang_up(url)
    async with SqlStore(url) as other:
        assert rows_of(await other.acquire_channel("room")) == exact([lost("a")])
        if do_they_purge:
            await other.purge_channel("room")
        if not are_they_still_there:
            await other.release_channel("room")
        for _ in range(2):
            with pytest.raises(LeaseLostError, match="'room' was taken by another process"):
                await store.commit("room", written([lost("b")]))
            with pytest.raises(LeaseLostError):
                await store.purge_channel("room")
        await store.commit("hall", written([lost("c")]))
        await store.release_channel("room")
        if are_they_still_there:
            with pytest.raises(ChannelExistsError):
                await store.acquire_channel("room")
    expected = [] if do_they_purge else [lost("a")]
    assert rows_of(await store.acquire_channel("room")) == exact(expected)


@postgresql
async def test_a_budget_that_was_taken_over_is_counted_in_no_more(
    store: SqlStore, url: str
) -> None:
    ours = LedgerRecord(scope="node:600", epoch=1, used=1)
    await store.acquire_ledger("node:600")
    await store.commit("", written([ours]))
    hang_up(url)
    async with SqlStore(url) as other:
        await other.acquire_ledger("node:600")
        with pytest.raises(BudgetInUseError, match="'node:600' is in use"):
            await store.commit("", written([replace(ours, used=2)]))
        await store.commit("", written([replace(ours, scope="channel:room:600")]))
    assert await store.load_ledger("node:600") == ours


@postgresql
async def test_a_budget_that_was_taken_over_with_other_epochs_is_counted_in_no_more(
    store: SqlStore, url: str
) -> None:
    await store.acquire_ledger("node:600")
    hang_up(url)
    async with SqlStore(url) as other:
        await other.acquire_ledger("node:601")
        with pytest.raises(BudgetInUseError, match="'node:600' is in use"):
            await store.commit("", written([LedgerRecord(scope="node:600", epoch=1, used=1)]))


@postgresql
async def test_a_purged_channel_stays_ours_in_the_next_session(store: SqlStore, url: str) -> None:
    await store.acquire_channel("room")
    await store.purge_channel("room")
    hang_up(url)
    await store.commit("room", written([lost("a")]))


@postgresql
async def test_a_lease_is_given_back_without_its_session(store: SqlStore, url: str) -> None:
    await store.acquire_channel("room")
    hang_up(url)
    await store.release_channel("room")
    async with SqlStore(url) as other:
        await other.acquire_channel("room")
        with pytest.raises(ChannelExistsError):
            await store.acquire_channel("room")


@postgresql
async def test_what_somebody_locks_by_hand_is_not_lost(store: SqlStore, url: str) -> None:
    """As by our last session, of whose end the server does not know yet."""
    await store.acquire_channel("room")
    hang_up(url)
    schema = url.rpartition("%3D")[2]
    number = lock_number("channel", schema, "room")
    engine = create_engine(url)
    try:
        with engine.connect() as ghost:
            ghost.exec_driver_sql(f"SELECT pg_advisory_lock({number})")
            with pytest.raises(StoreUnavailableError, match="has not given back the lease"):
                await store.commit("room", written([lost("a")]))
            ghost.exec_driver_sql(f"SELECT pg_advisory_unlock({number})")
    finally:
        await asyncio.to_thread(engine.dispose)
    await store.commit("room", written([lost("a")]))
