"""A run that is interrupted leaves nothing running, and goes on behind its last finished wave."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.laboratory import storage
from benchmarks.laboratory.manifest import read
from benchmarks.laboratory.plan import Wave
from benchmarks.laboratory.process_engine import ProcessEngine
from benchmarks.laboratory.progress import Silent
from benchmarks.laboratory.run import run
from tests.support.laboratory import (
    alive,
    descendants,
    options,
    running,
    tiny,
    wait_for,
    wait_until,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_report")]

LONG = 1_000
"""Channels of a run that lasts long enough to be interrupted."""


class Stopping(ProcessEngine):
    """Is interrupted in its second wave, with rows of it written."""

    waves: list[Wave]

    def play(self, wave: Wave, seed: int, out: Path, advance: Callable[[int], None]) -> None:
        self.waves = [*getattr(self, "waves", []), wave]
        super().play(wave, seed, out, advance)
        if len(self.waves) == 2:
            raise KeyboardInterrupt


class Counting(ProcessEngine):
    """Counts the channels that it plays."""

    channels = 0

    def play(self, wave: Wave, seed: int, out: Path, advance: Callable[[int], None]) -> None:
        self.channels += wave.channels
        super().play(wave, seed, out, advance)


def test_finished_cells_are_skipped_and_half_written_ones_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.laboratory.plan.WAVE_SECONDS", 0.0)  # a wave for each cell
    whole = run(options(tmp_path / "whole", workers=1), Silent())
    out = tmp_path / "out"
    engine: ProcessEngine = Stopping(1)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(options(out), Silent(), engine=engine)
    finally:
        engine.close()
    first, second, _ = tiny().cells
    assert list(read(out).finished) == [first.key]
    assert storage.folder_of(out, second.key).is_dir()
    assert read(out).digest == ""
    engine = Counting(1)
    try:
        assert run(options(out), Silent(), engine=engine).digest == whole.digest
    finally:
        engine.close()
    assert engine.channels == 12 + 5


def interrupt(out: Path, engine: str, number: signal.Signals) -> tuple[int, str, set[int]]:
    """Start a long run, send its whole group a signal while it plays, and say what is left of it."""
    with running(out, engine, 1, LONG, 40) as process:
        wait_for(process, "done" if engine == "process" else "begins")
        below = descendants(process.pid)
        assert below
        if number == signal.SIGKILL:
            process.kill()  # the others have to notice by themselves
        else:
            os.killpg(process.pid, number)
        _, errors = process.communicate(timeout=30)
        wait_until(lambda: not alive(below), 10)
        return process.returncode, errors, alive(below)


@pytest.mark.parametrize("engine", ["process", pytest.param("spark", marks=pytest.mark.real)])
def test_ctrl_c_ends_everything(
    tmp_path: Path, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "spark":
        request.getfixturevalue("needs_spark")
    assert interrupt(tmp_path, engine, signal.SIGINT) == (130, "", set())
    assert read(tmp_path).finished == {}


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path: Path) -> None:
    code, _, left = interrupt(tmp_path, "process", signal.SIGKILL)
    assert (code, left) == (-signal.SIGKILL, set())
    resumed = run(options(tmp_path, grid=tiny(1), channels=LONG, workers=2), Silent())
    again = run(
        options(tmp_path.with_name("again"), grid=tiny(1), channels=LONG, workers=2), Silent()
    )
    assert resumed.digest == again.digest
