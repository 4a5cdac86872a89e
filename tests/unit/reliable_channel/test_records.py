"""Rows: how they are identified and found."""

from __future__ import annotations

from dataclasses import fields

import pytest

from reliable_channel.records import (
    RECORD_TYPES,
    AcknowledgementRecord,
    AnswerRecord,
    AskedRecord,
    BodyRecord,
    ChannelRecord,
    CompletedRecord,
    DebtRecord,
    EventRecord,
    LedgerRecord,
    LogRecord,
    LostRecord,
    MissingRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    Record,
    RecordKey,
    RequestRecord,
    Snapshot,
    key_of,
    rows_of,
)

ROWS: list[tuple[Record, RecordKey]] = [
    (
        ChannelRecord(
            content_topic="/a/1/b/proto",
            sender_id="alice",
            bloom_capacity=1,
            bloom_error_rate=0.1,
            created_ns=1,
            lamport_clock=2,
            last_wrap_ns=3,
            floor=4,
            settled_at_ns=5,
            last_event_sequence=6,
            last_seen_ns=7,
            conflict_seen=False,
            frontier=(),
        ),
        (),
    ),
    (
        LogRecord(
            message_id="m",
            lamport_timestamp=1,
            sender_id="alice",
            retrieval_hint=None,
            logged=True,
            segment_index=0,
            segment_count=1,
        ),
        ("m",),
    ),
    (
        PendingRecord(
            message_id="m",
            sender_id="alice",
            lamport_timestamp=1,
            received_ns=2,
            history=b"",
            content=b"c",
            set_number=3,
            arrival=4,
        ),
        ("m",),
    ),
    (
        ParityRecord(
            arrival=4, set_number=3, segment_index=1, received_ns=2, history=b"", chunk=b"c"
        ),
        (4,),  # type: ignore[list-item]
    ),
    (
        RequestRecord(
            request_id="r",
            created_ns=1,
            payload_bytes=2,
            segment_count=3,
            ephemeral=False,
            sent=False,
            state="open",
            error="",
            leader="bob",
        ),
        ("r",),
    ),
    (
        OutgoingRecord(
            request_id="r",
            segment_index=7,
            message_id="m",
            lamport_timestamp=1,
            history=(),
            propagated=False,
            transmissions=0,
            retransmissions=0,
            deadline_ns=0,
        ),
        ("r", 7),
    ),
    (BodyRecord(message_id="m", part="header", data=b""), ("m", "header")),
    (
        AcknowledgementRecord(request_id="r", participant_id="bob", position=0, segments=b"\1"),
        ("r", "bob"),
    ),
    (DebtRecord(message_id="m"), ("m",)),
    (LostRecord(message_id="m", lost_ns=1), ("m",)),
    (
        MissingRecord(
            message_id="m",
            sender_id=None,
            named_by="bob",
            since_ns=1,
            hints=b"",
            may_predate=False,
            claimed=False,
            excused=False,
        ),
        ("m",),
    ),
    (AskedRecord(message_id="m", next_ns=1, asked=1, deferred=0), ("m",)),
    (
        AnswerRecord(message_id="m", asked_by="bob", in_store=False, due_ns=1, given_ns=0),
        ("m",),
    ),
    (CompletedRecord(set_digest=b"d", held=b"\1", completed_ns=1), (b"d",)),  # type: ignore[list-item]
    (
        EventRecord(
            sequence=9,
            name="n",
            time_ns=1,
            request_id=None,
            message_id=None,
            sender_id=None,
            payload=None,
            detail="",
        ),
        (9,),
    ),
    (LedgerRecord(scope="node:600", epoch=1, used=2), ("node:600",)),
]


@pytest.mark.parametrize(("row", "key"), ROWS, ids=lambda item: type(item).__name__)
def test_a_row_is_identified_by_its_key_fields(row: Record, key: RecordKey) -> None:
    assert key_of(row) == key


def test_every_type_is_listed_once_and_has_its_key_among_its_fields() -> None:
    assert [type(row) for row, _ in ROWS] == list(RECORD_TYPES)
    for kind in RECORD_TYPES:
        assert set(kind.key_fields) <= {item.name for item in fields(kind)}


def test_rows_compare_and_hash_by_their_fields() -> None:
    assert len({DebtRecord(message_id="m"), DebtRecord(message_id="m")}) == 1
    assert DebtRecord(message_id="m") != DebtRecord(message_id="n")


def test_rows_of_a_type_are_found_and_absent_types_have_none() -> None:
    debts = [DebtRecord(message_id="m"), DebtRecord(message_id="n")]
    snapshot: Snapshot = {DebtRecord: debts}
    assert rows_of(snapshot, DebtRecord) == debts
    assert rows_of(snapshot, LostRecord) == []


def test_the_list_of_rows_is_the_callers_own() -> None:
    debts: list[Record] = [DebtRecord(message_id="m")]
    rows_of({DebtRecord: debts}, DebtRecord).clear()
    assert len(debts) == 1
