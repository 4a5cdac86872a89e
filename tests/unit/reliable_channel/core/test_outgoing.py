"""The way out: what a send fixes, what goes out when, which evidence counts, and how requests end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.requests import RequestState, SegmentState
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.sds.log import MAX_BRANCHES, MAX_LATE_HINTS
from reliable_channel.core.sds.missing import FETCH_TIMER
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage, WakuMessage
from reliable_channel.errors import (
    ChannelFullError,
    EmptyPayloadError,
    InvalidPayloadError,
    MessageTooLargeError,
)
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageProgressEvent,
    MessageQueuedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import (
    AcknowledgementRecord,
    BodyRecord,
    DebtRecord,
    LogRecord,
    OutgoingRecord,
    RequestRecord,
)
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    CHANNEL,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    SMALL,
    TOPIC,
    Participant,
    Transmission,
    content_message,
    cut,
    deliver,
    entries,
    hash_of,
    limited,
    messages_of,
    salted,
    sync_message,
)

EPOCH = 600 * SECOND
NEXT_EPOCH = NOW - NOW % EPOCH + EPOCH


def alice(**settings: Any) -> Participant:
    """Return a sender with segments of 64 bytes and no filter, unless the settings say otherwise."""
    return Participant(ALICE, **{"segmentation": SMALL, "sds": NO_FILTER, **settings})


def ids_of(sender: Participant, request_id: str) -> list[str]:
    """Return the message ids of a request's segments."""
    return [segment.message_id for segment in sender.request(request_id).segments]


def acknowledge(
    sender: Participant, request_id: str, *places: int, by: str = BOB, lamport: int = NOW_MS
) -> None:
    """Let a participant name segments of a request, counted from 0, all without places."""
    named = ids_of(sender, request_id)
    chosen = [named[place] for place in places] if places else named
    sender.receive(sync_message(*entries(*chosen), sender_id=by, lamport=lamport))


def history_of(transmission: Transmission) -> list[str]:
    """Return the ids that a transmission names."""
    return [item.message_id for item in transmission.message.causal_history]


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


def test_hints_and_filter_are_those_of_the_first_dispatch() -> None:
    """WIRE: filled at first dispatch; retrieval_hint of own messages: the first propagated."""
    sender = alice(sds=SdsConfig(bloom_capacity=50))
    sender.send(b"first")
    assert sender.transmissions[0].message.causal_history == ()
    sender.published()
    first = sender.transmissions[0]
    sender.send(b"second")
    second = sender.transmissions[1].message
    assert second.causal_history == (
        HistoryEntry(first.message.message_id, hash_of(first.data), ALICE),
    )
    assert second.bloom_filter is not None
    received = BloomFilter.from_bytes(second.bloom_filter, 50, 0.001)
    assert first.message.message_id in received
    assert second.message_id in received


def test_without_capacity_no_filter_is_sent() -> None:
    sender = alice()
    sender.send(b"x")
    assert sender.transmissions[0].message.bloom_filter is None


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


def test_both_of_two_equal_contents_are_delivered_by_one_acknowledgement() -> None:
    """Every request ends; with message_id="content" equal segments are one message."""
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    first, second = sender.send(b"x"), sender.send(b"x")
    sender.published()
    acknowledge(sender, first)
    assert sender.request(second).state is RequestState.DELIVERED
    assert sender.request(first).state is RequestState.DELIVERED


def test_withdrawing_the_second_of_two_equal_contents_leaves_the_first_known() -> None:
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    first = sender.send(b"x")
    sender.published()
    second = sender.send(b"x")
    sender.carry_out(sender.machine.withdraw(second, NOW))
    assert sender.status().known_messages == 1
    acknowledge(sender, first)
    assert sender.request(first).state is RequestState.DELIVERED


# --- Sent ----------------------------------------------------------------------------------------


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


def test_at_most_a_window_of_messages_is_in_flight() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=2))
    request_id = sender.send(b"x" * 300)
    assert sender.status().in_flight == 2
    assert sender.status().waiting == 3
    sender.published(f"{request_id}:1")
    assert sender.sent_since(2) == [f"{request_id}:3"]


def test_reports_about_what_is_not_in_flight_do_nothing() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    for segment_id in (f"{request_id}:1", f"{request_id}:9", "sync:4", "nonsense"):
        assert not sender.machine.published(segment_id, bytes(32), NOW)
        assert not sender.machine.publish_failed(segment_id, "no", NOW, retryable=False)


