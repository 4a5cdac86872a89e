"""A trial's row says what happened: known numbers for small conversations, laws for all of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.results import OTHER, REPAIR, STORE, Trial, batch_of
from benchmarks.laboratory.trial import collected_at_once, count, run_trial, run_trials
from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.network import Transmission
from benchmarks.simulation.scenario import (
    SCALED_SDS,
    START_NS,
    Bursts,
    Churn,
    Crash,
    Delays,
    Join,
    Restart,
    Scenario,
    StoreFaults,
)
from benchmarks.simulation.workload import WARM_UP_ROUND_MS, Workload
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SegmentationConfig
from reliable_channel.types import MS

NO_STORE = StoreFaults(enabled=False)
SEGMENTS = SegmentationConfig(segment_size_bytes=64)
TIMEOUT_MS = SCALED_SDS.acknowledgement_timeout_ms

TINY = Scenario(
    participants=2,
    senders=1,
    messages=1,
    interval_ms=1_000,
    payload_bytes=(40, 40),
    faults=LinkFaults(delay_ms=20),
    store=NO_STORE,
)
"""One message of one segment from p0 to p1, 20 ms away."""

Carries = Callable[[Transmission, int], bool]


def played(scenario: Scenario, carries: Carries | None = None) -> Trial:
    wire: list[Transmission] = []
    simulation = Simulation(scenario, wire=wire, carries=carries)
    workload = Workload(simulation)
    workload.play()
    trial = Trial(scenario="tiny", channel=0)
    return count(trial, simulation, wire, workload.began_ns)


class Losing:
    """Loses the copies of the first so many of those transmissions by p0 that a rule names."""

    def __init__(self, rule: Callable[[Transmission], bool], times: int, receiver: int = 1) -> None:
        self.rule, self.left, self.receiver = rule, times, receiver

    def __call__(self, item: Transmission, receiver: int) -> bool:
        lost = item.sender == 0 and receiver == self.receiver and self.left and self.rule(item)
        self.left -= bool(lost)
        return not lost


def is_data(item: Transmission) -> bool:
    return item.kind == "segment"


def check_laws(trial: Trial, *, participants: int) -> None:
    """What must hold of any row."""
    sums = sum(trial.tries) + trial.parity + trial.repairs + trial.syncs + trial.others
    assert trial.transmissions == sums
    assert trial.retransmissions <= sum(trial.tries) <= trial.segments + trial.retransmissions
    assert len(trial.tries) == len(trial.receivers) == trial.messages
    assert trial.owed <= trial.messages * (participants - 1)
    assert trial.delivered == len(trial.latency_ms) == len(trial.round) == sum(trial.receivers)
    assert trial.delivered <= trial.owed
    assert trial.complete <= trial.messages
    assert all(0 <= found < participants for found in trial.receivers)
    assert all(latency >= 0 for latency in trial.latency_ms)
    assert trial.confirmed == len(trial.confirm_ms)
    assert trial.confirmed + trial.send_errors + trial.delivery_errors <= trial.messages
    assert len(trial.queue_ms) <= trial.messages
    assert trial.duplicated == trial.disordered == 0
    assert min(trial.round, default=0) >= OTHER


# --- Known numbers --------------------------------------------------------------------------------


def test_lossless_conversation_has_known_numbers() -> None:
    scenario = replace(TINY, messages=5, payload_bytes=(150, 150), segmentation=SEGMENTS)
    trial = played(scenario)
    assert (trial.messages, trial.owed, trial.delivered, trial.complete) == (5, 5, 5, 5)
    assert (trial.segments, trial.payload_bytes) == (15, 5 * 150)
    assert trial.receivers == [1] * 5
    assert trial.tries == [3] * 5
    assert (trial.latency_ms, trial.round) == ([20] * 5, [0] * 5)
    assert (trial.confirmed, trial.send_errors, trial.delivery_errors) == (5, 0, 0)
    assert (trial.retransmissions, trial.parity, trial.repairs, trial.others) == (0, 0, 0, 0)
    assert trial.syncs > 0
    assert trial.copies == trial.transmissions == 15 + trial.syncs
    assert trial.sent_bytes > trial.payload_bytes
    assert (trial.late, trial.lost, trial.put_off, trial.fetches) == (0, 0, 0, 0)
    assert all(40 < time_ms < 1_000 for time_ms in trial.confirm_ms)
    assert trial.queue_ms == [10] * 5
    check_laws(trial, participants=2)


@pytest.mark.parametrize("losses", [1, 2, 3])
def test_what_is_lost_comes_with_its_retransmission(losses: int) -> None:
    trial = played(TINY, Losing(is_data, losses))
    assert trial.round == [losses]
    assert trial.tries == [1 + losses]
    assert trial.retransmissions == losses
    assert trial.latency_ms[0] > losses * TIMEOUT_MS
    assert trial.copies == trial.transmissions - losses
    check_laws(trial, participants=2)


def test_a_message_comes_with_the_last_of_its_segments() -> None:
    scenario = replace(TINY, payload_bytes=(150, 150), segmentation=SEGMENTS)
    trial = played(scenario, Losing(lambda item: item.segment_id.endswith(":2"), 1))
    assert trial.round == [1]
    assert trial.tries == [4]
    assert (trial.segments, trial.retransmissions) == (3, 1)
    check_laws(trial, participants=2)


def test_what_waited_for_another_message_comes_with_the_round_of_that() -> None:
    scenario = replace(TINY, messages=2, interval_ms=200)
    trial = played(scenario, Losing(is_data, 1))
    assert trial.round == [1, 1]
    assert trial.tries == [2, 1]
    check_laws(trial, participants=2)


def test_what_the_store_brings_is_told_apart() -> None:
    scenario = replace(TINY, messages=2, interval_ms=200, store=StoreFaults(answer_ms=50))
    first: list[str] = []

    def is_first(item: Transmission) -> bool:
        first.append(item.segment_id)
        return item.segment_id == first[0]

    trial = played(scenario, Losing(is_first, 9))
    assert trial.round == [STORE, STORE]  # the second waited for the first
    assert trial.fetches >= 1
    check_laws(trial, participants=2)


def test_what_a_restart_finds_in_the_store_is_told_apart() -> None:
    restart = Restart(participant=1, at_ms=1, down_ms=5_000)
    scenario = replace(TINY, messages=3, restarts=(restart,), store=StoreFaults())
    trial = played(scenario)
    assert trial.round == [STORE] * 3
    check_laws(trial, participants=2)


def test_what_another_participant_repairs_is_told_apart() -> None:
    """p2 has no segment of p0's but by an answer."""
    scenario = replace(TINY, participants=3, messages=2, warm_up=True, interval_ms=30_000)
    warm_ns = START_NS + int(WARM_UP_ROUND_MS * MS)
    trial = played(
        scenario,
        lambda item, receiver: (
            (item.sender, receiver) != (0, 2) or (item.kind != "segment" or item.time_ns < warm_ns)
        ),
    )
    assert sorted(trial.round) == [REPAIR, REPAIR, 0, 0]
    assert trial.repairs >= 2
    assert trial.others == 0
    check_laws(trial, participants=3)


