"""What is accepted is known and owed at once, held and kept until it is delivered, and evicted in the end."""

from __future__ import annotations

from dataclasses import replace

from reliable_channel.config import SdsConfig
from reliable_channel.core.acceptance import Arrival
from reliable_channel.core.payload import IncomingPayload, SetKey
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import BodyRecord, DebtRecord, PendingRecord
from reliable_channel.types import SECOND
from tests.support.builders import (
    ALICE,
    GRACE,
    HELLO,
    NO_FILTER,
    NOW_MS,
    PAYLOAD,
    bob,
    messages_of,
    settled,
    single,
)


def test_each_segment_is_owed_when_it_is_accepted_not_when_the_payload_is_whole() -> None:
    receiver = bob()
    messages = messages_of(PAYLOAD)
    receiver.receive(messages[0], messages[2])
    assert receiver.status().owed_acknowledgements == 2
    assert receiver.status().known_messages == 2
    assert receiver.machine.state.log.newest(5) == ()
    assert len(receiver.rows_of(PendingRecord)) == 2
    receiver.receive(messages[1])
    assert receiver.rows_of(PendingRecord) == []
    assert len(receiver.rows_of(DebtRecord)) == 3
    assert receiver.machine.state.log.newest(5) == tuple(item.message_id for item in messages)


def test_rebuilt_segments_enter_the_filter() -> None:
    receiver = bob(sds=SdsConfig(bloom_capacity=100))
    messages = messages_of(PAYLOAD, parity_count=1)
    receiver.receive(messages[0], messages[2], messages[3])
    bloom = receiver.machine.state.log.bloom
    assert bloom is not None
    assert all(message.message_id in bloom for message in messages[:3])


def test_what_eviction_forgets_raises_the_floor() -> None:
    """WIRE: floor raised to the Lamport time of what eviction forgets."""
    receiver = settled(sds=replace(NO_FILTER, max_known_ids=64))
    for number in range(70):
        receiver.receive(single(f"m{number}", lamport=NOW_MS + 20_000 + number))
    assert receiver.status().known_messages <= 64
    floor = receiver.machine.causal.floor
    assert floor > NOW_MS
    receiver.receive(single("old", "m0", lamport=floor - 1))
    assert b"old" in receiver.received
    receiver.receive(single("new", "unknown", lamport=floor))
    assert b"new" not in receiver.received


def test_the_hint_of_what_we_received_is_that_of_the_first_stored_copy() -> None:
    """WIRE: others': that of the first non-ephemeral copy received."""
    receiver = bob()
    receiver.receive(HELLO)
    receiver.receive(HELLO, hint=b"1" * 32)
    receiver.receive(HELLO, hint=b"2" * 32)
    receiver.send(b"reply")
    (named,) = receiver.transmissions[-1].message.causal_history
    assert named == HistoryEntry(HELLO.message_id, b"1" * 32, ALICE)


def test_bytes_kept_for_repairs_go_with_their_ids() -> None:
    receiver = settled(sds=replace(NO_FILTER, max_known_ids=64))
    for number in range(100):
        receiver.receive(single(f"m{number}", lamport=NOW_MS + 20_000 + number))
    kept = {row.message_id for row in receiver.rows_of(BodyRecord)}
    assert kept == set(receiver.machine.state.archive.messages)
    assert kept <= set(receiver.machine.state.log.known)
    assert "m99" in kept


def test_messages_that_another_response_group_answers_for_are_not_kept() -> None:
    receiver = settled(sds=replace(NO_FILTER, num_response_groups=1000))
    for number in range(20):
        receiver.receive(single(f"m{number}"))
    assert receiver.status().full_messages < 5


def test_what_is_forgotten_is_still_known_and_its_row_is_gone() -> None:
    machine = bob().machine
    acceptance, message = machine.acceptance, single("a", "b")
    payload = IncomingPayload(serial=1, key=SetKey(ALICE, b"", 0, 1, 0, 1, 0))
    known = acceptance.accept(message, 0, 1, Arrival(b"", b"h" * 32), logged=False)
    acceptance.join(payload, message, 0)
    acceptance.keep(message, payload)
    assert (known.sender_id, known.hint) == (ALICE, b"h" * 32)
    assert acceptance.payloads == {1: payload}
    assert machine.causal.holder == {"a": payload}
    assert list(payload.dependencies) == ["b"]
    acceptance.forget(payload)
    assert (acceptance.payloads, machine.causal.holder) == ({}, {})
    assert "a" in machine.state.log
    changes = machine.state.outbox.take().changes
    assert not any(changes[key] for key in changes if key[0] is PendingRecord)


def test_the_first_accepted_message_begins_the_first_moments() -> None:
    receiver = bob()
    receiver.advance(SECOND)
    assert receiver.machine.state.settled_at_ns == 0
    receiver.receive(HELLO)
    assert receiver.machine.state.settled_at_ns == receiver.now + GRACE
    receiver.advance(SECOND)
    receiver.receive(single("later"))
    assert receiver.machine.state.settled_at_ns == receiver.now - SECOND + GRACE
