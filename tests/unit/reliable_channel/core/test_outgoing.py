"""The way out: what a send fixes, what goes out when, and what follows from what the node reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.requests import RequestState
from reliable_channel.core.sds.missing import FETCH_TIMER
from reliable_channel.core.wire import SegmentMessage
from reliable_channel.errors import (
    ChannelFullError,
    EmptyPayloadError,
    InvalidPayloadError,
    MessageTooLargeError,
)
from reliable_channel.events import (
    MessageQueuedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import OutgoingRecord
from reliable_channel.types import SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    NEXT_EPOCH,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    Participant,
    acknowledge,
    alice,
    content_message,
    cut,
    deliver,
    expire,
    history_of,
    ids_of,
    limited,
    messages_of,
    salted,
)

# --- What cannot be sent -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        ("text", InvalidPayloadError),
        (None, InvalidPayloadError),
        (5, InvalidPayloadError),
        ([1, 2], InvalidPayloadError),
        (b"", EmptyPayloadError),
        (bytearray(), EmptyPayloadError),
        (memoryview(b""), EmptyPayloadError),
        (b"x" * (255 * 64 + 1), MessageTooLargeError),
        (b"x" * 9_001, MessageTooLargeError),
    ],
    ids=[
        "text",
        "none",
        "number",
        "list",
        "empty",
        "empty array",
        "empty view",
        "segments",
        "room",
    ],
)
def test_what_cannot_be_sent_raises_and_changes_nothing(
    payload: object, error: type[Exception]
) -> None:
    """An input applies wholly or raises and changes nothing."""
    sds = SdsConfig(bloom_capacity=100, max_outgoing_bytes=9_000)
    sender, twin = alice(sds=sds), alice(sds=sds)
    with pytest.raises(error) as caught:
        sender.machine.send(payload, sender.now)
    assert "\n" not in str(caught.value)
    assert sender.machine.next_deadline() == twin.machine.next_deadline()
    for ephemeral in (False, True):
        assert sender.machine.send(b"x" * 100, NOW, ephemeral=ephemeral) == twin.machine.send(
            b"x" * 100, NOW, ephemeral=ephemeral
        )


@pytest.mark.parametrize(
    ("sds", "payload"),
    [
        (SdsConfig(max_outgoing_messages=1), b"x"),
        (SdsConfig(max_outgoing_bytes=100), b"x" * 51),
    ],
    ids=["messages", "bytes"],
)
def test_a_full_channel_raises_and_changes_nothing(sds: SdsConfig, payload: bytes) -> None:
    sender, twin = alice(sds=sds), alice(sds=sds)
    first = sender.send(b"x" * 50)
    twin.send(b"x" * 50)
    assert not sender.machine.has_room(len(payload))
    with pytest.raises(ChannelFullError) as caught:
        sender.machine.send(payload, NOW)
    assert (caught.value.messages, caught.value.octets) == (1, 50)
    for participant in (sender, twin):
        participant.published()
        acknowledge(participant, first)
    assert sender.machine.has_room(len(payload))
    assert sender.machine.send(payload, NOW) == twin.machine.send(payload, NOW)


def test_the_bounds_themselves_are_allowed() -> None:
    sender = alice(sds=SdsConfig(max_outgoing_messages=2, max_outgoing_bytes=100))
    sender.send(b"x" * 50)
    assert sender.machine.has_room(50)
    assert not sender.machine.has_room(51)
    sender.send(b"x" * 50)
    assert not sender.machine.has_room(0)
    largest = alice()
    largest.send(b"x" * (255 * 64))
    assert largest.status().open_bytes == 255 * 64


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_whatever_holds_bytes_can_be_sent(kind: Callable[[bytes], Any]) -> None:
    sender, receiver = alice(), Participant()
    sender.send(kind(b"hello"))
    deliver([receiver], sender.transmissions)
    assert receiver.received == [b"hello"]


def test_later_changes_of_the_callers_bytes_change_nothing() -> None:
    sender, receiver = alice(), Participant()
    payload = bytearray(b"x" * 100)
    sender.send(payload)
    payload[:] = b"y" * 100
    deliver([receiver], sender.transmissions)
    assert receiver.received == [b"x" * 100]


# --- What a send fixes ---------------------------------------------------------------------------


def test_every_payload_is_wrapped_and_its_segments_have_salted_ids() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 150)
    segments = cut(b"x" * 150)
    assert [item.message.content for item in sender.transmissions] == [
        segment.encode() for segment in segments
    ]
    expected = [salted(ALICE, NOW, segment.encode()) for segment in segments]
    assert [item.message.message_id for item in sender.transmissions] == expected
    assert ids_of(sender, request_id) == expected


def test_request_ids_are_minted_before_dispatch_and_segments_count_from_one() -> None:
    """WIRE: Req, and Req:1 … Req:N for its segments, in the order they are sent."""
    sender = alice()
    first, second = sender.send(b"x" * 150), sender.send(b"x")
    assert first != second
    assert len(first) == 24
    assert sender.sent_since(0) == [f"{first}:1", f"{first}:2", f"{first}:3", f"{second}:1"]


def test_equal_payloads_are_different_messages() -> None:
    """Salted ids: two equal payloads are two messages (LIP-173)."""
    sender, receiver = alice(), Participant()
    first, second = sender.send(b"yes"), sender.send(b"yes")
    assert ids_of(sender, first) != ids_of(sender, second)
    deliver([receiver], sender.transmissions)
    assert receiver.received == [b"yes", b"yes"]


def test_lamport_times_of_segments_are_consecutive() -> None:
    sender = alice()
    sender.send(b"x" * 150)
    sender.send(b"x")
    times = [item.message.lamport_timestamp for item in sender.transmissions]
    assert times == [NOW_MS + 1, NOW_MS + 2, NOW_MS + 3, NOW_MS + 4]


def test_histories_name_the_last_ids_and_so_chain_the_segments() -> None:
    """WIRE: history = the last causal_history_size (2) ids of the log, oldest first."""
    sender = alice()
    sender.send(b"x" * 200)
    named = [item.message.message_id for item in sender.transmissions]
    assert [history_of(item) for item in sender.transmissions] == [
        [],
        named[:1],
        named[:2],
        named[1:3],
    ]
    assert {item.sender_id for item in sender.transmissions[3].message.causal_history} == {ALICE}


def test_overlapping_sends_chain() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    first, second = sender.send(b"x" * 100), sender.send(b"y" * 100)
    sender.published()
    named = [*ids_of(sender, first), *ids_of(sender, second)]
    assert [item.message.message_id for item in sender.transmissions] == named
    assert [history_of(item) for item in sender.transmissions] == [
        [],
        named[:1],
        named[:2],
        named[1:3],
    ]


def test_content_ids_are_hashes_of_the_content_alone() -> None:
    """The seed's wording; no field 10."""
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    request_id = sender.send(b"x")
    segment = cut(b"x", wrap_time_ns=0)[0]
    assert ids_of(sender, request_id) == [content_message(segment).message_id]
    assert sender.transmissions[0].message.content == segment.encode()


