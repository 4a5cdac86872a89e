"""Which evidence counts, when a segment goes out again, and when nobody is waited for any longer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.requests import MAX_WATCHED, RequestState, SegmentState
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageProgressEvent,
    MessageSentEvent,
)
from reliable_channel.records import (
    AcknowledgementRecord,
)
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    NO_FILTER,
    NOW_MS,
    SMALL,
    Participant,
    acknowledge,
    alice,
    content_message,
    cut,
    deliver,
    entries,
    ids_of,
    limited,
    sync_message,
)


def test_an_id_in_a_history_is_acknowledged_by_who_names_it() -> None:
    """WIRE: an id in a participant's causal history is acknowledged by it."""
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id)
    status = sender.request(request_id)
    assert status.state is RequestState.DELIVERED
    assert status.is_final
    assert status.recipients == (BOB,)
    assert status.segments[0].state is SegmentState.ACKNOWLEDGED
    event = sender.of(MessageDeliveredEvent)[0]
    assert (event.request_id, event.recipients) == (request_id, (BOB,))


def test_content_messages_acknowledge_too() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    reply = content_message(
        cut(b"reply")[0], sender_id=BOB, history=entries(*ids_of(sender, request_id))
    )
    sender.receive(reply)
    assert sender.request(request_id).state is RequestState.DELIVERED


def test_a_duplicate_still_acknowledges_by_its_history() -> None:
    sender = alice()
    reply = content_message(cut(b"reply")[0], sender_id=BOB)
    sender.receive(reply)
    request_id = sender.send(b"x")
    sender.published()
    sender.receive(replace(reply, causal_history=entries(*ids_of(sender, request_id))))
    assert sender.request(request_id).state is RequestState.DELIVERED


def test_nobody_acknowledges_under_our_own_name() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id, by=ALICE)
    assert sender.request(request_id).state is RequestState.OPEN
    assert sender.status().participants == 0


def test_one_participant_must_have_all_of_it() -> None:
    """WIRE: the request is delivered when the leader has all."""
    sender = alice()
    request_id = sender.send(b"x" * 128)
    sender.published()
    acknowledge(sender, request_id, 0, by=BOB)
    acknowledge(sender, request_id, 1, by=CAROL)
    assert sender.request(request_id).state is RequestState.OPEN
    assert sender.request(request_id).acknowledged == ((BOB, 1), (CAROL, 1))
    acknowledge(sender, request_id, 0, by=CAROL, lamport=NOW_MS + 1)
    assert sender.request(request_id).state is RequestState.DELIVERED
    assert sender.of(MessageDeliveredEvent)[0].recipients == (CAROL,)


def test_later_acknowledgements_add_recipients_and_change_nothing_else() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id, by=BOB)
    before = sender.request(request_id)
    events = len(sender.events)
    acknowledge(sender, request_id, by=CAROL)
    after = sender.request(request_id)
    assert after.recipients == (BOB, CAROL)
    assert after.state is before.state
    (progress,) = sender.events[events:]
    assert isinstance(progress, MessageProgressEvent)
    assert (progress.recipients, progress.participants) == ((BOB, CAROL), 2)
    assert len(sender.rows_of(AcknowledgementRecord)) == 2
    acknowledge(sender, request_id, by=CAROL, lamport=NOW_MS + 1)
    assert len(sender.events) == events + 1


def test_both_of_two_equal_contents_are_delivered_by_one_acknowledgement() -> None:
    """Every request ends; with message_id="content" equal segments are one message."""
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    first, second = sender.send(b"x"), sender.send(b"x")
    sender.published()
    acknowledge(sender, first)
    assert sender.request(second).state is RequestState.DELIVERED
    assert sender.request(first).state is RequestState.DELIVERED


