"""Times several pieces of work in turns, in one process: what else the machine does then meets all of them.

It must not know what is measured.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

Work: TypeAlias = Callable[[], object]
"""What is timed; what it returns is thrown away."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast one work is as another, or what share of its rate it reaches.

    Attributes:
        median: Over the rounds, each of which compares the two.
        low: The smallest of them.
        high: The largest.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}–{self.high:.2f})"


def timed(works: Mapping[str, Work], rounds: int, least_seconds: float) -> dict[str, list[float]]:
    """Return the CPU seconds of each work in each round.

    A round runs each of them once, or, where that takes less than the least time, as often as it takes to fill it. All
    are run once before, uncounted, so that whatever they keep is there.

    Args:
        works: By name.
        rounds: How many.
        least_seconds: Of CPU, for each work in each round.
    """
    repeats = {name: math.ceil(least_seconds / seconds_of(work, 1)) for name, work in works.items()}
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            seconds[name].append(seconds_of(work, max(1, repeats[name])))
    return seconds


def seconds_of(work: Work, repeats: int) -> float:
    """Return the CPU seconds that a work takes, the mean of so many runs in a row."""
    began = time.process_time()
    for _ in range(repeats):
        work()
    return max(time.process_time() - began, 1e-9) / repeats


def ratio(ours: list[float], theirs: list[float]) -> Ratio:
    """Return how many times as fast we are, from the seconds of the same rounds."""
    ratios = [other / own for own, other in zip(ours, theirs, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def rate(octets: int, seconds: list[float]) -> float:
    """Return the median rate in MB/s, millions of bytes."""
    return octets / statistics.median(seconds) / 1e6
