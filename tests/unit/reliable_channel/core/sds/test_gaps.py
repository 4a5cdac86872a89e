"""What is looked for, waited for, found and lost; what a new channel does not wait for."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.payload import IncomingPayload, SetKey
from reliable_channel.core.sds.causal import CausalOrder, IdRing
from reliable_channel.core.sds.gaps import Gaps
from reliable_channel.core.sds.log import KnownMessage
from reliable_channel.core.state import ChannelState
from reliable_channel.events import MessageLostEvent, MessageReceivedEvent
from reliable_channel.identifiers import is_identifier
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    CHANNEL,
    DAY,
    GRACE,
    HELLO,
    NO_FILTER,
    NOW,
    NOW_MS,
    TIMEOUT,
    TOPIC,
    Participant,
    bob,
    deliver,
    entries,
    entry,
    hash_of,
    messages_of,
    settled,
    single,
    sync_message,
)

# --- By themselves -------------------------------------------------------------------------------


def make_gaps(delivered: list[IncomingPayload] | None = None) -> Gaps:
    """Return the gaps of a channel whose first moments are over, without a machine around them."""
    state = ChannelState(
        channel_id=CHANNEL,
        sender_id=BOB,
        content_topic=TOPIC,
        sds=NO_FILTER,
        segmentation=SegmentationConfig(),
        random=Random(1),
        record=None,
        now=NOW,
    )
    state.settled_at_ns = NOW
    deliver_to = [] if delivered is None else delivered
    causal = CausalOrder(state.sds, state.log, state.outbox, IdRing(8), deliver_to.append)
    return Gaps(state, causal)


def test_an_id_is_looked_for_from_being_named_until_it_is_found() -> None:
    gaps = make_gaps()
    gaps.look_for(sync_message(*entries("a", "b")))
    assert list(gaps.missing.messages) == ["a", "b"]
    gaps.stop_looking("a")
    gaps.stop_looking("never named")
    assert list(gaps.missing.messages) == ["b"]
    assert gaps.state.outbox.take().events == []


def test_what_is_given_up_is_no_longer_looked_for_and_nothing_is_said() -> None:
    gaps = make_gaps()
    gaps.look_for(sync_message(*entries("a")))
    gaps.stop_looking("a")
    assert len(gaps.missing) == 0
    assert gaps.state.outbox.take().events == []
    gaps.look_for(sync_message(*entries("a")))
    assert len(gaps.missing) == 1


def test_what_is_lost_is_said_and_sets_free_what_waited_for_it() -> None:
    delivered: list[IncomingPayload] = []
    gaps = make_gaps(delivered)
    gaps.look_for(sync_message(*entries("a")))
    payload = IncomingPayload(serial=1, key=SetKey(ALICE, b"", 0, 1, 0, 1, 0))
    payload.ids[0], payload.lamports[0] = "after", NOW_MS
    payload.dependencies["a"] = entry("a")
    gaps.state.log.add(
        KnownMessage("after", NOW_MS, ALICE, index=0, segment_count=1, hint=None, logged=False)
    )
    assert not gaps.causal.complete(payload)
    gaps.lose("a", ALICE, "dependency_timeout")
    assert delivered == [payload]
    assert len(gaps.missing) == 0
    (event,) = gaps.state.outbox.take().events
    assert isinstance(event, MessageLostEvent)
    assert (event.message_id, event.sender_id, event.time_ns) == ("a", ALICE, NOW)
    gaps.look_for(sync_message(*entries("a")))
    assert len(gaps.missing) == 0


def test_the_store_is_asked_when_due_and_again_after_a_failure() -> None:
    gaps = make_gaps()
    gaps.look_for(sync_message(entry("a", hint=b"h" * 32)))
    gaps.ask_when_due()
    gaps.ask_when_due()
    assert [fetch.hashes for fetch in gaps.state.outbox.take().fetches] == [(b"h" * 32,)]
    gaps.failed()
    gaps.state.now += 3 * SECOND
    gaps.ask_when_due()
    gaps.answered([])
    assert [fetch.hashes for fetch in gaps.state.outbox.take().fetches] == [(b"h" * 32,)]


# --- Looking for what is named -------------------------------------------------------------------


def test_what_a_message_names_and_we_lack_is_fetched_and_comes_first() -> None:
    receiver = settled()
    before = single("before")
    hint = hash_of(before.encode())
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=hint))
    assert [fetch.hashes for fetch in receiver.fetches] == [(hint,)]
    assert receiver.counted("store_queries") == 1
    assert receiver.status().parked_messages == 1
    receiver.fetched(before)
    assert receiver.received == [b"before", b"after"]
    assert receiver.status().missing_messages == 0
    assert [event.late for event in receiver.of(MessageReceivedEvent)] == [False, False]
    receiver.advance(60 * SECOND)
    assert len(receiver.fetches) == 1


def test_the_store_is_asked_again_at_3_and_10_seconds() -> None:
    receiver = settled()
    start = receiver.now
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    asked = [0]
    receiver.fetched()
    for _ in range(600):
        count = len(receiver.fetches)
        receiver.advance(100 * MS)
        if len(receiver.fetches) > count:
            asked.append((receiver.now - start) // MS)
            receiver.fetched()
    assert asked == [0, 3_000, 10_000]


def test_a_store_that_cannot_be_asked_is_asked_again() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    for wait in (3, 6, 12, 24, 48):
        receiver.carry_out(receiver.machine.fetch_failed(receiver.now))
        receiver.advance(wait * SECOND)
    assert len(receiver.fetches) == 6


def test_a_useless_answer_is_not_asked_for_again() -> None:
    receiver = settled()
    other = single("other")
    hint = hash_of(other.encode())
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=hint))
    receiver.fetched(other)
    assert receiver.received == [b"other"]
    receiver.advance(30 * SECOND)
    assert len(receiver.fetches) == 1


def test_what_the_store_has_and_we_cannot_decrypt_is_useless() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000, hint=b"h" * 32))
    receiver.carry_out(receiver.machine.fetched([(b"h" * 32, None)], receiver.now))
    assert receiver.dropped() == {"decrypt_failed": 1}
    receiver.advance(30 * SECOND)
    assert len(receiver.fetches) == 1


def test_what_a_sync_names_and_we_lack_is_fetched() -> None:
    """WIRE: entries of a received sync that we lack are missing dependencies."""
    receiver = settled()
    last = single("last")
    hint = hash_of(last.encode())
    receiver.receive(sync_message(entry("last", hint=hint), lamport=NOW_MS + 30_000))
    assert [fetch.hashes for fetch in receiver.fetches] == [(hint,)]
    receiver.fetched(last)
    assert receiver.received == [b"last"]


def test_missing_ids_are_bounded_in_all_and_by_participant() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_missing_ids=5, max_missing_ids_per_sender=3))
    for sender_id in (ALICE, CAROL):
        named = entries(*(f"{sender_id} {number}" for number in range(10)))
        receiver.receive(sync_message(*named, sender_id=sender_id, lamport=NOW_MS + 20_000))
    assert receiver.status().missing_messages == 5
    assert receiver.dropped() == {"missing_ids_full": 15}


def test_an_unknown_dependency_of_an_old_message_is_neither_waited_nor_looked_for() -> None:
    """WIRE: dependencies of messages below the floor count as met."""
    receiver = settled()
    receiver.receive(single("old", "older", lamport=NOW_MS - 30_000, hint=b"h" * 32))
    assert receiver.received == [b"old"]
    assert receiver.fetches == []
    assert receiver.status().missing_messages == 0


def test_a_late_joiner_does_not_fetch_the_past_without_end() -> None:
    receiver = bob()
    history = [single(f"m{number}", lamport=NOW_MS - 90_000 + number) for number in range(100)]
    chained = [
        replace(
            message,
            causal_history=(
                entry(history[number - 1].message_id, hint=number.to_bytes(32, "big")),
            ),
        )
        for number, message in enumerate(history)
        if number
    ]
    receiver.receive(
        single("now", "m99", lamport=NOW_MS + 1, hint=b"h" * 32),
    )
    receiver.receive(chained[-1])
    assert receiver.received == [b"m99", b"now"]
    assert sum(len(fetch.hashes) for fetch in receiver.fetches) <= 1
    receiver.advance(DAY // 24)
    assert receiver.lost == []


def test_the_rest_of_a_payload_of_which_we_have_a_part_is_of_our_time() -> None:
    """Also in a channel's first moments: others are asked for it, and it is not let be."""
    receiver = bob()
    messages = messages_of(b"x" * 5 * 64, lamport=NOW_MS + 1, history=entries("before our time"))
    receiver.receive(*messages[:2], *messages[4:])
    asked = {message_id for message_id, _ in receiver.machine.state.repairs.requests.items()}
    assert asked == {messages[3].message_id}
    receiver.receive(messages[3])
    asked = {message_id for message_id, _ in receiver.machine.state.repairs.requests.items()}
    assert asked == {messages[2].message_id}