def test_a_receivers_sync_beats_the_senders_timeout() -> None:
    sender, receiver = alice(), Participant()
    request_id = sender.send(b"x" * 100)
    sender.published()
    deliver([receiver], sender.transmissions)
    receiver.advance(4 * SECOND)
    deliver([sender], receiver.transmissions)
    assert sender.request(request_id).state is RequestState.DELIVERED
    sender.advance(20 * SECOND)
    assert len(sender.transmissions) == 2


# --- Filters as evidence -------------------------------------------------------------------------


def filter_of(*message_ids: str, capacity: int = 50, error_rate: float = 0.001) -> bytes:
    bloom = BloomFilter(capacity, error_rate)
    for message_id in message_ids:
        bloom.add(message_id)
    return bloom.to_bytes()


def with_filter(**settings: Any) -> Participant:
    return alice(sds=SdsConfig(bloom_capacity=50, **settings))


def hear_filter(sender: Participant, data: bytes, *, by: str = BOB, lamport: int = NOW_MS) -> None:
    sender.receive(sync_message(sender_id=by, lamport=lamport, bloom_filter=data))


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_an_id_in_enough_filters_of_one_participant_is_acknowledged(threshold: int) -> None:
    """WIRE: in possible_ack_threshold (2) different messages of the same participant."""
    sender = with_filter(possible_ack_threshold=threshold)
    request_id = sender.send(b"x")
    sender.published()
    data = filter_of(*ids_of(sender, request_id))
    for number in range(1, threshold):
        hear_filter(sender, data, lamport=NOW_MS + number)
        segment = sender.request(request_id).segments[0]
        assert segment.state is SegmentState.POSSIBLY_ACKNOWLEDGED
    hear_filter(sender, data, lamport=NOW_MS)
    assert sender.request(request_id).state is RequestState.DELIVERED


def test_filters_add_recipients_after_delivery_too() -> None:
    """Peers that name few ids acknowledge by their filters: "delivered to 3 of the 5 seen"."""
    sender = with_filter()
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id, by=BOB)
    for number in range(2):
        data = filter_of(*ids_of(sender, request_id))
        hear_filter(sender, data, by=CAROL, lamport=NOW_MS + number)
    assert sender.request(request_id).recipients == (BOB, CAROL)


def test_delivered_segments_that_are_looked_for_in_filters_are_bounded() -> None:
    sender = with_filter()
    for number in range(MAX_WATCHED + 5):
        request_id = sender.send(b"%d" % number)
        sender.published()
        acknowledge(sender, request_id, lamport=NOW_MS + number)
    assert len(sender.machine.outgoing.book.watched) == MAX_WATCHED


def test_filters_of_different_participants_do_not_add_up() -> None:
    sender = with_filter()
    request_id = sender.send(b"x")
    sender.published()
    for by in (BOB, CAROL):
        hear_filter(sender, filter_of(*ids_of(sender, request_id)), by=by)
    assert sender.request(request_id).state is RequestState.OPEN


@pytest.mark.parametrize("kind", ["sync", "content"])
def test_the_same_message_heard_twice_counts_once(kind: str) -> None:
    sender = with_filter()
    request_id = sender.send(b"x")
    sender.published()
    data = filter_of(*ids_of(sender, request_id))
    message = sync_message(sender_id=BOB, bloom_filter=data)
    if kind == "content":
        message = content_message(cut(b"hi")[0], sender_id=BOB, bloom_filter=data)
    for _ in range(5):
        sender.receive(message)
    assert sender.request(request_id).state is RequestState.OPEN


@pytest.mark.parametrize(
    ("data", "counter"),
    [
        (filter_of(capacity=60), "foreign_filters"),
        (b"\xff" * 8, "foreign_filters"),
        (b"\xff" * 96, "full_filters"),
    ],
    ids=["another size", "tiny", "all bits set"],
)
def test_filters_of_another_size_or_too_full_are_no_evidence(data: bytes, counter: str) -> None:
    """WIRE: filters of another length than ours, or with over 60 % of bits set, are ignored."""
    sender = with_filter(possible_ack_threshold=1)
    request_id = sender.send(b"x")
    sender.published()
    hear_filter(sender, data)
    assert sender.request(request_id).segments[0].state is SegmentState.SENT
    assert sender.counted(counter) == 1


