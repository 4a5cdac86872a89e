"""Which messages the segments of a whole payload are."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.wire import SdsMessage, SegmentMessage
from reliable_channel.events import (
    MessageReceivedEvent,
)
from reliable_channel.records import (
    ParityRecord,
    PendingRecord,
)
from reliable_channel.types import SECOND
from tests.support.builders import (
    ALICE,
    NOW,
    NOW_MS,
    PAYLOAD,
    bob,
    content_message,
    cut,
    entries,
    entry,
    ephemeral_message,
    hash_of,
    messages_of,
    salted,
    settled,
    single,
)


@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
@pytest.mark.parametrize("kept", list(combinations(range(5), 3)))
def test_any_k_segments_rebuild_and_are_acknowledged_under_the_senders_ids(
    code: str, kept: tuple[int, ...]
) -> None:
    """WIRE: the ids of its missing data segments are recomputed exactly."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=2, code=code, lamport=NOW_MS + 20_000)
    receiver.receive(*(messages[place] for place in kept))
    assert receiver.received == [PAYLOAD]
    data = [message.message_id for message in messages[:3]]
    assert receiver.of(MessageReceivedEvent)[0].message_id == data[0]
    known = receiver.machine.state.log.known
    assert [known[item].lamport for item in data] == [NOW_MS + 20_000 + place for place in range(3)]
    receiver.advance(3 * SECOND)
    (sync,) = receiver.syncs
    named = {item.message_id for item in sync.message.causal_history}
    assert set(data) <= named
    assert receiver.status().owed_acknowledgements == 0
    assert receiver.rows_of(PendingRecord) == []


def test_what_waits_for_a_rebuilt_segment_is_set_free() -> None:
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    after = single("after", messages[1].message_id, lamport=NOW_MS + 30_000)
    receiver.receive(after, messages[0], messages[2])
    assert receiver.received == []
    receiver.receive(messages[3])
    assert receiver.received == [PAYLOAD, b"after"]


def test_what_a_rebuilt_first_segment_depends_on_is_fetched() -> None:
    """A forged one was there when the parity came, which then said nothing that mattered."""
    receiver = settled()
    hint = hash_of(b"before")
    messages = messages_of(
        PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000, history=[entry("before", hint=hint)]
    )
    forged = replace(cut(PAYLOAD, parity_count=1)[0], payload=b"!" * 64)
    receiver.receive(content_message(forged, lamport=NOW_MS + 20_000), messages[3])
    assert receiver.fetches == []
    receiver.receive(*messages[1:3])
    assert receiver.status().parked_messages == 1
    assert [fetch.hashes for fetch in receiver.fetches] == [(hint,)]


def test_nothing_is_inferred_for_senders_without_wrap_time() -> None:
    """WIRE: otherwise, and from senders without wrap time, nothing is inferred."""
    receiver = settled()
    messages = [
        replace(message, causal_history=())
        for message in messages_of(PAYLOAD, parity_count=1, wrap_time_ns=0, salt_ns=NOW)
    ]
    receiver.receive(messages[1], messages[2], messages[3])
    assert receiver.received == [PAYLOAD]
    assert receiver.of(MessageReceivedEvent)[0].message_id == messages[1].message_id
    assert messages[0].message_id not in receiver.machine.state.log
    assert receiver.counted("segments_rebuilt") == 0


