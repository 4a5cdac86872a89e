"""What the messages say that are ours: frozen content messages, ephemeral ones, parity, syncs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.sds.log import MAX_BRANCHES, MAX_LATE_HINTS
from reliable_channel.core.wire import HistoryEntry, SdsMessage, WakuMessage
from reliable_channel.records import (
    DebtRecord,
    LogRecord,
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
    alice,
    concurrent,
    content_message,
    cut,
    entries,
    hash_of,
    history_of,
    ids_of,
    messages_of,
    salted,
)

# --- Content messages ----------------------------------------------------------------------------


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


def test_a_message_of_ours_pays_what_it_names() -> None:
    receiver = Participant(sds=NO_FILTER)
    receiver.receive(*messages_of(b"x"))
    receiver.send(b"reply")
    assert receiver.status().owed_acknowledgements == 0
    assert receiver.rows_of(DebtRecord) == []
    receiver.advance(10 * SECOND)
    assert receiver.syncs == []


def test_histories_stay_within_the_header_budget_however_many_were_withdrawn() -> None:
    sender = alice(sds=replace(NO_FILTER, max_in_flight=1))
    for number in range(20):
        sender.receive(*concurrent(*(f"p{number} {place}" for place in range(16))))
        sender.send(b"x")
    while sender.machine.queue.in_flight:
        sender.failed(retryable=False)
    most = max(len(item.message.causal_history) for item in sender.transmissions)
    assert most <= 2 + MAX_BRANCHES + MAX_LATE_HINTS


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


# --- Ephemeral messages and parity ---------------------------------------------------------------


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


def test_more_than_64_owed_go_out_in_several_syncs() -> None:
    receiver = Participant(sds=NO_FILTER, segmentation=SMALL)
    receiver.receive(*messages_of(b"x" * (150 * 64)))
    receiver.advance(10 * SECOND)
    assert [len(history_of(sync)) for sync in receiver.syncs] == [64, 64, 64]
    named = {item for sync in receiver.syncs for item in history_of(sync)}
    assert named >= {message.message_id for message in messages_of(b"x" * (150 * 64))}
    assert receiver.status().owed_acknowledgements == 0


def test_sync_ids_differ_also_within_an_instant() -> None:
    receiver = Participant(sds=NO_FILTER, segmentation=SMALL)
    receiver.receive(*messages_of(b"x" * (130 * 64)))
    receiver.advance(5 * SECOND)
    named = [sync.message.message_id for sync in receiver.syncs]
    assert len(named) >= 3
    assert len(set(named)) == len(named)


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