def test_a_filter_is_evidence_up_to_60_percent() -> None:
    sender = with_filter(possible_ack_threshold=1)
    request_id = sender.send(b"x")
    sender.published()
    others = (f"other{number}" for number in range(1000))
    bloom = BloomFilter(50, 0.001)
    bloom.add(ids_of(sender, request_id)[0])
    while bloom.shape.bits_set_ratio(bloom.to_bytes()) < 0.57:
        bloom.add(next(others))
    hear_filter(sender, bloom.to_bytes())
    assert sender.request(request_id).state is RequestState.DELIVERED


def test_without_a_filter_of_our_own_filters_of_others_are_no_evidence() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    for number in range(3):
        hear_filter(sender, filter_of(*ids_of(sender, request_id)), lamport=NOW_MS + number)
    assert sender.request(request_id).state is RequestState.OPEN


def test_what_was_never_transmitted_is_not_acknowledged_by_a_filter() -> None:
    sender = alice(
        sds=SdsConfig(bloom_capacity=50, possible_ack_threshold=1, max_in_flight=1),
    )
    request_id = sender.send(b"x" * 128)
    hear_filter(sender, filter_of(*ids_of(sender, request_id)))
    assert sender.request(request_id).acknowledged == ((BOB, 1),)


def test_a_filter_says_nothing_new_about_what_is_acknowledged() -> None:
    sender = with_filter()
    request_id = sender.send(b"x" * 128)
    sender.published()
    acknowledge(sender, request_id, 0)
    data = filter_of(*ids_of(sender, request_id))
    hear_filter(sender, data, lamport=NOW_MS + 1)
    hear_filter(sender, data, lamport=NOW_MS + 2)
    assert sender.request(request_id).state is RequestState.DELIVERED
    assert sender.machine.outgoing.book.requests[request_id].segments[0].possible == {}


# --- Retransmission ------------------------------------------------------------------------------


def test_the_timer_starts_when_the_node_reports_not_before() -> None:
    """WIRE: the acknowledgement timer starts when the node reports the segment propagated."""
    sender = alice()
    request_id = sender.send(b"x")
    sender.advance(60 * SECOND)
    assert len(sender.copies(f"{request_id}:1")) == 1
    sender.published()
    sender.advance(5 * SECOND - 1)
    assert len(sender.copies(f"{request_id}:1")) == 1
    sender.advance(1)
    assert len(sender.copies(f"{request_id}:1")) == 2


