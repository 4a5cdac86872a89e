"""The outbox: rows by key, events in one numbering, counters."""

from __future__ import annotations

from dataclasses import replace

from reliable_channel.core.effects import Publish
from reliable_channel.core.outbox import Outbox
from reliable_channel.events import MessageProgressEvent, MessageSentEvent, event_to_record
from reliable_channel.records import DebtRecord, EventRecord, LostRecord, OutgoingRecord

SENT = MessageSentEvent(channel_id="room", time_ns=5, request_id="r")
PROGRESS = MessageProgressEvent(
    channel_id="room", request_id="r", sent=1, acknowledged=(("bob", 1),), total=2
)


def test_taking_begins_anew() -> None:
    outbox = Outbox()
    outbox.publish(Publish("r:1", b"x"))
    outbox.fetch((b"h",))
    taken = outbox.take()
    assert [publish.segment_id for publish in taken.publishes] == ["r:1"]
    assert [fetch.hashes for fetch in taken.fetches] == [(b"h",)]
    assert not outbox.take()
    assert taken


def test_a_row_is_written_whole_under_its_type_and_key() -> None:
    outbox = Outbox()
    outbox.put(LostRecord(message_id="a", lost_ns=1))
    outbox.put(LostRecord(message_id="a", lost_ns=2))
    outbox.put_at(("a",), DebtRecord(message_id="a"))
    assert outbox.take().changes == {
        (LostRecord, ("a",)): LostRecord(message_id="a", lost_ns=2),
        (DebtRecord, ("a",)): DebtRecord(message_id="a"),
    }


def test_a_reserved_row_keeps_its_place_among_the_changes() -> None:
    outbox = Outbox()
    outbox.reserve(LostRecord, "a")
    outbox.put(DebtRecord(message_id="b"))
    outbox.put(LostRecord(message_id="a", lost_ns=1))
    assert list(outbox.take().changes.items()) == [
        ((LostRecord, ("a",)), LostRecord(message_id="a", lost_ns=1)),
        ((DebtRecord, ("b",)), DebtRecord(message_id="b")),
    ]


def test_what_comes_last_counts_writing_or_deleting() -> None:
    outbox = Outbox()
    outbox.put(DebtRecord(message_id="a"))
    outbox.delete(DebtRecord, "a")
    outbox.delete(DebtRecord, "b")
    outbox.put(DebtRecord(message_id="b"))
    outbox.delete(OutgoingRecord, "r", 0)
    assert outbox.take().changes == {
        (DebtRecord, ("a",)): None,
        (DebtRecord, ("b",)): DebtRecord(message_id="b"),
        (OutgoingRecord, ("r", 0)): None,
    }


def test_a_row_that_was_written_by_the_same_input_need_not_be_deleted() -> None:
    outbox = Outbox()
    outbox.put(DebtRecord(message_id="a"))
    outbox.discard(DebtRecord, "a")
    outbox.discard(DebtRecord, "b")
    assert outbox.take().changes == {(DebtRecord, ("b",)): None}


def test_durable_events_are_numbered_stored_and_shown() -> None:
    outbox = Outbox(last_sequence=41)
    outbox.emit(replace(SENT))
    outbox.emit(replace(SENT))
    effects = outbox.take()
    assert effects.events == [SENT.with_sequence(42), SENT.with_sequence(43)]
    assert effects.changes == {
        (EventRecord, (number,)): event_to_record(SENT.with_sequence(number)) for number in (42, 43)
    }
    assert outbox.last_sequence == 43


def test_live_events_are_only_shown_and_take_no_number() -> None:
    outbox = Outbox(last_sequence=41)
    outbox.emit(PROGRESS)
    effects = outbox.take()
    assert effects.events == [PROGRESS]
    assert effects.events[0].sequence == 0
    assert not effects.changes
    assert outbox.last_sequence == 41


def test_counters_grow_and_outlive_taking() -> None:
    outbox = Outbox()
    outbox.count("requests")
    outbox.count("requests", 2)
    outbox.count("nothing", 0)
    outbox.drop("malformed")
    outbox.drop("malformed")
    outbox.take()
    assert outbox.counters["requests"] == 3
    assert outbox.dropped == {"malformed": 2}


def test_what_is_replaced_stays_deleted_when_its_successor_is_discarded() -> None:
    outbox = Outbox()
    row = DebtRecord(message_id="m")
    outbox.replace(DebtRecord, "m")
    outbox.put(row)
    outbox.discard(DebtRecord, "m")
    assert outbox.take().changes == {(DebtRecord, ("m",)): None}
    outbox.put(row)
    outbox.discard(DebtRecord, "m")
    assert outbox.take().changes == {}
