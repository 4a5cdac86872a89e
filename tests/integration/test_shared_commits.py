"""Commits of many channels in one transaction: what befalls the transaction, and what each channel is told.

Everything that happens to them is real: locks and triggers of a server, a disk that is full, a COMMIT whose answer is
lost, a process that is killed.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import create_engine

from messaging_adapter import NodeConfig, create_node
from persistence import SqlStore
from persistence.testing import sample_event, written
from reliable_channel import (
    ChannelExistsError,
    ReliableChannel,
    SdsConfig,
    SendOutcomeUnknownError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    create_reliable_channel,
)
from reliable_channel.errors import BudgetInUseError, LeaseLostError
from reliable_channel.records import (
    BodyRecord,
    Changes,
    EventRecord,
    LedgerRecord,
    LostRecord,
    RequestRecord,
)
from tests.support.failing_store import soon
from tests.support.held_up import OK, ends, held_up
from tests.support.kept import A_MOMENT, lost
from tests.support.middleman import Middleman
from tests.support.postgres import (
    Cluster,
    hang_up,
    run_sql,
)
from tests.support.small_disk import small_disk

ROOT = Path(__file__).parents[2]

ROOMS = ("one", "two", "three")

real = [pytest.mark.real, pytest.mark.timeout(120)]


async def together(store: SqlStore, commits: Sequence[tuple[str, Changes]]) -> list[type]:
    """Commit all in one transaction, and return how each ended."""
    with held_up(store.opened()):
        tasks = [asyncio.create_task(store.commit(*commit)) for commit in commits]
        await asyncio.sleep(0)
    return await ends(tasks)


async def lost_ids(store: SqlStore, room: str) -> set[str]:
    """Return which rows of a channel that is not held there are."""
    snapshot = await store.acquire_channel(room)
    await store.release_channel(room)
    return {cast("LostRecord", row).message_id for row in snapshot.get(LostRecord, [])}


@contextmanager
def others(url: str, statement: str) -> Iterator[None]:
    """Hold what a statement of another session takes, until the block ends."""
    engine = create_engine(url)
    try:
        with engine.begin() as other:
            other.exec_driver_sql(statement)
            yield
    finally:
        engine.dispose()


# --- Those who take a channel, or hold its rows --------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_lease_that_was_lost_is_told_to_its_channel_alone(postgres_url: str) -> None:
    async with SqlStore(postgres_url) as store, SqlStore(postgres_url) as other:
        for room in ROOMS:
            await store.acquire_channel(room)
            await store.commit(room, written([lost("before")]))
        await asyncio.to_thread(hang_up, postgres_url)
        await other.acquire_channel("two")
        changes = written([lost("after"), sample_event(1)])
        found = await together(store, [(room, changes) for room in ROOMS])
        assert found == [OK, LeaseLostError, OK]
        await other.release_channel("two")
        await store.close()
        await store.open()
        assert await lost_ids(store, "one") == await lost_ids(store, "three") == {"before", "after"}
        assert await lost_ids(store, "two") == {"before"}
        assert await store.read_events("two", after=0, limit=9) == []


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_budget_that_was_taken_is_told_to_who_counts_in_it(postgres_url: str) -> None:
    ledger = LedgerRecord(scope="node:600", epoch=1, used=5)
    async with SqlStore(postgres_url) as store, SqlStore(postgres_url) as other:
        await store.acquire_ledger("node:600")
        await store.commit("one", written([replace_used(ledger, 1)]))
        await asyncio.to_thread(hang_up, postgres_url)
        await other.acquire_ledger("node:600")
        commits = [("one", written([lost("a"), ledger])), ("two", written([lost("a")]))]
        assert await together(store, commits) == [BudgetInUseError, OK]
        assert await store.load_ledger("node:600") == replace_used(ledger, 1)
        assert await lost_ids(store, "one") == set()
        assert await lost_ids(store, "two") == {"a"}


def replace_used(ledger: LedgerRecord, used: int) -> LedgerRecord:
    return LedgerRecord(scope=ledger.scope, epoch=ledger.epoch, used=used)


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_row_that_another_session_holds_keeps_only_its_channel(postgres_url: str) -> None:
    async with SqlStore(postgres_url, busy_timeout_ms=50) as store:
        for room in ROOMS:
            await store.commit(room, written([lost("a")]))
        with others(postgres_url, "SELECT * FROM lost WHERE channel_id = 'two' FOR UPDATE"):
            changes = written([lost("a"), lost("b")])
            found = await together(store, [(room, changes) for room in ROOMS])
        assert found == [OK, StoreUnavailableError, OK]
        assert [await lost_ids(store, room) for room in ROOMS] == [{"a", "b"}, {"a"}, {"a", "b"}]


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_table_that_another_session_holds_is_not_waited_for_by_each(
    postgres_url: str,
) -> None:
    async with SqlStore(postgres_url, busy_timeout_ms=1_000) as store:
        await store.commit("one", written([lost("a")]))
        rooms = [f"room {number}" for number in range(60)]
        with others(postgres_url, "LOCK TABLE lost"):
            began = time.monotonic()
            found = await together(store, [(room, written([lost("a")])) for room in rooms])
            assert time.monotonic() - began < 15, "one after the other it would have been 60 s"
        assert found == [StoreUnavailableError] * 60
        assert await together(store, [(room, written([lost("a")])) for room in rooms]) == [OK] * 60


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_commit_that_the_server_refuses_at_its_end_is_found_among_others(
    postgres_url: str,
) -> None:
    async with SqlStore(postgres_url) as store:
        run_sql(
            postgres_url,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN IF NEW.message_id = 'bad' THEN RAISE EXCEPTION SQLSTATE '53100' "
            "USING MESSAGE = 'disk full'; END IF; RETURN NULL; END $$",
        )
        run_sql(
            postgres_url,
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON lost DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        commits = [
            (room, written([lost("bad" if room == "two" else "good"), sample_event(1)]))
            for room in ROOMS
        ]
        assert await together(store, commits) == [OK, StoreUnavailableError, OK]
        assert [await lost_ids(store, room) for room in ROOMS] == [{"good"}, set(), {"good"}]
        assert await store.read_events("two", after=0, limit=9) == []


# --- A server that is gone -----------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_session_that_ends_within_the_transaction_ends_nobodys_commit(
    postgres_url: str,
) -> None:
    """It is begun again in the next session, and applied once."""
    async with SqlStore(postgres_url, busy_timeout_ms=60_000) as store:
        for room in ROOMS:
            await store.acquire_channel(room)
            await store.commit(room, written([lost("a"), sample_event(1)]))
        changes = written([lost("a"), lost("b"), sample_event(2)])
        with others(postgres_url, "SELECT * FROM lost WHERE channel_id = 'three' FOR UPDATE"):
            commits = asyncio.create_task(together(store, [(room, changes) for room in ROOMS]))
            await asyncio.wait([commits], timeout=A_MOMENT)
            await asyncio.to_thread(
                run_sql,
                postgres_url,
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE NOT granted",
            )
            assert not commits.done()
        assert await commits == [OK] * 3
        for room in ROOMS:
            assert len(await store.read_events(room, after=0, limit=9)) == 2
            await store.release_channel(room)
            assert await lost_ids(store, room) == {"a", "b"}


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_a_server_that_goes_silent_is_waited_for_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait: it would be some 4 s for each transaction of 64."""
    monkeypatch.setattr("persistence.postgresql.PATIENCE_S", 0.2)
    async with (
        Middleman(cluster.url) as between,
        SqlStore(f"{between.url}?connect_timeout=2") as store,
    ):
        await store.commit("one", written([lost("a")]))
        between.go_silent()
        rooms = [f"room {number}" for number in range(1_000)]
        async with asyncio.timeout(30):
            found = await together(store, [(room, written([lost("a")])) for room in rooms])
        assert found == [StoreUnavailableError] * 1_000
        between.speak()
        while (found := await together(store, [("one", written([lost("b")]))])) != [OK]:
            assert found == [StoreUnavailableError]
        assert await lost_ids(store, "room 999") == set()


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_server_that_hung_up_is_called_once_more_for_all(cluster: Cluster) -> None:
    async with Middleman(cluster.url) as between, SqlStore(between.url) as store:
        await store.commit("one", written([lost("a")]))
        between.is_down = True
        before = between.calls
        commits = [(f"room {number}", written([lost("a")])) for number in range(200)]
        assert await together(store, commits) == [StoreUnavailableError] * 200
        assert between.calls == before + 1
        between.is_down = False
        assert await together(store, commits) == [OK] * 200


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_an_answer_that_is_lost_is_unknown_to_all_who_share(cluster: Cluster) -> None:
    """It was applied, and doing it again after that doubles nothing."""
    changes = written([lost("b"), sample_event(1), LedgerRecord(scope="node", epoch=1, used=3)])
    async with Middleman(cluster.url) as between:
        async with SqlStore(between.url) as store:
            for room in ROOMS:
                await store.acquire_channel(room)
                await store.commit(room, written([lost("a")]))
            between.loses_commit = True
            commits = [(room, changes) for room in ROOMS]
            assert await together(store, commits) == [StoreOutcomeUnknownError] * 3
            assert between.swallowing.is_set()
            more = [(room, written([lost("c")])) for room in ROOMS]
            assert await together(store, more) == [StoreUnavailableError] * 3
            between.is_down = False
            async with SqlStore(cluster.url) as other:
                for room in ROOMS:
                    assert len(await other.read_events(room, after=0, limit=9)) == 1
            assert await together(store, commits) == [OK] * 3
        async with SqlStore(cluster.url) as store:
            for room in ROOMS:
                assert await lost_ids(store, room) == {"a", "b"}
                assert await store.read_events(room, after=0, limit=9) == [sample_event(1)]


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_no_send_of_any_channel_is_denied_and_made_all_the_same(cluster: Cluster) -> None:
    """One is closed while the server cannot be reached, the others go on when it is back."""
    async with (
        Middleman(cluster.url) as between,
        SqlStore(between.url) as store,
        await create_node(
            NodeConfig(transport="memory://sharing", sds_config=SdsConfig(persistence=store))
        ) as node,
    ):
        channels = [await open_channel(node, room) for room in ROOMS]
        between.loses_commit = True
        with held_up(store.opened()):
            sending = [
                asyncio.create_task(channel.send(b"hello", idempotency_key="k"))
                for channel in channels
            ]
            await asyncio.wait(sending, timeout=A_MOMENT)
        await between.swallowing.wait()
        await asyncio.wait(sending, timeout=A_MOMENT)
        assert not any(task.done() for task in sending)
        await channels[0].close()
        with pytest.raises(SendOutcomeUnknownError):
            await sending[0]
        between.is_down = False
        sent = await soon(asyncio.gather(*sending[1:]))
        channels[0] = await open_channel(node, ROOMS[0])
        again = [await soon(channel.send(b"hello", idempotency_key="k")) for channel in channels]
        assert again[1:] == sent
        assert [channel.status().open_requests for channel in channels] == [1, 1, 1]
        for channel in channels:
            await channel.close()


