"""Stores whose database goes away and comes back, and channels on them; nothing is opened again.

Every outage is a real one: a server that stops or crashes, a file that another process locks, a disk that is full.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, create_engine, make_url

from messaging_adapter import NodeConfig, create_node
from persistence import SqlStore, open_store
from persistence.postgresql import PostgresqlBackend
from persistence.testing import exact, rows_of, sample_event, written
from reliable_channel import (
    ChannelExistsError,
    ChannelFailedError,
    MessageReceivedEvent,
    MessageSentEvent,
    RateLimitConfig,
    ReliableChannel,
    SdsConfig,
    SendOutcomeUnknownError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
    create_reliable_channel,
)
from reliable_channel.records import BodyRecord, Record
from tests.support.failing_store import TOPIC, soon
from tests.support.kept import A_MOMENT, lost
from tests.support.middleman import Middleman
from tests.support.postgres import (
    Cluster,
    hang_up,
    run_sql,
)
from tests.support.small_disk import small_disk

NETWORK = "memory://stores"

TAKEOVER_S = 5.0
"""How long after a kill the next process has its channel, seconds: mostly 0.2, but machines are busy at times."""

SILENCE_S = 30.0
"""How long calls may take while the server is silent, seconds: some 5 each, as the test sets it."""

ROOT = Path(__file__).parents[2]

real = [pytest.mark.real, pytest.mark.timeout(120)]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Write to a file as another process would, until the block ends."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


async def check_unavailable(store: SqlStore, *rows: Record) -> None:
    """Check that a commit fails in one line."""
    with pytest.raises(StoreUnavailableError) as failed:
        await store.commit("room", written(rows))
    assert "\n" not in str(failed.value)


# --- A server ------------------------------------------------------------------------------------


@pytest.mark.real
@pytest.mark.timeout(120)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stops", "crashes"])
async def test_a_server_that_is_gone_and_back(cluster: Cluster, how: signal.Signals) -> None:
    async with SqlStore(cluster.url) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a"), sample_event(1)]))
        await asyncio.to_thread(cluster.stop, how)
        for _ in range(2):
            await check_unavailable(store, lost("b"), sample_event(2))
            with pytest.raises(StoreUnavailableError):
                await store.read_events("room", after=0, limit=9)
            with pytest.raises(StoreUnavailableError):
                await store.load_ledger("node")
            with pytest.raises(StoreUnavailableError):
                await store.acquire_channel("hall")
        await asyncio.to_thread(cluster.start)
        assert await store.read_events("room", after=0, limit=9) == [sample_event(1)]
        await store.commit("room", written([lost("c"), sample_event(2)]))
        await store.acquire_channel("hall")
        async with SqlStore(cluster.url) as other:
            for channel_id in ("room", "hall"):
                with pytest.raises(ChannelExistsError):
                    await other.acquire_channel(channel_id)
        await asyncio.to_thread(cluster.stop, how)
        await asyncio.to_thread(cluster.start)
        await store.commit("room", written([lost("d")]))  # nobody was told of the restart
        await store.release_channel("room")
        expected = exact([lost("a"), lost("c"), lost("d")])
        assert rows_of(await store.acquire_channel("room")) == expected


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_crashes_lose_nothing_and_tear_nothing(cluster: Cluster) -> None:
    stored = 0
    async with SqlStore(cluster.url) as store:
        await store.acquire_channel("room")
        stopping, reached = asyncio.Event(), asyncio.Event()

        async def write() -> None:
            nonlocal stored
            while not stopping.is_set():
                rows = [lost(str(stored)), sample_event(stored + 1)]
                try:
                    await store.commit("room", written(rows))
                except StoreUnavailableError:
                    continue  # and try the same again
                stored += 1
                if stored % 20 == 0:
                    reached.set()

        writing = asyncio.create_task(write())
        for _ in range(3):
            reached.clear()
            await reached.wait()
            await asyncio.to_thread(cluster.stop, signal.SIGQUIT)
            await asyncio.to_thread(cluster.start)
        stopping.set()
        await writing
        await store.release_channel("room")
        rows = rows_of(await store.acquire_channel("room"))
        assert rows == exact(lost(str(number)) for number in range(stored))
        events = await store.read_events("room", after=0, limit=stored + 1)
        assert [event.sequence for event in events] == list(range(1, stored + 1))


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_row_that_another_session_holds(postgres_url: str) -> None:
    async with SqlStore(postgres_url, busy_timeout_ms=50) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a")]))
        engine = create_engine(postgres_url)
        try:
            with engine.begin() as other:
                other.exec_driver_sql("SELECT * FROM lost FOR UPDATE")
                await check_unavailable(store, lost("b"), lost("a"), sample_event(1))
        finally:
            await asyncio.to_thread(engine.dispose)
        await store.release_channel("room")
        assert rows_of(await store.acquire_channel("room")) == exact([lost("a")])
        assert await store.read_events("room", after=0, limit=9) == []
        await store.commit("room", written([lost("b"), sample_event(1)]))


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_session_that_ends_within_a_transaction(
    postgres_url: str, postgres_server: str
) -> None:
    """The commit is begun again in the next session, and applied once."""
    async with SqlStore(postgres_url, busy_timeout_ms=60_000) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a"), sample_event(1)]))
        schema = postgres_url.rpartition("%3D")[2]
        engine = create_engine(postgres_server)
        try:
            with engine.begin() as other:
                other.exec_driver_sql(f"SELECT * FROM {schema}.lost FOR UPDATE")
                rows = [lost("b"), lost("a"), sample_event(2)]
                commit = asyncio.create_task(store.commit("room", written(rows)))
                await asyncio.wait([commit], timeout=A_MOMENT)
                await asyncio.to_thread(hang_up_once, postgres_url)
                assert not commit.done()
        finally:
            await asyncio.to_thread(engine.dispose)
        await commit
        assert len(await store.read_events("room", after=0, limit=9)) == 2
        await store.release_channel("room")
        assert rows_of(await store.acquire_channel("room")) == exact([lost("a"), lost("b")])


def hang_up_once(url: str) -> None:
    """End the sessions of a schema's URL that there are now; the next may come at once."""
    run_sql(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND application_name = current_setting('application_name')",
    )


