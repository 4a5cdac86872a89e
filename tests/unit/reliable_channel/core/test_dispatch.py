"""What waits for the node: order, window, budget, and what comes back."""

from __future__ import annotations

from random import Random

import pytest

from reliable_channel.config import RateLimitConfig
from reliable_channel.core.dispatch import QUEUE_TIMER, DispatchQueue, SyncTurn
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter, TrafficClass
from reliable_channel.core.requests import OutgoingSegment, Request
from reliable_channel.core.timers import Timers
from reliable_channel.records import LedgerRecord
from reliable_channel.types import SECOND
from tests.support.builders import NOW, limited

TURN = SyncTurn(idle=False)

UNLIMITED = ChannelBudget(EpochRateLimiter(RateLimitConfig()), None, "room")

NEXT_EPOCH = NOW - NOW % (600 * SECOND) + 600 * SECOND


def make_queue(budget: ChannelBudget = UNLIMITED, *, window: int = 16) -> DispatchQueue:
    return DispatchQueue(window, budget, Outbox(), Timers(), Random(1))


def put(queue: DispatchQueue, traffic: TrafficClass, *segment_ids: str, now: int = NOW) -> None:
    for segment_id in segment_ids:
        queue.put(traffic, segment_id, TURN, now)


def take_all(queue: DispatchQueue, now: int = NOW) -> list[str]:
    taken = []
    while (found := queue.next_turn(now)) is not None:
        taken.append(found[0])
    return taken


def ledger(queue: DispatchQueue) -> int | None:
    """Return what the ledger's row that was just written counts."""
    for record in queue.outbox.take().changes.values():
        if isinstance(record, LedgerRecord):
            return record.used
    return None


# --- Order ---------------------------------------------------------------------------------------


def test_an_empty_queue_has_no_turn_and_no_timer() -> None:
    queue = make_queue(limited(10))
    assert queue.next_turn(NOW) is None
    assert QUEUE_TIMER not in queue.timers
    assert queue.waiting() == 0


def test_each_class_is_first_in_first_out() -> None:
    queue = make_queue()
    put(queue, TrafficClass.FRESH, "a", "b", "c")
    assert queue.waiting() == 3
    assert take_all(queue) == ["a", "b", "c"]
    assert queue.waiting() == 0


def test_without_a_limit_the_order_of_the_classes_decides() -> None:
    queue = make_queue()
    for traffic in reversed(TrafficClass):
        put(queue, traffic, traffic.name)
    assert take_all(queue) == ["SYNC", "REPAIR", "REPAIR_ANSWER", "FRESH", "PARITY"]


def test_what_waits_already_keeps_its_place_and_its_turn() -> None:
    queue = make_queue()
    put(queue, TrafficClass.FRESH, "a", "b")
    queue.put(TrafficClass.FRESH, "a", SyncTurn(idle=True), NOW)
    found = queue.next_turn(NOW)
    assert found is not None
    assert found[0] == "a"
    assert found[1].turn is TURN
    assert take_all(queue) == ["b"]


def test_a_data_segment_waits_once_whatever_the_class() -> None:
    """WIRE: a segment is queued at most once."""
    request = Request(
        request_id="r", created_ns=NOW, payload_bytes=1, segment_count=1, ephemeral=False
    )
    segment = OutgoingSegment(
        request=request, index=0, message_id="m", lamport=1, history=(), suffix=b""
    )
    queue = make_queue()
    queue.put_segment(TrafficClass.FRESH, segment, NOW)
    queue.put_segment(TrafficClass.REPAIR, segment, NOW)
    assert segment.queued
    assert take_all(queue) == ["r:1"]


def test_what_is_discarded_does_not_go_out() -> None:
    queue = make_queue()
    put(queue, TrafficClass.FRESH, "a", "b")
    assert queue.discard(TrafficClass.FRESH, "a")
    assert not queue.discard(TrafficClass.FRESH, "a")
    assert not queue.discard(TrafficClass.SYNC, "b")
    assert take_all(queue) == ["b"]


# --- The window ----------------------------------------------------------------------------------


def test_no_more_are_in_flight_than_the_window_holds() -> None:
    queue = make_queue(window=2)
    put(queue, TrafficClass.FRESH, "a", "b", "c")
    put(queue, TrafficClass.SYNC, "s")
    assert take_all(queue) == ["s", "a"]
    assert list(queue.in_flight) == ["s", "a"]
    assert queue.landed("s", NOW) is not None
    assert take_all(queue) == ["b"]


