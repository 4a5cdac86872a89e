"""HTTP around a stand-in node: finding the route, reading the body, and the errors that all routes share.

One application serves all nodes; which one is asked is told by the port. What an answer says is the routes' matter.

Spec: the REST API of logos-delivery (nwaku), read from its handlers.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote

from starlette.types import Receive, Scope, Send

from api.devnode.bodies import BodyError, encode
from api.devnode.node import Node

logger = logging.getLogger("reliable_channel.devnode.access")

MAX_BODY_BYTES: Final = 16 << 20

TEXT: Final = "text/plain"
JSON: Final = "application/json"

NOT_FOUND: Final = "Bad request initiated. Invalid path or method used."

FLAGS: Final[Mapping[str, str]] = {
    "admin": "--rest-admin=true",
    "debug": "--rest",
    "relay": "--relay",
    "filter": "--filternode",
    "lightpush": "--lightpushnode",
    "store": "--storenode",
}
"""Routes that can be missing, by the beginning of their path, and the option that a node names then."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back.

    Attributes:
        status: HTTP status.
        body: As it goes out.
        content_type: Of the body.
    """

    status: int = 200
    body: bytes = b""
    content_type: str = TEXT


OK: Final = Answer(200, b"OK")


def text(status: int, body: str = "") -> Answer:
    """Return an answer of plain text."""
    return Answer(status, body.encode(errors="replace"))


def json(body: object, status: int = 200) -> Answer:
    """Return an answer of JSON."""
    return Answer(status, encode(body), JSON)


class RefusedError(Exception):
    """A request is answered with an error.

    Args:
        answer: The error.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one node.

    Attributes:
        node: Who is asked.
        method: Of the request.
        path: As it was sent.
        parts: What the pattern of the route left open, decoded.
        query: Parameters, decoded.
        headers: Lower-case names and values, as they came.
        body: None where there is none.
    """

    node: Node
    method: str
    path: str
    parts: tuple[str, ...] = ()
    query: dict[str, str] = field(default_factory=dict)
    headers: Sequence[tuple[str, str]] = ()
    body: bytes | None = None

    @property
    def content_type(self) -> str | None:
        """The body's, without parameters; None where nobody said."""
        for name, value in self.headers:
            if name == "content-type":
                return value.partition(";")[0].strip().lower()
        return None

    def data(self) -> bytes:
        """Return the body.

        Raises:
            RefusedError: There is none, or it is of another type than JSON or text.
        """
        if self.body is None:
            raise RefusedError(text(400, "Missing content body"))
        if self.content_type not in (JSON, TEXT):
            problem = f"Wrong Content-Type, expected {JSON} or {TEXT}"
            raise RefusedError(text(400, problem))
        return self.body

    async def stalls(self, protocol: str) -> bool:
        """Wait as long as a request that times out, and say whether it does."""
        faults = self.node.faults
        rate = faults.timeout_rate
        stalls = protocol in faults.stalled or bool(rate and self.node.choices.random() < rate)
        if stalls:
            await asyncio.sleep(faults.timeout_s)
        return stalls


