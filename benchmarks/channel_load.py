"""What a service costs that has 1,000 channels open, each of which sends a message a second.

The real service with an SQLite file and a ``memory://`` node, in a process of its own; messages of 1 KiB are posted
from this process at a fixed rate, channel after channel, whatever becomes of those before. Nobody else is in the
channels, so nothing is acknowledged; what the protocol then sends again belongs to the cost. Beside it an empty handler
at the same rate. Another half of a core or so is this client's.

Nothing here asserts a speed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.figures import Figure, Part, Table, figure
from benchmarks.http_load import Pool, connected, get, post, quantile
from benchmarks.service_speed import MESSAGES_PATH, PAYLOAD_BYTES, ServerProcess, process

CHANNELS: Final = 1_000
RATE: Final = 1_000
"""Messages a second, over all channels."""

SECONDS: Final = 20.0
EMPTY_SECONDS: Final = 8.0

SAMPLE_SEC: Final = 2.0
"""How often the CPU time is asked for."""

BLOOM_CAPACITIES: Final = (10_000, 500)
"""Ids that the filter in each message is made for; 10,000 is the default."""

OPENING_AT_ONCE: Final = 16
ACCEPTED: Final = 202


@dataclass(slots=True)
class Answers:
    """What came back while messages were posted.

    Attributes:
        statuses: How many answers had each status.
        latencies: Seconds of each.
        wall: Seconds until the last answer.
        cores: CPU seconds of the server a second, in each part of the time.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    wall: float = 0.0
    cores: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Found:
    """What one measurement gave.

    Attributes:
        answers: To the posts.
        counters: Of all channels together.
        behind: Segments that were not on the network when the last answer had come.
    """

    answers: Answers
    counters: Counter[str]
    behind: int

    @property
    def refused(self) -> int:
        """Posts that were not accepted."""
        return self.answers.statuses.total() - self.answers.statuses[ACCEPTED]


def channel_path(number: int) -> str:
    """Return where a channel is found."""
    return f"/v1/channels/bench-{number}"


def requests(count: int, channels: int) -> Iterator[bytes]:
    """Yield posts of payloads that differ, to one channel after the other."""
    filling = os.urandom(PAYLOAD_BYTES - 8)
    for number in range(count):
        payload = base64.b64encode(number.to_bytes(8, "big") + filling).decode()
        path = f"{channel_path(number % channels)}/messages"
        yield post(path, json.dumps({"payload": payload}).encode())


def empty_requests(count: int) -> Iterator[bytes]:
    """Yield the same posts for the handler that does nothing."""
    for request in requests(count, 1):
        yield request.replace(f"{channel_path(0)}/messages".encode(), MESSAGES_PATH.encode(), 1)


async def open_channels(port: int, channels: int, bloom_capacity: int) -> None:
    """Open so many channels, a few at once.

    Raises:
        RuntimeError: One was not opened.
    """
    numbers = iter(range(channels))

    async def work() -> None:
        async with connected(port) as connection:
            for number in numbers:
                body = {
                    "channelId": f"bench-{number}",
                    "contentTopic": f"/bench/1/channel-{number}/proto",
                    "senderId": "alice",
                    "sds": {"bloomCapacity": bloom_capacity},
                }
                request = post("/v1/channels", json.dumps(body).encode())
                status, answer = await connection.ask(request)
                if status != 201:
                    text = f"channel {number} was not opened: {status} {answer.decode()}"
                    raise RuntimeError(text)

    await asyncio.gather(*(work() for _ in range(OPENING_AT_ONCE)))


