"""``python -m benchmarks.simulation.torture``: plays many small scenarios in which processes die, on all cores.

::

    make torture SEEDS=20000

Each seed gives one scenario (``drawing``). It must not judge a run; that is ``invariants``.

Spec: none; docs/performance.md for what it has found.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from typing import Final, NamedTuple

from benchmarks.simulation.breakage import BREAKAGES
from benchmarks.simulation.drawing import crash_scenario
from benchmarks.simulation.invariants import delivery_problems
from benchmarks.simulation.workload import play

DEFAULT_SEEDS: Final = 20_000

CHUNK: Final = 50
"""Seeds that a process takes at a time."""

REPORTS: Final = 20
"""Lines of progress, at most."""


class Run(NamedTuple):
    """What came of one seed."""

    seed: int
    problems: dict[str, str]
    """The first of each kind; ``error`` where the run raised."""
    counts: Counter[str]


def run(seed: int, *, broken: str = "") -> Run:
    """Play one seed and judge it.

    Args:
        seed: Gives the scenario.
        broken: What is wrong on purpose.
    """
    try:
        simulation = play(crash_scenario(seed, broken=broken))
        problems = {name: texts[0] for name, texts in simulation.problems().items()}
    except Exception as error:  # whatever it is, the seed that shows it has to be named
        return Run(seed, {"error": f"{type(error).__name__}: {error}"}, Counter())
    journals = simulation.journals
    counts = Counter(
        messages=sum(len(journal.sent()) for journal in journals),
        deliveries=sum(len(journal.delivered()) for journal in journals),
        excused=sum(" lacks " in text for text in delivery_problems(journals)),
        late=sum(step.late for journal in journals for step in journal.delivered()),
        crashes=sum(
            count for name, count in simulation.counters.items() if name.startswith("crashes_")
        ),
    )
    return Run(seed, problems, counts)


def runs(seeds: Iterable[int], *, processes: int, broken: str = "") -> Iterator[Run]:
    """Play seeds in processes of their own and give what came of each, as it comes."""
    # Not forked: what a run finds must not depend on what its parent has done.
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(partial(run, broken=broken), seeds, chunksize=CHUNK)


def replay_command(seed: int, *, broken: str = "") -> str:
    """Return the line that plays a seed again, whatever is drawn from it some day."""
    return crash_scenario(seed, broken=broken).command


def main(arguments: Sequence[str] | None = None) -> int:
    """Play seeds, say which ones fail and how to see it again, and return 0 only when none does.

    Args:
        arguments: Of the command line, without the program.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation.torture",
        description="Play many small scenarios in which processes die and start again.",
    )
    parser.add_argument("--seeds", type=int, default=DEFAULT_SEEDS, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="at a time (one for each core)"
    )
    parser.add_argument(
        "--broken", default="", choices=("", *BREAKAGES), help="what is wrong on purpose (nothing)"
    )
    options = parser.parse_args(arguments)
    if options.seeds < 1 or options.processes < 1:
        parser.error("--seeds and --processes must be 1 or more")
    seeds = range(options.first, options.first + options.seeds)
    began = time.monotonic()
    counts: Counter[str] = Counter()
    failed = 0
    step = max(1, options.seeds // REPORTS)
    played = runs(seeds, processes=options.processes, broken=options.broken)
    for done, item in enumerate(played, start=1):
        counts += item.counts
        if item.problems:
            failed += 1
            say(f"seed {item.seed} fails; to see it again:")
            say(f"  {replay_command(item.seed, broken=options.broken)}")
            for name, text in item.problems.items():
                say(f"  {name}: {text}")
        if done % step == 0 or done == options.seeds:
            rate = done / max(time.monotonic() - began, 1e-9)
            say(f"{done:,} of {options.seeds:,} played, {failed:,} failed, {rate:,.0f} a second")
    say(
        f"{counts['crashes']:,} crashes; {counts['messages']:,} messages, "
        f"{counts['deliveries']:,} deliveries ({counts['late']:,} late), "
        f"{counts['excused']:,} not made and reported as an error or as lost"
    )
    return 1 if failed else 0


def say(line: str) -> None:
    """Write a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