@pytest.mark.real
@pytest.mark.timeout(120)
async def test_a_server_that_goes_silent_is_given_up_and_found_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its network acknowledges everything, so that only who asks it can tell; a close ends, too."""
    monkeypatch.setattr("persistence.postgresql.PATIENCE_S", 0.2)
    async with Middleman(cluster.url) as between:
        url = f"{between.url}?connect_timeout=2"
        async with SqlStore(url) as store:
            await store.acquire_channel("room")
            await store.commit("room", written([lost("a"), sample_event(1)]))
            await store.read_events("room", after=0, limit=9)
            between.go_silent()
            async with asyncio.timeout(SILENCE_S):
                await check_unavailable(store, lost("b"))
                with pytest.raises(StoreUnavailableError):
                    await store.read_events("room", after=0, limit=9)
            between.speak()
            await commit_when_possible(store, lost("c"))
            between.go_silent()
            async with asyncio.timeout(SILENCE_S):
                await store.close()
        between.speak()
        async with SqlStore(url) as store:
            await acquire_when_possible(store)


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_server_that_answers_is_waited_for(
    postgres_url: str, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a lock is held: whoever asks is answered."""
    monkeypatch.setattr("persistence.postgresql.PATIENCE_S", 0.01)
    asked = threading.Semaphore(0)
    ask = PostgresqlBackend.hang_up_if_silent

    def ask_and_count(backend: PostgresqlBackend) -> None:
        ask(backend)
        asked.release()

    monkeypatch.setattr(PostgresqlBackend, "hang_up_if_silent", ask_and_count)
    async with SqlStore(postgres_url, busy_timeout_ms=60_000) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a")]))
        session = run_sql(postgres_url, LEASE_HOLDERS)
        schema = postgres_url.rpartition("%3D")[2]
        engine = create_engine(postgres_server)
        try:
            with engine.begin() as other:
                other.exec_driver_sql(f"SELECT * FROM {schema}.lost FOR UPDATE")
                commit = asyncio.create_task(store.commit("room", written([lost("a")])))
                for _ in range(3):
                    await asyncio.to_thread(asked.acquire)
                assert not commit.done()
        finally:
            await asyncio.to_thread(engine.dispose)
        await commit
        assert run_sql(postgres_url, LEASE_HOLDERS) == session, "it was not ended"


