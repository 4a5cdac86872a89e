"""Plays waves on Spark, by its DataFrame interface alone, so that it works on Spark Connect, too.

::

    range of numbers ─► mapInArrow: the trials ─► Parquet, a folder a cell ─► sums by SQL

It must not collect anything but a row a cell, nor know what rows mean.

Spec: none of its own; Spark 4.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pyarrow as pa

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.measures import Measured, Measures, measures_by_spark
from benchmarks.laboratory.plan import Mix, Wave
from benchmarks.laboratory.process_engine import batches_of
from benchmarks.laboratory.results import SCHEMA
from benchmarks.laboratory.shipping import pack
from benchmarks.laboratory.spark_session import (
    LOG_FILE,
    Master,
    Watched,
    explain,
    idle,
    open_session,
)
from benchmarks.laboratory.storage import FOLDER, PARTITION, Sums, folder_of, literal
from benchmarks.laboratory.trial import run_trials

TYPES: Final = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.list_(pa.int32()): "array<int>",
    pa.list_(pa.int16()): "array<smallint>",
}
"""Arrow's types in SQL."""

SQL_SCHEMA: Final = ", ".join(f"{item.name} {TYPES[item.type]}" for item in SCHEMA)
"""`SCHEMA` as Spark takes it."""


def player(
    cells: Sequence[Cell], counts: Sequence[int], seed: int
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return what plays the items whose numbers come in, in a worker of Spark.

    Args:
        cells: Of a wave.
        counts: Channels of each.
        seed: The run's.
    """
    known = list(cells)

    def play(batches: Iterable[Any]) -> Iterator[Any]:
        mix = Mix(counts)
        numbers = (number for batch in batches for number in batch.column(0).to_pylist())
        yield from batches_of(run_trials(known, seed, (mix[number] for number in numbers)))

    return play


class SparkEngine:
    """A Spark session that plays.

    Args:
        master: Where Spark runs.
        out: The run's folder, for the log.
    """

    name: Final = "spark"

    def __init__(self, master: Master, out: Path) -> None:
        self._master = master
        self._log = out / LOG_FILE
        self._connect = master.is_connect
        self.master = master.shown
        with ExitStack() as stack:
            self.session, self.java = stack.enter_context(open_session(master, out))
            if not master.is_local:
                self._ship(stack)
            self.cores = self._count_cores()
            self._stack = stack.pop_all()

    @property
    def title(self) -> str:
        """For people."""
        return f"Spark {self.master}"

    def _ship(self, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="laboratory-")))
        archive = str(pack(folder))
        if self._connect:
            self.session.addArtifacts(archive, pyfile=True)
        else:
            self.session.sparkContext.addPyFile(archive)

    def _count_cores(self) -> int:
        if not self._connect:
            return int(self.session.sparkContext.defaultParallelism)
        from pyspark.sql import functions as sql

        # A range is cut into as many pieces as there are cores, unless somebody says how many.
        pieces = self.session.range(1 << 16).select(sql.spark_partition_id().alias("piece"))
        return int(self._checked(lambda: pieces.agg(sql.max("piece")).first()[0])) + 1

    def play(self, wave: Wave, seed: int, out: Path, advance: Callable[[int], None]) -> None:
        """Play a wave and write its rows.

        Args:
            wave: What to play.
            seed: The run's.
            out: The run's folder.
            advance: Is told how many channels of the wave are done, as far as Spark says.

        Raises:
            LaboratoryError: The job failed, or the rows are not where this process finds them.
        """
        rows = self.session.range(0, wave.channels, 1, wave.tasks).mapInArrow(
            player(wave.cells, wave.counts, seed), SQL_SCHEMA
        )
        writer = (
            rows.write.mode("overwrite")
            .option("partitionOverwriteMode", "dynamic")
            .partitionBy(PARTITION)
        )
        target = f"file://{out / FOLDER}"
        self._run(lambda: writer.parquet(target), wave, advance)
        missing = [key for key in wave.keys if not folder_of(out, key).is_dir()]
        if missing:
            text = (
                f"Spark's workers wrote results that are not in {out}: "
                "--out has to be a folder that this machine and all workers share"
            )
            raise LaboratoryError(text)

    def _run(
        self, action: Callable[[], object], wave: Wave, advance: Callable[[int], None]
    ) -> None:
        name = f"wave-{uuid.uuid4()}"
        watch = _ConnectJob if self._connect else _OwnJob
        job = watch(self.session, name, wave.tasks)

        def look() -> None:
            advance(wave.channels * job.tasks_done() // wave.tasks)

        def work() -> None:
            job.begin()
            action()

        try:
            self._checked(lambda: Watched(work).wait(look, job.cancel))
        finally:
            job.end()

    def sums(self, wave: Wave, out: Path) -> dict[str, Sums]:
        """Read a wave's rows back and sum them up, by key."""
        taken: list[Any] = []
        work = Watched(lambda: taken.extend(self._sums(wave, out).collect()))
        self._checked(lambda: work.wait(idle, idle))
        return {row[PARTITION]: Sums(**{n: row[n] for n in Sums.__slots__}) for row in taken}

    def _sums(self, wave: Wave, out: Path) -> Any:
        from pyspark.sql import functions as sql

        paths = [literal(folder_of(out, key)) for key in wave.keys]
        reader = self.session.read.schema(SQL_SCHEMA).option("basePath", f"file://{out / FOLDER}")
        return (
            reader.parquet(*paths)
            .groupBy(PARTITION)
            .agg(
                sql.count("channel").alias("rows"),
                sql.countDistinct("channel").alias("distinct"),
                sql.sum((sql.col("problem") != "").cast("bigint")).alias("problems"),
                sql.bit_xor("digest_high").alias("digest_high"),
                sql.bit_xor("digest_low").alias("digest_low"),
                sql.sum("cpu_us").alias("cpu_us"),
            )
        )

    def measures(self, out: Path, cells: Sequence[Measured]) -> dict[str, Measures]:
        """Measure the rows of cells, by key.

        Raises:
            LaboratoryError: A job failed.
        """
        taken: dict[str, Measures] = {}
        work = Watched(lambda: taken.update(measures_by_spark(self.session, out / FOLDER, cells)))
        self._checked(lambda: work.wait(idle, idle))
        return taken

    def close(self) -> None:
        """End the session, with its Java process where it is ours."""
        self._stack.close()

    def _checked(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except LaboratoryError:
            raise
        except Exception as error:
            with suppress(OSError), self._log.open("a", encoding="utf-8") as log:
                log.write(f"{self._master.hide(str(error))}\n")
            text = f"Spark's job failed: {explain(error, self._master.hide)}; see {self._log}"
            raise LaboratoryError(text) from error


class _OwnJob:
    """How far a job of a driver of ours is."""

    def __init__(self, session: Any, name: str, tasks: int) -> None:
        self._context = session.sparkContext
        self._name = name
        self._tasks = tasks
        self._done = 0

    def begin(self) -> None:
        self._context.setJobGroup(self._name, "play channels", interruptOnCancel=True)

    def tasks_done(self) -> int:
        tracker = self._context.statusTracker()
        for job in tracker.getJobIdsForGroup(self._name):
            info = tracker.getJobInfo(job)
            for stage_id in info.stageIds if info else ():
                stage = tracker.getStageInfo(stage_id)
                if stage and stage.numTasks == self._tasks:
                    self._done = max(self._done, stage.numCompletedTasks)
        return self._done

    def cancel(self) -> None:
        with suppress(Exception):
            self._context.cancelJobGroup(self._name)

    def end(self) -> None:
        """Do nothing: a group ends by itself."""


class _ConnectJob:
    """How far a job of a Spark Connect server is."""

    def __init__(self, session: Any, name: str, tasks: int) -> None:
        self._session = session
        self._name = name
        self._tasks = tasks
        self._done = 0
        session.registerProgressHandler(self._take)

    def _take(self, stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        for stage in stages or ():
            if stage.num_tasks == self._tasks:
                self._done = max(self._done, stage.num_completed_tasks)

    def begin(self) -> None:
        self._session.addTag(self._name)

    def tasks_done(self) -> int:
        return self._done

    def cancel(self) -> None:
        with suppress(Exception):
            self._session.interruptTag(self._name)

    def end(self) -> None:
        with suppress(Exception):
            self._session.removeProgressHandler(self._take)
