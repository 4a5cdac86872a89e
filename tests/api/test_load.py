"""Fifty clients at once on two services: every accepted send ends once, for every reader, in one order."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.crowd import (
    CHANNEL,
    Ledger,
    Log,
    Poller,
    Poster,
    Reader,
    SocketReader,
    StreamReader,
)
from tests.support.live import LivePair, live_pair
from tests.support.served import channel_body

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEED: Final = 50

LOAD_SEC: Final = 20.0
"""How long clients post."""

DRAIN_SEC: Final = 60.0
"""After this long everything has ended."""

POSTERS: Final = 12
READERS: Final = {"stream": 5, "poll": 4, "socket": 4}
"""Clients of each of the two services: 25."""

REPEATED: Final = 0.3
"""Share of posts that are sent again."""

SENT: Final = "reliable:message:sent"
DELIVERED: Final = "reliable:message:delivered"

SDS: Final = {
    "acknowledgementTimeoutMs": 500,
    "syncIntervalMs": 100,
    "maxSyncIntervalMs": 400,
    "maxRetransmissions": 100,
    # Bounds that are reached soon: what is remembered has to stop growing while we look.
    "maxFinishedRequests": 300,
    "bloomCapacity": 200,
    "maxKnownIds": 500,
    "maxFullMessages": 100,
}

SEGMENTATION: Final = {"maxCompletedPayloads": 500}

KEPT_BYTES: Final = 8 << 10
"""Most memory that each send may add. A third of it is the network's own store of messages, which is in the process."""


@dataclass
class Side:
    """One of the two services."""

    port: int
    sender: str
    ledger: Ledger = field(default_factory=Ledger)
    log: Log = field(default_factory=Log)
    posters: list[Poster] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)

    def populate(self) -> None:
        """Make its clients."""
        for number in range(POSTERS):
            name = f"{self.sender}-{number}"
            self.posters.append(Poster(name, self.ledger, random.Random(f"{SEED}/{name}")))
        for kind, count in READERS.items():
            for number in range(count):
                name = f"{self.sender}-{kind}-{number}"
                rng = random.Random(f"{SEED}/{name}")
                reader: Reader
                if kind == "stream":
                    reader = StreamReader(self.port, self.log, rng)
                elif kind == "poll":
                    reader = Poller(self.port, self.log, rng)
                else:
                    reader = SocketReader(self.port, self.log, rng, name, self.ledger)
                self.readers.append(reader)

    async def open(self, client: httpx.AsyncClient) -> None:
        body = channel_body("room", self.sender, sds=SDS, segmentation=SEGMENTATION)
        answer = await client.post(f"http://127.0.0.1:{self.port}/v1/channels", json=body)
        assert answer.status_code == 201, answer.text

    async def show(self, client: httpx.AsyncClient) -> dict[str, Any]:
        answer = await client.get(f"http://127.0.0.1:{self.port}{CHANNEL}")
        shown: dict[str, Any] = answer.json()
        return shown

    async def settle(self) -> None:
        """Learn what became of the sends by sockets that were left before the answer."""
        for reader in self.readers:
            if isinstance(reader, SocketReader):
                for key in reader.open_keys:
                    await self.posters[0].insist(self.port, key)

    def leave(self) -> None:
        """Hang up."""
        for poster in self.posters:
            poster.hang_up()
            poster.twin.hang_up()