@pytest.mark.real
@pytest.mark.timeout(60)
@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="cannot be asked here")
async def test_a_server_that_vanishes_from_the_network_is_noticed(cluster: Cluster) -> None:
    """By the operating system, within 15 s; unless the URL says otherwise."""

    def options(url: str) -> list[int]:
        def ask(connection: Connection) -> list[int]:
            driver: Any = connection.connection.dbapi_connection
            with socket.fromfd(driver.fileno(), socket.AF_INET, socket.SOCK_STREAM) as handle:
                names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                return [handle.getsockopt(socket.IPPROTO_TCP, name) for name in names]

        return PostgresqlBackend(url, busy_timeout_ms=1).look(ask)

    async with Middleman(cluster.url) as between:
        idle, interval, count = await asyncio.to_thread(options, between.url)
        assert idle + interval * count <= 15
        url = f"{between.url}?keepalives_idle=77"
        assert (await asyncio.to_thread(options, url))[0] == 77


async def commit_when_possible(store: SqlStore, *rows: Record) -> None:
    while True:
        try:
            return await store.commit("room", written(rows))
        except StoreUnavailableError:
            await asyncio.sleep(0)


LEASE_HOLDERS = (
    "SELECT pid FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' "
    "AND application_name = current_setting('application_name')"
)

WRITE = """
import asyncio, os, sys
from persistence import SqlStore
from persistence.testing import written
from reliable_channel.records import LostRecord

async def main():
    async with SqlStore(sys.argv[1], busy_timeout_ms=60_000) as store:
        await store.acquire_channel("room")
        os.write(1, b"open\\n")
        sys.stdin.readline()
        await store.commit("room", written([LostRecord(message_id="a", lost_ns=2)]))

asyncio.run(main())
"""


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_kill_while_a_commit_waits_for_a_lock_frees_the_channel(
    postgres_url: str, postgres_server: str
) -> None:
    """The server sees that its client is gone before that wait ends, after a minute."""
    async with SqlStore(postgres_url) as store:
        await store.commit("room", written([lost("a")]))
        schema = postgres_url.rpartition("%3D")[2]
        engine = create_engine(postgres_server)
        writer = process(WRITE, postgres_url)
        try:
            assert writer.stdin is not None
            assert writer.stdout is not None
            await asyncio.to_thread(writer.stdout.readline)
            with engine.begin() as other:
                other.exec_driver_sql(f"SELECT * FROM {schema}.lost FOR UPDATE")
                writer.stdin.write(b"\n")
                writer.stdin.flush()
                await asyncio.to_thread(wait_for_lock, postgres_server)
                writer.kill()
                killed = time.monotonic()
                await acquire_when_possible(store)
                assert time.monotonic() - killed < TAKEOVER_S
        finally:
            writer.kill()
            writer.communicate()
            await asyncio.to_thread(engine.dispose)


