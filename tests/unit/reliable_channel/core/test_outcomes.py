"""How requests end, what the application is told, and what a failed one leaves behind: nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.requests import RequestState
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageProgressEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import (
    BodyRecord,
    DebtRecord,
    OutgoingRecord,
    RequestRecord,
)
from reliable_channel.types import SECOND
from tests.support.builders import (
    BOB,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    SMALL,
    Participant,
    acknowledge,
    alice,
    concurrent,
    content_message,
    cut,
    deliver,
    history_of,
    ids_of,
)

# --- Sent and delivered --------------------------------------------------------------------------


def test_sent_is_raised_once_when_all_data_segments_are_propagated() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 150)
    sender.published(f"{request_id}:3", f"{request_id}:1")
    assert sender.of(MessageSentEvent) == []
    sender.published(f"{request_id}:2")
    assert [event.request_id for event in sender.of(MessageSentEvent)] == [request_id]
    sender.published(f"{request_id}:2")
    assert len(sender.of(MessageSentEvent)) == 1
    assert sender.request(request_id).sent
    assert [event.sent for event in sender.of(MessageProgressEvent)] == [1, 2, 3]


def test_an_ephemeral_request_ends_when_it_is_sent() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 100, ephemeral=True)
    sender.published(f"{request_id}:1")
    assert sender.request(request_id).state is RequestState.OPEN
    sender.published(f"{request_id}:2")
    status = sender.request(request_id)
    assert (status.state, status.is_final, status.ephemeral) == (RequestState.SENT, True, True)
    assert [event.request_id for event in sender.of(MessageSentEvent)] == [request_id]
    sender.advance(60 * SECOND)
    assert len(sender.sent_since(0)) == 2


def test_being_acknowledged_proves_that_it_was_sent() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 128)
    acknowledge(sender, request_id)
    kinds = [type(event) for event in sender.events if not isinstance(event, MessageProgressEvent)]
    assert kinds == [MessageSentEvent, MessageDeliveredEvent]
    sender.published()
    assert sender.request(request_id).state is RequestState.DELIVERED
    assert sender.status().in_flight == 0
    assert sender.rows_of(OutgoingRecord) == []


def test_without_repair_a_delivered_request_leaves_no_bytes_behind() -> None:
    sender = alice(sds=replace(NO_FILTER, enable_repair=False))
    request_id = sender.send(b"x" * 128)
    assert len(sender.rows_of(BodyRecord)) == 4
    sender.published()
    acknowledge(sender, request_id)
    assert sender.rows_of(BodyRecord) == []
    assert sender.rows_of(OutgoingRecord) == []
    assert [getattr(row, "state", "") for row in sender.rows_of(RequestRecord)] == ["delivered"]
    assert (sender.status().open_requests, sender.status().open_bytes) == (0, 0)


def test_the_bytes_of_a_delivered_request_are_kept_for_repairs() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 128)
    sender.published()
    rows = sender.rows_of(BodyRecord)
    acknowledge(sender, request_id)
    assert sender.rows_of(BodyRecord) == rows
    assert sender.status().full_messages == 2
    assert sender.reopened().status().full_messages == 2


def test_the_bytes_of_a_request_that_failed_are_not_kept() -> None:
    sender = alice()
    sender.send(b"x" * 128)
    sender.failed(retryable=False)
    assert sender.rows_of(BodyRecord) == []
    assert sender.status().full_messages == 0


def test_what_still_waits_goes_nowhere_when_its_request_is_delivered() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    request_id = sender.send(b"x" * 256)
    sender.published()
    acknowledge(sender, request_id, 0)
    sender.advance(5 * SECOND)
    assert sender.status().waiting == 2
    acknowledge(sender, request_id)
    assert sender.status().waiting == 0
    sender.published()
    assert len(sender.sent_since(0)) == 5


def test_waiting_parity_is_dropped_when_its_request_is_acknowledged() -> None:
    """WIRE: waiting parity is dropped when its request is acknowledged."""
    sender = alice(segmentation=PARITY, sds=replace(NO_FILTER, max_in_flight=1))
    request_id = sender.send(b"x" * 100)
    sender.published(f"{request_id}:1")
    assert sender.status().waiting == 1
    acknowledge(sender, request_id)
    assert sender.status().waiting == 0
    sender.published()
    assert len(sender.transmissions) == 2


def test_parity_of_an_ephemeral_payload_goes_out_although_the_data_is_sent() -> None:
    """Nobody acknowledges or repeats an ephemeral payload: parity is all that helps a lost segment."""
    sender = alice(segmentation=PARITY, sds=replace(NO_FILTER, max_in_flight=1))
    request_id = sender.send(b"x" * 100, ephemeral=True)
    sender.published()
    assert sender.sent_since(0) == [f"{request_id}:{number}" for number in (1, 2, 3)]
    assert sender.transmissions[2].message.causal_history == ()


# --- Delivery errors -----------------------------------------------------------------------------


def test_a_delivery_error_says_that_the_message_reached_the_network() -> None:
    """LIP-173: so that nobody sends it again for that."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    sender.send(b"x")
    sender.published()
    sender.advance(5 * SECOND)
    (event,) = sender.of(MessageDeliveryErrorEvent)
    assert "it reached the network" in event.error


