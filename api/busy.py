"""The short way of most requests: to a route that reads its request itself, past the framework's stations.

On the framework's own way a request goes through a dozen middlewares, exit stacks and wrappers, of which such a route
uses none. What is answered is the same on both ways, errors included. Nothing here knows what a route does.

Spec: ARCHITECTURE, Command line and REST.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from api.paths import routed

Answering: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]
"""Returns what a request is answered with because of an exception."""


class ShortWay:
    """Calls a route and answers what it raises.

    Args:
        endpoint: Takes the request, returns the response.
        answers: By class of exception; the nearest one counts, and what has none goes on.
    """

    def __init__(
        self,
        endpoint: Callable[[Request], Awaitable[Response]],
        answers: Mapping[type[Exception], Answering],
    ) -> None:
        self._endpoint = endpoint
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose route was matched."""
        request = Request(scope, receive, send)
        try:
            response = await self._endpoint(request)
        except Exception as error:
            answers = (self._answers.get(kind) for kind in type(error).__mro__)
            answer = next(filter(None, answers), None)
            if answer is None:
                raise
            response = await answer(request, error)
        await response(scope, receive, send)


class Application(FastAPI):
    """The framework's application, with a short way to one of its routes.

    What the framework would put around that route has to be in the short way, or around the application: nothing can be
    added to the one way only.
    """

    _busy: tuple[APIRoute, ASGIApp] | None = None

    def add_middleware(self, middleware_class: Any, *args: Any, **kwargs: Any) -> None:
        """Add a middleware as the framework does, before there is a short way.

        Raises:
            RuntimeError: There is one, which would go past it.
        """
        if self._busy is not None:
            problem = "the short way would go past this middleware: put it around the application"
            raise RuntimeError(problem)
        super().add_middleware(middleware_class, *args, **kwargs)

    def shorten(self, route: APIRoute, way: ASGIApp) -> None:
        """Let requests for a route go a way of their own.

        Args:
            route: Has one method.
            way: Ends at the route; it is given a scope in which that was matched.
        """
        self._busy = (route, way)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, on its way."""
        if self._busy is not None and scope["type"] == "http":
            route, way = self._busy
            if scope["method"] in (route.methods or ()):
                found = matched(route, scope)
                if found is not None:
                    await way({**found, "app": self}, receive, send)
                    return
        await super().__call__(scope, receive, send)


def matched(route: APIRoute, scope: Scope) -> dict[str, Any] | None:
    """Return the scope of a request whose route was matched, None for another one."""
    asked = routed(scope)
    match, found = route.matches(asked)
    return {**asked, **found} if match is Match.FULL else None
