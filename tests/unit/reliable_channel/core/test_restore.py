"""Kept rows back to a working channel: nothing is lost, nothing is done twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.requests import RequestState
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageLostEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    SenderIdConflictEvent,
)
from reliable_channel.records import (
    AcknowledgementRecord,
    BodyRecord,
    ChannelRecord,
    CompletedRecord,
    DebtRecord,
    LogRecord,
    LostRecord,
    MissingRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
)
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    DAY,
    GRACE,
    NO_FILTER,
    NOW,
    NOW_MS,
    PARITY,
    PAYLOAD,
    SMALL,
    TIMEOUT,
    Participant,
    Transmission,
    bob,
    content_message,
    cut,
    deliver,
    entries,
    entry,
    ephemeral_message,
    hash_of,
    messages_of,
    settled,
    single,
    sync_message,
)


def alice(**settings: Any) -> Participant:
    return Participant(ALICE, **{"segmentation": SMALL, "sds": NO_FILTER, **settings})


def acknowledge(sender: Participant, request_id: str, *places: int, by: str = BOB) -> None:
    named = [segment.message_id for segment in sender.request(request_id).segments]
    sender.receive(sync_message(*entries(*(named[place] for place in places)), sender_id=by))


def test_requests_of_one_moment_go_on_in_the_order_in_which_they_were_made() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    for number in range(8):
        sender.send(b"%d" % number)
    # A store gives rows back in any order.
    shuffled = {kind: sorted(rows, key=repr) for kind, rows in sender.snapshot().items()}
    again = Participant(ALICE, now=sender.now, snapshot=shuffled, **sender.settings)
    again.published()
    times = [item.message.lamport_timestamp for item in again.transmissions]
    assert len(times) == 8
    assert times == sorted(times)


# --- Nothing -------------------------------------------------------------------------------------


def test_a_channel_without_state_begins_empty() -> None:
    fresh = Participant(BOB, snapshot={})
    assert fresh.status().known_messages == 0
    assert fresh.events == []
    assert fresh.transmissions == []


def test_an_idle_channel_comes_back_as_it_was() -> None:
    receiver = settled()
    again = receiver.reopened()
    before, after = receiver.status(), again.status()
    assert after.known_messages == before.known_messages
    assert after.lamport_timestamp >= before.lamport_timestamp
    assert again.events == []
    assert again.transmissions == []


# --- What we sent --------------------------------------------------------------------------------


def test_what_the_node_had_not_confirmed_goes_out_again_unchanged() -> None:
    """WIRE: after a restart unconfirmed transmissions count as not made."""
    sender = alice()
    request_id = sender.send(b"x" * 150)
    sender.published(f"{request_id}:2")
    again = sender.reopened()
    assert again.sent_since(0) == [f"{request_id}:1", f"{request_id}:3"]
    for segment_id in again.sent_since(0):
        assert again.last(segment_id).data == sender.last(segment_id).data
    again.published()
    assert [event.request_id for event in again.of(MessageSentEvent)] == [request_id]


def test_what_still_waited_goes_out_with_the_history_fixed_at_send() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    request_id = sender.send(b"x" * 150)
    again = sender.reopened()
    again.published()
    named = [item.message.message_id for item in again.transmissions]
    assert again.sent_since(0) == [f"{request_id}:{number}" for number in (1, 2, 3)]
    assert [
        [item.message_id for item in transmission.message.causal_history]
        for transmission in again.transmissions
    ] == [[], named[:1], named[:2]]


def test_timers_of_what_was_propagated_run_on() -> None:
    """docs/adr/0015: deadlines are in wall time."""
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    sender.advance(4 * SECOND)
    again = sender.reopened()
    again.advance(SECOND - 1)
    assert again.sent_since(0) == []
    again.advance(1)
    assert again.sent_since(0) == [f"{request_id}:1"]
    assert again.last(f"{request_id}:1").data == sender.last(f"{request_id}:1").data


def test_retransmissions_that_were_used_stay_used() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x")
    for _ in range(3):
        sender.published()
        sender = sender.reopened()
        sender.advance(5 * SECOND)
    status = sender.request(request_id)
    assert status.state is RequestState.DELIVERY_ERROR
    assert "after 3 timeouts" in status.error


def test_timeouts_in_which_others_went_first_stay_used() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x" * 640)
    for _ in range(3):
        assert not sender.request(request_id).is_final
        sender.published()
        sender = sender.reopened()
        sender.advance(5 * SECOND)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR


def test_timeouts_that_passed_for_others_are_kept_as_they_are_used() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 640)
    sender.published()
    sender.advance(5 * SECOND)
    again = sender.reopened()

    def used(participant: Participant) -> list[tuple[int, bool]]:
        segments = participant.machine.outgoing.book.requests[request_id].segments
        return [(segment.passed, segment.spared) for segment in segments]

    assert used(again) == used(sender) == [(0, False)] + [(1, True)] * 9


@pytest.mark.parametrize("message_id", ["salted", "content"])
@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
def test_parity_that_waited_goes_out_after_the_restart(code: Any, message_id: Any) -> None:
    """Also when the settings have changed meanwhile: it is of the code that its data names."""
    settings = replace(PARITY, parity_code=code)
    sds = replace(NO_FILTER, message_id=message_id, max_in_flight=1)
    sender, receiver = alice(segmentation=settings, sds=sds), bob(sds=sds)
    request_id = sender.send(PAYLOAD)
    sender.published(f"{request_id}:1")
    assert len(sender.sent_since(0)) == 2
    again = alice(now=sender.now, snapshot=sender.snapshot(), sds=sds)
    again.published()
    assert again.sent_since(0) == [f"{request_id}:{number}" for number in (2, 3, 4, 5)]
    deliver([receiver], again.transmissions[2:])
    assert receiver.received == []
    deliver([receiver], sender.transmissions[:1])
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("parity_recoveries") == 1


def test_once_all_data_is_sent_parity_is_not_made_anew() -> None:
    sender = alice(segmentation=PARITY)
    sender.send(PAYLOAD)
    sender.published()
    again = sender.reopened()
    again.published()
    assert again.sent_since(0) == []


def test_what_parity_may_have_filled_is_not_sent_at_once_after_a_restart_either() -> None:
    """docs/adr/0014: only what exceeds the parity."""
    parity = replace(SMALL, enable_reed_solomon=True, parity_rate=0.5)
    sender = alice(segmentation=parity)
    request_id = sender.send(b"x" * 640)
    sender.published()
    acknowledge(sender, request_id, 0, 1, 2)
    again = sender.reopened()
    again.transmissions.clear()
    again.advance(5 * SECOND)
    assert again.sent_since(0) == [f"{request_id}:4", f"{request_id}:5"]


def test_a_retransmission_that_was_not_confirmed_counts_as_not_made() -> None:
    """WIRE: after a restart unconfirmed transmissions count as not made (but stay counted)."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=1))
    request_id = sender.send(b"x")
    sender.published()
    sender.advance(5 * SECOND)
    assert len(sender.copies(f"{request_id}:1")) == 2
    again = sender.reopened()
    again.advance(5 * SECOND)
    assert again.request(request_id).state is RequestState.OPEN
    assert len(again.copies(f"{request_id}:1")) == 1