# --- Acknowledgements ----------------------------------------------------------------------------


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
    assert [type(event) for event in sender.events[events:]] == [MessageProgressEvent]
    assert len(sender.rows_of(AcknowledgementRecord)) == 2
    acknowledge(sender, request_id, by=CAROL, lamport=NOW_MS + 1)
    assert len(sender.events) == events + 1


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


def test_a_delivered_request_leaves_no_bytes_behind() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 128)
    assert len(sender.rows_of(BodyRecord)) == 4
    sender.published()
    acknowledge(sender, request_id)
    assert sender.rows_of(BodyRecord) == []
    assert sender.rows_of(OutgoingRecord) == []
    assert [getattr(row, "state", "") for row in sender.rows_of(RequestRecord)] == ["delivered"]
    assert (sender.status().open_requests, sender.status().open_bytes) == (0, 0)


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


def test_retransmissions_send_the_frozen_bytes_unchanged_and_are_stored() -> None:
    """WIRE: from then on the SDS bytes are frozen: retransmissions send them unchanged."""
    sender = alice(sds=SdsConfig(bloom_capacity=50))
    request_id = sender.send(b"x")
    sender.published()
    sender.send(b"y")
    sender.receive(content_message(cut(b"other")[0], sender_id=BOB))
    sender.advance(6 * SECOND)
    copies = [item for item in sender.transmissions if item.segment_id == f"{request_id}:1"]
    assert len(copies) == 2
    assert copies[0].data == copies[1].data
    assert not copies[0].ephemeral
    assert not copies[1].ephemeral


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
    request_id = sender.send(b"x" * 100)
    for _ in range(3):
        sender.published()
        assert not sender.request(request_id).is_final
        sender.advance(5 * SECOND)
    status = sender.request(request_id)
    assert status.state is RequestState.DELIVERY_ERROR
    assert [segment.transmissions for segment in status.segments] == [3, 3]
    event = sender.of(MessageDeliveryErrorEvent)[0]
    assert event.request_id == request_id
    assert "after 2 retransmissions" in event.error
    assert "\n" not in event.error
    assert event.error == status.error
    assert len(sender.of(MessageDeliveryErrorEvent)) == 1


def test_a_delivery_error_says_that_the_message_reached_the_network() -> None:
    """LIP-173: so that nobody sends it again for that."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    sender.send(b"x")
    sender.published()
    sender.advance(5 * SECOND)
    (event,) = sender.of(MessageDeliveryErrorEvent)
    assert "it reached the network" in event.error


def test_without_retransmissions_the_first_timeout_ends_it() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x")
    sender.published()
    sender.advance(5 * SECOND)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR
    assert len(sender.transmissions) == 1


def test_what_was_sent_stays_known_and_named_after_a_delivery_error() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x")
    named = ids_of(sender, request_id)
    sender.published()
    sender.advance(5 * SECOND)
    sender.send(b"y")
    assert history_of(sender.transmissions[-1]) == named


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
    request_id = sender.send(b"x" * 192)
    sender.published()
    sender.advance(5 * SECOND)
    assert sender.sent_since(3) == [f"{request_id}:1"]
    assert sender.status().waiting == 2
    acknowledge(sender, request_id, 1)
    assert sender.status().waiting == 1
    sender.published()
    assert sender.sent_since(4) == [f"{request_id}:3"]


def test_what_still_waits_goes_nowhere_when_its_request_is_delivered() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    request_id = sender.send(b"x" * 192)
    sender.published()
    sender.advance(5 * SECOND)
    assert sender.status().waiting == 2
    acknowledge(sender, request_id)
    assert sender.status().waiting == 0
    sender.published()
    assert len(sender.sent_since(0)) == 4


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


def test_every_open_request_ends_although_nobody_answers() -> None:
    """WIRE: so every open request has a running timer."""
    sender = alice()
    requests = [sender.send(b"x" * 100) for _ in range(5)]
    for _ in range(10):
        sender.published()
        sender.advance(5 * SECOND)
    assert {sender.request(item).state for item in requests} == {RequestState.DELIVERY_ERROR}


# --- Failures of the node ------------------------------------------------------------------------


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
    assert "after 1 retransmissions" in sender.request(request_id).error
    assert len(sender.transmissions) == 6


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


def test_histories_stay_within_the_header_budget_however_many_were_withdrawn() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    for number in range(20):
        sender.receive(*concurrent(*(f"p{number} {place}" for place in range(16))))
        sender.send(b"x")
    while sender.machine.queue.in_flight:
        sender.failed(retryable=False)
    most = max(len(item.message.causal_history) for item in sender.transmissions)
    assert most <= 2 + MAX_BRANCHES + MAX_LATE_HINTS


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


# --- Epochs that ended too early -----------------------------------------------------------------


def expire(sender: Participant, *segment_ids: str) -> None:
    """Report transmissions whose epoch had ended before they could be handed over."""
    for segment_id in segment_ids or tuple(sender.machine.queue.in_flight):
        sender.carry_out(sender.machine.expired(segment_id, sender.now))


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
    request_id = sender.send(b"x" * 100)
    sender.published()
    sender.advance(5 * SECOND)
    assert sender.status().in_flight == 2
    acknowledge(sender, request_id, 0)
    expire(sender, f"{request_id}:1")
    assert len(sender.copies(f"{request_id}:1")) == 2
    assert sender.request(request_id).state is RequestState.OPEN


# --- Ephemeral messages --------------------------------------------------------------------------


def test_an_ephemeral_message_has_no_time_history_filter_or_store() -> None:
    """WIRE: lamport, history and bloom unset; never logged, parked or acknowledged."""
    sender = alice(sds=SdsConfig(bloom_capacity=50))
    sender.send(b"before")
    sender.send(b"now" * 40, ephemeral=True)
    for transmission in sender.transmissions[1:]:
        message = transmission.message
        assert transmission.ephemeral
        assert message == SdsMessage(
            sender_id=ALICE,
            message_id=message.message_id,
            channel_id=CHANNEL,
            content=message.content,
        )
    assert sender.status().known_messages == 1
    assert len(sender.rows_of(LogRecord)) == 1


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


def test_parity_follows_the_data_as_ephemeral_messages_with_the_first_history() -> None:
    """WIRE: parity segments carry the causal history of the payload's first segment."""
    sender = alice(segmentation=PARITY)
    first = sender.send(b"first")
    sender.published()
    request_id = sender.send(b"x" * 200)
    data, parity = sender.transmissions[1:5], sender.transmissions[5:]
    assert sender.sent_since(1) == [f"{request_id}:{number}" for number in range(1, 7)]
    assert [item.message.content for item in (*data, *parity)] == [
        segment.encode() for segment in cut(b"x" * 200, parity_count=2, wrap_time_ns=NOW + 1)
    ]
    for transmission in parity:
        message = transmission.message
        assert transmission.ephemeral
        assert message.lamport_timestamp is None
        assert message.bloom_filter is None
        assert message.causal_history == data[0].message.causal_history
        assert history_of(transmission) == ids_of(sender, first)
        assert message.content is not None
        assert message.message_id == salted(ALICE, NOW + 1, message.content)


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
    sender.advance(5 * SECOND)
    assert sender.sent_since(3) == [f"{request_id}:1", f"{request_id}:2"]


