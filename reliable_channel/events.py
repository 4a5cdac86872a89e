"""What a channel tells the application: frozen events, named as the specification names them.

Each event has ``name``, the specification's string, ``channel_id``, and ``sequence``: per channel, from 1, one
numbering for all durable events, growing across restarts. Live-only events have ``sequence`` 0.

Every request ends in exactly one of delivered, send-error and delivery-error; an ephemeral one in sent or send-error.

Spec: RELIABLE-CHANNEL-API, Type definitions, events.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import ClassVar, Self, TypeAlias, cast

from reliable_channel.records import EventRecord
from reliable_channel.types import ChannelId, MessageId, Nanoseconds, ParticipantId, RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelEventBase:
    """What all events share."""

    name: ClassVar[str]
    channel_id: ChannelId
    sequence: int = 0
    """Position in the channel's event log, from 1; 0 for live-only events."""
    time_ns: Nanoseconds = 0
    """When it happened, Unix time in nanoseconds."""

    def with_sequence(self, sequence: int) -> Self:
        """Return the same event at a position of the log."""
        return replace(self, sequence=sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageReceivedEvent(ChannelEventBase):
    """A whole message has arrived and everything it depends on was delivered before it."""

    name: ClassVar[str] = "reliable:message:received"
    message: bytes = field(repr=False)
    """The payload as it was given to ``send``."""
    sender_id: ParticipantId
    """Who sent it, as the message says; not authenticated."""
    message_id: MessageId
    """Id of the payload's first data segment."""
    ephemeral: bool = False
    """Sent as ephemeral: not ordered, not acknowledged."""
    late: bool = False
    """It came after it had been declared lost, so later than messages that depend on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSentEvent(ChannelEventBase):
    """All data segments were handed to the network. It does not prove that anyone has them."""

    name: ClassVar[str] = "reliable:message:sent"
    request_id: RequestId


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDeliveredEvent(ChannelEventBase):
    """At least one participant has acknowledged the whole message."""

    name: ClassVar[str] = "reliable:message:delivered"
    request_id: RequestId
    recipients: tuple[ParticipantId, ...] = ()
    """Who has acknowledged all of it so far; more may follow, see the request's state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSendErrorEvent(ChannelEventBase):
    """One or more segments could not be handed to the network; the message was never fully sent."""

    name: ClassVar[str] = "reliable:message:send-error"
    request_id: RequestId
    error: str
    """What happened, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageDeliveryErrorEvent(ChannelEventBase):
    """No participant has acknowledged the whole message although all retransmissions were used.

    The message reached the network: somebody may have it all the same.
    """

    name: ClassVar[str] = "reliable:message:delivery-error"
    request_id: RequestId
    error: str
    """What happened, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageQueuedEvent(ChannelEventBase):
    """A request has to wait for the rate limiter."""

    name: ClassVar[str] = "reliable:message:queued"
    request_id: RequestId
    expected_at: Nanoseconds
    """When its first waiting segment is expected to go out, Unix time in nanoseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLostEvent(ChannelEventBase):
    """A message of another participant that is known to exist will not be waited for any longer."""

    name: ClassVar[str] = "reliable:message:lost"
    message_id: MessageId
    """The SDS message that is missing."""
    sender_id: ParticipantId | None = None
    """Who sent it, where known."""
    reason: str
    """``dependency_timeout``, ``parking_full``, ``incomplete_timeout`` or ``incomplete_payloads_full``."""
    explanation: str = ""
    """What was missing and for how long, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageProgressEvent(ChannelEventBase):
    """How far a request is; live only, sequence 0."""

    name: ClassVar[str] = "reliable:message:progress"
    request_id: RequestId
    sent: int
    """Data segments handed to the network."""
    acknowledged: tuple[tuple[ParticipantId, int], ...]
    """For each participant that acknowledged any: how many data segments it has."""
    total: int
    """Data segments of the request."""
    recipients: tuple[ParticipantId, ...] = ()
    """Who has acknowledged all of them; it goes on growing after the delivered event."""
    participants: int = 0
    """Other participants heard within the last ten minutes: "delivered to 3 of the 5 seen"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderIdConflictEvent(ChannelEventBase):
    """Somebody else uses this channel's sender id: two devices, or state that was lost. Raised once."""

    name: ClassVar[str] = "reliable:channel:sender-id-conflict"
    sender_id: ParticipantId
    message_id: MessageId
    """The first message seen that carries our sender id and is not ours."""


ChannelEvent: TypeAlias = (
    MessageReceivedEvent
    | MessageSentEvent
    | MessageDeliveredEvent
    | MessageSendErrorEvent
    | MessageDeliveryErrorEvent
    | MessageQueuedEvent
    | MessageLostEvent
    | MessageProgressEvent
    | SenderIdConflictEvent
)
"""Any event of a channel, for ``match`` and for type checkers."""

DURABLE_EVENTS: dict[str, type[ChannelEvent]] = {
    event.name: event
    for event in (
        MessageReceivedEvent,
        MessageSentEvent,
        MessageDeliveredEvent,
        MessageSendErrorEvent,
        MessageDeliveryErrorEvent,
        MessageQueuedEvent,
        MessageLostEvent,
        SenderIdConflictEvent,
    )
}
"""Name to class, of the events that are kept in the log."""

EVENT_NAMES: tuple[str, ...] = (*DURABLE_EVENTS, MessageProgressEvent.name)
"""The names that ``channel.on`` accepts."""

_COLUMNS = {
    "channel_id", "sequence", "time_ns", "request_id", "message_id", "sender_id", "message"
}  # fmt: skip

_DETAILS: dict[str, tuple[str, ...]] = {
    name: tuple(item.name for item in fields(kind) if item.name not in _COLUMNS)
    for name, kind in DURABLE_EVENTS.items()
}
"""Fields of each kind of event that have no column of their own."""

_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


@lru_cache(maxsize=64, typed=True)  # most events of a kind say the same
def _detail(name: str, *values: object) -> str:
    """Return the JSON object of an event's fields that have no column."""
    return _encode(dict(zip(_DETAILS[name], values, strict=True))) if values else ""


def event_to_record(event: ChannelEvent) -> EventRecord:
    """Return the row of the event log that holds this event."""
    name = event.name
    others = _DETAILS[name]
    return EventRecord(
        sequence=event.sequence,
        name=name,
        time_ns=event.time_ns,
        request_id=getattr(event, "request_id", None),
        message_id=getattr(event, "message_id", None),
        sender_id=getattr(event, "sender_id", None),
        payload=getattr(event, "message", None),
        detail=_detail(name, *[getattr(event, item) for item in others]) if others else "",
    )


def event_from_record(channel_id: ChannelId, record: EventRecord) -> ChannelEvent:
    """Return the event that a row of the event log holds.

    Raises:
        KeyError: The row's name is not one of ``DURABLE_EVENTS``.
    """
    kind = DURABLE_EVENTS[record.name]
    values: dict[str, object] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (json.loads(record.detail) if record.detail else {}).items()
    }
    known = {item.name for item in fields(kind)}
    for name in ("request_id", "message_id", "sender_id"):
        if name in known:
            values[name] = getattr(record, name)
    if "message" in known:
        values["message"] = record.payload or b""
    values.update(channel_id=channel_id, sequence=record.sequence, time_ns=record.time_ns)
    build = cast("type[MessageReceivedEvent]", kind)
    return build(**{name: value for name, value in values.items() if name in known})  # type: ignore[arg-type]
