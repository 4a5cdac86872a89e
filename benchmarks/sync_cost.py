"""How many sync messages a group answers one message with, and how long its sender waits for the first.

Real machines in virtual time, default settings without bloom filter, no loss. Everybody has been heard before and
nothing is owed when a message of one segment is sent; what is counted goes out in the `WINDOW_MS` that follow. Beside
it stands what a uniform back-off over the same time would cost: a model of the rule, not a machine. It must not tune
what it measures.

Spec: LIP-109 (SDS), Periodic sync message; RFC 5401 §6 for the back-off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from statistics import fmean
from typing import Final

from benchmarks.simulation import Scenario, Simulation, StoreFaults, Transmission
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import SdsConfig
from reliable_channel.events import ChannelEvent, MessageDeliveredEvent
from reliable_channel.types import MS, Nanoseconds, RequestId

GROUPS: Final = (2, 3, 5, 10, 20, 50, 100, 200)
"""Participants, the sender included."""

DELAYS_MS: Final = (100, 500, 1_000)
"""One-way propagation delays, milliseconds."""

SEEDS: Final = 10
ROUNDS: Final = 5
"""Messages with each seed and each delay."""

WINDOW_MS: Final = 10_000
"""Syncs that go out within this time after a message answer it; an idle sync needs 30 s of silence."""

DISTANCE_MS: Final = 20_000
"""From one measured message to the next: nothing is owed any more, and no silence is long enough for an idle sync."""

WARM_UP_STEP_MS: Final = 20
"""Distance of the messages by which everybody becomes known."""

SDS: Final = SdsConfig(bloom_capacity=0)
"""The default settings; without filters it is faster, and they acknowledge nothing here."""

BACKOFF_WINDOW_MS: Final = 0.5 * SDS.acknowledgement_timeout_ms
"""Longest back-off of the rule, milliseconds."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one message cost.

    Attributes:
        syncs: Sync messages that went out in answer to it.
        delivered_ms: From sending until the request was delivered; None where it was not within the window.
        retransmitted: Whether the sender sent it again.
    """

    syncs: int
    delivered_ms: float | None
    retransmitted: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """All that was measured for one group and delay.

    Attributes:
        group: Participants.
        delay_ms: One-way propagation delay.
        answers: To each message.
        uniform: Syncs with a uniform back-off, one number for each message.
    """

    group: int
    delay_ms: int
    answers: tuple[Answer, ...]
    uniform: tuple[int, ...]


# -- the model ------------------------------------------------------------------------------------


def answering(times_ms: Sequence[float], delay_ms: float) -> int:
    """Return how many send when each does at its time unless it has heard another by then.

    Args:
        times_ms: The back-off of each.
        delay_ms: From sending to being heard by all others.
    """
    if not times_ms:
        return 0
    heard_ms = min(times_ms) + delay_ms
    return max(1, sum(time_ms < heard_ms for time_ms in times_ms))


def uniform_answers(receivers: int, delay_ms: float, draws: Random) -> int:
    """Return how many of that many receivers answer with a uniform back-off over the same time."""
    return answering([draws.uniform(0, BACKOFF_WINDOW_MS) for _ in range(receivers)], delay_ms)


# -- the machines ---------------------------------------------------------------------------------


class Group:
    """A group in which everybody has been heard, and nothing is owed.

    Args:
        size: Participants.
        seed: Makes every draw.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.wire: list[Transmission] = []
        self.delivered: dict[RequestId, Nanoseconds] = {}
        self.senders = Random(f"{seed}/senders")
        self.simulation = Simulation(
            Scenario(seed=seed, participants=size, sds=SDS, store=StoreFaults(enabled=False)),
            wire=self.wire,
            on_event=self._on_event,
        )
        self.simulation.start()
        for index in range(size):
            self.simulation.after(index * WARM_UP_STEP_MS, partial(self._greet, index))
        self.simulation.run(size * WARM_UP_STEP_MS + DISTANCE_MS)

    def _greet(self, index: int) -> None:
        self.simulation.send(index, b"hello %d" % index)

    def _on_event(self, index: int, event: ChannelEvent) -> None:
        if isinstance(event, MessageDeliveredEvent):
            self.delivered[event.request_id] = self.simulation.now

    def ask(self, delay_ms: float) -> Answer:
        """Let somebody send one message, and count what comes of it.

        Args:
            delay_ms: One-way propagation delay from now on.

        Raises:
            RuntimeError: Something is still owed or under way, or somebody is not known to all.
        """
        simulation = self.simulation
        for status in simulation.statuses():
            if status.owed_acknowledgements or status.open_requests:
                text = f"{status.sender_id} is not quiet"
                raise RuntimeError(text)
            if status.participants != self.size - 1:
                text = f"{status.sender_id} knows {status.participants} others"
                raise RuntimeError(text)
        faults = LinkFaults(delay_ms=delay_ms)
        simulation.network.scenario = replace(simulation.scenario, faults=faults)
        self.wire.clear()
        began = simulation.now
        request = simulation.send(self.senders.randrange(self.size), b"a message of one segment")
        simulation.run(WINDOW_MS)
        sent = [item.segment_id for item in self.wire]
        syncs = sum(segment_id.startswith("sync:") for segment_id in sent)
        ended = self.delivered.get(request)
        simulation.run(DISTANCE_MS - WINDOW_MS)
        return Answer(
            syncs=syncs,
            delivered_ms=None if ended is None else (ended - began) / MS,
            retransmitted=len(sent) - syncs > 1,
        )