async def post_steadily(server: ServerProcess, posts: Iterator[bytes], rate: int) -> Answers:
    """Post at a fixed rate; none waits for the one before. Return when all are answered."""
    loop = asyncio.get_running_loop()
    found = Answers()

    async def send(request: bytes) -> None:
        began = time.perf_counter()
        async with pool.connection() as connection:
            status, _ = await connection.ask(request)
        found.latencies.append(time.perf_counter() - began)
        found.statuses[status] += 1

    async def sample() -> None:
        then, before = loop.time(), await server.cpu_seconds()
        while True:
            await asyncio.sleep(SAMPLE_SEC)
            now, after = loop.time(), await server.cpu_seconds()
            found.cores.append((after - before) / (now - then))
            then, before = now, after

    async with Pool.of(server.ports[0]) as pool:
        before, start = await server.cpu_seconds(), loop.time()
        sampling = asyncio.create_task(sample())
        async with asyncio.TaskGroup() as group:
            for number, request in enumerate(posts):
                if (wait := start + number / rate - loop.time()) > 0:
                    await asyncio.sleep(wait)
                group.create_task(send(request))
        found.wall = loop.time() - start
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
        if not found.cores:
            found.cores.append((await server.cpu_seconds() - before) / found.wall)
    found.latencies.sort()
    return found


async def statuses(port: int, channels: int) -> list[dict[str, Any]]:
    """Return what each channel says of itself."""
    found = []
    async with connected(port) as connection:
        for number in range(channels):
            _, answer = await connection.ask(get(channel_path(number)))
            found.append(json.loads(answer)["status"])
    return found


async def measure(bloom_capacity: int, channels: int, rate: int, seconds: float) -> Found:
    """Post to so many channels of one service.

    Args:
        bloom_capacity: Of the filter in each message.
        channels: How many are open.
        rate: Messages a second, over all of them.
        seconds: For how long.
    """
    with TemporaryDirectory() as folder:
        async with process("services", folder, "1") as server:
            (port,) = server.ports
            await open_channels(port, channels, bloom_capacity)
            posts = requests(int(rate * seconds), channels)
            answers = await post_steadily(server, posts, rate)
            after = await statuses(port, channels)
    counters: Counter[str] = Counter()
    for status in after:
        counters.update(status["counters"])
    behind = sum(status["waiting"] + status["inFlight"] for status in after)
    return Found(answers, counters, behind)


async def measure_empty(rate: int, seconds: float) -> Answers:
    """Post to the handler that does nothing."""
    async with process("empty") as server:
        return await post_steadily(server, empty_requests(int(rate * seconds)), rate)


def figures(name: str, found: Found) -> Iterator[Figure]:
    """Give what one size of filter came to."""
    answers, sent = found.answers, found.answers.statuses[ACCEPTED]
    yield figure(f"{name}: accepted", "a second", [sent / answers.wall])
    yield figure(f"{name}: CPU of the service", "cores", answers.cores, better="less")
    for share, label in ((0.5, "half"), (0.99, "99 %"), (1.0, "all")):
        value = 1e3 * quantile(answers.latencies, share)
        yield figure(f"{name}: answered, {label}", "ms", [value], better="less")
    yield figure(f"{name}: refused", "messages", [found.refused], better="less")
    yield figure(f"{name}: not on the network yet", "segments", [found.behind], better="less")
    again = found.counters["transmissions"] / max(1, found.counters["requests"])
    yield figure(f"{name}: transmissions of a message", "", [again], better="less")


def tables() -> Iterator[Part]:
    """Measure each size of filter, and the empty handler."""
    found: list[Figure] = []
    for capacity in BLOOM_CAPACITIES:
        name = f"filter for {capacity:,}"
        found += figures(name, asyncio.run(measure(capacity, CHANNELS, RATE, SECONDS)))
    empty = asyncio.run(measure_empty(RATE, EMPTY_SECONDS))
    found.append(figure("empty handler: CPU", "cores", empty.cores, better="less"))
    middle = 1e3 * quantile(empty.latencies, 0.5)
    found.append(figure("empty handler: answered, half", "ms", [middle], better="less"))
    yield Table(
        f"{CHANNELS:,} channels in one service, {RATE:,} messages of 1 KiB a second for {SECONDS:g} s",
        tuple(found),
        (f"spread of the CPU: parts of {SAMPLE_SEC:g} s; the mark is below one core",),
    )