def test_a_content_id_does_not_name_itself() -> None:
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    first = sender.send(b"x")
    second = sender.send(b"x")
    assert ids_of(sender, first) == ids_of(sender, second)
    assert history_of(sender.transmissions[1]) == []
    assert sender.status().known_messages == 1


def test_a_content_id_sent_again_does_not_hide_what_came_between() -> None:
    """Its bytes name what came before the first of the equal ones, so nobody names the other yet."""
    sender = alice(sds=replace(NO_FILTER, message_id="content", causal_history_size=1))
    first, between = sender.send(b"x"), sender.send(b"y")
    sender.send(b"x")
    after = sender.send(b"z")
    assert ids_of(sender, between)[0] in history_of(sender.transmissions[3])
    assert ids_of(sender, first)[0] not in history_of(sender.transmissions[3])
    assert ids_of(sender, after)[0] != ids_of(sender, between)[0]


# --- The window ----------------------------------------------------------------------------------


def test_at_most_a_window_of_messages_is_in_flight() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=2))
    request_id = sender.send(b"x" * 300)
    assert sender.status().in_flight == 2
    assert sender.status().waiting == 3
    sender.published(f"{request_id}:1")
    assert sender.sent_since(2) == [f"{request_id}:3"]


def test_each_segment_has_its_row_from_the_send_on_whether_it_went_out_or_waits() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=2))
    sender.send(b"x" * 300)
    rows = sender.rows_of(OutgoingRecord)
    assert [(row.segment_index, row.in_flight) for row in rows] == [
        (0, True),
        (1, True),
        (2, False),
        (3, False),
        (4, False),
    ]


def test_reports_about_what_is_not_in_flight_do_nothing() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    for segment_id in (f"{request_id}:1", f"{request_id}:9", "sync:4", "nonsense"):
        assert not sender.machine.published(segment_id, bytes(32), NOW)
        assert not sender.machine.publish_failed(segment_id, "no", NOW, retryable=False)


