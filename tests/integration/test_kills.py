"""A process that sends and receives is killed again and again; nothing is lost, doubled or out of order.

The other side lives in the test, with a relay that loses some of what it passes on. Both sides talk as fast as
acknowledgements come back, and each takes its events from where it was.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from messaging_adapter import WakuNode
from persistence import open_store
from reliable_channel import (
    MessageDeliveredEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    create_reliable_channel,
)
from reliable_channel.core.wire import SdsMessage, SegmentMessage, WakuMessage
from reliable_channel.types import SECOND
from tests.support.mortal import SDS, TOPIC, Life, Mortals, segmentation
from tests.support.relay import Relay, relay_node
from tests.support.talker import FINAL, Notebook, Talker

TAKEOVER_S = 1.0
"""How long after a kill the next process has its channel, seconds: the median, for machines are busy at times."""

LONGEST_TAKEOVER_S = 5.0
"""How long any takeover may take, seconds."""

STEP_S = 30.0
"""How long one step may take before the test gives up, seconds."""

BUDGET = 12
"""What a process may send in a second, where that is limited; without a limit it sends several times as much."""

KILLS_WITH_BUDGET = 12

MOMENTS = ("opening", "catching up", "talking", "publishing", "publishing")
"""What a process is doing when it is killed; one is drawn for each kill."""


class Ordeal:
    """A course of kills.

    Args:
        folder: Where both sides keep what they have.
        url: Of the store of the side that is killed.
        relay: Between both sides.
        mortals: The processes.
        other: On the side that lives on.
        seed: Chooses the moments.
        budget: What the side that is killed may send in a second; 0 is unlimited.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        relay: Relay,
        mortals: Mortals,
        other: Talker,
        seed: object,
        budget: int,
    ) -> None:
        self._folder = folder
        self._url = url
        self._relay = relay
        self._mortals = mortals
        self._other = other
        self._rng = random.Random(str(seed))
        self._budget = budget
        self._lives = 0
        self._killed = 0.0
        self.joined = asyncio.Event()
        """Set when the first life has its channel."""
        self.moments: list[str] = []
        """When each kill came."""
        self.refusals: list[int] = []
        """How often each process was refused the channel."""
        self.takeovers: list[float] = []
        """Seconds from a kill until the next process had its channel and all that it had missed."""

    async def begin(self, *, talks: bool) -> Life:
        """Begin a life at once."""
        life = Life(
            number=self._lives,
            url=self._url,
            relay=self._relay.path,
            notebook=str(self._folder / "alice.notes"),
            parity=self._lives % 2 == 1,
            messages_per_epoch=self._budget,
            talks=talks,
        )
        self._lives += 1
        await self._mortals.start(life)
        return life

    async def opened(self, life: Life) -> None:
        """Wait until a life has its channel."""
        self.refusals.append(await self._mortals.opened(life))
        self.joined.set()
        if self._killed:
            self.takeovers.append(time.monotonic() - self._killed)

    async def kill_once(self) -> None:
        """Begin a life and end it at a random moment."""
        moment = self._rng.choice(MOMENTS) if self._lives else "talking"
        count = self._rng.randint(1, 30)
        struck = asyncio.Event()

        def strike() -> None:
            self._mortals.strike()
            struck.set()

        def strike_soon(most_s: float) -> None:
            asyncio.get_running_loop().call_later(self._rng.uniform(0, most_s), strike)

        if moment == "catching up":
            self._relay.when("alice", "query", 1, lambda: strike_soon(0.05))
        life = await self.begin(talks=True)
        if moment == "opening":
            strike_soon(0.15)
        elif moment in ("publishing", "talking"):
            await self.opened(life)
            await self._other.ended(1)  # only who has heard something asks for what it has missed
            then = strike if moment == "publishing" else lambda: strike_soon(0.02)
            self._relay.when("alice", "publish", count, then)
        await struck.wait()
        await self._mortals.reap()
        self._killed = time.monotonic()
        self.moments.append(moment)