def live_on(sender: Participant, seconds: int) -> tuple[Participant, list[Transmission]]:
    """Let a process that dies each second, before the node reports, go on; return it and what it transmitted."""
    made = list(sender.transmissions)
    for _ in range(seconds):
        sender.advance(SECOND)
        made += [item for item in sender.transmissions if item not in made]
        sender = sender.reopened()
        made += sender.transmissions
    return sender, made


def test_retransmissions_that_no_life_is_long_enough_to_confirm_come_to_an_end() -> None:
    """They count as not made, but neither for ever nor without a timeout between them."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x")
    sender.published()
    sender.advance(4 * SECOND)
    sender, made = live_on(sender, 100)
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR
    times = [item.time_ns for item in made if item.segment_id == f"{request_id}:1"]
    assert 3 < len(times) <= 9
    assert min(later - sooner for sooner, later in pairwise(times)) >= 5 * SECOND


def test_what_no_life_is_long_enough_to_see_reported_comes_to_an_end_too() -> None:
    """It may be out: so it is waited for like what was reported, and so it ends."""
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x" * 150)
    made = list(sender.transmissions)
    raised: list[type] = []
    for _ in range(100):
        sender, more = live_on(sender, 1)
        made += [item for item in more if item not in made]
        raised += [type(event) for event in sender.events]
    assert sender.request(request_id).state is RequestState.DELIVERY_ERROR
    assert raised.count(MessageSentEvent) == 1
    for number in (1, 2, 3):
        times = [item.time_ns for item in made if item.segment_id == f"{request_id}:{number}"]
        assert 6 < len(times) <= 9
        assert all(later - sooner >= 5 * SECOND for sooner, later in pairwise(times[6:]))
    assert sender.rows_of(OutgoingRecord) == []


def test_an_ephemeral_message_that_no_life_is_long_enough_to_see_reported_counts_as_sent() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=2))
    request_id = sender.send(b"x" * 150, ephemeral=True)
    sender, made = live_on(sender, 100)
    assert sender.request(request_id).state is RequestState.SENT
    assert len([item for item in made if item.segment_id == f"{request_id}:1"]) <= 9


def test_what_the_node_refused_is_not_out_however_often_it_was_tried() -> None:
    sender = alice(sds=replace(NO_FILTER, max_retransmissions=0))
    request_id = sender.send(b"x")
    for _ in range(5):
        sender.failed()
        sender.advance(10 * SECOND)
    assert len(sender.copies(f"{request_id}:1")) > 3
    again = sender.reopened()
    assert again.of(MessageSentEvent) == []
    assert again.sent_since(0) == [f"{request_id}:1"]


def test_timers_kept_before_there_were_deadlines_begin_once() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    key = (OutgoingRecord, (request_id, 0))
    sender.rows[key] = replace(sender.rows[key], deadline_ns=0)
    _, made = live_on(sender, 7)
    assert len([item for item in made if item.segment_id == f"{request_id}:1"]) == 2


def test_a_clock_that_was_set_back_makes_no_acknowledgement_be_waited_for_longer() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    sender.now -= DAY
    again = sender.reopened()
    again.advance(5 * SECOND)
    assert again.sent_since(0) == [f"{request_id}:1"]


def test_overdue_requests_go_one_after_the_other_the_longest_overdue_first() -> None:
    sender = alice()
    requests = [sender.send(b"%d" % number) for number in range(5)]
    sender.published()
    sender.now += DAY
    again = sender.reopened()
    for number, request_id in enumerate(requests):
        again.advance(0)
        assert again.sent_since(0) == [f"{name}:1" for name in requests[: number + 1]]
        assert again.request(request_id).segments[0].transmissions == 2
        again.advance(SECOND)


def test_sent_is_not_raised_again() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 100)
    sender.published()
    assert len(sender.of(MessageSentEvent)) == 1
    again = sender.reopened()
    assert again.request(request_id).sent
    again.advance(6 * SECOND)
    again.published()
    assert again.of(MessageSentEvent) == []


def test_evidence_is_kept_by_participant() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 150)
    sender.published()
    acknowledge(sender, request_id, 0, 1, by=BOB)
    acknowledge(sender, request_id, 2, by=CAROL)
    again = sender.reopened()
    assert again.request(request_id).acknowledged == ((BOB, 2), (CAROL, 1))
    acknowledge(again, request_id, 2, by=BOB)
    (event,) = again.of(MessageDeliveredEvent)
    assert event.recipients == (BOB,)


def test_the_leader_stays_the_leader() -> None:
    """Snapshot and restore at any step change nothing observable."""
    sender = alice()
    request_id = sender.send(b"x" * 256)
    sender.published()
    acknowledge(sender, request_id, 0, by=BOB)
    acknowledge(sender, request_id, 2, 3, by=CAROL)
    acknowledge(sender, request_id, 1, by=BOB)
    again = sender.reopened()
    for participant in (sender, again):
        participant.transmissions.clear()
        participant.advance(5 * SECOND)
    assert again.sent_since(0) == sender.sent_since(0)


def test_what_an_acknowledgement_proved_sent_is_not_sent_again() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 128)
    sender.failed(f"{request_id}:1")
    sender.published(f"{request_id}:2")
    acknowledge(sender, request_id, 0)
    again = sender.reopened()
    assert again.sent_since(0) == []
    again.advance(5 * SECOND)
    assert again.sent_since(0) == [f"{request_id}:2"]


def test_final_requests_can_still_be_asked() -> None:
    sender = alice(sds=replace(NO_FILTER, max_finished_requests=2))
    ids = [sender.send(b"x") for _ in range(3)]
    sender.published()
    for request_id in ids:
        acknowledge(sender, request_id, 0)
    again = sender.reopened()
    for request_id in ids[1:]:
        status = again.request(request_id)
        assert status.state is RequestState.DELIVERED
        assert status.recipients == (BOB,)
        assert status.is_final
    assert again.status().open_requests == 0
    assert again.status().open_bytes == 0
    failed = again.send(b"y")
    again.failed(retryable=False)
    assert again.request(failed).state is RequestState.SEND_ERROR
    assert list(again.machine.outgoing.book.requests) == [ids[2], failed]


def test_what_is_owed_of_requests_that_are_not_final_counts_again() -> None:
    sender = alice()
    sender.send(b"x" * 100)
    sender.send(b"y" * 50)
    again = sender.reopened()
    assert (again.status().open_requests, again.status().open_bytes) == (2, 150)


def test_an_ephemeral_request_goes_on() -> None:
    sender = alice()
    request_id = sender.send(b"x" * 100, ephemeral=True)
    sender.published(f"{request_id}:1")
    again = sender.reopened()
    assert again.sent_since(0) == [f"{request_id}:2"]
    assert again.transmissions[0].ephemeral
    again.published()
    assert again.request(request_id).state is RequestState.SENT
    again.advance(20 * SECOND)
    assert len(again.sent_since(0)) == 1


def test_the_echo_of_an_ephemeral_message_is_known_after_a_restart() -> None:
    """A message with our sender_id and a known id is an echo, whenever it was sent first."""
    sender = alice()
    sender.send(b"x", ephemeral=True)
    again = sender.reopened()
    assert len(again.sent_since(0)) == 1
    again.receive(again.transmissions[0].data)
    assert again.of(SenderIdConflictEvent) == []
    assert again.received == []


def test_equal_contents_that_were_sent_twice_survive() -> None:
    """With message_id="content" two requests share an id, and one may be final before the other."""
    sender = alice(sds=replace(NO_FILTER, message_id="content"))
    first = sender.send(b"x")
    second = sender.send(b"x")
    sender.published(f"{second}:1")
    acknowledge(sender, second, 0)
    again = sender.reopened()
    assert again.request(second).state is RequestState.DELIVERED
    assert again.request(first).state in (RequestState.OPEN, RequestState.DELIVERED)
    for _ in range(10):
        again.published()
        again.advance(5 * SECOND)
    assert again.request(first).is_final


def test_one_of_two_equal_contents_may_fail_and_the_other_survives() -> None:
    """Both share the bytes that a restart needs."""
    sender = alice(sds=replace(NO_FILTER, message_id="content", max_in_flight=1))
    first, second = sender.send(b"x"), sender.send(b"x")
    sender.failed(f"{first}:1", retryable=False)
    assert sender.request(first).state is RequestState.SEND_ERROR
    again = sender.reopened()
    again.published()
    acknowledge(again, second, 0)
    assert again.request(second).state is RequestState.DELIVERED
    again.receive(sender.last(f"{second}:1").data)
    assert again.of(SenderIdConflictEvent) == []


def test_evidence_for_a_request_that_was_just_forgotten_leaves_no_row() -> None:
    """Or the channel could never be opened again."""
    sender = alice(sds=replace(NO_FILTER, max_finished_requests=1))
    first, second = sender.send(b"x"), sender.send(b"y")
    named = [sender.request(item).segments[0].message_id for item in (second, first)]
    sender.published()
    acknowledge(sender, first, 0)
    sender.receive(sync_message(*entries(*named), sender_id=CAROL))
    assert sender.request(second).state is RequestState.DELIVERED
    assert {
        row.request_id
        for row in sender.rows_of(AcknowledgementRecord)
        if isinstance(row, AcknowledgementRecord)
    } == {second}
    assert sender.reopened().request(second).state is RequestState.DELIVERED


# --- Clocks and ids ------------------------------------------------------------------------------


def test_times_and_ids_never_go_back() -> None:
    sender = alice()
    sender.send(b"x" * 150)
    sender.published()
    last = sender.transmissions[-1].message
    sender.now = NOW - 3600 * SECOND
    again = sender.reopened()
    again.transmissions.clear()
    again.send(b"x" * 150)
    fresh = again.transmissions[0].message
    assert fresh.lamport_timestamp is not None
    assert last.lamport_timestamp is not None
    assert fresh.lamport_timestamp > last.lamport_timestamp
    old_ids = {item.message.message_id for item in sender.transmissions}
    assert not old_ids & {item.message.message_id for item in again.transmissions}
    assert fresh.causal_history[-1].message_id == last.message_id


def test_request_ids_are_not_used_again_with_the_same_seed() -> None:
    sender = alice()
    first = sender.send(b"x")
    again = sender.reopened()
    same_seed = Participant(
        ALICE, now=again.now, seed=sender.seed, snapshot=sender.snapshot(), **sender.settings
    )
    assert same_seed.send(b"y") != first


def test_events_are_numbered_on() -> None:
    """WIRE: sequence: one numbering for all durable events, growing across restarts."""
    sender = alice()
    sender.send(b"x")
    sender.published()
    last = sender.of(MessageSentEvent)[0].sequence
    again = sender.reopened()
    request_id = again.send(b"y")
    again.published(f"{request_id}:1")
    assert [event.sequence for event in again.of(MessageSentEvent)] == [last + 1]


# --- What we received ----------------------------------------------------------------------------


@pytest.mark.parametrize("started", [True, False], ids=["after the start", "while catching up"])
def test_what_was_delivered_is_not_delivered_again(*, started: bool) -> None:
    """WIRE: duplicates never delivered twice, also after a restart.

    The store is asked for what was missed before the channel is started.
    """
    receiver = bob()
    messages = [*messages_of(PAYLOAD), content_message(b"plain", lamport=NOW_MS + 9)]
    receiver.receive(*messages)
    again = receiver.reopened(started=started)
    again.receive(*messages)
    again.start()
    assert again.received == []
    assert again.counted("duplicates") == 4


def test_what_we_sent_ourselves_is_an_echo_while_catching_up() -> None:
    sender = alice()
    sender.send(b"x" * 100)
    sender.published()
    again = sender.reopened(started=False)
    for transmission in sender.transmissions:
        again.receive(transmission.data, hint=hash_of(transmission.data))
    again.start()
    assert again.of(SenderIdConflictEvent) == []
    assert again.received == []


def test_an_acknowledgement_that_was_missed_counts_before_anything_is_repeated() -> None:
    sender = alice()
    request_id = sender.send(b"x")
    sender.published()
    again = sender.reopened(started=False)
    acknowledge(again, request_id, 0)
    again.start()
    assert again.request(request_id).state is RequestState.DELIVERED
    again.advance(10 * SECOND)
    assert again.sent_since(0) == []


def test_nothing_is_published_before_the_start() -> None:
    sender = alice()
    sender.send(b"x")
    again = sender.reopened(started=False)
    again.receive(*messages_of(PAYLOAD, sender_id=BOB))
    assert again.transmissions == []
    again.start()
    assert len(again.transmissions) == 1


def test_an_incomplete_payload_goes_on() -> None:
    """RELIABLE-CHANNEL-API: partial reassembly survives restarts."""
    receiver = bob()
    messages = messages_of(PAYLOAD)
    for message in messages:
        receiver.receive(message)
        receiver = receiver.reopened()
    assert receiver.received == []
    assert receiver.status().incomplete_payloads == 0
    assert receiver.rows_of(PendingRecord) == []
    assert receiver.status().known_messages == 3


def test_each_payload_is_delivered_once_over_all_openings() -> None:
    opening = bob()
    delivered = []
    for message in messages_of(PAYLOAD) + messages_of(b"y" * 100, wrap_time_ns=NOW + 1):
        opening.receive(message)
        delivered += opening.received
        opening = opening.reopened()
        delivered += opening.received
        opening.events.clear()
    assert delivered == [PAYLOAD, b"y" * 100]


@pytest.mark.parametrize("parity_first", [False, True])
@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
def test_received_parity_helps_after_the_restart_too(code: str, *, parity_first: bool) -> None:
    """RELIABLE-CHANNEL-API: parity segments are kept until their message is whole; rebuilt ones are acknowledged."""
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=2, code=code)
    held = [messages[1], messages[3]]
    receiver.receive(*(held[::-1] if parity_first else held))
    assert len(receiver.rows_of(ParityRecord)) == 1
    again = receiver.reopened()
    again.receive(messages[4])
    assert again.received == [PAYLOAD]
    assert again.rows_of(ParityRecord) == again.rows_of(PendingRecord) == []
    again.advance(3 * SECOND)
    (sync,) = again.syncs
    named = {item.message_id for item in sync.message.causal_history}
    assert named == {message.message_id for message in messages[:3]}


def test_parity_of_a_payload_that_is_delivered_at_once_is_never_written() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=2)
    effects = receiver.receive(messages[3], messages[0])
    assert any(kind is ParityRecord for kind, _ in effects.changes)
    effects = receiver.receive(messages[4])
    assert [key for key in effects.changes.items() if key[0] == (ParityRecord, (3,))] == []
    assert receiver.rows_of(ParityRecord) == []


@pytest.mark.parametrize("data_first", [False, True])
def test_parity_of_ephemeral_payloads_is_never_kept(*, data_first: bool) -> None:
    """Ephemeral payloads are outside everything durable; parity alone may be of one."""
    receiver = bob()
    data, *_, parity = [ephemeral_message(item) for item in cut(PAYLOAD, parity_count=1)]
    effects = receiver.receive(*([data, parity] if data_first else [parity, data]))
    assert {kind for kind, _ in effects.changes} <= {ChannelRecord}
    again = receiver.reopened()
    assert again.status().incomplete_payloads == 0
    again.receive(*messages_of(PAYLOAD, parity_count=1)[1:3])
    assert again.received == []


def test_parity_before_what_shows_that_its_payload_is_durable_is_kept_from_then_on() -> None:
    """Data that came as ephemeral before gives way to the first content segment of the same set."""
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(messages[3], ephemeral_message(cut(PAYLOAD, parity_count=2)[1]))
    assert receiver.rows_of(ParityRecord) == []
    receiver.receive(messages[0])
    assert len(receiver.rows_of(ParityRecord)) == 1
    again = receiver.reopened()
    again.receive(messages[4])
    assert again.received == [PAYLOAD]


def test_parity_rows_go_when_a_set_times_out() -> None:
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=60_000))
    receiver.receive(*messages_of(PAYLOAD, parity_count=2)[2:4])
    again = receiver.reopened()
    assert len(again.rows_of(ParityRecord)) == 1
    again.advance(60 * SECOND)
    assert len(again.lost) == 1
    assert again.rows_of(ParityRecord) == again.rows_of(PendingRecord) == []


def test_parity_whose_data_is_not_kept_is_forgotten() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(messages[0], messages[3])
    del receiver.rows[PendingRecord, (messages[0].message_id,)]
    again = receiver.reopened()
    assert again.rows_of(ParityRecord) == []
    assert again.status().incomplete_payloads == 0


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("parity_count", [1, 2])
def test_a_set_without_data_has_no_parity_rows_until_data_comes_again(
    parity_count: int, *, restart: bool
) -> None:
    """The id of its only data segment was claimed; what proves it belongs to the set, and may make it whole."""
    receiver = settled()
    segments = cut(PAYLOAD, parity_count=2, wrap_time_ns=0)
    proof = content_message(segments[0], lamport=NOW_MS + 20_000)
    claim = content_message(
        replace(segments[1], payload=b"!" * 64), message_id=proof.message_id, lamport=NOW_MS
    )
    receiver.receive(claim, *map(ephemeral_message, segments[3 : 3 + parity_count]))
    assert receiver.received == []
    assert len(receiver.rows_of(ParityRecord)) == parity_count
    if restart:
        receiver = receiver.reopened()
    receiver.receive(proof)
    if parity_count == 1:
        assert len(receiver.rows_of(ParityRecord)) == 1
        receiver = receiver.reopened()
        receiver.receive(content_message(segments[2], lamport=NOW_MS + 20_002))
    assert receiver.received == [PAYLOAD]
    assert receiver.rows_of(ParityRecord) == receiver.rows_of(PendingRecord) == []


def test_a_set_whose_only_data_went_leaves_no_rows() -> None:
    receiver = settled()
    proof = content_message(cut(b"proof")[0], lamport=NOW_MS + 20_000)
    data, *_, parity = cut(PAYLOAD, parity_count=1, wrap_time_ns=0)
    receiver.receive(
        content_message(data, message_id=proof.message_id, lamport=NOW_MS + 20_000),
        ephemeral_message(parity),
    )
    assert len(receiver.rows_of(ParityRecord)) == 1
    receiver.receive(proof)
    assert receiver.status().incomplete_payloads == 1
    assert receiver.rows_of(ParityRecord) == receiver.rows_of(PendingRecord) == []


def test_all_candidates_come_back_in_their_order() -> None:
    """Data and parity, of which any may be the true one: as many as before, first come first."""
    receiver = bob()
    segments = cut(PAYLOAD, parity_count=2)
    for mark in (b"3", b"1", b"2"):
        # All at one moment and under one Lamport time: nothing but the order itself says which was first.
        receiver.receive(
            content_message(replace(segments[0], payload=mark * 64)),
            ephemeral_message(replace(segments[4], payload=mark * 64)),
        )
    # Nor does the store, which may give its rows in any order.
    receiver.rows = dict(reversed(receiver.rows.items()))
    again = receiver.reopened()
    (before,), (after,) = (
        list(item.machine.reassembler.sets.values()) for item in (receiver, again)
    )
    assert [item.chunk[:1] for item in after.candidates(0)] == [b"3", b"1", b"2"]
    assert after.candidates(0) == before.candidates(0)
    assert after.parity == before.parity
    assert [item[:1] for item in after.parity_rivals[1]] == [b"1", b"2"]
    again.receive(ephemeral_message(replace(segments[4], payload=b"2" * 64)))
    assert again.dropped() == {"duplicate_parity": 1}
    again.receive(content_message(segments[0]), *map(ephemeral_message, segments[3:]))
    assert again.received == [PAYLOAD]
    assert again.rows_of(ParityRecord) == again.rows_of(PendingRecord) == []


@pytest.mark.parametrize("restart", [False, True])
def test_kept_parity_counts_in_the_bytes_of_its_sender(*, restart: bool) -> None:
    bound = 1 << 16
    receiver = bob(segmentation=SegmentationConfig(max_incomplete_bytes_per_sender=bound))
    first, *_, parity, more = cut(bytes(range(250)) * 400, chunk=21_760, parity_count=2)
    history = entries(*(f"{number}".ljust(100) for number in range(20)))
    receiver.receive(content_message(first), ephemeral_message(parity, history=history))
    if restart:
        receiver = receiver.reopened()
    assert receiver.dropped() == {}
    assert len(receiver.rows_of(ParityRecord)) == 1
    # Only the history of the first one keeps this one from fitting in.
    receiver.receive(ephemeral_message(more))
    assert receiver.dropped() == {"incomplete_bytes_of_sender_full": 1}


def test_an_incomplete_payload_does_not_begin_its_time_anew() -> None:
    receiver = bob(segmentation=SegmentationConfig(incomplete_timeout_ms=600_000))
    (first, second, _) = messages_of(PAYLOAD)
    receiver.receive(first)
    receiver.advance(50 * SECOND)
    receiver.receive(second)
    receiver.advance(100 * SECOND)
    again = receiver.reopened()
    again.advance(500 * SECOND - 1)
    assert again.lost == []
    again.advance(1)
    assert [reason for _, reason in again.lost] == ["incomplete_timeout"]


def test_parity_is_progress_whose_time_is_kept_too() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(messages[0])
    receiver.advance(600 * SECOND)
    receiver.receive(messages[3])
    again = receiver.reopened()
    again.advance(3_600 * SECOND - 1)
    assert again.lost == []
    again.advance(1)
    assert len(again.lost) == 1


@pytest.mark.parametrize("seen", [False, True])
def test_who_restarts_every_half_hour_keeps_nothing_for_ever(*, seen: bool) -> None:
    """WIRE: time without progress at least 1 h and 3 epochs; what else is received changes nothing about it."""
    receiver = settled()
    (first, *_) = messages_of(PAYLOAD, lamport=NOW_MS + 20_000)
    receiver.receive(first)
    for restart in range(1, 3):
        if seen:
            receiver.receive(single(f"other {restart}"))
        receiver.advance(1_800 * SECOND)
        assert receiver.status().incomplete_payloads == (restart < 2)
        receiver = receiver.reopened()
    assert receiver.status().incomplete_payloads == 0
    assert receiver.rows_of(PendingRecord) == []


@pytest.mark.parametrize("down", [3_600, 86_400])
def test_who_was_down_for_long_gives_others_time_to_bring_the_rest(down: int) -> None:
    receiver = settled()
    first, *rest = messages_of(PAYLOAD, lamport=NOW_MS + 20_000)
    receiver.receive(first)
    receiver.now += down * SECOND
    again = receiver.reopened()
    again.advance(TIMEOUT - 1)
    assert again.status().incomplete_payloads == 1
    again.receive(*rest)
    assert again.received == [PAYLOAD]


def test_a_clock_that_went_back_makes_nobody_wait_longer() -> None:
    receiver = bob()
    receiver.now += DAY
    receiver.receive(messages_of(PAYLOAD)[0])
    receiver.now -= DAY
    again = receiver.reopened()
    again.advance(3_600 * SECOND)
    assert again.status().incomplete_payloads == 0


def test_a_bad_payload_is_found_out_after_the_restart_too() -> None:
    receiver = bob()
    segments = cut(PAYLOAD)
    receiver.receive(
        content_message(replace(segments[0], payload=b"!" * 64)), content_message(segments[1])
    )
    again = receiver.reopened()
    again.receive(content_message(segments[2]))
    assert again.received == []
    assert again.counted("assemblies_failed") == 1
    again = again.reopened()
    again.receive(content_message(segments[0]))
    assert again.received == [PAYLOAD]


def make_whole(history: list[Any]) -> dict[str, list[Any]]:
    """Return payloads of every form that a parked one can have."""
    named = [entry(item) for item in history]
    at = NOW_MS + 30_000
    return {
        "segmented": messages_of(PAYLOAD, lamport=at, history=named),
        "single": [content_message(cut(b"x" * 10)[0], lamport=at, history=named)],
        "unsegmented": [content_message(b"plain", lamport=at, history=named)],
        "other protobuf": [content_message(b"\x0a\x03abc", lamport=at, history=named)],
        "rebuilt": [
            message
            for place, message in enumerate(
                messages_of(PAYLOAD, lamport=at, history=named, parity_count=1)
            )
            if place != 1
        ],
        "rebuilt first": messages_of(PAYLOAD, lamport=at, history=named, parity_count=1)[1:],
        "without wrap time": messages_of(PAYLOAD, lamport=at, history=named, wrap_time_ns=0),
        "rebuilt without wrap time": [
            message
            for place, message in enumerate(
                messages_of(
                    PAYLOAD,
                    lamport=at,
                    history=named,
                    wrap_time_ns=0,
                    salt_ns=NOW,
                    parity_count=1,
                )
            )
            if place != 2
        ],
    }


@pytest.mark.parametrize("form", list(make_whole([])))
def test_a_parked_payload_goes_on(form: str) -> None:
    receiver = settled()
    receiver.receive(*make_whole(["before"])[form])
    assert receiver.status().parked_messages == 1
    again = receiver.reopened()
    assert again.status().parked_messages == 1
    assert again.received == []
    again.receive(content_message(b"cause", message_id="before", lamport=NOW_MS + 20_000))
    assert len(again.received) == 2
    assert again.received[0] == b"cause"
    assert again.rows_of(PendingRecord) == again.rows_of(ParityRecord) == []
    assert again.of(MessageReceivedEvent)[1].late is False


@pytest.mark.parametrize("form", list(make_whole([])))
def test_a_parked_payload_waits_on(form: str) -> None:
    receiver = settled()
    receiver.receive(*make_whole(["before"])[form])
    receiver.advance(200 * SECOND)
    again = receiver.reopened()
    again.advance(100 * SECOND - 1)
    assert again.received == []
    again.advance(1)
    assert len(again.received) == 1
    assert again.lost == [("before", "dependency_timeout")]


@pytest.mark.parametrize("form", list(make_whole([])))
def test_who_was_down_for_long_waits_the_whole_time_once_more_for_what_is_parked(
    form: str,
) -> None:
    receiver = settled()
    receiver.receive(*make_whole(["before"])[form])
    receiver.now += DAY
    receiver = receiver.reopened()
    receiver.advance(TIMEOUT - 1)
    assert receiver.received == []
    receiver.now += DAY
    receiver = receiver.reopened()
    receiver.advance(0)
    assert len(receiver.received) == 1
    assert receiver.lost == [("before", "dependency_timeout")]


def test_what_a_parked_payload_lacks_is_fetched_after_the_restart() -> None:
    receiver = settled()
    cause = content_message(b"cause", message_id="before", lamport=NOW_MS + 20_000)
    hint = hash_of(cause.encode())
    receiver.receive(
        content_message(b"effect", lamport=NOW_MS + 30_000, history=[entry("before", hint=hint)])
    )
    again = receiver.reopened()
    assert [fetch.hashes for fetch in again.fetches] == [(hint,)]
    again.fetched(cause)
    assert again.received == [b"cause", b"effect"]


def test_a_chain_of_parked_payloads_goes_on_in_order() -> None:
    receiver = settled()
    for number in (3, 1, 2):
        receiver.receive(
            content_message(
                b"m%d" % number,
                message_id=f"m{number}",
                lamport=NOW_MS + 20_000 + number,
                history=entries(f"m{number - 1}"),
            )
        )
    again = receiver.reopened()
    again.receive(content_message(b"m0", message_id="m0", lamport=NOW_MS + 20_000))
    assert again.received == [b"m0", b"m1", b"m2", b"m3"]


@pytest.mark.parametrize("later", [-500, 0, 1, 1_000])
@pytest.mark.parametrize("came", [1, 2, 3])
def test_the_same_payload_parked_twice_without_wrap_time_is_delivered_twice(
    later: int, came: int
) -> None:
    """A payload sent again on purpose is delivered again, whenever a restart comes between."""
    receiver = settled()
    first = messages_of(PAYLOAD, wrap_time_ns=0, lamport=NOW_MS + 30_000, history=[entry("before")])
    second = [
        replace(
            message,
            message_id=f"again {place}",
            lamport_timestamp=NOW_MS + 30_000 + later + place,
            causal_history=entries("before"),
        )
        for place, message in enumerate(first)
    ]
    receiver.receive(*first, *second[:came])
    assert receiver.status().parked_messages == 1 + (came == 3)
    again = receiver.reopened()
    assert again.status().parked_messages == 1 + (came == 3)
    assert again.status().incomplete_payloads == (came < 3)
    again = again.reopened()
    again.receive(*second[came:])
    again.receive(content_message(b"cause", message_id="before", lamport=NOW_MS + 20_000))
    assert [len(item) for item in again.received] == [5, 150, 150]
    assert again.dropped() == {}
    assert again.rows_of(PendingRecord) == again.rows_of(ParityRecord) == []


def test_a_payload_that_parity_made_whole_does_not_mix_with_the_same_one_sent_again() -> None:
    """Without wrap time the ids of rebuilt segments are unknown: its parity is kept until it is delivered."""
    receiver = settled()
    *first, _, parity = messages_of(
        PAYLOAD,
        wrap_time_ns=0,
        salt_ns=NOW,
        lamport=NOW_MS + 30_000,
        history=[entry("before")],
        parity_count=1,
    )
    receiver.receive(*first, parity)
    receiver.receive(*(replace(item, message_id=f"again {item.message_id}") for item in first))
    for _ in range(2):
        receiver = receiver.reopened()
        assert receiver.status().parked_messages == 1
        assert receiver.status().incomplete_payloads == 1
        assert len(receiver.rows_of(ParityRecord)) == 1
    receiver.receive(content_message(b"cause", message_id="before", lamport=NOW_MS + 20_000))
    assert [len(item) for item in receiver.received] == [5, 150]
    assert receiver.rows_of(ParityRecord) == []
    assert len(receiver.rows_of(PendingRecord)) == 2


def test_a_parked_payload_that_lost_an_id_does_not_mix_with_the_same_one_sent_again() -> None:
    """Somebody proved the id of one of its segments: its row went, and a restart cannot have it whole again."""
    receiver = settled()
    proof = content_message(cut(b"proof")[0], lamport=NOW_MS + 40_000)
    first = messages_of(PAYLOAD, wrap_time_ns=0, lamport=NOW_MS + 30_000, history=[entry("before")])
    again = [
        replace(message, message_id=f"again {place}", causal_history=entries("before"))
        for place, message in enumerate(first)
    ]
    first[1] = replace(first[1], message_id=proof.message_id)
    receiver.receive(*first, *again, proof)
    opened = receiver.reopened()
    assert opened.status().parked_messages == 1
    (lost,) = opened.of(MessageLostEvent)
    assert (lost.message_id, lost.reason) == (first[0].message_id, "incomplete_timeout")
    assert lost.explanation == "1 of 3 segments missing, and it was sent again"
    opened.receive(content_message(b"cause", message_id="before", lamport=NOW_MS + 20_000))
    assert [len(item) for item in opened.received] == [5, 150]
    assert opened.rows_of(PendingRecord) == []


def test_late_segments_of_what_was_rebuilt_deliver_nothing_after_the_restart() -> None:
    receiver = bob(sds=replace(NO_FILTER, max_known_ids=64))
    messages = messages_of(PAYLOAD)
    receiver.receive(*messages)
    for number in range(80):
        receiver.receive(
            content_message(b"x", message_id=f"filler {number}", lamport=NOW_MS + 100 + number)
        )
    again = receiver.reopened()
    again.receive(*messages)
    assert again.received == []
    assert again.status().incomplete_payloads == 0


def test_what_was_lost_counts_as_met_and_comes_late() -> None:
    receiver = settled()
    receiver.receive(content_message(b"effect", lamport=NOW_MS + 30_000, history=entries("before")))
    receiver.advance(TIMEOUT)
    assert len(receiver.of(MessageLostEvent)) == 1
    again = receiver.reopened()
    again.receive(
        content_message(b"more", lamport=NOW_MS + 40_000, history=entries("before")),
        content_message(b"cause", message_id="before", lamport=NOW_MS + 20_000),
    )
    assert [(event.message, event.late) for event in again.of(MessageReceivedEvent)] == [
        (b"more", False),
        (b"cause", True),
    ]


def test_what_is_owed_is_paid_after_the_restart() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD)
    receiver.receive(*messages)
    again = receiver.reopened()
    assert again.status().owed_acknowledgements == 3
    again.advance(3 * SECOND)
    (sync,) = again.syncs
    assert [item.message_id for item in sync.message.causal_history] == [
        message.message_id for message in messages
    ]


def test_a_debt_for_what_was_forgotten_is_dropped() -> None:
    receiver = bob(sds=replace(NO_FILTER, max_known_ids=64))
    for number in range(70):
        receiver.receive(content_message(b"x", message_id=f"m{number}", lamport=NOW_MS + number))
    receiver.rows[DebtRecord, ("gone",)] = DebtRecord(message_id="gone")
    again = receiver.reopened()
    known = again.machine.state.log.known
    assert all(message_id in known for message_id in again.machine.state.debt)
    again.advance(10 * SECOND)
    assert again.status().owed_acknowledgements == 0


def test_the_filter_is_made_anew() -> None:
    receiver = Participant(BOB)
    receiver.receive(*messages_of(PAYLOAD))
    again = receiver.reopened()
    assert again.machine.state.log.bloom_bytes() == receiver.machine.state.log.bloom_bytes()


def test_a_conflict_is_raised_once_in_the_life_of_a_channel() -> None:
    receiver = bob()
    receiver.receive(content_message(b"not me", sender_id=BOB))
    assert len(receiver.of(SenderIdConflictEvent)) == 1
    again = receiver.reopened()
    again.receive(content_message(b"not me either", sender_id=BOB))
    assert again.of(SenderIdConflictEvent) == []


def test_the_floor_stays() -> None:
    receiver = bob()
    floor = receiver.machine.causal.floor
    receiver.advance(3600 * SECOND)
    assert receiver.reopened().machine.causal.floor == floor


def test_a_strangers_message_under_the_id_of_our_failed_ephemeral_survives() -> None:
    """Message ids of senders without wrap time are not checked: they may be anything."""
    sender = alice()
    sender.send(b"x", ephemeral=True)
    burnt = sender.transmissions[0].message.message_id
    sender.receive(
        content_message(
            cut(PAYLOAD, wrap_time_ns=0)[0], sender_id=BOB, message_id=burnt, lamport=NOW_MS
        )
    )
    sender.failed(retryable=False)
    again = sender.reopened()
    assert again.status().known_messages == 1
    assert again.status().incomplete_payloads == 1


# --- A whole conversation ------------------------------------------------------------------------


@pytest.mark.parametrize("segmentation", [SMALL, PARITY], ids=["data", "parity"])
def test_a_conversation_with_a_restart_after_every_step_ends_as_without(
    segmentation: SegmentationConfig,
) -> None:
    """Snapshot and restore at any step change nothing observable."""
    payloads = [b"x" * 150, b"y", b"z" * 300, b"w" * 64]
    outcomes = []
    for restarting in (False, True):
        sender, receiver = alice(segmentation=segmentation), bob()
        requests = []
        network: list[Transmission] = []
        delivered: list[bytes] = []
        finished = 0
        for step in range(40):
            if step < len(payloads):
                requests.append(sender.send(payloads[step]))
            sender.published()
            network += sender.transmissions
            sender.transmissions.clear()
            arrived = [item for place, item in enumerate(network) if (place + step) % 4]
            network.clear()
            deliver([receiver], arrived)
            receiver.advance(3 * SECOND)
            receiver.published()
            deliver([sender], receiver.transmissions)
            receiver.transmissions.clear()
            sender.advance(6 * SECOND)
            sender.published()
            network += sender.transmissions
            receiver.advance(3 * SECOND)
            delivered += receiver.received
            finished += len(sender.of(MessageDeliveredEvent))
            assert sender.of(MessageSendErrorEvent) == []
            sender.events.clear()
            receiver.events.clear()
            if restarting:
                sender, receiver = sender.reopened(), receiver.reopened()
            sender.transmissions.clear()
        outcomes.append((sorted(delivered), finished))
        assert {sender.request(item).state for item in requests} == {RequestState.DELIVERED}
    assert outcomes == [(sorted(payloads), 4)] * 2


def test_ephemerals_and_syncs_leave_nothing_to_restore() -> None:
    receiver = bob()
    receiver.receive(ephemeral_message(cut(b"now")[0]), sync_message())
    rows = set(receiver.rows)
    again = receiver.reopened()
    assert again.status().known_messages == 0
    assert set(again.rows) <= rows


def test_recipients_go_on_growing_after_a_restart() -> None:
    sender = alice()
    first, second = sender.send(b"x" * 128), sender.send(b"y")
    sender.published()
    acknowledge(sender, first, 0, 1, by=BOB)
    before = sender.request(first)
    opened = sender.reopened()
    after = opened.request(first)
    assert [item.message_id for item in after.segments] == [
        item.message_id for item in before.segments
    ]
    acknowledge(opened, first, 0, 1, by=CAROL)
    assert opened.request(first).recipients == (BOB, CAROL)
    assert opened.reopened().request(first).recipients == (BOB, CAROL)
    assert not opened.request(second).is_final


# --- Full messages -------------------------------------------------------------------------------


def test_full_messages_come_back_in_the_order_in_which_they_will_be_forgotten() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_full_messages=3))
    for number, text in enumerate(("c", "a", "b")):
        receiver.receive(single(text, lamport=NOW_MS + 20_000 + number))
    opened = receiver.reopened()
    assert list(opened.machine.state.archive.messages) == ["c", "a", "b"]
    opened.receive(single("d", lamport=NOW_MS + 20_010))
    assert list(opened.machine.state.archive.messages) == ["a", "b", "d"]
    assert {row.message_id for row in opened.rows_of(BodyRecord)} == {"a", "b", "d"}


def test_a_lower_bound_holds_for_what_was_kept_before() -> None:
    receiver = settled()
    receiver.receive(*(single(text) for text in "abc"))
    lower = Participant(
        BOB,
        now=receiver.now,
        snapshot=receiver.snapshot(),
        sds=replace(NO_FILTER, max_full_messages=1),
    )
    assert lower.status().full_messages == 1
    assert len(lower.rows_of(BodyRecord)) == 1


def test_what_a_sync_named_is_looked_for_after_a_restart_too() -> None:
    """The repair buffer outlives a restart: nobody may name it again for minutes."""
    receiver = settled()
    hint = hash_of(b"lost")
    named = [entry("lost", hint=hint, sender_id=ALICE), entry("other", sender_id=CAROL)]
    receiver.receive(sync_message(*named, lamport=NOW_MS + 20_000))
    receiver.fetched()
    receiver.advance(20 * SECOND)
    again = receiver.reopened()
    assert again.status().missing_messages == 2
    again.advance(MS)
    assert [fetch.hashes for fetch in again.fetches] == [(hint,)]
    again.fetched()
    again.advance(120 * SECOND)
    again.published()
    asked = {item.message_id for sync in again.syncs for item in sync.message.repair_request}
    assert asked == {"lost", "other"}
    again.receive(content_message(b"lost", message_id="lost", lamport=NOW_MS + 15_000))
    assert [row.message_id for row in missing_rows(again)] == ["other"]
    again.advance(TIMEOUT - 140 * SECOND)
    assert again.lost == [("other", "dependency_timeout")]
    assert missing_rows(again) == []


def test_what_came_or_was_given_up_is_not_looked_for_after_a_restart() -> None:
    receiver = settled()
    receiver.receive(sync_message(entry("lost", sender_id=ALICE), lamport=NOW_MS + 20_000))
    (row,) = missing_rows(receiver)
    receiver.receive(content_message(b"lost", message_id="lost", lamport=NOW_MS + 15_000))
    receiver.rows[MissingRecord, ("lost",)] = row
    again = receiver.reopened()
    again.advance(MS)
    assert again.status().missing_messages == 0
    assert missing_rows(again) == []


def test_what_nobody_waits_for_stays_so_after_a_restart() -> None:
    """WIRE: on a new channel an unmet dependency counts as before our time after a while."""
    receiver = bob()
    receiver.receive(single("first", "before our time", lamport=NOW_MS + 1))
    receiver.advance(GRACE)
    assert receiver.received == [b"first"]
    again = receiver.reopened()
    again.receive(single("second", "before our time", "first", lamport=NOW_MS + 20_000))
    assert again.received == [b"second"]
    again.advance(TIMEOUT)
    assert again.lost == []


def test_what_does_not_fit_any_more_is_let_go() -> None:
    receiver = settled()
    receiver.receive(sync_message(*entries("a", "b", "c"), lamport=NOW_MS + 20_000))
    again = bob(
        now=receiver.now,
        snapshot=receiver.snapshot(),
        sds=replace(NO_FILTER, max_missing_ids=2, max_missing_ids_per_sender=2),
    )
    again.advance(MS)
    assert again.status().missing_messages == 2
    assert again.dropped() == {"missing_ids_full": 1}
    assert len(missing_rows(again)) == 2


def missing_rows(receiver: Participant) -> list[MissingRecord]:
    return [row for row in receiver.rows_of(MissingRecord) if isinstance(row, MissingRecord)]


def test_with_repair_switched_off_nothing_is_kept_of_before() -> None:
    receiver = settled()
    receiver.receive(*(single(text) for text in "abc"))
    off = Participant(
        BOB,
        now=receiver.now,
        snapshot=receiver.snapshot(),
        sds=replace(NO_FILTER, enable_repair=False),
    )
    assert off.status().full_messages == 0
    assert off.rows_of(BodyRecord) == []


def test_lower_bounds_leave_no_rows_of_lost_ids_and_rebuilt_payloads() -> None:
    receiver = settled(segmentation=SMALL)
    for number in range(6):
        receiver.receive(*messages_of(PAYLOAD, wrap_time_ns=NOW + number + 1))
    receiver.receive(*(single(f"after {name}", name) for name in "abcdef"))
    receiver.advance(TIMEOUT)
    assert (len(receiver.rows_of(LostRecord)), len(receiver.rows_of(CompletedRecord))) == (6, 6)
    lower = Participant(
        BOB,
        now=receiver.now,
        snapshot=receiver.snapshot(),
        sds=replace(NO_FILTER, max_lost_ids=2),
        segmentation=replace(SMALL, max_completed_payloads=3),
    )
    assert (len(lower.rows_of(LostRecord)), len(lower.rows_of(CompletedRecord))) == (2, 3)


def test_bytes_that_belong_to_nothing_known_are_deleted() -> None:
    receiver = settled()
    receiver.receive(single("m1"))
    receiver.rows.pop((LogRecord, ("m1",)))
    opened = receiver.reopened()
    assert "m1" not in {row.message_id for row in opened.rows_of(BodyRecord)}
    assert "m1" not in opened.machine.state.archive


def test_histories_count_towards_the_bytes_held_after_a_restart_too() -> None:
    history = [entry(f"m{number}", sender_id=ALICE) for number in range(50)]
    first, *_ = messages_of(PAYLOAD, history=history, lamport=NOW_MS + 20_000)
    receiver = settled()
    receiver.receive(first, replace(single("whole"), causal_history=tuple(history)))
    before = (
        receiver.machine.reassembler.octets,
        receiver.machine.causal.parked_octets,
    )
    opened = receiver.reopened()
    after = opened.machine.reassembler.octets, opened.machine.causal.parked_octets
    assert min(before) > 50 * 40
    assert after == before
