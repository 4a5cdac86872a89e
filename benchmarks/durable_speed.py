"""How many sends a second a channel keeps durably, beside bare ``sqlite3``.

A channel on a network without faults and without others, payloads of 1 KiB, default settings but for the bounds of
what is unacknowledged. So many writers each send one message after the other: what they send while a transaction is
under way shares the next one. The bare database has the same settings (the store's own connection), one table, one row
of as many bytes as each payload has, and transactions of the sizes that the channel's had; the event loop, the protocol
and the network are not in it.

Nothing here asserts a speed.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import Engine, create_engine, make_url

from messaging_adapter import NodeConfig, create_node
from persistence.postgresql import PostgresqlBackend
from persistence.sql import BUSY_TIMEOUT_MS, SqlStore
from persistence.sqlite import SqliteBackend, Synchronous
from reliable_channel.channel import ReliableChannel
from reliable_channel.config import SdsConfig
from reliable_channel.events import MessageSentEvent
from reliable_channel.manager import create_reliable_channel
from reliable_channel.records import BodyRecord, Changes
from reliable_channel.types import ChannelId

PAYLOAD_BYTES: Final = 1024
CONTENT_TOPIC: Final = "/bench/1/durable/proto"
CHANNEL: Final = "bench"
SENDER: Final = "bob"
NETWORK: Final = "memory://durable-bench"
MAX_KNOWN_IDS: Final = 150_000
"""More than any log that is measured, so that nothing is forgotten meanwhile."""

ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Load:
    """How one run sends.

    Attributes:
        writers: Who send at once, each one message after the other.
        messages: How many all of them send.
        synchronous: SQLite's setting.
    """

    writers: int
    messages: int
    synchronous: Synchronous = "FULL"


LOADS: Final = tuple(
    Load(writers, messages, synchronous)
    for synchronous in ("FULL", "NORMAL")
    for writers, messages in ((1, 400), (8, 1_600), (64, 3_200), (1_000, 5_000))
)


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one piece of work."""

    wall: float
    cpu: float
    """Of all threads of the process."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one channel did.

    Attributes:
        kept: Until every ``send`` had returned.
        published: Until every message was on the network and that was kept, too.
        batches: Messages in each commit that had new ones.
        commits: All commits.
        rows: Rows written, and deleted, by record type.
    """

    kept: Spent
    published: Spent
    batches: tuple[int, ...]
    commits: int
    rows: Counter[str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The rounds of one load.

    Attributes:
        load: How it was sent.
        runs: Of the channel.
        bare: Of the bare database, in the same rounds.
    """

    load: Load
    runs: tuple[Run, ...]
    bare: tuple[Spent, ...]


class Stopwatch:
    """Wall and CPU time since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    def read(self) -> Spent:
        """Return what was spent until now."""
        return Spent(time.perf_counter() - self._wall, time.process_time() - self._cpu)


class WatchedStore(SqlStore):
    """A store that notes what is committed."""

    def watch(self) -> None:
        """Begin anew."""
        self.batches: list[int] = []
        self.commits = 0
        self.rows: Counter[str] = Counter()

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Commit, and note it."""
        sent = sum(
            kind is BodyRecord and record is not None and key[-1] == "content"
            for (kind, key), record in changes.items()
        )
        if sent:
            self.batches.append(sent)
        self.commits += 1
        self.rows.update(kind.__name__ for kind, _ in changes)
        await super().commit(channel_id, changes)


def sds_config(store: SqlStore) -> SdsConfig:
    """Return the defaults, but that nobody has to acknowledge anything."""
    return SdsConfig(
        persistence=store,
        max_outgoing_messages=1_000_000,
        max_outgoing_bytes=1 << 30,
        max_known_ids=MAX_KNOWN_IDS,
    )


def payloads(messages: int) -> Iterator[bytes]:
    """Yield payloads that differ."""
    filling = os.urandom(PAYLOAD_BYTES - 8)
    return (number.to_bytes(8, "big") + filling for number in range(messages))


async def send_all(url: str, load: Load, channel_id: ChannelId = CHANNEL) -> Run:
    """Open a channel in a store, send through it, and close it.

    Args:
        url: The store's.
        load: How to send.
        channel_id: The channel.
    """
    is_sqlite = url.startswith("sqlite")
    store = WatchedStore(url, synchronous=load.synchronous if is_sqlite else "FULL")
    store.watch()
    async with store:
        config = NodeConfig(transport=NETWORK, sds_config=sds_config(store))
        async with await create_node(config) as node:
            channel = await create_reliable_channel(node, channel_id, CONTENT_TOPIC, SENDER)
            async with channel:
                store.watch()
                return await send_through(channel, store, load)


async def send_through(channel: ReliableChannel, store: WatchedStore, load: Load) -> Run:
    """Send all messages; return what that took until they were kept, and until they were published."""
    published = asyncio.Event()
    left = load.messages

    def count(_: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            published.set()

    remaining = payloads(load.messages)

    async def write() -> None:
        for payload in remaining:
            await channel.send(payload)

    channel.on(MessageSentEvent.name, count)
    watch = Stopwatch()
    await asyncio.gather(*(write() for _ in range(load.writers)))
    kept = watch.read()
    await published.wait()
    return Run(kept, watch.read(), tuple(store.batches), store.commits, store.rows)


def engine_of(url: str, synchronous: Synchronous) -> Engine:
    """Return the store's own way to connect, with all of its settings."""
    if not url.startswith("sqlite"):
        return PostgresqlBackend(url, busy_timeout_ms=BUSY_TIMEOUT_MS).engine()
    backend = SqliteBackend(url, synchronous=synchronous, busy_timeout_ms=BUSY_TIMEOUT_MS)
    engine = backend.engine()
    backend.prepare(engine)
    return engine


def write_bare(url: str, synchronous: Synchronous, batches: Sequence[int]) -> Spent:
    """Write a row for each message, in transactions of the given sizes, by the driver alone.

    Args:
        url: A store's; the table is made.
        synchronous: SQLite's setting.
        batches: Rows of each transaction.
    """
    engine = engine_of(url, synchronous)
    is_sqlite = engine.dialect.name == "sqlite"
    octets, mark, begin = (
        ("BLOB", "?", "BEGIN IMMEDIATE") if is_sqlite else ("BYTEA", "%s", "BEGIN")
    )
    connection = engine.raw_connection()
    driver: Any = connection.driver_connection
    cursor = driver.cursor()
    if not is_sqlite:
        driver.autocommit = True
    cursor.execute("DROP TABLE IF EXISTS bare")
    cursor.execute(f"CREATE TABLE bare (number BIGINT PRIMARY KEY, data {octets} NOT NULL)")
    numbered = enumerate(payloads(sum(batches)))
    transactions = [[next(numbered) for _ in range(size)] for size in batches]
    insert = f"INSERT INTO bare VALUES ({mark}, {mark})"
    watch = Stopwatch()
    for rows in transactions:
        cursor.execute(begin)
        cursor.executemany(insert, rows)
        cursor.execute("COMMIT")
    spent = watch.read()
    cursor.execute("DROP TABLE bare")
    connection.close()
    engine.dispose()
    return spent


@contextmanager
def schema_of_our_own(server: str) -> Iterator[str]:
    """Make a schema on a PostgreSQL server and give the URL of it; drop it at the end."""
    name = f"durable_bench_{os.getpid()}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        try:
            url = make_url(server).update_query_dict({"options": f"-csearch_path={name}"})
            yield url.render_as_string(hide_password=False)
        finally:
            connection.exec_driver_sql(f"DROP SCHEMA {name} CASCADE")
    engine.dispose()


@dataclass(slots=True)
class Rounds:
    """The runs of one load, and the bare ones beside them."""

    runs: list[Run] = field(default_factory=list)
    bare: list[Spent] = field(default_factory=list)


def compare(loads: Iterable[Load], rounds: int, server: str = "") -> list[Comparison]:
    """Measure all loads in turns, each beside the bare database; one round before is not counted.

    Args:
        loads: What to measure.
        rounds: How often.
        server: A PostgreSQL store that is empty; SQLite files where there is none.
    """
    found: dict[Load, Rounds] = {load: Rounds() for load in loads}
    for number in range(rounds + 1):
        for load, taken in found.items():
            with TemporaryDirectory() as folder:
                channel_id = f"{load.writers} {number}"
                run = asyncio.run(send_all(server or f"sqlite:///{folder}/a.db", load, channel_id))
                url = server or f"sqlite:///{folder}/bare.db"
                bare = write_bare(url, load.synchronous, run.batches)
            if number:
                taken.runs.append(run)
                taken.bare.append(bare)
    return [Comparison(load, tuple(taken.runs), tuple(taken.bare)) for load, taken in found.items()]


def rows_of_a_send(load: Load) -> dict[str, float]:
    """Return how many rows one message changes until it is published, by record type."""
    with TemporaryDirectory() as folder:
        run = asyncio.run(send_all(f"sqlite:///{Path(folder)}/channel.db", load))
    return {name: count / load.messages for name, count in sorted(run.rows.items())}
