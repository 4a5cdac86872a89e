"""When a sync message is due, what it names, and when one waits for its turn."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from reliable_channel.config import RateLimitConfig, SdsConfig
from reliable_channel.core.dispatch import DispatchQueue
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter, TrafficClass
from reliable_channel.core.sds.debt import AckDebt
from reliable_channel.core.sds.log import KnownMessage, MessageLog
from reliable_channel.core.sds.repair import RepairRequests
from reliable_channel.core.sds.sync import (
    IDLE_TIMER,
    RETRY_NS,
    SYNC_ENTRIES,
    SYNC_TIMER,
    SyncPolicy,
    SyncScheduler,
    backoff_ns,
)
from reliable_channel.core.timers import Timers
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    CAROL,
    CHANNEL,
    NEXT_EPOCH,
    NO_FILTER,
    NOW,
    NOW_MS,
    Participant,
    acknowledge,
    alice,
    content_message,
    cut,
    entries,
    history_of,
    ids_of,
    limited,
    messages_of,
    sync_message,
)

CONFIG = SdsConfig(bloom_capacity=0)


class FixedRandom(Random):
    """Draws the same number again and again."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def random(self) -> float:
        return self.value


EARLY = FixedRandom(0.0)
LATE = FixedRandom(1 - 2**-53)


def make_policy(random: Random = LATE) -> SyncPolicy:
    outbox = Outbox()
    timers = Timers()
    repairs = RepairRequests(CONFIG, ALICE, timers, Outbox())
    return SyncPolicy(CONFIG, AckDebt(outbox), repairs, MessageLog(CONFIG, outbox), timers, random)


def owe(policy: SyncPolicy, count: int, *, start: int = 0) -> None:
    for number in range(start, start + count):
        policy.debt.add(f"owed{number}", (ALICE, number), 1)


def log(policy: SyncPolicy, count: int) -> None:
    for number in range(count):
        policy.log.add(
            KnownMessage(
                f"known{number}", number, ALICE, index=0, segment_count=1, hint=None, logged=True
            )
        )


# --- The back-off --------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [0, 1, 2, 10, 200, 1_000_000])
def test_backoff_is_between_nothing_and_the_longest(group: int) -> None:
    rng = Random(3)
    draws = [backoff_ns(1_000_000.0, group, rng) for _ in range(2_000)]
    assert min(draws) >= 0
    assert max(draws) <= 1_000_000
    assert backoff_ns(1_000_000.0, group, EARLY) == 0
    assert backoff_ns(1_000_000.0, group, LATE) == pytest.approx(1_000_000, abs=1)


def test_most_draws_are_late_the_more_so_the_larger_the_group() -> None:
    """RFC 5401: few of a group answer before the first answer is heard."""
    means = []
    for group in (1, 10, 200):
        rng = Random(5)
        means.append(fmean(backoff_ns(1_000_000.0, group, rng) for _ in range(4_000)))
    assert 550_000 < means[0] < means[1] < means[2]
    # Of 200 that draw at once, only a few are within a tenth of the longest after the first.
    rng = Random(5)
    early = []
    for _ in range(50):
        draws = sorted(backoff_ns(1_000_000.0, 200, rng) for _ in range(200))
        early.append(sum(draw <= draws[0] + 100_000 for draw in draws))
    assert fmean(early) < 6


# --- Owed acknowledgements -----------------------------------------------------------------------


def test_nothing_is_due_without_debt() -> None:
    policy = make_policy()
    policy.owe(NOW, 1)
    assert SYNC_TIMER not in policy.timers


@pytest.mark.parametrize(("random", "wait_ms"), [(EARLY, 0), (LATE, 2_500)])
def test_a_sync_is_due_within_half_the_acknowledgement_timeout(
    random: Random, wait_ms: int
) -> None:
    """WIRE: random back-off over 0.5 · acknowledgement_timeout_ms."""
    policy = make_policy(random)
    owe(policy, 1)
    policy.owe(NOW, 1)
    deadline = policy.timers.deadline(SYNC_TIMER)
    assert deadline is not None
    assert deadline - NOW == pytest.approx(wait_ms * MS, abs=2)


