"""Whole conversations through a bad network: everybody gets everything once, in causal order, and quiet returns.

A failing check prints the seed and a command that plays the same scenario again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulation import (
    SCALED_SDS,
    START_NS,
    Join,
    NodeFaults,
    Partition,
    Restart,
    Scenario,
    Simulation,
    StoreFaults,
    play,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageQueuedEvent,
    MessageSendErrorEvent,
)
from reliable_channel.types import MS, SECOND

LOSS = LinkFaults(loss=0.3, delay_ms=50, jitter_ms=100)
BAD = LinkFaults(loss=0.3, duplicate=0.05, reorder=0.05, delay_ms=50, jitter_ms=100)
MILD = LinkFaults(loss=0.1, duplicate=0.05, reorder=0.05, delay_ms=50, jitter_ms=100)
SMALL_SEGMENTS = SegmentationConfig(segment_size_bytes=128)


def losses(simulation: Simulation) -> list[MessageLostEvent]:
    """Return the lost events of everybody."""
    return [
        event
        for journal in simulation.journals
        for event in journal.events
        if isinstance(event, MessageLostEvent)
    ]


def longest_wait_ms(simulation: Simulation) -> float:
    """Return the longest time from a send to a delivery, milliseconds."""
    sent = {step.message_id: step.time_ns for item in simulation.journals for step in item.sent()}
    return max(
        (step.time_ns - sent[step.message_id]) / MS
        for journal in simulation.journals
        for step in journal.delivered()
    )


# --- The promise ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_200_messages_arrive_once_and_in_causal_order_through_30_percent_loss(seed: int) -> None:
    """The last message of each sender included: nothing follows that would name it but syncs."""
    simulation = play(Scenario(seed=seed, faults=LOSS)).check()
    assert not losses(simulation)
    assert sum(len(journal.sent()) for journal in simulation.journals) == 200
    for journal in simulation.journals:
        assert len(journal.steps) == 200
        finals = [event for event in journal.events if isinstance(event, MessageDeliveredEvent)]
        assert len(finals) == len(journal.sent()), "every request was acknowledged by somebody"


@pytest.mark.parametrize("seed", range(20))
def test_duplicates_and_reordering_change_nothing(seed: int) -> None:
    simulation = play(Scenario(seed=seed, faults=BAD)).check()
    assert simulation.counted("duplicates") > 0
    assert simulation.counted("parked") > 0


@pytest.mark.parametrize("participants", [2, 8])
@pytest.mark.parametrize("seed", range(5))
def test_groups_of_other_sizes_keep_the_promise(seed: int, participants: int) -> None:
    play(Scenario(seed=seed, participants=participants, faults=BAD)).check()


@pytest.mark.parametrize("seed", range(5))
def test_promise_holds_when_everybody_sends_at_once(seed: int) -> None:
    play(Scenario(seed=seed, participants=5, interval_ms=1, faults=BAD)).check()


@pytest.mark.parametrize("seed", range(5))
def test_promise_holds_among_ephemeral_messages(seed: int) -> None:
    play(Scenario(seed=seed, ephemeral=0.3, faults=BAD)).check()


@pytest.mark.parametrize("seed", range(5))
def test_promise_holds_when_nodes_return_what_they_sent(seed: int) -> None:
    play(Scenario(seed=seed, node=NodeFaults(echo=1.0), faults=BAD)).check()


@pytest.mark.parametrize("seed", range(10))
def test_promise_holds_when_clocks_differ_by_seconds(seed: int) -> None:
    play(Scenario(seed=seed, clock_skew_ms=2_000, faults=BAD)).check()


@pytest.mark.parametrize("seed", range(5))
def test_promise_holds_when_the_store_lags_and_fails(seed: int) -> None:
    store = StoreFaults(lag_ms=1_000, failure=0.3)
    play(Scenario(seed=seed, store=store, faults=BAD)).check()


# --- Segments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "segmentation",
    [
        SMALL_SEGMENTS,
        replace(SMALL_SEGMENTS, enable_reed_solomon=True, parity_code="reedsolo"),
        replace(SMALL_SEGMENTS, enable_reed_solomon=True, parity_code="leopard"),
    ],
    ids=["no parity", "reedsolo", "leopard"],
)
@pytest.mark.parametrize("seed", range(10))
def test_payloads_of_several_segments_keep_the_promise(
    seed: int, segmentation: SegmentationConfig
) -> None:
    scenario = Scenario(
        seed=seed,
        messages=60,
        interval_ms=200,
        payload_bytes=(100, 1_200),
        segmentation=segmentation,
        faults=BAD,
    )
    simulation = play(scenario).check()
    recoveries = simulation.counted("parity_recoveries")
    assert bool(recoveries) is segmentation.enable_reed_solomon


@pytest.mark.parametrize("seed", range(10))
def test_file_of_82_segments_reaches_both_receivers_through_20_percent_loss(seed: int) -> None:
    """An 8 MiB message has 82 segments of the default size."""
    scenario = Scenario(
        seed=seed,
        messages=2,
        interval_ms=5_000,
        payload_bytes=(82 * 64, 82 * 64),
        segmentation=SegmentationConfig(segment_size_bytes=64),
        faults=LinkFaults(loss=0.2, duplicate=0.05, reorder=0.05, delay_ms=20, jitter_ms=20),
    )
    play(scenario).check()


# --- Partitions, joins, restarts -----------------------------------------------------------------


@pytest.mark.parametrize("seed", range(10))
def test_partition_that_heals_leaves_no_gap(seed: int) -> None:
    cut = Partition(from_ms=2_000, until_ms=4_000, side=(0,))
    scenario = Scenario(seed=seed, messages=100, faults=MILD, partitions=(cut,))
    simulation = play(scenario).check()
    assert longest_wait_ms(simulation) > 1_000


@pytest.mark.parametrize("seed", range(10))
def test_partition_longer_than_one_sync_can_name_leaves_no_gap(seed: int) -> None:
    cut = Partition(from_ms=2_000, until_ms=8_000, side=(0,))
    play(Scenario(seed=seed, faults=BAD, partitions=(cut,))).check()


@pytest.mark.parametrize("seed", range(20))
def test_late_joiner_gets_what_comes_after_it_joined_and_misses_nothing_from_before(
    seed: int,
) -> None:
    join = Join(participant=2, at_ms=5_000)
    simulation = play(Scenario(seed=seed, faults=BAD, joins=(join,))).check()
    assert not losses(simulation)
    assert len(simulation.journals[2].steps) > 50


@pytest.mark.parametrize("seed", range(5))
def test_late_joiner_without_a_store_waits_for_nothing_from_before(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        faults=LinkFaults(delay_ms=50, jitter_ms=100),
        store=StoreFaults(enabled=False),
        joins=(Join(participant=2, at_ms=5_000),),
    )
    simulation = play(scenario).check()
    assert not losses(simulation)


@pytest.mark.parametrize("seed", range(5))
def test_late_joiner_that_restarts_still_misses_nothing_from_before(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        faults=LinkFaults(delay_ms=50, jitter_ms=100),
        store=StoreFaults(enabled=False),
        joins=(Join(participant=2, at_ms=5_000),),
        restarts=(Restart(participant=2, at_ms=5_400, down_ms=0),),
    )
    simulation = play(scenario).check(besides=["delivery"])
    joined = simulation.participants[2].journal.joined_ns
    old = {
        step.message_id
        for journal in simulation.journals
        for step in journal.sent()
        if step.time_ns < joined
    }
    assert not [event for event in losses(simulation) if event.message_id in old]


RESTARTS = tuple(Restart(participant=index, at_ms=3_000 + 2_000 * index) for index in range(3))


@pytest.mark.parametrize("catch_up", [True, False], ids=["catch up", "no catch up"])
@pytest.mark.parametrize("torn", [False, True], ids=["clean", "torn"])
@pytest.mark.parametrize("seed", range(10))
def test_restart_of_each_participant_from_its_kept_rows_keeps_the_promise(
    seed: int, torn: bool, catch_up: bool
) -> None:
    restarts = tuple(replace(restart, torn=torn) for restart in RESTARTS)
    scenario = Scenario(
        seed=seed,
        faults=MILD,
        node=NodeFaults(transmit_ms=5),
        store=StoreFaults(catch_up=catch_up),
        restarts=restarts,
    )
    simulation = play(scenario).check()
    assert [participant.generation for participant in simulation.participants] == [2, 2, 2]


@pytest.mark.parametrize("seed", range(5))
def test_restart_amid_segments_keeps_the_promise(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        messages=60,
        interval_ms=150,
        payload_bytes=(100, 1_200),
        segmentation=replace(SMALL_SEGMENTS, enable_reed_solomon=True),
        faults=MILD,
        node=NodeFaults(transmit_ms=5),
        store=StoreFaults(catch_up=False),
        restarts=tuple(
            Restart(participant=index % 3, at_ms=1_000 + 700 * index, down_ms=100)
            for index in range(9)
        ),
    )
    play(scenario).check()


# --- Nodes and stores that fail ------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_failures_that_pass_delay_messages_and_lose_none(seed: int) -> None:
    node = NodeFaults(failure=0.2, report_jitter_ms=100)
    simulation = play(Scenario(seed=seed, messages=100, node=node, faults=MILD)).check()
    assert simulation.counters["publish_failures"] > 20
    for journal in simulation.journals:
        assert not [item for item in journal.events if isinstance(item, MessageSendErrorEvent)]


@pytest.mark.parametrize("seed", range(5))
def test_messages_reported_as_failed_that_got_through_are_delivered_once(seed: int) -> None:
    node = NodeFaults(false_failure=0.2)
    play(Scenario(seed=seed, messages=100, node=node, faults=MILD)).check()


@pytest.mark.parametrize("seed", range(5))
def test_each_rejected_message_has_one_send_error_and_delays_nobody(seed: int) -> None:
    """The rejection is reported before anything else is sent, so no history has the id."""
    faults = LinkFaults(delay_ms=50, jitter_ms=100)
    scenario = Scenario(seed=seed, node=NodeFaults(rejection=0.1, report_ms=0), faults=faults)
    simulation = play(scenario).check()
    errors = [
        event.request_id
        for journal in simulation.journals
        for event in journal.events
        if isinstance(event, MessageSendErrorEvent)
    ]
    assert len(errors) == len(set(errors)) > 5
    assert longest_wait_ms(simulation) < 1_000
    assert not losses(simulation)


@pytest.mark.parametrize("seed", range(5))
def test_rejected_segments_delay_nobody(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        messages=60,
        interval_ms=200,
        payload_bytes=(300, 600),
        segmentation=SegmentationConfig(segment_size_bytes=64),
        node=NodeFaults(rejection=0.02, report_ms=0),
        faults=LinkFaults(delay_ms=50, jitter_ms=100),
    )
    # What was transmitted of a rejected message stays incomplete at its receivers for an hour.
    simulation = play(scenario).check(besides=["quiet"])
    assert longest_wait_ms(simulation) < 1_000
    delivered = {step.message_id for journal in simulation.journals for step in journal.delivered()}
    assert not delivered & {event.message_id for event in losses(simulation)}


@pytest.mark.parametrize("seed", range(5))
def test_without_a_store_every_request_ends_nothing_sticks_and_lost_events_name_what_is_missing(
    seed: int,
) -> None:
    sds = replace(SCALED_SDS, enable_repair=False)
    scenario = Scenario(seed=seed, faults=MILD, store=StoreFaults(enabled=False), sds=sds)
    # What was lost hides what it depended on, so order can break behind it.
    simulation = play(scenario).check(besides=["delivery", "order"])
    lost = losses(simulation)
    assert lost
    for journal in simulation.journals:
        have = {step.message_id for step in journal.steps}
        told = {event.message_id for event in journal.events if isinstance(event, MessageLostEvent)}
        # In the first moments of a channel nobody can tell a lost message from one of before.
        settled = START_NS + 2 * SCALED_SDS.acknowledgement_timeout_ms * MS + SECOND
        missing = {
            step.message_id
            for other in simulation.journals
            for step in other.sent()
            if step.message_id not in have and step.time_ns > settled
        }
        assert missing <= told


@pytest.mark.parametrize(("seed", "participants"), [(0, 3), (1, 3), (2, 4), (3, 5), (4, 8)])
def test_without_a_store_participants_repair_each_others_gaps(seed: int, participants: int) -> None:
    scenario = Scenario(
        seed=seed, participants=participants, faults=MILD, store=StoreFaults(enabled=False)
    )
    # In the first moments of a channel nobody can tell a lost message from one of before.
    simulation = play(scenario).check(besides=["delivery"])
    assert losses(simulation) == []
    for journal in simulation.journals:
        have = {step.message_id for step in journal.steps}
        settled = START_NS + 2 * SCALED_SDS.acknowledgement_timeout_ms * MS + SECOND
        assert not {
            step.message_id
            for other in simulation.journals
            for step in other.sent()
            if step.message_id not in have and step.time_ns > settled
        }


# --- Rate limit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("messages_per_epoch", [3, 10, 40])
@pytest.mark.parametrize("seed", range(4))
def test_epoch_budget_is_never_exceeded_and_everything_is_delivered_in_the_end(
    seed: int, messages_per_epoch: int
) -> None:
    scenario = Scenario(
        seed=seed,
        messages=60,
        interval_ms=100,
        faults=MILD,
        settle_ms=2_000_000,
        sds=patient(),
        rate_limit=RateLimitConfig(
            enabled=True, epoch_period_sec=10, messages_per_epoch=messages_per_epoch
        ),
    )
    simulation = play(scenario).check()
    assert simulation.charges
    queued = {
        event.request_id
        for journal in simulation.journals
        for event in journal.events
        if isinstance(event, MessageQueuedEvent)
    }
    assert bool(queued) is (messages_per_epoch < 40)


def patient() -> SdsConfig:
    """Return settings for a channel in which an answer may have to wait for the next epoch."""
    return replace(
        SCALED_SDS,
        acknowledgement_timeout_ms=5_000,
        dependency_timeout_ms=600_000,
        sync_interval_ms=30_000,
        max_sync_interval_ms=120_000,
    )


@pytest.mark.parametrize("seed", range(4))
def test_epoch_budget_survives_restarts_and_reports_after_the_boundary(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        messages=60,
        interval_ms=200,
        faults=MILD,
        node=NodeFaults(report_ms=300, report_jitter_ms=1_500),
        store=StoreFaults(catch_up=False),
        settle_ms=2_000_000,
        sds=patient(),
        restarts=tuple(
            Restart(participant=index % 3, at_ms=2_000 + 900 * index) for index in range(6)
        ),
        rate_limit=RateLimitConfig(enabled=True, epoch_period_sec=10, messages_per_epoch=10),
    )
    # What a new channel misses for longer than two timeouts counts as before its time, and here a
    # repetition has to wait for the next epoch.
    play(scenario).check(besides=["order"])


# --- Nobody there --------------------------------------------------------------------------------


def test_requests_of_a_lonely_participant_end_in_delivery_errors() -> None:
    scenario = Scenario(participants=1, messages=20)
    simulation = play(scenario).check()
    (journal,) = simulation.journals
    errors = [item for item in journal.events if isinstance(item, MessageDeliveryErrorEvent)]
    assert len(errors) == 20