def test_sent_does_not_wait_for_parity() -> None:
    """WIRE: it never delays sent."""
    sender = alice(segmentation=PARITY)
    request_id = sender.send(b"x" * 100)
    sender.published(f"{request_id}:1", f"{request_id}:2")
    assert len(sender.of(MessageSentEvent)) == 1
    sender.failed(f"{request_id}:3", retryable=False)
    assert sender.request(request_id).state is RequestState.OPEN


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
    assert budget.remaining(NOW) == 17
    sender.published()
    sender.advance(5 * SECOND)
    assert budget.remaining(sender.now) == 15


def test_the_acknowledgement_timer_does_not_run_while_a_segment_waits_for_the_limit() -> None:
    sender = alice(budget=limited(4), sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x" * 400)
    waiting = [
        segment for segment in sender.request(request_id).segments if not segment.transmissions
    ]
    assert len(waiting) == 3
    sender.advance(100 * SECOND)
    assert not sender.request(request_id).is_final


# --- Syncs ---------------------------------------------------------------------------------------


def test_what_is_owed_goes_out_in_a_sync_within_half_the_timeout() -> None:
    receiver = Participant(sds=SdsConfig(bloom_capacity=50))
    messages = messages_of(b"x" * 150)
    receiver.receive(*messages)
    assert receiver.status().owed_acknowledgements == 3
    receiver.advance(2_500 * MS)
    assert receiver.status().owed_acknowledgements == 0
    (sync,) = receiver.syncs
    assert sync.ephemeral
    assert history_of(sync) == [message.message_id for message in messages]
    assert sync.message.content is None
    assert sync.message.bloom_filter is not None
    assert sync.message.lamport_timestamp is not None
    assert sync.message.lamport_timestamp > NOW_MS + 2


def test_a_sync_of_ours_is_in_no_filter_of_ours() -> None:
    """WIRE: syncs are never added to filters."""
    receiver = Participant(sds=SdsConfig(bloom_capacity=50))
    (message,) = messages_of(b"x")
    receiver.receive(message)
    receiver.advance(5 * SECOND)
    receiver.published()
    (sync,) = receiver.syncs
    receiver.send(b"reply")
    for transmission in (sync, receiver.transmissions[-1]):
        assert transmission.message.bloom_filter is not None
        bloom = BloomFilter.from_bytes(transmission.message.bloom_filter, 50, 0.001)
        assert message.message_id in bloom
        assert sync.message.message_id not in bloom


def test_neither_messages_nor_syncs_ask_for_repairs() -> None:
    """SDS-R: repair_request is unset where nothing is to be asked for."""
    receiver = Participant()
    receiver.receive(*messages_of(b"x", history=entries("missing")))
    receiver.send(b"reply")
    receiver.receive(*messages_of(b"y", sender_id=CAROL))
    receiver.advance(5 * SECOND)
    assert len(receiver.syncs) == 1
    assert len(receiver.transmissions) >= 2
    assert {item.message.repair_request for item in receiver.transmissions} == {()}


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


def test_a_message_of_ours_pays_what_it_names() -> None:
    receiver = Participant(sds=NO_FILTER)
    receiver.receive(*messages_of(b"x"))
    receiver.send(b"reply")
    assert receiver.status().owed_acknowledgements == 0
    assert receiver.rows_of(DebtRecord) == []
    receiver.advance(10 * SECOND)
    assert receiver.syncs == []


def test_more_than_64_owed_go_out_in_several_syncs() -> None:
    receiver = Participant(sds=NO_FILTER, segmentation=SMALL)
    receiver.receive(*messages_of(b"x" * (150 * 64)))
    receiver.advance(10 * SECOND)
    assert [len(history_of(sync)) for sync in receiver.syncs] == [64, 64, 64]
    named = {item for sync in receiver.syncs for item in history_of(sync)}
    assert named >= {message.message_id for message in messages_of(b"x" * (150 * 64))}
    assert receiver.status().owed_acknowledgements == 0


def test_a_sync_that_failed_is_owed_again() -> None:
    receiver = Participant(sds=NO_FILTER)
    (message,) = messages_of(b"x")
    receiver.receive(message)
    receiver.advance(3 * SECOND)
    receiver.failed()
    assert receiver.status().owed_acknowledgements == 1
    receiver.advance(3 * SECOND)
    assert [history_of(sync) for sync in receiver.syncs] == [[message.message_id]] * 2
    receiver.published()
    receiver.advance(10 * SECOND)
    assert len(receiver.syncs) == 2


def test_a_failed_idle_sync_owes_nothing() -> None:
    receiver = Participant(sds=NO_FILTER)
    receiver.receive(*messages_of(b"x"))
    receiver.advance(3 * SECOND)
    receiver.published()
    receiver.advance(46 * SECOND)
    assert len(receiver.syncs) == 2
    receiver.failed()
    assert receiver.status().owed_acknowledgements == 0


def test_in_silence_idle_syncs_go_out_at_growing_distances() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id)
    times = []
    for _ in range(4):
        while not sender.machine.queue.in_flight:
            sender.advance(SECOND)
        times.append(sender.syncs[-1].time_ns - NOW)
        sender.published()
    gaps = [later - earlier for earlier, later in zip([0, *times], times, strict=False)]
    for gap, least in zip(gaps, (30, 60, 120, 240), strict=True):
        assert least * SECOND <= gap <= 1.5 * least * SECOND
    assert all(history_of(sync) == ids_of(sender, request_id) for sync in sender.syncs)