# --- Waiting and giving up -----------------------------------------------------------------------


def test_a_payload_waits_for_the_dependency_timeout_from_its_own_completion() -> None:
    """WIRE: then it is delivered whatever is still missing, with a lost event naming it."""
    receiver = settled()
    receiver.receive(single("after", "before", "also", lamport=NOW_MS + 30_000))
    receiver.advance(TIMEOUT - 1)
    assert receiver.received == []
    receiver.advance(1)
    assert receiver.received == [b"after"]
    assert receiver.lost == [("before", "dependency_timeout"), ("also", "dependency_timeout")]
    assert {event.sender_id for event in receiver.of(MessageLostEvent)} == {ALICE}
    assert {event.explanation for event in receiver.of(MessageLostEvent)} == {
        "neither the store nor another participant brought it within 300 s"
    }
    kinds = [type(event) for event in receiver.events]
    assert kinds == [MessageLostEvent, MessageLostEvent, MessageReceivedEvent]
    assert receiver.status().missing_messages == 0


def test_a_chain_is_released_whole_when_its_beginning_is_lost() -> None:
    receiver = settled()
    receiver.receive(single("b", "a", lamport=NOW_MS + 30_000))
    receiver.advance(100 * SECOND)
    receiver.receive(single("c", "b", lamport=NOW_MS + 31_000))
    receiver.advance(200 * SECOND)
    assert receiver.received == [b"b", b"c"]
    assert receiver.lost == [("a", "dependency_timeout")]