async def open_channel(node: object, room: str) -> ReliableChannel:
    return await create_reliable_channel(node, room, f"/app/1/{room}/proto", "alice")  # type: ignore[arg-type]


# --- A disk that is full -------------------------------------------------------------------------


async def test_what_is_too_large_for_the_disk_keeps_no_other_from_it(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as folder:
        async with SqlStore(f"sqlite:///{folder}/store.db") as store:
            large = BodyRecord(message_id="a", part="content", data=bytes(3_000_000))
            commits = [
                (room, written([lost("a"), sample_event(1), *([large] if room == "two" else [])]))
                for room in ROOMS
            ]
            assert await together(store, commits) == [OK, StoreUnavailableError, OK]
            assert [await lost_ids(store, room) for room in ROOMS] == [{"a"}, set(), {"a"}]
            assert await store.read_events("two", after=0, limit=9) == []


# --- Kills ---------------------------------------------------------------------------------------

CHANNELS = 24

LIVES = 8

WRITE = """
import asyncio, os, sys
from persistence import SqlStore
from persistence.testing import sample_event, written
from reliable_channel.records import BodyRecord, LedgerRecord, LostRecord

used = 0

async def write(store, room):
    global used
    found = await store.acquire_channel(room)
    number = len(found.get(LostRecord, ()))
    while True:
        number += 1
        used += 1
        now_used = used
        rows = [
            LostRecord(message_id=str(number), lost_ns=number),
            BodyRecord(message_id=str(number), part="content", data=bytes(2_000)),
            sample_event(number),
            LedgerRecord(scope="node", epoch=1, used=now_used),
        ]
        await store.commit(room, written(rows))
        os.write(1, f"{room} {number} {now_used}\\n".encode())

async def main():
    global used
    async with SqlStore(sys.argv[1]) as store, asyncio.TaskGroup() as group:
        ledger = await store.load_ledger("node")
        used = ledger.used if ledger else 0
        for number in range(int(sys.argv[2])):
            group.create_task(write(store, f"room-{number}"))

asyncio.run(main())
"""

SEND = """
import asyncio, os, sys
from messaging_adapter import NodeConfig, create_node
from persistence import SqlStore
from reliable_channel import RateLimitConfig, SdsConfig, create_reliable_channel

async def send(node, room):
    channel = await create_reliable_channel(node, room, f"/app/1/{room}/proto", "alice")
    number = channel.status().open_requests
    while True:
        number += 1
        request_id = await channel.send(f"{room} {number}".encode(), idempotency_key=str(number))
        os.write(1, f"{room} {number} {request_id}\\n".encode())

async def main():
    async with SqlStore(sys.argv[1]) as store:
        config = NodeConfig(
            transport="memory://killed",
            sds_config=SdsConfig(
                persistence=store,
                bloom_capacity=100,
                acknowledgement_timeout_ms=3_600_000,
                max_outgoing_messages=100_000,
            ),
            rate_limit_config=RateLimitConfig(
                enabled=True, epoch_period_sec=86_400, messages_per_epoch=1_000_000
            ),
        )
        async with await create_node(config) as node, asyncio.TaskGroup() as group:
            for number in range(int(sys.argv[2])):
                group.create_task(send(node, f"room-{number}"))

asyncio.run(main())
"""


@dataclass
class Said:
    """What processes wrote before they were killed, by channel."""

    last: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """The largest number that was kept."""
    words: dict[tuple[str, int], str] = field(default_factory=dict)
    """What belongs to each number."""
    kept: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """How many were found after the last kill."""

    def take(self, output: bytes) -> None:
        """Take whole lines."""
        for line in output[: output.rfind(b"\n") + 1].decode().splitlines():
            room, number, word = line.split()
            self.last[room] = max(self.last[room], int(number))
            assert self.words.setdefault((room, int(number)), word) == word


def live_and_die(code: str, url: str, said: Said, lines: int) -> None:
    """Run a process until it has said so much, and kill it."""
    command = [sys.executable, "-c", code, url, str(CHANNELS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        output = [process.stdout.readline() for _ in range(lines)]
        process.kill()
        output.append(process.stdout.read())
        said.take(b"".join(output))


kinds = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=real)])


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> str:
    if kind == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return cast("str", request.getfixturevalue("postgres_url"))


