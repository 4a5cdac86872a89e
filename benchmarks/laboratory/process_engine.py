"""Plays waves in processes of this machine, without Spark.

Each process is given a stretch of a wave's order and sends rows back as they come; the parent writes them and keeps
nothing else. It must not know what rows mean.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Final

import pyarrow as pa

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.measures import Measured, Measures, measures_by_arrow
from benchmarks.laboratory.plan import Mix, Wave
from benchmarks.laboratory.results import SCHEMA, Trial, batch_of
from benchmarks.laboratory.storage import FOLDER, Sums, sums_of, writing
from benchmarks.laboratory.trial import run_trials

BATCH_ROWS: Final = 64
"""Rows of a batch: enough that a batch's own cost does not count, few enough that progress is seen."""

BATCH_VALUES: Final = 100_000
"""Latencies of a batch at which it is full, too: rows of large groups are long."""

END_SECONDS: Final = 1.0
"""That a process has to end in, before it is killed."""


def batches_of(trials: Iterable[Trial]) -> Iterator[Any]:
    """Give rows as Arrow's batches, in which the rows of a cell stand together."""
    rows: list[Trial] = []
    values = 0
    for trial in trials:
        rows.append(trial)
        values += len(trial.latency_ms)
        if len(rows) >= BATCH_ROWS or values >= BATCH_VALUES:
            yield _batch(rows)
            rows, values = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[Trial]) -> Any:
    return batch_of(sorted(rows, key=lambda row: row.scenario))


def stretches(length: int, pieces: int) -> list[tuple[int, int]]:
    """Cut the numbers from 0 into pieces of nearly equal length, none of them empty."""
    cuts = [length * piece // pieces for piece in range(pieces + 1)]
    return [(start, stop) for start, stop in pairwise(cuts) if stop > start]


@contextmanager
def deaf() -> Iterator[None]:
    """Let processes that are started meanwhile ignore Ctrl-C from their first moment on: it is for their parent.

    Outside the main thread, where handlers cannot be set, nothing changes.
    """
    if current_thread() is not main_thread():
        yield
        return
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def serve(connection: Connection) -> None:
    """Play what comes through a connection until its other end is closed.

    A tuple of cells, counts and seed is the wave; a pair of numbers is a stretch of it, which is answered by batches
    and then None.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    cells: list[Cell] = []
    mix = Mix(())
    seed = 0
    with suppress(EOFError, BrokenPipeError, ConnectionResetError), connection:
        while True:
            match connection.recv():
                case (wave_cells, counts, wave_seed):
                    cells, mix, seed = list(wave_cells), Mix(counts), wave_seed
                case (start, stop):
                    for batch in batches_of(run_trials(cells, seed, mix.items(start, stop))):
                        connection.send_bytes(batch.serialize())
                    connection.send_bytes(b"")


class ProcessEngine:
    """Processes that play.

    Args:
        workers: How many; None is one for each core that this process may use.
    """

    name: Final = "process"
    master: Final = ""
    java: Final = ""

    def __init__(self, workers: int | None = None) -> None:
        self.cores = workers or cores_here()
        context = get_context(
            "spawn"
        )  # not forked: nothing of the parent may have a part in results
        self._workers: dict[Connection, Any] = {}
        with deaf():
            for _ in range(self.cores):
                ours, theirs = context.Pipe()
                process = context.Process(target=serve, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self._workers[ours] = process

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.cores} processes" if self.cores > 1 else "1 process"

    def play(self, wave: Wave, seed: int, out: Path, advance: Callable[[int], None]) -> None:
        """Play a wave and write its rows.

        Args:
            wave: What to play.
            seed: The run's.
            out: The run's folder.
            advance: Is told how many channels of the wave are done.

        Raises:
            LaboratoryError: A process ended.
        """
        work = stretches(wave.channels, wave.tasks)[::-1]
        done = 0
        with writing(out) as writer:
            busy: set[Connection] = set()
            for connection in self._workers:
                if work:
                    self._send(connection, (wave.cells, wave.counts, seed))
                    self._send(connection, work.pop())
                    busy.add(connection)
            while busy:
                ready = set(wait(busy))
                for connection in [item for item in busy if item in ready]:
                    data = self._receive(connection)
                    if data:
                        batch = pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)
                        writer.add(batch)
                        done += batch.num_rows
                    elif work:
                        self._send(connection, work.pop())
                    else:
                        busy.remove(connection)
                advance(done)

    def sums(self, wave: Wave, out: Path) -> dict[str, Sums]:
        """Read a wave's rows back and sum them up, by key."""
        return {key: sums_of(out, key) for key in wave.keys}

    def measures(self, out: Path, cells: Sequence[Measured]) -> dict[str, Measures]:
        """Measure the rows of cells, by key."""
        return measures_by_arrow(out / FOLDER, cells)

    def close(self) -> None:
        """End the processes, whatever they do."""
        workers, self._workers = self._workers, {}
        for connection, process in workers.items():
            connection.close()
            process.terminate()
        for process in workers.values():
            process.join(END_SECONDS)
            if process.is_alive():
                process.kill()
                process.join()

    def _send(self, connection: Connection, message: object) -> None:
        try:
            connection.send(message)
        except OSError as error:
            raise self._death(connection) from error

    def _receive(self, connection: Connection) -> bytes:
        try:
            return connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise self._death(connection) from error

    def _death(self, connection: Connection) -> LaboratoryError:
        process = self._workers[connection]
        process.join(END_SECONDS)
        why = ", perhaps for want of memory" if process.exitcode == -signal.SIGKILL else ""
        text = (
            f"a process that played channels ended (exit code {process.exitcode}){why}; the same command goes on "
            "from the last finished wave, --workers 1 takes least memory"
        )
        return LaboratoryError(text)


def cores_here() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