def test_ids_that_are_hashes_of_the_content_are_inferred_too() -> None:
    """docs/adr/0007: with message_id="content" what parity repaired is acknowledged like any other."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, wrap_time_ns=0, lamport=NOW_MS + 20_000)
    receiver.receive(messages[1], messages[2], messages[3])
    assert receiver.received == [PAYLOAD]
    assert messages[0].message_id in list(receiver.machine.state.debt)
    assert receiver.counted("segments_rebuilt") == 1


def odd(segment: SegmentMessage, place: int, *history: str) -> SdsMessage:
    """Return a segment with its fields in another order: it decodes alike, and proves another id."""
    content = b"".join(reversed(fields_of(segment.encode())))
    return content_message(
        content,
        message_id=salted(ALICE, NOW, content),
        lamport=NOW_MS + 20_000 + place,
        history=entries(*history),
    )


def test_a_sender_who_writes_segments_otherwise_gets_no_inference() -> None:
    """WIRE: only when re-encoding and hashing gives the ids of the received ones."""
    receiver = settled()
    segments = cut(PAYLOAD, parity_count=1)
    receiver.receive(odd(segments[1], 1), odd(segments[2], 2), ephemeral_message(segments[3]))
    assert receiver.received == [PAYLOAD]
    assert receiver.counted("segments_rebuilt") == 0


def fields_of(data: bytes) -> list[bytes]:
    """Return the encoded fields of a protobuf message of varints and octets."""
    fields, start = [], 0
    while start < len(data):
        position = start + 1
        value, shift = 0, 0
        while True:
            octet = data[position]
            value |= (octet & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if octet < 0x80:
                break
        if data[start] & 7 == 2:
            position += value
        fields.append(data[start:position])
        start = position
    return fields


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("copied", [0, 1, 2])
def test_a_copy_with_other_bytes_is_no_segment_of_who_writes_them_otherwise(
    lost: int, copied: int
) -> None:
    """docs/adr/0013: one such copy, of a lost segment or another, keeps no rebuilt one from being acknowledged."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=2, lamport=NOW_MS + 20_000)
    copy = odd(cut(PAYLOAD, parity_count=2)[copied], copied)
    receiver.receive(copy)
    receiver.receive(*(item for place, item in enumerate(messages) if place != lost))
    assert receiver.received == [PAYLOAD]
    known = receiver.machine.state.log.known
    assert all(message.message_id in known for message in messages[:3])
    assert copy.message_id not in known
    owed = list(receiver.machine.state.debt)
    assert {message.message_id for message in messages[:3]} <= set(owed)
    assert copy.message_id not in owed
    assert receiver.rows_of(PendingRecord) == receiver.rows_of(ParityRecord) == []


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("copied", [0, 1, 2])
def test_the_true_segment_takes_the_place_of_a_copy_also_in_a_payload_that_waits(
    copied: int, *, restart: bool
) -> None:
    """What names the segment comes after its payload, whichever copy made that whole."""
    receiver = settled()
    messages = messages_of(PAYLOAD, lamport=NOW_MS + 20_000, history=[entry("before")])
    named = {0: "before", 1: messages[0].message_id, 2: messages[1].message_id}[copied]
    copy = odd(cut(PAYLOAD)[copied], copied, named)
    others = [item for place, item in enumerate(messages) if place != copied]
    receiver.receive(copy, *others, messages[copied])
    receiver.receive(single("after", messages[copied].message_id, lamport=NOW_MS + 30_000))
    if restart:
        receiver = receiver.reopened()
    assert receiver.received == []
    receiver.receive(single("before", lamport=NOW_MS + 10_000))
    assert receiver.received == [b"before", PAYLOAD, b"after"]
    known = receiver.machine.state.log.known
    assert messages[copied].message_id in known
    assert copy.message_id not in known
    assert receiver.rows_of(PendingRecord) == []


def test_a_copy_of_what_waits_already_is_refused() -> None:
    receiver = settled()
    messages = messages_of(PAYLOAD, lamport=NOW_MS + 20_000, history=[entry("before")])
    receiver.receive(*messages, odd(cut(PAYLOAD)[1], 1))
    assert receiver.dropped() == {"conflicting_segment": 1}


def test_with_ids_of_the_content_a_copy_keeps_the_true_segment_from_nothing_either() -> None:
    """It is no payload that was sent again: the id of its bytes as they are written is its own."""
    receiver = settled()
    messages = messages_of(
        PAYLOAD, wrap_time_ns=0, lamport=NOW_MS + 20_000, history=[entry("before")]
    )
    receiver.receive(replace(messages[0], message_id="claimed"), *messages[1:], messages[0])
    assert receiver.status().incomplete_payloads == 0
    receiver.receive(single("before", lamport=NOW_MS + 10_000))
    assert receiver.received == [b"before", PAYLOAD]


def test_a_payload_does_not_wait_for_its_own_rebuilt_segment() -> None:
    """Of senders whose ids cannot be computed: what a later segment names last is the one before it."""
    receiver = settled()
    payload = bytes(range(250)) * 2
    messages = messages_of(
        payload, parity_count=3, wrap_time_ns=0, salt_ns=NOW + 5, lamport=NOW_MS + 20_000
    )
    receiver.receive(*(item for place, item in enumerate(messages) if place not in (2, 4)))
    assert receiver.received == [payload]


def test_a_rebuilt_payload_whose_ids_are_known_is_not_delivered() -> None:
    """WIRE: a rebuilt payload whose ids are already known is not delivered."""
    receiver = bob(segmentation=SegmentationConfig(max_completed_payloads=1))
    messages = messages_of(PAYLOAD, parity_count=2)
    receiver.receive(*messages[:3])
    receiver.receive(*messages_of(PAYLOAD, wrap_time_ns=NOW + 1, lamport=NOW_MS + 9))
    log = receiver.machine.state.log
    log.withdraw(messages[0].message_id, ())  # forgotten, as eviction does
    receiver.receive(messages[0], messages[3], messages[4])
    assert receiver.received == [PAYLOAD, PAYLOAD]
    assert receiver.status().incomplete_payloads == 0


def test_nobody_waits_for_a_rebuilt_payload_that_is_not_delivered() -> None:
    """Somebody used the id of the lost segment for something else before."""
    receiver = settled()
    messages = messages_of(PAYLOAD, parity_count=1, lamport=NOW_MS + 20_000)
    receiver.receive(content_message(b"burnt", message_id=messages[0].message_id))
    receiver.receive(single("after", messages[1].message_id, lamport=NOW_MS + 30_000))
    receiver.receive(*messages[1:])
    assert receiver.status().incomplete_payloads == 0
    assert b"after" in receiver.received