def test_what_was_lost_and_still_comes_is_delivered_late() -> None:
    """WIRE: what arrives later is delivered then, marked late."""
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000))
    receiver.advance(TIMEOUT)
    receiver.receive(single("before"))
    assert [(event.message, event.late) for event in receiver.of(MessageReceivedEvent)] == [
        (b"after", False),
        (b"before", True),
    ]


def test_a_payload_that_names_what_was_lost_does_not_wait() -> None:
    receiver = settled()
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000))
    receiver.advance(TIMEOUT)
    receiver.receive(single("later", "before", lamport=NOW_MS + 40_000))
    assert receiver.received == [b"after", b"later"]
    assert len(receiver.lost) == 1


def test_what_only_a_sync_named_is_lost_after_the_dependency_timeout() -> None:
    receiver = settled()
    receiver.receive(sync_message(entry("gone", sender_id=CAROL), lamport=NOW_MS + 20_000))
    receiver.advance(TIMEOUT)
    assert receiver.lost == [("gone", "dependency_timeout")]
    assert receiver.of(MessageLostEvent)[0].sender_id == CAROL
    assert receiver.status().missing_messages == 0


@pytest.mark.parametrize("sender_id", ["y" * 256, "\0", "", "x" * 100_000])
def test_a_sender_that_may_be_none_never_gets_into_an_event(sender_id: str) -> None:
    """WIRE: sender ids: 1-255 bytes of UTF-8. A stranger's text would stay in the durable log."""
    receiver = settled()
    receiver.receive(sync_message(entry("gone", sender_id=sender_id), lamport=NOW_MS + 20_000))
    receiver.advance(TIMEOUT)
    assert all(
        event.sender_id is None or is_identifier(event.sender_id)
        for event in receiver.of(MessageLostEvent)
    )


def test_what_a_parked_payload_waits_for_ends_with_it_not_before() -> None:
    receiver = settled()
    receiver.receive(sync_message(*entries("before"), lamport=NOW_MS + 20_000))
    receiver.advance(200 * SECOND)
    receiver.receive(single("after", "before", lamport=NOW_MS + 30_000))
    receiver.advance(200 * SECOND)
    assert receiver.lost == []
    assert receiver.status().missing_messages == 1
    receiver.advance(100 * SECOND)
    assert receiver.lost == [("before", "dependency_timeout")]
    assert receiver.received == [b"after"]


# --- A new channel -------------------------------------------------------------------------------


