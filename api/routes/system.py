"""Health, liveness and metrics, which monitors ask, and the page for people.

All answer in every state of the service. Nothing here counts or judges; that is `api.health` and
`api.metrics`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Response
from starlette.responses import JSONResponse

from api.health import health_body, live_body
from api.page import page_response
from api.routes.common import problems, running_service
from api.service import Service

router = APIRouter(tags=["service"])

RunningService = Annotated[Service, Depends(running_service)]

ListChannels = Annotated[
    bool, Query(description="`false` leaves the list of channels out; `status` counts them still")
]
"""Whether health is to name each channel."""

RETRY_AFTER_SEC: Final = 1
"""When to ask again while the service is not ready, seconds."""

HEALTH_EXAMPLE: Final = {
    "status": "ok",
    "node": {"status": "Connected"},
    "store": {"status": "ok", "lastCommitAt": "2026-01-31T12:00:00.000000Z"},
    "channels": [{"channelId": "room", "state": "open"}],
}

router.add_api_route("/", page_response, methods=["GET", "HEAD"], include_in_schema=False)


def _json(description: str, example: dict[str, Any]) -> dict[str, Any]:
    content = {"schema": {"type": "object"}, "example": example}
    return {"description": description, "content": {"application/json": content}}


@router.head("/health", include_in_schema=False)
@router.get(
    "/health",
    summary="Show how the service is",
    response_class=JSONResponse,
    responses={
        200: _json("The service is ready; `status` is `ok` or `degraded`", HEALTH_EXAMPLE),
        422: problems()[422],
        503: _json("It is `starting` or `closing`", {"status": "starting"}),
    },
)
async def health(service: RunningService, channels: ListChannels = True) -> Response:
    """Return how the node, the store and each channel are; 503 until the channels are open again."""
    status, body = await health_body(service)
    if not channels:
        body.pop("channels", None)
    headers = {"Retry-After": str(RETRY_AFTER_SEC)} if status == 503 else None
    return JSONResponse(body, status_code=status, headers=headers)


@router.head("/health/live", include_in_schema=False)
@router.get(
    "/health/live",
    summary="Show that the service lives",
    response_class=JSONResponse,
    responses={200: _json("It does", {"status": "live"})},
)
async def live() -> Response:
    """Answer, in every state of the service."""
    status, body = live_body()
    return JSONResponse(body, status_code=status)


@router.head("/metrics", include_in_schema=False)
@router.get(
    "/metrics",
    summary="Read metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus text",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        }
    },
)
async def metrics(service: RunningService) -> Response:
    """Return counters, gauges and histograms as Prometheus text."""
    data, media_type = service.metrics.render()
    return Response(data, headers={"Content-Type": media_type})
