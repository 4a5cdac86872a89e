"""Does jobs of an analysis on Spark: each item by its number, through ``mapInArrow``.

What a job reads is named in the job itself and never in a row, so that no password is in a plan or a log. It must not
know what a job does.

Spec: none of its own; Spark 4.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import pyarrow as pa

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.measures import Measured, Measures
from benchmarks.laboratory.spark_engine import SparkEngine
from benchmarks.laboratory.spark_session import choose_master
from reliable_channel.errors import ConfigurationError, ReliableChannelError

TASKS_A_CORE: Final = 4

SCHEMA: Final = pa.schema([("place", pa.int64()), ("result", pa.binary())])
SQL_SCHEMA: Final = "place bigint, result binary"
"""Of what a job gives: its item's number, and what came of it, pickled."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class SparkMapping:
    """A Spark session that does jobs; a context manager.

    Args:
        master: As the flag says.
        out: Folder for the log.
    """

    def __init__(self, master: str | None, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self._engine = SparkEngine(choose_master(master, None), out.absolute())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.close()

    @property
    def master(self) -> str:
        """Where it runs."""
        return self._engine.master

    @property
    def java(self) -> str:
        """Version of the driver's Java."""
        return self._engine.java

    def measures(self, out: Path, cells: Sequence[Measured]) -> dict[str, Measures]:
        """Measure the rows of cells, by key.

        Raises:
            LaboratoryError: Spark failed.
        """
        return self._engine.measures(out, cells)

    def __call__(
        self, job: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> Iterable[_Result]:
        """Do a job with each item, and return the results in the items' order.

        Args:
            job: Can be pickled.
            items: The heaviest first.

        Raises:
            ConfigurationError: A job raised it.
            LaboratoryError: A job raised another error that is told in one line, or Spark failed.
        """
        count = len(items)
        if not count:
            return []
        tasks = min(count, TASKS_A_CORE * self._engine.cores)
        dealt = [place for first in range(tasks) for place in range(first, count, tasks)]
        frame = self._engine.session.range(0, count, 1, tasks).mapInArrow(
            worker(job, [(place, items[place]) for place in dealt]), SQL_SCHEMA
        )
        found: dict[int, Any] = {}
        for row in self._engine._checked(frame.collect):
            result = pickle.loads(bytes(row["result"]))
            if isinstance(result, Refusal):
                raise result.error
            found[row["place"]] = result
        return [found[place] for place in range(count)]


class Refusal:
    """What a job raised and people are told.

    Args:
        error: Which error.
    """

    def __init__(self, error: Exception) -> None:
        self._is_configuration = isinstance(error, ConfigurationError)
        self._text = str(error)

    @property
    def error(self) -> Exception:
        """The error to raise where people are told."""
        return (ConfigurationError if self._is_configuration else LaboratoryError)(self._text)


def worker(
    job: Callable[[Any], Any], items: Sequence[tuple[int, Any]]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what does a job with the items whose numbers come in, in a worker of Spark."""

    def work(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                place, item = items[number]
                try:
                    result = job(item)
                except (ReliableChannelError, OSError) as error:
                    result = Refusal(error)
                yield pa.RecordBatch.from_pydict(
                    {"place": [place], "result": [pickle.dumps(result)]}, schema=SCHEMA
                )

    return work
