"""Sending messages, reading received ones, and asking what became of a request.

Nothing here may log or echo a payload.
"""

from __future__ import annotations

import binascii
from typing import Annotated, Final

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import Field, ValidationError

from api.config_models import RequestModel
from api.models import (
    IDENTIFIER_RULE,
    MAX_PAGE,
    MAX_SEQUENCE,
    Accepted,
    MessagePage,
    ReceivedMessage,
    RequestView,
    SendRequest,
    request_view,
)
from api.paths import quote_segment
from api.readers import rfc3339
from api.routes.common import (
    CHANNEL_ID_TEXT,
    JSON,
    OCTETS,
    ON_A_CHANNEL,
    DirectRoute,
    OpenChannel,
    content_type,
    problems,
)
from api.service import Service
from reliable_channel import MessageReceivedEvent, ReliableChannel
from reliable_channel.identifiers import is_identifier

PREFIX: Final = "/v1/channels/{channelId:segment}"

router = APIRouter(prefix=PREFIX, tags=["messages"])

busy_router = APIRouter(prefix=PREFIX, tags=["messages"], route_class=DirectRoute)
"""Of the one route that most requests are for."""

MAX_SCANNED: Final = 10_000
"""Events that one call looks through for messages."""

MAX_PAGE_BYTES: Final = 8 << 20
"""Payload bytes after which a page ends; it has at least one message where there is any."""

FIRST_READ: Final = 16
LARGEST_READ: Final = 256
"""Events that are read from the store at once: payloads may be large, so it begins with few."""

KEY_HEADER: Final = "Idempotency-Key"

RequestId = Annotated[
    str,
    Path(alias="requestId", title="requestId", description="What sending a message answered with."),
]
"""The id of a request in a path."""


class PageQuery(RequestModel):
    """Which messages to read."""

    after: Annotated[int, Field(strict=False, ge=0, le=MAX_SEQUENCE)] = 0
    """Those after this sequence; 0 from the beginning, then `next` of the page before."""
    limit: Annotated[int, Field(strict=False, ge=1, le=MAX_PAGE)] = 100
    """Most messages on the page; it may have fewer although more follow."""


class SendQuery(RequestModel):
    """How a message is sent."""

    ephemeral: Annotated[bool, Field(strict=False)] = False
    """For raw bodies: outside causal order, not acknowledged, not repeated."""


SEND_PARAMETERS: Final = [
    {
        "name": "channelId",
        "in": "path",
        "required": True,
        "description": CHANNEL_ID_TEXT,
        "schema": {"type": "string"},
    },
    {
        "name": "ephemeral",
        "in": "query",
        "required": False,
        "description": SendQuery.model_fields["ephemeral"].description,
        "schema": {"type": "boolean", "default": False},
    },
    {
        "name": KEY_HEADER,
        "in": "header",
        "required": False,
        "description": "1 to 255 bytes; a repeat with the same message sends nothing and answers "
        "with the first request's id, also after a restart",
        "schema": {
            "type": "string",
            "minLength": 1,
            "maxLength": 255,
            "pattern": "^[!-~]([ -~]*[!-~])?$",
        },
    },
]
"""What the framework would find out by itself, were it given the time: see `send_message`."""


@busy_router.post(
    "/messages",
    summary="Send a message",
    status_code=202,
    response_model=Accepted,
    responses={
        202: {
            "description": "It is stored and will be sent",
            "headers": {
                "Location": {"description": "The request", "schema": {"type": "string"}},
            },
        },
        **problems(
            *ON_A_CHANNEL,
            "channel-closed",
            "channel-full",
            "empty-payload",
            "idempotency-conflict",
            "invalid-payload",
            "message-too-large",
            "not-allowed",
            "payload-too-large",
            "store-unavailable",
            "outcome-unknown",
            "unsupported-media-type",
        ),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": {"$ref": "#/components/schemas/SendRequest"},
                    "examples": {"text": {"value": {"payload": "aGVsbG8=", "ephemeral": False}}},
                },
                OCTETS: {"schema": {"type": "string", "format": "binary", "minLength": 1}},
            },
        },
        "parameters": SEND_PARAMETERS,
    },
)
async def send_message(request: Request) -> Response:
    """Send a message: JSON with a base64 payload, or the raw bytes as `application/octet-stream`.

    It is stored when this answers; the channel's events tell what becomes of it. A full channel answers 429 and has
    stored nothing.
    """
    service: Service = request.app.state.service
    service.check_ready()
    channel = service.get(request.path_params["channelId"])
    by_query = send_query(request)
    payload, by_body = await read_message(request)
    ephemeral = by_query or by_body
    request_id = await channel.send_nowait(
        payload, ephemeral=ephemeral, idempotency_key=idempotency_key(request)
    )
    path = f"/v1/channels/{quote_segment(channel.channel_id)}/requests/{quote_segment(request_id)}"
    return Response(
        b'{"requestId":"%s"}' % request_id.encode(),
        status_code=202,
        headers={"Location": path},
        media_type=JSON,
    )


