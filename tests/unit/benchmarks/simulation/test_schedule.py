"""Actions happen at their times, and it is known how many are to come."""

from __future__ import annotations

import pytest

from benchmarks.simulation.scenario import START_NS
from benchmarks.simulation.schedule import Schedule
from reliable_channel.types import MS


def test_actions_happen_in_the_order_of_their_times_then_of_their_setting() -> None:
    schedule, done = Schedule(), list[str]()
    schedule.at(START_NS + 20 * MS, lambda: done.append("second"))
    schedule.at(START_NS + 10 * MS, lambda: done.append("first"))
    schedule.wake(START_NS + 20 * MS, lambda: done.append("third"))
    schedule.run(19.9)
    assert done == ["first"]
    schedule.run(0.1)
    assert done == ["first", "second", "third"]
    assert schedule.now == START_NS + 20 * MS


def test_what_was_due_happens_next_and_time_does_not_go_back() -> None:
    schedule, times = Schedule(), list[int]()
    schedule.run(5)
    schedule.at(START_NS, lambda: times.append(schedule.now))
    schedule.run(0)
    assert times == [START_NS + 5 * MS]


def test_an_action_may_set_another_for_the_same_time() -> None:
    schedule, done = Schedule(), list[str]()

    def first() -> None:
        done.append("first")
        schedule.at(schedule.now, lambda: done.append("second"))

    schedule.at(START_NS, first)
    schedule.run(0)
    assert done == ["first", "second"]


def test_actions_are_under_way_until_they_are_done_and_wakes_never() -> None:
    schedule = Schedule()
    schedule.at(START_NS + 1, lambda: None)
    schedule.wake(START_NS + 1, lambda: None)
    assert schedule.under_way == 1
    schedule.run(1)
    assert schedule.under_way == 0


@pytest.mark.parametrize(
    ("action_ms", "end_ms", "expected_ms"),
    [
        (0, 1_000, 250),
        (1, 1_000, 250),
        (250, 1_000, 250),
        (251, 1_000, 500),
        (990, 1_000, 1_000),
        (5_000, 1_000, 1_000),
        (5_000, 1_001, 1_250),
        (None, 900, 1_000),
        (None, 0, 250),
    ],
)
def test_steps_in_which_nothing_happens_are_taken_at_once(
    action_ms: int | None, end_ms: int, expected_ms: int
) -> None:
    schedule, done = Schedule(), list[int]()
    if action_ms is not None:
        schedule.wake(START_NS + action_ms * MS, lambda: done.append(schedule.now))
    schedule.step(250, START_NS + end_ms * MS)
    assert schedule.now == START_NS + expected_ms * MS
    due = action_ms is not None and action_ms <= expected_ms
    assert done == ([START_NS + (action_ms or 0) * MS] if due else [])


def test_what_has_its_turn_is_no_longer_under_way() -> None:
    schedule, counts = Schedule(), list[int]()
    schedule.at(START_NS, lambda: counts.append(schedule.under_way))
    schedule.at(START_NS, lambda: counts.append(schedule.under_way))
    schedule.run(0)
    assert counts == [1, 0]
