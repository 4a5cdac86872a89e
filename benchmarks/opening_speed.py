"""How long a channel with a long log takes to open, and whether its sends cost more for it.

The log is a receiver's: one sender, payloads of 1 KiB, everything acknowledged and delivered, default settings; so the
store also holds the newest 1,000 messages whole and the events. *Cold* is with the file out of the operating system's
cache, where that lets go of it.

Nothing here asserts a speed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.durable_speed import (
    CHANNEL,
    CONTENT_TOPIC,
    MAX_KNOWN_IDS,
    NETWORK,
    SENDER,
    Load,
    Run,
    sds_config,
    send_all,
)
from benchmarks.machine_speed import HASH, START_NS, turn
from messaging_adapter import NodeConfig, create_node
from persistence.sql import SqlStore
from reliable_channel.config import SdsConfig
from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.manager import create_reliable_channel
from reliable_channel.records import LogRecord, Snapshot, rows_of
from reliable_channel.types import MS, ChannelId

SIZES: Final = (1_000, 10_000, 100_000)
ROUNDS: Final = 5
LOAD: Final = Load(64, 1_600)
"""What is sent with logs of each size."""

DISTANCE_NS: Final = 100 * MS
"""Between two messages of the log: acknowledgements keep up."""

COMMIT_EVERY: Final = 500
"""Messages in a transaction while the log is made."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Seconds of wall time until a channel is open.

    Attributes:
        entries: Rows of its log.
        store: Opening the database.
        rows: Taking the channel and reading its rows.
        machine: All the rest: the machine is made of the rows, subscribes, and writes that it began.
    """

    entries: int
    store: float
    rows: float
    machine: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.store + self.rows + self.machine


class TimedStore(SqlStore):
    """A store that notes how long reading took, and how much it was."""

    seconds = 0.0
    entries = 0

    async def acquire_channel(self, channel_id: ChannelId) -> Snapshot:
        """Take the channel."""
        began = time.perf_counter()
        snapshot = await super().acquire_channel(channel_id)
        self.seconds = time.perf_counter() - began
        self.entries = len(rows_of(snapshot, LogRecord))
        return snapshot


def machine(name: str) -> ChannelMachine:
    """Return a started machine."""
    made = ChannelMachine(
        channel_id=CHANNEL,
        sender_id=name,
        content_topic=CONTENT_TOPIC,
        now=START_NS,
        seed=1,
        sds=SdsConfig(
            max_outgoing_messages=1_000_000,
            max_outgoing_bytes=1 << 30,
            max_known_ids=MAX_KNOWN_IDS,
            max_in_flight=1024,
        ),
    )
    made.start(START_NS)
    return made


async def make_stores(folder: Path, sizes: Sequence[int]) -> dict[int, Path]:
    """Make a store of each size, the smaller ones by copying the largest on its way.

    Args:
        folder: Where.
        sizes: Received messages, ascending.
    """
    growing = folder / "growing.db"
    sender, receiver = machine("alice"), machine(SENDER)
    made: dict[int, Path] = {}
    number = 0
    for size in sizes:
        async with SqlStore(f"sqlite:///{growing}", synchronous="NORMAL") as store:
            await store.acquire_channel(CHANNEL)
            while number < size:
                last = min(size, number + COMMIT_EVERY)
                kept = Effects()
                for message in range(number, last):
                    exchange(sender, receiver, message, kept)
                await store.commit(CHANNEL, kept.changes)
                number = last
        made[size] = folder / f"{size}.db"
        shutil.copy(growing, made[size])
    return made


def exchange(sender: ChannelMachine, receiver: ChannelMachine, number: int, kept: Effects) -> None:
    """Send one message; collect what the receiver wants kept."""
    now = START_NS + number * DISTANCE_NS
    payload = number.to_bytes(8, "big") * 128
    _, effects = sender.send(payload, now)
    answers = []
    for publish in effects.publishes:
        sender.published(publish.segment_id, HASH, now)
        answers.append(receiver.receive(publish.data, HASH, now))
    for answer in (*answers, *turn(receiver, now)):
        kept.merge(answer)
        for publish in answer.publishes:
            kept.merge(receiver.published(publish.segment_id, HASH, now))
            sender.receive(publish.data, HASH, now)


def forget_file(path: Path) -> None:
    """Have the operating system let go of what it keeps of a file, where it can be asked to."""
    if hasattr(os, "posix_fadvise"):
        with closing(os.fdopen(os.open(path, os.O_RDONLY))) as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


async def open_channel(path: Path) -> Opening:
    """Open the channel of a store as an application does, and close it."""
    began = time.perf_counter()
    store = TimedStore(f"sqlite:///{path}")
    async with store:
        opened = time.perf_counter()
        config = NodeConfig(transport=NETWORK, sds_config=sds_config(store))
        async with await create_node(config) as node:
            channel = await create_reliable_channel(node, CHANNEL, CONTENT_TOPIC, SENDER)
            ready = time.perf_counter()
            await channel.close()
    rest = ready - opened - store.seconds
    return Opening(store.entries, opened - began, store.seconds, rest)


def measure_openings(stores: dict[int, Path], rounds: int) -> dict[tuple[int, str], list[Opening]]:
    """Open all stores in turns, cold and warm; return every opening by size and temperature."""
    found: dict[tuple[int, str], list[Opening]] = {}
    for _ in range(rounds):
        for size, path in stores.items():
            for temperature in ("cold", "warm"):
                if temperature == "cold":
                    forget_file(path)
                opening = asyncio.run(open_channel(path))
                found.setdefault((size, temperature), []).append(opening)
    return found


def measure_sends(stores: dict[int, Path], load: Load, rounds: int) -> dict[int, list[Run]]:
    """Send in turns through a copy of each store; return every run by size."""
    found: dict[int, list[Run]] = {size: [] for size in stores}
    for _ in range(rounds):
        for size, path in stores.items():
            copy = path.with_suffix(".copy.db")
            shutil.copy(path, copy)
            found[size].append(asyncio.run(send_all(f"sqlite:///{copy}", load)))
            for left in path.parent.glob(f"{copy.name}*"):
                left.unlink()
    return found
