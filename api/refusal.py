"""Refusals that are given before a route is reached, as problem documents (RFC 9457).

They are written as plain ASGI messages, for requests and for WebSockets that are not open yet. Nothing here decides
whether to refuse.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Receive, Scope, Send

from api.logs import printable

MEDIA_TYPE: Final = "application/problem+json"

POLICY_VIOLATION: Final = 1008
"""How a WebSocket ends where the server cannot answer its opening with a document."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request goes no further."""

    status: int
    """Of HTTP."""
    kind: str
    """Last part of the document's ``type``."""
    title: str
    """The same for all of this kind."""
    detail: str
    """What to do about this one; nothing secret."""
    headers: dict[str, str] = field(default_factory=dict)
    """Further headers, in lower case."""


async def refuse(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, or a WebSocket that is not open yet, with a problem document.

    Args:
        refusal: The answer.
        scope: Of the request.
        receive: Not used: what is left of a body is the server's to throw away.
        send: Where the answer goes.
    """
    document = {
        "type": f"/problems/{refusal.kind}",
        "title": refusal.title,
        "status": refusal.status,
        "detail": refusal.detail,
        "instance": printable(raw_path(scope), 300),
    }
    body = json.dumps(document).encode()
    headers = {
        "content-type": MEDIA_TYPE,
        "content-length": str(len(body)),
        "cache-control": "no-store",
        **refusal.headers,
    }
    kind = "http.response"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        kind = "websocket.http.response"
    encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": f"{kind}.start", "status": refusal.status, "headers": encoded})
    await send({"type": f"{kind}.body", "body": body})


def raw_path(scope: Scope) -> str:
    """Return the path as it was asked for, without what follows ``?``: that may be meant to be secret."""
    raw = scope.get("raw_path")
    text = scope["path"] if raw is None else raw.decode("latin-1")
    return str(text).partition("?")[0]
