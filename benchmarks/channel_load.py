"""What a service costs that has 1,000 channels open, each of which sends a message a second.

The real service with an SQLite file, in a process of its own; messages of 1 KiB are posted from this process at a fixed
rate, channel after channel, whatever becomes of those before.

*Acknowledged* is the case that the mark is about: all settings at their defaults, and somebody in each channel
acknowledges. That one is in this process, at the other end of the node's socket (`benchmarks.acknowledging`), so that
its CPU time is not the service's. In the others nobody else is there, on a ``memory://`` node: *once* has an
acknowledgement timeout that does not end meanwhile, so that each message goes out once; *again* the default of 5 s,
after which the protocol sends it again. Beside them an empty handler at the same rate. About another core is this
client's.

Where others use the machine too, the service gets less than it wants: then it falls behind, and what counts is the
CPU time that it took for all of the messages, until they were on the network, and acknowledged where somebody does
that, by the seconds in which they should have been.

Nothing here asserts a speed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.acknowledging import acknowledger
from benchmarks.figures import Figure, Part, Table, figure
from benchmarks.http_load import Pool, connected, get, post, quantile
from benchmarks.service_speed import MESSAGES_PATH, NETWORK, PAYLOAD_BYTES, ServerProcess, process

CHANNELS: Final = 1_000
RATE: Final = 1_000
"""Messages a second, over all channels."""

SECONDS: Final = 12.0
EMPTY_SECONDS: Final = 4.0

ROUNDS: Final = 3
"""Of the case that the mark is about; the others have one."""

EMPTY: Final = "empty handler"

SAMPLE_SEC: Final = 2.0
"""How often the CPU time is asked for."""

LONG_MS: Final = 600_000
DEFAULT_MS: Final = 5_000
DEFAULT_CAPACITY: Final = 10_000


@dataclass(frozen=True, slots=True)
class Case:
    """How the channels are set.

    Attributes:
        name: Stands before each figure.
        bloom_capacity: Ids that the filter in each message is made for.
        timeout_ms: For acknowledgements.
        is_acknowledged: Somebody is there who acknowledges.
    """

    name: str
    bloom_capacity: int = DEFAULT_CAPACITY
    timeout_ms: int = DEFAULT_MS
    is_acknowledged: bool = False


CASES: Final = (
    Case("acknowledged", is_acknowledged=True),
    Case("acknowledged, filter for 500", bloom_capacity=500, is_acknowledged=True),
    Case("once", timeout_ms=LONG_MS),
    Case("again"),
)

SETTLE_SEC: Final = 30.0
"""How long what was accepted may take to get on the network, and to be acknowledged."""

LAST_SEC: Final = 2.0
"""After the last answer, until is asked what is not done: the last acknowledgements come later than a second."""

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
        behind: Segments that were not on the network 2 s after the last answer.
        cpu: CPU seconds of the service, from the first post until all was on the network.
    """

    answers: Answers
    counters: Counter[str]
    behind: int
    cpu: float

    @property
    def accepted(self) -> int:
        """Posts that were accepted."""
        return self.answers.statuses[ACCEPTED]

    @property
    def refused(self) -> int:
        """Posts that were not accepted."""
        return self.answers.statuses.total() - self.accepted


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


async def open_channels(port: int, channels: int, sds: dict[str, int]) -> None:
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
                    "sds": sds,
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
    ended = asyncio.Event()

    async def send(request: bytes) -> None:
        began = time.perf_counter()
        async with pool.connection() as connection:
            status, _ = await connection.ask(request)
        found.latencies.append(time.perf_counter() - began)
        found.statuses[status] += 1

    async def ended_within(seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), seconds)
        return ended.is_set()

    async def sample() -> None:
        # Never cancelled: an answer that nobody reads would be taken for that of the next question.
        then, before = loop.time(), await server.cpu_seconds()
        while not await ended_within(SAMPLE_SEC):
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
        ended.set()
        await sampling
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