@asynccontextmanager
async def reopened(url: str) -> AsyncIterator[SqlStore]:
    """Open a store once the server knows that a process is gone."""
    async with SqlStore(url) as store:
        for number in range(CHANNELS):
            await acquire_when_possible(store, f"room-{number}")
            await store.release_channel(f"room-{number}")
        yield store


async def acquire_when_possible(store: SqlStore, room: str) -> None:
    while True:
        try:
            await store.acquire_channel(room)
        except ChannelExistsError:
            await asyncio.sleep(0)
        else:
            return


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform == "win32", reason="kills are those of Unix")
@kinds
async def test_kills_tear_and_lose_nothing_of_any_channel(url: str, kind: str) -> None:
    said, rng = Said(), random.Random(1)
    for _ in range(LIVES):
        await asyncio.to_thread(live_and_die, WRITE, url, said, rng.randint(1, 20 * CHANNELS))
        async with reopened(url) as store:
            for room, number in said.last.items():
                rows = await store.acquire_channel(room)
                events = await store.read_events(room, after=0, limit=100_000)
                counts = {len(found) for found in rows.values() if found} | {len(events)}
                assert len(counts) == 1, "each commit wrote one row of each type"
                assert counts.pop() >= number
                assert [event.sequence for event in events] == list(range(1, len(events) + 1))
            ledger = await store.load_ledger("node")
            assert ledger is not None
            assert ledger.used >= max(map(int, said.words.values()))
    assert len(said.last) == CHANNELS
    if kind == "postgresql":
        shared = run_sql(url, "SELECT max(n) FROM (SELECT count(*) n FROM lost GROUP BY xmin) t")
        assert shared[0][0] > 1, "no two channels shared a transaction"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform == "win32", reason="kills are those of Unix")
