"""Work takes turns; ratios compare the runs of one round."""

from __future__ import annotations

import time

import pytest

from benchmarks.rounds import Ratio, rate, ratio, seconds_of, timed


def burn(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_works_take_turns_after_a_first_run_of_each() -> None:
    turns: list[str] = []
    works = {name: lambda name=name: turns.append(name) for name in ("a", "b")}
    seconds = timed(works, rounds=3, least_seconds=0)
    assert turns == ["a", "b"] * 4
    assert {name: len(found) for name, found in seconds.items()} == {"a": 3, "b": 3}


def test_short_work_is_repeated_and_its_mean_counts() -> None:
    runs: list[None] = []

    def work() -> None:
        runs.append(None)
        burn(0.001)

    seconds = timed({"work": work}, rounds=2, least_seconds=0.005)["work"]
    assert len(runs) > 4
    assert all(0.001 <= found < 0.004 for found in seconds)


def test_cpu_time_counts_and_waiting_does_not() -> None:
    assert seconds_of(lambda: burn(0.01), 1) >= 0.01


def test_ratio_is_of_rounds() -> None:
    found = ratio([1.0, 2.0, 1.0], [3.0, 4.0, 1.0])
    assert found == Ratio(2.0, 1.0, 3.0)
    assert str(found) == "2.00 (1.00–3.00)"


def test_rate_is_that_of_the_median() -> None:
    assert rate(3_000_000, [1.0, 2.0, 9.0]) == pytest.approx(1.5)
