"""A run from its beginning to its report: plan, waves, manifest, digest, measures.

After each wave the manifest says so; a run that was interrupted goes on behind the last finished wave. It must not
play channels itself but to see what they cost, nor judge results.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from benchmarks.laboratory import storage
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.grids import Grid
from benchmarks.laboratory.manifest import FILE, Finished, Manifest, described, read, versions
from benchmarks.laboratory.measures import Measured, Measures
from benchmarks.laboratory.plan import Wave, channels_by_key, costs_of, waves_of
from benchmarks.laboratory.progress import Progress

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"

EngineName: TypeAlias = Literal["spark", "process"]


class Engine(Protocol):
    """What plays waves."""

    @property
    def name(self) -> str:
        """``spark`` or ``process``."""

    @property
    def title(self) -> str:
        """For people."""

    @property
    def master(self) -> str:
        """Spark's master; empty without Spark."""

    @property
    def java(self) -> str:
        """Version of the driver's Java; empty where there is none."""

    @property
    def cores(self) -> int:
        """That work at the same time."""

    def play(self, wave: Wave, seed: int, out: Path, advance: Callable[[int], None]) -> None:
        """Play a wave and write its rows."""

    def sums(self, wave: Wave, out: Path) -> dict[str, storage.Sums]:
        """Read a wave's rows back and sum them up, by key."""

    def measures(self, out: Path, cells: Sequence[Measured]) -> dict[str, Measures]:
        """Measure the rows of cells, by key."""

    def close(self) -> None:
        """Release everything."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a run is asked for."""

    grid: Grid
    channels: int
    """Of each cell, unless its own limit is smaller."""
    seed: int
    engine: EngineName = "spark"
    master: str | None = None
    """Spark's; None: the environment's, else this machine."""
    out: Path
    workers: int | None = None
    """Processes, or Spark's cores on this machine; None is as many as there are."""
    partitions: int | None = None
    """Tasks of each wave; None: by its cost."""


def run(options: RunOptions, tell: Progress, *, engine: Engine | None = None) -> Manifest:
    """Play what of a grid is not finished yet, and write the report.

    Args:
        options: What to play, and how.
        tell: Is told how far it is.
        engine: Plays instead of the one that the options name, and is left open.

    Returns:
        The manifest; its ``problems`` are the channels that could not be played.

    Raises:
        LaboratoryError: It cannot go on; the text says what to do.
        KeyboardInterrupt: It was interrupted; what is finished is kept.
    """
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    check_folder(out, options.out)
    with locked(out):
        manifest = begin(options, out)
        began, spent = time.monotonic(), manifest.seconds
        compare(out, manifest, tell)
        storage.clear(out, manifest.finished)
        playing = engine or open_engine(options, out)
        try:
            manifest.engine, manifest.master = playing.name, playing.master
            manifest.versions = versions(playing.java)
            for _ in played(options, out, manifest, playing, tell):
                manifest.seconds = round(spent + time.monotonic() - began, 3)
                manifest.write(out)
            manifest.conclude()
            manifest.write(out)
            report(out, manifest, options.grid, playing)
        finally:
            tell.end()
            if engine is None:
                playing.close()
        if manifest.problems:
            tell.say(problem_line(options.out, out, manifest))
    return manifest


def check_folder(out: Path, shown: Path) -> None:
    """Raise where a folder holds anything but a run, before a file is made in it.

    Raises:
        LaboratoryError: It is so.
    """
    if not (out / FILE).exists() and any(entry.name != LOCK for entry in out.iterdir()):
        # Asked again: a run that begins there meanwhile writes its manifest first.
        if (out / FILE).exists():
            return
        text = f"{shown} is not empty and holds no run: name another folder with --out"
        raise LaboratoryError(text)