def test_nothing_is_asked_of_the_store_for_ones_own_messages() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 100)
    sender.published()
    acknowledge(sender, request_id)
    assert sender.fetches == []
    assert FETCH_TIMER not in sender.machine.state.timers


# --- Failures of the node ------------------------------------------------------------------------


@pytest.mark.parametrize("retryable", [True, False])
def test_a_failure_reported_after_the_acknowledgement_repeats_and_ends_nothing(
    *, retryable: bool
) -> None:
    """WIRE: a segment is retransmitted while the leader lacks it."""
    sender = alice()
    request_id = sender.send(b"x" * 128)
    acknowledge(sender, request_id, 0)
    sender.failed(f"{request_id}:1", retryable=retryable)
    sender.published(f"{request_id}:2")
    sender.advance(4 * SECOND)
    assert len(sender.transmissions) == 2
    assert sender.request(request_id).state is RequestState.OPEN


def test_what_the_node_failed_to_take_is_tried_again_at_growing_distances() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    while not sender.request(request_id).is_final:
        sender.failed()
        sender.advance(SECOND)
    times = [item.time_ns for item in sender.copies(f"{request_id}:1")]
    waits = [(later - earlier) // SECOND for earlier, later in pairwise(times)]
    assert waits == [1, 2, 4, 8, 16, 16, 16]
    assert sender.request(request_id).state is RequestState.SEND_ERROR
    event = sender.of(MessageSendErrorEvent)[0]
    assert (event.request_id, event.error) == (request_id, "no peers")


def test_success_between_failures_starts_the_patience_anew() -> None:
    sender = alice(sds=replace(NO_FILTER, dispatch_timeout_ms=1_500, max_retransmissions=9))
    request_id = sender.send(b"x")
    sender.failed()
    sender.advance(SECOND)
    sender.published()
    sender.advance(5 * SECOND)
    sender.failed()
    sender.advance(SECOND)
    assert sender.request(request_id).state is RequestState.OPEN
    assert len(sender.transmissions) == 4


def test_what_the_node_refuses_for_good_ends_its_request_at_once() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.failed(retryable=False, error="too large")
    assert sender.request(request_id).state is RequestState.SEND_ERROR
    assert sender.request(request_id).error == "too large"
    sender.advance(60 * SECOND)
    assert len(sender.sent_since(0)) == 1
    assert [type(event) for event in sender.events] == [MessageSendErrorEvent]


def test_a_refused_retransmission_waits_for_the_next_timeout() -> None:
    """It did reach the network once."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x")
    sender.published()
    sender.advance(5 * SECOND)
    sender.failed(retryable=False)
    assert sender.request(request_id).state is RequestState.OPEN
    sender.advance(5 * SECOND)
    assert len(sender.transmissions) == 3
    sender.failed(retryable=False)
    sender.advance(5 * SECOND)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR


def test_tries_that_the_node_could_not_take_use_up_no_retransmission() -> None:
    """WIRE: only what reaches the node counts as a retransmission."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=1))
    request_id = sender.send(b"x")
    sender.published()
    sender.advance(5 * SECOND)
    for wait in (1, 2, 4, 8):
        sender.failed()
        sender.advance(wait * SECOND)
    assert len(sender.transmissions) == 6
    assert sender.request(request_id).segments[0].transmissions == 6
    sender.published()
    sender.advance(5 * SECOND - 1)
    assert sender.request(request_id).state is RequestState.OPEN
    sender.advance(1)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR
    assert "after 2 timeouts" in sender.request(request_id).error
    assert len(sender.transmissions) == 6


def test_failures_are_counted() -> None:
    sender = alice()
    sender.send(b"x")
    sender.failed()
    assert sender.counted("publish_failures") == 1


def test_reports_after_the_end_change_nothing() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 192)
    sender.failed(f"{request_id}:1", retryable=False)
    before = sender.request(request_id)
    sender.published(f"{request_id}:2")
    sender.failed(f"{request_id}:3", retryable=True)
    after = sender.request(request_id)
    assert (after.state, after.error, after.sent) == (before.state, before.error, before.sent)
    sender.advance(60 * SECOND)
    assert len(sender.sent_since(0)) == 3
    assert len(sender.of(MessageSendErrorEvent)) == 1


def test_a_failure_reported_after_the_delivery_changes_nothing() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    acknowledge(sender, request_id)
    sender.failed(retryable=False)
    assert sender.request(request_id).state is RequestState.DELIVERED
    assert sender.status().known_messages == 1


# --- Epochs that ended too early -----------------------------------------------------------------


