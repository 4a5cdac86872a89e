"""SDS-R in groups of real machines: who asks, who answers, how often, and when nobody does.

No store has anything here; times are a tenth of the defaults: requests from 3 to 12 s, answers within 12 s.

Spec: LIP-109 (SDS), SDS Repair; docs/adr/0012-repair-by-participants.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.simulation import SCALED_SDS, Scenario, Simulation, Transmission, play
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SegmentationConfig
from reliable_channel.core.sds.repair import answer_delay_ms, request_delay_ms
from reliable_channel.core.wire import HistoryEntry, SdsKind
from reliable_channel.events import (
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageReceivedEvent,
)
from reliable_channel.types import MessageId
from tests.support.simulated import (
    NO_STORE,
    SMALL_SEGMENTS,
    decode,
    events_of,
    first_id,
    group,
    kind_of,
    ms,
    received,
    wire_of,
)

T_MIN, T_MAX = SCALED_SDS.repair_t_min_ms, SCALED_SDS.repair_t_max_ms
DELAY_MS = 5.0


class Losing:
    """A network that loses what it is told to, and nothing else.

    Attributes:
        lost: Who does not get a message, whoever sends it.
        next_lost: Who does not get the next segments of p0, and how many segments that holds for.
        gone: Who neither gets nor sends anything.
        silenced: Kinds of messages that nobody gets.
    """

    def __init__(self) -> None:
        self.lost: dict[MessageId, set[int]] = {}
        self.next_lost: list[set[int]] = []
        self.gone: set[int] = set()
        self.silenced: set[SdsKind] = set()

    def __call__(self, transmission: Transmission, receiver: int) -> bool:
        if {transmission.sender, receiver} & self.gone or kind_of(transmission) in self.silenced:
            return False
        message_id = decode(transmission).message_id
        is_segment = transmission.sender == 0 and kind_of(transmission) is SdsKind.CONTENT
        if self.next_lost and is_segment and message_id not in self.lost:
            self.lost[message_id] = self.next_lost.pop(0)
        return receiver not in self.lost.get(message_id, set())


def acquainted(participants: int, network: Losing, **settings: object) -> Simulation:
    """Return a group that has talked long enough that nothing counts as from before its time."""
    simulation = group(participants, carries=network, store=NO_STORE, **settings)  # type: ignore[arg-type]
    for index in range(participants):
        simulation.send(index, b"hello")
        simulation.run(100)
    simulation.run(1_500)
    return simulation


def send_lost(simulation: Simulation, network: Losing, *receivers: int) -> MessageId:
    """Send two messages of p0, the first of which these receivers do not get, whoever repeats it; return its id."""
    network.next_lost = [set(receivers)]
    request_id = simulation.send(0, b"first")
    simulation.run(50)
    simulation.send(0, b"second")
    simulation.run(50)
    return first_id(simulation, 0, request_id)


def requests_for(simulation: Simulation, message_id: MessageId) -> list[Transmission]:
    """Return the transmissions that ask for a message."""
    return [
        item
        for item in simulation.wire or ()
        if any(entry.message_id == message_id for entry in decode(item).repair_request)
    ]


def answers_with(simulation: Simulation, message_id: MessageId) -> list[Transmission]:
    """Return the transmissions that answer a request for a message."""
    return [
        item
        for item in simulation.wire or ()
        if item.segment_id.startswith("repair:") and decode(item).message_id == message_id
    ]


def delay_of(index: int, message_id: MessageId) -> int:
    """Return T_req of a participant, milliseconds."""
    return request_delay_ms(f"p{index}", message_id, T_MIN, T_MAX)


# --- Asking --------------------------------------------------------------------------------------


def test_in_silence_a_sync_asks_soon_after_t_req() -> None:
    network = Losing()
    simulation = acquainted(2, network, max_sync_interval_ms=600_000, sync_interval_ms=600_000)
    named_ms = ms(simulation.now) + 50 + DELAY_MS
    message_id = send_lost(simulation, network, 1)
    simulation.run(T_MAX + 1_000)
    first, *_ = requests_for(simulation, message_id)
    assert kind_of(first) is SdsKind.SYNC
    due_ms = named_ms + delay_of(1, message_id)
    # The sync's own back-off is at most half the acknowledgement timeout.
    assert due_ms <= ms(first.time_ns) <= due_ms + 0.5 * SCALED_SDS.acknowledgement_timeout_ms
    (entry,) = decode(first).repair_request
    assert entry == HistoryEntry(message_id, None, "p0")


def test_a_content_message_that_goes_out_then_asks_as_well() -> None:
    network = Losing()
    simulation = acquainted(2, network)
    message_id = send_lost(simulation, network, 1)
    simulation.run(delay_of(1, message_id) - 60)
    assert not requests_for(simulation, message_id)
    simulation.run(20)
    simulation.send(1, b"by the way")
    assert [kind_of(item) for item in requests_for(simulation, message_id)] == [SdsKind.CONTENT]


def test_nothing_is_asked_for_that_arrived_in_time() -> None:
    network = Losing()
    simulation = acquainted(2, network)
    message_id = send_lost(simulation, network, 1)
    network.lost.clear()
    simulation.run(4 * T_MAX)  # the sender's retransmission brings it
    assert received(simulation, 1)[-2:] == [b"first", b"second"]
    assert requests_for(simulation, message_id) == []


def test_a_request_is_repeated_at_growing_distances_until_the_message_is_given_up() -> None:
    network = Losing()
    simulation = acquainted(2, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    simulation.run(120_000)
    times = [ms(item.time_ns) for item in requests_for(simulation, message_id)]
    assert 2 <= len(times) <= 4
    assert times[-1] < ms(simulation.now) - 40_000
    distances = [later - sooner for sooner, later in pairwise(times)]
    assert distances == sorted(distances)
    (lost,) = events_of(simulation, 1, MessageLostEvent)
    assert (lost.message_id, lost.sender_id) == (message_id, "p0")
    assert received(simulation, 1)[-1] == b"second"
    assert simulation.machine(1).status().repair_requests == 0


def test_of_several_that_lack_a_message_one_asks_while_the_answer_is_heard() -> None:
    network = Losing()
    simulation = acquainted(6, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1, 2, 3, 4)
    simulation.run(T_MIN - 100)
    network.lost.clear()
    simulation.run(2 * T_MAX)
    assert len(requests_for(simulation, message_id)) == 1
    for index in (1, 2, 3, 4):
        assert received(simulation, index)[-2:] == [b"first", b"second"]


@pytest.mark.parametrize("lacking", [1, 3, 9])
def test_many_that_lack_what_nobody_has_do_not_wake_each_other(lacking: int) -> None:
    """Hearing another's request makes nobody ask earlier or more often than alone: 4 times until it is given up."""
    network = Losing()
    simulation = acquainted(lacking + 1, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, *range(1, lacking + 1))
    network.gone.add(0)
    simulation.run(120_000)
    assert 2 <= len(requests_for(simulation, message_id)) <= 3 * lacking + 1


