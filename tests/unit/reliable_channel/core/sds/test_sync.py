"""When a sync message is due, and what it names."""

from __future__ import annotations

from random import Random
from statistics import fmean

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.debt import AckDebt
from reliable_channel.core.sds.log import KnownMessage, MessageLog
from reliable_channel.core.sds.sync import (
    IDLE_TIMER,
    SYNC_ENTRIES,
    SYNC_TIMER,
    SyncPolicy,
    backoff_ns,
)
from reliable_channel.core.timers import Timers
from reliable_channel.types import MS, SECOND
from tests.support.builders import ALICE, NOW

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
    return SyncPolicy(CONFIG, AckDebt(outbox), MessageLog(CONFIG, outbox), Timers(), random)


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
