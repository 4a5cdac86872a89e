"""Laws of the epoch ledger: never over the limit, nobody starves, nobody asks without end."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from reliable_channel.config import RateLimitConfig
from reliable_channel.core.rate_limit import (
    LARGEST_SPREAD,
    ChannelBudget,
    EpochRateLimiter,
    TrafficClass,
)
from reliable_channel.types import SECOND, Nanoseconds

SYNC, REPAIR, ANSWER, FRESH, PARITY = TrafficClass
BUDGETS = st.sampled_from([1, 2, 3, 4, 5, 9, 10, 11, 20, 100])
PERIODS = st.sampled_from([1, 7, 60, 600])
CLIENTS = st.sampled_from("abc")
CLASSES = st.sampled_from(list(TrafficClass))
FIRST_EPOCH = 10_000


def config_of(messages: int, period: int) -> RateLimitConfig:
    return RateLimitConfig(enabled=True, epoch_period_sec=period, messages_per_epoch=messages)


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of questions, reports, clock steps and restarts, against a simple count."""

    admitted = Bundle("admitted")

    @initialize(messages=BUDGETS, period=PERIODS)
    def start(self, messages: int, period: int) -> None:
        self.config = config_of(messages, period)
        self.period = period * SECOND
        self.now = FIRST_EPOCH * self.period
        self.limiter = EpochRateLimiter(self.config)
        self.process = 0
        self.counts: Counter[int] = Counter()
        self.excess: Counter[int] = Counter()
        self.epoch = 0
        self.held_epoch = -1

    @rule(client=CLIENTS, traffic=CLASSES, age=st.integers(-SECOND, 100 * SECOND))
    def begin_to_wait(self, client: str, traffic: TrafficClass, age: Nanoseconds) -> None:
        self.limiter.set_waiting(client, traffic, self.now - age)

    @rule(client=CLIENTS, traffic=CLASSES)
    def wait_no_more(self, client: str, traffic: TrafficClass) -> None:
        self.limiter.set_waiting(client, traffic, None)

    @rule(client=CLIENTS)
    def drop(self, client: str) -> None:
        self.limiter.drop_client(client)

    @rule(fraction=st.floats(0, 1))
    def clock_moves_on(self, fraction: float) -> None:
        self.now += int(fraction * self.period)

    @rule(epochs=st.integers(1, 3))
    def clock_moves_on_to_a_boundary(self, epochs: int) -> None:
        self.now = (self.now // self.period + epochs) * self.period

    @rule(periods=st.floats(0, 3))
    def clock_steps_back(self, periods: float) -> None:
        self.now -= int(periods * self.period)

    @rule(target=admitted, client=CLIENTS, traffic=CLASSES, tries=st.integers(1, 30))
    def transmit(
        self, client: str, traffic: TrafficClass, tries: int
    ) -> tuple[int, tuple[int, ...]]:
        epochs = []
        for _ in range(tries):
            would = self.limiter.would_admit(client, traffic, self.now)
            epoch = self.limiter.admit(client, traffic, self.now)
            assert would == (epoch is not None)
            self.follow()
            if epoch is None:
                assert self.limiter.next_admission(client, traffic, self.now, 0.5) > self.now
                break
            assert epoch == self.epoch
            self.counts[epoch] += 1
            # Nothing is dispatched in the last second, nor on top of an overshoot.
            guard = min(SECOND, self.period // 10)
            assert self.now % self.period < self.period - guard
            assert self.counts[epoch] <= self.config.messages_per_epoch
            epochs.append(epoch)
        return self.process, tuple(epochs)

    @rule(transmissions=consumes(admitted))
    def report(self, transmissions: tuple[int, tuple[int, ...]]) -> None:
        process, epochs = transmissions
        for epoch in epochs if process == self.process else ():
            changed = self.limiter.confirm(epoch, self.now)
            self.follow()
            assert changed == (epoch < self.epoch)
            if changed:
                self.counts[self.epoch] += 1
                # Only what was open for longer than an epoch may go over the limit.
                self.excess[self.epoch] += epoch != self.held_epoch

    @rule(transmissions=consumes(admitted))
    def report_failure(self, transmissions: tuple[int, tuple[int, ...]]) -> None:
        process, epochs = transmissions
        for epoch in epochs if process == self.process else ():
            self.limiter.release(epoch)

    @rule(transmissions=consumes(admitted))
    def lose_report(self, transmissions: tuple[int, tuple[int, ...]]) -> None:
        pass

    @rule()
    def restart(self) -> None:
        """Unconfirmed transmissions count as not made, but stay counted in the budget."""
        self.limiter = EpochRateLimiter(self.config, restored=self.limiter.record())
        self.process += 1

    @rule(client=CLIENTS, traffic=CLASSES, jitter=st.floats(0, 1, exclude_max=True))
    def ask_when(self, client: str, traffic: TrafficClass, jitter: float) -> None:
        when = self.limiter.next_admission(client, traffic, self.now, jitter)
        self.follow()
        assert self.now < when
        assert when <= self.limiter.epoch_end(self.now) + min(LARGEST_SPREAD, self.period // 10)
        assert self.limiter.next_admission(client, traffic, self.now, jitter) == when

    @rule()
    def read(self) -> None:
        remaining = self.limiter.remaining(self.now)
        spacing = self.limiter.sync_spacing(self.now)
        self.follow()
        limit = self.config.messages_per_epoch
        assert 0 <= remaining <= max(0, limit - self.counts[self.epoch])
        assert 0 <= spacing <= self.limiter.epoch_end(self.now) - self.now
        assert self.limiter.epoch_end(self.now) > self.now

    @precondition(lambda self: hasattr(self, "limiter"))
    @invariant()
    def no_epoch_has_more_than_its_limit(self) -> None:
        assert self.limiter.used == self.counts[self.limiter.epoch]
        for epoch, count in self.counts.items():
            assert count <= self.config.messages_per_epoch + self.excess[epoch]

    def follow(self) -> None:
        """Take note of a new epoch of the ledger."""
        assert self.limiter.epoch == max(self.epoch, self.now // self.period)
        if self.limiter.epoch > self.epoch:
            self.held_epoch, self.epoch = self.epoch, self.limiter.epoch


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=150, stateful_step_count=40)


class Contest:
    """Clients that always have more to send and ask when they are told to, in virtual time.

    Args:
        config: The budget that they contend for.
        entrants: Who contends with what.
        seed: Of their jitter, of the order in which they come, and of the wall clock's steps.
        steps: How far the wall clock steps, forth or back, at random moments; in periods.
    """

    def __init__(
        self,
        config: RateLimitConfig,
        entrants: list[tuple[str, TrafficClass]],
        seed: int,
        steps: tuple[float, ...] = (),
    ) -> None:
        self.limiter = EpochRateLimiter(config)
        self.period = config.epoch_period_sec * SECOND
        self.entrants = entrants
        self.random = random.Random(seed)
        self.served: Counter[tuple[str, TrafficClass]] = Counter()
        self.asked = 0
        self.steps = steps

    def run(self, epochs: int) -> None:
        start = FIRST_EPOCH * self.period
        end = start + epochs * self.period
        moments = sorted(self.random.randrange(start, end) for _ in self.steps)
        steps = list(zip(moments, self.steps, strict=True))
        skew = 0
        queue = [(start, self.random.random(), entrant) for entrant in self.entrants]
        heapq.heapify(queue)
        for client, traffic in self.entrants:
            self.limiter.set_waiting(client, traffic, start)
        while queue[0][0] < end:
            time, _, entrant = heapq.heappop(queue)
            while steps and steps[0][0] <= time:
                skew += int(steps.pop(0)[1] * self.period)
            again = self.ask(entrant, time + skew) - skew
            heapq.heappush(queue, (again, self.random.random(), entrant))

    def ask(self, entrant: tuple[str, TrafficClass], now: Nanoseconds) -> Nanoseconds:
        """Ask once; return the wall time of the next question."""
        self.asked += 1
        epoch = self.limiter.admit(*entrant, now)
        if epoch is None:
            return self.limiter.next_admission(*entrant, now, self.random.random())
        self.limiter.confirm(epoch, now)
        self.served[entrant] += 1
        return now


ENTRANTS = st.lists(
    st.tuples(
        st.sampled_from([f"c{index}" for index in range(6)]),
        st.sampled_from([SYNC, REPAIR, ANSWER, FRESH]),
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


ONCE_STARVED = [
    (9, 60, "c0:REPAIR c1:REPAIR c0:SYNC c1:SYNC", 203142670092632096768),
    (8, 7, "c5:FRESH c0:ANSWER c5:REPAIR", 17328366598197903954),
    (28, 1, "c4:FRESH c3:ANSWER c4:REPAIR", 5796493502238178176),
    (7, 60, "c5:REPAIR c5:SYNC c4:ANSWER", 3731747229799168691),
    (6, 1, "c4:ANSWER c5:REPAIR c5:SYNC", 1131145883505445465),
    (4, 600, "c2:FRESH c3:ANSWER c0:REPAIR", 6019376514869928288),
    (4, 600, "c4:SYNC c5:REPAIR c5:ANSWER c2:REPAIR c3:SYNC c3:ANSWER", 3161471176634593625),
    (4, 1, "c1:FRESH c3:REPAIR c2:ANSWER c1:REPAIR c4:REPAIR c5:FRESH", 1177282952441379708),
    (4, 600, "c4:ANSWER c1:REPAIR c1:SYNC", 10410226729558722569),
    (7, 600, "c5:SYNC c3:REPAIR c5:ANSWER", 6371121264843842797),
    (8, 7, "c2:FRESH c4:REPAIR c0:ANSWER", 10659216679925243383),
    (8, 600, "c0:REPAIR c2:SYNC c0:ANSWER", 10708659862219702776),
    (9, 60, "c1:REPAIR c2:ANSWER c2:FRESH", 7582923646915820947),
    (5, 7, "c1:SYNC c0:ANSWER c0:REPAIR", 5266936272752739753),
    (9, 1, "c1:SYNC c2:ANSWER c2:REPAIR", 18219395800164891956),
    (13, 7, "c1:SYNC c1:REPAIR c0:ANSWER", 11886470529836057851),
    (6, 60, "c0:SYNC c2:REPAIR c0:ANSWER", 7928189673558978617),
    (6, 1, "c1:ANSWER c0:REPAIR c2:FRESH", 10565107390451669860),
    (8, 600, "c2:REPAIR c0:REPAIR c0:ANSWER c2:ANSWER c0:SYNC", 8331124833789288476),
    (11, 7, "c1:REPAIR c0:ANSWER c1:SYNC", 13907238432487727232),
    (7, 7, "c1:ANSWER c1:SYNC c1:REPAIR", 10534618559543934877),
    (4, 60, "c2:ANSWER c2:SYNC c2:REPAIR", 5833210999313546177),
    (5, 600, "c0:SYNC c1:REPAIR c2:ANSWER", 9205695630100002000),
    (8, 7, "c0:FRESH c1:REPAIR c1:ANSWER c0:REPAIR", 10781607574227981856),
    (11, 600, "c0:REPAIR c2:SYNC c1:SYNC", 4778739470688008520),
    (5, 1, "c2:ANSWER c0:REPAIR c2:SYNC", 14690295433807784017),
    (14, 60, "c2:SYNC c1:ANSWER c0:ANSWER c2:REPAIR c0:REPAIR", 4875290921413186074),
    (6, 60, "c1:ANSWER c0:FRESH c0:REPAIR", 12886322774987604024),
    (6, 60, "c2:REPAIR c0:REPAIR c2:ANSWER c2:FRESH", 9793762285318823891),
    (5, 1, "c1:REPAIR c2:FRESH c2:ANSWER", 8493525209268621405),
    (4, 600, "c2:FRESH c2:ANSWER c1:REPAIR c2:REPAIR", 11772904782041267814),
    (4, 1, "c0:REPAIR c1:SYNC c1:ANSWER c2:SYNC c1:REPAIR", 7423553150843472205),
    (14, 600, "c0:REPAIR c1:SYNC c1:ANSWER", 9864007987261858767),
]
"""Budget, period, entrants and seed of contests in which jitter kept the same ones last for long."""


def entrants_of(text: str) -> list[tuple[str, TrafficClass]]:
    classes = {"SYNC": SYNC, "REPAIR": REPAIR, "ANSWER": ANSWER, "FRESH": FRESH}
    pairs = [entrant.split(":") for entrant in text.split()]
    return [(client, classes[traffic]) for client, traffic in pairs]


def starving(
    messages: int, period: int, entrants: list[tuple[str, TrafficClass]], seed: int
) -> set[tuple[str, TrafficClass]]:
    """Return who was not served in as many epochs as the largest class fills, for each class."""
    contest = Contest(config_of(messages, period), entrants, seed)
    crowds = Counter(traffic for _, traffic in entrants)
    contest.run(epochs=len(crowds) * max(crowds.values()))
    return set(entrants) - set(contest.served)


class TestContest:
    @pytest.mark.parametrize(("messages", "period", "entrants", "seed"), ONCE_STARVED)
    def test_nobody_starves_where_somebody_once_did(
        self, messages: int, period: int, entrants: str, seed: int
    ) -> None:
        assert not starving(messages, period, entrants_of(entrants), seed)

    @settings(max_examples=60)
    @given(st.sampled_from([1, 2, 3, 4, 5, 9, 10, 20, 50]), PERIODS, ENTRANTS, st.integers())
    def test_no_class_and_no_client_starves(
        self, messages: int, period: int, entrants: list[tuple[str, TrafficClass]], seed: int
    ) -> None:
        assert not starving(messages, period, entrants, seed)

    @settings(max_examples=60)
    @given(
        st.sampled_from([1, 2, 4, 10, 20]),
        PERIODS,
        ENTRANTS,
        st.integers(),
        st.lists(st.floats(-2, 2), max_size=5).map(tuple),
    )
    def test_clock_steps_starve_nobody(
        self,
        messages: int,
        period: int,
        entrants: list[tuple[str, TrafficClass]],
        seed: int,
        steps: tuple[float, ...],
    ) -> None:
        contest = Contest(config_of(messages, period), entrants, seed, steps)
        # A clock that is set back costs what it was set back by, since the epoch is not.
        contest.run(epochs=2 * len(entrants) + 14)
        assert set(contest.served) == set(entrants)

    @settings(max_examples=60)
    @given(
        BUDGETS,
        PERIODS,
        ENTRANTS,
        st.sets(st.tuples(st.sampled_from(["idle", "c0"]), CLASSES)),
        st.integers(),
    )
    def test_nobody_asks_without_end(
        self,
        messages: int,
        period: int,
        entrants: list[tuple[str, TrafficClass]],
        idle: set[tuple[str, TrafficClass]],
        seed: int,
    ) -> None:
        contest = Contest(config_of(messages, period), entrants, seed)
        for client, traffic in idle:
            contest.limiter.set_waiting(client, traffic, FIRST_EPOCH * contest.period)
        contest.run(epochs=3)
        refused = contest.asked - sum(contest.served.values())
        event(f"refusals for each entrant and epoch: {refused // len(entrants) // 3 // 10}0")
        assert refused <= 3 * 102 * len(entrants)

    @settings(max_examples=60)
    @given(BUDGETS, PERIODS, st.integers(1, 6), st.integers())
    def test_clients_that_always_wait_are_served_equally(
        self, messages: int, period: int, clients: int, seed: int
    ) -> None:
        entrants = [(f"c{index}", FRESH) for index in range(clients)]
        contest = Contest(config_of(messages, period), entrants, seed)
        contest.run(epochs=5)
        counts = [contest.served[entrant] for entrant in entrants]
        assert max(counts) - min(counts) <= 1

    @settings(max_examples=60)
    @given(BUDGETS, PERIODS, ENTRANTS, st.integers())
    def test_nothing_of_the_budget_is_lost(
        self, messages: int, period: int, entrants: list[tuple[str, TrafficClass]], seed: int
    ) -> None:
        """But the sync kept although none waits, and what repair answers may not take."""
        contest = Contest(config_of(messages, period), entrants, seed)
        contest.run(epochs=3)
        classes = {traffic for _, traffic in entrants}
        if classes == {ANSWER}:
            expected = min(messages - (messages >= 10), max(1, max(1, messages // 5) // 2))
        else:
            expected = messages - (messages >= 10 and SYNC not in classes)
        assert sum(contest.served.values()) == 3 * expected

    @settings(max_examples=100)
    @given(
        st.sampled_from([4, 5, 9, 10, 11, 20, 57, 100]),
        st.lists(st.tuples(CLIENTS, st.sampled_from([SYNC, REPAIR, FRESH])), max_size=300),
    )
    def test_each_class_gets_its_share_in_whatever_order_they_ask(
        self, messages: int, questions: list[tuple[str, TrafficClass]]
    ) -> None:
        """A tenth of the budget (at least 1) for syncs, a fifth for retransmissions."""
        limiter = EpochRateLimiter(config_of(messages, 600))
        now = FIRST_EPOCH * 600 * SECOND
        everybody = [(client, traffic) for client in "abc" for traffic in (SYNC, REPAIR, FRESH)]
        for client, traffic in everybody:
            limiter.set_waiting(client, traffic, now)
        served: Counter[TrafficClass] = Counter()
        for client, traffic in questions + everybody * messages:
            served[traffic] += limiter.admit(client, traffic, now) is not None
        sync, repair = max(1, messages // 10), max(1, messages // 5)
        assert served == {SYNC: sync, REPAIR: repair, FRESH: messages - sync - repair}


@settings(max_examples=100)
@given(
    BUDGETS,
    BUDGETS,
    PERIODS,
    st.lists(st.tuples(CLASSES, st.booleans(), st.integers(-SECOND, 60 * SECOND)), max_size=80),
)
def test_a_transmission_counts_in_both_ledgers_or_in_neither(
    messages: int,
    own_messages: int,
    own_period: int,
    questions: list[tuple[TrafficClass, bool, int]],
) -> None:
    node = EpochRateLimiter(config_of(messages, 60))
    own = EpochRateLimiter(config_of(own_messages, own_period), scope="channel:a")
    budget = ChannelBudget(node, own, "a")
    now = FIRST_EPOCH * 600 * SECOND
    node_counts: Counter[int] = Counter()
    own_counts: Counter[int] = Counter()
    for traffic, waits, step in questions:
        now += step
        budget.set_waiting(traffic, now if waits else None)
        admission = budget.admit(traffic, now)
        if admission is not None:
            node_counts[admission.node_epoch] += 1
            own_counts[admission.own_epoch] += 1
            budget.confirm(admission, now)
        else:
            assert budget.next_admission(traffic, now, 0.0) > now
        assert node.used == node_counts[node.epoch] <= messages
        assert own.used == own_counts[own.epoch] <= own_messages
