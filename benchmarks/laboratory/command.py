"""What ``reliable-channel simulate`` does: run, replay, analyze, grids.

Results of a command go to standard output, what is said meanwhile to standard error. What is wrong is one line, raised
as an error of the library's. It must not know of options and their names beyond its messages, nor do the work itself.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.grids import Grid, grid_names, load_grid
from benchmarks.laboratory.parameters import unknown
from reliable_channel.errors import ConfigurationError, ReliableChannelError
from reliable_channel.types import SECOND

CHANNELS: Final = 5_000
"""Of each cell, where nothing else is said."""

ENGINES: Final = ("spark", "process")

EXTRA: Final = {"pyarrow": "pyarrow", "matplotlib": "matplotlib"}
"""What every run needs beyond the library, module by distribution."""

SPARK_EXTRA: Final = {"pyspark": "pyspark", "pandas": "pandas"}
"""What Spark needs besides."""

_EITHER: Final = "read what? give --database URL or --events PATH, repeated for each service"

MEASURED: Final = 3
"""Channels of each cell that are played to see what it costs."""


def run_simulate(
    grid: str,
    *,
    channels: int,
    seed: int,
    engine: str,
    master: str | None,
    out: Path | None,
    workers: int | None,
    partitions: int | None,
) -> int:
    """Play a grid and write its report; go on where a run of the same was interrupted.

    Args:
        grid: Name of a grid that comes with the package, or path of a file.
        channels: Of each cell, 1 or more.
        seed: 0 or more; equal seeds give equal results.
        engine: ``spark`` or ``process``.
        master: Of Spark; None is what the environment says, else this machine.
        out: Folder of the results; None is ``simulate-`` and the grid's name, in the current folder.
        workers: Processes at the same time; None is as many as there are cores.
        partitions: Pieces of work; None: by what they cost.

    Returns:
        The exit code: 1 where a channel could not be played.

    Raises:
        ConfigurationError: Wrong options or a wrong grid.
        ReliableChannelError: It cannot begin or go on.
    """
    check_engine(engine, master)
    loaded = load_grid(grid)
    need(engine)
    with told():
        from benchmarks.laboratory.progress import progress_on
        from benchmarks.laboratory.run import RunOptions, run

        folder = Path(f"simulate-{loaded.name}") if out is None else out
        if folder.exists() and not folder.is_dir():
            text = f"{folder} is no folder: name another one with --out"
            raise ConfigurationError(text)
        options = RunOptions(
            grid=loaded,
            channels=channels,
            seed=seed,
            engine=cast("Any", engine),
            master=master,
            out=folder,
            workers=workers,
            partitions=partitions,
        )
        manifest = run(options, progress_on(_console()))
    _write([f"results in {folder}, digest {manifest.digest}", *reports(folder)])
    return 1 if manifest.problems else 0


def run_replay(out: Path, scenario: str, channel: int, trace: str) -> int:
    """Play one channel of a run again, write its trace, and say whether the same came of it.

    Args:
        out: Folder of the run.
        scenario: Key, name or number of the cell.
        channel: Its number.
        trace: File for the trace; ``-`` is standard output.

    Returns:
        The exit code: 1 where something else came of it.

    Raises:
        ConfigurationError: No such scenario or channel.
        ReliableChannelError: No such run, or one of another version.
    """
    need("process", only=("pyarrow",))
    with told():
        from benchmarks.laboratory.replay import replay

        found = replay(out, scenario, channel)
    if trace == "-":
        _write(found.trace)
    else:
        Path(trace).write_text("".join(f"{line}\n" for line in found.trace), encoding="utf-8")
    _write([*found.summary(), found.verdict])
    return 1 if found.differs else 0


def run_analyze(
    databases: Sequence[str],
    events: Sequence[Path],
    *,
    window_sec: int = 3_600,
    out: Path,
    engine: str,
    master: str | None,
) -> int:
    """Read what services logged, and write the same report of it.

    Args:
        databases: URLs of databases.
        events: Instead of them, files or folders of exported events.
        window_sec: Of a channel's time, what one row is of, seconds.
        out: Folder of the results.
        engine: ``spark`` or ``process``.
        master: Of Spark; None is what the environment says, else this machine.

    Returns:
        The exit code, 0.

    Raises:
        ConfigurationError: Wrong options.
        ReliableChannelError: It cannot be read.
    """
    check_engine(engine, master)
    if bool(databases) == bool(events):
        raise ConfigurationError(_EITHER)
    need(engine)
    with told():
        analysis: Any = importlib.import_module("benchmarks.laboratory.analysis")
        progress: Any = importlib.import_module("benchmarks.laboratory.progress")
        analysis.analyze(
            list(databases) or None,
            list(events) or None,
            out,
            engine=engine,
            master=master,
            tell=progress.progress_on(_console()).say,
            window_ns=window_sec * SECOND,
        )
    _write([f"results in {out}", *reports(out)])
    return 0


def run_grids(grid: str | None, *, measure: bool) -> int:
    """List the grids that come with the package, or the cells of one.

    Args:
        grid: Name or path of the one whose cells are listed; None lists all grids.
        measure: Play some channels to see what they cost now.

    Returns:
        The exit code, 0.

    Raises:
        ConfigurationError: No such grid, or a wrong one.
    """
    if measure:
        need("process", only=("pyarrow",))
    with told():
        if grid is None:
            _write(grid_lines([load_grid(name) for name in grid_names()], measure=measure))
        else:
            _write(cell_lines(load_grid(grid), measure=measure))
    return 0


def grid_lines(grids: Iterable[Grid], *, measure: bool) -> Iterator[str]:
    """Give a line for each grid: its cells and channels, minutes of one core, and what it is about."""
    yield f"at {CHANNELS:,} channels of each cell, fewer where the grid says so:"
    yield f"{'grid':10} {'cells':>6} {'channels':>9} {'CPU minutes':>12}"
    for grid in grids:
        channels = sum(cell.channels(CHANNELS) for cell in grid.cells)
        minutes = sum(costs(grid)) / 60 if measure else grid.cpu_minutes
        cost = f"{minutes:.1f}" if minutes else "?"
        yield f"{grid.name:10} {len(grid.cells):6} {channels:9,} {cost:>12}  {grid.title}"


def cell_lines(grid: Grid, *, measure: bool) -> Iterator[str]:
    """Give a line for each cell: number, key, channels, seconds of one core where they are measured, and name."""
    yield f"{grid.name}: {grid.title}"
    if grid.description:
        yield grid.description
    found = costs(grid) if measure else [0.0] * len(grid.cells)
    for number, (cell, seconds) in enumerate(zip(grid.cells, found, strict=True)):
        cost = f" {seconds:8.1f} s" if measure else ""
        yield f"{number:5} {cell.key} {cell.channels(CHANNELS):6,}{cost}  {cell.name}"


def costs(grid: Grid) -> list[float]:
    """Return the seconds of one core that each cell takes, guessed from a few of its channels."""
    from benchmarks.laboratory.trial import run_trial

    found = []
    for cell in grid.cells:
        trials = [run_trial(cell, 0, channel) for channel in range(MEASURED)]
        mean = sum(trial.cpu_us for trial in trials) / MEASURED / 1e6
        found.append(mean * cell.channels(CHANNELS))
    return found


def check_engine(engine: str, master: str | None) -> None:
    """Raise unless there is such an engine, and a master only for Spark.

    Raises:
        ConfigurationError: It is not so.
    """
    if engine not in ENGINES:
        text = f"--engine: {unknown(engine, ENGINES)}"
        raise ConfigurationError(text)
    if engine != "spark" and master is not None:
        text = f"--master is for --engine spark, not {engine}; leave it out"
        raise ConfigurationError(text)


def need(engine: str, *, only: Sequence[str] = ()) -> None:
    """Raise unless what an engine needs beyond the library is installed.

    Args:
        engine: ``spark`` or ``process``.
        only: Of the modules, look at these.

    Raises:
        ReliableChannelError: Something is missing.
    """
    wanted = {**EXTRA, **(SPARK_EXTRA if engine == "spark" else {})}
    missing = [
        name
        for module, name in wanted.items()
        if module in (only or wanted) and importlib.util.find_spec(module) is None
    ]
    if missing:
        text = (
            f"the loss laboratory needs {' and '.join(missing)}: "
            "pip install 'reliable-channel[spark]'"
        )
        raise ReliableChannelError(text)


def reports(folder: Path) -> list[str]:
    """Return a line for each report in a folder."""
    files = [folder / name for name in ("report.html", "summary.csv")]
    return [f"report: {file}" for file in files if file.is_file()]


@contextmanager
def told() -> Iterator[None]:
    """Turn what the laboratory raises into the library's errors, which the command line tells in one line."""
    try:
        yield
    except LaboratoryError as error:
        raise ReliableChannelError(str(error)) from error


def _console() -> Any:
    from rich.console import Console

    return Console(stderr=True)


def _write(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
