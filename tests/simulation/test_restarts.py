"""Who crashes goes on with what it held, parity included; who crashes all the time gets everything done as well."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from benchmarks.simulation import (
    SCALED_SDS,
    NodeFaults,
    Restart,
    Scenario,
    Simulation,
    StoreFaults,
    Transmission,
    play,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig
from reliable_channel.core.wire import SdsKind
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
)
from reliable_channel.records import ParityRecord, PendingRecord
from tests.support.simulated import (
    NO_STORE,
    REPORT_MS,
    SMALL_SEGMENTS,
    TIMEOUT_MS,
    decode,
    events_of,
    first_id,
    group,
    kind_of,
    ms,
    received,
    syncs_of,
    wire_of,
)

HALF_PARITY = replace(SMALL_SEGMENTS, enable_reed_solomon=True, parity_rate=0.5)

SEGMENT_MS = 40
"""Distance of the six segments of the message below: four of data, two of parity."""


def lossy_message(*, crash: bool, forget: bool = False) -> Simulation:
    """Return the end of a message of which the receiver never got the second and the third segment at first.

    Args:
        crash: The receiver crashes before the last parity segment comes, and is up again in time.
        forget: Its rows of parity are gone then.
    """

    def carries(transmission: Transmission, receiver: int) -> bool:
        first_round = len(wire_of(simulation, transmission.segment_id)) == 1
        return not (first_round and transmission.segment_id.endswith((":2", ":3")))

    simulation = group(
        store=NO_STORE,
        segmentation=HALF_PARITY,
        node=NodeFaults(transmit_ms=SEGMENT_MS),
        carries=carries,
    )
    simulation.send(0, bytes(250))
    simulation.run(5.5 * SEGMENT_MS)
    rows = simulation.participants[1].rows
    assert [len(rows[kind]) for kind in (PendingRecord, ParityRecord)] == [2, 1]
    if crash:
        simulation.crash(1)
        if forget:
            rows[ParityRecord].clear()
        simulation.start(1)
    simulation.run(SEGMENT_MS)
    return simulation


@pytest.mark.parametrize("crash", [False, True])
def test_a_restarted_receiver_that_holds_enough_asks_for_nothing_again(*, crash: bool) -> None:
    simulation = lossy_message(crash=crash)
    assert received(simulation, 1) == [bytes(250)]
    assert simulation.settle(3 * TIMEOUT_MS)
    segments = [item.segment_id for item in simulation.wire or () if item.sender == 0]
    assert len(segments) == len(set(segments)) == 6
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 1
    simulation.check()


def test_without_the_rows_of_its_parity_it_would_have_to_wait() -> None:
    """What the test above compares with: it fails when parity is not kept."""
    simulation = lossy_message(crash=True, forget=True)
    assert received(simulation, 1) == []
    assert simulation.settle(5 * TIMEOUT_MS)
    assert received(simulation, 1) == [bytes(250)]
    assert len([item for item in simulation.wire or () if item.sender == 0]) > 6


@pytest.mark.parametrize("seed", range(5))
def test_many_restarts_amid_lossy_segments_keep_the_promise_and_leave_no_rows(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        messages=60,
        interval_ms=150,
        payload_bytes=(300, 1_200),
        segmentation=HALF_PARITY,
        faults=LinkFaults(loss=0.2, delay_ms=30, jitter_ms=60),
        node=NodeFaults(transmit_ms=5),
        store=StoreFaults(catch_up=False),
        restarts=tuple(
            Restart(participant=index % 3, at_ms=1_000 + 300 * index, down_ms=20)
            for index in range(24)
        ),
    )
    simulation = play(scenario).check()
    assert simulation.counted("parity_recoveries") > 10


# --- Processes that are restarted all the time -----------------------------------------------------

LIFE_MS = 100
"""A fifth of an acknowledgement timeout: with the default settings a second."""


def live_on(
    simulation: Simulation, index: int, duration_ms: float, life_ms: float = LIFE_MS
) -> None:
    """Let a participant crash and start again at once, over and over."""
    for _ in range(int(duration_ms / life_ms)):
        simulation.run(life_ms)
        simulation.crash(index)
        simulation.start(index)


def alone(**settings: Any) -> Simulation:
    """Return a pair in which nothing of the first arrives."""
    return group(store=NO_STORE, carries=lambda item, _: item.sender != 0, **settings)


def test_who_is_restarted_all_the_time_retransmits_as_often_as_others_and_gives_up() -> None:
    simulation = alone()
    request_id = simulation.send(0, b"nobody hears this")
    live_on(simulation, 0, 4 * TIMEOUT_MS)
    times = [ms(item.time_ns) for item in wire_of(simulation, f"{request_id}:1")]
    assert len(times) == 4
    assert all(
        TIMEOUT_MS <= later - sooner <= TIMEOUT_MS + LIFE_MS for sooner, later in pairwise(times)
    )
    live_on(simulation, 0, 4 * TIMEOUT_MS)
    attempts = SCALED_SDS.max_retransmissions + 1
    assert len(wire_of(simulation, f"{request_id}:1")) == attempts
    assert len(events_of(simulation, 0, MessageDeliveryErrorEvent)) == 1


def test_what_was_never_confirmed_goes_out_with_each_start_up_to_a_bound() -> None:
    """At once, since what comes later names it; but who always dies before the report floods nobody."""
    simulation = alone(node=NodeFaults(report_ms=10 * LIFE_MS))
    request_id = simulation.send(0, b"nobody hears this")
    live_on(simulation, 0, 6 * TIMEOUT_MS)
    times = [ms(item.time_ns) for item in wire_of(simulation, f"{request_id}:1")]
    most = 2 * (SCALED_SDS.max_retransmissions + 1) + 1
    assert all(later - sooner <= LIFE_MS for sooner, later in pairwise(times[:most]))
    assert all(later - sooner >= TIMEOUT_MS for sooner, later in pairwise(times[most:]))
    assert most < len(times) <= most + 6


def test_after_a_long_time_down_the_first_answer_spares_the_others() -> None:
    """Acknowledgements in syncs are kept by no store: all seem to be overdue, and one is asked about first."""
    simulation = group(store=NO_STORE)
    requests = [simulation.send(0, b"message %d" % number) for number in range(30)]
    simulation.run(2 * REPORT_MS)
    simulation.crash(0)
    simulation.run(20 * TIMEOUT_MS)
    before = len(simulation.wire or ())
    simulation.start(0)
    simulation.run(REPORT_MS)
    asked = [item for item in (simulation.wire or ())[before:] if kind_of(item) is SdsKind.CONTENT]
    assert len(asked) == 1
    assert simulation.settle(4 * TIMEOUT_MS)
    again = sum(len(wire_of(simulation, f"{name}:1")) > 1 for name in requests)
    assert 1 <= again <= len(requests) // 2 + 2
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == len(requests)
    simulation.check()


def test_who_was_down_when_the_last_timeout_passed_listens_once_more() -> None:
    simulation = group(store=NO_STORE, max_retransmissions=0)
    simulation.send(0, b"heard")
    simulation.run(2 * REPORT_MS)
    simulation.crash(0)
    simulation.run(20 * TIMEOUT_MS)
    simulation.start(0)
    simulation.run(TIMEOUT_MS / 10)
    assert events_of(simulation, 0, MessageDeliveryErrorEvent) == []
    simulation.send(1, b"names what it has heard")
    simulation.run(TIMEOUT_MS / 10)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 1


def test_who_is_always_down_when_the_last_timeout_passes_gives_up_all_the_same() -> None:
    simulation = alone(max_retransmissions=0)
    simulation.send(0, b"nobody hears this")
    for _ in range(3):
        simulation.run(LIFE_MS)
        simulation.crash(0)
        simulation.run(9 * LIFE_MS)
        simulation.start(0)
    simulation.run(LIFE_MS)
    assert len(events_of(simulation, 0, MessageDeliveryErrorEvent)) == 1


@pytest.mark.parametrize("life_ms", [LIFE_MS, 2 * REPORT_MS])
def test_a_receiver_that_is_restarted_all_the_time_acknowledges(life_ms: float) -> None:
    simulation = group(store=NO_STORE)
    simulation.send(0, b"hello")
    live_on(simulation, 1, 4 * TIMEOUT_MS, life_ms)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 1


def test_who_is_restarted_all_the_time_breaks_silences() -> None:
    simulation = settled_pair()
    before = len(syncs_of(simulation, 1))
    live_on(simulation, 1, 8 * SCALED_SDS.sync_interval_ms)
    # Not at each start either.
    assert 4 <= len(syncs_of(simulation, 1)) - before <= 16


def settled_pair(carries: Any = None) -> Simulation:
    """Return a pair that has been talking for a while."""
    simulation = group(store=NO_STORE, carries=carries, max_retransmissions=0)
    simulation.send(0, b"hello")
    simulation.send(1, b"hello")
    simulation.run(2_000)
    return simulation


def lacking_pair(*, answered: bool) -> tuple[Simulation, str]:
    """Return a pair whose second participant lacks a message and knows it, and the id of it.

    Args:
        answered: What it asks for is heard.
    """

    def carries(transmission: Transmission, receiver: int) -> bool:
        message = decode(transmission)
        is_lost = b"lost" in (message.content or b"")
        is_answer = transmission.segment_id.startswith("repair:")
        return (not is_lost or is_answer) and (answered or not message.repair_request)

    simulation = settled_pair(carries)
    request_id = simulation.send(0, b"lost")
    simulation.run(2 * TIMEOUT_MS)
    simulation.send(0, b"names it")
    simulation.run(50)
    assert simulation.machine(1).status().parked_messages == 1
    return simulation, first_id(simulation, 0, request_id)


def test_who_is_restarted_all_the_time_asks_others_for_what_it_lacks() -> None:
    simulation, _ = lacking_pair(answered=True)
    live_on(simulation, 1, SCALED_SDS.repair_t_max_ms + 2 * TIMEOUT_MS)
    assert received(simulation, 1)[-2:] == [b"lost", b"names it"]


def test_who_is_restarted_all_the_time_asks_no_more_often_than_others() -> None:
    simulation, message_id = lacking_pair(answered=False)
    live_on(simulation, 1, SCALED_SDS.dependency_timeout_ms - 2 * TIMEOUT_MS)
    asked = [
        item
        for item in simulation.wire or ()
        if message_id in {entry.message_id for entry in decode(item).repair_request}
    ]
    assert 2 <= len(asked) <= 3


def test_who_is_restarted_all_the_time_answers_once() -> None:
    simulation, _ = lacking_pair(answered=True)
    before = len(simulation.wire or ())
    live_on(simulation, 0, SCALED_SDS.repair_t_max_ms + 2 * TIMEOUT_MS)
    assert received(simulation, 1)[-2:] == [b"lost", b"names it"]
    answers = [item for item in (simulation.wire or ())[before:] if "repair" in item.segment_id]
    assert len(answers) == 1


def test_who_is_restarted_all_the_time_delivers_what_waits_for_too_long() -> None:
    simulation, message_id = lacking_pair(answered=False)
    live_on(simulation, 1, 2 * SCALED_SDS.dependency_timeout_ms)
    assert received(simulation, 1)[-1] == b"names it"
    lost = events_of(simulation, 1, MessageLostEvent)
    assert [(item.message_id, item.reason) for item in lost] == [(message_id, "dependency_timeout")]


def test_who_is_restarted_all_the_time_gives_up_what_never_becomes_whole() -> None:
    segments = replace(SMALL_SEGMENTS, incomplete_timeout_ms=10_000)
    simulation = group(
        store=NO_STORE,
        segmentation=segments,
        rate_limit=RateLimitConfig(epoch_period_sec=1),
        carries=lambda item, _: not item.segment_id.endswith(":2"),
        max_retransmissions=0,
        enable_repair=False,
        dependency_timeout_ms=4_000,
    )
    simulation.send(0, bytes(100))
    simulation.run(LIFE_MS)
    assert simulation.machine(1).status().incomplete_payloads == 1
    live_on(simulation, 1, 10_000 + 2 * 4_000)
    assert simulation.machine(1).status().incomplete_payloads == 0
    lost = [item.reason for item in events_of(simulation, 1, MessageLostEvent)]
    assert "incomplete_timeout" in lost
