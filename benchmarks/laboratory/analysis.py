"""``simulate analyze``: the durable event logs of services, counted, measured and shown as a simulated run is.

::

    databases, files ─► sources ─► tasks ─► count_task of each ─► Parquet ─► measures ─► report
                                            (Spark or this process)

A task opens what it reads by itself, and writes the rows of its channels, so that neither engine carries them. Services
may run meanwhile: nothing is written to their databases, and no channel is taken. It must not judge what it counts.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from heapq import merge
from itertools import repeat
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import pyarrow.parquet as pq

from benchmarks.laboratory import manifest as manifests
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.event_files import Broken
from benchmarks.laboratory.grids import Grid
from benchmarks.laboratory.manifest import Finished, Manifest
from benchmarks.laboratory.measures import Measures, measures_by_arrow
from benchmarks.laboratory.results import Trial, batch_of
from benchmarks.laboratory.sources import (
    Files,
    Task,
    logs_of_files,
    look_into,
    look_through,
    read_database,
    read_files,
    tasks_of_databases,
    tasks_of_files,
)
from benchmarks.laboratory.storage import FILE_SCHEMA, FOLDER, folder_of
from benchmarks.laboratory.traffic import (
    NOTES,
    PATIENCE_NS,
    UNKNOWN,
    UNKNOWN_ALONE,
    UNKNOWN_OF_FILES,
    UNKNOWN_RATIOS,
    WINDOW_NS,
    ChannelCounter,
    TrafficCell,
    cell_of,
)
from reliable_channel.errors import ConfigurationError
from reliable_channel.types import SECOND, Nanoseconds

Engine: TypeAlias = Literal["spark", "process"]

Tell: TypeAlias = Callable[[str], object]
"""Takes a line for people."""

NAME: Final = "traffic"
"""Of what stands in the place of a grid."""

ROWS_AT_ONCE: Final = 64
"""Rows that are collected before they are written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What came of one channel."""

    key: str
    rows: int = 0
    digest_high: int = 0
    digest_low: int = 0
    cpu_seconds: float = 0.0
    notes: dict[str, int] = field(default_factory=dict)
    """By the names of `traffic.NOTES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What an analysis came to."""

    grid: Grid
    """A cell for each channel with any events, by their ids."""
    manifest: Manifest
    measures: dict[str, Measures]
    """By key; ``unknown`` says what no log gives."""
    report: tuple[Path, ...]
    """Files of the report."""


def analyze(
    database: str | Sequence[str] | None,
    events: Path | Sequence[Path] | None,
    out: Path,
    *,
    engine: Engine = "spark",
    master: str | None = None,
    tell: Tell,
    window_ns: Nanoseconds = WINDOW_NS,
) -> Analysis:
    """Read logs, and write rows, manifest and report to a folder.

    Args:
        database: URLs of databases, as for ``open_store``, each of a service that takes part.
        events: Instead of them, files or folders, each the log of a service that takes part.
        out: Folder for all that is written; made where it is not there.
        engine: What the tasks run in.
        master: Of Spark.
        tell: Takes what is to be said.
        window_ns: Of the channels' time, what one row is of.

    Raises:
        ConfigurationError: There is nothing to read, a database is not there or of another release, files are not the
            log of one participant, or the folder has results.
        StoreUnavailableError: A database cannot be read.
        LaboratoryError: Spark cannot be had, or what it did failed.
        OSError: A file cannot be read or written.
    """
    began, started = time.monotonic(), datetime.now(UTC)
    urls = [database] if isinstance(database, str) else list(database or ())
    paths = [events] if isinstance(events, Path) else list(events or ())
    _check(urls, paths, out, window_ns)
    for left in (out / FOLDER).glob("scenario=*/_part-*.unfinished"):
        left.unlink()
    databases = [look_into(url) for url in urls]
    with ExitStack() as stack:
        run: Any = _in_turn
        measure: Any = _measures
        if engine == "spark":
            from benchmarks.laboratory.spark_analysis import SparkMapping

            run = stack.enter_context(SparkMapping(master, out))
            measure = run.measures
        files = list(run(look_through, paths))
        broken = _broken(files, tell)
        tasks = tasks_of_databases(databases) + tasks_of_files(files)
        names = [source.name for source in (*databases, *files)]
        tasks.sort(key=lambda task: (-task.weight, task.channels))
        job = partial(count_task, out=out.absolute(), window_ns=window_ns)
        counted = {part.key: part for parts in run(job, tasks) for part in parts if part.rows}
        cells = _cells(tasks, counted, names, window_ns)
        grid = Grid(
            name=NAME,
            title="Real traffic",
            description=f"What the event logs of services tell: {', '.join(names)}.",
            cells=tuple(cells),
        )
        _check_results(out, counted)
        measures = measure(out, grid.cells)
    for cell in cells:
        measures[cell.key].unknown = _unknown(cell, of_files=bool(files))
    notes = Counter[str]()
    for part in counted.values():
        notes.update(part.notes)
    for name in NOTES:
        if notes[name]:
            tell(f"{NOTES[name]}: {notes[name]:,}")
    manifest = Manifest(
        versions=manifests.versions(getattr(run, "java", "")),
        grid={
            **manifests.described(grid.name, grid.cells),
            "databases": [source.name for source in databases],
            "events": [source.name for source in files],
            "window_sec": window_ns // SECOND,
            "unknown": {cell.key: sorted(measures[cell.key].unknown) for cell in cells},
            "notes": {name: notes[name] for name in NOTES},
            "broken_lines": broken.count,
            "broken_first": broken.named,
            "repeated_events": broken.repeated,
        },
        channels=max(part.rows for part in counted.values()),
        engine=engine,
        master=getattr(run, "master", ""),
        finished={
            part.key: Finished(
                channels=part.rows,
                problems=0,
                digest_high=part.digest_high,
                digest_low=part.digest_low,
                cpu_seconds=part.cpu_seconds,
            )
            for part in counted.values()
        },
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 3),
    )
    manifest.conclude()
    manifest.write(out)
    return Analysis(
        grid=grid,
        manifest=manifest,
        measures=measures,
        report=tuple(_report(out, manifest, grid, measures)),
    )


def _in_turn(job: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
    """Do a job with each item in this process."""
    return map(job, items)


def _measures(out: Path, cells: Sequence[TrafficCell]) -> dict[str, Measures]:
    """Measure the rows of cells in this process."""
    return measures_by_arrow(out / FOLDER, cells)


def _cells(
    tasks: Sequence[Task],
    counted: Mapping[str, Counted],
    names: Sequence[str],
    window_ns: Nanoseconds,
) -> list[TrafficCell]:
    """Return the cells that have rows, by their channels.

    Raises:
        ConfigurationError: None has.
    """
    cells = [cell for task in tasks for cell in cells_of(task, window_ns) if cell.key in counted]
    if not cells:
        problem = f"{', '.join(names)}: the event log is empty"
        raise ConfigurationError(problem)
    return sorted(cells, key=lambda cell: cell.channel_id)


def _check_results(out: Path, counted: Iterable[str]) -> None:
    if not all(folder_of(out, key).is_dir() for key in counted):
        text = (
            f"Spark's workers wrote results that are not in {out}: "
            "--out has to be a folder that this machine and all workers share"
        )
        raise LaboratoryError(text)


def _report(
    out: Path, manifest: Manifest, grid: Grid, measures: dict[str, Measures]
) -> Sequence[Path]:
    """Have the report written, where that part of the laboratory is there."""
    name = "benchmarks.laboratory.report"
    if importlib.util.find_spec(name) is None:
        return []
    report: Any = importlib.import_module(name)
    return list(report.write_report(out, manifest, grid, measures, []))


def _check(urls: Sequence[str], paths: Sequence[Path], out: Path, window_ns: Nanoseconds) -> None:
    problem = ""
    if bool(urls) == bool(paths):
        problem = "name databases with --database, or files of events with --events: one of the two"
    elif len(set(urls)) < len(urls) or len(set(paths)) < len(paths):
        problem = "a log is named twice; name each participant's log once"
    elif window_ns < SECOND:
        problem = "a window must be at least a second long"
    elif (out / manifests.FILE).exists():  # what was interrupted has none
        problem = f"{out} has results already; name another folder with --out"
    if problem:
        raise ConfigurationError(problem)


def _broken(files: Sequence[Files], tell: Tell) -> Broken:
    """Return what is broken in all files, and say so."""
    broken = Broken()
    for source in files:
        broken.extend(source.broken)
    for line in broken.named:
        tell(f"{line}; the line is left out")
    if broken.count > len(broken.named):
        tell(f"{broken.count:,} broken lines in all; the first {len(broken.named)} are named above")
    if broken.repeated:
        tell(f"{broken.repeated:,} events came again in a file and are counted once")
    return broken


def _unknown(cell: TrafficCell, *, of_files: bool) -> frozenset[str]:
    """Return what is 0 in a channel's rows although nobody knows it."""
    of_one = (*UNKNOWN_ALONE, "completion") if len(cell.sources) == 1 else ()
    return frozenset((*UNKNOWN, *UNKNOWN_RATIOS, *of_one, *(UNKNOWN_OF_FILES if of_files else ())))


# --- Tasks ---------------------------------------------------------------------------------------


def cells_of(task: Task, window_ns: Nanoseconds) -> list[TrafficCell]:
    """Return the cells of a task's channels."""
    return [
        cell_of(channel_id, task.sources(channel_id), window_ns) for channel_id in task.channels
    ]


def count_task(
    task: Task,
    *,
    out: Path,
    window_ns: Nanoseconds = WINDOW_NS,
    patience_ns: Nanoseconds = PATIENCE_NS,
) -> list[Counted]:
    """Read a task's logs, and write the rows of its channels.

    Doing it again replaces what it wrote.
    """
    count = partial(ChannelCounter, window_ns=window_ns, patience_ns=patience_ns)
    cells = cells_of(task, window_ns)
    if not task.files:
        (cell,) = cells
        logs, streams = zip(*(read_database(source) for source in task.databases), strict=True)
        counter = count(cell.key, logs)
        numbered = [zip(repeat(place), stream) for place, stream in enumerate(streams)]
        happenings = merge(*numbered, key=lambda item: item[1].time_ns)
        return [_written(out, cell.key, counter, counter.rows(happenings))]
    return _count_files(task, cells, count, out)


def _count_files(
    task: Task,
    cells: Sequence[TrafficCell],
    count: Callable[..., ChannelCounter],
    out: Path,
) -> list[Counted]:
    """Count all channels of some files in one pass."""
    counters: dict[str, ChannelCounter] = {}
    places: dict[tuple[int, str], int] = {}
    writers: dict[str, _Rows] = {}
    for cell in cells:
        counters[cell.channel_id] = count(cell.key, logs_of_files(task.files, cell.channel_id))
        writers[cell.channel_id] = _Rows(out, cell.key)
        having = [
            number
            for number, source in enumerate(task.files)
            if any(past.channel_id == cell.channel_id for past in source.channels)
        ]
        places.update(((number, cell.channel_id), place) for place, number in enumerate(having))
    for number, event in read_files(task.files):
        place = places.get((number, event.channel_id))
        if place is not None:  # else the file has grown since it was looked through
            rows = counters[event.channel_id].add(place, event.happening)
            if rows:
                writers[event.channel_id].add(rows)
    for channel_id, counter in counters.items():
        writers[channel_id].add(counter.end())
    return [writers[cell.channel_id].end(counters[cell.channel_id].notes) for cell in cells]


def _written(out: Path, key: str, counter: ChannelCounter, trials: Iterable[Trial]) -> Counted:
    rows = _Rows(out, key)
    for trial in trials:
        rows.add([trial])
    return rows.end(counter.notes)


class _Rows:
    """Writes the rows of one cell to a file, which gets its name when all of them are in it.

    Args:
        out: Folder of the analysis.
        key: Of the cell.
    """

    def __init__(self, out: Path, key: str) -> None:
        self._key = key
        self._folder = folder_of(out, key)
        self._path = self._folder / f"_part-{os.getpid()}.unfinished"
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[Trial] = []
        self._count = self._high = self._low = 0
        self._began = time.process_time()

    def add(self, rows: Iterable[Trial]) -> None:
        """Take rows."""
        self._waiting += rows
        if len(self._waiting) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._writer is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._path, FILE_SCHEMA)
        for row in self._waiting:
            self._high ^= row.digest_high
            self._low ^= row.digest_low
        self._count += len(self._waiting)
        batch = batch_of(self._waiting).select([item.name for item in FILE_SCHEMA])
        self._writer.write_batch(batch)
        self._waiting = []

    def end(self, notes: Mapping[str, int]) -> Counted:
        """Finish the file and return what came of the cell."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
            self._path.replace(self._folder / "part-00000.parquet")
        return Counted(
            key=self._key,
            rows=self._count,
            digest_high=self._high,
            digest_low=self._low,
            cpu_seconds=round(time.process_time() - self._began, 3),
            notes=dict(notes),
        )
