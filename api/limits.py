"""How much a client may ask: size of headers and bodies, requests a second.

Pure ASGI middlewares around the whole application. They count what arrives, whatever a request says of itself, and
hold no more than a bounded number of clients in memory. Nothing here reads a clock of its own.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import Problem, make_problem
from api.refusal import refuse, shown_path

MAX_CLIENTS: Final = 10_000
"""Clients whose requests are counted at once; beyond it the one that was quiet for longest is forgotten."""

BURST_SEC: Final = 2.0
"""After a pause so many seconds' worth of requests may come at once."""


class BodyTooLargeError(HTTPException):
    """Raised into a route that reads on, to which it is a 413 and no fault; what it makes of it is not sent."""

    def __init__(self) -> None:
        super().__init__(413)


class SizeLimits:
    """Refuses requests with too much of headers (431) or body (413), and stops reading there.

    Args:
        app: What is inside.
        max_header_bytes: Of request line and headers.
        max_body_bytes: Of a body, however it is framed. Not of a WebSocket's messages.
    """

    def __init__(self, app: ASGIApp, *, max_header_bytes: int, max_body_bytes: int) -> None:
        self.app = app
        self.max_header_bytes = max_header_bytes
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
        elif header_bytes(scope) > self.max_header_bytes:
            await refuse(self._headers_too_large(scope), scope, receive, send)
        elif scope["type"] == "websocket":
            await self.app(scope, receive, send)
        elif announced_bytes(scope) > self.max_body_bytes:
            await refuse(self._body_too_large(scope), scope, receive, send)
        else:
            await self._count(scope, receive, send)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = 0
        started = False

        async def counting_receive() -> Message:
            nonlocal received
            if received > self.max_body_bytes:
                raise BodyTooLargeError
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_body_bytes:
                raise BodyTooLargeError
            return message

        async def guarded_send(message: Message) -> None:
            nonlocal started
            if received > self.max_body_bytes and not started:
                return
            started = True
            await send(message)

        try:
            await self.app(scope, counting_receive, guarded_send)
        except Exception:
            if received <= self.max_body_bytes:
                raise
        if received > self.max_body_bytes and not started:
            await refuse(self._body_too_large(scope), scope, receive, send)

    def _body_too_large(self, scope: Scope) -> Problem:
        detail = f"a body may have {self.max_body_bytes} bytes (setting max_body_bytes)"
        return make_problem("payload-too-large", detail, instance=shown_path(scope))

    def _headers_too_large(self, scope: Scope) -> Problem:
        detail = f"request line and headers may have {self.max_header_bytes} bytes together (setting max_header_bytes)"
        return make_problem("headers-too-large", detail, instance=shown_path(scope))


def header_bytes(scope: Scope) -> int:
    """Return about how many bytes request line and headers had."""
    line = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return line + sum(len(name) + len(value) + 4 for name, value in scope["headers"])


def announced_bytes(scope: Scope) -> int:
    """Return the largest ``Content-Length``; 0 without one. The server has refused what is no number."""
    values = [value for name, value in scope["headers"] if name == b"content-length"]
    return max((int(value) for value in values if value.isdigit()), default=0)


class Buckets:
    """A token bucket for each client, bounded in number.

    Args:
        rate: Requests a second, above 0.
        clock: Monotonic time, seconds.
        max_clients: Buckets at once.
    """

    def __init__(
        self, rate: float, clock: Callable[[], float], *, max_clients: int = MAX_CLIENTS
    ) -> None:
        self.rate = rate
        self.burst = max(1.0, BURST_SEC * rate)
        self.clock = clock
        self.max_clients = max_clients
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many clients are remembered."""
        return len(self._levels)

    def take(self, client: Hashable) -> float:
        """Count a request; return 0, or after how many seconds it would be admitted."""
        now = self.clock()
        level, at = self._levels.pop(client, (self.burst, now))
        level = min(self.burst, level + (now - at) * self.rate)
        wait = 0.0 if level >= 1 else (1 - level) / self.rate
        self._levels[client] = (level if wait else level - 1, now)
        if len(self._levels) > self.max_clients:
            self._levels.popitem(last=False)
        return wait


class RateLimit:
    """Refuses what one client asks too often (429, with ``Retry-After``).

    Args:
        app: What is inside.
        buckets: Counts.
        client_of: Whom a request is counted for; None: it is not counted.
    """

    def __init__(
        self, app: ASGIApp, *, buckets: Buckets, client_of: Callable[[Scope], Hashable | None]
    ) -> None:
        self.app = app
        self.buckets = buckets
        self.client_of = client_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        wait = 0.0
        if scope["type"] in ("http", "websocket"):
            client = self.client_of(scope)
            wait = 0.0 if client is None else self.buckets.take(client)
        if not wait:
            await self.app(scope, receive, send)
            return
        detail = (
            f"{self.buckets.rate:g} requests a second are allowed (setting requests_per_second); "
            "wait as Retry-After says"
        )
        path = shown_path(scope)
        problem = make_problem("rate-limited", detail, instance=path, retry_after_sec=wait)
        await refuse(problem, scope, receive, send)


def address_of(scope: Scope) -> str:
    """Return where a request came from; of IPv6 the /64, since a client has all of it."""
    return network_of(str((scope.get("client") or ("unknown", 0))[0]))


@lru_cache(maxsize=1_000)
def network_of(host: str) -> str:
    """Return an address, of IPv6 the /64; what is no address stays as it is."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return host
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), 64), strict=False))
