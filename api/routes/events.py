"""What happens on a channel: as a stream of Server-Sent Events, or by polling.

Nothing here reads events; that is `api.streaming`.

Spec: WHATWG HTML, Server-sent events.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field
from starlette.responses import JSONResponse

from api.config_models import RequestModel
from api.models import MAX_PAGE, MAX_SEQUENCE, EventPage
from api.routes.common import ON_A_CHANNEL, OpenChannel, ReadyService, problems
from api.sockets import socket_route
from api.streaming import MAX_WAIT_SEC, cursor_of, event_response, poll_events

router = APIRouter(prefix="/v1/channels/{channelId:segment}", tags=["events"])

EVENT_STREAM: Final = "text/event-stream"

STREAM_EXAMPLE: Final = (
    "id: 7\nevent: reliable:message:received\n"
    'data: {"sequence":7,"name":"reliable:message:received","channelId":"room",'
    '"time":"2026-01-31T12:00:00.000000Z","messageId":"3f…","senderId":"bob",'
    '"payload":"aGVsbG8=","ephemeral":false,"late":false}\n\n'
)


def never_null(schema: dict[str, Any]) -> None:
    """Describe a parameter that may be left out: a query cannot say null."""
    (given,) = (one for one in schema.pop("anyOf") if one["type"] != "null")
    schema.update(given)


class EventQuery(RequestModel):
    """Which events to read, and how."""

    after: Annotated[
        int | None, Field(strict=False, ge=0, le=MAX_SEQUENCE, json_schema_extra=never_null)
    ] = None
    """Those after this sequence, 0 from the beginning; left out: from now on."""
    limit: Annotated[
        int | None, Field(strict=False, ge=1, le=MAX_PAGE, json_schema_extra=never_null)
    ] = None
    """Answer with at most so many events as JSON instead of a stream."""
    wait: Annotated[float, Field(strict=False, ge=0, le=MAX_WAIT_SEC, allow_inf_nan=False)] = 0
    """With `limit`: where there is no event yet, wait so long for the first, seconds."""


STREAM_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "A stream of events that does not end by itself; with `limit`, a page of them",
        "content": {
            EVENT_STREAM: {"schema": {"type": "string"}, "example": STREAM_EXAMPLE},
        },
    },
    **problems(
        *ON_A_CHANNEL,
        "channel-closed",
        "events-expired",
        "invalid-cursor",
        "store-unavailable",
        "too-many-streams",
    ),
}


@router.get(
    "/events",
    summary="Follow a channel's events",
    response_model=EventPage,
    responses=STREAM_RESPONSES,
    openapi_extra={
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "Resume after this sequence; it beats `after`",
                "schema": {"type": "string", "pattern": "^[0-9]{1,19}$"},
            }
        ]
    },
)
async def read_events(
    request: Request,
    channel: OpenChannel,
    service: ReadyService,
    query: Annotated[EventQuery, Query()],
) -> Response:
    """Return a stream of Server-Sent Events, or with `limit` a page of them.

    Durable events have `id`, their sequence: a client that resumes with `Last-Event-ID` misses none and gets none
    twice. Progress is live only and has no `id`. The last event of a stream that the service ends is `stream:slow` or
    `stream:closing`.
    """
    if query.limit is None:
        return await event_response(service, channel, request, after=query.after)
    page = await poll_events(
        channel,
        after=cursor_of(request.headers, query.after),
        limit=query.limit,
        wait=query.wait,
        closing=service.closing,
    )
    return JSONResponse(page)


router.add_api_websocket_route("/ws", socket_route)
