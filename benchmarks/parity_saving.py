"""How many retransmissions Reed-Solomon parity saves, and what it costs.

Payloads of 40 segments in groups of real machines in virtual time, once without parity and once with it: the same seed
has the same workload, and every copy is lost or not by itself. Default settings without bloom filter, the network's
store switched off unless said otherwise, so that what parity does not repair only retransmissions and SDS-R can.

Spec: LIP-243 (Segmentation), Reed-Solomon parity; docs/adr/0007-parity-and-causal-order.md.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import groupby
from math import ceil, comb
from statistics import fmean, quantiles
from typing import Final

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.scenario import Scenario, StoreFaults
from benchmarks.simulation.workload import play
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.types import SECOND

SEGMENTS: Final = 40
CHUNK_BYTES: Final = 1024
MESSAGES: Final = 5
"""Payloads in each run, from participants drawn by chance."""

HEADLINE_SEEDS: Final = 200
SEEDS: Final = 40
RATES: Final = (0.0, 0.125, 0.25, 0.5)
LOSSES: Final = (0.01, 0.05, 0.1, 0.2, 0.3)
PAYLOADS: Final = (2, 5, 10, 20, 40, 100)
CERTAINTY: Final = 0.99
"""Share of the payloads that are to be whole at once."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured.

    Attributes:
        participants: Size of the group.
        loss: Probability that a copy does not arrive.
        rate: Parity segments for each data segment; 0 for none.
        store: Whether a store can be asked for what is missing.
    """

    participants: int
    loss: float
    rate: float
    store: bool = False

    def scenario(self, seed: int) -> Scenario:
        """Return one run of it."""
        return Scenario(
            seed=seed,
            participants=self.participants,
            messages=MESSAGES,
            interval_ms=10_000,
            payload_bytes=(SEGMENTS * CHUNK_BYTES, SEGMENTS * CHUNK_BYTES),
            settle_ms=1_200_000,
            faults=LinkFaults(loss=self.loss, delay_ms=20, jitter_ms=20),
            store=StoreFaults(enabled=self.store),
            sds=SdsConfig(bloom_capacity=0),
            segmentation=SegmentationConfig(
                segment_size_bytes=CHUNK_BYTES,
                enable_reed_solomon=self.rate > 0,
                parity_rate=self.rate or 0.125,
            ),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """What one run gave.

    Attributes:
        retransmissions: Data segments that went out again.
        repairs: Data segments that others asked for and got.
        transmissions: Everything that went out, syncs and parity included.
        waits_s: For each payload and receiver the time from ``send`` until it was delivered, seconds.
        undelivered: Payloads that a receiver did not get.
    """

    retransmissions: int
    repairs: int
    transmissions: int
    waits_s: tuple[float, ...]
    undelivered: int


@dataclass(frozen=True, slots=True)
class Result:
    """All runs of a case."""

    case: Case
    runs: tuple[Run, ...]

    def a_message(self, name: str) -> float:
        """Return the mean of a count for each payload."""
        return fmean(getattr(run, name) for run in self.runs) / MESSAGES

    def saved(self, without: Result) -> float | None:
        """Return the share of another case's retransmissions that this one does without; None when it has too few.

        Too few: less than one for each payload, where a store gives what is missing.
        """
        base = without.a_message("retransmissions")
        return 1 - self.a_message("retransmissions") / base if base >= 1 else None


def measure(case: Case, seed: int) -> Run:
    """Play one run."""
    simulation = play(case.scenario(seed))
    return Run(
        retransmissions=simulation.counted("retransmissions"),
        repairs=simulation.counted("repairs_answered"),
        transmissions=simulation.transmissions,
        waits_s=tuple(waits(simulation)),
        undelivered=MESSAGES * (case.participants - 1)
        - sum(len(journal.delivered()) for journal in simulation.journals),
    )


def waits(simulation: Simulation) -> Iterator[float]:
    """Give the time from each ``send`` to each delivery, seconds."""
    sent = {step.message_id: step for journal in simulation.journals for step in journal.sent()}
    for journal in simulation.journals:
        for step in journal.delivered():
            yield (step.time_ns - sent[step.message_id].time_ns) / SECOND


def measure_all(cases: Sequence[Case], seeds: int) -> Iterator[Result]:
    """Play all runs of some cases on all cores; give each case as soon as it is done."""
    work = [(case, seed) for case in cases for seed in range(seeds)]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        runs = pool.map(measure, *zip(*work, strict=True), chunksize=5)
        for case, found in groupby(zip(work, runs, strict=True), key=lambda item: item[0][0]):
            yield Result(case, tuple(run for _, run in found))


# -- the tables -----------------------------------------------------------------------------------

HEAD: Final = (
    "| participants | store | loss | parity | retransmissions | saved | repairs | all transmissions "
    "| delivered after, s: half | 95 % | undelivered |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
)
"""Counts are for one payload of 40 segments."""


def rows(results: Iterable[Result]) -> Iterator[str]:
    """Give the lines of a table; the case without parity comes before those that are compared with it."""
    without: dict[Case, Result] = {}
    for result in results:
        case = result.case
        if not case.rate:
            without[case] = result
        saved = result.saved(without[replace(case, rate=0.0)]) if case.rate else None
        waited = [wait for run in result.runs for wait in run.waits_s]
        places = quantiles(waited, n=20, method="inclusive")
        cells = (
            str(case.participants),
            "yes" if case.store else "no",
            f"{case.loss:.0%}",
            f"{case.rate:g}" if case.rate else "none",
            f"{result.a_message('retransmissions'):.2f}",
            "–" if saved is None else f"{saved:.1%}",
            f"{result.a_message('repairs'):.2f}",
            f"{result.a_message('transmissions'):.1f}",
            f"{places[9]:.1f}",
            f"{places[18]:.1f}",
            str(sum(run.undelivered for run in result.runs)),
        )
        yield f"| {' | '.join(cells)} |"


def headline() -> list[Case]:
    """Return the cases of the first table: 10 % loss, a parity rate of a quarter."""
    return [
        Case(participants, 0.1, rate, store)
        for participants in (2, 3, 5)
        for store in (False, True)
        for rate in (0.0, 0.25)
    ]


def grid() -> list[Case]:
    """Return the cases of the second table: every loss with every rate, among three."""
    return [Case(3, loss, rate) for loss in LOSSES for rate in RATES]


def parity_needed(data_count: int, loss: float) -> int:
    """Return the fewest parity segments with which a payload most often is whole at once.

    Args:
        data_count: Its data segments.
        loss: Probability of each segment to be lost, below 1, independent of the others.
    """
    parity_count = 0
    while chance_whole(data_count, parity_count, loss) < CERTAINTY:
        parity_count += 1
    return parity_count


def chance_whole(data_count: int, parity_count: int, loss: float) -> float:
    """Return the probability that of all segments no more are lost than there is parity."""
    total = data_count + parity_count
    return sum(
        comb(total, lost) * loss**lost * (1 - loss) ** (total - lost)
        for lost in range(parity_count + 1)
    )


def needed_rows() -> Iterator[str]:
    """Give the lines of a table that needs no measuring: how much parity is needed, as a count and as a rate.

    A payload has at most as much parity as data.
    """
    yield f"| data segments | {' | '.join(f'{loss:.0%} loss' for loss in LOSSES)} |"
    yield "|---|" + "---|" * len(LOSSES)
    for data_count in PAYLOADS:
        counts = [parity_needed(data_count, loss) for loss in LOSSES]
        cells = [
            f"{count}: {ceil(1000 * count / data_count) / 1000:g}" if count <= data_count else "–"
            for count in counts
        ]
        yield f"| {data_count} | {' | '.join(cells)} |"


def lines() -> Iterator[str]:
    """Measure everything; give each line of the tables as soon as it is known."""
    for cases, seeds in ((headline(), HEADLINE_SEEDS), (grid(), SEEDS)):
        yield from HEAD
        yield from rows(measure_all(cases, seeds))
        yield ""
    yield from needed_rows()
