"""Processes die before, within and after every step of their work, and nothing is lost, doubled or out of order.

A failing seed is named with the command that plays it again. More seeds: ``make torture SEEDS=20000``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.simulation import (
    BREAKAGES,
    MOMENTS,
    Scenario,
    Simulation,
    crash_scenario,
    play,
)
from benchmarks.simulation.drawing import DEPENDENCY_TIMEOUT_MS
from benchmarks.simulation.workload import Workload

CHUNK = 50
CHUNKS = 20

FINDS = [
    ("publish_before_persist", "delivery", 200),
    ("emit_before_persist", "shown", 20),
    ("never_start_again", "quiet", 20),
    ("forget_budget", "budget", 200),
    ("forget_open_transmissions", "budget", 250),
    ("skip_duplicate_check", "delivery", 20),
    ("forget_incomplete", "delivery", 40),
    ("forget_requests", "requests", 20),
    ("forget_keys", "keys", 40),
    ("forget_wrap_time", "wraps", 200),
    ("forget_sequence", "sequence", 20),
    ("forget_history", "order", 60),
    ("forget_acknowledged", "acknowledged", 20),
    ("leave_rows", "rows", 20),
]
"""What is broken on purpose, which invariant finds it, and within how many seeds."""


def first_failure(broken: str, invariant: str, seeds: int) -> int | None:
    """Return the first seed whose run breaks an invariant."""
    for seed in range(seeds):
        if invariant in play(crash_scenario(seed, broken=broken)).problems():
            return seed
    return None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(0, CHUNK * CHUNKS, CHUNK))
def test_whenever_processes_die_the_promises_are_kept(first: int) -> None:
    for seed in range(first, first + CHUNK):
        play(crash_scenario(seed)).check()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("broken", "invariant", "seeds"), FINDS)
def test_what_is_broken_on_purpose_is_found(broken: str, invariant: str, seeds: int) -> None:
    assert first_failure(broken, invariant, seeds) is not None


def test_every_breakage_and_every_invariant_is_tried() -> None:
    assert {broken for broken, _, _ in FINDS} == set(BREAKAGES)
    invariants = {
        "delivery", "order", "requests", "keys", "sequence", "shown", "wraps", "acknowledged", "quiet",
        "rows", "budget",
    }  # fmt: skip
    assert {invariant for _, invariant, _ in FINDS} == invariants


def test_a_breakage_without_crashes_breaks_nothing() -> None:
    """What a check finds above comes of the restarts."""
    for broken in BREAKAGES:
        if broken not in ("leave_rows", "forget_acknowledged"):
            play(Scenario(messages=20, broken=broken)).check()


def deaths(seeds: int) -> tuple[Counter[str], int]:
    """Return how often processes died at each moment, and the most that were down at once."""
    moments: Counter[str] = Counter()
    most = 0

    class Watched(Simulation):
        def crash(self, index: int) -> None:
            nonlocal most
            super().crash(index)
            most = max(most, sum(item.machine is None for item in self.participants))

    for seed in range(seeds):
        simulation = Watched(crash_scenario(seed))
        Workload(simulation).play()
        for name, count in simulation.counters.items():
            if name.startswith("crashes_"):
                moments[name.removeprefix("crashes_")] += count
    return moments, most


def test_the_seeds_reach_every_moment_and_let_several_be_down() -> None:
    moments, most = deaths(100)
    assert set(moments) == set(MOMENTS)
    assert min(moments.values()) >= 5
    assert most >= 2


def test_the_seeds_have_all_that_may_matter() -> None:
    drawn = [crash_scenario(seed) for seed in range(200)]
    longest = max(crash.down_ms for scenario in drawn for crash in scenario.crashes)
    assert longest > DEPENDENCY_TIMEOUT_MS
    for has in (
        lambda item: any(crash.down_ms == 0 for crash in item.crashes),
        lambda item: item.rate_limit.enabled,
        lambda item: item.segmentation.enable_reed_solomon,
        lambda item: item.segmentation.segment_size_bytes == 64 and not item.ephemeral,
        lambda item: item.ephemeral > 0,
        lambda item: item.retries > 0 and len(item.crashes) > 1,
        lambda item: item.sds.message_id == "content" and item.repeats > 0,
        lambda item: item.commit_ms > 0,
        lambda item: not item.store.enabled,
    ):
        assert sum(map(has, drawn)) >= 20
        assert not all(map(has, drawn))