def test_more_debt_does_not_put_the_sync_off() -> None:
    policy = make_policy()
    owe(policy, 1)
    policy.owe(NOW, 1)
    first = policy.timers.deadline(SYNC_TIMER)
    owe(policy, 62, start=1)
    policy.owe(NOW + SECOND, 1)
    assert policy.timers.deadline(SYNC_TIMER) == first


def test_when_a_whole_sync_is_owed_the_backoff_is_drawn_anew_and_short() -> None:
    """WIRE: drawn anew and short at 64 owed ids."""
    policy = make_policy()
    owe(policy, 63)
    policy.owe(NOW, 1)
    slow = policy.timers.deadline(SYNC_TIMER)
    owe(policy, 1, start=63)
    policy.owe(NOW, 1)
    short = policy.timers.deadline(SYNC_TIMER)
    assert slow is not None
    assert short is not None
    assert short - NOW == pytest.approx((slow - NOW) / 10, rel=0.01)
    policy.random = EARLY
    owe(policy, 10, start=64)
    policy.owe(NOW + 1, 1)
    assert policy.timers.deadline(SYNC_TIMER) == short


def test_a_short_draw_never_puts_the_sync_off() -> None:
    policy = make_policy(EARLY)
    owe(policy, 1)
    policy.owe(NOW, 1)
    policy.random = LATE
    owe(policy, 64, start=1)
    policy.owe(NOW, 1)
    assert policy.timers.deadline(SYNC_TIMER) == NOW


def test_settled_debt_calls_the_sync_off() -> None:
    policy = make_policy()
    owe(policy, 64)
    policy.owe(NOW, 1)
    assert policy.urgent
    policy.debt.settle(list(policy.debt))
    policy.owe(NOW, 1)
    assert SYNC_TIMER not in policy.timers
    assert not policy.urgent


# --- Silence -------------------------------------------------------------------------------------


def test_the_first_silence_is_sync_interval_randomised_by_half() -> None:
    """WIRE: in silence an idle sync goes out at 30 s, then doubling to 10 min, randomised."""
    for random, wait in ((EARLY, 30), (LATE, 45)):
        policy = make_policy(random)
        policy.active(NOW, 1)
        deadline = policy.timers.deadline(IDLE_TIMER)
        assert deadline is not None
        assert deadline - NOW == pytest.approx(wait * SECOND, abs=2)