def test_what_missed_its_epoch_takes_another_turn() -> None:
    budget = limited(10)
    sender = alice(budget=budget)
    request_id = sender.send(b"x" * 100)
    sender.advance(NEXT_EPOCH - NOW + 31 * SECOND)
    assert budget.remaining(sender.now) is not None
    expire(sender, f"{request_id}:1", f"{request_id}:2")
    assert sender.counted("expired_transmissions") == 2
    assert len(sender.copies(f"{request_id}:1")) == 2
    assert sender.copies(f"{request_id}:1")[0].data == sender.copies(f"{request_id}:1")[1].data
    sender.published()
    assert sender.request(request_id).sent
    assert sender.of(MessageSendErrorEvent) == []


def test_a_retransmission_that_missed_its_epoch_is_not_used_up() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=1))
    request_id = sender.send(b"x")
    sender.published()
    for _ in range(3):
        sender.advance(5 * SECOND)
        expire(sender)
    sender.published()
    assert sender.request(request_id).state is RequestState.OPEN
    sender.advance(5 * SECOND)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR


def test_a_sync_that_missed_its_epoch_is_owed_again() -> None:
    receiver = Participant(sds=NO_FILTER)
    receiver.receive(*messages_of(b"x"))
    receiver.advance(3 * SECOND)
    expire(receiver)
    assert receiver.status().owed_acknowledgements == 1
    receiver.advance(3 * SECOND)
    assert len(receiver.syncs) == 2


def test_parity_that_missed_its_epoch_is_let_go() -> None:
    sender = alice(segmentation=PARITY)
    request_id = sender.send(b"x" * 100)
    expire(sender, f"{request_id}:3")
    assert sender.status().in_flight == 2
    assert sender.status().waiting == 0
    sender.published()
    assert sender.request(request_id).sent


def test_what_missed_its_epoch_after_its_request_ended_stays_away() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 128)
    sender.failed(f"{request_id}:1", retryable=False)
    expire(sender)
    expire(sender, "unknown:1")
    assert len(sender.sent_since(0)) == 2
    assert sender.status().known_messages == 0
    assert sender.counted("expired_transmissions") == 1


def test_what_goes_out_says_until_when_it_may() -> None:
    """17/WAKU2-RLN-RELAY: what is handed over later counts in an epoch that did not admit it."""
    for sender, end in ((alice(budget=limited(20), segmentation=PARITY), NEXT_EPOCH), (alice(), 0)):
        sender.receive(*messages_of(b"owed", sender_id=BOB))
        publishes = sender.machine.tick(sender.now).publishes
        _, effects = sender.machine.send(b"x" * 100, sender.now, ephemeral=False)
        publishes += effects.publishes
        sender.receive(*messages_of(b"owed too", sender_id=CAROL))
        while not any(item.segment_id.startswith("sync:") for item in publishes):
            sender.now += SECOND
            publishes += sender.machine.tick(sender.now).publishes
        assert len(publishes) >= 3
        assert {item.expires_ns for item in publishes} == {end}


def test_a_retransmission_that_was_acknowledged_while_it_was_held_is_not_made() -> None:
    """WIRE: a segment is retransmitted while the leader lacks it."""
    sender = alice(budget=limited(20))
    request_id = sender.send(b"x" * 150)
    sender.published()
    acknowledge(sender, request_id, 2)
    sender.advance(5 * SECOND)
    assert sender.status().in_flight == 2
    acknowledge(sender, request_id, 0)
    expire(sender, f"{request_id}:1")
    assert len(sender.copies(f"{request_id}:1")) == 2
    assert sender.request(request_id).state is RequestState.OPEN


def test_encryption_that_takes_longer_than_an_epoch_ends_in_a_send_error() -> None:
    """Every request ends: what can never be handed over in time is like what the node never takes."""
    sender = alice(budget=limited(10), sds=replace(NO_FILTER, dispatch_timeout_ms=60_000))
    request_id = sender.send(b"x")
    for _ in range(200):
        if sender.request(request_id).is_final:
            break
        effects = sender.machine.expired(f"{request_id}:1", sender.now, held_ns=3600 * SECOND)
        sender.carry_out(effects)
        sender.advance(60 * SECOND)
    assert sender.request(request_id).state is RequestState.SEND_ERROR
    assert "longer than an epoch" in sender.request(request_id).error


# --- Ephemeral messages --------------------------------------------------------------------------


def test_an_ephemeral_request_can_fail() -> None:
    sender = alice()
    request_id = sender.send(b"x", ephemeral=True)
    sender.failed(retryable=False)
    assert sender.request(request_id).state is RequestState.SEND_ERROR