def begin(options: RunOptions, out: Path) -> Manifest:
    """Return the manifest of the run in a folder, or begin a run there.

    Raises:
        LaboratoryError: There is another run in the folder.
    """
    asked = Manifest(
        versions=versions(),
        grid=described(options.grid.name, options.grid.cells),
        seed=options.seed,
        channels=options.channels,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    if not (out / FILE).exists():
        asked.write(out)
        return asked
    found = read(out)
    release = "reliable_channel"
    same = (
        found.keys == asked.keys
        and found.seed == asked.seed
        and found.channels == asked.channels
        and limits(found) == limits(asked)
        and found.versions.get(release) == asked.versions[release]
    )
    if not same:
        text = (
            f"{options.out} holds another run ({found.grid['name']}, {found.channels} channels, seed {found.seed}, "
            f"version {found.versions.get(release)}): name another folder with --out, or remove this one"
        )
        raise LaboratoryError(text)
    found.grid = asked.grid  # names and labels may have changed, what is played has not
    return found


def compare(out: Path, manifest: Manifest, tell: Progress) -> None:
    """Take from the finished cells those whose rows are not what the manifest says, and say so."""
    for key, cell in list(manifest.finished.items()):
        try:
            same = finished(key, cell.channels, storage.sums_of(out, key)) == cell
        except LaboratoryError:
            same = False
        if not same:
            del manifest.finished[key]
            manifest.digest = ""
            tell.say(
                f"results of cell {key} are missing or not what was written; it is played again"
            )


def limits(manifest: Manifest) -> list[int | None]:
    """Return the cells' own limits, in the grid's order."""
    return [cell["max_channels"] for cell in manifest.grid["cells"]]


def open_engine(options: RunOptions, out: Path) -> Engine:
    """Open the engine that the options name."""
    if options.engine == "process":
        from benchmarks.laboratory.process_engine import ProcessEngine

        return ProcessEngine(options.workers)
    from benchmarks.laboratory.spark_engine import SparkEngine
    from benchmarks.laboratory.spark_session import choose_master

    return SparkEngine(choose_master(options.master, options.workers), out)


def played(
    options: RunOptions, out: Path, manifest: Manifest, engine: Engine, tell: Progress
) -> Iterator[Wave]:
    """Play what is not finished, wave by wave, and give each wave when its results are in the manifest."""
    counts = channels_by_key(options.grid.cells, options.channels)
    cells = {cell.key: cell for cell in options.grid.cells}
    left = [(cells[key], count) for key, count in counts.items() if key not in manifest.finished]
    if len(left) < len(counts):
        tell.say(f"{len(counts) - len(left)} of {len(counts)} cells are finished already")
    known = [
        (cells[key], cell.cpu_seconds / cell.channels)
        for key, cell in manifest.finished.items()
        if cell.channels > cell.problems
    ]
    costs = costs_of([cell for cell, _ in left], options.seed, tell.measure, known)
    work = [(*pair, cost) for pair, cost in zip(left, costs, strict=True)]
    waves = waves_of(work, engine.cores, options.partitions)
    done = 0
    tell.begin(engine.title, sum(wave.channels for wave in waves), len(waves))
    for number, wave in enumerate(waves, 1):
        tell.wave(number)
        before = done
        engine.play(wave, options.seed, out, lambda now, before=before: tell.advance(before + now))  # type: ignore[misc]
        sums = engine.sums(wave, out)
        for key, count in zip(wave.keys, wave.counts, strict=True):
            manifest.finished[key] = finished(key, count, sums.get(key))
        done += wave.channels
        tell.advance(done)
        yield wave


def finished(key: str, channels: int, sums: storage.Sums | None) -> Finished:
    """Return what a cell's rows come to.

    Raises:
        LaboratoryError: They are not one row for each channel.
    """
    if sums is None or not sums.rows == sums.distinct == channels:
        rows = sums.rows if sums else 0
        text = (
            f"cell {key} has {rows} rows for {channels} channels: "
            "--out has to be a folder that only this run writes to; run again"
        )
        raise LaboratoryError(text)
    return Finished(
        channels=channels,
        problems=sums.problems,
        digest_high=sums.digest_high,
        digest_low=sums.digest_low,
        cpu_seconds=round(sums.cpu_us / 1e6, 3),
    )


def problem_line(shown: Path, out: Path, manifest: Manifest) -> str:
    """Return a line that says how many channels could not be played, and how to play the first again."""
    key = next(key for key in manifest.keys if manifest.finished[key].problems)
    found = storage.first_problem(out, key)
    channel, problem = found or (0, "")
    name = next(cell["name"] for cell in manifest.grid["cells"] if cell["key"] == key)
    words = ["reliable-channel", "simulate", "replay", "--out", str(shown)]
    command = shlex.join([*words, "--scenario", key, "--channel", str(channel)])
    return f"{manifest.problems} channels could not be played, first {channel} of {name} ({problem}): {command}"


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Keep other runs out of a folder for a while.

    Raises:
        LaboratoryError: Another run is in it.
    """
    with (out / LOCK).open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                text = f"another run is writing to {out}: wait for it, or name another folder with --out"
                raise LaboratoryError(text) from error
        yield


# --- What others make of the results -------------------------------------------------------------


def report(out: Path, manifest: Manifest, grid: Grid, engine: Engine) -> None:
    """Have the results measured, checked and reported."""
    # Only here: what draws is slow to import.
    from benchmarks.laboratory.checks import checks
    from benchmarks.laboratory.report import write_report

    found = engine.measures(out, grid.cells)
    write_report(out, manifest, grid, found, checks(grid, found))