def test_what_may_be_from_before_our_time_is_not_asked_for() -> None:
    network = Losing()
    simulation = group(2, carries=network, store=NO_STORE, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    simulation.run(5 * T_MAX)
    assert requests_for(simulation, message_id) == []
    assert events_of(simulation, 1, MessageLostEvent) == []
    assert received(simulation, 1) == [b"second"]


# --- Answering -----------------------------------------------------------------------------------


def test_the_sender_answers_at_once_and_alone_with_the_original_bytes() -> None:
    network = Losing()
    simulation = acquainted(8, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    original = next(item for item in simulation.wire or () if decode(item).message_id == message_id)
    simulation.run(T_MIN - 100)
    network.lost.clear()
    simulation.run(3 * T_MAX)
    (request,) = requests_for(simulation, message_id)
    (answer,) = answers_with(simulation, message_id)
    assert answer.sender == 0
    assert ms(answer.time_ns) == ms(request.time_ns) + DELAY_MS
    assert answer.data == original.data
    assert answer.message_hash != original.message_hash
    assert not answer.ephemeral  # no store is known to have it
    assert received(simulation, 1)[-2:] == [b"first", b"second"]
    assert [event.late for event in events_of(simulation, 1, MessageReceivedEvent)][-1] is False


@pytest.mark.parametrize("participants", [3, 10, 40])
def test_with_the_sender_gone_one_of_the_others_answers_in_the_normal_case(
    participants: int,
) -> None:
    network = Losing()
    simulation = acquainted(participants, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    network.gone.add(0)
    simulation.run(T_MIN - 100)
    network.lost.clear()
    simulation.run(3 * T_MAX)
    (request,) = requests_for(simulation, message_id)
    answers = answers_with(simulation, message_id)
    waits = sorted(
        (answer_delay_ms(f"p{index}", "p0", message_id, T_MAX), index)
        for index in range(2, participants)
    )
    first = answers[0]
    assert first.sender == waits[0][1]
    assert ms(first.time_ns) == ms(request.time_ns) + DELAY_MS + waits[0][0]
    # Whoever is due within the time it takes to hear the first answer answers too.
    assert len(answers) == sum(wait <= waits[0][0] + DELAY_MS for wait, _ in waits)
    assert received(simulation, 1)[-2:] == [b"first", b"second"]


def test_an_answer_brings_what_its_sender_gave_up() -> None:
    """A delivery-error ends the request, not the message: others may still ask for it."""
    network = Losing()
    simulation = acquainted(2, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    simulation.run(T_MIN - 100)
    assert events_of(simulation, 0, MessageDeliveryErrorEvent)
    network.lost.clear()
    simulation.run(3 * T_MAX)
    assert received(simulation, 1)[-2:] == [b"first", b"second"]
    assert message_id not in {
        item.message_id for item in events_of(simulation, 1, MessageLostEvent)
    }


@pytest.mark.parametrize("answering", [0, 2], ids=["the sender", "another"])
def test_full_messages_outlive_a_restart(answering: int) -> None:
    network = Losing()
    simulation = acquainted(3, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    original = next(item for item in simulation.wire or () if decode(item).message_id == message_id)
    simulation.crash(0)
    simulation.crash(2)
    simulation.run(500)
    simulation.start(answering)
    simulation.run(T_MIN - 700)
    network.lost.clear()
    simulation.run(3 * T_MAX)
    answers = answers_with(simulation, message_id)
    assert {item.sender for item in answers} == {answering}
    assert {item.data for item in answers} == {original.data}
    assert received(simulation, 1)[-2:] == [b"first", b"second"]


def test_who_rebuilt_a_segment_does_not_answer_for_it() -> None:
    """WIRE: who only rebuilt a segment lacks its original bytes and does not answer."""
    network = Losing()
    parity = SegmentationConfig(segment_size_bytes=64, enable_reed_solomon=True, parity_rate=0.5)
    simulation = acquainted(3, network, segmentation=parity, max_retransmissions=0)
    network.next_lost = [{1, 2}]
    network.silenced.add(SdsKind.EPHEMERAL)
    request_id = simulation.send(0, b"x" * 128)
    segment = first_id(simulation, 0, request_id)
    simulation.run(20)
    simulation.inject(2, wire_of(simulation, f"{request_id}:3")[0].data)
    assert received(simulation, 2)[-1] == b"x" * 128
    network.gone.add(0)
    simulation.run(4 * T_MAX)
    assert requests_for(simulation, segment)
    assert answers_with(simulation, segment) == []


def test_an_answer_is_given_once_within_t_max_however_often_it_is_asked_for() -> None:
    network = Losing()
    simulation = acquainted(3, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1, 2)
    simulation.run(120_000)
    times = [ms(item.time_ns) for item in answers_with(simulation, message_id)]
    assert len(requests_for(simulation, message_id)) > len(times) >= 2
    assert all(later - sooner >= T_MAX for sooner, later in pairwise(times))


def test_answers_are_counted_in_the_epoch_budget() -> None:
    network = Losing()
    limit = RateLimitConfig(enabled=True, epoch_period_sec=20, messages_per_epoch=12)
    simulation = acquainted(3, network, rate_limit=limit, max_retransmissions=0)
    lost = [send_lost(simulation, network, 1) for _ in range(4)]
    network.lost.clear()
    simulation.run(200_000)
    simulation.check(besides=["delivery", "order"])
    assert any(answers_with(simulation, message_id) for message_id in lost)


def test_a_forged_copy_does_not_keep_the_true_one_away() -> None:
    network = Losing()
    simulation = acquainted(3, network, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    network.gone.add(0)
    simulation.run(T_MIN - 100)
    original = next(item for item in simulation.wire or () if decode(item).message_id == message_id)
    forged = replace(decode(original), content=b"forged").encode()
    network.lost.clear()
    while not requests_for(simulation, message_id):
        simulation.run(10)
    simulation.run(10)
    assert simulation.machine(2).status().repair_answers == 1
    simulation.inject(2, forged)
    assert simulation.machine(2).status().repair_answers == 1
    simulation.inject(2, original.data)
    assert simulation.machine(2).status().repair_answers == 0


def test_without_repair_nobody_asks_or_answers() -> None:
    network = Losing()
    simulation = acquainted(2, network, enable_repair=False, max_retransmissions=0)
    message_id = send_lost(simulation, network, 1)
    simulation.run(120_000)
    assert requests_for(simulation, message_id) == []
    assert simulation.machine(0).status().full_messages == 0
    assert events_of(simulation, 1, MessageLostEvent)


# --- Whole conversations -------------------------------------------------------------------------


def answered(simulation: Simulation) -> int:
    """Return how many answers were given."""
    return sum(item.segment_id.startswith("repair:") for item in simulation.wire or ())


def counts(simulations: Iterable[Simulation], name: str) -> int:
    """Return a counter of everybody together."""
    return sum(status.counters.get(name, 0) for item in simulations for status in item.statuses())


def test_segments_of_a_long_transfer_are_repaired() -> None:
    """A receiver that is not the leader gets what the sender will not repeat, without a store."""
    network = Losing()
    simulation = acquainted(3, network, segmentation=SMALL_SEGMENTS)
    network.next_lost = [{1} if number in (3, 4, 17, 39) else set() for number in range(40)]
    simulation.send(0, b"x" * 64 * 40)
    simulation.run(1_000)
    simulation.send(0, b"after")
    simulation.run(1_000)
    network.lost.clear()
    simulation.run(4 * T_MAX)
    assert received(simulation, 1)[-2:] == [b"x" * 64 * 40, b"after"]


@pytest.mark.parametrize("seed", range(3))
def test_repair_brings_what_no_store_has_through_heavy_loss(seed: int) -> None:
    scenario = Scenario(
        seed=seed, messages=100, faults=LinkFaults(loss=0.2, delay_ms=20), store=NO_STORE
    )
    with_repair = play(scenario)
    without = play(replace(scenario, sds=replace(SCALED_SDS, enable_repair=False)))
    losses = [counts([item], "messages_lost") for item in (with_repair, without)]
    assert losses[1] >= 10
    assert losses[0] <= losses[1] // 5