def test_ephemeral_ids_are_salted_also_with_content_ids() -> None:
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    sender.send(b"x", ephemeral=True)
    sender.send(b"x", ephemeral=True)
    assert len({item.message.message_id for item in sender.transmissions}) == 2


@pytest.mark.parametrize("size", [10, 100, 200])
def test_an_ephemeral_message_arrives_whatever_its_size(size: int) -> None:
    sender, receiver = alice(), Participant()
    sender.send(b"x" * size, ephemeral=True)
    deliver([receiver], sender.transmissions)
    assert receiver.received == [b"x" * size]
    assert receiver.status().owed_acknowledgements == 0


# --- Parity --------------------------------------------------------------------------------------


def test_leopard_parity_is_tagged_as_such() -> None:
    sender = alice(segmentation=replace(PARITY, parity_code="leopard"))
    sender.send(b"x" * 200)
    contents = [SegmentMessage.decode(item.message.content or b"") for item in sender.transmissions]
    assert contents == cut(b"x" * 200, parity_count=2, code="leopard")


def test_a_single_segment_has_no_parity() -> None:
    sender = alice(segmentation=PARITY)
    sender.send(b"x" * 64)
    assert len(sender.transmissions) == 1


def test_parity_is_neither_known_nor_repeated() -> None:
    sender = alice(segmentation=PARITY)
    request_id = sender.send(b"x" * 100)
    sender.published()
    assert sender.status().known_messages == 2
    for _ in range(3):
        sender.advance(5 * SECOND)
        sender.published()
    assert set(sender.sent_since(3)) == {f"{request_id}:1", f"{request_id}:2"}


def test_sent_does_not_wait_for_parity() -> None:
    """WIRE: it never delays sent."""
    sender = alice(segmentation=PARITY)
    request_id = sender.send(b"x" * 100)
    sender.published(f"{request_id}:1", f"{request_id}:2")
    assert len(sender.of(MessageSentEvent)) == 1
    sender.failed(f"{request_id}:3", retryable=False)
    assert sender.request(request_id).state is RequestState.OPEN


# --- The rate limit ------------------------------------------------------------------------------


def test_a_request_that_has_to_wait_raises_one_queued_event_with_the_expected_time() -> None:
    """WIRE: a request that has to wait raises a queued event with the expected time."""
    patient = replace(NO_FILTER, acknowledgement_timeout_ms=3_600_000)
    sender = alice(budget=limited(4), sds=patient)
    request_id = sender.send(b"x" * 400)
    event = sender.of(MessageQueuedEvent)[0]
    assert event.request_id == request_id
    assert NEXT_EPOCH <= event.expected_at <= NEXT_EPOCH + 30 * SECOND
    sender.published()
    sender.advance(NEXT_EPOCH - NOW + 31 * SECOND)
    sender.published()
    assert len(sender.of(MessageQueuedEvent)) == 1
    assert sender.request(request_id).sent


def test_a_request_that_goes_out_at_once_raises_none() -> None:
    sender = alice(budget=limited(100))
    sender.send(b"x" * 400)
    assert sender.of(MessageQueuedEvent) == []


def test_without_a_limit_nobody_is_told_to_wait() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    sender.send(b"x" * 400)
    assert sender.status().waiting == 6
    assert sender.of(MessageQueuedEvent) == []


def test_waiting_for_the_node_is_not_waiting_for_the_limit() -> None:
    sender = alice(budget=limited(5), sds=replace(NO_FILTER, max_in_flight=2))
    first = sender.send(b"x" * 100)
    second = sender.send(b"y" * 300)
    assert sender.of(MessageQueuedEvent) == []
    sender.published()
    assert [event.request_id for event in sender.of(MessageQueuedEvent)] == [second]
    assert sender.request(first).sent


def test_a_request_that_ended_before_its_turn_is_not_announced() -> None:
    sender = alice(budget=limited(3), sds=replace(NO_FILTER, max_in_flight=1))
    sender.send(b"x" * 100)
    gone = sender.send(b"y")
    sender.send(b"z" * 200)
    sender.carry_out(sender.machine.withdraw(gone, NOW))
    sender.published()
    assert gone not in {event.request_id for event in sender.of(MessageQueuedEvent)}


def test_retransmissions_count() -> None:
    """WIRE: every transmission counts: segments, parity, retransmissions, syncs, repairs."""
    budget = limited(20)
    sender = alice(budget=budget, segmentation=PARITY)
    sender.send(b"x" * 100)
    sender.send(b"y")
    assert budget.remaining(NOW) == 16
    sender.published()
    sender.advance(5 * SECOND)
    assert budget.remaining(sender.now) == 14