def test_what_was_sent_stays_known_and_named_after_a_delivery_error() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x")
    named = ids_of(sender, request_id)
    sender.published()
    sender.advance(5 * SECOND)
    sender.send(b"y")
    assert history_of(sender.transmissions[-1]) == named


def test_a_delivery_error_never_comes_before_sent() -> None:
    """Every request ends in one of send-error, delivered, delivery-error; the last two after sent."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x" * 128)
    sender.published(f"{request_id}:1")
    while sender.now < NOW + 30 * SECOND:
        sender.failed()
        sender.advance(SECOND)
    assert sender.request(request_id).state is RequestState.OPEN
    while sender.status().in_flight == 0:
        sender.advance(SECOND)
    sender.published()
    assert len(sender.of(MessageSentEvent)) == 1
    sender.advance(10 * SECOND)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR


# --- Send errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("max_retransmissions", [0, 2])
def test_what_was_never_wholly_sent_ends_in_one_send_error(max_retransmissions: int) -> None:
    """A delivery error is about a message that was sent, and tells that it was."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=max_retransmissions))
    request_id = sender.send(b"x" * 128)
    while not sender.request(request_id).is_final:
        for segment_id in list(sender.machine.queue.in_flight):
            if segment_id == f"{request_id}:1":
                sender.published(segment_id)
            else:
                sender.failed(segment_id)
        sender.advance(SECOND)
    assert len(sender.copies(f"{request_id}:1")) == 1 + max_retransmissions
    sender.advance(600 * SECOND)
    sender.published()
    finals = [event for event in sender.events if not isinstance(event, MessageProgressEvent)]
    assert [type(event) for event in finals] == [MessageSendErrorEvent]
    assert sender.now - NOW >= 60 * SECOND


def test_an_id_that_was_never_published_is_left_out_of_later_histories() -> None:
    """WIRE: ids of segments that were never published (send-error) leave the log."""
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    kept = sender.send(b"kept")
    sender.published()
    gone = sender.send(b"gone" * 40)
    later = sender.send(b"later")
    sender.failed(retryable=False)
    assert sender.request(gone).state is RequestState.SEND_ERROR
    assert set(history_of(sender.last(f"{later}:1"))) <= set(ids_of(sender, kept))
    assert sender.status().known_messages == 2
    sender.published()
    sender.send(b"last")
    assert history_of(sender.transmissions[-1]) == [*ids_of(sender, kept), *ids_of(sender, later)]


def test_ids_that_were_in_flight_at_the_end_leave_the_log_when_they_are_refused_too() -> None:
    """WIRE: ids of segments that were never published leave the log and are left out of histories.

    Or every receiver of the next message waits for what never went out.
    """
    sender, receiver = alice(), Participant()
    sender.send(b"x" * 192)
    sender.failed(retryable=False)
    assert sender.status().in_flight == 0
    sender.send(b"next")
    assert history_of(sender.transmissions[-1]) == []
    deliver([receiver], sender.transmissions[-1:])
    assert receiver.received == [b"next"]


def test_nobody_is_told_to_wait_for_a_message_that_will_never_be_whole() -> None:
    sender = alice()
    kept = sender.send(b"kept")
    sender.published()
    request_id = sender.send(b"x" * 128)
    sender.published(f"{request_id}:1")
    sender.failed(f"{request_id}:2", retryable=False)
    sender.send(b"next")
    assert history_of(sender.transmissions[-1]) == ids_of(sender, kept)


def test_what_went_out_before_the_error_is_still_known_as_ours() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 128)
    sender.published(f"{request_id}:1")
    sender.failed(f"{request_id}:2", retryable=False)
    before = len(sender.events)
    sender.receive(sender.last(f"{request_id}:1").data)
    assert sender.counted("echoes") == 1
    assert len(sender.events) == before


def test_what_a_withdrawn_message_named_is_named_in_its_place() -> None:
    """Or what was sent behind it could come out before what it builds on."""
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    kept = sender.send(b"kept")
    sender.published()
    sender.send(b"gone")
    sender.send(b"gone too" * 20)
    sender.send(b"later")
    sender.failed(retryable=False)
    sender.failed(retryable=False)
    assert history_of(sender.transmissions[-1]) == ids_of(sender, kept)


