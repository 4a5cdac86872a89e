"""The folder of results: ``results/scenario=<key>/part-*.parquet``, one folder for each cell.

A cell's folder is there as a whole or not at all, and is replaced, never added to. The key is a text: folders such as
``scenario=12345678`` and ``scenario=1e5`` must never be read as numbers. It must not keep all rows of a cell.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.results import SCHEMA

FOLDER: Final = "results"

PARTITION: Final = "scenario"

UNFINISHED: Final = "_unfinished"
"""Folder for files that are being written; Spark and Arrow pass over names that begin so."""

FILE_SCHEMA: Final = pa.schema([item for item in SCHEMA if item.name != PARTITION])
"""Columns of the files: all but the key, which the folder's name has."""

PARTITIONING: Final = ds.partitioning(pa.schema([(PARTITION, pa.string())]), flavor="hive")
"""How Arrow has to read the folders' names."""

ROWS_IN_GROUP: Final = 512
"""Rows that are collected for a cell before they are written."""

ROWS_IN_MEMORY: Final = 8_192
"""Rows that are collected for all cells together."""

BYTES_IN_MEMORY: Final = 32 << 20
"""Bytes of these at most: rows of large groups are long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What the written rows of a cell come to."""

    rows: int
    distinct: int
    """Different channels among them."""
    problems: int
    digest_high: int
    digest_low: int
    cpu_us: int


def folder_of(out: Path, key: str) -> Path:
    """Return the folder of a cell's results."""
    return out / FOLDER / f"{PARTITION}={key}"


def literal(path: Path) -> str:
    """Return a path as Spark takes it where it is not to be a pattern, on the machines' own file system."""
    text = "".join(f"\\{sign}" if sign in "\\{}[]*?" else sign for sign in str(path))
    return f"file://{text}"


def clear(out: Path, keep: Iterable[str]) -> None:
    """Remove all results but those of the cells with these keys, and whatever an interrupted run left behind."""
    results = out / FOLDER
    kept = {folder_of(out, key).name for key in keep}
    results.mkdir(parents=True, exist_ok=True)
    for entry in results.iterdir():
        if entry.name in kept:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def dataset(out: Path, keys: Iterable[str]) -> Any:
    """Return the rows of cells as Arrow's dataset, with all columns of `SCHEMA`."""
    files = [str(path) for key in keys for path in sorted(folder_of(out, key).glob("*.parquet"))]
    # Spark writes columns that may be null; Arrow casts when it is asked for columns that may not.
    schema = pa.schema([item.with_nullable(True) for item in SCHEMA])
    return ds.dataset(
        files,
        format="parquet",
        schema=schema,
        partitioning=PARTITIONING,
        partition_base_dir=str(out / FOLDER),
    )


def sums_of(out: Path, key: str) -> Sums:
    """Read a cell's rows back and sum them up, batch by batch.

    Raises:
        LaboratoryError: There are no rows, or they cannot be read.
    """
    columns = ["channel", "problem", "digest_high", "digest_low", "cpu_us"]
    rows = problems = cpu = high = low = 0
    seen = np.zeros(0, dtype=np.bool_)  # by number of the channel
    try:
        for batch in dataset(out, [key]).to_batches(columns=columns):
            rows += batch.num_rows
            numbers = batch.column("channel").to_numpy()
            missing = int(numbers.max(initial=-1)) + 1 - len(seen)
            seen = np.pad(seen, (0, max(missing, 0)))
            seen[numbers] = True
            problems += sum(text != "" for text in batch.column("problem").to_pylist())
            cpu += int(np.sum(batch.column("cpu_us").to_numpy()))
            high ^= _xor(batch.column("digest_high"))
            low ^= _xor(batch.column("digest_low"))
    except (OSError, pa.ArrowException) as error:
        text = f"results in {folder_of(out, key)} cannot be read; remove that folder, run again"
        raise LaboratoryError(text) from error
    return Sums(
        rows=rows,
        distinct=int(seen.sum()),
        problems=problems,
        digest_high=high,
        digest_low=low,
        cpu_us=cpu,
    )


def _xor(column: Any) -> int:
    return int(np.bitwise_xor.reduce(column.to_numpy(), initial=0))


def first_problem(out: Path, key: str) -> tuple[int, str] | None:
    """Return the first channel of a cell that could not be played, and why; None where all could."""
    found = dataset(out, [key]).to_table(
        columns=["channel", "problem"], filter=ds.field("problem") != ""
    )
    rows = zip(
        found.column("channel").to_pylist(), found.column("problem").to_pylist(), strict=True
    )
    return min(rows, default=None)


class Writer:
    """Writes the rows of several cells into a file each, as they come.

    Args:
        folder: Where, while they are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, pq.ParquetWriter] = {}
        self._waiting: dict[str, list[Any]] = {}
        self._rows: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._stack = ExitStack()

    def add(self, batch: Any) -> None:
        """Take a batch of rows of `SCHEMA`, in which those of a cell stand together."""
        keys = batch.column(PARTITION).to_pylist()
        rest = batch.select([item.name for item in FILE_SCHEMA])
        start = 0
        for stop in range(1, len(keys) + 1):
            if stop == len(keys) or keys[stop] != keys[start]:
                self._take(keys[start], rest.slice(start, stop - start))
                start = stop
        while self._bytes and (
            sum(self._rows.values()) > ROWS_IN_MEMORY or sum(self._bytes.values()) > BYTES_IN_MEMORY
        ):
            self._flush(max(self._bytes, key=self._bytes.__getitem__))

    def _take(self, key: str, rows: Any) -> None:
        self._waiting.setdefault(key, []).append(rows)
        self._rows[key] = self._rows.get(key, 0) + rows.num_rows
        self._bytes[key] = self._bytes.get(key, 0) + rows.nbytes
        if self._rows[key] >= ROWS_IN_GROUP:
            self._flush(key)

    def _flush(self, key: str) -> None:
        if key not in self._files:
            writer = pq.ParquetWriter(self._folder / f"{key}.parquet", FILE_SCHEMA)
            self._files[key] = self._stack.enter_context(writer)
        table = pa.Table.from_batches(self._waiting.pop(key), FILE_SCHEMA)
        self._rows.pop(key)
        self._bytes.pop(key)
        self._files[key].write_table(table)

    def close(self) -> None:
        """Write what is left, and end the files."""
        with self._stack:
            for key in list(self._waiting):
                self._flush(key)


@contextmanager
def writing(out: Path) -> Iterator[Writer]:
    """Give a writer; its files are moved to their cells' folders when the block ends well, and removed otherwise."""
    folder = out / FOLDER / UNFINISHED
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        writer = Writer(folder)
        try:
            yield writer
        finally:
            writer.close()
        for file in sorted(folder.iterdir()):
            target = folder_of(out, file.stem)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            file.replace(target / "part-00000.parquet")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
