"""What goes over the wire: pydantic models in camelCase that forbid what they do not know.

The models of ``sds``, ``segmentation`` and ``rateLimit`` are made from the library's configurations, so that they
cannot drift apart. Nothing here opens or sends anything.

Spec: RELIABLE-CHANNEL-API, Type definitions; ARCHITECTURE, REST.
"""

from __future__ import annotations

import binascii
from typing import Annotated, Any, Final, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from api.config_models import (
    RateLimitModel,
    RequestModel,
    SdsModel,
    SegmentationModel,
    StatusModel,
    WireModel,
)
from reliable_channel import (
    ChannelStatus,
    RateLimitConfig,
    RequestStatus,
    SdsConfig,
    SegmentationConfig,
    SegmentState,
)
from reliable_channel.core.wire.topics import MAX_TOPIC_LENGTH, parse_content_topic
from reliable_channel.errors import InvalidContentTopicError
from reliable_channel.identifiers import MAX_IDENTIFIER_BYTES, is_identifier

MAX_SEQUENCE: Final = (1 << 63) - 1
"""Largest cursor that a database takes."""

MAX_PAGE: Final = 1_000
"""Most messages or events in one answer."""

BASE64: Final = (
    r"^(?:[A-Za-z0-9+/]{4})*"
    r"(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$"
)
"""Standard base64 with padding and without stray bits: one text for each payload."""


def _check_identifier(text: str) -> str:
    if not is_identifier(text):
        raise PydanticCustomError("identifier", IDENTIFIER_RULE)
    return text


def _check_topic(text: str) -> str:
    try:
        parse_content_topic(text)
    except InvalidContentTopicError as error:
        raise PydanticCustomError("content_topic", "{reason}", {"reason": error.reason}) from None
    return text


IDENTIFIER_RULE: Final = (
    f"must be 1 to {MAX_IDENTIFIER_BYTES} bytes of UTF-8 without control characters"
)

Identifier = Annotated[
    str,
    Field(min_length=1, max_length=MAX_IDENTIFIER_BYTES),
    AfterValidator(_check_identifier),
    WithJsonSchema(
        {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_IDENTIFIER_BYTES,
            "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$",
            "description": f"{IDENTIFIER_RULE.removeprefix('must be ').capitalize()}.",
        }
    ),
]
"""A channel or sender id."""

TOPIC: Final = r"^(?:/(?:0|[1-9][0-9]{0,9}))?(?:/[^/\u0000-\u0020\u007f-\u00a0]+){4}$"
"""What a content topic looks like; `parse_content_topic` decides, for it knows what is printable."""

ContentTopic = Annotated[
    str,
    Field(min_length=1, max_length=MAX_TOPIC_LENGTH, json_schema_extra={"pattern": TOPIC}),
    AfterValidator(_check_topic),
]
"""A content topic of 23/TOPICS."""


class EncryptionSettings(RequestModel):
    """How the channel's messages are encrypted."""

    scheme: Literal["aes-256-gcm"]
    """The one scheme there is."""
    key_ref: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
    """Name of a key that the service has; the key itself is never sent, shown or stored."""


