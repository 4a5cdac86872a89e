"""One small scripted group for each rule of the protocol: each fails were its rule absent.

Rules are those of docs/wire.md; everything happens in virtual time, on a network without faults but those a test
makes, 5 ms from anybody to anybody, with times a tenth of the defaults.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.simulation import (
    CHANNEL_ID,
    SCALED_SDS,
    START_NS,
    NodeFaults,
    Scenario,
    Simulation,
    Transmission,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.core.wire import HistoryEntry, SdsKind, SdsMessage
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    SenderIdConflictEvent,
)
from reliable_channel.types import MS, RequestId
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
    names,
    received,
    settled,
    syncs_of,
    wire_of,
)

# --- Retransmission ------------------------------------------------------------------------------


def test_acknowledgement_timer_starts_when_the_node_reports_not_at_send() -> None:
    slow = NodeFaults(report_ms=2_000)
    simulation = group(node=slow, carries=lambda transmission, receiver: False)
    request = simulation.send(0, b"one")
    simulation.run(4_000)
    times = [ms(item.time_ns) for item in wire_of(simulation, f"{request}:1")]
    assert times == [0, 2_000 + TIMEOUT_MS]


def test_acknowledgement_timer_does_not_run_while_the_segment_waits_for_the_node() -> None:
    simulation = group(node=NodeFaults(report_ms=2_000), max_in_flight=1)
    simulation.send(0, b"one")
    second = simulation.send(0, b"two")
    simulation.run(5_000)
    assert [ms(item.time_ns) for item in wire_of(simulation, f"{second}:1")] == [2_000]


def test_retransmissions_have_the_bytes_of_the_first_transmission_and_hashes_of_their_own() -> None:
    cut = {0}
    simulation = group(3, carries=lambda transmission, receiver: transmission.sender not in cut)
    request = simulation.send(0, b"one")
    for number in range(4):
        # What p0 learns meanwhile would change filter, hints and history of a message made anew.
        simulation.send(1, b"news %d" % number)
        simulation.run(TIMEOUT_MS)
    sent = wire_of(simulation, f"{request}:1")
    assert len(sent) > 3
    assert len({item.data for item in sent}) == 1
    assert len({item.message_hash for item in sent}) == len(sent)


def test_retransmission_stops_at_the_leaders_acknowledgement_though_others_lack_it() -> None:
    simulation = group(3, store=NO_STORE, carries=lambda transmission, receiver: receiver != 2)
    request = simulation.send(0, b"one")
    simulation.run(10 * TIMEOUT_MS)
    (delivered,) = events_of(simulation, 0, MessageDeliveredEvent)
    assert delivered.recipients == ("p1",)
    assert len(wire_of(simulation, f"{request}:1")) == 1
    assert received(simulation, 2) == []


def test_two_receivers_with_one_half_each_do_not_make_it_delivered() -> None:
    """The leader gets the rest, though somebody else has acknowledged every segment."""
    halves = {1: "2", 2: "1"}  # which segment each receiver misses at first

    def carries(transmission: Transmission, receiver: int) -> bool:
        first = ms(transmission.time_ns) < TIMEOUT_MS
        missed = transmission.segment_id.rpartition(":")[2] == halves.get(receiver)
        return not (first and transmission.sender == 0 and missed)

    simulation = group(3, store=NO_STORE, segmentation=SMALL_SEGMENTS, carries=carries)
    request = simulation.send(0, bytes(100))
    simulation.run(TIMEOUT_MS - 10)
    status = simulation.machine(0).request_status(request)
    assert dict(status.acknowledged) == {"p1": 1, "p2": 1}
    assert not status.is_final
    leader = status.acknowledged[0][0]
    simulation.run(2 * TIMEOUT_MS)
    (delivered,) = events_of(simulation, 0, MessageDeliveredEvent)
    assert delivered.recipients[0] == leader
    retransmitted = [len(wire_of(simulation, f"{request}:{part}")) for part in (1, 2)]
    assert retransmitted == ([1, 2] if leader == "p1" else [2, 1])


def test_delivery_error_comes_after_the_timeout_of_the_last_retransmission_and_is_final() -> None:
    simulation = group(store=NO_STORE, carries=lambda transmission, receiver: False)
    request = simulation.send(0, b"one")
    simulation.run(20 * TIMEOUT_MS)
    sent = wire_of(simulation, f"{request}:1")
    assert len(sent) == 1 + SCALED_SDS.max_retransmissions
    (error,) = events_of(simulation, 0, MessageDeliveryErrorEvent)
    assert ms(error.time_ns) == ms(sent[-1].time_ns) + REPORT_MS + TIMEOUT_MS
    assert not events_of(simulation, 0, MessageDeliveredEvent)


def test_acknowledgement_after_the_delivery_error_changes_nothing() -> None:
    cut = [True]
    simulation = group(store=NO_STORE, carries=lambda transmission, receiver: not cut[0])
    request = simulation.send(0, b"one")
    late = (simulation.wire or [])[0]
    simulation.run(20 * TIMEOUT_MS)
    cut.clear()
    cut.append(False)
    simulation.inject(1, late.data, late.message_hash)
    simulation.run(20 * TIMEOUT_MS)
    status = simulation.machine(0).request_status(request)
    assert status.recipients == ("p1",)
    assert len(events_of(simulation, 0, MessageDeliveryErrorEvent)) == 1
    assert not events_of(simulation, 0, MessageDeliveredEvent)


# --- Acknowledgements ----------------------------------------------------------------------------


def test_reply_that_names_some_of_ten_messages_does_not_lose_the_acknowledgement_of_the_others() -> (
    None
):
    simulation = group(bloom_capacity=0)
    requests = [simulation.send(0, b"%d" % number) for number in range(10)]
    simulation.run(6)
    reply = simulation.send(1, b"reply")
    named = names(wire_of(simulation, f"{reply}:1")[0])
    assert len(named) < 10
    assert simulation.machine(1).status().owed_acknowledgements == 10 - len(named)
    assert simulation.settle(TIMEOUT_MS)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 10
    assert all(len(wire_of(simulation, f"{request}:1")) == 1 for request in requests)


def test_duplicate_is_owed_again_because_the_acknowledgement_was_lost() -> None:
    lost: list[Transmission] = []

    def carries(transmission: Transmission, receiver: int) -> bool:
        if transmission.sender == 1 and not lost:
            lost.append(transmission)
            return False
        return True

    simulation = group(store=NO_STORE, bloom_capacity=0, carries=carries)
    request = simulation.send(0, b"one")
    assert simulation.settle(3 * TIMEOUT_MS)
    assert len(wire_of(simulation, f"{request}:1")) == 2
    assert len(syncs_of(simulation, 1)) == 2
    assert received(simulation, 1) == [b"one"]


@pytest.mark.parametrize("seed", range(10))
def test_acknowledging_sync_goes_out_before_the_senders_timeout(seed: int) -> None:
    simulation = group(4, seed=seed)
    request = simulation.send(0, b"one")
    simulation.run(2 * TIMEOUT_MS)
    syncs = [item for index in (1, 2, 3) for item in syncs_of(simulation, index)]
    assert syncs
    assert all(ms(item.time_ns) <= 5 + TIMEOUT_MS / 2 for item in syncs)
    assert len(wire_of(simulation, f"{request}:1")) == 1


def test_a_group_does_not_answer_all_at_once() -> None:
    """Of 24 receivers that have been heard lately, only a few acknowledge a message."""
    answers = 0
    for seed in range(5):
        simulation = group(25, seed=seed)
        for index in range(1, 25):
            simulation.send(index, b"here")
        assert simulation.settle()
        before = len(simulation.wire or ())
        simulation.send(0, b"one")
        assert simulation.settle(TIMEOUT_MS)
        answers += len(simulation.wire or ()) - before - 1
    assert 5 <= answers <= 5 * 6


def test_acknowledgement_of_everything_one_holds_by_another_makes_ones_own_needless() -> None:
    simulation = group(3, bloom_capacity=0)
    simulation.send(0, b"one")
    simulation.run(6)
    assert [simulation.machine(index).status().owed_acknowledgements for index in (1, 2)] == [1, 1]
    simulation.run(2 * TIMEOUT_MS)
    assert len(syncs_of(simulation, 1)) + len(syncs_of(simulation, 2)) == 1


def test_another_sync_carries_what_does_not_fit_in_one() -> None:
    simulation = group(bloom_capacity=0, max_in_flight=100)
    for number in range(100):
        simulation.send(0, b"%d" % number)
    assert simulation.settle(TIMEOUT_MS)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 100
    assert max(len(names(item)) for item in syncs_of(simulation, 1)) == 64
    assert len([item for item in simulation.wire or () if item.sender == 0]) == 100


def test_filter_that_holds_an_id_in_two_messages_acknowledges_it_and_in_one_does_not() -> None:
    simulation = group(3)
    request = simulation.send(0, b"one")
    simulation.run(6)
    # Replies of p1 whose histories are cut off: what is left is the filter.
    for number in (1, 2):
        reply = simulation.send(1, b"reply %d" % number)
        sent = wire_of(simulation, f"{reply}:1")[0]
        message = replace(decode(sent), causal_history=(), message_id=f"foreign {number}")
        status = simulation.machine(0).request_status(request)
        assert not status.acknowledged
        simulation.inject(0, replace(message, content=b"unsegmented").encode())
    assert simulation.machine(0).request_status(request).recipients == ("p1",)


def sync_naming(sender_id: str, message_id: str, *named: str) -> bytes:
    """Return a sync message of somebody."""
    return SdsMessage(
        sender_id=sender_id,
        message_id=message_id,
        channel_id=CHANNEL_ID,
        lamport_timestamp=START_NS // MS + 1,
        causal_history=tuple(HistoryEntry(item) for item in named),
    ).encode()


def test_acknowledgement_of_a_request_that_is_just_forgotten_leaves_nothing_that_stops_a_restart() -> (
    None
):
    simulation = group(max_finished_requests=1, carries=lambda transmission, receiver: False)
    first, second = (
        first_id(simulation, 0, simulation.send(0, payload)) for payload in (b"1", b"2")
    )
    simulation.inject(0, sync_naming("p1", "sync 1", first))
    simulation.inject(0, sync_naming("p2", "sync 2", second, first))
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 2
    simulation.crash(0)
    simulation.start(0)
    assert simulation.machine(0).status().open_requests == 0


# --- Bounds --------------------------------------------------------------------------------------


def test_known_ids_are_bounded_at_a_participant_that_only_sends() -> None:
    simulation = group(max_known_ids=64)
    for number in range(50):
        for part in range(6):
            simulation.send(0, b"%d.%d" % (number, part))
        simulation.run(TIMEOUT_MS)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 300
    assert simulation.machine(0).status().known_messages <= 70
    assert simulation.machine(1).status().known_messages <= 70


def test_owed_acknowledgements_are_bounded_while_the_node_takes_nothing() -> None:
    simulation = group(max_known_ids=64, node=NodeFaults(report_ms=1e9), max_in_flight=1)
    simulation.send(1, b"occupies the node")
    for number in range(300):
        message = SdsMessage(
            sender_id="s",
            message_id=f"m{number}",
            channel_id=CHANNEL_ID,
            lamport_timestamp=START_NS // MS + number,
            content=b"x",
        )
        simulation.inject(1, message.encode())
    status = simulation.machine(1).status()
    assert status.owed_acknowledgements <= status.known_messages <= 70


# --- Syncs in silence ----------------------------------------------------------------------------


def test_idle_sync_comes_after_the_first_interval_then_at_doubling_distances() -> None:
    simulation = group(2, carries=lambda transmission, receiver: False)
    simulation.send(0, b"one")
    simulation.run(250_000)
    times = [0.0, *(ms(item.time_ns) for item in syncs_of(simulation, 0))]
    distances = [later - earlier for earlier, later in pairwise(times)]
    intervals = [3_000, 6_000, 12_000, 24_000, 48_000, 60_000]
    assert len(distances) >= len(intervals)
    for distance, interval in zip(distances, intervals, strict=False):
        assert interval <= distance <= 1.5 * interval


def test_idle_sync_is_put_off_by_anybodys_message() -> None:
    simulation = group(3)
    simulation.send(0, b"one")
    for _ in range(10):
        simulation.run(2_900)
        simulation.send(1, b"again")
    assert len(simulation.wire or ()) <= 11 + 11  # messages, and an acknowledgement for each


@pytest.mark.parametrize("through", ["acknowledgement", "silence"])
def test_last_message_lost_at_one_receiver_is_found_through_a_sync_and_fetched(
    through: str,
) -> None:
    def carries(transmission: Transmission, receiver: int) -> bool:
        early = ms(transmission.time_ns) < 1_000
        if receiver != 2 or not early:
            return True
        return through == "acknowledgement" and kind_of(transmission) is SdsKind.SYNC

    simulation = group(3, carries=carries)
    request = simulation.send(0, b"last")
    assert simulation.settle(10_000)
    assert received(simulation, 2) == [b"last"]
    assert len(wire_of(simulation, f"{request}:1")) == 1
    assert simulation.counters["fetches"] == 1
    assert (ms(simulation.now) > 3_000) is (through == "silence")


def test_message_that_went_out_long_after_its_successors_can_still_be_found() -> None:
    """Its hint is known last, and its Lamport time is not among the newest that a sync names."""
    cut: list[int] = []
    simulation = group(
        3,
        dependency_timeout_ms=600_000,
        carries=lambda transmission, receiver: receiver not in cut,
    )
    refuse(simulation, b"stubborn", retryable=True)
    simulation.send(0, b"stubborn")
    for number in range(80):
        simulation.send(0, b"%d" % number)
        simulation.run(20)
    simulation.refusal = None
    cut.append(2)  # p2 misses the message itself, and the acknowledgement of p1 that names it
    while simulation.machine(0).status().open_requests:
        simulation.run(10)
    cut.clear()
    assert simulation.settle(600_000)
    assert b"stubborn" in received(simulation, 2)


# --- Causal order --------------------------------------------------------------------------------


def chain(simulation: Simulation, *payloads: bytes) -> list[RequestId]:
    """Send messages of p0, far enough apart that each arrives before the next is sent."""
    requests = []
    for payload in payloads:
        requests.append(simulation.send(0, payload))
        simulation.run(20)
    return requests


def first_is_lost(transmission: Transmission, receiver: int) -> bool:
    """Carry everything but what p0 sent in the first milliseconds, and its repetitions."""
    return transmission.sender != 0 or ms(transmission.time_ns) != 1_000


def test_dependency_that_is_only_parked_does_not_count_as_met() -> None:
    simulation = settled(causal_history_size=1, carries=first_is_lost)
    chain(simulation, b"1", b"2", b"3")
    simulation.run(5_000)
    assert received(simulation, 1) == [b"hello"]
    assert simulation.machine(1).status().parked_messages == 2


def test_arrival_of_a_missing_message_releases_its_whole_chain_at_once_in_order() -> None:
    simulation = settled(causal_history_size=1, carries=first_is_lost)
    first, *_ = chain(simulation, b"1", b"2", b"3", b"4")
    simulation.run(5_000)
    lost = wire_of(simulation, f"{first}:1")[0]
    simulation.inject(1, lost.data, lost.message_hash)
    assert received(simulation, 1) == [b"hello", b"1", b"2", b"3", b"4"]
    times = {event.time_ns for event in events_of(simulation, 1, MessageReceivedEvent)[1:]}
    assert times == {simulation.now}


def test_after_the_dependency_timeout_a_lost_event_names_the_missing_id_then_it_is_delivered() -> (
    None
):
    simulation = settled(carries=first_is_lost, dependency_timeout_ms=2_000, enable_repair=False)
    first, _ = chain(simulation, b"1", b"2")
    missing = first_id(simulation, 0, first)
    simulation.run(1_900)
    assert received(simulation, 1) == [b"hello"]
    simulation.run(200)
    lost, delivered = simulation.journals[1].events[-2:]
    assert isinstance(lost, MessageLostEvent)
    assert isinstance(delivered, MessageReceivedEvent)
    assert (lost.message_id, lost.sender_id, lost.reason) == (missing, "p0", "dependency_timeout")
    assert (delivered.message, delivered.late) == (b"2", False)
    assert ms(delivered.time_ns) == 1_020 + 5 + 2_000


def test_what_arrives_after_it_was_declared_lost_is_delivered_and_marked_late() -> None:
    simulation = settled(carries=first_is_lost, dependency_timeout_ms=2_000, enable_repair=False)
    first, _ = chain(simulation, b"1", b"2")
    simulation.run(3_000)
    lost = wire_of(simulation, f"{first}:1")[0]
    simulation.inject(1, lost.data, lost.message_hash)
    events = events_of(simulation, 1, MessageReceivedEvent)
    assert [(event.message, event.late) for event in events[1:]] == [(b"2", False), (b"1", True)]


def test_full_parking_lot_releases_its_oldest() -> None:
    simulation = settled(max_parked_messages=3)
    for number in range(1, 5):
        message = SdsMessage(
            sender_id="foreign",
            message_id=f"m{number}",
            channel_id=CHANNEL_ID,
            lamport_timestamp=simulation.now // MS + 10 - number,
            causal_history=(HistoryEntry(f"cause of m{number}"),),
            content=b"%d" % number,
        )
        simulation.inject(1, message.encode())
        assert simulation.machine(1).status().parked_messages == min(number, 3)
    (lost,) = events_of(simulation, 1, MessageLostEvent)
    assert (lost.message_id, lost.reason) == ("cause of m1", "parking_full")
    assert received(simulation, 1) == [b"hello", b"1"]


def test_overlapping_sends_chain_though_the_first_is_still_under_way() -> None:
    slow = NodeFaults(report_ms=1_000)
    held: list[Transmission] = []

    def carries(transmission: Transmission, receiver: int) -> bool:
        if transmission.sender == 0 and not held:
            held.append(transmission)
            return False
        return True

    simulation = group(node=slow, store=NO_STORE, segmentation=SMALL_SEGMENTS, carries=carries)
    first = simulation.send(0, b"a" * 150)
    second = simulation.send(0, b"b" * 150)
    last = simulation.machine(0).request_status(first).segments[-1].message_id
    assert last in names(wire_of(simulation, f"{second}:1")[0])
    simulation.run(300)
    assert received(simulation, 1) == []
    simulation.inject(1, held[0].data, held[0].message_hash)
    assert received(simulation, 1) == [b"a" * 150, b"b" * 150]


def test_every_one_of_three_concurrent_branches_is_named() -> None:
    simulation = group(4, causal_history_size=2)
    requests = [simulation.send(index, b"branch") for index in (1, 2, 3)]
    branches = {first_id(simulation, index, requests[index - 1]) for index in (1, 2, 3)}
    simulation.run(6)
    reply = simulation.send(0, b"reply")
    assert branches <= set(names(wire_of(simulation, f"{reply}:1")[0]))


def test_branches_are_named_also_by_one_that_has_just_fetched_the_past() -> None:
    """What it fetched is older than what it heard, and named by it: these are no branches."""
    scenario = Scenario(participants=4, faults=LinkFaults(delay_ms=5))
    simulation = Simulation(scenario, wire=[])
    simulation.start(0, 1, 2)
    for number in range(60):
        simulation.send(number % 3, b"past %d" % number)
        simulation.run(20)
    simulation.start(3)
    assert simulation.settle()
    simulation.run(10_000)  # an idle sync names the past, and the store has it
    assert len(received(simulation, 3)) > 20
    requests = [simulation.send(index, b"branch") for index in (0, 1, 2)]
    branches = {first_id(simulation, index, requests[index]) for index in (0, 1, 2)}
    simulation.run(6)
    reply = simulation.send(3, b"reply")
    assert branches <= set(names(wire_of(simulation, f"{reply}:1")[0]))


def test_history_has_the_last_two_ids_where_nothing_is_concurrent() -> None:
    simulation = group(2)
    requests = chain(simulation, b"1", b"2", b"3")
    known = [first_id(simulation, 0, request) for request in requests]
    reply = simulation.send(1, b"reply")
    assert names(wire_of(simulation, f"{reply}:1")[0]) == known[1:]


# --- Identity ------------------------------------------------------------------------------------


def test_equal_payloads_sent_twice_are_delivered_twice() -> None:
    simulation = group()
    simulation.send(0, b"same")
    simulation.send(0, b"same")
    assert simulation.settle(TIMEOUT_MS)
    assert received(simulation, 1) == [b"same", b"same"]


def test_with_ids_of_the_content_equal_payloads_are_one_message() -> None:
    simulation = group(message_id="content")
    first = simulation.send(0, b"same")
    simulation.run(2 * TIMEOUT_MS)
    second = simulation.send(0, b"same")
    simulation.run(2 * TIMEOUT_MS)
    assert first_id(simulation, 0, first) == first_id(simulation, 0, second)
    assert received(simulation, 1) == [b"same"]
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 2


def test_with_ids_of_the_content_one_acknowledgement_ends_both_of_two_equal_open_requests() -> None:
    simulation = group(message_id="content")
    simulation.send(0, b"same")
    simulation.send(0, b"same")
    simulation.run(20 * TIMEOUT_MS)
    assert received(simulation, 1) == [b"same"]
    assert not events_of(simulation, 0, MessageDeliveryErrorEvent)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 2


def test_with_ids_of_the_content_a_restart_between_two_equal_requests_goes_on() -> None:
    simulation = group(message_id="content")
    simulation.send(0, b"same")
    simulation.send(0, b"same")
    simulation.run(TIMEOUT_MS)
    simulation.crash(0)
    simulation.start(0)
    assert simulation.settle(20 * TIMEOUT_MS)


def test_with_ids_of_the_content_a_failed_request_leaves_its_equal_twin_what_a_restart_needs() -> (
    None
):
    simulation = group(message_id="content", max_in_flight=1)
    refuse(simulation, b"same")
    simulation.send(0, b"same")
    simulation.run(1)
    simulation.send(0, b"same")
    simulation.run(REPORT_MS)
    assert len(events_of(simulation, 0, MessageSendErrorEvent)) == 1
    simulation.refusal = None
    simulation.crash(0)
    simulation.start(0)
    assert simulation.settle(20 * TIMEOUT_MS)
    assert received(simulation, 1) == [b"same"]


def test_own_messages_that_come_back_are_ignored() -> None:
    simulation = group(node=NodeFaults(report_ms=REPORT_MS, echo=1.0), segmentation=SMALL_SEGMENTS)
    simulation.send(0, bytes(150))
    simulation.send(0, b"short", ephemeral=True)
    simulation.run(10_000)
    assert received(simulation, 0) == []
    assert not events_of(simulation, 0, SenderIdConflictEvent)
    assert simulation.machine(0).status().counters["echoes"] >= 4


def test_strangers_use_of_ones_sender_id_raises_the_conflict_event_once_and_is_delivered() -> None:
    twin = ChannelMachine(
        channel_id=CHANNEL_ID,
        sender_id="p0",
        content_topic="/simulation/1/group/proto",
        now=START_NS,
        seed=99,
        sds=SCALED_SDS,
    )
    twin.start(START_NS)
    simulation = group()
    simulation.send(0, b"mine")
    simulation.run(20)
    for payload in (b"first of the twin", b"second of the twin"):
        _, effects = twin.send(payload, simulation.now)
        simulation.inject(0, effects.publishes[0].data)
        simulation.inject(0, effects.publishes[0].data)
    assert len(events_of(simulation, 0, SenderIdConflictEvent)) == 1
    assert received(simulation, 0) == [b"first of the twin", b"second of the twin"]


def test_forged_id_is_refused_and_the_honest_message_still_arrives() -> None:
    simulation = group(3)
    request = simulation.send(0, b"honest")
    sent = decode(wire_of(simulation, f"{request}:1")[0])
    content = sent.content or b""
    forged = replace(sent, content=content.replace(b"honest", b"forged"))
    stolen = replace(sent, sender_id="p2")
    for message in (forged, stolen):
        simulation.inject(1, message.encode())
    assert simulation.machine(1).status().dropped == {"forged_id": 2}
    assert simulation.settle(TIMEOUT_MS)
    assert received(simulation, 1) == [b"honest"]


@pytest.mark.parametrize("stripped", [0, 1, 2])
def test_copy_made_to_look_ephemeral_does_not_keep_the_honest_message_away(stripped: int) -> None:
    simulation = group(segmentation=SMALL_SEGMENTS, carries=lambda transmission, receiver: False)
    simulation.send(0, bytes(150))
    sent = [item.data for item in simulation.wire or ()]
    bare = replace(SdsMessage.decode(sent[stripped]), lamport_timestamp=None).encode()
    simulation.inject(1, bare)
    for data in reversed(sent):
        simulation.inject(1, data)
    assert bytes(150) in received(simulation, 1)
    assert simulation.machine(1).status().incomplete_payloads <= 1


def test_copy_made_to_look_ephemeral_after_others_of_the_payload_raises_nothing() -> None:
    simulation = group(segmentation=SMALL_SEGMENTS, carries=lambda transmission, receiver: False)
    simulation.send(0, bytes(150))
    first, second, third = (item.data for item in simulation.wire or ())
    simulation.inject(1, third)
    simulation.inject(1, replace(SdsMessage.decode(first), lamport_timestamp=None).encode())
    simulation.inject(1, second)
    simulation.inject(1, first)
    assert bytes(150) in received(simulation, 1)


def test_segment_ids_are_minted_before_dispatch() -> None:
    simulation = group(segmentation=SMALL_SEGMENTS, max_in_flight=1)
    blocker = simulation.send(0, b"occupies the node")
    request = simulation.send(0, bytes(200))
    status = simulation.machine(0).request_status(request)
    expected = [f"{request}:{part}" for part in (1, 2, 3, 4)]
    assert [segment.segment_id for segment in status.segments] == expected
    assert all(segment.transmissions == 0 for segment in status.segments)
    assert simulation.settle(TIMEOUT_MS)
    sent = [item.segment_id for item in simulation.wire or () if item.sender == 0]
    assert [item for item in sent if not item.startswith("sync")] == [f"{blocker}:1", *expected]


# --- Clocks --------------------------------------------------------------------------------------


def test_lamport_time_far_in_the_future_is_taken_as_five_minutes_ahead() -> None:
    simulation = group()
    far = START_NS // MS + 365 * 24 * 3_600_000
    message = SdsMessage(
        sender_id="stranger",
        message_id="from the future",
        channel_id=CHANNEL_ID,
        lamport_timestamp=far,
        content=b"hello",
    )
    simulation.inject(0, message.encode())
    assert received(simulation, 0) == [b"hello"]
    assert simulation.machine(0).status().lamport_timestamp == START_NS // MS + 300_000
    request = simulation.send(0, b"next")
    sent = decode(wire_of(simulation, f"{request}:1")[0])
    assert sent.lamport_timestamp == START_NS // MS + 300_001


def test_lamport_time_of_63_bits_or_more_is_malformed() -> None:
    simulation = group()
    message = SdsMessage(
        sender_id="s",
        message_id="m",
        channel_id=CHANNEL_ID,
        lamport_timestamp=1 << 63,
        content=b"x",
    )
    simulation.inject(0, message.encode())
    assert simulation.machine(0).status().dropped == {"invalid_lamport_timestamp": 1}


def test_low_lamport_time_is_no_reason_to_drop_a_message() -> None:
    """The Nim implementation counts seconds."""
    simulation = group()
    message = SdsMessage(
        sender_id="s", message_id="m", channel_id=CHANNEL_ID, lamport_timestamp=1, content=b"low"
    )
    simulation.inject(0, message.encode())
    assert received(simulation, 0) == [b"low"]


# --- Ephemeral messages --------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"short", bytes(range(256))], ids=["whole", "segments"])
def test_ephemeral_message_is_delivered_at_once_and_ends_in_sent(payload: bytes) -> None:
    simulation = group(segmentation=SMALL_SEGMENTS)
    simulation.send(0, payload, ephemeral=True)
    simulation.run(5)
    (event,) = events_of(simulation, 1, MessageReceivedEvent)
    assert (event.message, event.ephemeral, event.late) == (payload, True, False)
    simulation.run(20 * TIMEOUT_MS)
    assert len(events_of(simulation, 0, MessageSentEvent)) == 1
    assert not events_of(simulation, 0, MessageDeliveredEvent)
    simulation.check()


def test_ephemeral_messages_are_neither_repeated_nor_acknowledged_nor_waited_for() -> None:
    simulation = group(carries=lambda transmission, receiver: not transmission.ephemeral)
    request = simulation.send(0, b"gone", ephemeral=True)
    simulation.run(2 * TIMEOUT_MS)
    assert len(wire_of(simulation, f"{request}:1")) == 1
    assert wire_of(simulation, f"{request}:1")[0].ephemeral
    following = simulation.send(0, b"next")
    assert names(wire_of(simulation, f"{following}:1")[0]) == []
    simulation.run(20)
    assert received(simulation, 1) == [b"next"]


def test_incomplete_ephemeral_message_is_dropped_without_a_lost_event() -> None:
    """Nothing of it was acknowledged, so nobody was promised anything."""
    simulation = group(
        segmentation=replace(SMALL_SEGMENTS, incomplete_timeout_ms=1_000),
        carries=lambda transmission, receiver: not transmission.segment_id.endswith(":2"),
    )
    simulation.send(0, bytes(100), ephemeral=True)
    simulation.run(5_000)
    assert simulation.machine(1).status().incomplete_payloads == 0
    assert not events_of(simulation, 1, MessageLostEvent)


# --- What the node could not send ----------------------------------------------------------------


def refuse(simulation: Simulation, word: bytes, *, retryable: bool = False) -> None:
    """Let nodes fail whatever carries a word."""
    simulation.refusal = lambda publish, index: retryable if word in publish.data else None


def test_rejected_message_leaves_histories_and_what_it_named_is_named_again() -> None:
    simulation = group(4)
    requests = [simulation.send(index, b"branch") for index in (1, 2, 3)]
    branches = {first_id(simulation, index, requests[index - 1]) for index in (1, 2, 3)}
    simulation.run(6)
    refuse(simulation, b"doomed")
    doomed = simulation.send(0, b"doomed")
    simulation.run(REPORT_MS)
    assert len(events_of(simulation, 0, MessageSendErrorEvent)) == 1
    following = simulation.send(0, b"next")
    named = set(names(wire_of(simulation, f"{following}:1")[0]))
    assert first_id(simulation, 0, doomed) not in named
    assert branches <= named


def test_message_that_waited_behind_a_rejected_one_names_what_that_had_named() -> None:
    """Else it would depend on nothing, and come out before its causes."""
    simulation = group(4, max_in_flight=1)
    requests = [simulation.send(index, b"branch") for index in (1, 2, 3)]
    branches = {first_id(simulation, index, requests[index - 1]) for index in (1, 2, 3)}
    simulation.run(6)
    refuse(simulation, b"doomed")
    doomed = [simulation.send(0, b"doomed %d" % number) for number in (1, 2)]
    waiting = simulation.send(0, b"waited")
    simulation.run(50)
    named = set(names(wire_of(simulation, f"{waiting}:1")[0]))
    assert not named & {first_id(simulation, 0, request) for request in doomed}
    assert branches <= named


def test_segments_in_flight_when_their_request_failed_are_not_named_either() -> None:
    """Else receivers would wait for what nobody has until the dependency timeout."""
    simulation = group(segmentation=SMALL_SEGMENTS)
    simulation.send(0, b"hello")
    simulation.run(TIMEOUT_MS)
    refuse(simulation, b"doomed")
    simulation.send(0, b"doomed" * 40)
    simulation.run(2 * REPORT_MS)
    assert len(events_of(simulation, 0, MessageSendErrorEvent)) == 1
    simulation.send(0, b"next")
    simulation.run(TIMEOUT_MS)
    assert received(simulation, 1) == [b"hello", b"next"]


def test_half_a_message_that_ended_in_a_send_error_holds_nothing_up() -> None:
    simulation = group(segmentation=SMALL_SEGMENTS)
    simulation.send(0, b"hello")
    simulation.run(TIMEOUT_MS)
    refuse(simulation, b"doomed")
    simulation.send(0, b"-" * 128 + b"doomed")
    simulation.run(2 * REPORT_MS)
    assert len(events_of(simulation, 0, MessageSendErrorEvent)) == 1
    simulation.send(0, b"next")
    simulation.run(TIMEOUT_MS)
    assert received(simulation, 1) == [b"hello", b"next"]


def test_failure_that_may_pass_is_tried_again_until_it_does() -> None:
    simulation = group()
    refuse(simulation, b"stubborn", retryable=True)
    request = simulation.send(0, b"stubborn")
    simulation.run(5_000)
    assert wire_of(simulation, f"{request}:1") == []
    simulation.refusal = None
    assert simulation.settle(20_000)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 1
    assert len(wire_of(simulation, f"{request}:1")) == 1


def test_failure_that_does_not_pass_ends_in_one_send_error() -> None:
    simulation = group(dispatch_timeout_ms=10_000)
    refuse(simulation, b"stubborn", retryable=True)
    simulation.send(0, b"stubborn")
    simulation.run(120_000)
    assert len(events_of(simulation, 0, MessageSendErrorEvent)) == 1
    simulation.check()


def test_what_a_sync_named_that_the_node_did_not_take_is_owed_again() -> None:
    simulation = group(store=NO_STORE, bloom_capacity=0, acknowledgement_timeout_ms=10_000)
    simulation.refusal = lambda publish, index: True if index == 1 else None
    request = simulation.send(0, b"one")
    while not simulation.counters["publish_failures"]:
        simulation.run(1)
    simulation.refusal = None
    simulation.run(2_000)
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 1
    assert len(wire_of(simulation, f"{request}:1")) == 1


# --- Rate limit ----------------------------------------------------------------------------------


def test_request_that_waits_for_the_next_epoch_raises_a_queued_event_with_the_time() -> None:
    limit = RateLimitConfig(enabled=True, epoch_period_sec=10, messages_per_epoch=4)
    simulation = group(rate_limit=limit)
    requests = [simulation.send(0, b"%d" % number) for number in range(6)]
    queued = events_of(simulation, 0, MessageQueuedEvent)
    assert [event.request_id for event in queued] == requests[-len(queued) :]
    assert len(queued) == 2
    assert queued[0].expected_at == START_NS + 10_000 * MS
    assert simulation.settle()
    first = wire_of(simulation, f"{queued[0].request_id}:1")[0]
    assert 0 <= ms(first.time_ns) - ms(queued[0].expected_at) <= 1_000
    simulation.check()


# --- Foreign peers -------------------------------------------------------------------------------


def test_id_of_a_sync_named_by_a_foreign_peer_is_waited_for_only_a_moment() -> None:
    simulation = group()
    sync = SdsMessage(
        sender_id="nim", message_id="s1", channel_id=CHANNEL_ID, lamport_timestamp=START_NS // MS
    )
    simulation.inject(0, sync.encode())
    content = SdsMessage(
        sender_id="nim",
        message_id="m1",
        channel_id=CHANNEL_ID,
        lamport_timestamp=START_NS // MS + 1,
        causal_history=(HistoryEntry("s1"),),
        content=b"hello",
    )
    simulation.inject(0, content.encode())
    assert received(simulation, 0) == []
    simulation.run(2 * TIMEOUT_MS)
    assert received(simulation, 0) == [b"hello"]


def test_cycle_of_foreign_messages_is_delivered_lowest_first() -> None:
    simulation = settled()

    def message(name: str, cause: str, lamport: int) -> bytes:
        return SdsMessage(
            sender_id="foreign",
            message_id=name,
            channel_id=CHANNEL_ID,
            lamport_timestamp=simulation.now // MS + lamport,
            causal_history=(HistoryEntry(cause),),
            content=name.encode(),
        ).encode()

    simulation.inject(0, message("b", "a", 2))
    simulation.inject(0, message("c", "b", 3))
    simulation.inject(0, message("a", "c", 1))
    assert received(simulation, 0)[1:] == [b"a", b"b", b"c"]


def test_hash_that_answered_with_something_else_is_not_asked_for_again() -> None:
    simulation = group()
    simulation.send(1, b"hello")
    simulation.run(2 * TIMEOUT_MS)
    other = (simulation.wire or [])[0]
    sync = SdsMessage(
        sender_id="stranger",
        message_id="s1",
        channel_id=CHANNEL_ID,
        lamport_timestamp=simulation.now // MS,
        causal_history=(HistoryEntry("no such message", other.message_hash),),
    )
    before = simulation.counters["fetches"]
    simulation.inject(0, sync.encode())
    simulation.run(20_000)
    assert simulation.counters["fetches"] == before + 1


def test_missing_message_is_asked_for_at_0_3_and_10_seconds() -> None:
    times: list[float] = []
    simulation = group()
    simulation.send(1, b"hello")
    simulation.run(2 * TIMEOUT_MS)
    sync = SdsMessage(
        sender_id="stranger",
        message_id="s1",
        channel_id=CHANNEL_ID,
        lamport_timestamp=simulation.now // MS,
        causal_history=(HistoryEntry("no such message", bytes(32)),),
    )
    begin = simulation.now
    simulation.inject(0, sync.encode())
    asked = simulation.counters["fetches"]
    times.append(0)
    for _ in range(200):
        simulation.run(100)
        if simulation.counters["fetches"] > asked:
            asked = simulation.counters["fetches"]
            times.append((simulation.now - begin) / MS)
    assert times == [0, 3_000, 10_000]