@dataclass
class Memory:
    """What the services' process needed, each time that something was accepted."""

    pair: LivePair
    samples: list[tuple[float, int]] = field(default_factory=list)

    def look(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self.samples or now - self.samples[-1][0] >= 0.05:
            self.samples.append((now, self.pair.resident_bytes()))

    def thirds(self) -> list[float]:
        """Return the median of each third of the time, bytes."""
        begin, end = self.samples[0][0], self.samples[-1][0]
        parts: list[list[int]] = [[], [], []]
        for moment, resident in self.samples:
            parts[min(2, int(3 * (moment - begin) / (end - begin)))].append(resident)
        return [median(part) for part in parts]


async def post_for_a_while(poster: Poster, side: Side, memory: Memory, until: float) -> None:
    """Send one message after the other, each when the one before has ended; repeat some, also at once."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        key = poster.keys.next()
        posts = [poster.insist(side.port, key)]
        repeats = poster.rng.random() < REPEATED
        if repeats and poster.rng.random() < 0.5:
            posts.append(poster.twin.insist(side.port, key))
        await asyncio.gather(*posts)
        memory.look()
        request_id = side.ledger.accepted[key]
        await side.log.until(lambda: request_id in side.log.ended)  # noqa: B023
        if repeats:
            await poster.insist(side.port, key)


async def test_fifty_clients(tmp_path: Path) -> None:
    asyncio.get_running_loop().set_debug(False)  # it would be the load
    with live_pair(tmp_path, f"memory://load?seed={SEED}&loss=0.01") as pair:
        sides = [Side(port, name) for port, name in zip(pair.ports, ("alice", "bob"), strict=True)]
        memory = Memory(pair)
        async with httpx.AsyncClient() as client:
            for side in sides:
                await side.open(client)
                side.populate()
            with ExitStack() as stack:
                for side in sides:
                    stack.callback(side.leave)
                await drive(sides, memory, client)
            for side, other in (sides, sides[::-1]):
                check_log(side, other)
                await check_metrics(side, other, client)
    _, middle, last = memory.thirds()
    sends = sum(len(side.ledger.accepted) for side in sides) / 3
    assert last - middle <= sends * KEPT_BYTES, (middle, last, sends)
    assert all(reader.visits >= 5 for side in sides for reader in side.readers)


async def drive(sides: list[Side], memory: Memory, client: httpx.AsyncClient) -> None:
    """Have all clients do what they do, until all readers have read everything."""
    until = asyncio.get_running_loop().time() + LOAD_SEC
    async with asyncio.TaskGroup() as reading:
        readers = [reading.create_task(one.run()) for side in sides for one in side.readers]
        async with asyncio.TaskGroup() as posting:
            for side in sides:
                for poster in side.posters:
                    posting.create_task(post_for_a_while(poster, side, memory, until))
        async with asyncio.timeout(DRAIN_SEC):
            await drain(sides, client)
        for task in readers:
            task.cancel()


async def drain(sides: list[Side], client: httpx.AsyncClient) -> None:
    """Wait until everything has ended and everybody has read it."""
    for side in sides:
        for reader in side.readers:
            if isinstance(reader, SocketReader):
                reader.may_send = False
        await side.settle()
    for side, other in (sides, sides[::-1]):
        await side.log.until(lambda: side.log.ended >= set(side.ledger.accepted.values()))  # noqa: B023
        await other.log.until(lambda: other.log.received >= side.ledger.accepted.keys())  # noqa: B023
    for side in sides:
        last = (await side.show(client))["lastEventSequence"]
        for reader in side.readers:
            await reader.reached(last)


def check_log(side: Side, other: Side) -> None:
    """Hold what was read against what was accepted."""
    accepted = side.ledger.accepted
    assert len(set(accepted.values())) == len(accepted)
    lives: defaultdict[str, list[str]] = defaultdict(list)
    for name, request_id, _ in side.log.entries:
        if request_id is not None:
            lives[request_id].append(name)
    assert lives == {request_id: [SENT, DELIVERED] for request_id in accepted.values()}
    received = Counter(key for _, _, key in other.log.entries if key is not None)
    assert received == Counter(accepted.keys())


async def check_metrics(side: Side, other: Side, client: httpx.AsyncClient) -> None:
    """Hold what the service has counted against what was accepted."""
    answer = await client.get(f"http://127.0.0.1:{side.port}/metrics")
    values = {
        (
            sample.name.removeprefix("reliable_channel_"),
            *sorted(sample.labels.values()),
        ): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    events = Counter(name for name, _, _ in side.log.entries)
    assert values["messages_accepted_total", "room"] == len(side.ledger.accepted)
    assert values["messages_received_total", "room"] == len(other.ledger.accepted)
    assert values["messages_delivered_total", "room"] == events[DELIVERED]
    assert values["messages_sent_total", "room"] == events[SENT]
    assert values["open_requests", "room"] == 0
    route = "/v1/channels/{channelId}/messages"
    assert values["http_requests_total", route, "202", "POST"] == side.ledger.answers
