"""Plays one channel of a run again, from its manifest, without Spark, and says whether the same came of it.

It must not change anything in the folder of results.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from benchmarks.laboratory import manifest as manifests
from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.grids import Grid
from benchmarks.laboratory.parameters import scenario_of
from benchmarks.laboratory.results import LISTS, Trial
from benchmarks.laboratory.storage import dataset, folder_of
from benchmarks.laboratory.tracing import record
from benchmarks.laboratory.trial import run_trial
from reliable_channel.errors import ConfigurationError


@dataclass(slots=True)
class Replayed:
    """What a channel played again came to."""

    cell: Cell
    trial: Trial
    trace: list[str]
    """What happened, a line for each event of it."""
    stored: tuple[int, int] | None
    """Digest of the stored row, high and low; None where there is none."""

    missing: bool = False
    """Whether its cell is finished, so that there should be one."""

    @property
    def differs(self) -> bool:
        """Whether there is a stored row of another digest."""
        return self.stored not in (None, (self.trial.digest_high, self.trial.digest_low))

    @property
    def verdict(self) -> str:
        """A line that says whether both are equal."""
        if self.stored is None and self.missing:
            return "not compared: the row is not there any more; run again to have it made again"
        if self.stored is None:
            return "not compared: this run has no row of it yet"
        if self.differs:
            return "not equal: the stored row has another digest"
        return "equal: the stored row has the same digest"

    def summary(self) -> Iterator[str]:
        """Give the counts of the trial, and its problem where it has one."""
        yield f"{self.cell.name} ({self.cell.key}), channel {self.trial.channel}"
        counts = [
            f"{item.name}={value}"
            for item in fields(Trial)
            if item.name not in ("scenario", "channel", "cpu_us", "problem", *LISTS)
            and not item.name.startswith("digest")
            and (value := getattr(self.trial, item.name))
        ]
        yield " ".join(counts)
        if self.trial.problem:
            yield f"problem: {self.trial.problem}"


def cells_of(grid: dict[str, Any]) -> Grid:
    """Return the grid of a manifest.

    Raises:
        LaboratoryError: Its scenarios are not of this version, or something of them is missing.
    """
    try:
        cells = tuple(_cell_of(entry) for entry in grid["cells"])
        return Grid(name=grid["name"], title=grid["name"], cells=cells)
    except (KeyError, TypeError, AttributeError) as error:
        text = f"manifest.json is damaged: a grid or cell in it lacks something ({error})"
        raise LaboratoryError(text) from error


def _cell_of(entry: dict[str, Any]) -> Cell:
    other = (
        f"cell {entry['name']!r} is of another version of this program, whose scenarios have "
        "other parameters: replay it with the version that manifest.json names"
    )
    try:
        cell = Cell(
            name=entry["name"],
            labels=tuple(entry["labels"].items()),
            scenario=scenario_of(entry["parameters"]),
            max_channels=entry["max_channels"],
        )
    except ConfigurationError as error:
        raise LaboratoryError(other) from error
    if cell.key != entry["key"]:
        raise LaboratoryError(other)
    return cell


def replay(out: Path, scenario: str, channel: int) -> Replayed:
    """Play a channel of a run again.

    Args:
        out: Folder of the run.
        scenario: Key, name, or number of the cell in its grid.
        channel: Number of the channel.

    Raises:
        LaboratoryError: No such run, or of another version, or its results cannot be read.
        ConfigurationError: No such scenario or channel.
    """
    manifest = manifests.read(out)
    cell = cells_of(manifest.grid).cell(scenario)
    count = cell.channels(manifest.channels)
    if not 0 <= channel < count:
        text = f"--channel must be from 0 to {count - 1}: {cell.name!r} has {count} channels"
        raise ConfigurationError(text)
    return Replayed(
        cell=cell,
        trial=run_trial(cell, manifest.seed, channel),
        trace=record(cell, manifest.seed, channel),
        stored=stored_digest(out, cell, channel),
        missing=cell.key in manifest.finished,
    )


def stored_digest(out: Path, cell: Cell, channel: int) -> tuple[int, int] | None:
    """Return the digest of a stored row, high and low; None where there is none."""
    if not folder_of(out, cell.key).is_dir():
        return None
    try:
        table = dataset(out, [cell.key]).to_table(
            columns=["digest_high", "digest_low"], filter=ds.field("channel") == channel
        )
    except (OSError, pa.ArrowException) as error:
        text = (
            f"results in {folder_of(out, cell.key)} cannot be read; remove that folder, run again"
        )
        raise LaboratoryError(text) from error
    rows = table.to_pylist()
    return (rows[0]["digest_high"], rows[0]["digest_low"]) if rows else None