async def read_message(request: Request) -> tuple[bytes, bool]:
    """Return the payload that a request carries, and whether it says ephemeral.

    Raises:
        HTTPException: 415, the body is of another type.
        RequestValidationError: It does not fit the model.
    """
    match content_type(request.headers):
        case "application/json":
            try:
                message = SendRequest.model_validate_json(await request.body())
            except ValidationError as error:
                raise located(error, "body") from None
            return message.payload, message.ephemeral
        case "application/octet-stream":
            return await request.body(), False
    raise HTTPException(415, f"send the body with Content-Type: {JSON} or {OCTETS}")


def send_query(request: Request) -> bool:
    """Return whether the query says ephemeral.

    Raises:
        RequestValidationError: It says something else.
    """
    if not request.scope["query_string"]:
        return False
    try:
        return SendQuery.model_validate(dict(request.query_params)).ephemeral
    except ValidationError as error:
        raise located(error, "query") from None


def located(error: ValidationError, place: str) -> RequestValidationError:
    """Return what is wrong with a part of a request, without what was given."""
    found = error.errors(include_input=False, include_url=False, include_context=False)
    return RequestValidationError([{**item, "loc": (place, *item["loc"])} for item in found])


def idempotency_key(request: Request) -> str | None:
    """Return the key of a request, None where it has none.

    Raises:
        RequestValidationError: There are two, or it is none that can be kept.
    """
    name = KEY_HEADER.lower().encode()
    keys = [value for key, value in request.scope["headers"] if key == name]
    if not keys:
        return None
    problem = "must be given once"
    if len(keys) == 1:
        key = str(keys[0], "utf-8", "surrogateescape")
        if is_identifier(key):
            return key
        problem = IDENTIFIER_RULE
    raise RequestValidationError([{"loc": ("header", KEY_HEADER), "msg": problem}])


@router.get(
    "/messages",
    summary="Read received messages",
    response_model=MessagePage,
    responses=problems(*ON_A_CHANNEL, "channel-closed", "events-expired", "store-unavailable"),
)
async def read_messages(channel: OpenChannel, query: Annotated[PageQuery, Query()]) -> MessagePage:
    """Return received messages in order, from a durable cursor; reading removes nothing.

    An answer may have fewer messages than asked for, even none, although more follow: ask again with `next` until it
    stays the same.
    """
    return await message_page(channel, after=query.after, limit=query.limit)


async def message_page(channel: ReliableChannel, *, after: int, limit: int) -> MessagePage:
    """Return the received messages among the events after a sequence.

    Raises:
        EventsExpiredError: Some of the events are no longer kept.
        StoreUnavailableError: The store failed.
    """
    found: list[ReceivedMessage] = []
    octets, scanned, count = 0, 0, FIRST_READ
    while len(found) < limit and octets < MAX_PAGE_BYTES and scanned < MAX_SCANNED:
        events = await channel.read_events(after=after, limit=count)
        for event in events:
            if len(found) == limit or (found and octets >= MAX_PAGE_BYTES):
                break
            after = event.sequence
            if isinstance(event, MessageReceivedEvent):
                found.append(received_message(event))
                octets += len(event.message)
        if len(events) < count:
            break
        scanned += len(events)
        count = min(2 * count, LARGEST_READ)
    return MessagePage(messages=found, next=after)


def received_message(event: MessageReceivedEvent) -> ReceivedMessage:
    """Return a received message for the wire."""
    return ReceivedMessage(
        sequence=event.sequence,
        payload=binascii.b2a_base64(event.message, newline=False).decode(),
        sender_id=event.sender_id,
        message_id=event.message_id,
        received_at=rfc3339(event.time_ns),
        ephemeral=event.ephemeral,
        late=event.late,
    )


@router.get(
    "/requests/{requestId:segment}",
    summary="Show what became of a message",
    response_model=RequestView,
    responses=problems(*ON_A_CHANNEL, "request-not-found"),
)
async def show_request(channel: OpenChannel, request_id: RequestId) -> RequestView:
    """Return how far a request is, segment by segment."""
    return request_view(channel.request_status(request_id))