class ChannelRequest(RequestModel):
    """A channel to open."""

    channel_id: Identifier
    """Identifies the channel; all its participants use the same."""
    content_topic: ContentTopic
    """Where its messages go: /application/version/name/encoding (23/TOPICS). It cannot change."""
    sender_id: Identifier
    """Who we are on it; unique among participants. It cannot change."""
    encryption: EncryptionSettings | None = None
    """Null sends plaintext."""
    sds: SdsModel | None = None  # type: ignore[valid-type]
    """Instead of the defaults. The size of the bloom filter cannot change."""
    segmentation: SegmentationModel | None = None  # type: ignore[valid-type]
    """Instead of the defaults."""
    rate_limit: RateLimitModel | None = None  # type: ignore[valid-type]
    """Narrows the node's limit for this channel."""

    def configs(self) -> tuple[SdsConfig, SegmentationConfig, RateLimitConfig]:
        """Return the settings as the library takes them.

        Raises:
            ConfigurationError: Values contradict each other.
        """
        return (
            SdsConfig(**_given(self.sds)),
            SegmentationConfig(**_given(self.segmentation)),
            RateLimitConfig(**_given(self.rate_limit)),
        )

    def differences(self, other: ChannelRequest) -> tuple[str, ...]:
        """Return the members, as spelled on the wire, in which two requests ask for different things."""
        mine, others = self._effective(), other._effective()
        return tuple(name for name, value in mine.items() if value != others[name])

    def _effective(self) -> dict[str, object]:
        sds, segmentation, rate_limit = self.configs()
        return {
            "channelId": self.channel_id,
            "contentTopic": self.content_topic,
            "senderId": self.sender_id,
            "encryption": self.encryption,
            "sds": sds,
            "segmentation": segmentation,
            "rateLimit": rate_limit,
        }

    def to_text(self) -> str:
        """Return the request as the registry keeps it."""
        return self.model_dump_json(exclude_unset=True)


def _given(model: BaseModel | None) -> dict[str, Any]:
    """Return what was given of a configuration."""
    return {} if model is None else model.model_dump(exclude_unset=True, by_alias=False)


REQUEST_ID: Final = "5f1d7a09c3e24b86"

ACCEPTED_EXAMPLE: Final[JsonDict] = {"requestId": REQUEST_ID}

PAGE_EXAMPLE: Final[JsonDict] = {
    "messages": [
        {
            "sequence": 7,
            "payload": "aGVsbG8=",
            "senderId": "bob",
            "messageId": "0x8a3c",
            "receivedAt": "2026-01-31T12:00:00.000000Z",
            "ephemeral": False,
            "late": False,
        }
    ],
    "next": 7,
}

REQUEST_EXAMPLE: Final[JsonDict] = {
    "requestId": REQUEST_ID,
    "state": "delivered",
    "final": True,
    "ephemeral": False,
    "error": None,
    "recipients": ["bob"],
    "segments": [
        {
            "id": f"{REQUEST_ID}:1",
            "messageId": "0x8a3c",
            "state": "acknowledged",
            "transmissions": 1,
        }
    ],
}
"""What the description of the routes shows."""


# --- Answers -------------------------------------------------------------------------------------


class Epoch(WireModel):
    """The node's epoch budget; all its channels draw from it."""

    enabled: bool
    epoch: int
    """Number of the current epoch."""
    messages_per_epoch: int
    """Transmissions allowed in an epoch."""
    used: int
    """Transmissions counted in this one."""
    left: int
    """Transmissions left in this one."""
    resets_at: str
    """When the next one begins, RFC 3339."""


class Channel(WireModel):
    """An open channel: its settings as they were given, its state and counters."""

    channel_id: str
    content_topic: str
    sender_id: str
    encryption: EncryptionSettings | None
    sds: SdsModel | None  # type: ignore[valid-type]
    segmentation: SegmentationModel | None  # type: ignore[valid-type]
    rate_limit: RateLimitModel | None  # type: ignore[valid-type]
    last_event_sequence: int
    """Sequence of the last durable event; 0 before any."""
    max_payload_bytes: int
    """Largest payload of one message, bytes."""
    status: StatusModel  # type: ignore[valid-type]
    epoch: Epoch | None
    """Null where the rate is not limited."""


class UnavailableChannel(WireModel):
    """A channel of this service that could not be opened again; it is tried again by itself."""

    channel_id: str
    reason: str
    """Why it could not be opened the last time."""
    retry_at: str
    """When it is tried again, RFC 3339."""


class ChannelList(WireModel):
    """All channels of this service."""

    channels: list[Channel]
    """Those that are open, in the order in which they were made."""
    unavailable: list[UnavailableChannel]
    """Those that are not."""


class Accepted(WireModel):
    """A message that is stored and will be sent."""

    model_config = ConfigDict(json_schema_extra={"examples": [ACCEPTED_EXAMPLE]})

    request_id: str
    """What its events carry."""


