"""The epoch ledger: what it admits, to whom, and when it says to ask again."""

from __future__ import annotations

import pytest

from reliable_channel.config import RateLimitConfig
from reliable_channel.core.rate_limit import (
    LARGEST_SPREAD,
    SMALLEST_STEP,
    Admission,
    ChannelBudget,
    EpochRateLimiter,
    TrafficClass,
)
from reliable_channel.records import LedgerRecord
from reliable_channel.types import SECOND, Nanoseconds

SYNC, REPAIR, ANSWER, FRESH, PARITY = TrafficClass
EPOCH = 2_900_000
PERIOD = 600 * SECOND
START = EPOCH * PERIOD
END = START + PERIOD


def limiter_of(
    messages: int = 100, period: int = 600, restored: LedgerRecord | None = None
) -> EpochRateLimiter:
    config = RateLimitConfig(enabled=True, epoch_period_sec=period, messages_per_epoch=messages)
    return EpochRateLimiter(config, restored=restored)


def drain(
    limiter: EpochRateLimiter, client: str, traffic: TrafficClass, now: Nanoseconds = START
) -> int:
    """Return how often a client is admitted until it is refused."""
    count = 0
    while limiter.admit(client, traffic, now) is not None:
        count += 1
    return count


def spend(limiter: EpochRateLimiter, count: int, now: Nanoseconds = START) -> None:
    """Make fresh transmissions of a client that never waits, all with a known outcome."""
    for _ in range(count):
        epoch = limiter.admit("spender", FRESH, now)
        assert epoch is not None
        limiter.confirm(epoch, now)


