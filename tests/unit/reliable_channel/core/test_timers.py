"""Named deadlines: order, replacement, cancelling, and that stale entries do not pile up."""

from __future__ import annotations

import random

from reliable_channel.core.timers import TimerKey, Timers

A: TimerKey = ("ack", "a")
B: TimerKey = ("ack", "b")
C: TimerKey = ("set", 3)


def pop_all(timers: Timers, now: int) -> list[TimerKey]:
    """Return the keys of all timers that have ended, in the order in which they come."""
    keys = []
    while (key := timers.pop_due(now)) is not None:
        keys.append(key)
    return keys


def test_nothing_runs_at_first() -> None:
    timers = Timers()
    assert timers.next_deadline() is None
    assert timers.pop_due(1 << 62) is None
    assert len(timers) == 0
    assert A not in timers
    assert timers.deadline(A) is None


def test_the_earliest_ends_first() -> None:
    timers = Timers()
    for key, deadline in ((A, 30), (B, 10), (C, 20)):
        timers.set(key, deadline)
    assert timers.next_deadline() == 10
    assert pop_all(timers, 30) == [B, C, A]
    assert len(timers) == 0


def test_equal_deadlines_end_in_the_order_in_which_they_were_set() -> None:
    timers = Timers()
    for key in (C, A, B):
        timers.set(key, 10)
    assert pop_all(timers, 10) == [C, A, B]


def test_a_timer_ends_at_its_deadline_not_before() -> None:
    timers = Timers()
    timers.set(A, 10)
    assert timers.pop_due(9) is None
    assert A in timers
    assert timers.pop_due(10) == A
    assert A not in timers
    assert timers.pop_due(10) is None


def test_setting_again_replaces_the_deadline() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(A, 20)
    assert timers.deadline(A) == 20
    assert timers.next_deadline() == 20
    assert pop_all(timers, 19) == []
    timers.set(A, 5)
    assert timers.next_deadline() == 5
    assert pop_all(timers, 30) == [A]


def test_putting_off_leaves_the_heap_alone_until_the_entry_comes_up() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(B, 25)
    for deadline in range(11, 21):
        timers.set(A, deadline)
    assert len(timers.heap) == 2
    assert pop_all(timers, 19) == []
    timers.set(A, 30)
    assert timers.next_deadline() == 25
    assert pop_all(timers, 30) == [B, A]
    assert not timers.heap


def test_a_timer_that_is_set_anew_after_it_was_cancelled_ends_once() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.cancel(A)
    timers.set(A, 20)
    assert pop_all(timers, 100) == [A]
    assert timers.next_deadline() is None


def test_setting_the_same_deadline_keeps_the_place_in_line() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(B, 10)
    timers.set(A, 10)
    assert len(timers.heap) == 2
    assert pop_all(timers, 10) == [A, B]


def test_a_deadline_that_comes_back_ends_once() -> None:
    timers = Timers()
    for deadline in (10, 20, 10):
        timers.set(A, deadline)
    assert pop_all(timers, 20) == [A]
    assert timers.next_deadline() is None


def test_set_earlier_only_moves_forward() -> None:
    timers = Timers()
    timers.set_earlier(A, 20)
    timers.set_earlier(A, 30)
    timers.set_earlier(A, 20)
    assert timers.deadline(A) == 20
    timers.set_earlier(A, 10)
    assert timers.deadline(A) == 10


def test_a_cancelled_timer_does_not_end() -> None:
    timers = Timers()
    timers.set(A, 10)
    timers.set(B, 20)
    timers.cancel(A)
    timers.cancel(A)
    timers.cancel(C)
    assert A not in timers
    assert timers.next_deadline() == 20
    assert pop_all(timers, 100) == [B]


def test_replaced_and_cancelled_entries_do_not_pile_up() -> None:
    timers = Timers()
    for key in (A, B, C):
        timers.set(key, 1_000_000)
    for deadline in range(10_000):
        timers.set(A, 2_000_000 - deadline)
        timers.set(("ack", deadline), 1)
        timers.cancel(("ack", deadline))
        assert len(timers.heap) <= 2 * len(timers) + 65
    assert pop_all(timers, 2_000_000) == [B, C, A]


def test_order_is_that_of_the_deadlines_whatever_happened_before() -> None:
    rng = random.Random(7)
    timers, expected = Timers(), dict[TimerKey, int]()
    for _ in range(5_000):
        key: TimerKey = ("ack", rng.randrange(40))
        if rng.random() < 0.3:
            timers.cancel(key)
            expected.pop(key, None)
        else:
            deadline = rng.randrange(1_000)
            timers.set(key, deadline)
            expected[key] = deadline
        assert timers.next_deadline() == min(expected.values(), default=None)
    ended = pop_all(timers, 1_000)
    assert sorted(ended) == sorted(expected)
    assert [expected[key] for key in ended] == sorted(expected.values())