def decode_payload(given: object) -> bytes:
    """Return the bytes of standard base64 with padding, and of nothing else.

    Raises:
        PydanticCustomError: It is something else; the text does not say what.
    """
    if not isinstance(given, str):
        raise PydanticCustomError("base64", "must be a string of base64")
    try:
        data = binascii.a2b_base64(given, strict_mode=True)
    except ValueError:  # binascii.Error is one, and so is text that is not ASCII
        data = None
    last = b"" if not data else data[-((len(data) - 1) % 3 + 1) :]
    if data is None or binascii.b2a_base64(last, newline=False) != given[-4:].encode():
        raise PydanticCustomError("base64", "must be standard base64 with padding (RFC 4648)")
    return data


class SendRequest(RequestModel):
    """A message to send."""

    payload: Annotated[
        bytes,
        BeforeValidator(decode_payload),
        WithJsonSchema({"type": "string", "minLength": 4, "pattern": BASE64}),
    ]
    """Standard base64 with padding; at least one byte."""
    ephemeral: bool = False
    """Outside causal order: not acknowledged, not repeated, not stored by the network."""


class ReceivedMessage(WireModel):
    """A received message."""

    sequence: int
    """Its place among the channel's events."""
    payload: str
    """Base64."""
    sender_id: str
    """Who sent it, as the message says; not authenticated."""
    message_id: str
    received_at: str
    """RFC 3339."""
    ephemeral: bool
    late: bool
    """It came after it had been declared lost."""


class MessagePage(WireModel):
    """Received messages in order."""

    model_config = ConfigDict(json_schema_extra={"examples": [PAGE_EXAMPLE]})

    messages: list[ReceivedMessage]
    next: int
    """What to give as `after` for what follows; it grows even when no message was among the events read."""


class EventPage(WireModel):
    """Events in order."""

    events: list[dict[str, Any]]
    """Each with `sequence`, `name`, `channelId`, `time` and what else its kind has; docs/rest.md names it all."""
    next: int
    """What to give as `after` for what follows."""


class SegmentView(WireModel):
    """How far one data segment is."""

    id: str
    message_id: str
    state: Literal["queued", "sent", "possibly-acknowledged", "acknowledged"]
    transmissions: int


class RequestView(WireModel):
    """How far a request is."""

    model_config = ConfigDict(json_schema_extra={"examples": [REQUEST_EXAMPLE]})

    request_id: str
    state: Literal["open", "sent", "delivered", "send-error", "delivery-error"]
    final: bool
    """Nothing of its state will change, but for more recipients."""
    ephemeral: bool
    error: str | None
    """Why it failed, when it did."""
    recipients: list[str]
    """Participants that have acknowledged all of it."""
    segments: list[SegmentView]
    """Empty once it is final and its segments are forgotten."""


class ProblemDocument(BaseModel):
    """A problem document, RFC 9457; docs/rest.md describes each type."""

    model_config = ConfigDict(extra="allow", title="Problem")

    type: str
    """URI reference of the kind of problem."""
    title: str
    status: int
    detail: str | None = None
    instance: str | None = None


def request_view(status: RequestStatus) -> RequestView:
    """Return a request's state for the wire."""
    return RequestView(
        request_id=status.request_id,
        state=cast("Any", status.state.value),
        final=status.is_final,
        ephemeral=status.ephemeral,
        error=status.error or None,
        recipients=list(status.recipients),
        segments=[
            SegmentView(
                id=item.segment_id,
                message_id=item.message_id,
                state=cast("Any", segment_state(item.state)),
                transmissions=item.transmissions,
            )
            for item in status.segments
        ],
    )


def segment_state(state: SegmentState) -> str:
    """Return the wire's word: what the node has not reported counts as queued."""
    return "queued" if state is SegmentState.IN_FLIGHT else state.value


def status_model(status: ChannelStatus) -> BaseModel:
    """Return sizes and counters for the wire."""
    return StatusModel(**{name: getattr(status, name) for name in StatusModel.model_fields})
