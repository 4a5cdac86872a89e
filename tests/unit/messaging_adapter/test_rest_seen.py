"""Which messages are new, within a bound."""

from __future__ import annotations

from messaging_adapter.rest_seen import SeenMessages


class Standing:
    def __init__(self, now: int) -> None:
        self.now = now

    def now_ns(self) -> int:
        return self.now


def test_a_message_is_new_once() -> None:
    seen = SeenMessages(Standing(100))
    assert seen.add(b"a", 5)
    assert not seen.add(b"a", 6)
    assert b"a" in seen
    assert b"b" not in seen


def test_the_oldest_arrivals_go_and_leave_a_horizon() -> None:
    seen = SeenMessages(Standing(100), capacity=2)
    for name, time in ((b"a", 7), (b"b", 3), (b"c", 9), (b"d", 1)):
        seen.add(name, time)
    assert len(seen) == 2
    assert b"a" not in seen
    assert seen.horizon_ns == 7
    assert seen.newest_ns == 9


def test_a_time_in_the_future_moves_nothing_beyond_now() -> None:
    seen = SeenMessages(Standing(100), capacity=1)
    seen.add(b"a", 10_000)
    seen.add(b"b", 1)
    assert seen.newest_ns == 100
    assert seen.horizon_ns == 100