def test_what_a_refused_message_acknowledged_is_owed_again() -> None:
    """WIRE: an id leaves (the debt) when a message of ours that names it is dispatched.

    A message that certainly never went out has told nobody.
    """
    sender = alice()
    sender.receive(content_message(cut(b"hi")[0], sender_id=BOB))
    sender.send(b"x")
    assert sender.status().owed_acknowledgements == 0
    sender.failed(retryable=False)
    assert sender.status().owed_acknowledgements == 1


def test_a_failed_sync_owes_nothing_that_was_forgotten_meanwhile() -> None:
    receiver = Participant(sds=replace(NO_FILTER, max_known_ids=64))
    receiver.receive(content_message(b"x", message_id="old"))
    receiver.advance(3 * SECOND)
    for number in range(70):
        receiver.receive(content_message(b"x", message_id=f"m{number}", lamport=NOW_MS + 9))
    receiver.failed()
    assert "old" not in list(receiver.machine.state.debt)
    assert receiver.status().owed_acknowledgements > 0


# --- Withdrawal ----------------------------------------------------------------------------------


@pytest.mark.parametrize("segmentation", [SMALL, PARITY], ids=["data", "parity"])
@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_withdrawn_send_leaves_nothing_behind(
    segmentation: SegmentationConfig, *, ephemeral: bool
) -> None:
    """As if it had never been made: the store failed before anything was given to the node."""
    sender = alice(segmentation=segmentation)
    sender.receive(*concurrent("p1", "p2", "p3", "p4"))
    before = sender.status()
    log = sender.machine.state.log
    named, order = log.next_history(), list(log.order)
    rows = {key for key in sender.rows if key[0] is not DebtRecord}
    request_id = sender.send(b"x" * 200, ephemeral=ephemeral)
    sender.carry_out(sender.machine.withdraw(request_id, NOW))
    after = sender.status()
    assert (after.in_flight, after.waiting) == (0, 0)
    assert (after.open_requests, after.open_bytes) == (0, 0)
    assert after.known_messages == before.known_messages
    assert list(log.order) == order
    assert log.next_history() == named
    assert {key for key in sender.rows if key[0] is not DebtRecord} == rows
    assert request_id not in sender.machine.outgoing.book.requests
    assert sender.of(MessageSendErrorEvent) == []


def test_a_withdrawn_send_drives_no_finished_request_out() -> None:
    """Nor its key: or the repeat of a message that arrived would be sent as another."""
    sender = alice(sds=replace(NO_FILTER, max_finished_requests=2))
    ended = [sender.send(b"%d" % number, key=f"k{number}") for number in range(2)]
    sender.published()
    for request_id in ended:
        acknowledge(sender, request_id)
    rows = dict(sender.rows)
    for number in range(3):
        gone = sender.send(b"gone", key=f"gone{number}")
        sender.carry_out(sender.machine.withdraw(gone, NOW))
    assert list(sender.machine.outgoing.book.finished) == ended
    assert [sender.send(b"%d" % number, key=f"k{number}") for number in range(2)] == ended
    assert [sender.reopened().machine.knows_key(f"k{number}") for number in range(2)] == [True] * 2
    assert {key for key in sender.rows if key[0] is RequestRecord} == {
        key for key in rows if key[0] is RequestRecord
    }
    counters = sender.status().counters
    assert counters["requests_withdrawn"] == 3
    assert "requests_send-error" not in counters


def test_what_a_withdrawn_send_acknowledged_is_owed_again() -> None:
    sender = alice()
    sender.receive(*concurrent("p1", "p2"))
    assert sender.status().owed_acknowledgements == 2
    request_id = sender.send(b"x")
    sender.carry_out(sender.machine.withdraw(request_id, NOW))
    assert sender.status().owed_acknowledgements == 2


def test_withdrawn_sends_do_not_use_up_the_window() -> None:
    sender = alice(segmentation=PARITY)
    for _ in range(20):
        request_id = sender.send(b"x" * 100)
        sender.carry_out(sender.machine.withdraw(request_id, NOW))
    count = len(sender.transmissions)
    sender.send(b"y")
    assert len(sender.transmissions) == count + 1


def test_a_send_after_a_withdrawn_one_names_what_came_before() -> None:
    sender = alice()
    first = sender.send(b"first")
    sender.published()
    request_id = sender.send(b"x" * 200)
    sender.carry_out(sender.machine.withdraw(request_id, NOW))
    sender.send(b"next")
    assert history_of(sender.transmissions[-1]) == ids_of(sender, first)


def test_withdrawing_the_second_of_two_equal_contents_leaves_the_first_known() -> None:
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    first = sender.send(b"x")
    sender.published()
    second = sender.send(b"x")
    sender.carry_out(sender.machine.withdraw(second, NOW))
    assert sender.status().known_messages == 1
    acknowledge(sender, first)
    assert sender.request(first).state is RequestState.DELIVERED
