"""How much memory an idle channel takes, with a bloom filter for 500 ids; the mark is 100 kB.

1,000 channels of the public library on one ``memory://`` node, with the store in memory and in an SQLite file, each
measurement in a process of its own: resident memory as the system counts it, and, in another process, what Python's own
allocator was asked for. *New*: nothing was ever sent. *Used*: each has sent a few messages of 1 KiB, which it keeps
whole for repairs.

Nothing here asserts a size.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import resource
import sys
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Figure, Part, Table, figure
from messaging_adapter import NodeConfig, create_node
from persistence.sql import SqlStore
from reliable_channel import ReliableChannel, SdsConfig, create_reliable_channel

CHANNELS: Final = 1_000
BLOOM_CAPACITY: Final = 500
MESSAGES: Final = 3
PAYLOAD_BYTES: Final = 1024
STORES: Final = ("memory://", "sqlite:///")
SETTLE_SEC: Final = 0.5
WARM_UP: Final = 20
"""Channels that are opened before, so that what is made once for all is there."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes for each channel.

    Attributes:
        new: After opening.
        used: After some messages.
    """

    new: float
    used: float


def resident_bytes() -> int:
    """Return the memory of this process; where the system does not say, the most it has ever had."""
    listing = Path("/proc/self/statm")
    if listing.is_file():
        return int(listing.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def bytes_now() -> int:
    """Return what Python's allocator was asked for where that is traced, else the resident memory."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else resident_bytes()


async def open_some(
    stack: AsyncExitStack, store: str, folder: str, first: int, count: int
) -> list[ReliableChannel]:
    """Open channels on a node of their own, which live as long as the stack does."""
    persistence = None
    if store.startswith("sqlite"):
        persistence = await stack.enter_async_context(
            SqlStore(f"{store}{folder}/{first}.db", synchronous="NORMAL")
        )
    sds = SdsConfig(bloom_capacity=BLOOM_CAPACITY, persistence=persistence)
    config = NodeConfig(transport=f"memory://idle-{first}", sds_config=sds)
    node = await stack.enter_async_context(await create_node(config))
    found = []
    for number in range(first, first + count):
        channel = await create_reliable_channel(
            node, f"idle-{number}", f"/bench/1/idle-{number}/proto", "alice"
        )
        found.append(await stack.enter_async_context(channel))
    return found


async def measure(store: str, channels: int, messages: int, *, settle_sec: float) -> Memory:
    """Open channels, send through them, and return what each took.

    Args:
        store: ``memory://`` or ``sqlite:///``.
        channels: How many.
        messages: That each sends.
        settle_sec: How long what was begun may take to end.
    """
    with TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            for channel in await open_some(stack, store, folder, channels, WARM_UP):
                await channel.send(bytes(PAYLOAD_BYTES))
            await asyncio.sleep(settle_sec)
            before = bytes_now()
            opened = await open_some(stack, store, folder, 0, channels)
            await asyncio.sleep(settle_sec)
            new = bytes_now()
            for number in range(messages):
                payload = bytes([number]) * PAYLOAD_BYTES
                await asyncio.gather(*(channel.send(payload) for channel in opened))
            await asyncio.sleep(settle_sec)
            used = bytes_now()
    return Memory((new - before) / channels, (used - before) / channels)


def measure_here(store: str, channels: int, messages: int, is_traced: bool) -> Memory:
    """Measure in this process."""
    if is_traced:
        tracemalloc.start()
    try:
        return asyncio.run(measure(store, channels, messages, settle_sec=SETTLE_SEC))
    finally:
        if is_traced:
            tracemalloc.stop()


def measure_afresh(store: str, channels: int, messages: int, *, is_traced: bool) -> Memory:
    """Measure in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure_here, store, channels, messages, is_traced).result()


def figures() -> Iterator[Figure]:
    """Give what each store and way of counting came to."""
    for store in STORES:
        for is_traced in (False, True):
            found = measure_afresh(store, CHANNELS, MESSAGES, is_traced=is_traced)
            way = "allocated" if is_traced else "resident"
            for name, value in (("new", found.new), (f"{MESSAGES} messages each", found.used)):
                yield figure(f"{store} {way}, {name}", "kB", [value / 1e3], better="less")


def tables() -> Iterator[Part]:
    """Measure both stores."""
    yield Table(
        f"Memory of an idle channel, of {CHANNELS:,}; filter for {BLOOM_CAPACITY} ids",
        tuple(figures()),
        ("the mark is 100 kB; resident: by the system; allocated: by tracemalloc",),
    )