def test_with_nothing_logged_a_silence_is_not_broken() -> None:
    sender = alice()
    sender.advance(3600 * SECOND)
    assert sender.transmissions == []
    assert sender.machine.next_deadline() is not None


def test_an_idle_sync_that_the_limit_holds_back_goes_out_once() -> None:
    sender = alice(budget=limited(3))
    request_id = sender.send(b"x" * 192)
    sender.published()
    acknowledge(sender, request_id)
    sender.advance(NEXT_EPOCH - NOW)
    assert sender.syncs == []
    sender.advance(35 * SECOND)
    assert len(sender.syncs) == 1


def test_a_receiver_near_its_limit_spaces_its_syncs() -> None:
    """WIRE: a receiver near its limit spaces its syncs over the time left."""
    receiver = Participant(sds=NO_FILTER, budget=limited(10))
    for number in range(60):
        receiver.receive(
            content_message(cut(b"x", wrap_time_ns=NOW + number)[0], lamport=NOW_MS + number)
        )
        receiver.advance(5 * SECOND)
        receiver.published()
    assert 3 <= len(receiver.syncs) <= 10
    receiver.advance(600 * SECOND)
    receiver.published()
    assert receiver.status().owed_acknowledgements == 0


def test_a_sync_that_still_waits_is_not_needed_when_another_has_acknowledged() -> None:
    """WIRE: dropped when another participant has just named at least as many segments."""
    receiver = Participant(sds=replace(NO_FILTER, max_in_flight=1))
    receiver.send(b"busy")
    (message,) = messages_of(b"x")
    receiver.receive(message)
    receiver.advance(3 * SECOND)
    assert receiver.status().waiting == 1
    receiver.receive(sync_message(*entries(message.message_id), sender_id=CAROL))
    assert receiver.status().owed_acknowledgements == 0
    receiver.published()
    assert len(receiver.syncs) == 0


