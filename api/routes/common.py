"""What the routes share: the service and the channel that a request is about, and documented problems.

Nothing here answers a request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Final

from fastapi import Depends, HTTPException, Path, Request, Response
from fastapi.routing import APIRoute

from api.problems import KINDS, MEDIA_TYPE, TYPE_PREFIX
from api.service import Service
from reliable_channel import ReliableChannel

PROBLEM_REFERENCE: Final = {"$ref": "#/components/schemas/Problem"}

EVERYWHERE: Final = (
    "bad-request",
    "unauthorized",
    "forbidden",
    "origin-not-allowed",
    "host-not-allowed",
    "invalid-request",
    "rate-limited",
    "headers-too-large",
    "internal-error",
    "starting",
    "closing",
)
"""Problems that any route under ``/v1`` may answer with."""

ON_A_CHANNEL: Final = ("channel-not-found", "channel-unavailable", "channel-failed", "lease-lost")
"""Problems of any route below a channel."""

JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"


def problems(*names: str) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of the problems that a route may answer with, by status.

    Args:
        names: Of `api.problems.KINDS`, besides those of every route.
    """
    by_status: dict[int | str, dict[str, Any]] = {}
    for name in dict.fromkeys((*names, *EVERYWHERE)):
        kind = KINDS[name]
        entry = by_status.setdefault(
            kind.status,
            {
                "description": "",
                "content": {MEDIA_TYPE: {"schema": PROBLEM_REFERENCE, "examples": {}}},
            },
        )
        entry["description"] += f"{'; ' if entry['description'] else ''}{kind.title} (`{name}`)"
        entry["content"][MEDIA_TYPE]["examples"][name] = {
            "value": {"type": TYPE_PREFIX + name, "title": kind.title, "status": kind.status}
        }
        if kind.retry_after_sec:
            text = "Seconds after which trying again makes sense"
            schema = {"type": "integer", "minimum": 1}
            entry["headers"] = {"Retry-After": {"description": text, "schema": schema}}
    return by_status


class DirectRoute(APIRoute):
    """A route that reads its request itself: it takes the request, returns the response, and has no dependencies.

    The framework only describes it: making dependencies and a response would be a third of the application's time.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint."""
        return self.endpoint


async def running_service(request: Request) -> Service:
    """Return the service, whatever its state."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


async def ready_service(service: Annotated[Service, Depends(running_service)]) -> Service:
    """Return the service.

    Raises:
        ServiceStartingError: Channels are being opened.
        ServiceClosingError: It is shutting down.
    """
    service.check_ready()
    return service


CHANNEL_ID_TEXT: Final = "The channel, percent-encoded: `/` is `%2F`."

ChannelId = Annotated[
    str,
    Path(
        alias="channelId",
        title="channelId",
        description=CHANNEL_ID_TEXT,
        examples=["room"],
    ),
]
"""The id of a channel in a path."""

ReadyService = Annotated[Service, Depends(ready_service)]
"""The service, ready."""


async def open_channel(channel_id: ChannelId, service: ReadyService) -> ReliableChannel:
    """Return the channel that a path names.

    Raises:
        ChannelNotFoundError: There is no such channel.
        ChannelUnavailableError: It is not open at the moment.
    """
    return service.get(channel_id)


OpenChannel = Annotated[ReliableChannel, Depends(open_channel)]
"""The open channel that a path names."""


def content_type(headers: Mapping[str, str]) -> str:
    """Return the media type of a body, without parameters.

    Raises:
        HTTPException: 415, the body is compressed.
    """
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HTTPException(415, "send the body without Content-Encoding")
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def json_only(request: Request) -> None:
    """Do nothing if the body is JSON.

    Raises:
        HTTPException: 415, it is something else.
    """
    if content_type(request.headers) != JSON:
        raise HTTPException(415, f"send the body with Content-Type: {JSON}")