def test_what_ends_a_wait_without_an_arrival_is_told_apart() -> None:
    """The first message never comes; the second is shown late when the wait for it ends."""
    sds = replace(SCALED_SDS, dependency_timeout_ms=10_000, enable_repair=False)
    first: list[str] = []

    def is_first(item: Transmission) -> bool:
        first.append(item.segment_id)
        return item.segment_id == first[0]

    scenario = replace(TINY, messages=3, interval_ms=3_000, sds=sds)
    trial = played(scenario, Losing(is_first, 99))
    assert OTHER in trial.round
    assert trial.receivers == [0, 1, 1]
    assert (trial.complete, trial.confirmed, trial.delivery_errors) == (2, 2, 1)
    check_laws(trial, participants=2)


def test_parity_replaces_what_is_lost() -> None:
    segmentation = replace(SEGMENTS, enable_reed_solomon=True, parity_rate=0.5)
    scenario = replace(TINY, payload_bytes=(200, 200), segmentation=segmentation)
    trial = played(scenario, Losing(lambda item: item.segment_id.endswith(":2"), 99))
    assert (trial.segments, trial.parity) == (4, 2)
    assert trial.round == [0]
    assert trial.latency_ms == [20]
    assert trial.transmissions == 4 + 2 + trial.syncs
    check_laws(trial, participants=2)


def test_what_a_process_sent_before_it_died_is_counted() -> None:
    """Nobody told it that its first transmission went out, so the next start sends the segment once more."""
    crash = Crash(participant=0, at_ms=0, moment="publish", down_ms=50)
    trial = played(replace(TINY, crashes=(crash,)), Losing(is_data, 1))
    assert trial.tries == [2]
    assert trial.retransmissions == 1
    assert trial.round == [1]
    assert trial.latency_ms == [50 + 20]
    check_laws(trial, participants=2)