def test_an_idle_sync_that_waits_is_not_dropped_by_what_others_say() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1, max_retransmissions=0))
    request_id = sender.send(b"x")
    sender.published()
    acknowledge(sender, request_id)
    sender.send(b"busy")
    sender.advance(46 * SECOND)
    assert sender.status().waiting == 1
    sender.receive(sync_message(sender_id=CAROL))
    sender.published()
    assert len(sender.syncs) == 1


def test_a_failed_sync_owes_nothing_that_was_forgotten_meanwhile() -> None:
    receiver = Participant(sds=replace(NO_FILTER, max_known_ids=64))
    receiver.receive(content_message(b"x", message_id="old"))
    receiver.advance(3 * SECOND)
    for number in range(70):
        receiver.receive(content_message(b"x", message_id=f"m{number}", lamport=NOW_MS + 9))
    receiver.failed()
    assert "old" not in list(receiver.machine.state.debt)
    assert receiver.status().owed_acknowledgements > 0


def test_sync_ids_differ_also_within_an_instant() -> None:
    receiver = Participant(sds=NO_FILTER, segmentation=SMALL)
    receiver.receive(*messages_of(b"x" * (130 * 64)))
    receiver.advance(5 * SECOND)
    named = [sync.message.message_id for sync in receiver.syncs]
    assert len(named) >= 3
    assert len(set(named)) == len(named)


# --- Withdrawal ----------------------------------------------------------------------------------


def concurrent(*names: str) -> list[SdsMessage]:
    """Return messages of several senders that do not name each other."""
    return [
        content_message(cut(name.encode())[0], sender_id=name, lamport=NOW_MS + number)
        for number, name in enumerate(names)
    ]


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


# --- The network's limit -------------------------------------------------------------------------

LIMIT = 150 * 1024


def waku_bytes(transmission: Transmission, *, overhead: int, content_topic: str) -> int:
    """Return the size of the largest WakuMessage that a transmission can become."""
    message = WakuMessage(
        payload=transmission.data + bytes(overhead),
        content_topic=content_topic,
        version=(1 << 32) - 1,
        timestamp=-(1 << 63),
        meta=bytes(64),
        ephemeral=True,
    )
    return len(message.encode())


def crowd(count: int) -> list[SdsMessage]:
    """Return concurrent messages with the longest ids that are accepted."""
    return [
        content_message(
            b"hello",
            sender_id=f"{number:03}" + "€" * 84,
            message_id=f"{number:03}" + "m" * 253,
            lamport=NOW_MS + number,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("bloom_capacity", "limit"),
    [
        pytest.param(10_000, LIMIT, id="default"),
        pytest.param(60_000, LIMIT, id="filter of 110 KiB"),
        pytest.param(70_000, LIMIT, id="filter of 128 KiB"),
        pytest.param(0, 32 * 1024, id="network limit of 32 KiB"),
    ],
)
def test_a_sync_with_64_entries_is_never_too_large(bloom_capacity: int, limit: int) -> None:
    """14/WAKU2-MESSAGE: at most 150 KiB encoded. What does not fit goes into another sync."""
    receiver = Participant(sds=SdsConfig(bloom_capacity=bloom_capacity), max_message_bytes=limit)
    for message in crowd(64):
        receiver.receive(message, hint=hash_of(message.encode()))
    receiver.advance(3 * SECOND)
    sizes = [waku_bytes(sync, overhead=0, content_topic=TOPIC) for sync in receiver.syncs]
    assert sizes
    assert max(sizes) <= limit
    named = {entry.message_id for sync in receiver.syncs for entry in sync.message.causal_history}
    assert len(named) == 64


def test_nothing_is_asked_of_the_store_for_ones_own_messages() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 100)
    sender.published()
    acknowledge(sender, request_id)
    assert sender.fetches == []
    assert FETCH_TIMER not in sender.machine.state.timers


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
