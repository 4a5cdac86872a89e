"""How many sync messages a group answers one message with, and how long its sender waits for the first.

Real machines in virtual time, default settings without bloom filter, no loss. Everybody has been heard before and
nothing is owed when a message of one segment is sent; what is counted goes out in the `WINDOW_MS` that follow. Each
delay is measured twice: the same for every copy, which is the worst case, and drawn for each copy. Beside it stands
what a uniform back-off over the same time would cost: a model of the rule, not a machine. It must not tune what it
measures.

Spec: LIP-109 (SDS), Periodic sync message; RFC 5401 §6 for the back-off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Final

from benchmarks.simulation import CHANNEL_ID, Scenario, Simulation, StoreFaults, Transmission
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import SdsConfig
from reliable_channel.core.wire.sds import SdsMessage
from reliable_channel.events import ChannelEvent, MessageDeliveredEvent
from reliable_channel.types import MS, Nanoseconds, RequestId

GROUPS: Final = (2, 3, 5, 10, 20, 50, 100, 200)
"""Participants, the sender included."""

DELAYS_MS: Final = (100, 500, 1_000)
"""Mean one-way propagation delays, milliseconds."""

SEEDS: Final = 10
ROUNDS: Final = 4
"""Messages with each seed, delay and network; within 600 s, after which who only listens is forgotten."""

WINDOW_MS: Final = 10_000
"""Syncs that go out within this time after a message answer it; an idle sync needs 30 s of silence."""

DISTANCE_MS: Final = 20_000
"""From one measured message to the next: nothing is owed any more, and no silence is long enough for an idle sync."""

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
class Series:
    """What was measured for one group, delay and network.

    Attributes:
        answers: To each message.
        uniform: Syncs with a uniform back-off, one number for each message.
    """

    answers: tuple[Answer, ...]
    uniform: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """All that was measured for one group and delay.

    Attributes:
        group: Participants.
        delay_ms: Mean one-way propagation delay.
        constant: Where every copy takes as long.
        spread: Where each copy takes its own time.
    """

    group: int
    delay_ms: int
    constant: Series
    spread: Series


# -- the networks ---------------------------------------------------------------------------------


def constant(delay_ms: float) -> LinkFaults:
    """Return links that delay every copy alike: nobody hears early what would silence it."""
    return LinkFaults(delay_ms=delay_ms)


def spread(delay_ms: float) -> LinkFaults:
    """Return links that delay each copy by between half and one and a half of the mean, drawn evenly."""
    return LinkFaults(delay_ms=delay_ms / 2, jitter_ms=delay_ms)


# -- the model ------------------------------------------------------------------------------------


def answering(times_ms: Iterable[float], delay_ms: Callable[[], float]) -> int:
    """Return how many send when each does at its time unless it has heard another by then.

    Args:
        times_ms: When the back-off of each ends.
        delay_ms: Draws how long one copy of a sync is under way.
    """
    sent_ms: list[float] = []
    for time_ms in sorted(times_ms):
        if not any(earlier_ms + delay_ms() <= time_ms for earlier_ms in sent_ms):
            sent_ms.append(time_ms)
    return len(sent_ms)


def uniform_answers(receivers: int, links: LinkFaults, draws: Random) -> int:
    """Return how many of that many receivers answer with a uniform back-off over the same time.

    Args:
        receivers: Each gets the message after a delay of its own, and then draws its back-off.
        links: Draw the delay of each copy, of the message and of the syncs.
        draws: Makes every draw.
    """

    def delay_ms() -> float:
        return links.copies(draws)[0] / MS

    times_ms = [delay_ms() + draws.uniform(0, BACKOFF_WINDOW_MS) for _ in range(receivers)]
    return answering(times_ms, delay_ms)


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
        for sender in range(size):
            self._greet(sender)

    def _greet(self, sender: int) -> None:
        """Let all others hear a sync of one participant that names nothing, so that nothing is owed for it."""
        hello = SdsMessage(
            sender_id=self.simulation.participants[sender].sender_id,
            message_id=f"hello{sender}",
            channel_id=CHANNEL_ID,
            lamport_timestamp=self.simulation.now // MS,
        ).encode()
        for receiver in range(self.size):
            if receiver != sender:
                self.simulation.inject(receiver, hello)

    def _on_event(self, index: int, event: ChannelEvent) -> None:
        if isinstance(event, MessageDeliveredEvent):
            self.delivered[event.request_id] = self.simulation.now

    def ask(self, links: LinkFaults) -> Answer:
        """Let somebody send one message, and count what comes of it.

        Args:
            links: How long copies are under way from now on.

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
        for who in simulation.participants:
            who.link.change(links)
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
        delays_ms: Mean one-way propagation delays.
        seeds: Groups of that size.
        rounds: Messages in each of them, for each delay and network.
    """
    answers: dict[LinkFaults, list[Answer]] = {
        links: [] for delay_ms in delays_ms for links in (constant(delay_ms), spread(delay_ms))
    }
    for seed in range(seeds):
        made = Group(group, seed)
        for links, found in answers.items():
            found += [made.ask(links) for _ in range(rounds)]

    def series(links: LinkFaults) -> Series:
        found = answers[links]
        draws = Random(f"uniform/{group}/{links}")
        uniform = tuple(uniform_answers(group - 1, links, draws) for _ in found)
        return Series(tuple(found), uniform)

    for delay_ms in delays_ms:
        yield Cost(group, delay_ms, series(constant(delay_ms)), series(spread(delay_ms)))


# -- the table ------------------------------------------------------------------------------------


def mean_and_range(values: Sequence[float], digits: int = 0) -> str:
    """Return the mean, and the smallest and largest value."""
    if not values:
        return "–"
    return f"{fmean(values):.1f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def row(cost: Cost) -> str:
    """Return one line of the table."""
    delivered = [
        answer.delivered_ms / 1000
        for answer in cost.spread.answers
        if answer.delivered_ms is not None
    ]
    again = sum(answer.retransmitted for answer in cost.spread.answers)
    cells = (
        str(cost.group),
        f"{cost.delay_ms / 1000:g} s",
        mean_and_range([answer.syncs for answer in cost.spread.answers]),
        mean_and_range(cost.spread.uniform),
        mean_and_range([answer.syncs for answer in cost.constant.answers]),
        mean_and_range(cost.constant.uniform),
        mean_and_range(delivered, 1),
        f"{again} of {len(cost.spread.answers)}",
    )
    return f"| {' | '.join(cells)} |"


HEAD: Final = (
    "| participants | delay | spread | uniform | constant | uniform | delivered after, s | retransmitted |",
    "|---|---|---|---|---|---|---|---|",
)
"""Syncs with spread delays and with constant ones, each beside a uniform back-off; the last columns: spread delays."""


def table(costs: Iterable[Cost]) -> Iterator[str]:
    """Give the lines of a Markdown table."""
    yield from HEAD
    yield from map(row, costs)


def lines() -> Iterator[str]:
    """Measure everything; give each line of the table as soon as it is known."""
    yield from table(cost for group in GROUPS for cost in measure(group))
