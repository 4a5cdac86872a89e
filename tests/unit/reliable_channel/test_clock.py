"""Clocks never go back, follow steps forward, and catch up after a step back."""

from __future__ import annotations

import asyncio
import time

import pytest

from reliable_channel.clock import LoopClock, SystemClock
from reliable_channel.types import SECOND
from tests.support.virtual_loop import START_NS, virtual_time


class Hands:
    """A wall clock that can be set, and a monotonic one that cannot; both in nanoseconds."""

    def __init__(self) -> None:
        self.wall = 1_000 * SECOND
        self.monotonic = 5 * SECOND
        self.clock = SystemClock(wall_ns=lambda: self.wall, monotonic_ns=lambda: self.monotonic)

    def advance(self, seconds: float) -> float:
        """Let time pass for both, and return what the clock says, in seconds."""
        self.wall += int(seconds * SECOND)
        self.monotonic += int(seconds * SECOND)
        return self.clock.now_ns() / SECOND


def test_the_wall_clock_is_followed() -> None:
    hands = Hands()
    assert [hands.advance(step) for step in (0, 1, 0.5)] == [1_000, 1_001, 1_001.5]


def test_a_step_forward_is_followed_at_once() -> None:
    hands = Hands()
    hands.wall += 3_600 * SECOND
    assert hands.advance(1) == 4_601


def test_after_a_step_back_it_runs_at_half_speed_until_caught_up() -> None:
    hands = Hands()
    hands.wall -= 10 * SECOND
    assert [hands.advance(4) for _ in range(6)] == [1_002, 1_004, 1_006, 1_008, 1_010, 1_014]


def test_a_second_step_back_while_behind() -> None:
    hands = Hands()
    hands.wall -= 10 * SECOND
    assert hands.advance(2) == 1_001
    hands.wall -= 10 * SECOND
    assert hands.advance(2) == 1_002


@pytest.mark.parametrize("step", [0, -1, -1_000, 500])
def test_it_never_goes_back(step: int) -> None:
    hands = Hands()
    told = []
    for _ in range(50):
        hands.wall += step * SECOND
        told.append(hands.advance(0.01))
    assert told == sorted(told)


def test_a_clock_that_stands_still_is_no_error() -> None:
    hands = Hands()
    hands.wall -= SECOND
    assert hands.clock.now_ns() == hands.clock.now_ns() == 1_000 * SECOND


def test_it_reads_the_real_clock_unless_told_otherwise() -> None:
    assert abs(SystemClock().now_ns() - time.time_ns()) < 5 * SECOND


@virtual_time
async def test_a_loop_clock_starts_where_it_is_told() -> None:
    await asyncio.sleep(12.5)
    clock = LoopClock(asyncio.get_running_loop(), START_NS)
    assert clock.now_ns() == START_NS
    await asyncio.sleep(0.000_001)
    assert clock.now_ns() == START_NS + 1_000
