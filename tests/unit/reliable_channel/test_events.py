"""Events: the specification's names, and their way into the log and back."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, replace
from typing import get_args

import pytest

from reliable_channel.events import (
    DURABLE_EVENTS,
    EVENT_NAMES,
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageProgressEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    SenderIdConflictEvent,
    event_from_record,
    event_to_record,
)

PROGRESS = MessageProgressEvent(
    channel_id="room", request_id="r", sent=1, acknowledged=(("bob", 1),), total=2
)

EVENTS: list[ChannelEvent] = [
    MessageReceivedEvent(
        channel_id="room", sequence=1, time_ns=9, message=b"\0\xff", sender_id="al", message_id="m"
    ),
    MessageReceivedEvent(
        channel_id="room",
        sequence=1,
        time_ns=9,
        message=b"x",
        sender_id="zoë",
        message_id="m",
        ephemeral=True,
        late=True,
    ),
    MessageSentEvent(channel_id="room", sequence=2, time_ns=9, request_id="r"),
    MessageDeliveredEvent(channel_id="room", sequence=3, time_ns=9, request_id="r"),
    MessageDeliveredEvent(
        channel_id="room", sequence=3, time_ns=9, request_id="r", recipients=("bob", "zoë")
    ),
    MessageSendErrorEvent(
        channel_id="room", sequence=4, time_ns=9, request_id="r", error='a "line"'
    ),
    MessageDeliveryErrorEvent(
        channel_id="room", sequence=5, time_ns=9, request_id="r", error="no\nanswer"
    ),
    MessageQueuedEvent(
        channel_id="room", sequence=6, time_ns=9, request_id="r", expected_at=1 << 62
    ),
    MessageLostEvent(
        channel_id="room", sequence=7, time_ns=9, message_id="m", reason="parking_full"
    ),
    MessageLostEvent(
        channel_id="room", sequence=7, time_ns=9, message_id="m", sender_id="al", reason="x"
    ),
    SenderIdConflictEvent(channel_id="room", sequence=8, time_ns=9, sender_id="al", message_id="m"),
]

NAMED = [f"{number} {event.name}" for number, event in enumerate(EVENTS)]


def test_names_are_those_of_the_specification() -> None:
    assert {kind.__name__: kind.name for kind in get_args(ChannelEvent)} == {
        "MessageReceivedEvent": "reliable:message:received",
        "MessageSentEvent": "reliable:message:sent",
        "MessageDeliveredEvent": "reliable:message:delivered",
        "MessageSendErrorEvent": "reliable:message:send-error",
        "MessageDeliveryErrorEvent": "reliable:message:delivery-error",
        "MessageQueuedEvent": "reliable:message:queued",
        "MessageLostEvent": "reliable:message:lost",
        "MessageProgressEvent": "reliable:message:progress",
        "SenderIdConflictEvent": "reliable:channel:sender-id-conflict",
    }


def test_all_but_progress_are_durable() -> None:
    kinds = set(get_args(ChannelEvent))
    assert set(DURABLE_EVENTS.values()) == kinds - {MessageProgressEvent}
    assert all(kind.name == name for name, kind in DURABLE_EVENTS.items())
    assert sorted(EVENT_NAMES) == sorted(kind.name for kind in kinds)


@pytest.mark.parametrize("event", EVENTS, ids=NAMED)
def test_an_event_comes_back_from_its_row(event: ChannelEvent) -> None:
    record = event_to_record(event)
    assert event_from_record("room", record) == event
    assert record.sequence == event.sequence
    assert record.name == event.name
    assert record.time_ns == event.time_ns


@pytest.mark.parametrize("event", EVENTS, ids=NAMED)
def test_ids_and_payload_have_columns_and_the_rest_is_an_object(event: ChannelEvent) -> None:
    record = event_to_record(event)
    for column in ("request_id", "message_id", "sender_id"):
        assert getattr(record, column) == getattr(event, column, None)
    assert record.payload == getattr(event, "message", None)
    if record.detail:
        detail = json.loads(record.detail)
        assert detail.keys().isdisjoint({"message", "request_id", "message_id", "channel_id"})
        assert "\n" not in record.detail


def test_an_event_without_other_fields_has_no_detail() -> None:
    assert event_to_record(EVENTS[2]).detail == ""
    restored = replace(event_to_record(EVENTS[3]), detail="")
    assert event_from_record("room", restored) == EVENTS[3]


def test_fields_that_a_later_version_wrote_are_skipped() -> None:
    record = event_to_record(EVENTS[7])
    detail = json.dumps(json.loads(record.detail) | {"colour": "red"})
    assert event_from_record("room", replace(record, detail=detail)) == EVENTS[7]


def test_a_row_of_another_name_is_refused() -> None:
    record = replace(event_to_record(EVENTS[2]), name="reliable:message:seen")
    with pytest.raises(KeyError):
        event_from_record("room", record)


def test_live_events_are_never_read_back() -> None:
    assert PROGRESS.sequence == 0
    with pytest.raises(KeyError):
        event_from_record("room", event_to_record(PROGRESS))


def test_an_event_gets_its_place_as_a_copy() -> None:
    event = EVENTS[2]
    assert event.with_sequence(40) == replace(event, sequence=40)
    assert event.sequence == 2
    with pytest.raises(FrozenInstanceError):
        event.sequence = 3  # type: ignore[misc]


def test_a_payload_does_not_show_in_logs() -> None:
    assert "secret" not in repr(replace(EVENTS[0], message=b"secret"))