class TestEpochs:
    def test_a_limiter_that_is_not_enabled_admits_everything_and_counts_nothing(self) -> None:
        limiter = EpochRateLimiter(RateLimitConfig(messages_per_epoch=1))
        limiter.set_waiting("a", SYNC, START)
        assert [limiter.admit("a", FRESH, END - 1) for _ in range(5)] == [0] * 5
        assert limiter.would_admit("a", FRESH, END - 1)
        assert limiter.next_admission("a", FRESH, START, 0.5) == START + SMALLEST_STEP
        assert not limiter.confirm(0, END)
        limiter.release(0)
        assert limiter.sync_spacing(START) == 0
        assert limiter.record() == LedgerRecord(scope="node", epoch=0, used=0)
        assert not limiter.enabled

    def test_an_epoch_admits_as_many_as_configured(self) -> None:
        limiter = limiter_of(7)
        assert drain(limiter, "a", FRESH) == 7
        assert (limiter.epoch, limiter.used) == (EPOCH, 7)
        assert limiter.remaining(START) == 0

    def test_epoch_is_the_floor_of_unix_time_over_the_period(self) -> None:
        limiter = limiter_of(period=7)
        assert limiter.admit("a", FRESH, 69 * SECOND) == 9
        assert limiter.admit("a", FRESH, 70 * SECOND) == 10
        assert limiter.epoch_end(70 * SECOND) == 77 * SECOND

    def test_the_budget_is_full_again_in_the_next_epoch(self) -> None:
        limiter = limiter_of(7)
        spend(limiter, 7)
        assert limiter.remaining(END) == 7
        assert drain(limiter, "a", FRESH, END) == 7

    def test_the_epoch_does_not_go_back_when_the_clock_does(self) -> None:
        limiter = limiter_of(5)
        spend(limiter, 4)
        before = START - 3 * PERIOD
        assert limiter.admit("a", FRESH, before) == EPOCH
        assert limiter.admit("a", FRESH, before) is None
        assert limiter.next_admission("a", FRESH, before, 0.0) == END

    @pytest.mark.parametrize(
        ("period", "guard"), [(600, SECOND), (10, SECOND), (5, SECOND // 2), (1, SECOND // 10)]
    )
    def test_nothing_is_dispatched_at_the_end_of_an_epoch(self, period: int, guard: int) -> None:
        """Nothing is dispatched in the last second of an epoch."""
        limiter = limiter_of(period=period)
        end = 1000 * period * SECOND
        assert limiter.admit("a", FRESH, end - guard - 1) == 999
        assert limiter.admit("a", FRESH, end - guard) is None
        assert limiter.admit("a", FRESH, end - 1) is None
        assert limiter.next_admission("a", FRESH, end - guard, 0.0) == end
        assert limiter.admit("a", FRESH, end) == 1000

    def test_the_end_of_an_epoch_is_kept_free_also_while_the_clock_is_behind(self) -> None:
        limiter = limiter_of()
        spend(limiter, 1)
        assert limiter.admit("a", FRESH, START - 1) is None
        assert limiter.next_admission("a", FRESH, START - 1, 0.5) == START + LARGEST_SPREAD // 2
        assert limiter.admit("a", FRESH, START) == EPOCH

    @pytest.mark.parametrize(("period", "spread"), [(600, 30), (300, 30), (60, 6), (10, 1)])
    def test_waiting_traffic_is_spread_after_the_boundary(self, period: int, spread: int) -> None:
        limiter = limiter_of(1, period)
        start = 1000 * period * SECOND
        spend(limiter, 1, start)
        boundary = start + period * SECOND
        times = [limiter.next_admission("a", FRESH, start, j / 8) for j in range(8)]
        assert times == [boundary + j * spread * SECOND // 8 for j in range(8)]

    def test_waiting_traffic_that_was_given_a_time_is_refused_before_it(self) -> None:
        limiter = limiter_of(1)
        spend(limiter, 1)
        limiter.set_waiting("a", FRESH, START)
        assert limiter.admit("a", FRESH, START) is None
        resume = limiter.next_admission("a", FRESH, START, 0.5)
        assert limiter.next_admission("a", FRESH, START, 0.1) == resume
        assert limiter.admit("a", FRESH, resume - SECOND) is None
        assert limiter.next_admission("a", FRESH, resume - SECOND, 0.0) == resume
        assert limiter.admit("a", FRESH, resume - 1) is None
        assert limiter.admit("a", FRESH, resume) == EPOCH + 1

    def test_a_time_given_for_an_epoch_means_nothing_in_a_later_one(self) -> None:
        limiter = limiter_of(1)
        spend(limiter, 1)
        limiter.set_waiting("a", FRESH, START)
        limiter.next_admission("a", FRESH, START, 0.9)
        assert limiter.admit("a", FRESH, END + PERIOD) == EPOCH + 2


class TestLedger:
    def test_what_was_persisted_is_used_up(self) -> None:
        limiter = limiter_of(10, restored=LedgerRecord(scope="node", epoch=EPOCH, used=8))
        assert limiter.remaining(START) == 2
        limiter.admit("a", SYNC, START)
        assert limiter.record() == LedgerRecord(scope="node", epoch=EPOCH, used=9, in_flight=1)

    def test_what_was_persisted_in_an_earlier_epoch_is_over(self) -> None:
        limiter = limiter_of(10, restored=LedgerRecord(scope="node", epoch=EPOCH - 1, used=10))
        assert limiter.remaining(START) == 10

    def test_a_persisted_epoch_ahead_of_the_clock_goes_on(self) -> None:
        limiter = limiter_of(10, restored=LedgerRecord(scope="node", epoch=EPOCH + 1, used=9))
        assert limiter.admit("a", SYNC, START) == EPOCH + 1
        assert limiter.admit("a", SYNC, START) is None

    def test_a_ledger_of_another_scope_is_refused(self) -> None:
        with pytest.raises(ValueError, match="'channel:x' given for 'node'"):
            limiter_of(restored=LedgerRecord(scope="channel:x", epoch=1, used=1))

    def test_a_confirmation_in_its_own_epoch_changes_nothing(self) -> None:
        limiter = limiter_of()
        epoch = limiter.admit("a", FRESH, START)
        assert epoch is not None
        assert not limiter.confirm(epoch, END - 1)
        assert limiter.used == 1
        assert limiter.remaining(END) == 100

    def test_a_confirmation_after_the_boundary_counts_in_both_epochs(self) -> None:
        limiter = limiter_of()
        epoch = limiter.admit("a", FRESH, START)
        assert epoch is not None
        assert limiter.record().used == 1
        assert limiter.confirm(epoch, END)
        assert limiter.record() == LedgerRecord(scope="node", epoch=EPOCH + 1, used=1)
        assert limiter.remaining(END) == 99

    def test_open_outcomes_are_held_against_the_new_epoch(self) -> None:
        limiter = limiter_of(10)
        assert drain(limiter, "a", SYNC) == 10
        for _ in range(4):
            limiter.confirm(EPOCH, START)
        assert limiter.remaining(END) == 4
        assert drain(limiter, "a", SYNC, END) == 4
        for _ in range(3):
            assert limiter.confirm(EPOCH, END)
        limiter.release(EPOCH)
        limiter.release(EPOCH)
        assert drain(limiter, "a", SYNC, END) == 2
        assert limiter.used == 9

    def test_a_lost_report_costs_one_later_epoch_at_most(self) -> None:
        limiter = limiter_of(10)
        drain(limiter, "a", SYNC)
        assert limiter.remaining(END) == 0
        assert limiter.remaining(END + PERIOD) == 10

    def test_what_was_open_when_the_process_died_is_held_against_the_next_epoch(self) -> None:
        before = limiter_of(10)
        assert drain(before, "a", SYNC) == 10
        for _ in range(4):
            before.confirm(EPOCH, START)
        limiter = limiter_of(10, restored=before.record())
        assert limiter.remaining(END) == 4
        assert limiter.remaining(END + PERIOD) == 10

    def test_what_was_open_when_the_process_died_costs_no_later_epoch_than_the_next(self) -> None:
        before = limiter_of(10)
        drain(before, "a", SYNC)
        assert limiter_of(10, restored=before.record()).remaining(END) == 0
        assert limiter_of(10, restored=before.record()).remaining(END + PERIOD) == 10
        absorbed = limiter_of(10)
        absorbed.absorb(before.record())
        assert absorbed.remaining(END + PERIOD) == 10

    def test_what_is_open_here_is_held_after_any_silence(self) -> None:
        """Unlike what a dead process left open it can still be reported, and counts then."""
        before = limiter_of(10)
        spend(before, 1)
        before.admit("a", SYNC, START)
        limiter = limiter_of(10, restored=before.record())
        ours = limiter.admit("a", SYNC, START)
        assert ours == EPOCH
        assert limiter.remaining(END + PERIOD) == 9
        assert limiter.confirm(ours, END + PERIOD)
        assert limiter.remaining(END + PERIOD) == 9
        assert limiter.admit("a", SYNC, END + PERIOD) == EPOCH + 2
        assert limiter.remaining(END + 5 * PERIOD) == 9

    def test_a_later_epoch_of_another_store_is_held_for_like_one_of_the_clock(self) -> None:
        before = limiter_of(10)
        before.admit("a", SYNC, START)
        for later, left in ((1, 7), (2, 8)):
            limiter = limiter_of(10, restored=before.record())
            assert limiter.admit("a", SYNC, START) == EPOCH
            limiter.absorb(LedgerRecord(scope="node", epoch=EPOCH + later, used=1))
            assert limiter.remaining(START + later * PERIOD) == left

    def test_what_was_held_when_the_process_died_still_is(self) -> None:
        before = limiter_of(10)
        drain(before, "a", SYNC)
        for _ in range(4):
            before.confirm(EPOCH, START)
        assert before.admit("a", SYNC, END) == EPOCH + 1
        limiter = limiter_of(10, restored=before.record())
        assert limiter.remaining(END) == 3
        assert limiter.remaining(END + PERIOD) == 9

    def test_a_process_that_ended_well_costs_nothing(self) -> None:
        before = limiter_of(10)
        drain(before, "a", SYNC)
        for _ in range(10):
            before.confirm(EPOCH, START)
        assert limiter_of(10, restored=before.record()).remaining(END) == 10

    def test_what_another_store_says_is_open_may_be(self) -> None:
        limiter = limiter_of(10)
        assert limiter.admit("a", SYNC, START) == EPOCH
        limiter.absorb(LedgerRecord(scope="node", epoch=EPOCH, used=1, in_flight=9))
        assert limiter.record().in_flight == 1
        limiter.absorb(LedgerRecord(scope="node", epoch=EPOCH, used=5, in_flight=2, held=1))
        assert limiter.remaining(START) == 4
        assert limiter.remaining(END) == 7

    def test_what_another_store_says_of_a_later_epoch(self) -> None:
        limiter = limiter_of(10)
        assert limiter.admit("a", SYNC, START) == EPOCH
        limiter.absorb(LedgerRecord(scope="node", epoch=EPOCH + 1, used=2, in_flight=1, held=1))
        assert limiter.remaining(END) == 6
        limiter.release(EPOCH)
        assert limiter.remaining(END) == 7
        assert limiter.remaining(END + PERIOD) == 9

    def test_an_overshoot_by_a_very_late_confirmation_leaves_nothing(self) -> None:
        limiter = limiter_of(2)
        late = limiter.admit("a", FRESH, START)
        assert late is not None
        limiter.remaining(END)
        now = END + PERIOD
        spend(limiter, 2, now)
        assert limiter.confirm(late, now)
        assert (limiter.used, limiter.remaining(now)) == (3, 0)
        assert limiter.admit("a", SYNC, now) is None
        assert limiter.remaining(now + PERIOD) == 2

    def test_more_reports_than_transmissions_free_nothing(self) -> None:
        limiter = limiter_of(3)
        limiter.admit("a", FRESH, START)
        limiter.release(EPOCH)
        limiter.release(EPOCH)
        limiter.release(EPOCH - 7)
        assert limiter.remaining(START) == 2
        assert limiter.remaining(END) == 3
        limiter.release(EPOCH)
        assert limiter.remaining(END) == 3


class TestShares:
    """While they have something waiting, a tenth is kept for syncs, a fifth for repairs."""

    @pytest.mark.parametrize(
        ("waiting", "fresh"),
        [
            ([], 99),
            ([SYNC], 90),
            ([REPAIR], 79),
            ([ANSWER], 89),
            ([REPAIR, ANSWER], 79),
            ([SYNC, REPAIR], 70),
            ([SYNC, REPAIR, ANSWER, PARITY], 70),
            ([PARITY], 99),
        ],
    )
    def test_fresh_data_takes_the_rest(self, waiting: list[TrafficClass], fresh: int) -> None:
        limiter = limiter_of()
        for traffic in waiting:
            limiter.set_waiting("other", traffic, START)
        limiter.set_waiting("a", FRESH, START)
        assert drain(limiter, "a", FRESH) == fresh

    @pytest.mark.parametrize(
        ("messages", "sync", "repair"),
        [(4, 1, 1), (9, 1, 1), (10, 1, 2), (19, 1, 3), (20, 2, 4), (100, 10, 20), (1000, 100, 200)],
    )
    def test_each_class_gets_its_share_when_all_wait(
        self, messages: int, sync: int, repair: int
    ) -> None:
        limiter = limiter_of(messages)
        for traffic in TrafficClass:
            limiter.set_waiting("a", traffic, START)
        assert drain(limiter, "a", SYNC) == sync
        limiter.set_waiting("a", SYNC, None)
        taken = drain(limiter, "a", REPAIR) + drain(limiter, "a", ANSWER)
        taken += drain(limiter, "a", REPAIR)
        assert taken == repair
        assert drain(limiter, "a", FRESH) == messages - sync - repair

    @pytest.mark.parametrize(("traffic", "count"), [(SYNC, 100), (REPAIR, 99), (FRESH, 99)])
    def test_a_share_that_nobody_waits_for_is_free_to_the_others(
        self, traffic: TrafficClass, count: int
    ) -> None:
        assert drain(limiter_of(), "a", traffic) == count

    def test_one_sync_can_go_out_although_none_was_waiting(self) -> None:
        limiter = limiter_of(10)
        assert drain(limiter, "a", FRESH) == 9
        assert limiter.admit("a", SYNC, START) == EPOCH
        assert drain(limiter_of(9), "a", FRESH) == 9

    def test_none_is_kept_once_the_syncs_have_used_their_share(self) -> None:
        limiter = limiter_of(10)
        limiter.admit("a", SYNC, START)
        assert drain(limiter, "a", FRESH) == 9

    def test_a_class_beyond_its_share_leaves_the_shares_of_the_others(self) -> None:
        limiter = limiter_of()
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", REPAIR, START)
        assert drain(limiter, "a", SYNC) == 10
        limiter.set_waiting("a", REPAIR, None)
        assert drain(limiter, "a", SYNC) == 20

    def test_where_shares_cannot_all_be_met_syncs_go_before_repairs(self) -> None:
        limiter = limiter_of()
        assert drain(limiter, "a", FRESH) == 99
        limiter.set_waiting("a", REPAIR, START)
        limiter.set_waiting("a", SYNC, START)
        assert limiter.admit("a", REPAIR, START) is None
        assert limiter.admit("a", SYNC, START) == EPOCH

    def test_where_shares_cannot_all_be_met_repairs_go_before_fresh_data(self) -> None:
        limiter = limiter_of()
        assert drain(limiter, "a", SYNC) == 100 - drain(limiter, "b", FRESH) == 100
        limiter = limiter_of()
        for _ in range(80):
            limiter.admit("a", SYNC, START)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", REPAIR, START)
        assert limiter.admit("a", FRESH, START) is None
        assert drain(limiter, "a", REPAIR) == 20

    @pytest.mark.parametrize(("messages", "answers"), [(1, 1), (4, 1), (19, 1), (20, 2), (100, 10)])
    def test_repair_answers_use_at_most_half_of_their_share(
        self, messages: int, answers: int
    ) -> None:
        limiter = limiter_of(messages)
        assert drain(limiter, "a", ANSWER) == answers
        if messages > 1:
            assert limiter.next_admission("a", ANSWER, START, 0.0) == END

    def test_within_the_repair_share_the_longer_waiting_kind_keeps_one(self) -> None:
        limiter = limiter_of(5)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", SYNC, START)
        limiter.set_waiting("a", ANSWER, START)
        limiter.admit("a", FRESH, START + 1)
        limiter.set_waiting("a", REPAIR, START + 2)
        assert limiter.admit("a", REPAIR, START + 3) is None
        assert limiter.admit("a", ANSWER, START + 3) == EPOCH

    def test_what_the_longer_waiting_kind_keeps_is_of_their_share(self) -> None:
        """Of anything else, fresh data could leave it nothing; until all have come back."""
        limiter = limiter_of(9)
        limiter.set_waiting("a", ANSWER, START)
        limiter.set_waiting("b", REPAIR, START + 1)
        limiter.set_waiting("c", FRESH, START + 1)
        assert limiter.admit("b", REPAIR, START + 2) is None
        assert drain(limiter, "c", FRESH, START + 2) == 8
        assert limiter.admit("a", ANSWER, START + 2) == EPOCH

    def test_the_longer_waiting_kind_keeps_one_of_anything_once_all_have_come_back(self) -> None:
        limiter = limiter_of(9)
        now = START + LARGEST_SPREAD
        limiter.set_waiting("a", ANSWER, now)
        limiter.set_waiting("b", REPAIR, now + 1)
        limiter.set_waiting("c", SYNC, now + 1)
        assert drain(limiter, "b", REPAIR, now + 2) == 7

    def test_answers_that_reached_their_limit_hold_nobody_back(self) -> None:
        limiter = limiter_of(10)
        limiter.set_waiting("a", ANSWER, START)
        assert drain(limiter, "a", ANSWER) == 1
        limiter.set_waiting("a", REPAIR, START)
        assert limiter.admit("a", REPAIR, START) == EPOCH
        limiter.set_waiting("a", REPAIR, None)
        assert drain(limiter, "a", FRESH) == 7

    def test_answers_that_reached_their_limit_keep_nothing_of_the_repair_share(self) -> None:
        limiter = limiter_of(20)
        for traffic in (SYNC, REPAIR, ANSWER, FRESH):
            limiter.set_waiting("a", traffic, START)
        assert drain(limiter, "a", ANSWER) == 2
        assert drain(limiter, "a", REPAIR) == 2

    def test_parity_goes_only_after_fresh_data(self) -> None:
        limiter = limiter_of()
        limiter.set_waiting("a", PARITY, START)
        limiter.set_waiting("b", FRESH, START)
        assert limiter.admit("a", PARITY, START) is None
        limiter.set_waiting("b", FRESH, None)
        assert drain(limiter, "a", PARITY) == 99

    def test_parity_leaves_the_shares_of_syncs_and_repairs(self) -> None:
        limiter = limiter_of()
        limiter.set_waiting("a", SYNC, START)
        limiter.set_waiting("a", REPAIR, START)
        assert drain(limiter, "a", PARITY) == 70

    def test_what_no_class_accounts_for_comes_out_of_the_fresh_share(self) -> None:
        limiter = limiter_of(restored=LedgerRecord(scope="node", epoch=EPOCH, used=65))
        for traffic in (SYNC, REPAIR, FRESH):
            limiter.set_waiting("a", traffic, START)
        assert drain(limiter, "a", FRESH) == 5
        assert drain(limiter, "a", REPAIR) == 20
        assert drain(limiter, "a", SYNC) == 10

    def test_syncs_may_take_all_but_what_is_left_of_the_fresh_share(self) -> None:
        limiter = limiter_of(restored=LedgerRecord(scope="node", epoch=EPOCH, used=50))
        limiter.set_waiting("a", FRESH, START)
        assert drain(limiter, "a", SYNC) == 30
        limiter = limiter_of()
        for _ in range(50):
            limiter.admit("a", SYNC, START)
        limiter.set_waiting("a", FRESH, END)
        assert drain(limiter, "a", SYNC, END) == 30


class TestFewMessages:
    """Below 4 messages an epoch the longest-waiting class goes first."""

    @pytest.mark.parametrize("messages", [1, 2, 3])
    def test_the_longest_waiting_class_goes_first(self, messages: int) -> None:
        limiter = limiter_of(messages)
        spend(limiter, messages - 1)
        limiter.set_waiting("a", FRESH, START + 1)
        limiter.set_waiting("b", SYNC, START + 2)
        limiter.set_waiting("a", REPAIR, START + 3)
        assert limiter.admit("b", SYNC, START + 4) is None
        assert limiter.admit("a", REPAIR, START + 4) is None
        assert limiter.admit("a", FRESH, START + 4) == EPOCH

    def test_classes_that_wait_equally_long_take_turns_at_one_instant(self) -> None:
        limiter = limiter_of(3)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", SYNC, START)
        assert drain(limiter, "a", SYNC) == 2
        assert drain(limiter, "a", FRESH) == 1

    def test_of_classes_that_wait_equally_long_the_more_urgent_goes_first(self) -> None:
        limiter = limiter_of(1)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", SYNC, START)
        assert limiter.admit("a", FRESH, START) is None
        assert limiter.admit("a", SYNC, START) == EPOCH

    def test_a_class_that_has_nothing_waiting_goes_last(self) -> None:
        limiter = limiter_of(1)
        limiter.set_waiting("a", SYNC, START)
        limiter.set_waiting("a", SYNC, None)
        limiter.set_waiting("a", FRESH, START + SECOND)
        assert limiter.admit("a", SYNC, START + 2 * SECOND) is None
        assert limiter.admit("a", FRESH, START + 2 * SECOND) == EPOCH

    def test_a_class_that_was_served_waits_anew(self) -> None:
        limiter = limiter_of(3)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", SYNC, START + 1)
        assert limiter.admit("a", FRESH, START + 2) == EPOCH
        assert limiter.admit("a", FRESH, START + 2) == EPOCH
        assert limiter.admit("a", FRESH, START + 2) is None
        assert limiter.admit("a", SYNC, START + 2) == EPOCH

    def test_joining_again_with_an_old_time_does_not_overtake(self) -> None:
        limiter = limiter_of(2)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", SYNC, START + SECOND)
        assert limiter.admit("a", FRESH, START + 2 * SECOND) == EPOCH
        limiter.set_waiting("a", FRESH, None)
        limiter.set_waiting("a", FRESH, START)
        assert limiter.admit("a", FRESH, START + 3 * SECOND) is None
        assert limiter.admit("a", SYNC, START + 3 * SECOND) == EPOCH

    def test_a_class_has_waited_as_long_as_those_of_it_who_were_told_to_come_back(self) -> None:
        limiter = limiter_of(1)
        spend(limiter, 1)
        for second, (client, traffic) in enumerate([("a", FRESH), ("a", SYNC)]):
            limiter.set_waiting(client, traffic, START + second * SECOND)
            limiter.next_admission(client, traffic, START + second * SECOND, 0.5)
        limiter.remaining(START + 100 * SECOND)
        limiter.set_waiting("b", FRESH, START + 100 * SECOND)
        limiter.next_admission("b", FRESH, START + 100 * SECOND, 0.5)
        now = END + LARGEST_SPREAD
        assert limiter.admit("a", SYNC, now) is None
        assert limiter.admit("b", FRESH, now) == EPOCH + 1

    def test_classes_alternate_over_epochs(self) -> None:
        limiter = limiter_of(1)
        order = []
        for traffic in (SYNC, REPAIR, ANSWER, FRESH):
            limiter.set_waiting("a", traffic, START)
        for index in range(8):
            now = START + index * PERIOD
            for traffic in (SYNC, REPAIR, ANSWER, FRESH):
                epoch = limiter.admit("a", traffic, now + 40 * SECOND)
                limiter.next_admission("a", traffic, now + 40 * SECOND, 0.1)
                if epoch is not None:
                    order.append(traffic)
                    limiter.confirm(epoch, now + 40 * SECOND)
            # Everybody falls silent until the next epoch, as told.
            limiter.remaining(now + PERIOD // 2)
        assert order == [SYNC, REPAIR, ANSWER, FRESH] * 2

    def test_parity_that_waits_behind_fresh_data_holds_nobody_back(self) -> None:
        limiter = limiter_of(2)
        limiter.set_waiting("a", PARITY, START)
        limiter.set_waiting("b", FRESH, START + 1)
        assert drain(limiter, "b", FRESH, START + 2) == 2

    def test_a_waiting_time_yet_to_come_does_not_hold_a_class_back(self) -> None:
        """The clock was set back after the time was read."""
        limiter = limiter_of(2)
        limiter.remaining(START)
        limiter.set_waiting("a", SYNC, START + 10 * PERIOD)
        assert limiter.admit("b", FRESH, START + 1) == EPOCH
        limiter.set_waiting("b", FRESH, START + 2)
        assert limiter.admit("b", FRESH, START + 3) is None
        assert limiter.admit("a", SYNC, START + 3) == EPOCH


class TestClients:
    @pytest.mark.parametrize("clients", [2, 3, 7])
    def test_clients_that_all_wait_get_equal_parts(self, clients: int) -> None:
        limiter = limiter_of()
        names = [f"c{index}" for index in range(clients)]
        for name in names:
            limiter.set_waiting(name, FRESH, START)
        counts = [drain(limiter, name, FRESH) for name in names]
        assert max(counts) - min(counts) <= 1
        assert sum(counts) == 99

    def test_a_client_may_use_what_others_no_longer_wait_for(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("b", FRESH, START)
        assert drain(limiter, "a", FRESH) == 5
        limiter.set_waiting("b", FRESH, None)
        assert drain(limiter, "a", FRESH) == 4

    def test_a_client_runs_ahead_on_its_class_share_alone_until_all_have_come_back(self) -> None:
        """Else another class takes what was left for those who come last."""
        limiter = limiter_of(29)
        for client, traffic in [("a", REPAIR), ("b", REPAIR), ("c", SYNC)]:
            limiter.set_waiting(client, traffic, START)
        assert drain(limiter, "a", REPAIR) == 3
        assert drain(limiter, "a", REPAIR, START + LARGEST_SPREAD - SECOND) == 0
        assert drain(limiter, "c", SYNC, START + LARGEST_SPREAD - SECOND) == 24
        assert drain(limiter, "b", REPAIR, START + LARGEST_SPREAD - SECOND) == 2

    def test_a_client_runs_ahead_on_all_that_is_left_once_all_have_come_back(self) -> None:
        limiter = limiter_of(29)
        for client, traffic in [("a", REPAIR), ("b", REPAIR), ("c", SYNC)]:
            limiter.set_waiting(client, traffic, START)
        assert drain(limiter, "a", REPAIR, START + LARGEST_SPREAD) == 14

    def test_a_client_runs_ahead_on_all_that_is_left_where_no_other_class_waits(self) -> None:
        limiter = limiter_of(29)
        limiter.set_waiting("a", REPAIR, START)
        limiter.set_waiting("b", REPAIR, START)
        assert drain(limiter, "a", REPAIR) == 14

    def test_a_newcomer_is_owed_nothing_for_the_past(self) -> None:
        limiter = limiter_of()
        limiter.set_waiting("a", FRESH, START)
        for _ in range(60):
            limiter.admit("a", FRESH, START)
        limiter.set_waiting("b", FRESH, START)
        assert abs(drain(limiter, "a", FRESH) - drain(limiter, "b", FRESH)) <= 1

    def test_leaving_and_joining_again_does_not_overtake(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("b", FRESH, START)
        taken = 0
        for _ in range(9):
            limiter.set_waiting("a", FRESH, START)
            taken += limiter.admit("a", FRESH, START) is not None
            limiter.set_waiting("a", FRESH, None)
        assert taken == 5
        assert drain(limiter, "b", FRESH) == 4

    def test_a_client_that_does_not_say_it_waits_takes_turns_too(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("b", FRESH, START)
        assert drain(limiter, "a", FRESH) == 5
        assert drain(limiter, "b", FRESH) == 4

    def test_a_budget_smaller_than_the_clients_goes_round(self) -> None:
        limiter = limiter_of(2)
        names = [f"c{index}" for index in range(6)]
        for name in names:
            limiter.set_waiting(name, FRESH, START)
        served = []
        for index in range(3):
            now = START + index * PERIOD + 40 * SECOND
            for name in names:
                if limiter.admit(name, FRESH, now) is not None:
                    served.append(name)
                    limiter.release(limiter.epoch)
                limiter.next_admission(name, FRESH, now, 0.9)
        assert served == names

    def test_what_a_silent_client_does_not_take_up_is_not_lost(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("b", FRESH, START)
        taken, asked, now = 0, 0, START
        while now < END:
            asked += 1
            taken += drain(limiter, "a", FRESH, now)
            now = limiter.next_admission("a", FRESH, now, 0.0)
        assert taken == 9
        assert asked < 15

    def test_a_share_that_a_silent_class_does_not_take_up_is_not_lost(self) -> None:
        limiter = limiter_of()
        limiter.set_waiting("b", REPAIR, START)
        assert drain(limiter, "a", FRESH) == 79
        assert drain(limiter, "a", FRESH, START + 70 * SECOND) == 20

    def test_a_silent_client_that_asks_again_gets_its_turn(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("b", FRESH, START)
        now = START + 70 * SECOND
        assert limiter.admit("a", FRESH, now) == EPOCH
        assert limiter.would_admit("b", FRESH, now)
        taken = drain(limiter, "a", FRESH, now)
        assert 1 + taken + drain(limiter, "b", FRESH, now) == 9
        assert taken == 4

    def test_a_silent_client_is_owed_nothing_for_its_silence(self) -> None:
        limiter = limiter_of(20)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("b", FRESH, START)
        now = START + 70 * SECOND
        taken = [limiter.admit("a", FRESH, now) for _ in range(13)]
        assert None not in taken
        assert limiter.would_admit("b", FRESH, now)
        assert drain(limiter, "a", FRESH, now) == 3
        assert drain(limiter, "b", FRESH, now) == 3

    def test_a_clock_that_is_set_back_does_not_prolong_what_is_kept(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("a", FRESH, START + 70 * SECOND)
        limiter.set_waiting("b", FRESH, START + 70 * SECOND)
        assert drain(limiter, "a", FRESH, START + 70 * SECOND) == 5
        assert drain(limiter, "a", FRESH, START + 5 * SECOND) == 0
        assert drain(limiter, "a", FRESH, START + 40 * SECOND) == 4

    def test_a_client_that_was_told_to_come_back_is_kept_its_turn(self) -> None:
        """However long it is silent until then."""
        limiter = limiter_of(9)
        spend(limiter, 9)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("b", FRESH, START)
        resume = [limiter.next_admission(name, FRESH, START, 0.5) for name in "ab"]
        assert resume == [END + LARGEST_SPREAD // 2] * 2
        limiter.remaining(END - SECOND)
        assert drain(limiter, "b", FRESH, resume[0]) == 5
        assert drain(limiter, "a", FRESH, resume[0]) == 4

    def test_a_dropped_client_holds_nothing_back(self) -> None:
        limiter = limiter_of(9)
        for traffic in TrafficClass:
            limiter.set_waiting("b", traffic, START)
        limiter.drop_client("b")
        limiter.drop_client("unknown")
        assert drain(limiter, "a", FRESH) == 9

    def test_saying_again_that_it_waits_keeps_nothing_for_a_silent_client(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("b", FRESH, START)
        limiter.remaining(START)
        for second in range(70):
            limiter.set_waiting("b", FRESH, START + second * SECOND)
        assert drain(limiter, "a", FRESH, START + 70 * SECOND) == 9

    def test_nothing_is_remembered_of_clients_that_are_gone(self) -> None:
        limiter = limiter_of(1000)
        for index in range(50):
            limiter.admit(f"c{index}", FRESH, START)
        limiter.admit("a", FRESH, END)
        line = limiter._lines[FRESH]
        assert set(line._absent_levels) <= {f"c{index}" for index in range(50)} | {"a"}
        limiter.admit("a", FRESH, END)
        limiter.remaining(END + PERIOD)
        assert set(line._absent_levels) == {"a"}


class TestNextAdmission:
    def test_asking_again_at_once_makes_sense_when_nothing_is_in_the_way(self) -> None:
        assert limiter_of().next_admission("a", FRESH, START, 0.5) == START + SMALLEST_STEP

    def test_a_client_that_others_hold_back_asks_again_in_steps(self) -> None:
        limiter = limiter_of(9)
        limiter.set_waiting("b", FRESH, START)
        drain(limiter, "a", FRESH)
        assert limiter.next_admission("a", FRESH, START, 0.5) == START + 6 * SECOND

    def test_steps_do_not_lead_into_the_end_of_an_epoch(self) -> None:
        limiter = limiter_of(9)
        now = END - 7 * SECOND
        limiter.set_waiting("b", FRESH, now)
        drain(limiter, "a", FRESH, now)
        assert limiter.next_admission("a", FRESH, now, 0.0) == END

    def test_what_is_kept_although_nobody_waits_is_not_asked_for_again(self) -> None:
        limiter = limiter_of(10)
        assert drain(limiter, "a", FRESH) == 9
        assert limiter.next_admission("a", FRESH, START, 0.0) == END

    def test_a_budget_held_for_open_outcomes_may_come_free_within_the_epoch(self) -> None:
        limiter = limiter_of(1)
        limiter.admit("a", FRESH, START)
        assert limiter.admit("a", FRESH, END) is None
        assert limiter.next_admission("a", FRESH, END, 0.0) == END + 6 * SECOND
        limiter.release(EPOCH)
        assert limiter.admit("a", FRESH, END + 6 * SECOND) == EPOCH + 1


class TestExpectedAdmission:
    def test_it_is_now_while_there_is_budget(self) -> None:
        limiter = limiter_of()
        assert limiter.expected_admission(FRESH, START, 0) == START
        assert limiter.expected_admission(FRESH, START, 98) == START
        assert limiter.expected_admission(FRESH, END - 1, 0) == END
        disabled = EpochRateLimiter(RateLimitConfig())
        assert disabled.expected_admission(FRESH, START, 1000) == START

    @pytest.mark.parametrize(
        ("traffic", "ahead", "epochs"),
        [
            (FRESH, 0, 1),
            (FRESH, 69, 1),
            (FRESH, 70, 2),
            (PARITY, 140, 3),
            (SYNC, 9, 1),
            (SYNC, 10, 2),
            (REPAIR, 20, 2),
            (ANSWER, 10, 2),
        ],
    )
    def test_it_is_so_many_epochs_later_as_the_share_needs(
        self, traffic: TrafficClass, ahead: int, epochs: int
    ) -> None:
        limiter = limiter_of()
        drain(limiter, "a", SYNC)
        assert limiter.expected_admission(traffic, START, ahead) == START + epochs * PERIOD

    def test_it_counts_what_is_left_in_this_epoch(self) -> None:
        limiter = limiter_of()
        spend(limiter, 89)
        assert limiter.expected_admission(FRESH, START, 9) == START
        assert limiter.expected_admission(FRESH, START, 79) == END
        assert limiter.expected_admission(FRESH, START, 80) == END + PERIOD

    def test_it_divides_by_the_clients_that_wait(self) -> None:
        limiter = limiter_of()
        for name in "ab":
            limiter.set_waiting(name, FRESH, START)
        assert limiter.expected_admission(FRESH, START, 48) == START
        assert limiter.expected_admission(FRESH, START, 49 + 35) == END + PERIOD

    def test_few_messages_make_one_an_epoch(self) -> None:
        assert limiter_of(1).expected_admission(FRESH, START, 3) == START + 3 * PERIOD

    def test_asking_it_gives_no_time_to_come_back(self) -> None:
        limiter = limiter_of(1)
        spend(limiter, 1)
        limiter.set_waiting("a", FRESH, START)
        assert limiter.expected_admission(FRESH, START, 0) == END
        assert limiter.next_admission("a", FRESH, START, 0.5) == END + LARGEST_SPREAD // 2


class TestSyncSpacing:
    """A receiver near its limit spaces its syncs over the time left."""

    def test_there_is_none_while_more_than_half_is_left(self) -> None:
        limiter = limiter_of()
        spend(limiter, 49)
        assert limiter.sync_spacing(START) == 0

    def test_it_divides_the_time_left_by_the_syncs_left(self) -> None:
        limiter = limiter_of()
        spend(limiter, 50)
        assert limiter.sync_spacing(START) == 12 * SECOND
        assert limiter.sync_spacing(START + 300 * SECOND) == 6 * SECOND
        assert limiter.sync_spacing(END) == 0

    def test_it_counts_what_syncs_may_take_while_others_wait(self) -> None:
        limiter = limiter_of()
        spend(limiter, 70)
        limiter.set_waiting("a", FRESH, START)
        limiter.set_waiting("a", REPAIR, START)
        assert limiter.sync_spacing(START) == 60 * SECOND

    def test_it_is_shared_by_the_clients_that_have_one_waiting(self) -> None:
        limiter = limiter_of()
        spend(limiter, 50)
        for name in "abc":
            limiter.set_waiting(name, SYNC, START)
        assert limiter.sync_spacing(START) == 36 * SECOND

    def test_it_is_the_time_left_when_no_sync_is_left(self) -> None:
        limiter = limiter_of(3)
        spend(limiter, 3)
        assert limiter.sync_spacing(START + SECOND) == PERIOD - SECOND


class TestChannelBudget:
    def narrowing(
        self, node: EpochRateLimiter, messages: int, period: int = 600
    ) -> tuple[ChannelBudget, EpochRateLimiter]:
        config = RateLimitConfig(enabled=True, epoch_period_sec=period, messages_per_epoch=messages)
        own = EpochRateLimiter(config, scope="channel:a")
        return ChannelBudget(node, own, "a"), own

    def test_a_channel_without_limits_of_its_own_has_those_of_the_node(self) -> None:
        node = limiter_of(3)
        for left, own in [(2, None), (1, EpochRateLimiter(RateLimitConfig(messages_per_epoch=1)))]:
            budget = ChannelBudget(node, own, "a")
            assert budget.enabled
            assert budget.admit(FRESH, START) == Admission(EPOCH, 0)
            assert budget.records() == (node.record(),)
            assert budget.remaining(START) == left

    def test_a_channel_narrows_the_node(self) -> None:
        node = limiter_of(9)
        budget, own = self.narrowing(node, 2)
        assert budget.remaining(START) == 2
        assert [budget.admit(FRESH, START) for _ in range(3)] == [(EPOCH, EPOCH)] * 2 + [None]
        assert (node.used, own.used) == (2, 2)
        assert budget.next_admission(FRESH, START, 0.0) == END
        assert [record.scope for record in budget.records()] == ["node", "channel:a"]
        assert drain(node, "b", FRESH) == 7

    def test_what_the_node_refuses_is_not_counted_for_the_channel(self) -> None:
        node = limiter_of(1)
        budget, own = self.narrowing(node, 5)
        assert budget.admit(FRESH, START) == (EPOCH, EPOCH)
        assert budget.admit(FRESH, START) is None
        assert (node.used, own.used) == (1, 1)

    def test_a_channel_cannot_widen_the_node(self) -> None:
        node = limiter_of(3)
        budget, _ = self.narrowing(node, 1000)
        assert [budget.admit(FRESH, START) is None for _ in range(4)] == [False] * 3 + [True]

    def test_a_channel_limits_itself_where_the_node_does_not(self) -> None:
        node = EpochRateLimiter(RateLimitConfig())
        budget, own = self.narrowing(node, 1)
        assert budget.enabled
        assert budget.admit(FRESH, START) == Admission(0, EPOCH)
        assert budget.admit(FRESH, START) is None
        assert budget.records() == (own.record(),)

    def test_nothing_limits_where_neither_does(self) -> None:
        budget = ChannelBudget(EpochRateLimiter(RateLimitConfig()), None, "a")
        assert not budget.enabled
        assert budget.admit(FRESH, START) == Admission(0, 0)
        assert budget.remaining(START) is None
        assert budget.records() == ()
        assert budget.sync_spacing(START) == 0

    def test_periods_may_differ(self) -> None:
        node = limiter_of(3)
        budget, own = self.narrowing(node, 1, period=60)
        first = budget.admit(FRESH, START)
        assert first == Admission(EPOCH, EPOCH * 10)
        assert budget.next_admission(FRESH, START, 0.0) == START + 60 * SECOND
        assert budget.confirm(first, START + 60 * SECOND)
        assert (node.used, own.used) == (1, 1)
        assert budget.admit(FRESH, START + 60 * SECOND) is None
        assert budget.admit(FRESH, START + 120 * SECOND) == Admission(EPOCH, EPOCH * 10 + 2)

    def test_outcomes_reach_both_ledgers(self) -> None:
        node = limiter_of(3)
        budget, own = self.narrowing(node, 2)
        first, second = budget.admit(FRESH, START), budget.admit(FRESH, START)
        assert first is not None
        assert second is not None
        assert not budget.confirm(first, START)
        assert (node.remaining(END), own.remaining(END)) == (2, 1)
        budget.release(second)
        assert (node.remaining(END), own.remaining(END)) == (3, 2)
        assert budget.confirm(first, END)
        assert (node.used, own.used) == (1, 1)

    def test_a_closed_channel_holds_nobody_back(self) -> None:
        node = limiter_of(9)
        budget, _ = self.narrowing(node, 5)
        budget.set_waiting(FRESH, START)
        assert drain(node, "b", FRESH) == 5
        budget.close()
        assert drain(node, "b", FRESH) == 4

    def test_the_later_expectation_counts(self) -> None:
        budget, _ = self.narrowing(limiter_of(100), 10)
        assert budget.expected_admission(FRESH, START, 8) == START
        assert budget.expected_admission(FRESH, START, 9) == END

    def test_spacing_is_that_of_the_narrower_ledger(self) -> None:
        node = limiter_of(100)
        budget, _ = self.narrowing(node, 3)
        budget.admit(SYNC, START)
        assert budget.sync_spacing(START) == 0
        budget.admit(SYNC, START)
        assert budget.sync_spacing(START) == PERIOD