def test_silences_double_up_to_the_longest() -> None:
    policy = make_policy(EARLY)
    policy.active(NOW, 1)
    waits = []
    for _ in range(7):
        policy.sent_idle(NOW, 1)
        deadline = policy.timers.deadline(IDLE_TIMER)
        assert deadline is not None
        waits.append((deadline - NOW) // SECOND)
    assert waits == [60, 120, 240, 480, 600, 600, 600]


def test_activity_starts_the_silence_anew_at_its_first_length() -> None:
    policy = make_policy(EARLY)
    policy.active(NOW, 1)
    policy.sent_idle(NOW, 1)
    policy.sent_idle(NOW, 1)
    policy.active(NOW + SECOND, 1)
    assert policy.timers.deadline(IDLE_TIMER) == NOW + 31 * SECOND


def test_a_draw_serves_until_it_was_used_or_the_group_has_changed() -> None:
    policy = make_policy(LATE)
    policy.active(NOW, 1)
    policy.random = EARLY
    policy.active(NOW + SECOND, 1)
    kept = policy.timers.deadline(IDLE_TIMER)
    assert kept is not None
    assert kept - NOW == pytest.approx(46 * SECOND, abs=2)
    policy.active(NOW + SECOND, 2)
    assert policy.timers.deadline(IDLE_TIMER) == NOW + 31 * SECOND
    policy.random = LATE
    policy.sent_idle(NOW, 2)
    policy.random = EARLY
    policy.active(NOW + SECOND, 2)
    assert policy.timers.deadline(IDLE_TIMER) == NOW + 31 * SECOND


def test_a_sync_heard_puts_ours_off() -> None:
    policy = make_policy(EARLY)
    policy.active(NOW, 1)
    policy.heard_sync(NOW + 10 * SECOND, 1)
    assert policy.timers.deadline(IDLE_TIMER) == NOW + 40 * SECOND


def test_a_sync_that_ended_a_silence_makes_the_next_one_longer() -> None:
    policy = make_policy(EARLY)
    policy.active(NOW, 1)
    policy.heard_sync(NOW + 15 * SECOND, 1)
    assert policy.timers.deadline(IDLE_TIMER) == NOW + 75 * SECOND


def test_putting_off_keeps_the_length() -> None:
    policy = make_policy(EARLY)
    policy.active(NOW, 1)
    policy.sent_idle(NOW, 1)
    policy.put_off(NOW + SECOND, 1)
    assert policy.timers.deadline(IDLE_TIMER) == NOW + 61 * SECOND


# --- What it names -------------------------------------------------------------------------------


def test_a_sync_names_the_owed_first_then_the_newest_known() -> None:
    """WIRE: their causal history names the owed ids first, then the newest other known ids."""
    policy = make_policy()
    log(policy, 4)
    policy.debt.add("known2", (ALICE, 2), 1)
    owe(policy, 2)
    assert policy.compose() == ("known2", "owed0", "owed1", "known3", "known1", "known0")


def test_a_sync_names_at_most_64_ids() -> None:
    """WIRE: up to 64 (more owed: another sync)."""
    assert SYNC_ENTRIES == 64
    policy = make_policy()
    log(policy, 100)
    owe(policy, 3)
    assert policy.compose() == (
        *(f"owed{number}" for number in range(3)),
        *(f"known{number}" for number in range(99, 38, -1)),
    )
    owe(policy, 97, start=3)
    assert policy.compose() == tuple(f"owed{number}" for number in range(64))
    assert len(policy.debt) == 100


def test_with_nothing_known_a_sync_names_nothing() -> None:
    assert make_policy().compose() == ()


# --- Turns ---------------------------------------------------------------------------------------


def test_no_two_syncs_have_the_same_time() -> None:
    policy = make_policy()
    times = [policy.next_sync_ns(now) for now in (NOW, NOW, NOW - SECOND, NOW + SECOND)]
    assert times == [NOW, NOW + 1, NOW + 2, NOW + SECOND]


def make_scheduler(policy: SyncPolicy) -> SyncScheduler:
    unlimited = ChannelBudget(EpochRateLimiter(RateLimitConfig()), None, CHANNEL)
    queue = DispatchQueue(16, unlimited, Outbox(), policy.timers, policy.random)
    return SyncScheduler(policy, queue, lambda now: 1)


def test_one_sync_waits_at_most() -> None:
    policy = make_policy()
    scheduler = make_scheduler(policy)
    owe(policy, 1)
    log(policy, 1)
    for now in (NOW, NOW + SECOND):
        scheduler.sync_due(now)
        scheduler.idle_due(now)
    assert list(scheduler.queue.queues[TrafficClass.SYNC]) == ["sync:1"]


def test_without_anything_owed_no_sync_is_due_or_tried_again() -> None:
    policy = make_policy()
    scheduler = make_scheduler(policy)
    scheduler.sync_due(NOW)
    scheduler.failed(NOW)
    assert scheduler.queue.waiting() == 0
    assert SYNC_TIMER not in policy.timers
    owe(policy, 1)
    scheduler.failed(NOW)
    assert policy.timers.next_deadline() == NOW + RETRY_NS


def test_a_sync_that_failed_is_owed_again() -> None:
    receiver = Participant(sds=NO_FILTER)
    (message,) = messages_of(b"x")
    receiver.receive(message)
    receiver.advance(3 * SECOND)
    receiver.failed()
    assert receiver.status().owed_acknowledgements == 1
    receiver.advance(3 * SECOND)
    assert [history_of(sync) for sync in receiver.syncs] == [[message.message_id]] * 2
    receiver.published()
    receiver.advance(10 * SECOND)
    assert len(receiver.syncs) == 2


def test_a_failed_idle_sync_owes_nothing() -> None:
    receiver = Participant(sds=NO_FILTER)
    receiver.receive(*messages_of(b"x"))
    receiver.advance(3 * SECOND)
    receiver.published()
    receiver.advance(46 * SECOND)
    assert len(receiver.syncs) == 2
    receiver.failed()
    assert receiver.status().owed_acknowledgements == 0


def test_in_silence_idle_syncs_go_out_at_growing_distances() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id)
    times = []
    for _ in range(4):
        while not sender.machine.queue.in_flight:
            sender.advance(SECOND)
        times.append(sender.syncs[-1].time_ns - NOW)
        sender.published()
    gaps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    for gap, least in zip(gaps, (30, 60, 120, 240), strict=True):
        assert least * SECOND <= gap <= 1.5 * least * SECOND
    assert all(history_of(sync) == ids_of(sender, request_id) for sync in sender.syncs)


