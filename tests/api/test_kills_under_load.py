"""``serve`` is killed again and again while clients post: 202 means stored, once, whatever comes after it."""

from __future__ import annotations

import asyncio
import base64
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.crowd import CHANNEL, Ledger, Log, Poster, StreamReader
from tests.support.live import live_pair
from tests.support.serve_process import ServeProcess, serving
from tests.support.served import channel_body, problem_name
from tests.support.streaming import EventClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEED: Final = 7

POSTERS: Final = 12

LONGEST_LIFE: Final = 150
"""Accepted sends after which a life has ended; how many it is, is drawn."""

START_SEC: Final = 60.0
"""After this long a service that was killed has its channel again."""

SHUTDOWN_SEC: Final = 5
END_SEC: Final = 20.0
"""After this long a service that was asked to has ended, whatever the machine does besides."""

SDS: Final = {
    "acknowledgementTimeoutMs": 3_600_000,  # nobody else is there, so no request ends meanwhile
    "maxOutgoingMessages": 100_000,
    "bloomCapacity": 100,
}

SENT: Final = "reliable:message:sent"
DELIVERED: Final = "reliable:message:delivered"


class Ordeal:
    """Lives of one service, and the clients that post to whichever is there.

    Args:
        database: URL of what all lives share.
        seed: Chooses when each life ends.
    """

    def __init__(self, database: str, seed: object) -> None:
        self.database = database
        self.rng = random.Random(str(seed))
        self.ledger = Ledger()
        self.reader = StreamReader(0, Log(), self.rng)
        self.port = 0
        self.lives = 0
        self.repeated = 0
        """Sends that one life accepted and that were repeated to a later one."""
        self.pending: dict[Poster, str] = {}
        """Keys of sends that may not have been accepted."""
        self._left = 0
        self._service: ServeProcess | None = None
        self._end = signal.SIGKILL
        self._open = asyncio.Event()
        self._struck = asyncio.Event()
        self._over = False

    async def run(self, ends: list[signal.Signals]) -> None:
        """Have clients post while one life after the other ends; look at what the last one has."""
        posters = [Poster(f"p{number}", self.ledger, self.rng) for number in range(POSTERS)]
        with ExitStack() as stack:
            for poster in posters:
                stack.callback(poster.hang_up)
            async with asyncio.TaskGroup() as group:
                for poster in posters:
                    group.create_task(self._post(poster))
                for end in ends:
                    await self._live(end)
                self._over = True
                self._open.set()
            async with self._life(), asyncio.timeout(START_SEC):
                for poster, key in self.pending.items():
                    await poster.insist(self.port, key)
                await self._check()

    async def _post(self, poster: Poster) -> None:
        """Send one message after the other; what was not answered goes to the next life again."""
        accepted, life = "", 0
        self.pending[poster] = poster.keys.next()
        while True:
            await self._open.wait()
            if self._over:
                return
            if accepted and life != self.lives:
                if await poster.post(self.port, accepted) == "accepted":
                    self.repeated += 1
                    accepted = ""
            elif await poster.post(self.port, self.pending[poster]) == "accepted":
                accepted, life = self.pending[poster], self.lives
                self.pending[poster] = poster.keys.next()
                self._left -= 1
                if not self._left:
                    self._strike()

    def _strike(self) -> None:
        """End the service while other posts are under way."""
        assert self._service is not None
        self._open.clear()
        self._service.signal(self._end)
        self._struck.set()

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[ServeProcess]:
        """Run the service; the first life opens the channel, later ones do by themselves."""
        settings = ("--node", "memory://alone", "--shutdown-timeout", str(SHUTDOWN_SEC))
        with serving("--database", self.database, *settings) as service, service.client() as client:
            self.lives += 1
            if self.lives == 1:
                answer = client.post("/v1/channels", json=channel_body(sds=SDS))
                assert answer.status_code == 201, answer.text
            async with asyncio.timeout(START_SEC):
                while (answer := await asyncio.to_thread(client.get, CHANNEL)).status_code != 200:
                    assert problem_name(answer) in ("starting", "channel-unavailable")
            self.port = self.reader.port = service.port
            yield service

    async def _live(self, end: signal.Signals) -> None:
        """Live until enough was accepted, then end."""
        async with self._life() as service, EventClient(service.port) as client:
            self._service, self._end = service, end
            self._left = self.rng.randint(POSTERS, LONGEST_LIFE)
            self._struck.clear()
            reading = asyncio.create_task(self._read())
            self._open.set()
            async with asyncio.timeout(START_SEC):
                await self._struck.wait()
            async with asyncio.timeout(END_SEC):
                ended = await asyncio.to_thread(service.wait)
                await reading
                if end is signal.SIGTERM:
                    frames = [frame async for frame in client.frames()]
                    assert frames[-1].event == "stream:closing"
        assert ended.code == (0 if end is signal.SIGTERM else -end), ended.log

    async def _read(self) -> None:
        """Read in many visits until the service is gone."""
        with suppress(OSError, EOFError):
            await self.reader.run()

    async def _check(self) -> None:
        """Hold what the last life has against what all of them have accepted."""
        accepted, log = self.ledger.accepted, self.reader.log
        assert len(set(accepted.values())) == len(accepted)
        reading = asyncio.create_task(self._read())
        await log.until(lambda: len(log.entries) >= len(accepted))
        reading.cancel()
        assert Counter(log.entries) == Counter((SENT, one, None) for one in accepted.values())
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}") as client:
            shown = (await client.get(CHANNEL)).json()
            assert shown["lastEventSequence"] == len(accepted)
            assert shown["status"]["openRequests"] == len(accepted)
            for request_id in accepted.values():
                answer = await client.get(f"{CHANNEL}/requests/{request_id}")
                assert (answer.status_code, answer.json()["requestId"]) == (200, request_id)
                assert len(answer.json()["segments"]) == 1


