"""Small grids, and runs of the loss laboratory in processes of their own, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.grids import Grid
from benchmarks.laboratory.progress import Silent
from benchmarks.laboratory.run import EngineName, RunOptions, run
from benchmarks.simulation.scenario import Scenario
from messaging_adapter.faults import LinkFaults

ROOT: Final = Path(__file__).parents[2]

END_SEC: Final = 60.0
"""A process that has not ended by then hangs."""

SCENARIO: Final = Scenario(
    participants=2, messages=3, interval_ms=200, faults=LinkFaults(loss=0.2), settle_ms=5_000
)

SEED: Final = 7


def grid_of(*cells: Cell) -> Grid:
    """Return a grid of cells made by hand."""
    return Grid(name="tiny", title="Tiny", cells=cells)


def tiny(cells: int = 3) -> Grid:
    """Return a grid of a few cells that take some milliseconds a channel; the third has a limit of 5 channels."""
    made = [
        Cell(
            name=f"loss {number}",
            labels=(("faults.loss", number / 10),),
            scenario=replace(SCENARIO, faults=LinkFaults(loss=number / 10)),
            max_channels=5 if number == 2 else None,
        )
        for number in range(cells)
    ]
    return grid_of(*made)


def options(out: Path, engine: EngineName = "process", **more: Any) -> RunOptions:
    """Return what a run of the tiny grid is asked for."""
    values: dict[str, Any] = {"grid": tiny(), "channels": 12, "seed": SEED, "out": out}
    return RunOptions(engine=engine, **{**values, **more})


def main(arguments: Sequence[str]) -> int:
    """Run the tiny grid as a command would: OUT, engine, cells, channels, pieces, master."""
    out, engine, cells, channels, pieces, *master = arguments
    asked = options(
        Path(out),
        engine,  # type: ignore[arg-type]
        grid=tiny(int(cells)),
        channels=int(channels),
        partitions=int(pieces) or None,
        workers=2,
        master=master[0] if master else None,
    )
    try:
        manifest = run(asked, Announcing())
    except LaboratoryError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(f"{manifest.digest}\n")
    return 0


class Announcing(Silent):
    """Writes a line when channels begin to be played, and when some are done."""

    def begin(self, engine: str, channels: int, waves: int) -> None:
        """Write it."""
        sys.stdout.write("begins\n")
        sys.stdout.flush()

    def advance(self, done: int) -> None:
        """Write it."""
        if done:
            sys.stdout.write(f"done {done}\n")
            sys.stdout.flush()


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run the tiny grid in a process of its own, with a group of its own, and end it if the test has not."""
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.support.laboratory", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(process: subprocess.Popen[str], line: str) -> None:
    """Read what a process writes up to a line that begins so."""
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith(line):
            return
    assert process.stderr is not None
    raise AssertionError(process.stderr.read())


def descendants(pid: int) -> set[int]:
    """Return the processes below a process, as Linux tells."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
    found: set[int] = set()
    waiting = {pid}
    while waiting:
        waiting = {child for child, parent in parents.items() if parent in waiting} - found
        found |= waiting
    return found


def alive(pids: set[int]) -> set[int]:
    """Return which of these processes have not ended; what only waits to be reaped has."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            found.add(pid)
    return found


def wait_until(holds: Callable[[], bool], seconds: float = END_SEC) -> bool:
    """Wait until something holds that other processes bring about, and say whether it does."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@contextmanager
def spark_service(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of Spark's services from the installed package, in no folder of ours, and end it whatever happens."""
    import pyspark

    home = Path(pyspark.__file__).parent
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    program, *arguments = command
    with (
        log.open("wb") as file,
        subprocess.Popen(
            [str(home / "bin" / program), *arguments],
            cwd=log.parent,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            below = descendants(process.pid)
            for pid in (process.pid, *below):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def wait_for_text(log: Path, text: str) -> None:
    """Wait until a service has logged something."""
    assert wait_until(lambda: text in log.read_text()), log.read_text()[-1_000:]


def why_no_spark() -> str:
    """Return what Spark lacks here; empty where it can be run."""
    from benchmarks.laboratory.java import find_java

    try:
        import pyspark  # noqa: F401
    except ImportError:
        return "pyspark is not installed: pip install 'reliable-channel[spark]'"
    try:
        find_java()
    except LaboratoryError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