def test_the_acknowledgement_timer_does_not_run_while_a_segment_waits_for_the_limit() -> None:
    sender = alice(budget=limited(4), sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x" * 400)
    waiting = [
        segment for segment in sender.request(request_id).segments if not segment.transmissions
    ]
    assert len(waiting) == 3
    sender.advance(100 * SECOND)
    assert not sender.request(request_id).is_final


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ({}, [5, 5, 5]),
        ({"retransmission_backoff": 1.5}, [5, 7.5, 11.25]),
        ({"retransmission_backoff": 3}, [5, 15, 45]),
    ],
)
def test_retransmission_n_waits_the_timeout_times_backoff_to_the_n(
    settings: dict[str, Any], waits: list[float]
) -> None:
    """WIRE: retransmission n waits acknowledgement_timeout_ms · backoff^n."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=3, **settings))
    request_id = sender.send(b"x")
    for copies, wait in enumerate(waits, 1):
        sender.published()
        sender.advance(int(wait * SECOND) - 1)
        assert len(sender.copies(f"{request_id}:1")) == copies
        sender.advance(1)
        assert len(sender.copies(f"{request_id}:1")) == copies + 1


def test_what_is_possibly_acknowledged_waits_twice_as_long() -> None:
    """LIP-109: distinct resend periods, those that are not acknowledged at all first."""
    sender = with_filter(max_retransmissions=3)
    possible, other = sender.send(b"possible"), sender.send(b"other")
    sender.published()
    hear_filter(sender, filter_of(*ids_of(sender, possible)))
    sender.advance(5 * SECOND)
    assert len(sender.copies(f"{other}:1")) == 2
    assert len(sender.copies(f"{possible}:1")) == 1
    sender.advance(5 * SECOND)
    assert len(sender.copies(f"{possible}:1")) == 2
    sender.published()
    sender.advance(10 * SECOND - 1)
    assert len(sender.copies(f"{possible}:1")) == 2
    sender.advance(1)
    assert len(sender.copies(f"{possible}:1")) == 3


def test_where_the_rate_is_limited_waits_double() -> None:
    """WIRE: retransmission_backoff is 1, 2 where rate limiting is on and nothing else was said."""
    sender = alice(budget=limited(100))
    request_id = sender.send(b"x")
    for copies, wait in enumerate((5, 10, 20), 1):
        sender.published()
        sender.advance(wait * SECOND - 1)
        assert len(sender.copies(f"{request_id}:1")) == copies
        sender.advance(1)
        assert len(sender.copies(f"{request_id}:1")) == copies + 1


def test_after_all_retransmissions_and_the_last_timeout_the_request_ends() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x")
    for _ in range(3):
        sender.published()
        assert not sender.request(request_id).is_final
        sender.advance(5 * SECOND)
    status = sender.request(request_id)
    assert status.state is RequestState.DELIVERY_ERROR
    assert [segment.transmissions for segment in status.segments] == [3]
    event = sender.of(MessageDeliveryErrorEvent)[0]
    assert event.request_id == request_id
    assert "after 3 timeouts" in event.error
    assert "\n" not in event.error
    assert event.error == status.error
    assert len(sender.of(MessageDeliveryErrorEvent)) == 1


def test_without_retransmissions_the_first_timeout_ends_it() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x")
    sender.published()
    sender.advance(5 * SECOND)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR
    assert len(sender.transmissions) == 1


def test_a_first_segment_that_was_given_up_meanwhile_ends_the_request_once_all_is_sent() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x" * 128)
    sender.published(f"{request_id}:1")
    sender.failed(f"{request_id}:2")
    sender.advance(SECOND)
    sender.advance(20 * SECOND)
    assert sender.request(request_id).state is RequestState.OPEN
    sender.published()
    sender.advance(5 * SECOND)
    kinds = [type(event) for event in sender.events if not isinstance(event, MessageProgressEvent)]
    assert kinds == [MessageSentEvent, MessageDeliveryErrorEvent]
    assert len(sender.copies(f"{request_id}:1")) == 1


def test_a_segment_is_repeated_while_the_leader_lacks_it_whoever_else_has_it() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 192)
    sender.published()
    acknowledge(sender, request_id, 0, by=BOB)
    sender.advance(5 * SECOND)
    assert sender.sent_since(3) == [f"{request_id}:2", f"{request_id}:3"]
    sender.published()
    # Carol leads now and lacks the first one.
    acknowledge(sender, request_id, 1, 2, by=CAROL)
    sender.advance(5 * SECOND)
    assert sender.sent_since(5) == [f"{request_id}:1"]


def test_a_queued_retransmission_is_dropped_when_its_segment_is_acknowledged() -> None:
    """WIRE: a queued retransmission is dropped; a segment is queued at most once."""
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    request_id = sender.send(b"x" * 256)
    sender.published()
    acknowledge(sender, request_id, 0)
    sender.advance(5 * SECOND)
    assert sender.sent_since(4) == [f"{request_id}:2"]
    assert sender.status().waiting == 2
    acknowledge(sender, request_id, 2)
    assert sender.status().waiting == 1
    sender.published()
    assert sender.sent_since(5) == [f"{request_id}:4"]


def test_an_acknowledged_segment_that_waits_for_its_first_transmission_again_is_dropped() -> None:
    """An acknowledgement also proves that it was propagated, whatever the node said."""
    sender = alice()
    request_id = sender.send(b"x" * 128)
    sender.failed(f"{request_id}:1")
    sender.published(f"{request_id}:2")
    acknowledge(sender, request_id, 0)
    assert [event.request_id for event in sender.of(MessageSentEvent)] == [request_id]
    sender.advance(4 * SECOND)
    assert len(sender.transmissions) == 2


def test_every_open_request_ends_although_nobody_answers() -> None:
    """WIRE: so every open request has a running timer."""
    sender = alice()
    requests = [sender.send(b"x" * 100) for _ in range(5)]
    for _ in range(10):
        sender.published()
        sender.advance(5 * SECOND)
    assert {sender.request(item).state for item in requests} == {RequestState.DELIVERY_ERROR}


# --- Bounds --------------------------------------------------------------------------------------


def test_more_participants_than_are_remembered_are_none_of_a_request() -> None:
    """Sender ids are free: whoever is not recorded changes nothing, and those recorded go on."""
    sender = alice(sds=replace(NO_FILTER, max_participants=2))
    request_id = sender.send(bytes(100))
    sender.published()
    for name in ("m1", "m2", "m3"):
        acknowledge(sender, request_id, 0, by=name)
    acknowledge(sender, request_id, 1, by="m3")
    status = sender.request(request_id)
    assert status.acknowledged == (("m1", 1), ("m2", 1))
    assert not status.is_final
    assert sender.status().counters["recipients_full"] == 2
    assert len(sender.rows_of(AcknowledgementRecord)) == 2
    acknowledge(sender, request_id, 1, by="m2")
    assert sender.request(request_id).recipients == ("m2",)


def test_filters_of_more_participants_than_are_remembered_say_nothing() -> None:
    sds = SdsConfig(bloom_capacity=16, max_participants=2, possible_ack_threshold=2)
    sender = Participant(ALICE, sds=sds)
    request_id = sender.send(b"x")
    sender.published()
    bloom = BloomFilter(sds.bloom_capacity, sds.bloom_error_rate)
    bloom.add(*ids_of(sender, request_id))
    for number, name in enumerate(("m1", "m2", "m3", "m3", "m2")):
        if number == 4:
            (segment,) = sender.machine.outgoing.book.outstanding.values()
            assert segment.possible == {"m1": 1, "m2": 1}
            assert sender.status().counters["recipients_full"] == 2
        sender.receive(
            sync_message(sender_id=name, message_id=f"sync {number}", bloom_filter=bloom.to_bytes())
        )
    assert sender.request(request_id).recipients == ("m2",)


def test_places_of_participants_stay_after_a_restart() -> None:
    sender = alice()
    request_id = sender.send(bytes(200))
    sender.published()
    for place, name in ((0, BOB), (0, CAROL), (1, BOB)):
        acknowledge(sender, request_id, place, by=name)
    sender = sender.reopened()
    acknowledge(sender, request_id, 1, by="dave")
    acknowledge(sender, request_id, 2, by=CAROL)
    rows = sender.rows_of(AcknowledgementRecord)
    assert sorted((row.position, row.participant_id) for row in rows) == [  # type: ignore[attr-defined]
        (0, BOB),
        (1, CAROL),
        (2, "dave"),
    ]


# --- Which go first --------------------------------------------------------------------------------


def test_in_silence_one_segment_asks_for_all_and_twice_as_many_each_time() -> None:
    """docs/adr/0014: a lost acknowledgement looks like many lost segments."""
    sender = alice()
    request_id = sender.send(b"x" * 640)
    sender.published()
    sent = []
    for _ in range(4):
        before = len(sender.transmissions)
        sender.advance(5 * SECOND)
        sender.published()
        sent.append(sender.sent_since(before))
    assert [len(names) for names in sent] == [1, 2, 4, 8]
    assert len({name for names in sent[:3] for name in names}) == 7
    assert sender.counted("retransmissions") == 15
    assert sender.counted("retransmissions_spared") == 25
    assert sender.request(request_id).state is RequestState.OPEN


def test_who_has_it_all_is_asked_once_and_says_so() -> None:
    """Only the sync that acknowledged was lost."""
    sender, receiver = alice(), Participant()
    request_id = sender.send(b"x" * 640)
    sender.published()
    deliver([receiver], sender.transmissions)
    receiver.advance(4 * SECOND)
    receiver.published()
    assert receiver.status().owed_acknowledgements == 0
    sender.advance(5 * SECOND)
    (again,) = sender.sent_since(10)
    receiver.transmissions.clear()
    deliver([receiver], sender.copies(again)[1:])
    receiver.advance(4 * SECOND)
    deliver([sender], receiver.transmissions)
    assert sender.request(request_id).state is RequestState.DELIVERED
    assert sender.counted("retransmissions") == 1


def test_what_the_answer_does_not_name_follows_soon() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 640)
    sender.published()
    sender.advance(5 * SECOND)
    sender.published()
    assert sender.sent_since(10) == [f"{request_id}:1"]
    sender.advance(SECOND)
    acknowledge(sender, request_id, 0, 4)
    sender.advance(1250 * MS - 1)
    assert len(sender.transmissions) == 11
    sender.advance(1)
    lacking = [number for number in range(2, 11) if number != 5]
    assert sender.sent_since(11) == [f"{request_id}:{number}" for number in lacking]


def test_timeouts_that_were_let_pass_for_others_come_back_with_news() -> None:
    """Somebody is there after all: what was hardly sent again is, before the request ends."""
    sender = alice()
    request_id = sender.send(b"x" * 640)
    sender.published()
    for _ in range(3):
        sender.advance(5 * SECOND)
        sender.published()
    assert sender.counted("retransmissions") == 7
    acknowledge(sender, request_id, 0)
    while not sender.request(request_id).is_final:
        sender.advance(SECOND)
        sender.published()
    status = sender.request(request_id)
    assert status.state is RequestState.DELIVERY_ERROR
    assert max(segment.transmissions for segment in status.segments) >= 5
    assert min(segment.transmissions for segment in status.segments[1:]) >= 4


def test_tries_that_the_node_could_not_take_are_no_timeouts_when_news_comes() -> None:
    """WIRE: only what reaches the node counts as a retransmission."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x" * 640)
    for wait in (1, 2, 4, 8):
        sender.failed()
        sender.advance(wait * SECOND)
    sender.published()
    sender.advance(5 * SECOND)
    sender.published()
    acknowledge(sender, request_id, 0)
    sender.advance(3 * SECOND)
    assert sender.request(request_id).state is RequestState.OPEN
    assert sender.counted("retransmissions") == 1 + 9


def test_with_parity_only_what_it_cannot_fill_goes_at_once() -> None:
    """docs/adr/0014: parity fills as many gaps as there is of it."""
    half = replace(SMALL, enable_reed_solomon=True, parity_rate=0.5)
    sender = alice(segmentation=half)
    request_id = sender.send(b"x" * 640)
    sender.published()
    acknowledge(sender, request_id, 0, 1, 2)
    sender.advance(5 * SECOND)
    assert sender.sent_since(15) == [f"{request_id}:4", f"{request_id}:5"]
    sender.published()
    acknowledge(sender, request_id, 0, 1, 2, 3, lamport=NOW_MS + 1)
    sender.advance(1250 * MS)
    assert len(sender.sent_since(17)) == 4


def test_those_that_wait_for_others_do_not_make_the_request_last_longer() -> None:
    """Every request ends after its retransmissions and its last timeout."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x" * 640)
    sender.published()
    for _ in range(2):
        sender.advance(5 * SECOND)
        sender.published()
    sender.advance(5 * SECOND - 1)
    assert sender.request(request_id).state is RequestState.OPEN
    sender.advance(1)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR
    assert sender.counted("retransmissions") == 3
