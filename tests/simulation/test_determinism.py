"""The same seed gives the same trace, byte for byte, whatever the process and its hash randomisation."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.simulation import (
    Join,
    NodeFaults,
    Partition,
    Restart,
    Scenario,
    StoreFaults,
    play,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SegmentationConfig

ROOT = Path(__file__).parents[2]

SCENARIO = Scenario(
    seed=5,
    participants=4,
    messages=60,
    interval_ms=150,
    payload_bytes=(20, 400),
    ephemeral=0.1,
    clock_skew_ms=20,
    settle_ms=20_000,
    faults=LinkFaults(loss=0.3, duplicate=0.05, reorder=0.05, delay_ms=50, jitter_ms=100),
    node=NodeFaults(transmit_ms=1, report_jitter_ms=50, failure=0.05, false_failure=0.02, echo=0.5),
    store=StoreFaults(loss=0.02, lag_ms=500, failure=0.1, catch_up=False),
    partitions=(Partition(from_ms=2_000, until_ms=3_000, side=(0, 1)),),
    joins=(Join(participant=3, at_ms=1_500),),
    restarts=(Restart(participant=0, at_ms=4_000), Restart(participant=1, at_ms=5_000, torn=True)),
    segmentation=SegmentationConfig(segment_size_bytes=128, enable_reed_solomon=True),
)
"""Everything that can happen, happens here."""

LIMITED = replace(
    SCENARIO,
    participants=3,
    joins=(),
    rate_limit=RateLimitConfig(enabled=True, epoch_period_sec=5, messages_per_epoch=30),
)


def trace_of(scenario: Scenario) -> bytes:
    lines: list[bytes] = []
    play(scenario, trace=lines)
    return b"\n".join(lines)


def trace_in_another_process(scenario: Scenario, hash_seed: int, path: Path) -> bytes:
    """Play a scenario by the command that a failed check prints, in a process with its own hash seed."""
    command = [sys.executable, "-m", "benchmarks.simulation", "--seed", str(scenario.seed)]
    command += ["--scenario", scenario.to_json(), "--trace", str(path)]
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(ROOT)}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode in (0, 1), result.stderr
    assert result.stderr == ""
    return path.read_bytes()


@pytest.mark.parametrize("scenario", [SCENARIO, LIMITED], ids=["unlimited", "rate limited"])
def test_same_seed_gives_the_same_trace_twice(scenario: Scenario) -> None:
    first, second = trace_of(scenario), trace_of(scenario)
    assert first.count(b"\n") > 1_000
    assert first == second


@pytest.mark.parametrize("scenario", [SCENARIO, LIMITED], ids=["unlimited", "rate limited"])
def test_same_seed_gives_the_same_trace_in_two_processes_with_other_hash_seeds(
    scenario: Scenario, tmp_path: Path
) -> None:
    first = trace_in_another_process(scenario, 1, tmp_path / "first")
    second = trace_in_another_process(scenario, 2, tmp_path / "second")
    assert first.count(b"\n") > 1_000
    assert first == second
    assert first.removesuffix(b"\n") == trace_of(scenario)


def test_other_seed_gives_another_trace() -> None:
    assert trace_of(SCENARIO) != trace_of(replace(SCENARIO, seed=6))


def test_tracing_changes_nothing() -> None:
    traced = play(SCENARIO, trace=[])
    silent = play(SCENARIO)
    assert traced.journals == silent.journals
    assert traced.now == silent.now


def test_other_faults_leave_the_workload_as_it_is() -> None:
    """Streams are apart: the same payloads are sent by the same participants at the same times."""

    def workload(scenario: Scenario) -> list[tuple[int, str, bytes]]:
        steps = [step for journal in play(scenario).journals for step in journal.sent()]
        return sorted((step.time_ns, step.sender_id, step.payload) for step in steps)

    calm = Scenario(seed=3, messages=50)
    stormy = replace(calm, faults=LinkFaults(loss=0.5, delay_ms=100), store=StoreFaults(loss=0.5))
    assert workload(calm) == workload(stormy)