def measure(
    group: int,
    delays_ms: Sequence[int] = DELAYS_MS,
    *,
    seeds: int = SEEDS,
    rounds: int = ROUNDS,
) -> Iterator[Cost]:
    """Measure one group with each delay.

    Args:
        group: Participants.
        delays_ms: One-way propagation delays.
        seeds: Groups of that size.
        rounds: Messages in each of them, for each delay.
    """
    answers: dict[int, list[Answer]] = {delay_ms: [] for delay_ms in delays_ms}
    for seed in range(seeds):
        made = Group(group, seed)
        for delay_ms in delays_ms:
            answers[delay_ms] += [made.ask(delay_ms) for _ in range(rounds)]
    for delay_ms, found in answers.items():
        draws = Random(f"uniform/{group}/{delay_ms}")
        uniform = tuple(uniform_answers(group - 1, delay_ms, draws) for _ in found)
        yield Cost(group, delay_ms, tuple(found), uniform)


# -- the table ------------------------------------------------------------------------------------


def spread(values: Sequence[float], digits: int = 0) -> str:
    """Return the mean, and the smallest and largest value."""
    if not values:
        return "–"
    return f"{fmean(values):.1f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def row(cost: Cost) -> str:
    """Return one line of the table."""
    delivered = [
        answer.delivered_ms / 1000 for answer in cost.answers if answer.delivered_ms is not None
    ]
    again = sum(answer.retransmitted for answer in cost.answers)
    cells = (
        str(cost.group),
        f"{cost.delay_ms / 1000:g} s",
        spread([answer.syncs for answer in cost.answers]),
        spread(cost.uniform),
        spread(delivered, 1),
        f"{again} of {len(cost.answers)}",
    )
    return f"| {' | '.join(cells)} |"


HEAD: Final = (
    "| participants | delay | syncs | with a uniform back-off | delivered after, s | retransmitted |",
    "|---|---|---|---|---|---|",
)


def table(costs: Iterable[Cost]) -> Iterator[str]:
    """Give the lines of a Markdown table."""
    yield from HEAD
    yield from map(row, costs)


def lines() -> Iterator[str]:
    """Measure everything; give each line of the table as soon as it is known."""
    yield from table(cost for group in GROUPS for cost in measure(group))