Handler: TypeAlias = Callable[[Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path with ``{}`` for segments that are open, and who answers."""

    method: str
    path: str
    handler: Handler

    def pattern(self) -> re.Pattern[str]:
        """Return what the raw path must look like."""
        return re.compile("([^/]+)".join(re.escape(part) for part in self.path.split("{}")))


class Router:
    """Routes of one node.

    Args:
        routes: All of them.
        missing: Beginnings of paths whose routes are not there, though nodes can have them.
    """

    def __init__(self, routes: Sequence[Route], missing: Sequence[str] = ()) -> None:
        self._routes = [(route.method, route.pattern(), route.handler) for route in routes]
        self.missing = frozenset(missing)

    async def answer(self, call: Call) -> Answer:
        """Find who answers a request, and have it answered."""
        starting = call.node.faults.starting and call.path != "/health"
        if not starting:
            for method, pattern, handler in self._routes:
                found = pattern.fullmatch(call.path) if method == call.method else None
                if found is not None:
                    return await self._handled(handler, call, found.groups())
        first = call.path.split("/")[1] if "/" in call.path else ""
        if starting and first in FLAGS:
            return text(404, f"/{first} endpoints are not available while initializing.")
        if first in self.missing:
            problem = f"/{first} endpoints are not available. Please check your configuration: "
            return text(404, problem + FLAGS[first])
        return text(400, NOT_FOUND)

    @staticmethod
    async def _handled(handler: Handler, call: Call, parts: Sequence[str]) -> Answer:
        decoded = tuple(unquote(part) for part in parts)
        full = Call(call.node, call.method, call.path, decoded, call.query, call.headers, call.body)
        if full.body is not None and not re.fullmatch(r"[^\s/]+/[^\s/]+", full.content_type or ""):
            return text(400, "Invalid content type")
        try:
            return await handler(full)
        except BodyError as error:
            return text(400, f"Invalid content body, could not decode: {error}")
        except RefusedError as refused:
            return refused.answer


class Application:
    """All nodes of a network, one on each port.

    Args:
        sites: Nodes and their routes by port.
    """

    def __init__(self, sites: Mapping[int, tuple[Node, Router]]) -> None:
        self.sites = sites
        self._cuts = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        node, router = self.sites[scope["server"][1]]
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        call = Call(
            node,
            scope["method"],
            raw.partition(b"?")[0].decode("ascii", "replace"),
            query=dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)),
            headers=[(k.decode("latin-1"), v.decode("latin-1")) for k, v in scope["headers"]],
        )
        body = await read_body(receive)
        answer, shared = text(413), dict[str, str]()
        if body is not None:
            full = Call(node, call.method, call.path, (), call.query, call.headers, body or None)
            answer, shared = await self._answer(full, router)
        if node.faults.answer_delay_ms:
            await asyncio.sleep(node.faults.answer_delay_ms / 1_000)
        logger.debug("node %d: %s %s %d", node.number, call.method, call.path, answer.status)
        await self._send(node, answer, shared, send)

    async def _answer(self, call: Call, router: Router) -> tuple[Answer, dict[str, str]]:
        refused, shared = cross_origin(call)
        if refused is not None:
            return refused, shared
        forced = call.node.faults.forced_for(call.method, call.path)
        if forced is not None:
            if forced.after:
                await router.answer(call)
            return Answer(forced.status, forced.body.encode(), forced.content_type), shared
        return await router.answer(call), shared

    async def _send(
        self, node: Node, answer: Answer, shared: Mapping[str, str], send: Send
    ) -> None:
        body, length, more = answer.body, len(answer.body), False
        rate = node.faults.cut_rate
        if rate and answer.content_type == JSON and node.choices.random() < rate:
            body = body[: length // 2]
            self._cuts += 1
            more = self._cuts % 2 == 0
            length = length if more else len(body)
        headers = {"content-length": str(length), "content-type": answer.content_type, **shared}
        await send(
            {
                "type": "http.response.start",
                "status": answer.status,
                "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers.items()],
            }
        )
        # With more to come that never does, the server closes the connection in the middle.
        await send({"type": "http.response.body", "body": body, "more_body": more})


async def read_body(receive: Receive) -> bytes | None:
    """Return the body of a request, empty where there is none; None where it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""  # the client has gone
        part = message.get("body", b"")
        size += len(part)
        if size <= MAX_BODY_BYTES:
            parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts) if size <= MAX_BODY_BYTES else None


def cross_origin(call: Call) -> tuple[Answer | None, dict[str, str]]:
    """Return the refusal of a page's origin, if there is one, and headers for the answer."""
    allowed = call.node.settings.allow_origin
    origins = [value for name, value in call.headers if name == "origin"]
    if not allowed or not origins:
        return None, {}
    if len(origins) > 1:
        return text(400, "Only a single Origin header must be specified"), {}
    if "*" in allowed:
        return None, {
            "access-control-allow-origin": "*",
            "access-control-allow-headers": "Content-Type",
        }
    if origins[0] in allowed:
        return None, {"access-control-allow-origin": origins[0], "vary": "Origin"}
    return text(403, "Origin not allowed"), {}
