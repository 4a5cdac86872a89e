"""What is played when: channels of many cells in one order, cut into waves, waves into tasks.

The order is a function of the numbers of channels, so that any part of it can be found by its number alone, and every
stretch of it has the same mix of cells: tasks of equal length then take equally long. How work is cut decides how
long it takes and nothing else. Nothing here may play more than a few channels, nor know engines or files.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.trial import run_trial

TASK_SECONDS: Final = 3.0
"""CPU time that a task should take: its own cost, some 65 ms with Spark, is small beside it."""

LONGEST_TASK_SECONDS: Final = 5.0
"""A task is not made longer than this to have fewer: progress is counted in tasks, and the last ones run alone."""

MOST_TASKS: Final = 8
"""Tasks a core in one wave, while none is longer than that."""

WAVE_SECONDS: Final = MOST_TASKS * LONGEST_TASK_SECONDS
"""CPU time of a wave on each core: what an interrupted run loses at most, unless one cell alone takes longer."""

SAMPLES: Final = 3
"""Channels of a cell that are played to see what one costs."""

SAMPLE_SECONDS: Final = 0.1
"""No further one is played after so long."""

MEASURE_SECONDS: Final = 5.0
"""No further cell is measured after so long; what the others cost is guessed from these."""

MEASURED_ALIKE: Final = 8
"""Cells of groups of the same size that are measured: the others cost about as much."""

MOST_CELLS: Final = 200
"""Of a wave: each of them is an open file while it is played."""


class Mix:
    """The channels of several cells in one order, in which every stretch has the same mix of cells.

    Cells with as many channels take turns; these groups are merged in proportion to what they hold. In any stretch a
    group's share of the places is right to within one place, and the cells of a group differ by one at most.

    Args:
        counts: How many channels each cell has, 0 or more.
    """

    def __init__(self, counts: Sequence[int]) -> None:
        groups: dict[int, list[int]] = {}
        for place, count in enumerate(counts):
            if count > 0:
                groups.setdefault(count, []).append(place)
        # The largest group has an item at every tick, the others at some.
        self._groups = sorted(groups.values(), key=lambda group: -len(group) * counts[group[0]])
        self._totals = [len(group) * counts[group[0]] for group in self._groups]
        self._ticks = max(self._totals, default=0)
        self._length = sum(self._totals)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> tuple[int, int]:
        """Return the index of the cell and the number of the channel, of the item with a number.

        Raises:
            IndexError: No such item.
        """
        if not 0 <= number < self._length:
            raise IndexError(number)
        low, high = 0, self._ticks - 1
        while low < high:  # the last tick before which there are no more items than the number
            middle = (low + high + 1) // 2
            if self._before(middle) <= number:
                low = middle
            else:
                high = middle - 1
        rest = number - self._before(low)
        for group, total in zip(self._groups, self._totals, strict=True):
            item = low * total // self._ticks
            if (low + 1) * total // self._ticks > item:
                if rest == 0:
                    channel, turn = divmod(item, len(group))
                    return group[turn], channel
                rest -= 1
        raise AssertionError(number)

    def items(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Give the items from one number up to another."""
        return map(self.__getitem__, range(start, stop))

    def _before(self, tick: int) -> int:
        return sum(tick * total // self._ticks for total in self._totals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Cells that are played together; after it they are finished."""

    cells: tuple[Cell, ...]
    counts: tuple[int, ...]
    """Channels of each."""
    tasks: int
    """How many pieces to cut it into."""

    @property
    def channels(self) -> int:
        """Of all its cells."""
        return sum(self.counts)

    @property
    def keys(self) -> tuple[str, ...]:
        """Of its cells."""
        return tuple(cell.key for cell in self.cells)


def channels_by_key(cells: Iterable[Cell], channels: int) -> dict[str, int]:
    """Return how many channels are played under each key; cells of equal parameters share theirs."""
    found: dict[str, int] = {}
    for cell in cells:
        found[cell.key] = max(found.get(cell.key, 0), cell.channels(channels))
    return found


def cost_of(cell: Cell, seed: int) -> float:
    """Return the CPU seconds that a channel of a cell takes, by playing a few; their results are thrown away."""
    began = time.process_time()
    for number in range(SAMPLES):
        run_trial(cell, seed, number)
        spent = time.process_time() - began
        if spent >= SAMPLE_SECONDS:
            return spent / (number + 1)
    return (time.process_time() - began) / SAMPLES


def costs_of(
    cells: Sequence[Cell],
    seed: int,
    look: Callable[[int, int], None],
    known: Iterable[tuple[Cell, float]] = (),
    clock: Callable[[], float] = time.monotonic,
) -> list[float]:
    """Return the CPU seconds that a channel of each cell takes: measured while there is time, else guessed.

    Args:
        cells: The small groups of them are measured first.
        seed: Of the run.
        look: Is told how many are done, and of how many.
        known: Cells that need no measuring, and what a channel of them takes.
        clock: Seconds.
    """
    began = clock()
    found = [(cell.scenario.participants, cost) for cell, cost in known]
    sizes = {size for size, _ in found}
    costs = [0.0] * len(cells)
    order = sorted(range(len(cells)), key=lambda place: cells[place].scenario.participants)
    look(0, len(cells))
    for done, place in enumerate(order, 1):
        size = cells[place].scenario.participants
        if size not in sizes and (not found or clock() - began < MEASURE_SECONDS):
            measured = [other for other in order if cells[other].scenario.participants == size]
            for other in measured[:MEASURED_ALIKE]:
                costs[other] = cost_of(cells[other], seed)
                found.append((size, costs[other]))
                if clock() - began >= MEASURE_SECONDS:
                    break
            sizes.add(size)
        costs[place] = costs[place] or guess(size, found)
        look(done, len(cells))
    return costs


def guess(size: int, known: Sequence[tuple[int, float]]) -> float:
    """Return what a channel of a group may take, from those of the next size: all talk to all.

    Args:
        size: Participants.
        known: Participants and CPU seconds of others, one at least.
    """
    near = min((other for other, _ in known), key=lambda other: (abs(other - size), other))
    alike = [cost for other, cost in known if other == near]
    return sum(alike) / len(alike) * (size / near) ** 2


def tasks_of(seconds: float, channels: int, cores: int) -> int:
    """Return how many tasks work is cut into.

    Args:
        seconds: CPU time of all of it.
        channels: Of all of it.
        cores: That work at the same time.
    """
    fewest = ceil(seconds / LONGEST_TASK_SECONDS)
    wanted = max(fewest, min(ceil(seconds / TASK_SECONDS), MOST_TASKS * cores))
    return max(1, min(channels, ceil(wanted / cores) * cores))


def waves_of(
    work: Sequence[tuple[Cell, int, float]], cores: int, tasks: int | None = None
) -> list[Wave]:
    """Cut work into waves, in its order.

    Args:
        work: Each cell, its channels, and the CPU seconds that one of them takes.
        cores: That work at the same time.
        tasks: How many each wave is cut into; None: by its cost.
    """
    waves: list[Wave] = []
    taken: list[tuple[Cell, int]] = []
    seconds = 0.0
    for number, (cell, channels, cost) in enumerate(work, 1):
        taken.append((cell, channels))
        seconds += channels * cost
        full = seconds >= WAVE_SECONDS * cores or len(taken) >= MOST_CELLS
        if full or number == len(work):
            counts = tuple(count for _, count in taken)
            cut = tasks or tasks_of(seconds, sum(counts), cores)
            waves.append(Wave(cells=tuple(cell for cell, _ in taken), counts=counts, tasks=cut))
            taken, seconds = [], 0.0
    return waves