KILL, TERM = signal.SIGKILL, signal.SIGTERM


async def endure(database: str, ends: list[signal.Signals]) -> None:
    asyncio.get_running_loop().set_debug(False)
    ordeal = Ordeal(database, SEED)
    await ordeal.run(ends)
    assert ordeal.lives == len(ends) + 1
    assert ordeal.repeated >= len(ends)
    assert ordeal.ledger.answers >= len(ordeal.ledger.accepted) + ordeal.repeated


async def test_kills_lose_nothing_that_was_accepted(tmp_path: Path) -> None:
    await endure(f"sqlite:///{tmp_path}/a.db", [KILL, TERM, KILL, TERM, KILL])


@pytest.mark.real
async def test_kills_lose_nothing_that_was_accepted_on_postgresql(postgres_url: str) -> None:
    await endure(postgres_url, [KILL, TERM, KILL])


async def test_nothing_is_accepted_before_it_is_stored(tmp_path: Path) -> None:
    """Somebody else writes to the database meanwhile: that is as long as it takes to get an answer."""
    arguments = ("--database", f"sqlite:///{tmp_path}/a.db", "--node", "memory://alone")
    ledger = Ledger()
    poster = Poster("p", ledger, random.Random(SEED))
    with ExitStack() as stack:
        stack.callback(poster.hang_up)
        with serving(*arguments) as service, service.client() as client:
            client.post("/v1/channels", json=channel_body(sds=SDS)).raise_for_status()
            await poster.insist(service.port, "first")
            client.get(
                f"{CHANNEL}/events?after=0&limit=1&wait=10"
            )  # it was sent: the store is idle
            with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                posting = asyncio.create_task(poster.post(service.port, "second"))
                for _ in range(20):  # time enough for an answer that does not wait
                    assert (await asyncio.to_thread(client.get, CHANNEL)).status_code == 200
                assert not posting.done()
                service.signal(KILL)
                assert await posting == "unknown"
                service.wait()
        with serving(*arguments) as service, service.client() as client:
            async with asyncio.timeout(START_SEC):
                while await poster.post(service.port, "second") != "accepted":
                    pass
            shown = client.get(CHANNEL).json()
    assert shown["status"]["openRequests"] == len(ledger.accepted) == 2


# --- A channel that is full ----------------------------------------------------------------------


async def test_a_full_channel_takes_sends_again_after_acknowledgements(tmp_path: Path) -> None:
    """What was refused has left nothing, not even its key."""
    few = {"maxOutgoingMessages": 5, "acknowledgementTimeoutMs": 100, "maxRetransmissions": 1000}
    quick = {"syncIntervalMs": 50, "maxSyncIntervalMs": 100}
    with live_pair(tmp_path, "memory://full") as pair:
        alice, bob = (httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") for port in pair.ports)
        async with alice, bob, asyncio.timeout(60):

            async def send(text: str, key: str) -> httpx.Response:
                headers = {"Idempotency-Key": key, "Content-Type": "application/octet-stream"}
                return await alice.post(f"{CHANNEL}/messages", content=text, headers=headers)

            await alice.post("/v1/channels", json=channel_body(sds=few))
            for number in range(5):
                assert (await send(str(number), f"key {number}")).status_code == 202
            for _ in range(3):
                refused = await send("refused", "key 5")
                assert (refused.status_code, problem_name(refused)) == (429, "channel-full")
                assert int(refused.headers["retry-after"]) >= 1
            assert (await send("0", "key 0")).status_code == 202  # a repeat takes no room
            shown = (await alice.get(CHANNEL)).json()
            assert shown["status"]["openRequests"] == 5
            assert shown["status"]["counters"]["requests"] == 5

            await bob.post("/v1/channels", json=channel_body(sender_id="bob", sds=quick))
            cursor, delivered = 0, 0
            while delivered < 5:
                query = {"after": cursor, "limit": 100, "wait": 10}
                page = (await alice.get(f"{CHANNEL}/events", params=query)).json()
                cursor = page["next"]
                delivered += sum(event["name"] == DELIVERED for event in page["events"])
            assert (await send("5", "key 5")).status_code == 202  # another message than was refused

            received: list[str] = []
            cursor = 0
            while len(received) < 6:
                query = {"after": cursor, "limit": 100, "wait": 10}
                page = (await bob.get(f"{CHANNEL}/events", params=query)).json()
                cursor = page["next"]
                texts = (event.get("payload", "") for event in page["events"])
                received += [base64.b64decode(text).decode() for text in texts]
            # Whoever joins late does not wait for what was sent before; those may come in any order.
            assert (sorted(received[:5]), received[5:]) == (["0", "1", "2", "3", "4"], ["5"])
