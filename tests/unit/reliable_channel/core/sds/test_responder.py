"""Whose requests are answered, with which bytes, and what calls an answer off.

Spec: LIP-109 (SDS), SDS-R receive message, incoming repair request buffer sweep.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.sds.repair import MAX_ENTRIES_READ, answer_delay_ms, request_delay_ms
from reliable_channel.core.wire import HistoryEntry, SdsMessage
from reliable_channel.records import AnswerRecord, BodyRecord
from reliable_channel.types import MS, SECOND
from tests.support.builders import (
    ALICE,
    BOB,
    CAROL,
    NO_FILTER,
    NOW,
    NOW_MS,
    SMALL,
    Participant,
    Transmission,
    hash_of,
    limited,
    messages_of,
    settled,
    single,
    sync_message,
)

T_MAX = SdsConfig().repair_t_max_ms
T_RESP = answer_delay_ms(BOB, ALICE, "m1", T_MAX) * MS


def asking(
    *message_ids: str,
    sender_id: str = CAROL,
    original: str | None = ALICE,
    number: int = 0,
) -> SdsMessage:
    """Return a sync that asks for messages, sent now."""
    wanted = tuple(HistoryEntry(item, None, original) for item in message_ids)
    sync = sync_message(sender_id=sender_id, lamport=NOW_MS + 30_000 + number)
    return replace(sync, repair_request=wanted)


def answers(participant: Participant) -> list[Transmission]:
    """Return the answers that were given to the node."""
    return [item for item in participant.transmissions if item.segment_id.startswith("repair:")]


@pytest.fixture
def holder() -> Participant:
    """Return bob, who has m1 of alice."""
    bob = settled()
    bob.receive(single("m1"))
    return bob


def test_a_message_that_was_received_is_sent_again_as_it_came_at_t_resp(
    holder: Participant,
) -> None:
    holder.receive(asking("m1"))
    holder.advance(T_RESP - 1)
    assert answers(holder) == []
    holder.advance(1)
    (answer,) = answers(holder)
    assert answer.data == single("m1").encode()


def test_the_original_sender_is_who_we_know_whatever_the_request_says(holder: Participant) -> None:
    holder.receive(asking("m1", original=BOB))
    assert answers(holder) == []
    holder.advance(T_RESP)
    assert len(answers(holder)) == 1


def test_a_request_without_a_sender_is_answered_too(holder: Participant) -> None:
    """Implementations without SDS-R do not write the sender of an entry."""
    holder.receive(asking("m1", original=None))
    holder.advance(T_RESP)
    assert len(answers(holder)) == 1


@pytest.mark.parametrize("hint", [None, hash_of(b"copy")])
def test_an_answer_is_ephemeral_only_where_the_store_is_known_to_have_it(
    hint: bytes | None,
) -> None:
    """A transport hash is no proof: stores miss what others see."""
    bob = settled()
    bob.receive(single("m1"), hint=hint)
    bob.receive(asking("m1"))
    bob.advance(T_RESP)
    assert [item.ephemeral for item in answers(bob)] == [False]


def test_what_the_store_gave_is_sent_again_as_ephemeral() -> None:
    bob = settled()
    data = single("m1").encode()
    bob.receive(single("m2", "m1", hint=hash_of(data)))
    bob.fetched(single("m1"))
    bob.receive(asking("m1"))
    bob.advance(T_RESP)
    assert [item.ephemeral for item in answers(bob)] == [True]


def test_a_message_of_ours_is_answered_at_once_while_its_request_is_open() -> None:
    bob = settled()
    request_id = bob.send(b"mine")
    bob.published()
    sent = bob.last(f"{request_id}:1")
    bob.receive(asking(sent.message.message_id, original=BOB))
    bob.advance(0)
    (answer,) = answers(bob)
    assert answer.data == sent.data
    bob.published()
    assert bob.request(request_id).segments[0].transmissions == 1


def test_a_message_of_ours_that_never_went_out_is_not_answered() -> None:
    bob = settled(budget=limited(1))
    bob.send(b"one")
    bob.send(b"two")
    waiting = next(iter(bob.machine.outgoing.book.segments.values()))
    for segment in bob.machine.outgoing.book.segments.values():
        if segment.header is None:
            waiting = segment
    assert waiting.header is None
    bob.receive(asking(waiting.message_id, original=BOB))
    assert bob.status().repair_answers == 0


def test_what_we_do_not_have_is_not_answered(holder: Participant) -> None:
    holder.receive(asking("unknown", "m1", "another"))
    assert holder.status().repair_answers == 1


def test_a_request_that_is_heard_twice_is_one(holder: Participant) -> None:
    request = asking("m1")
    holder.receive(request, request)
    assert holder.counted("repairs_requested") == 1


def test_a_retransmission_asks_for_nothing_new(holder: Participant) -> None:
    """Frozen bytes still carry the request of their first dispatch, when it was answered long ago."""
    request = replace(
        single("m2", sender_id=CAROL), repair_request=(HistoryEntry("m1", None, ALICE),)
    )
    holder.receive(request)
    holder.advance(2 * T_MAX * MS)
    assert len(answers(holder)) == 1
    holder.receive(request)
    holder.advance(2 * T_MAX * MS)
    assert len(answers(holder)) == 1


def test_our_own_echo_asks_for_nothing(holder: Participant) -> None:
    holder.receive(asking("m1", sender_id=BOB))
    assert holder.status().repair_answers == 0


@pytest.mark.parametrize("way", ["fetched", "caught up", "old"])
def test_what_a_copy_of_long_ago_asked_for_has_been_answered_since(
    holder: Participant, way: str
) -> None:
    """Frozen bytes say the same for ever; peers that obey them broadcast what nobody wants."""
    request = HistoryEntry("m1", None, ALICE)
    message = replace(single("m2", sender_id=CAROL), repair_request=(request,))
    if way == "old":
        holder.advance((T_MAX + 30_000) * MS)
        holder.receive(message)
    elif way == "caught up":
        data = message.encode()
        holder.carry_out(holder.machine.receive(data, hash_of(data), holder.now, from_store=True))
    else:
        holder.receive(single("m3", "m2", hint=hash_of(message.encode())))
        holder.fetched(message)
    assert b"m2" in holder.received
    assert holder.status().repair_answers == 0


def test_of_many_requests_in_a_message_a_few_are_read(holder: Participant) -> None:
    others = [f"x{number}" for number in range(40)]
    holder.receive(*(single(text) for text in others))
    holder.receive(asking(*others))
    assert holder.counted("repairs_requested") == MAX_ENTRIES_READ


def test_a_message_of_ours_that_was_withdrawn_is_not_answered() -> None:
    bob = settled(segmentation=SMALL)
    request_id = bob.send(b"x" * 128)
    bob.published(f"{request_id}:1")
    bob.receive(asking(bob.last(f"{request_id}:1").message.message_id, original=BOB))
    bob.failed(f"{request_id}:2", retryable=False)
    bob.advance(SECOND)
    assert answers(bob) == []
    assert bob.status().repair_answers == 0


def test_another_participants_answer_makes_ours_needless(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.receive(single("m1"))
    holder.advance(2 * T_RESP)
    assert answers(holder) == []
    assert holder.counted("repairs_overheard") == 1


@pytest.mark.parametrize(
    "changes",
    [{"content": b"forged"}, {"sender_id": "mallory"}, {"lamport_timestamp": None}],
    ids=["content", "sender", "kind"],
)
def test_anything_but_the_original_bytes_is_no_answer(
    holder: Participant, changes: dict[str, Any]
) -> None:
    holder.receive(asking("m1"))
    holder.receive(replace(single("m1"), **changes))
    holder.advance(T_RESP)
    assert [item.message.content for item in answers(holder)] == [b"m1"]


def test_an_answer_that_waits_for_the_budget_is_called_off_too() -> None:
    bob = settled(budget=limited(4))
    bob.receive(single("m1"))
    for number in range(4):
        bob.send(b"%d" % number)
        bob.published()
    bob.receive(asking("m1"))
    bob.advance(T_RESP)
    assert answers(bob) == []
    waiting = bob.status().waiting
    bob.receive(single("m1"))
    assert bob.status().waiting == waiting - 1


def test_an_answer_that_the_node_did_not_take_is_given_when_asked_for_again(
    holder: Participant,
) -> None:
    holder.receive(asking("m1"))
    holder.advance(T_RESP)
    holder.failed(answers(holder)[0].segment_id)
    holder.receive(asking("m1", number=1))
    holder.advance(T_RESP)
    assert len(answers(holder)) == 2


def test_an_answer_whose_epoch_ended_waits_again(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.advance(T_RESP)
    (first,) = answers(holder)
    holder.carry_out(holder.machine.expired(first.segment_id, holder.now))
    assert [item.data for item in answers(holder)] == [first.data] * 2


def test_anothers_request_for_what_we_lack_puts_ours_off() -> None:
    bob = settled()
    bob.receive(single("m2", "m1"))
    wait = request_delay_ms(BOB, "m1", SdsConfig().repair_t_min_ms, T_MAX) * MS
    bob.advance(wait - SECOND)
    bob.receive(asking("m1"))
    bob.advance(wait - SECOND)
    assert not [item for item in bob.transmissions if item.message.repair_request]
    bob.advance(5 * SECOND)
    assert [item for item in bob.transmissions if item.message.repair_request]


def test_the_original_of_a_rebuilt_segment_that_comes_after_all_can_be_sent_again() -> None:
    bob = settled()
    first, second, parity = messages_of(
        bytes(128), parity_count=1, lamport=NOW_MS + 20_000, wrap_time_ns=NOW + 1
    )
    bob.receive(first, parity)
    assert bob.received == [bytes(128)]
    bob.receive(asking(second.message_id))
    assert bob.status().repair_answers == 0
    bob.receive(replace(second, content=b"forged"), second)
    bob.receive(asking(second.message_id, number=1))
    bob.advance(T_MAX * MS)
    assert [item.data for item in answers(bob)] == [second.encode()]


# --- Equal contents under one id -----------------------------------------------------------------

BY_CONTENT = replace(NO_FILTER, message_id="content")


def ask_bob(bob: Participant, message_id: str, number: int = 0) -> list[bytes]:
    """Ask bob for a message of his; return what he answers."""
    before = len(answers(bob))
    bob.receive(asking(message_id, original=BOB, number=number))
    bob.advance(0)
    return [item.data for item in answers(bob)[before:]]


@pytest.mark.parametrize("ending", ["acknowledged", "failed", "waiting", "reopened"])
def test_an_equal_message_sent_again_leaves_the_first_to_be_had(ending: str) -> None:
    bob = settled(sds=BY_CONTENT)
    first = bob.send(b"equal")
    bob.published()
    sent = bob.last(f"{first}:1")
    bob.receive(sync_message(HistoryEntry(sent.message.message_id), sender_id=CAROL))
    assert sent.message.message_id in bob.machine.state.archive
    second = bob.send(b"equal")
    assert bob.last(f"{second}:1").data == sent.data
    if ending == "acknowledged":
        bob.published()
        named = HistoryEntry(sent.message.message_id)
        bob.receive(sync_message(named, sender_id=CAROL, lamport=NOW_MS + 1))
    elif ending == "failed":
        bob.failed(f"{second}:1", retryable=False)
    elif ending == "reopened":
        bob = bob.reopened()
    assert ask_bob(bob, sent.message.message_id) == [sent.data]


def test_one_acknowledgement_of_two_equal_messages_leaves_the_one_that_went_out() -> None:
    bob = settled(sds=BY_CONTENT, budget=limited(2))
    first = bob.send(b"equal")
    bob.published()
    second = bob.send(b"equal")
    sent = bob.last(f"{first}:1")
    bob.receive(sync_message(HistoryEntry(sent.message.message_id), sender_id=CAROL))
    assert bob.request(first).is_final
    assert bob.request(second).is_final
    archived = bob.machine.state.archive.find(sent.message.message_id)
    assert archived is not None
    assert archived.data == sent.data
    assert bob.reopened().status().full_messages == bob.status().full_messages


def test_without_repair_nobody_is_answered() -> None:
    bob = settled(sds=replace(NO_FILTER, enable_repair=False))
    bob.receive(single("m1"), asking("m1"))
    assert bob.status().repair_answers == 0
    assert bob.counted("repairs_requested") == 0


# --- After a restart -------------------------------------------------------------------------------


def answer_rows(participant: Participant) -> list[AnswerRecord]:
    """Return the kept rows of answers."""
    return [row for row in participant.rows_of(AnswerRecord) if isinstance(row, AnswerRecord)]


def test_a_planned_answer_is_given_when_it_was_due(holder: Participant) -> None:
    holder.receive(asking("m1"))
    assert [row.due_ns for row in answer_rows(holder)] == [holder.now + T_RESP]
    holder.advance(T_RESP - SECOND)
    again = holder.reopened()
    again.advance(SECOND - 1)
    assert answers(again) == []
    again.advance(1)
    assert [item.data for item in answers(again)] == [single("m1").encode()]


def test_of_a_message_from_the_store_the_answer_stays_ephemeral() -> None:
    bob = settled()
    data = single("m1").encode()
    bob.receive(single("m2", "m1", hint=hash_of(data)))
    bob.fetched(single("m1"))
    bob.receive(asking("m1"))
    again = bob.reopened()
    again.advance(T_RESP)
    assert [item.ephemeral for item in answers(again)] == [True]


def test_what_was_due_while_we_were_down_is_given_after_the_catch_up(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.now += T_RESP + SECOND
    again = holder.reopened()
    again.advance(0)
    assert len(answers(again)) == 1


def test_what_another_gave_while_we_were_down_is_not_given_again(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.now += T_RESP + SECOND
    again = holder.reopened(started=False)
    data = single("m1").encode()
    again.carry_out(again.machine.receive(data, hash_of(data), again.now, from_store=True))
    again.start()
    again.advance(2 * T_MAX * MS)
    assert answers(again) == []
    assert answer_rows(again) == []


def test_what_was_due_long_ago_is_let_go(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.now += T_RESP + T_MAX * MS
    again = holder.reopened()
    again.advance(T_MAX * MS)
    assert answers(again) == []
    assert answer_rows(again) == []


def test_what_was_given_is_not_given_again_within_t_max(holder: Participant) -> None:
    """Also when nobody knows whether it went out: who restarts all the time must not repeat it each time."""
    holder.receive(asking("m1"))
    holder.advance(T_RESP)
    assert len(answers(holder)) == 1
    again = holder.reopened()
    again.receive(asking("m1", number=1))
    again.advance(T_MAX * MS - 1)
    assert answers(again) == []
    again.advance(1)
    again = again.reopened()
    again.receive(asking("m1", number=2 * T_MAX))
    again.advance(T_RESP)
    assert len(answers(again)) == 1


def test_an_answer_that_the_node_did_not_take_leaves_no_row(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.advance(T_RESP)
    holder.failed(answers(holder)[0].segment_id)
    assert answer_rows(holder) == []


def test_an_answer_that_waits_for_another_epoch_is_planned_again(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.advance(T_RESP)
    (first,) = answers(holder)
    assert [row.given_ns for row in answer_rows(holder)] == [holder.now]
    holder.machine.queue.window = 0
    holder.carry_out(holder.machine.expired(first.segment_id, holder.now))
    assert [row.given_ns for row in answer_rows(holder)] == [0]
    again = holder.reopened()
    again.advance(0)
    assert [item.data for item in answers(again)] == [first.data]


def test_what_cannot_be_answered_any_more_leaves_no_row(holder: Participant) -> None:
    holder.receive(asking("m1"))
    holder.rows.pop((BodyRecord, ("m1", "message")))
    again = holder.reopened()
    assert again.status().repair_answers == 0
    assert answer_rows(again) == []


@pytest.mark.parametrize(
    ("changes", "kept"), [({"max_repair_answers": 1}, 1), ({"enable_repair": False}, 0)]
)
def test_bounds_that_were_lowered_hold_after_a_restart(changes: dict[str, Any], kept: int) -> None:
    bob = settled()
    bob.receive(single("m1"), single("m2"), asking("m1", "m2"))
    assert len(answer_rows(bob)) == 2
    again = Participant(
        BOB, now=bob.now, snapshot=bob.snapshot(), sds=replace(NO_FILTER, **changes)
    )
    assert again.status().repair_answers == len(answer_rows(again)) == kept