def test_in_its_first_moments_a_channel_waits_only_a_little() -> None:
    """WIRE: an unmet dependency that one store query does not give counts as before our time."""
    receiver = bob()
    message = single("first", "before our time", lamport=NOW_MS + 1, hint=b"h" * 32)
    receiver.receive(message)
    assert len(receiver.fetches) == 1
    receiver.fetched()
    assert receiver.received == []
    receiver.advance(GRACE - 1)
    assert receiver.received == []
    receiver.advance(1)
    assert receiver.received == [b"first"]
    receiver.advance(2 * TIMEOUT)
    assert receiver.lost == []
    assert receiver.status().missing_messages == 0


@pytest.mark.parametrize("behind_ms", [1, 3_000, 20_000])
def test_a_new_channel_keeps_the_order_of_a_sender_whose_clock_is_behind(behind_ms: int) -> None:
    receiver = bob()
    receiver.advance(20 * SECOND)
    lamport = receiver.now // MS - behind_ms
    hello = single("hello", lamport=lamport)
    receiver.receive(hello)
    assert receiver.machine.causal.floor == NOW_MS - behind_ms
    first = single("first", "hello", lamport=lamport + 1)
    receiver.receive(single("second", "first", lamport=lamport + 2))
    assert receiver.received == [b"hello"]
    receiver.receive(first)
    assert receiver.received == [b"hello", b"first", b"second"]