@pytest.mark.parametrize("clock_ms", [3_600_000, -3_600_000])
def test_times_do_not_follow_a_clock_that_is_set(clock_ms: float) -> None:
    crash = Crash(participant=0, at_ms=60_000, moment="now", clock_ms=clock_ms)
    set_, plain = (
        played(replace(TINY, messages=90, crashes=(replace(crash, clock_ms=ahead_ms),)))
        for ahead_ms in (clock_ms, 0)
    )
    assert 0 <= min(set_.confirm_ms) <= max(set_.confirm_ms) < 120_000
    assert set_.confirm_ms[:50] == plain.confirm_ms[:50]
    assert set_.queue_ms == plain.queue_ms == [10] * 90
    check_laws(set_, participants=2)


def test_ephemeral_messages_and_the_warm_up_are_others() -> None:
    scenario = replace(TINY, messages=20, warm_up=True, ephemeral=0.5)
    trial = played(scenario)
    assert 0 < trial.messages < 20
    assert trial.others == 20 - trial.messages
    assert trial.owed == trial.delivered == trial.messages
    assert sum(trial.tries) == trial.messages
    check_laws(trial, participants=2)


def test_nothing_is_owed_from_before_a_participant_joined() -> None:
    scenario = replace(TINY, participants=3, messages=10, joins=(Join(participant=2, at_ms=5_000),))
    trial = played(scenario)
    assert trial.owed == trial.delivered == 15
    assert trial.receivers == [1] * 5 + [2] * 5
    assert trial.complete == 10
    check_laws(trial, participants=3)


def test_reports_of_loss_are_counted_by_segment() -> None:
    scenario = replace(
        TINY,
        messages=2,
        warm_up=True,
        interval_ms=100_000,
        payload_bytes=(200, 200),
        segmentation=SEGMENTS,
        sds=replace(SCALED_SDS, max_retransmissions=0, enable_repair=False),
        settle_ms=300_000,
    )
    losing = Losing(lambda item: is_data(item) and not item.segment_id.endswith(":1"), 3)
    trial = played(scenario, losing)
    assert (trial.owed, trial.delivered, trial.segments) == (2, 1, 8)
    assert trial.lost == 4
    check_laws(trial, participants=2)


def test_wait_for_the_epoch_budget_is_the_time_until_all_was_sent() -> None:
    limit = RateLimitConfig(enabled=True, epoch_period_sec=5, messages_per_epoch=2)
    scenario = replace(TINY, payload_bytes=(300, 300), segmentation=SEGMENTS, rate_limit=limit)
    trial = played(scenario)
    assert trial.segments == 5
    assert 5_000 < trial.queue_ms[0] < 25_000
    check_laws(trial, participants=2)


def test_a_channel_without_room_puts_sends_off() -> None:
    sds = replace(SCALED_SDS, max_outgoing_messages=1)
    trial = played(replace(TINY, messages=20, interval_ms=1, sds=sds))
    assert trial.put_off > 0
    assert trial.messages == trial.delivered == 20


# --- Laws -----------------------------------------------------------------------------------------


def drawn(seed: int) -> Scenario:
    """A scenario with several things going wrong at once."""
    draws = Random(seed)
    participants = draws.choice((2, 3, 5))
    return Scenario(
        participants=participants,
        senders=draws.choice((None, 1)),
        messages=8,
        interval_ms=draws.choice((50, 1_000)),
        warm_up=draws.random() < 0.5,
        payload_bytes=(40, 300),
        ephemeral=draws.choice((0.0, 0.2)),
        settle_ms=60_000,
        faults=LinkFaults(loss=draws.choice((0, 0.3)), duplicate=0.1, reorder=0.1, delay_ms=20),
        bursts=draws.choice((None, Bursts(loss=0.3, burst_ms=500))),
        delays=draws.choice((None, Delays(kind="lognormal", mean_ms=50))),
        sync_loss=draws.choice((None, 0.0, 0.9)),
        churn=draws.choice((None, Churn(every_ms=2_000, down_ms=500))),
        crashes=draws.choice(((), (Crash(participant=0, at_ms=50, moment="publish"),))),
        store=StoreFaults(enabled=draws.random() < 0.5, loss=0.2),
        segmentation=replace(SEGMENTS, enable_reed_solomon=draws.random() < 0.5, parity_rate=0.5),
        rate_limit=RateLimitConfig(
            enabled=draws.random() < 0.3, epoch_period_sec=5, messages_per_epoch=30
        ),
    )