def test_what_is_not_in_flight_does_not_land() -> None:
    queue = make_queue()
    put(queue, TrafficClass.FRESH, "a")
    assert queue.landed("a", NOW) is None
    take_all(queue)
    flight = queue.landed("a", NOW)
    assert flight is not None
    assert flight.traffic is TrafficClass.FRESH
    assert queue.landed("a", NOW) is None


# --- The budget ----------------------------------------------------------------------------------


def test_without_a_limit_no_ledger_is_written() -> None:
    queue = make_queue()
    put(queue, TrafficClass.FRESH, "a")
    take_all(queue)
    queue.landed("a", NOW)
    assert ledger(queue) is None


def test_every_transmission_is_counted_before_it_is_made() -> None:
    """WIRE: one ledger per node, persisted before a transmission."""
    queue = make_queue(limited(10))
    put(queue, TrafficClass.FRESH, "a", "b")
    for used in (1, 2):
        assert queue.next_turn(NOW) is not None
        assert ledger(queue) == used


def test_when_the_budget_says_no_a_timer_says_when_to_ask_again() -> None:
    queue = make_queue(limited(3))
    put(queue, TrafficClass.FRESH, "a", "b", "c", "d", "e")
    assert take_all(queue) == ["a", "b", "c"]
    for segment_id in "abc":
        queue.landed(segment_id, NOW)
    deadline = queue.timers.deadline(QUEUE_TIMER)
    assert deadline is not None
    assert NEXT_EPOCH <= deadline <= NEXT_EPOCH + 30 * SECOND
    assert take_all(queue, deadline) == ["d", "e"]
    assert QUEUE_TIMER not in queue.timers


def test_the_class_that_may_go_first_sets_the_timer() -> None:
    queue = make_queue(limited(2))
    put(queue, TrafficClass.FRESH, "a", "b", "c")
    put(queue, TrafficClass.PARITY, "p")
    taken = take_all(queue)
    assert len(taken) == 2
    deadline = queue.timers.deadline(QUEUE_TIMER)
    assert deadline is not None
    assert deadline >= NEXT_EPOCH


def test_what_is_reported_after_the_boundary_counts_in_both_epochs() -> None:
    """WIRE: what the node confirms after the boundary counts in both."""
    budget = limited(10)
    queue = make_queue(budget)
    put(queue, TrafficClass.FRESH, "a", "b")
    take_all(queue)
    assert budget.remaining(NOW) == 8
    queue.landed("a", NOW)
    assert budget.remaining(NEXT_EPOCH) == 9  # the other one is still open
    queue.landed("b", NEXT_EPOCH)
    assert budget.remaining(NEXT_EPOCH) == 9
    assert ledger(queue) == 1


def test_at_the_end_only_what_is_in_doubt_stays_open() -> None:
    budget = limited(10)
    queue = make_queue(budget)
    put(queue, TrafficClass.FRESH, "a", "b", "c")
    take_all(queue)
    assert queue.settle({"c"}, "b", NOW)
    assert list(queue.in_flight) == ["b"]
    assert budget.remaining(NOW) == 7
    assert budget.remaining(NEXT_EPOCH) == 9
    assert not queue.settle((), "b", NOW)


def test_at_the_end_what_was_never_made_counts_once_only() -> None:
    budget = limited(10)
    queue = make_queue(budget)
    put(queue, TrafficClass.FRESH, "a", "b")
    take_all(queue)
    assert queue.settle({"a"}, None, NEXT_EPOCH)
    assert budget.remaining(NEXT_EPOCH) == 9


def test_without_a_limit_the_end_changes_no_ledger() -> None:
    queue = make_queue()
    put(queue, TrafficClass.FRESH, "a")
    take_all(queue)
    assert not queue.settle((), None, NOW)


def test_what_was_certainly_not_transmitted_counts_once_only() -> None:
    budget = limited(10)
    queue = make_queue(budget)
    put(queue, TrafficClass.FRESH, "a")
    take_all(queue)
    queue.landed("a", NEXT_EPOCH, certain_failure=True)
    assert budget.remaining(NEXT_EPOCH) == 10


@pytest.mark.parametrize("leave", ["turn", "discard"])
def test_a_class_with_nothing_waiting_has_nothing_kept_for_it(leave: str) -> None:
    """WIRE: while they have something waiting, a tenth is kept for syncs."""
    queue = make_queue(limited(10))
    put(queue, TrafficClass.REPAIR, "r")
    if leave == "turn":
        assert take_all(queue) == ["r"]
    else:
        assert queue.discard(TrafficClass.REPAIR, "r")
    put(queue, TrafficClass.FRESH, *(f"f{number}" for number in range(20)))
    expected = 8 if leave == "turn" else 9  # one is always left to a sync
    assert len(take_all(queue)) == expected
