"""How fast the loss laboratory plays channels, and what Spark adds to the same work in a pool of processes.

Both engines are started and warmed up before, and play the same channels in turns. CPU time is that of all processes
of an engine, from Linux's ``/proc``; elsewhere there is none. The plain trial is what a channel alone takes.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.figures import Figure, Part, Table, figure
from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.plan import Wave, cost_of, waves_of
from benchmarks.laboratory.process_engine import ProcessEngine, cores_here
from benchmarks.laboratory.run import Engine
from benchmarks.laboratory.spark_engine import SparkEngine
from benchmarks.laboratory.spark_session import Master
from benchmarks.laboratory.trial import run_trial
from benchmarks.simulation.scenario import Scenario
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import SdsConfig, SegmentationConfig

CHANNELS: Final = 5_000
ROUNDS: Final = 1
MEMORY_CHANNELS: Final = (500, 5_000)
TRIALS: Final = 100

CELL: Final = Cell(
    name="two participants",
    scenario=Scenario(
        participants=2,
        messages=20,
        interval_ms=1_000,
        payload_bytes=(1_024, 1_024),
        faults=LinkFaults(loss=0.1),
        sds=SdsConfig(bloom_capacity=500),
        segmentation=SegmentationConfig(segment_size_bytes=256),
    ),
)
"""20 messages of 4 segments, a bloom filter of 500 ids."""

SMALL: Final = replace(CELL, scenario=replace(CELL.scenario, messages=2))
"""For the memory of the parent, which does not depend on what a channel costs."""

SEED: Final = 1


@dataclass(frozen=True, slots=True)
class Play:
    """What one wave took.

    Attributes:
        wall: Seconds.
        cpu: CPU seconds of all processes of the engine; 0 where they cannot be told.
        trials: Of these, CPU seconds in the trials themselves.
    """

    wall: float
    cpu: float
    trials: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both engines.

    Attributes:
        starts: Seconds until an engine was started and warm, by its name.
        plays: What each wave took, by the engine's name; the rounds compare them in their order.
    """

    starts: dict[str, float]
    plays: dict[str, list[Play]]


def rate(trials: int = TRIALS) -> float:
    """Return how many channels a second and core the plain trial plays."""
    run_trial(CELL, SEED, 0)
    began = time.process_time()
    for channel in range(trials):
        run_trial(CELL, SEED, channel)
    return trials / (time.process_time() - began)


def compare(channels: int, rounds: int, cores: int) -> Comparison:
    """Play the same channels by both engines, in turns."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        cost = cost_of(CELL, SEED)
        starts: dict[str, float] = {}
        engines: dict[str, Engine] = {}
        for name in ("process", "spark"):
            began = time.perf_counter()
            engines[name] = stack.enter_context(opened(name, cores, folder))
            for wave in waves_of([(SMALL, 8 * cores, cost)], cores):
                play(engines[name], wave, folder)
            starts[name] = time.perf_counter() - began
        plays: dict[str, list[Play]] = {name: [] for name in engines}
        for _ in range(rounds):
            for name, engine in engines.items():
                (wave,) = waves_of([(CELL, channels, cost)], cores)
                plays[name].append(play(engine, wave, folder))
        return Comparison(starts, plays)


@contextmanager
def opened(name: str, cores: int, folder: Path) -> Iterator[Engine]:
    """Give a started engine."""
    if name == "process":
        engine: Engine = ProcessEngine(cores)
    else:
        engine = SparkEngine(Master(f"local[{cores}]"), folder)
    try:
        yield engine
    finally:
        engine.close()


def play(engine: Engine, wave: Wave, folder: Path) -> Play:
    """Play a wave, rows written and summed up."""
    before, began = cpu_by_process(), time.perf_counter()
    engine.play(wave, SEED, folder, lambda done: None)
    sums = engine.sums(wave, folder)
    wall = time.perf_counter() - began
    # Processes that are new count from their beginning; none ends meanwhile.
    cpu = sum(seconds - before.get(pid, 0.0) for pid, seconds in cpu_by_process().items())
    return Play(wall, cpu, sum(part.cpu_us for part in sums.values()) / 1e6)


def cpu_by_process() -> dict[int, float]:
    """Return the CPU seconds of this process and of all below it, as far as ``/proc`` tells."""
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid = int(stat.parent.name)
            rest = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[pid] = int(rest[1])
        seconds[pid] = (int(rest[11]) + int(rest[12])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    waiting = list(ours)
    while waiting:
        parent = waiting.pop()
        below = {pid for pid, above in parents.items() if above == parent} - ours
        ours |= below
        waiting += below
    return {pid: seconds[pid] for pid in ours if pid in seconds}


def peak_of_parent(name: str, channels: int, cores: int) -> int:
    """Return the most bytes that a process of its own takes which has an engine play so many channels."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_peak, name, channels, cores).result()


def _peak(name: str, channels: int, cores: int) -> int:
    with TemporaryDirectory() as text, opened(name, cores, Path(text)) as engine:
        for wave in waves_of([(SMALL, channels, 0.002)], cores):
            play(engine, wave, Path(text))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def figures(found: Comparison, channels: int, cores: int) -> Iterator[Figure]:
    """Give what each engine took, Spark beside the pool of processes."""
    pool = found.plays["process"]
    for name, plays in found.plays.items():
        others = [] if plays is pool else pool
        peer = "process" if others else ""
        yield figure(f"{name}: start", "s", [found.starts[name]], better="less")
        for part in ("wall", "cpu"):
            yield figure(
                f"{name}: {part}",
                "s",
                [getattr(play, part) for play in plays],
                better="less",
                peer=peer,
                theirs=[getattr(play, part) for play in others],
            )
        rates = [channels / max(play.cpu, 1e-9) for play in plays]
        yield figure(f"{name}: channels", "a CPU second", rates)
        for size in MEMORY_CHANNELS:
            peak = peak_of_parent(name, size, cores) / 1e6
            label = f"{name}: most memory of the parent, {size:,} channels"
            yield figure(label, "MB", [peak], better="less")


def tables() -> Iterator[Part]:
    """Measure both engines, and the plain trial."""
    cores = cores_here()
    found = tuple(figures(compare(CHANNELS, ROUNDS, cores), CHANNELS, cores))
    plain = figure("plain trial: channels", "a CPU second", [rate()])
    yield Table(f"{CHANNELS:,} channels of two participants, {cores} cores", (*found, plain))