async def measure(case: Case, channels: int, rate: int, seconds: float) -> Found:
    """Post to so many channels of one service.

    Args:
        case: How they are set.
        channels: How many are open.
        rate: Messages a second, over all of them.
        seconds: For how long.
    """
    sds = {
        "bloomCapacity": case.bloom_capacity,
        "acknowledgementTimeoutMs": case.timeout_ms,
    }
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        node = NETWORK
        if case.is_acknowledged:
            node = await stack.enter_async_context(acknowledger(case.bloom_capacity))
        async with process("services", folder, "1", node) as server:
            (port,) = server.ports
            await open_channels(port, channels, sds)
            before = await server.cpu_seconds()
            posts = requests(int(rate * seconds), channels)
            answers = await post_steadily(server, posts, rate)
            await asyncio.sleep(LAST_SEC)
            cpu = await server.cpu_seconds() - before  # asking is not part of it
            after = await statuses(port, channels)
            behind = waiting_of(after)
            left = behind + unended_of(after, case)
            deadline = time.monotonic() + SETTLE_SEC
            while left and time.monotonic() < deadline:
                began = await server.cpu_seconds()
                await asyncio.sleep(SAMPLE_SEC / 4)
                cpu += await server.cpu_seconds() - began
                after = await statuses(port, channels)
                left = waiting_of(after) + unended_of(after, case)
    counters: Counter[str] = Counter()
    for status in after:
        counters.update(status["counters"])
    return Found(answers, counters, behind, cpu)


def waiting_of(found: list[dict[str, Any]]) -> int:
    """Return how many segments of all channels are not on the network."""
    return sum(status["waiting"] + status["inFlight"] for status in found)


def unended_of(found: list[dict[str, Any]], case: Case) -> int:
    """Return how many messages of all channels will still be acknowledged."""
    return sum(status["openRequests"] for status in found) if case.is_acknowledged else 0


async def measure_empty(rate: int, seconds: float) -> Answers:
    """Post to the handler that does nothing."""
    async with process("empty") as server:
        return await post_steadily(server, empty_requests(int(rate * seconds)), rate)


def figures(
    name: str, found: Sequence[Found], empty: Sequence[Answers], rate: int
) -> Iterator[Figure]:
    """Give what the rounds of one case came to, beside the handler that does nothing.

    Args:
        name: Of the case.
        found: Of each round.
        empty: The handler's after each of them.
        rate: Messages a second that were asked for.
    """

    def each(value: Callable[[Found], float]) -> list[float]:
        return [value(item) for item in found]

    def counted(item: Found, what: str) -> float:
        return item.counters[what] / max(1, item.counters["requests"])

    yield figure(
        f"{name}: CPU that the rate needs",
        "cores",
        each(lambda item: rate * item.cpu / max(1, item.accepted)),
        better="less",
        peer=EMPTY,
        theirs=[statistics.median(item.cores) for item in empty],
    )
    yield figure(
        f"{name}: accepted", "a second", each(lambda item: item.accepted / item.answers.wall)
    )
    for share, label in ((0.5, "half"), (0.99, "99 %")):
        yield figure(
            f"{name}: answered, {label}",
            "ms",
            [1e3 * quantile(item.answers.latencies, share) for item in found],
            better="less",
            peer=EMPTY,
            theirs=[1e3 * quantile(item.latencies, share) for item in empty],
        )
    yield figure(f"{name}: refused", "messages", each(lambda item: item.refused), better="less")
    yield figure(
        f"{name}: not on the network yet", "segments", each(lambda item: item.behind), better="less"
    )
    yield figure(
        f"{name}: transmissions of a message",
        "",
        each(lambda item: counted(item, "transmissions")),
        better="less",
    )
    yield figure(
        f"{name}: acknowledged",
        "%",
        each(lambda item: 100 * counted(item, "requests_delivered")),
        better="neither",
    )


def rounds_of(case: Case, rounds: int) -> tuple[list[Found], list[Answers]]:
    """Measure a case and the empty handler in turns."""
    found, empty = [], []
    for _ in range(rounds):
        found.append(asyncio.run(measure(case, CHANNELS, RATE, SECONDS)))
        empty.append(asyncio.run(measure_empty(RATE, EMPTY_SECONDS)))
    return found, empty


def tables() -> Iterator[Part]:
    """Measure each case, with the empty handler in between."""
    made: list[Figure] = []
    for place, case in enumerate(CASES):
        made += figures(case.name, *rounds_of(case, 1 if place else ROUNDS), RATE)
    yield Table(
        f"{CHANNELS:,} channels in one service, {RATE:,} messages of 1 KiB a second for {SECONDS:g} s",
        tuple(made),
        ("the mark: what the rate needs, acknowledged, is below one core",),
    )
