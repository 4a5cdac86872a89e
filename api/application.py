"""The web application: one lifespan around the service, all routes, every error as a problem document.

Nothing here decides anything about channels; routes are in `api.routes`, security is in `api.security`.

Spec: ARCHITECTURE, Command line and REST; RFC 9457.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.busy import Answering, Application, ShortWay
from api.keys import KeyRing
from api.models import ProblemDocument, SendRequest
from api.paths import RawPathMiddleware
from api.problems import (
    Problem,
    invalid_request,
    log_problem,
    problem_of,
    problem_of_status,
    problem_response,
)
from api.refusal import note_route, shown_path
from api.routes import channels, events, messages, system
from api.service import Service
from api.settings import ServiceSettings
from reliable_channel import ChannelFailedError, ReliableChannelError, __version__

DESCRIPTION: Final = (
    "Messages that arrive whole, once and in causal order, over networks that promise none of it. "
    "JSON is in camelCase, payloads are base64, errors are problem documents (RFC 9457)."
)

TAGS: Final = [
    {"name": "channels", "description": "Opening and closing channels, their state and counters."},
    {"name": "messages", "description": "Sending, and reading what was received."},
    {"name": "events", "description": "What happens on a channel: as a stream, or by polling."},
    {"name": "service", "description": "Health and metrics."},
]

ROUTERS: Final = (
    messages.busy_router,
    messages.router,
    channels.router,
    events.router,
    system.router,
)
"""All routes; the busiest first, for they are gone through in this order."""


def create_app(settings: ServiceSettings, *, keys: KeyRing) -> FastAPI:
    """Return the application; its lifespan opens and closes everything.

    Args:
        settings: Of the service.
        keys: What channels may encrypt with.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    service = Service(settings, keys=keys)
    app = Application(
        title="Reliable Channel",
        version=__version__,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=lifespan,
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.service = service
    app.state.streams = service.streams
    # Not `include_router`: then each request would be matched with two levels of routes.
    app.router.routes.extend(chain.from_iterable(router.routes for router in ROUTERS))
    for kind, answers in ANSWERS.items():
        app.add_exception_handler(kind, answers)
    app.add_middleware(FaultMiddleware)
    app.add_middleware(RawPathMiddleware)
    (busy,) = messages.busy_router.routes
    assert isinstance(busy, APIRoute)
    app.shorten(busy, FaultMiddleware(ShortWay(busy.endpoint, ANSWERS)))
    app.openapi = lambda: openapi(app)  # type: ignore[method-assign]
    return app


# --- Errors --------------------------------------------------------------------------------------


def answer(request: Request, problem: Problem, cause: BaseException | None = None) -> Response:
    """Return a problem as a response, and write its one line."""
    log_problem(problem, request.method, cause)
    return problem_response(problem)


async def on_error(request: Request, error: Exception) -> Response:
    """Answer with the problem that an exception of the tree is."""
    if isinstance(error, ChannelFailedError):
        request.app.state.service.revive(error.channel_id)
    return answer(request, problem_of(error, instance=shown_path(request.scope)), error)


async def on_invalid_request(request: Request, error: Exception) -> Response:
    """Answer that a request does not fit its model, without what was given."""
    assert isinstance(error, RequestValidationError)
    return answer(request, invalid_request(error.errors(), instance=shown_path(request.scope)))


async def on_status(request: Request, error: Exception) -> Response:
    """Answer with the problem that stands for a status: unknown paths, methods, media types."""
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ClientDisconnect):
        raise error.__cause__  # the framework takes it for a body that cannot be read
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(allowed_methods(request))
    path = shown_path(request.scope)
    detail = {404: f"nothing is at {path}", 405: f"{path} takes {headers.get('Allow')}"}
    problem = problem_of_status(
        error.status_code,
        detail.get(error.status_code, str(error.detail)),
        instance=path,
        headers=headers,
    )
    return answer(request, problem)


ANSWERS: Final[dict[type[Exception], Answering]] = {
    ReliableChannelError: on_error,
    RequestValidationError: on_invalid_request,
    HTTPException: on_status,
}
"""What is answered, by class of exception."""


def allowed_methods(request: Request) -> list[str]:
    """Return the methods that some route takes at the path of a request."""
    found: set[str] = set()
    for route in chain.from_iterable(router.routes for router in ROUTERS):
        match, _ = route.matches(request.scope)
        if match is not Match.NONE:
            found |= set(getattr(route, "methods", None) or ())
    return sorted(found)


class FaultMiddleware:
    """Answers with a problem document where the service has a fault, and notes which route was taken.

    Args:
        app: What may fail.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; a response that has begun is left to break off."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            return  # in the middle of its request: nobody is there to be answered
        except Exception as error:
            if begun:
                raise
            problem = problem_of(error, instance=shown_path(scope))
            log_problem(problem, scope["method"], error)
            await problem_response(problem)(scope, receive, send)
        finally:
            note_route(scope, route_of(scope))


def route_of(scope: Scope) -> str:
    """Return the template of the path that was asked for; empty where no route matched."""
    return str(getattr(scope.get("route"), "path_format", ""))


# --- OpenAPI -------------------------------------------------------------------------------------


def openapi(app: FastAPI) -> dict[str, Any]:
    """Return the description of all routes; made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            tags=app.openapi_tags,
            routes=app.routes,
        )
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):  # ours are problem documents
            schemas.pop(name, None)
        for model, name in ((ProblemDocument, "Problem"), (SendRequest, "SendRequest")):
            schemas[name] = model.model_json_schema(
                ref_template="#/components/schemas/{model}", mode="validation"
            )
        app.openapi_schema = document
    return app.openapi_schema
