"""Refusals that are given before a route is reached: problem documents, for requests and for WebSockets.

Nothing here decides whether to refuse.

Spec: RFC 9457.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Receive, Scope, Send

from api.logs import printable
from api.problems import Problem, problem_response

POLICY_VIOLATION: Final = 1008
"""How a WebSocket ends where the server cannot answer its opening with a document."""

NOTES: Final = "reliable_channel.notes"
"""Member of a scope, and of all its copies: a list in which what is inside tells the outermost which route it took."""

MAX_PATH: Final = 400
"""Characters of a path that are shown."""


async def refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a WebSocket that is not open yet; what is left of a body is the server's to throw away.

    Args:
        problem: The answer.
        scope: Of the request.
        receive: Where it comes from.
        send: Where the answer goes.
    """
    is_socket = scope["type"] == "websocket"
    if is_socket and "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        return
    await problem_response(problem)(scope, receive, send)


def note_route(scope: Scope, route: str) -> None:
    """Tell whoever counts answers which route a request took, by the template of its path."""
    notes = scope.get(NOTES)
    if notes is not None:
        notes.append(route)


def raw_path(scope: Scope) -> str:
    """Return the path as it was asked for, without what follows ``?``: that may be meant to be secret."""
    raw = scope.get("raw_path")
    text = scope["path"] if raw is None else raw.decode("latin-1")
    return str(text).partition("?")[0]


def shown_path(scope: Scope) -> str:
    """Return the path for a log line or a document: as it was asked for, printable, cut where it is long."""
    return printable(raw_path(scope), MAX_PATH)