@pytest.mark.parametrize("seed", range(24))
def test_rows_keep_the_laws_whatever_goes_wrong(seed: int) -> None:
    scenario = drawn(seed)
    trial = run_trial(Cell(name="drawn", scenario=scenario), seed, 0)
    assert trial.problem == ""
    assert trial.messages > 0
    assert trial.transmissions > 0
    check_laws(trial, participants=scenario.participants)


# --- A trial is a function ------------------------------------------------------------------------


def row(trial: Trial) -> Trial:
    return replace(trial, cpu_us=0)


CELL = Cell(name="lossy", scenario=replace(TINY, messages=5, faults=LinkFaults(loss=0.3)))


def test_a_trial_depends_on_cell_root_and_channel_alone() -> None:
    first = run_trial(CELL, 1, 7)
    assert row(run_trial(CELL, 1, 7)) == row(first)
    assert run_trial(CELL, 2, 7).digest_high != first.digest_high
    assert run_trial(CELL, 1, 8).digest_high != first.digest_high
    assert row(run_trial(replace(CELL, name="other"), 1, 7)) == row(first)
    trace: list[bytes] = []
    assert row(run_trial(CELL, 1, 7, trace=trace)) == row(first)
    assert trace
    assert [row(item) for item in run_trials([CELL], 1, [(0, 8), (0, 7)])][1] == row(first)


def test_rows_are_kept_only_where_somebody_is_started_again() -> None:
    churn = Cell(name="churn", scenario=replace(TINY, churn=Churn(every_ms=200, down_ms=100)))
    assert run_trial(churn, 1, 1).problem == ""
    simulation = Simulation(CELL.scenario, keeps_rows=False)
    kept = Simulation(CELL.scenario)
    for item in (simulation, kept):
        Workload(item).play()
    assert all(who.rows for who in kept.participants)
    assert all(not who.rows for who in simulation.participants)
    assert simulation.journals == kept.journals


def test_a_trial_that_cannot_be_played_says_why() -> None:
    sds = replace(SCALED_SDS, bloom_capacity=1 << 20, bloom_error_rate=1e-9)
    trial = run_trial(Cell(name="bad", scenario=replace(TINY, sds=sds)), 1, 3)
    assert trial.problem.startswith("ConfigurationError: ")
    assert (trial.channel, trial.messages, trial.transmissions) == (3, 0, 0)
    assert trial.digest_high != 0


def test_times_that_no_row_holds_are_a_problem() -> None:
    """A scenario of such times is refused when a grid is read; sums of them may still be too long."""
    delays = Delays(mean_ms=3e9)
    sds = replace(SCALED_SDS, sync_interval_ms=1 << 40, max_sync_interval_ms=1 << 40)
    sds = replace(sds, max_retransmissions=0)
    scenario = replace(TINY, delays=delays, sds=sds, settle_ms=4e9)
    trial = run_trial(Cell(name="slow", scenario=scenario), 1, 0)
    assert trial.problem == (
        "OverflowError: latency_ms: 3000000000 is more than a row holds, 2147483647"
    )
    assert (trial.messages, trial.latency_ms) == (0, [])
    assert batch_of([trial]).num_rows == 1


@pytest.mark.parametrize("enabled", [True, False])
def test_a_trial_leaves_nothing_behind(enabled: bool) -> None:
    was_enabled = gc.isenabled()
    try:
        gc.enable() if enabled else gc.disable()
        for channel in range(3):
            run_trial(CELL, 1, channel)
        before = len(gc.get_objects())
        for channel in range(10):
            run_trial(CELL, 1, channel)
        assert len(gc.get_objects()) < before + 200
        assert gc.isenabled() is enabled
    finally:
        gc.enable() if was_enabled else gc.disable()


def test_cycles_are_collected_also_after_an_error() -> None:
    def fail() -> None:
        for _ in range(1_000):
            cycle: list[object] = []
            cycle.append(cycle)
        raise KeyError

    gc.collect()
    before = len(gc.get_objects())
    with pytest.raises(KeyError), collected_at_once():
        fail()
    assert len(gc.get_objects()) < before + 200
    assert gc.isenabled()