def process(code: str, url: str) -> subprocess.Popen[bytes]:
    """Start a process of its own."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", code, url], stdin=pipe, stdout=pipe, cwd=ROOT)


def wait_for_lock(server: str) -> None:
    """Return when a session waits for a row."""
    while not run_sql(server, "SELECT pid FROM pg_locks WHERE NOT granted"):
        pass


async def acquire_when_possible(store: SqlStore) -> None:
    while True:
        try:
            await store.acquire_channel("room")
        except ChannelExistsError:
            await asyncio.sleep(0)
        else:
            return


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_commit_whose_answer_is_lost_is_neither_denied_nor_doubled(
    cluster: Cluster,
) -> None:
    """Whatever keeps the store from asking again: it stays unknown."""
    async with Middleman(cluster.url) as between, SqlStore(between.url) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([lost("a")]))
        between.loses_commit = True
        with pytest.raises(StoreOutcomeUnknownError) as failed:
            await store.commit("room", written([lost("b"), sample_event(1)]))
        assert "\n" not in str(failed.value)
        assert between.swallowing.is_set()
        with pytest.raises(StoreUnavailableError) as failed:
            await store.commit("room", written([lost("c")]))
        assert type(failed.value) is StoreUnavailableError, "it never came so far"
        between.is_down = False
        await store.commit("room", written([lost("b"), sample_event(1)]))
        await store.release_channel("room")
        assert rows_of(await store.acquire_channel("room")) == exact([lost("a"), lost("b")])
        assert await store.read_events("room", after=0, limit=9) == [sample_event(1)]


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_commit_that_the_server_refuses_was_not_applied(postgres_url: str) -> None:
    """The session goes on, and its answer is certain."""
    async with SqlStore(postgres_url) as store:
        await store.acquire_channel("room")
        run_sql(
            postgres_url,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION SQLSTATE '53100' USING MESSAGE = 'disk full'; END $$",
        )
        run_sql(
            postgres_url,
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON lost DEFERRABLE INITIALLY DEFERRED "
            "FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        with pytest.raises(StoreUnavailableError, match="disk full") as failed:
            await store.commit("room", written([lost("a")]))
        assert type(failed.value) is StoreUnavailableError
        run_sql(postgres_url, "DROP TRIGGER late ON lost")
        await store.commit("room", written([lost("b")]))
        await store.release_channel("room")
        assert rows_of(await store.acquire_channel("room")) == exact([lost("b")])


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_no_send_is_denied_and_made_all_the_same(cluster: Cluster) -> None:
    """The answer to its COMMIT is lost, and the channel closed while the server cannot be reached."""
    async with (
        Middleman(cluster.url) as between,
        SqlStore(between.url) as store,
        await create_node(
            NodeConfig(transport=NETWORK, sds_config=SdsConfig(persistence=store))
        ) as node,
    ):
        channel = await create_reliable_channel(node, "room", TOPIC, "alice")
        between.loses_commit = True
        sending = asyncio.create_task(channel.send(b"hello", idempotency_key="k"))
        await between.swallowing.wait()
        await asyncio.wait([sending], timeout=A_MOMENT)
        assert not sending.done()
        await channel.close()
        with pytest.raises(SendOutcomeUnknownError):
            await sending
        between.is_down = False
        async with await create_reliable_channel(node, "room", TOPIC, "alice") as channel:
            assert channel.status().open_requests == 1
            await channel.send(b"hello", idempotency_key="k")
            assert channel.status().open_requests == 1


# --- A file --------------------------------------------------------------------------------------


async def test_a_disk_that_is_full_until_there_is_room(tmp_path: Path) -> None:
    def body(number: int) -> list[Record]:
        return [
            BodyRecord(message_id=f"{number} {part}", part=part, data=bytes(40_000))
            for part in ("content", "header")
        ]

    with small_disk(tmp_path / "disk") as folder:
        ballast = folder / "ballast"
        make_ballast(ballast, 1_000_000)
        async with open_store(f"sqlite:///{folder}/store.db") as store:
            assert isinstance(store, SqlStore)
            await store.acquire_channel("room")
            stored = 0

            async def fill() -> None:
                nonlocal stored
                while True:
                    await store.commit("room", written(body(stored)))
                    stored += 1

            with pytest.raises(StoreUnavailableError, match=r"full|I/O"):
                await fill()
            assert stored > 0
            await check_unavailable(store, *body(stored))
            ballast.unlink()
            await store.commit("room", written(body(stored)))
            await store.release_channel("room")
            expected = [row for number in range(stored + 1) for row in body(number)]
            assert rows_of(await store.acquire_channel("room")) == exact(expected)
            with closing(sqlite3.connect(folder / "store.db")) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def make_ballast(path: Path, size: int) -> None:
    path.write_bytes(bytes(size))


# --- Channels ------------------------------------------------------------------------------------


@contextmanager
def sqlite_outage(path: Path) -> Iterator[None]:
    with locked(path):
        yield


@contextmanager
def server_outage(cluster: Cluster) -> Iterator[None]:
    cluster.stop()
    try:
        yield
    finally:
        cluster.start()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=real)])
async def test_a_channel_goes_on_when_its_store_does(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "store.db"
    if kind == "sqlite":
        store = SqlStore(f"sqlite:///{path}", busy_timeout_ms=20)
        outage = sqlite_outage(path)
    else:
        cluster = request.getfixturevalue("cluster")
        store = SqlStore(cluster.url)
        outage = server_outage(cluster)
    async with (
        store,
        await create_node(
            NodeConfig(transport=NETWORK, sds_config=SdsConfig(persistence=store))
        ) as node,
        await create_node(NodeConfig(transport=NETWORK)) as other_node,
        await create_reliable_channel(other_node, "room", TOPIC, "bob") as bob,
        await create_reliable_channel(node, "room", TOPIC, "alice") as alice,
        bob.events() as events,
    ):
        with outage:
            for _ in range(2):
                with pytest.raises(StoreUnavailableError):
                    await soon(alice.send(b"lost"))
        request_id = await send_when_possible(alice, b"kept")
        async for event in events:
            if isinstance(event, MessageReceivedEvent):
                assert event.message == b"kept"
                break
        await alice.wait_delivered(request_id, timeout=60)


MISTAKES = {
    "table": ("ALTER TABLE requests RENAME TO away", "ALTER TABLE away RENAME TO requests"),
    "privilege": ("REVOKE INSERT ON requests FROM {user}", "GRANT INSERT ON requests TO {user}"),
}
"""What an administrator may do to a database in use, and undo again."""


@pytest.mark.real
@pytest.mark.timeout(60)
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_channel_goes_on_when_an_administrators_mistake_is_undone(
    postgres_url: str, mistake: str
) -> None:
    user = f"user_{secrets.token_hex(8)}"
    schema = postgres_url.rpartition("%3D")[2]
    make, undo = (statement.format(user=user) for statement in MISTAKES[mistake])
    run_sql(postgres_url, f"CREATE USER {user}")
    run_sql(postgres_url, f"GRANT CREATE, USAGE ON SCHEMA {schema} TO {user}")
    try:
        url = make_url(postgres_url).update_query_dict(
            {"options": f"-csearch_path={schema} -crole={user}"}
        )
        async with (
            SqlStore(url.render_as_string(hide_password=False)) as store,
            await create_node(
                NodeConfig(transport=NETWORK, sds_config=SdsConfig(persistence=store))
            ) as node,
            await create_reliable_channel(node, "room", TOPIC, "alice") as channel,
        ):
            await channel.send(b"before")
            await asyncio.to_thread(run_sql, postgres_url, make)
            with pytest.raises(StoreUnavailableError):
                await soon(channel.send(b"refused"))
            await asyncio.to_thread(run_sql, postgres_url, undo)
            await soon(send_when_possible(channel, b"after"))
            assert channel.status().open_requests == 2
    finally:
        run_sql(postgres_url, f"DROP OWNED BY {user} CASCADE")
        run_sql(postgres_url, f"DROP USER {user}")


async def send_when_possible(channel: ReliableChannel, payload: bytes) -> str:
    while True:
        try:
            return await channel.send(payload)
        except StoreUnavailableError:
            await asyncio.sleep(0)


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_node_whose_budget_was_taken_has_to_be_made_again(postgres_url: str) -> None:
    """Its channels end, and so does what is opened on it later, also when the other node has gone."""
    async with SqlStore(postgres_url) as store, SqlStore(postgres_url) as other:
        config = NodeConfig(
            transport=NETWORK,
            sds_config=SdsConfig(persistence=store),
            rate_limit_config=RateLimitConfig(enabled=True),
        )
        async with await create_node(config) as node:
            async with await create_reliable_channel(node, "room", TOPIC, "alice") as channel:
                # What was sent is kept as published before it is shown. Then nothing is left to be kept, with which the
                # node would take its budget back first.
                async with channel.events() as events:
                    await channel.send(b"before")
                    while not isinstance(await soon(anext(events)), MessageSentEvent):
                        pass
                await asyncio.to_thread(hang_up, postgres_url)
                await other.acquire_ledger("node:600")
                await check_failed(channel, "'node:600' is in use")
            await other.release_ledger("node:600")
            async with await create_reliable_channel(node, "room", TOPIC, "alice") as channel:
                await check_failed(channel, "'node:600' is in use")
        async with (
            await create_node(config) as node,
            await create_reliable_channel(node, "room", TOPIC, "alice") as channel,
        ):
            await soon(channel.send(b"after"))


async def check_failed(channel: ReliableChannel, why: str) -> None:
    """Send until the channel has ended, and compare the reason."""

    async def send() -> None:
        while True:
            await send_when_possible(channel, b"more")

    with pytest.raises(ChannelFailedError, match=why):
        await asyncio.wait_for(send(), SILENCE_S)


@pytest.mark.real
@pytest.mark.timeout(60)
async def test_a_channel_that_was_taken_over_says_so(postgres_url: str) -> None:
    async with (
        SqlStore(postgres_url) as store,
        SqlStore(postgres_url) as other,
        await create_node(
            NodeConfig(transport=NETWORK, sds_config=SdsConfig(persistence=store))
        ) as node,
    ):
        channel = await create_reliable_channel(node, "room", TOPIC, "alice")
        await channel.send(b"before")
        with pytest.raises(ChannelExistsError, match="another process"):
            await other.acquire_channel("room")
        await asyncio.to_thread(hang_up, postgres_url)
        await other.acquire_channel("room")
        with pytest.raises(ChannelFailedError, match="taken by another process"):
            await soon(channel.send(b"after"))
        await channel.close()
