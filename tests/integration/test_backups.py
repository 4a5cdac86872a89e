"""Backups that are made and restored as docs/operations.md says, of channels in use: files, and a real server.

What the network was sent must not be sent again under the same wrap time, nor beyond the epoch budget, whatever the
backup does not know.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from api.cli import run
from messaging_adapter import NodeConfig, WakuNode, create_node
from persistence import SqlStore, open_store
from persistence.inspection import inspect_store
from reliable_channel import (
    MessageSentEvent,
    RateLimitConfig,
    ReliableChannel,
    SdsConfig,
    create_reliable_channel,
)
from reliable_channel.clock import SystemClock
from reliable_channel.ports import Clock
from reliable_channel.records import ChannelRecord
from reliable_channel.types import SECOND
from tests.support.failing_store import TOPIC, soon
from tests.support.postgres import MissingPostgresError, server_programs

LIMIT = RateLimitConfig(enabled=True, epoch_period_sec=1_000_000_000, messages_per_epoch=100)
"""The next epoch begins in 2033."""

NETWORK = "memory://backups"

HOUR_NS = 3_600 * SECOND


class Copying(ABC):
    """The steps of the page for one kind of database."""

    url: str

    @abstractmethod
    def back_up(self) -> None:
        """Make a backup, while the database is in use."""

    @abstractmethod
    def restore(self) -> None:
        """Put it in the place of the database, which nobody uses."""


def put_in_place(folder: Path) -> None:
    """Do with the files what the page says."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    [recipe] = re.findall(r"^        for end in .*\n        cp backup\.db .*$", page, re.MULTILINE)
    subprocess.run(["sh", "-ec", recipe], cwd=folder, check=True)


class Files(Copying):
    """SQLite, by whichever way of the two.

    Args:
        folder: Where the files are.
        statement: Makes a backup in the shell of SQLite.
    """

    def __init__(self, folder: Path, statement: str) -> None:
        self.path = folder / "alice.db"
        self.backup = folder / "backup.db"
        self.statement = statement
        self.url = f"sqlite:///{self.path}"

    def back_up(self) -> None:
        if shutil.which("sqlite3"):
            command = ["sqlite3", "alice.db", self.statement]
            subprocess.run(command, cwd=self.path.parent, check=True, timeout=60)
            return
        with (
            closing(sqlite3.connect(self.path)) as source,
            closing(sqlite3.connect(self.backup)) as copy,
        ):
            source.backup(copy)

    def restore(self) -> None:
        put_in_place(self.path.parent)