def test_with_nothing_logged_a_silence_is_not_broken() -> None:
    sender = alice()
    sender.advance(3600 * SECOND)
    assert sender.transmissions == []
    assert sender.machine.next_deadline() is not None


def test_an_idle_sync_that_the_limit_holds_back_goes_out_once() -> None:
    sender = alice(budget=limited(3))
    request_id = sender.send(b"x" * 192)
    sender.published()
    acknowledge(sender, request_id)
    sender.advance(NEXT_EPOCH - NOW)
    assert sender.syncs == []
    sender.advance(35 * SECOND)
    assert len(sender.syncs) == 1


def test_a_receiver_near_its_limit_spaces_its_syncs() -> None:
    """WIRE: a receiver near its limit spaces its syncs over the time left."""
    receiver = Participant(sds=NO_FILTER, budget=limited(10))
    for number in range(60):
        receiver.receive(
            content_message(cut(b"x", wrap_time_ns=NOW + number)[0], lamport=NOW_MS + number)
        )
        receiver.advance(5 * SECOND)
        receiver.published()
    assert 3 <= len(receiver.syncs) <= 10
    receiver.advance(600 * SECOND)
    receiver.published()
    assert receiver.status().owed_acknowledgements == 0


def test_a_sync_that_still_waits_is_not_needed_when_another_has_acknowledged() -> None:
    """WIRE: dropped when another participant has just named at least as many segments."""
    receiver = Participant(sds=replace(NO_FILTER, max_in_flight=1))
    receiver.send(b"busy")
    (message,) = messages_of(b"x")
    receiver.receive(message)
    receiver.advance(3 * SECOND)
    assert receiver.status().waiting == 1
    receiver.receive(sync_message(*entries(message.message_id), sender_id=CAROL))
    assert receiver.status().owed_acknowledgements == 0
    receiver.published()
    assert len(receiver.syncs) == 0


def test_an_idle_sync_that_waits_is_not_dropped_by_what_others_say() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1, max_retransmissions=0))
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id)
    sender.send(b"busy")
    sender.advance(46 * SECOND)
    assert sender.status().waiting == 1
    sender.receive(sync_message(sender_id=CAROL))
    sender.published()
    assert len(sender.syncs) == 1


# --- After a restart -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kept", "random", "due"),
    [
        (NOW + 1, LATE, NOW + 1),  # it runs on
        (NOW + 60 * SECOND, LATE, NOW + 2_500 * MS),  # it is put off no further than a new one
        (NOW, LATE, NOW + 250 * MS),  # it is overdue: soon
        (NOW - 60 * SECOND, EARLY, NOW),
        (0, LATE, NOW + 2_500 * MS),  # it did not run
    ],
)
def test_a_sync_is_due_no_later_than_before_the_restart(
    kept: int, random: Random, due: int
) -> None:
    policy = make_policy(random)
    owe(policy, 1)
    policy.kept_dues = {SYNC_TIMER: kept, IDLE_TIMER: 0}
    policy.owe(NOW, 1)
    policy.go_on(NOW, 1)
    assert policy.timers.deadline(SYNC_TIMER) == pytest.approx(due, abs=10)


def test_a_silence_lasts_no_longer_than_before_the_restart() -> None:
    for kept, due in ((NOW + SECOND, NOW + SECOND), (NOW - 1, NOW + 250 * MS)):
        policy = make_policy()
        policy.kept_dues = {SYNC_TIMER: NOW - 1, IDLE_TIMER: kept}
        policy.active(NOW, 1)
        policy.go_on(NOW, 1)
        assert policy.timers.deadline(IDLE_TIMER) == pytest.approx(due, abs=10)
        assert SYNC_TIMER not in policy.timers  # what was owed was paid while catching up
