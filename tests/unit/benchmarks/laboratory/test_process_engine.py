"""Rows come in batches, stretches cover everything, and a process that dies is said to have died."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.laboratory import process_engine
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.plan import Wave
from benchmarks.laboratory.process_engine import ProcessEngine, batches_of, deaf, stretches
from benchmarks.laboratory.results import Trial
from tests.support.laboratory import SEED, alive, tiny


@given(st.integers(0, 500), st.integers(1, 600))
def test_stretches_cover_everything_once(length: int, pieces: int) -> None:
    found = stretches(length, pieces)
    assert [n for start, stop in found for n in range(start, stop)] == list(range(length))
    assert len(found) == min(length, pieces)


def test_a_batch_is_full_by_rows_or_by_their_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_engine, "BATCH_ROWS", 3)
    monkeypatch.setattr(process_engine, "BATCH_VALUES", 10)
    lengths = [0, 0, 0, 10, 4, 6, 1]
    rows = [
        Trial(scenario="ab"[n % 2], channel=n, latency_ms=[0] * k) for n, k in enumerate(lengths)
    ]
    batches = list(batches_of(rows))
    assert [batch.num_rows for batch in batches] == [3, 1, 2, 1]
    assert batches[0].column("scenario").to_pylist() == ["a", "a", "b"]
    assert list(batches_of([])) == []


@pytest.fixture
def engine() -> Iterator[ProcessEngine]:
    made = ProcessEngine(1)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(60)
def test_a_process_that_dies_ends_the_run(engine: ProcessEngine, tmp_path: Path) -> None:
    wave = Wave(cells=tiny(1).cells, counts=(400,), tasks=4)

    def kill(done: int) -> None:
        for process in engine._workers.values():
            os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(
        LaboratoryError, match=r"ended \(exit code -9\), perhaps for want of memory"
    ):
        engine.play(wave, SEED, tmp_path, kill)


@pytest.mark.timeout(60)
def test_a_closed_engine_leaves_no_process(engine: ProcessEngine) -> None:
    pids = {process.pid for process in engine._workers.values()}
    assert len(pids) == 1
    engine.close()
    engine.close()
    assert alive(pids) == set()


def test_processes_ignore_ctrl_c_from_their_first_moment_on() -> None:
    """Python imports the main module in them before anything of ours can say so."""
    script = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    with deaf():
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
    assert done.stdout == "True\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
