"""The comparison counts what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import laboratory_speed
from benchmarks.laboratory.plan import Wave
from benchmarks.laboratory_speed import SMALL, cpu_by_process, opened, peak_of_parent, play, rate

pytestmark = pytest.mark.timeout(60)


def test_the_plain_trial_has_a_rate() -> None:
    assert rate(2) > 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc")
def test_a_wave_is_timed_with_all_processes(tmp_path: Path) -> None:
    with opened("process", 1, tmp_path) as engine:
        found = play(engine, Wave(cells=(SMALL,), counts=(20,), tasks=2), tmp_path)
        assert len(cpu_by_process()) > 1
    assert found.trials > 0
    assert found.cpu >= 0.5 * found.trials
    assert os.getpid() in cpu_by_process()


def test_the_parents_memory_is_that_of_its_own_process() -> None:
    assert peak_of_parent("process", 4, 1) > 10_000_000
    assert laboratory_speed.CHANNELS == 5_000
