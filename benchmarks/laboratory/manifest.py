"""``manifest.json``: what a run is, which of its cells are finished, and the digest of all results.

It is replaced as a whole, never written into, so that whoever reads it finds one state or the next. It must not look
at results.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.results import digest_of
from reliable_channel import __version__

FILE: Final = "manifest.json"

FORMAT: Final = 1
"""Of the file; another number is another format."""


@dataclass(slots=True, kw_only=True)
class Finished:
    """What a finished cell's rows come to."""

    channels: int
    problems: int
    """Channels that could not be played."""
    digest_high: int
    digest_low: int
    """Exclusive or of the rows' digests."""
    cpu_seconds: float
    """Of all trials together."""


@dataclass(slots=True, kw_only=True)
class Manifest:
    """A run."""

    format: int = FORMAT
    versions: dict[str, str] = field(default_factory=dict)
    """Of what results or their files may depend on; empty texts where a thing is not there."""
    grid: dict[str, Any] = field(default_factory=dict)
    """Its ``name``, and ``cells``: ``name``, ``key``, ``labels``, ``parameters`` and ``max_channels`` of each."""
    seed: int = 0
    channels: int = 0
    """Of each cell, unless its own limit is smaller."""
    engine: str = ""
    master: str = ""
    finished: dict[str, Finished] = field(default_factory=dict)
    """By key."""
    digest: str = ""
    """Of all results, the same for any engine; empty until all cells are finished."""
    started: str = ""
    """ISO 8601, UTC."""
    seconds: float = 0.0
    """That the run has taken, over all of its starts."""

    @property
    def keys(self) -> list[str]:
        """Of all cells, each once, in the grid's order."""
        return list(dict.fromkeys(cell["key"] for cell in self.grid["cells"]))

    @property
    def problems(self) -> int:
        """Channels that could not be played, of all finished cells."""
        return sum(cell.problems for cell in self.finished.values())

    @property
    def complete(self) -> bool:
        """Whether all cells are finished."""
        return all(key in self.finished for key in self.keys)

    def conclude(self) -> None:
        """Fill in the digest when all cells are finished."""
        if self.complete:
            self.digest = digest_of(
                (key, cell.channels, cell.digest_high, cell.digest_low)
                for key, cell in self.finished.items()
            )

    def write(self, out: Path) -> None:
        """Replace the file in a folder."""
        target = out / FILE
        new = target.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(asdict(self), file, indent=1, ensure_ascii=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(target)


def write(out: Path, manifest: Manifest) -> None:
    """Replace the file in a folder."""
    manifest.write(out)


def read(out: Path) -> Manifest:
    """Read the file in a folder.

    Raises:
        LaboratoryError: There is none, or not of this format.
    """
    path = out / FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = Manifest(**values)
        found.finished = {key: Finished(**cell) for key, cell in values["finished"].items()}
        known = found.format == FORMAT and isinstance(found.grid["cells"], list)
    except FileNotFoundError as error:
        text = f"{out} holds no results: there is no {FILE} in it"
        raise LaboratoryError(text) from error
    except (KeyError, TypeError, ValueError, AttributeError):
        found, known = Manifest(), False
    if not known:
        text = f"{path} is not of this version's format; name another folder with --out"
        raise LaboratoryError(text)
    return found


def described(name: str, cells: Iterable[Cell]) -> dict[str, Any]:
    """Return what a manifest says of a grid."""
    return {
        "name": name,
        "cells": [
            {
                "name": cell.name,
                "key": cell.key,
                "labels": dict(cell.labels),
                "parameters": cell.parameters,
                "max_channels": cell.max_channels,
            }
            for cell in cells
        ],
    }


def versions(java: str = "") -> dict[str, str]:
    """Return the versions of what takes part.

    Args:
        java: Where Java takes part, its version.
    """
    found = {
        "reliable_channel": __version__,
        "python": ".".join(str(part) for part in sys.version_info[:3]),
    }
    for name in ("numpy", "pyarrow", "pyspark"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return {**found, "java": java}