def integrity(file: Path, copy: Path) -> str:
    """Return what SQLite says of a copy: whoever opened the file itself would mend it before its owner does."""
    for ending in ("", "-wal"):
        Path(f"{copy}{ending}").unlink(missing_ok=True)
        if Path(f"{file}{ending}").exists():
            shutil.copyfile(f"{file}{ending}", f"{copy}{ending}")
    with closing(sqlite3.connect(copy)) as connection:
        rows = connection.execute("PRAGMA integrity_check").fetchall()
    return "; ".join(text for (text,) in rows)


async def talk_after(joined: asyncio.Event, talker: Talker) -> None:
    """Send, but nothing from before the other joined: such messages have no order."""
    await joined.wait()
    await talker.send_for_ever()


@asynccontextmanager
async def other_side(folder: Path, relay: Relay) -> AsyncIterator[tuple[Talker, Notebook]]:
    """Give the side that lives on, and its notes."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(f"sqlite:///{folder}/bob.db"))
        settings = segmentation(parity=True)
        node: WakuNode = await relay_node(relay.path, "bob", store, sds=SDS, segmentation=settings)
        await stack.enter_async_context(node)
        channel = await create_reliable_channel(node, "room", TOPIC, "bob")
        await stack.enter_async_context(channel)
        notes = Notebook(folder / "bob.notes")
        stack.callback(notes.close)
        yield Talker(channel, notes, "bob"), notes


async def play(
    folder: Path, url: str, relay: Relay, kills: int, file: Path | None, budget: int = 0
) -> Ordeal:
    """Let both sides talk through a number of kills, then let them end what they have begun."""
    async with (
        Mortals(folder / "alice.log") as mortals,
        other_side(folder, relay) as (bob, _),
        asyncio.TaskGroup() as group,
    ):
        ordeal = Ordeal(folder, url, relay, mortals, bob, kills, budget)
        listening = group.create_task(bob.listen())
        talking = group.create_task(talk_after(ordeal.joined, bob))
        for number in range(kills):
            async with asyncio.timeout(STEP_S):
                await ordeal.kill_once()
            if file is not None:
                assert integrity(file, folder / "copy") == "ok", f"after kill {number}"
        talking.cancel()
        async with asyncio.timeout(STEP_S):
            await ordeal.opened(await ordeal.begin(talks=False))
            await bob.finish()
            await mortals.finish()
            await bob.note_all()
        listening.cancel()
    return ordeal


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.skipif(sys.platform == "win32", reason="kills and forks are those of Unix")
@pytest.mark.parametrize(
    ("kind", "kills"), [("sqlite", 30), pytest.param("postgresql", 10, marks=pytest.mark.real)]
)
async def test_kills_at_random_moments_lose_and_double_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, kills: int
) -> None:
    asyncio.get_running_loop().set_debug(
        False
    )  # kills have to come fast, and too late is no moment
    file = tmp_path / "alice.db" if kind == "sqlite" else None
    url = f"sqlite:///{file}" if file else request.getfixturevalue("postgres_url")
    async with Relay(loss=0.05, seed=kills) as relay:
        ordeal = await play(tmp_path, url, relay, kills, file)
    assert set(ordeal.moments) == set(MOMENTS)
    assert median(ordeal.takeovers) < TAKEOVER_S
    assert max(ordeal.takeovers) < LONGEST_TAKEOVER_S
    if (
        file is not None
    ):  # the system gives a lease back with the process; a server has to see that first
        assert not any(ordeal.refusals)
    with (
        closing(Notebook(tmp_path / "alice.notes")) as alice,
        closing(Notebook(tmp_path / "bob.notes")) as bob,
    ):
        assert len(alice.of("sent")) > kills
        assert len(bob.of("sent")) > kills
        assert event_problems(alice) == []
        assert event_problems(bob) == []
        assert delivery_problems("alice", alice, bob) == []
        assert delivery_problems("bob", bob, alice) == []
        assert wire_problems("alice", relay.published, alice) == []
        assert wire_problems("bob", relay.published, bob) == []


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.skipif(sys.platform == "win32", reason="kills and forks are those of Unix")
async def test_kills_at_random_moments_exceed_no_epochs_budget(tmp_path: Path) -> None:
    asyncio.get_running_loop().set_debug(False)
    file = tmp_path / "alice.db"
    async with Relay(seed=1) as relay:
        await play(tmp_path, f"sqlite:///{file}", relay, KILLS_WITH_BUDGET, file, BUDGET)
    stamps = [message.timestamp or 0 for name, message in relay.published if name == "alice"]
    used = Counter(stamp // SECOND for stamp in stamps)
    assert max(used.values()) <= BUDGET
    assert sum(count == BUDGET for count in used.values()) >= 2, "the budget was never used up"
    with (
        closing(Notebook(tmp_path / "alice.notes")) as alice,
        closing(Notebook(tmp_path / "bob.notes")) as bob,
    ):
        assert delivery_problems("alice", alice, bob) == []
        assert delivery_problems("bob", bob, alice) == []


# --- What must hold ------------------------------------------------------------------------------


def event_problems(notes: Notebook) -> list[str]:
    """Say where events were not shown once and in order, or a request did not end exactly once, delivered."""
    events = notes.of("event")
    sequences = [event[0] for event in events]
    problems = []
    if sequences != list(range(1, len(events) + 1)):
        problems.append(f"the events have the numbers {sequences}")
    expected = {MessageReceivedEvent.name, MessageSentEvent.name, MessageDeliveredEvent.name}
    problems += [f"event {event}" for event in events if event[1] not in expected]
    ends = Counter(event[2] for event in events if event[1] in FINAL)
    requests = {request_id for _, request_id in notes.of("sent")}
    problems += [
        f"request {request_id} ended {ends[request_id]} times"
        for request_id in sorted(requests | set(ends))
        if ends[request_id] != 1
    ]
    return problems


def delivery_problems(sender: str, sent: Notebook, received: Notebook) -> list[str]:
    """Say which messages did not arrive exactly once, whole, and in the order in which they were sent.

    A message whose ``send`` was killed before it returned may have been sent or not.
    """
    begun = max(number for (number,) in sent.of("begun"))
    arrived = [event[4] for event in received.of("event") if event[3] == sender]
    problems = []
    if arrived != sorted(set(arrived)):
        problems.append(f"these arrived: {arrived}")
    missing = {number for number, _ in sent.of("sent")} - set(arrived)
    problems += [f"{number} did not arrive" for number in sorted(missing)]
    problems += [f"{number} was never sent" for number in arrived if not 1 <= number <= begun]
    return problems


def wire_problems(
    sender: str, published: Sequence[tuple[str, WakuMessage]], notes: Notebook
) -> list[str]:
    """Say where a wrap time, a Lamport time or an id was used twice, or something went out before it was stored."""
    uses: dict[tuple[str, Any], set[Any]] = defaultdict(set)
    payloads, counts = set(), set()
    for _, message in published:
        sds = SdsMessage.decode(message.payload)
        if sds.sender_id != sender or not sds.content:
            continue
        segment = SegmentMessage.decode(sds.content)
        payloads.add(segment.entire_message_hash)
        counts.add((segment.data_segment_count > 1, segment.parity_segment_count > 0))
        uses["wrap time", segment.wrap_time_ns].add(segment.entire_message_hash)
        if sds.lamport_timestamp is not None:  # parity is outside the order
            uses["Lamport time", sds.lamport_timestamp].add(sds.message_id)
        uses["id", sds.message_id].add(sds.content)
    problems = [
        f"{what} {value} was used twice" for (what, value), of in uses.items() if len(of) > 1
    ]
    ended = {event[2] for event in notes.of("event") if event[1] in FINAL}
    if len(payloads) != len(ended):
        problems.append(f"{len(payloads)} messages were published and {len(ended)} requests ended")
    if len(counts) < 2:
        problems.append(f"all messages are alike: {counts}")
    return problems