class Server(Copying):
    """A schema of a PostgreSQL server.

    Args:
        folder: Where the backup goes.
        url: Of the schema.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.backup = folder / "backup.sql"
        parsed = make_url(url)
        self.schema = str(parsed.query["options"]).rpartition("=")[2]
        query = {name: value for name, value in parsed.query.items() if name == "host"}
        bare = parsed.set(drivername="postgresql", query=query)
        self.database = bare.render_as_string(hide_password=False)

    def back_up(self) -> None:
        command = ["pg_dump", f"--schema={self.schema}", f"--file={self.backup}", self.database]
        self._run(command)

    def restore(self) -> None:
        self._psql("-c", f"ALTER SCHEMA {self.schema} RENAME TO {self.schema}_old")
        self._psql("-f", str(self.backup))
        self._psql("-c", f"DROP SCHEMA {self.schema}_old CASCADE")

    def _psql(self, *what: str) -> None:
        settings = ["--quiet", "--no-psqlrc", "--set=ON_ERROR_STOP=1"]
        self._run(["psql", *settings, *what, self.database])

    def _run(self, command: list[str]) -> None:
        program = str(server_programs() / command[0])
        done = subprocess.run(
            [program if os.path.exists(program) else command[0], *command[1:]],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert not done.returncode, done.stderr


@pytest.fixture(
    params=[
        "VACUUM INTO 'backup.db'",
        ".backup backup.db",
        pytest.param("pg_dump", marks=pytest.mark.real),
    ]
)
def copying(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Copying]:
    if request.param != "pg_dump":
        yield Files(tmp_path, request.param)
        return
    url = request.getfixturevalue("postgres_url")
    try:
        server_programs()
    except MissingPostgresError as missing:
        pytest.skip(str(missing))
    yield Server(tmp_path, url)


@asynccontextmanager
async def alice(
    url: str, clock: Clock | None = None
) -> AsyncIterator[tuple[WakuNode, ReliableChannel]]:
    """Open the channel, with a budget, on a network where nobody else is."""
    async with open_store(url) as store:
        sds = SdsConfig(persistence=store, acknowledgement_timeout_ms=600_000)
        config = NodeConfig(transport=NETWORK, sds_config=sds, rate_limit_config=LIMIT)
        async with await create_node(config, clock=clock) as node:
            channel = await create_reliable_channel(node, "room", TOPIC, "alice")
            async with channel:
                yield node, channel


async def transmitted(channel: ReliableChannel, count: int) -> None:
    """Wait until so many messages were sent in all."""
    async with channel.events(after=0) as events:
        async for event in events:
            count -= isinstance(event, MessageSentEvent)
            if not count:
                return


async def last_wrap_ns(url: str) -> int:
    """Return the largest wrap time that was given, as the database has it."""
    async with SqlStore(url) as store:
        [record] = (await store.acquire_channel("room"))[ChannelRecord]
    assert isinstance(record, ChannelRecord)
    return record.last_wrap_ns


def remaining(node: WakuNode) -> int:
    return node.epoch_budget.remaining(time.time_ns())


async def lose_and_restore(copying: Copying) -> int:
    """Transmit, back up, transmit more, restore; return the largest wrap time that was given."""
    async with alice(copying.url) as (_, channel):
        for number in range(3):
            await soon(channel.send(b"before %d" % number))
        await soon(transmitted(channel, 3))
        await asyncio.to_thread(copying.back_up)
        for number in range(3):
            await soon(channel.send(b"lost %d" % number))
        await soon(transmitted(channel, 6))
    lost_ns = await last_wrap_ns(copying.url)
    copying.restore()
    assert await last_wrap_ns(copying.url) < lost_ns
    return lost_ns


@pytest.mark.timeout(120)  # the first one waits for the server
async def test_a_restored_backup_reuses_no_wrap_time_and_no_budget(copying: Copying) -> None:
    lost_ns = await lose_and_restore(copying)
    [ledger] = inspect_store(copying.url).ledgers
    assert ledger.used < 6, "the backup would transmit more than the epoch has"
    assert await asyncio.to_thread(run, ["restored", "--database", copying.url]) == 0
    async with alice(copying.url) as (node, channel):
        used = node.epoch_budget.used
        await soon(channel.send(b"after"))
        assert (remaining(node), node.epoch_budget.used) == (0, used)
    assert await last_wrap_ns(copying.url) > lost_ns


@pytest.mark.timeout(120)
async def test_wrap_times_follow_the_clock(copying: Copying) -> None:
    """Also where the command was forgotten: what was given before now is not given again."""
    lost_ns = await lose_and_restore(copying)
    async with alice(copying.url) as (_, channel):
        await soon(channel.send(b"after"))
    assert await last_wrap_ns(copying.url) > lost_ns


@pytest.mark.timeout(120)
@pytest.mark.parametrize("is_marked", [False, True], ids=["forgotten", "restored"])
async def test_a_clock_that_is_behind(copying: Copying, is_marked: bool) -> None:
    """The backup's own wrap times are not given again; those after it are safe with the command only."""
    lost_ns = await lose_and_restore(copying)
    known_ns = await last_wrap_ns(copying.url)
    if is_marked:
        assert await asyncio.to_thread(run, ["restored", "--database", copying.url]) == 0
    behind = SystemClock(wall_ns=lambda: time.time_ns() - HOUR_NS)
    async with alice(copying.url, behind) as (_, channel):
        await soon(channel.send(b"after"))
    given_ns = await last_wrap_ns(copying.url)
    assert given_ns > known_ns
    assert (given_ns > lost_ns) == is_marked


async def test_restoring_keeps_the_newest_commits_of_the_old_file(tmp_path: Path) -> None:
    """After a kill they are in the file beside it alone."""
    killed = tmp_path / "killed"
    killed.mkdir()
    url = f"sqlite:///{tmp_path / 'alice.db'}"
    async with alice(url) as (_, channel):
        with closing(sqlite3.connect(tmp_path / "alice.db")) as source:
            source.execute("VACUUM INTO ?", [f"{killed}/backup.db"])
        request_id = await soon(channel.send(b"in -wal"))
        for end in ("", "-wal", "-shm"):  # as a kill leaves them
            shutil.copy(tmp_path / f"alice.db{end}", killed)
    put_in_place(killed)
    assert not list_of(killed) & {"alice.db-wal", "alice.db-shm"}
    for name, found in (("alice-old.db", [(request_id,)]), ("alice.db", [])):
        with closing(sqlite3.connect(killed / name)) as database:
            assert database.execute("SELECT request_id FROM requests").fetchall() == found


def list_of(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


async def test_the_file_alone_is_no_backup(tmp_path: Path) -> None:
    """Why the page says so: what is committed is in the file beside it."""
    url = f"sqlite:///{tmp_path / 'alice.db'}"
    async with alice(url) as (_, channel):
        await soon(channel.send(b"not in the file"))
        with closing(sqlite3.connect(f"file:{tmp_path}/alice.db?immutable=1", uri=True)) as alone:
            found = alone.execute("SELECT count(*) FROM sqlite_master").fetchall()
    assert found == [(0,)]
