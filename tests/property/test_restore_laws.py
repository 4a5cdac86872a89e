"""A restart at any moment changes nothing of what was received, and no row outlives what it was kept for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.wire import SdsMessage
from reliable_channel.records import (
    AnswerRecord,
    AskedRecord,
    MissingRecord,
    ParityRecord,
    PendingRecord,
)
from reliable_channel.types import SECOND
from tests.support.builders import (
    CAROL,
    NO_FILTER,
    NOW,
    NOW_MS,
    PAYLOAD,
    Participant,
    content_message,
    cut,
    entries,
    ephemeral_message,
    messages_of,
    settled,
    single,
    sync_message,
)

AT: Final = NOW_MS + 20_000


def sent(
    wrap_time_ns: int, *needs: str, salt_ns: int = 0, with_length: bool = True
) -> list[SdsMessage]:
    """Return all segments of a payload, with parity, and the same again under other ids if those are not checked."""
    named = entries(*needs)
    messages = messages_of(
        PAYLOAD,
        wrap_time_ns=wrap_time_ns,
        salt_ns=salt_ns,
        lamport=AT,
        history=named,
        parity_count=2,
        with_length=with_length,
    )
    if wrap_time_ns:
        return messages
    return messages + [
        replace(item, message_id=f"again {place}", causal_history=named)
        for place, item in enumerate(messages)
    ]


def made_up(wrap_time_ns: int, *, with_length: bool = True) -> list[SdsMessage]:
    """Return forged segments of the same set: data, parity, and what claims to be ephemeral."""
    segments = cut(PAYLOAD, parity_count=2, wrap_time_ns=wrap_time_ns, with_length=with_length)
    false = [replace(item, payload=mark * 64) for item in segments for mark in (b"!", b"?")]
    return [
        *(content_message(item, lamport=AT, history=entries("x")) for item in false[:6]),
        *(ephemeral_message(item, history=entries("y")) for item in false[6:]),
        *(ephemeral_message(item, history=entries("z")) for item in segments[:3]),
    ]


PROOF: Final = content_message(cut(b"proof")[0], lamport=AT)
"""What takes the ids back that two segments without wrap time claim."""

CLAIMS: Final = [
    content_message(item, message_id=PROOF.message_id, lamport=AT, sender_id=CAROL)
    for item in cut(PAYLOAD, parity_count=1, wrap_time_ns=0)[:2]
]

GROUPS: Final = (
    sent(NOW, "before"),
    sent(NOW, "before") + made_up(NOW),
    sent(NOW + 1, with_length=False) + made_up(NOW + 1, with_length=False),
    sent(0, "before"),
    sent(0, "before") + made_up(0),
    [*sent(0, "before", salt_ns=NOW)[:5], single("before", lamport=AT)],
    [*sent(0, "before"), *CLAIMS, PROOF],
    [
        *sent(NOW, "whole"),
        *sent(0, "before"),
        *(ephemeral_message(item, sender_id=CAROL) for item in cut(PAYLOAD, wrap_time_ns=0)),
        single("whole", "before", lamport=AT),
        single("before", lamport=AT),
    ],
)
"""Messages that arrive in any order: true and forged segments of sets with and without wrap time, parity of each."""

ARRIVING: Final = st.sampled_from(GROUPS).flatmap(
    lambda group: st.lists(st.sampled_from(group), min_size=3, max_size=25)
)

RESTARTS: Final = st.sets(st.integers(0, 24), min_size=1, max_size=5)
"""After which of them."""


def contents(payload: IncomingPayload) -> tuple[Any, ...]:
    """Return everything that a payload on its way in is, but for what one run counts."""
    return (
        payload.serial,
        payload.key,
        payload.ephemeral,
        list(payload.data.items()),
        list(payload.parity.items()),
        payload.ids,
        payload.lamports,
        payload.histories,
        payload.rivals,
        payload.parity_rivals,
        payload.held_parity,
        payload.parity_rows,
        set(payload.dependencies),
        set(payload.unmet),
        payload.octets,
        payload.message,
    )


def durable(receiver: Participant) -> dict[str, Any]:
    """Return all that a restart must not change: sets with content, what is parked, and the sizes of both."""
    reassembler, causal = receiver.machine.reassembler, receiver.machine.causal
    sets = [item for item in reassembler.sets.values() if item.ids and not item.ephemeral]
    return {
        "sets": [contents(item) for item in sorted(sets, key=lambda item: item.serial)],
        "parked": [contents(item) for item in causal.parked.values()],
        "parked octets": causal.parked_octets,
        "holders": {key: item.serial for key, item in causal.holder.items()},
        "known": set(receiver.machine.state.log.known),
        "owed": set(receiver.machine.state.debt),
        "completed": dict(reassembler.completed),
        "missing": {
            item.message_id: item.record()
            for item in receiver.machine.gaps.missing.messages.values()
        },
        "asked for": {
            key: (
                receiver.machine.state.timers.deadline(("request", key)),
                item.asked,
                item.deferred,
            )
            for key, item in receiver.machine.state.repairs.requests.items()
        },
        "rows": {
            key: row
            for key, row in receiver.rows.items()
            if key[0] in (PendingRecord, ParityRecord, MissingRecord, AskedRecord)
        },
    }


def check_books(receiver: Participant) -> None:
    """Compare what is counted and what has rows with what is held."""
    machine = receiver.machine
    sets = machine.reassembler.sets.values()
    assert machine.reassembler.octets == sum(item.octets for item in sets)
    octets: Counter[str] = Counter()
    for item in sets:
        octets[item.sender_id] += item.octets
    senders = machine.reassembler.senders
    assert {name: used.octets for name, used in senders.items()} == octets
    assert {name: used.sets for name, used in senders.items()} == Counter(
        item.sender_id for item in sets
    )
    for item in sets:
        held = [*item.data.values(), *item.parity.values()]
        held += [other.chunk for others in item.rivals.values() for other in others]
        held += [other for others in item.parity_rivals.values() for other in others]
        assert item.octets >= sum(map(len, held))
    rows = {row.arrival for row in receiver.rows_of(ParityRecord) if isinstance(row, ParityRecord)}
    assert rows == {
        arrival for item in machine.acceptance.payloads.values() for arrival in item.parity_rows
    }
    assert {key[0] for kind, key in receiver.rows if kind is PendingRecord} == set(
        machine.causal.holder
    )


SENT: Final = sent(0, "before")

LATER_SET_WITH_OLDER_PARITY: Final = [
    *(SENT[place] for place in (4, 5, 6)),
    made_up(0)[-3],
    *(SENT[place] for place in (3, 0, 5)),
]
"""A parked payload whose segments were replaced, and after it a set that got parity from before that."""


@settings(max_examples=150)
@given(arriving=ARRIVING, restarts=RESTARTS)
@example(arriving=LATER_SET_WITH_OLDER_PARITY, restarts={6})
def test_a_restart_changes_nothing_of_what_is_held(
    arriving: list[SdsMessage], restarts: set[int]
) -> None:
    receiver = settled()
    for step, message in enumerate(arriving):
        receiver.receive(message)
        check_books(receiver)
        if step in restarts:
            before = durable(receiver)
            # A store may give its rows in any order.
            receiver.rows = dict(reversed(receiver.rows.items()))
            receiver = receiver.reopened()
            assert durable(receiver) == before
            check_books(receiver)


@settings(max_examples=100)
@given(arriving=ARRIVING, restarts=RESTARTS)
def test_no_row_of_a_segment_is_left_when_all_is_quiet(
    arriving: list[SdsMessage], restarts: set[int]
) -> None:
    receiver = settled(sds=replace(NO_FILTER, enable_repair=False))
    for step, message in enumerate(arriving):
        receiver.receive(message)
        receiver.advance(step * SECOND)
        if step in restarts:
            receiver = receiver.reopened()
    receiver.advance(2 * 3_600 * SECOND)
    assert receiver.rows_of(PendingRecord) == []
    assert receiver.rows_of(ParityRecord) == []
    assert receiver.machine.acceptance.payloads == {}


# --- Answers to others' requests -------------------------------------------------------------------

ASKED_FOR: Final = tuple(single(f"m{number}", lamport=AT) for number in range(4))

STEPS: Final = st.lists(
    st.tuples(
        st.sampled_from(("ask", "ask", "hear", "forge", "wait", "fail")),
        st.integers(0, len(ASKED_FOR) - 1),
        st.sampled_from((1, 15, 40, 130)),
    ),
    min_size=3,
    max_size=25,
)
"""What happens, to which message, and how many seconds pass after it."""


def take_step(receiver: Participant, what: str, which: int, number: int) -> None:
    """Let a message be asked for, heard from somebody, or the node fail."""
    message = ASKED_FOR[which]
    if what == "ask":
        sender_id = CAROL if which % 2 else "dave"
        sync = sync_message(sender_id=sender_id, lamport=AT + number)
        receiver.receive(replace(sync, repair_request=entries(message.message_id)))
    elif what == "hear":
        receiver.receive(message)
    elif what == "forge":
        receiver.receive(replace(message, content=b"forged"))
    if what == "fail":
        receiver.failed()
    else:
        receiver.published()


def answers_of(receiver: Participant) -> list[tuple[int, bytes, bool]]:
    """Return when which answers were given to the node."""
    return [
        (item.time_ns, item.data, item.ephemeral)
        for item in receiver.transmissions
        if item.segment_id.startswith("repair:")
    ]


@settings(max_examples=150)
@given(steps=STEPS, restarts=RESTARTS)
@example(steps=[("ask", 0, 1), ("wait", 0, 130), ("ask", 0, 1)], restarts={0, 1})
def test_who_was_restarted_answers_the_same_requests_at_the_same_times(
    steps: list[tuple[str, int, int]], restarts: set[int]
) -> None:
    lasting, restarted = settled(), settled()
    given_before: list[tuple[int, bytes, bool]] = []
    for receiver in (lasting, restarted):
        receiver.receive(*ASKED_FOR)
        receiver.published()
    for number, (what, which, pause) in enumerate(steps):
        for receiver in (lasting, restarted):
            take_step(receiver, what, which, number)
        if number in restarts:
            given_before += answers_of(restarted)
            restarted.rows = dict(reversed(restarted.rows.items()))
            restarted = restarted.reopened()
        for receiver in (lasting, restarted):
            receiver.advance(pause * SECOND)
            # Where the node does not report, a restart does: what was given is given.
            receiver.published()
        assert given_before + answers_of(restarted) == answers_of(lasting)
        kept = {row.message_id: row for row in restarted.rows_of(AnswerRecord)}  # type: ignore[union-attr]
        answers = restarted.machine.outgoing.responder.answers
        assert set(kept) == {*answers.pending, *answers.answered}
