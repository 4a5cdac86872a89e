"""The model counts who answers; the table says what was measured; small groups of real machines answer once."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks import sync_cost
from benchmarks.sync_cost import BACKOFF_WINDOW_MS, Answer, Cost, Group


@pytest.mark.parametrize(
    ("times", "delay", "count"),
    [
        ([], 5, 0),
        ([7], 5, 1),
        ([1, 2, 3], 0, 1),
        ([2, 2, 3], 0, 1),
        ([3, 1, 5.9, 6, 7], 5, 3),
        ([1, 2, 3], 100, 3),
    ],
    ids=["nobody", "alone", "heard at once", "draw", "some", "heard too late"],
)
def test_who_has_heard_another_in_time_does_not_answer(
    times: list[float], delay: float, count: int
) -> None:
    assert sync_cost.answering(times, delay) == count


def test_uniform_back_off_costs_the_share_of_the_group_that_the_delay_is_of_the_window() -> None:
    draws = Random(1)
    counts = [sync_cost.uniform_answers(100, BACKOFF_WINDOW_MS / 5, draws) for _ in range(200)]
    assert sum(counts) / 200 == pytest.approx(21, abs=1.5)


@pytest.mark.parametrize("delay_ms", [100, 1_000])
def test_only_receiver_answers_once_and_in_time(delay_ms: int) -> None:
    group = Group(2, seed=1)
    for _ in range(3):
        answer = group.ask(delay_ms)
        assert answer.syncs == 1
        assert not answer.retransmitted
        assert answer.delivered_ms is not None
        assert 2 * delay_ms <= answer.delivered_ms <= 2 * delay_ms + BACKOFF_WINDOW_MS


def test_slow_answer_is_told_from_a_fast_one() -> None:
    """A delay above half the timeout lets the sender send again; one above the window leaves nothing to count."""
    group = Group(2, seed=1)
    assert group.ask(2_600).retransmitted
    assert group.ask(10_001) == Answer(syncs=0, delivered_ms=None, retransmitted=True)


def test_group_that_is_not_quiet_is_not_measured() -> None:
    group = Group(3, seed=1)
    group.simulation.send(0, b"between")
    with pytest.raises(RuntimeError, match="p0 is not quiet"):
        group.ask(0)


def test_group_that_does_not_know_each_other_is_not_measured() -> None:
    group = Group(3, seed=1)
    group.simulation.machine(1).state.participants.heard.clear()
    with pytest.raises(RuntimeError, match="p1 knows 0 others"):
        group.ask(0)


def test_same_seeds_give_the_same_costs_for_each_delay() -> None:
    costs = list(sync_cost.measure(3, (100, 500), seeds=2, rounds=2))
    assert [(cost.group, cost.delay_ms) for cost in costs] == [(3, 100), (3, 500)]
    assert all(len(cost.answers) == len(cost.uniform) == 4 for cost in costs)
    assert costs == list(sync_cost.measure(3, (100, 500), seeds=2, rounds=2))


def test_table_has_mean_and_range_and_counts_retransmissions() -> None:
    answers = (Answer(1, 1_000, False), Answer(4, 2_000, False), Answer(2, None, True))
    lines = list(sync_cost.table([Cost(5, 500, answers, (3, 4, 5))]))
    assert lines[:2] == list(sync_cost.HEAD)
    assert lines[2:] == ["| 5 | 0.5 s | 2.3 (1–4) | 4.0 (3–5) | 1.5 (1.0–2.0) | 1 of 3 |"]
    assert sync_cost.spread([]) == "–"