@kinds
async def test_kills_leave_every_channel_what_its_sends_returned_for(url: str, kind: str) -> None:
    """And each goes on from there: what is sent again under its key is what was sent."""
    said, rng = Said(), random.Random(2)
    epochs: dict[int, int] = {}
    for _ in range(LIVES):
        await asyncio.to_thread(live_and_die, SEND, url, said, rng.randint(1, 6 * CHANNELS))
        async with reopened(url) as store:
            total = 0
            for number in range(CHANNELS):
                total += await check_requests(store, f"room-{number}", said)
            ledger = await store.load_ledger("node:86400")
            assert ledger is not None
            epochs[ledger.epoch] = ledger.used
            assert sum(epochs.values()) >= len(said.words) - CHANNELS, "each sends one by one"
            assert total >= len(said.words)
    assert len(said.last) == CHANNELS


async def check_requests(store: SqlStore, room: str, said: Said) -> int:
    """Check the requests and events of a channel, and return how many requests there are."""
    snapshot = await store.acquire_channel(room)
    events = await store.read_events(room, after=0, limit=100_000)
    await store.release_channel(room)
    requests = {
        int(row.idempotency_key): row.request_id
        for row in cast("list[RequestRecord]", snapshot.get(RequestRecord, []))
    }
    assert sorted(requests) == list(range(1, len(requests) + 1))
    least = max(said.last[room], said.kept[room])
    assert least <= len(requests) <= least + 1, "at most one had not returned"
    said.kept[room] = len(requests)
    for number in range(1, said.last[room] + 1):
        assert said.words.get((room, number), requests[number]) == requests[number]
    contents = {
        row.message_id
        for row in cast("list[BodyRecord]", snapshot.get(BodyRecord, []))
        if row.part == "content"
    }
    assert len(contents) == len(requests), "each message has one segment"
    sequences = [cast("EventRecord", event).sequence for event in events]
    assert sequences == list(range(1, len(events) + 1))
    assert len({event.request_id for event in events}) == len(events), "each was sent once"
    return len(requests)