@pytest.mark.parametrize("is_fetched", [False, True])
def test_what_says_nothing_about_a_clock_leaves_the_floor(*, is_fetched: bool) -> None:
    """A message of long ago, or one from a store, may be from before our time."""
    receiver = settled()
    floor = receiver.machine.causal.floor
    if is_fetched:
        receiver.receive(single("after", "old", hint=b"h" * 32))
        receiver.fetched(single("old", lamport=receiver.now // MS - 15_000))
        assert b"old" in receiver.received
    else:
        receiver.receive(single("old", lamport=receiver.now // MS - 20_001))
    assert receiver.machine.causal.floor == floor


def test_what_comes_within_the_first_moments_keeps_its_order() -> None:
    receiver = bob()
    receiver.receive(single("second", "first", lamport=NOW_MS + 2))
    receiver.advance(5 * SECOND)
    receiver.receive(single("first", lamport=NOW_MS + 1))
    assert receiver.received == [b"first", b"second"]
    assert not receiver.of(MessageReceivedEvent)[0].late


def test_what_comes_after_the_first_moments_was_late() -> None:
    receiver = bob()
    receiver.receive(single("second", "first", lamport=NOW_MS + 2))
    receiver.advance(GRACE)
    receiver.receive(single("first", lamport=NOW_MS + 1))
    assert [event.late for event in receiver.of(MessageReceivedEvent)] == [False, True]


def test_what_follows_a_message_of_our_time_is_of_our_time() -> None:
    receiver = bob()
    receiver.receive(single("a", lamport=NOW_MS + 1))
    receiver.receive(single("c", "a", "b", lamport=NOW_MS + 3))
    receiver.advance(2 * GRACE)
    assert receiver.received == [b"a"]
    receiver.advance(TIMEOUT)
    assert receiver.received == [b"a", b"c"]
    assert receiver.lost == [("b", "dependency_timeout")]


def test_what_a_sender_names_last_is_of_our_time_once_it_was_heard() -> None:
    """A history ends in the newest that its sender had, its own included."""
    receiver = bob()
    receiver.receive(single("a", lamport=NOW_MS + 1))
    receiver.receive(single("d", "b", "c", lamport=NOW_MS + 4))
    receiver.advance(2 * GRACE)
    assert receiver.counted("before_our_time") == 1
    assert receiver.status().repair_requests == 1
    assert receiver.received == [b"a"]
    receiver.receive(single("c", "a", lamport=NOW_MS + 3))
    assert receiver.received == [b"a", b"c", b"d"]


@pytest.mark.parametrize("heard_first", ["from another", "later", "before our time", "in a sync"])
def test_what_a_sender_names_last_is_not_proven_by_anything_else(heard_first: str) -> None:
    receiver = bob()
    if heard_first == "from another":
        receiver.receive(single("a", sender_id=CAROL, lamport=NOW_MS + 1))
    elif heard_first == "later":
        receiver.receive(single("a", lamport=NOW_MS + 4))
    elif heard_first == "before our time":
        receiver.receive(single("a", lamport=NOW_MS - 1))
    else:
        receiver.receive(sync_message(lamport=NOW_MS + 1))
    receiver.receive(single("c", "b", lamport=NOW_MS + 3))
    receiver.advance(GRACE)
    assert b"c" in receiver.received
    assert receiver.counted("before_our_time") == 1


@pytest.mark.parametrize("is_reopened", [False, True])
def test_what_was_taken_for_earlier_is_waited_for_once_it_is_proven(*, is_reopened: bool) -> None:
    receiver = bob()
    receiver.receive(single("a", lamport=NOW_MS + 1))
    receiver.receive(single("d", "b", "c", lamport=NOW_MS + 4))
    receiver.advance(GRACE)
    if is_reopened:
        receiver = receiver.reopened()
    receiver.receive(single("c", "b", lamport=NOW_MS + 3))
    receiver.receive(single("b", "a", lamport=NOW_MS + 2))
    shown = [(event.message, event.late) for event in receiver.of(MessageReceivedEvent)]
    assert shown[-3:] == [(b"b", True), (b"c", False), (b"d", False)]


def test_what_was_taken_for_earlier_has_as_long_as_any_other_once_it_is_proven() -> None:
    receiver = bob()
    receiver.receive(single("a", lamport=NOW_MS + 1))
    receiver.receive(single("c", "b", sender_id=CAROL, lamport=NOW_MS + 3))
    receiver.advance(TIMEOUT - 2 * SECOND)
    assert receiver.received == [b"a", b"c"]
    receiver.receive(sync_message(entry("x"), sender_id=CAROL, lamport=NOW_MS + 5))
    receiver.advance(SECOND)
    first, _ = messages_of(b"x" * 2 * 64, lamport=NOW_MS + 4, history=entries("b"))
    receiver.receive(first)
    assert receiver.status().repair_requests == 2
    receiver.advance(TIMEOUT - 1)
    assert receiver.lost == [("x", "dependency_timeout")]
    receiver.advance(1)
    assert receiver.lost == [("x", "dependency_timeout"), ("b", "dependency_timeout")]


def test_who_was_heard_before_a_restart_still_counts() -> None:
    receiver = bob()
    receiver.receive(single("a", lamport=NOW_MS + 1))
    receiver = receiver.reopened()
    receiver.receive(single("d", "b", "c", lamport=NOW_MS + 4))
    assert receiver.status().repair_requests == 1
    receiver.advance(GRACE)
    assert receiver.counted("before_our_time") == 1
    assert b"d" not in receiver.received


def test_nothing_proves_what_a_strangers_sync_claims_to_be() -> None:
    """Foreign implementations name syncs: nobody would ever find one of these."""
    receiver = bob()
    receiver.receive(sync_message(message_id="b", lamport=NOW_MS + 2))
    receiver.receive(single("a", lamport=NOW_MS + 1), single("c", "b", lamport=NOW_MS + 3))
    receiver.advance(GRACE)
    assert receiver.received == [b"a", b"c"]
    receiver.receive(single("d", "a", "b", lamport=NOW_MS + 4))
    assert receiver.received == [b"a", b"c", b"d"]


def test_who_was_heard_first_is_forgotten_when_nothing_can_be_earlier_any_more() -> None:
    receiver = bob()
    ours = receiver.machine.gaps.our_time
    receiver.receive(HELLO, single("b", "a", sender_id=CAROL, lamport=NOW_MS + 2))
    receiver.advance(GRACE)
    receiver.receive(single("c", sender_id="dave", lamport=NOW_MS + 3))
    first = {ALICE: HELLO.lamport_timestamp, CAROL: NOW_MS + 2, "dave": NOW_MS + 3}
    assert ours.first == first
    receiver.receive(single("a", sender_id=CAROL, lamport=NOW_MS + 1))
    assert ours.is_over
    assert ours.first == {}


def test_each_early_gap_has_its_own_first_moments() -> None:
    receiver = bob()
    receiver.receive(single("b", "a", lamport=NOW_MS + 2))
    receiver.advance(6 * SECOND)
    receiver.receive(single("d", "c", sender_id=CAROL, lamport=NOW_MS + 4))
    receiver.advance(4 * SECOND)
    assert receiver.received == [b"b"]
    receiver.advance(6 * SECOND)
    assert receiver.received == [b"b", b"d"]
    assert receiver.counted("before_our_time") == 2


@pytest.mark.parametrize("history", ["oldest first", "newest first"])
def test_a_late_joiner_reports_nothing_of_before_its_time_as_lost(history: str) -> None:
    """WIRE: no repair request, no lost event. Syncs name the owed first, then the newest known."""
    receiver = bob()
    request_id = receiver.send(b"hello, I am new")
    receiver.published()
    ours = receiver.request(request_id).segments[0].message_id
    old = ["old 1", "old 2", "old 3"]
    named = [*old, ours] if history == "oldest first" else [ours, *reversed(old)]
    receiver.receive(sync_message(*entries(*named), lamport=NOW_MS + 100))
    receiver.advance(2 * TIMEOUT)
    assert receiver.lost == []


def test_a_late_joiner_of_a_quiet_group_reports_nothing_as_lost() -> None:
    """The same with a machine on the other side."""
    sender = Participant(ALICE, sds=NO_FILTER, seed=1)
    for number in range(3):
        sender.send(b"old %d" % number)
        sender.published()
    sender.advance(SECOND)
    receiver = Participant(BOB, sds=NO_FILTER, seed=2, now=sender.now)
    receiver.advance(SECOND)
    receiver.send(b"hello, I am new")
    receiver.published()
    sender.now = receiver.now
    deliver([sender], receiver.transmissions)
    sender.advance(3 * SECOND)
    receiver.advance(3 * SECOND)
    deliver([receiver], sender.syncs)
    receiver.advance(2 * TIMEOUT)
    assert receiver.lost == []


def test_the_sender_of_what_another_parked_message_misses_is_known_too() -> None:
    receiver = settled()
    receiver.receive(single("m2", "m1", sender_id=CAROL), single("m3", "m2"))
    receiver.advance(TIMEOUT)
    assert [(event.message_id, event.sender_id) for event in receiver.of(MessageLostEvent)] == [
        ("m1", CAROL)
    ]


# --- Repair ----------------------------------------------------------------------------------------


def test_what_is_looked_for_is_asked_of_others_until_it_is_found() -> None:
    receiver = settled()
    receiver.receive(single("m3", "m1", "m2"))
    assert receiver.status().repair_requests == 2
    receiver.receive(single("m1"))
    assert receiver.status().repair_requests == 1
    receiver.receive(single("m2"))
    assert receiver.status().repair_requests == 0


def test_what_a_sync_asked_for_that_did_not_go_out_is_asked_for_again_soon() -> None:
    receiver = settled()
    receiver.receive(single("m2", "m1"))
    receiver.published()
    asking = []
    while not asking:
        receiver.advance(SECOND)
        asking = [item for item in receiver.syncs if item.message.repair_request]
    receiver.failed(asking[0].segment_id)
    receiver.advance(5 * SECOND)
    asking = [item for item in receiver.syncs if item.message.repair_request]
    assert len(asking) == 2


def test_what_a_message_asked_for_that_never_went_out_is_asked_for_again_soon() -> None:
    receiver = settled()
    receiver.receive(single("m2", "m1"))
    receiver.published()
    while not receiver.machine.state.repairs.is_due:
        receiver.advance(SECOND // 10)
    receiver.send(b"carries the request")
    assert receiver.transmissions[-1].message.repair_request
    receiver.failed(receiver.transmissions[-1].segment_id, retryable=False)
    before = len(receiver.syncs)
    receiver.advance(5 * SECOND)
    assert any(item.message.repair_request for item in receiver.syncs[before:])


def test_what_is_given_up_is_not_asked_of_others_either() -> None:
    receiver = settled()
    receiver.receive(single("m2", "m1"))
    receiver.advance(TIMEOUT)
    assert receiver.lost == [("m1", "dependency_timeout")]
    assert receiver.status().repair_requests == 0


def test_what_may_be_from_before_our_time_is_asked_of_others_once_it_is_proven_not_to_be() -> None:
    receiver = bob()
    receiver.receive(single("m2", "m1"))
    assert receiver.status().repair_requests == 0
    receiver.receive(single("m0"))
    receiver.receive(single("m3", "m0", "m1"))
    assert receiver.status().repair_requests == 1


def test_ids_asked_of_others_are_bounded_like_those_looked_for() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_missing_ids=5))
    receiver.receive(single("last", *(f"m{number}" for number in range(9))))
    assert receiver.status().repair_requests == 5
