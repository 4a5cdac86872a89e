"""Who may ask what: request log, tokens, hosts and origins, and the order of all that stands around the application.

`wrap` puts everything around it, the outermost first: a log line for each request, CORS, sizes, request rate, access.
Routes behind it can rely on the role in ``scope["state"]["role"]``. Nothing here knows channels, and no log line holds
a payload, a token or what follows ``?`` in an address.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeAlias

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.limits import Buckets, RateLimit, SizeLimits, address_of
from api.logs import printable
from api.problems import MEDIA_TYPE, Problem, make_problem
from api.refusal import NOTES, raw_path, refuse, shown_path
from api.settings import ServiceSettings
from api.tokens import Role, Tokens, digest

logger = logging.getLogger("reliable_channel.access")

OPEN_PATHS: Final = frozenset({"/", "/health/live", "/openapi.json"})
"""To look at these nobody needs a token."""

READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

BEARER_PROTOCOL: Final = "bearer."
"""A WebSocket's subprotocol that is a token: browsers can set no header."""

PORT: Final = re.compile(r":\d{1,5}$")
"""At the end of a ``Host`` header."""

LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")

NO_ANSWER: Final = 499
"""Logged for a client that went before it had an answer."""

ALLOWED_HEADERS: Final = ("authorization", "content-type", "idempotency-key", "last-event-id")


Answered: TypeAlias = Callable[[str, str, int], None]
"""Takes method, template of the route (empty where none was reached) and status of an answer."""


def wrap(
    app: ASGIApp,
    settings: ServiceSettings,
    tokens: Tokens,
    *,
    answered: Answered | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """Return the application with everything around it that keeps it safe.

    Args:
        app: The application; what is no request goes straight to it.
        settings: Of the service.
        tokens: Who may do what; none: everybody who reaches the port.
        answered: Is told of each answer, refusals included.
        clock: Monotonic time, seconds.
    """
    inner: ASGIApp = Access(app, settings, tokens)
    if settings.request_rate:
        buckets = Buckets(settings.request_rate, clock)
        inner = RateLimit(inner, buckets=buckets, client_of=client_finder(tokens))
    inner = SizeLimits(
        inner,
        max_header_bytes=settings.max_header_bytes,
        max_body_bytes=settings.max_body_bytes,
    )
    if settings.cors_origins:
        inner = CORSMiddleware(
            inner,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=ALLOWED_HEADERS,
            expose_headers=("location", "retry-after"),
        )
    return RequestLog(inner, answered=answered, clock=clock)


# --- One line for each request -------------------------------------------------------------------


class RequestLog:
    """Writes a line for each request: at info, for a 4xx or 5xx at warning, for a bug with its traceback.

    Args:
        app: What is inside; it may note the route that it takes, see `api.refusal.note_route`.
        answered: Is told of each answer.
        clock: Monotonic time, seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        answered: Answered | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app = app
        self.answered = answered
        self.clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on; a bug inside becomes a 500 where there is no answer yet."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        answer = Answer(send)
        notes: list[str] = []
        scope[NOTES] = notes
        started_at = self.clock()
        bug: Exception | None = None
        try:
            await self.app(scope, receive, answer.send)
        except Exception as error:
            bug = error
            if not answer.status:
                detail = "The service failed; its log says more."
                problem = make_problem("internal-error", detail, instance=shown_path(scope))
                await refuse(problem, scope, receive, answer.send)
        finally:
            self._write(scope, answer, self.clock() - started_at, bug)
            if self.answered and answer.status and scope["type"] == "http":
                self.answered(scope["method"], notes[-1] if notes else "", answer.status)

    def _write(self, scope: Scope, answer: Answer, seconds: float, bug: Exception | None) -> None:
        level = logging.WARNING if answer.status >= 400 else logging.INFO
        level = logging.ERROR if bug else level
        if not logger.isEnabledFor(level):
            return
        fields = {
            "method": printable(scope.get("method", "WEBSOCKET"), 20),
            "path": shown_path(scope),
            "status": answer.status or NO_ANSWER,
            "ms": round(1_000 * seconds, 1),
            "bytes": answer.octets,
            "client": address_of(scope),
        }
        text = "{method} {path} {status} {ms} ms {bytes} bytes {client}".format_map(fields)
        if answer.problem:
            fields["problem"] = answer.problem
            text += f" {answer.problem}"
        logger.log(level, "%s", text, exc_info=bug, extra={"fields": fields})


class Answer:
    """What went back to a client, as far as a log line needs it.

    Args:
        send: Where it goes.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_problem = False
        self.status = 0
        """Of HTTP; 0 as long as there is none."""
        self.octets = 0
        """Of bodies or messages, bytes."""
        self.problem = ""
        """Kind of the problem document that it is, or nothing."""

    async def send(self, message: Message) -> None:
        """Take note of a message and hand it on."""
        kind = message["type"]
        if kind.endswith("response.start"):
            self.status = message["status"]
            types = [value for name, value in message.get("headers", []) if name == b"content-type"]
            self._is_problem = any(value.startswith(MEDIA_TYPE.encode()) for value in types)
        elif kind.endswith("response.body"):
            body = message.get("body", b"")
            self.octets += len(body)
            if self._is_problem and not self.problem:
                self.problem = kind_of_problem(body)
        elif kind == "websocket.accept":
            self.status = 101
        elif kind == "websocket.send":
            self.octets += len(message.get("bytes") or message.get("text") or b"")
        elif kind == "websocket.close" and not self.status:
            self.status = 403  # what a server makes of it
        await self._send(message)


def kind_of_problem(body: bytes) -> str:
    """Return the last part of a problem document's ``type``; nothing if there is none."""
    try:
        document = json.loads(body)
    except ValueError:
        return ""
    kind = document.get("type") if isinstance(document, dict) else None
    return printable(kind.rpartition("/")[2], 64) if isinstance(kind, str) else ""


# --- Access --------------------------------------------------------------------------------------


class Access:
    """Lets pass who may: by token where there are tokens, by host and origin where there are none.

    The role goes on in ``scope["state"]["role"]``: ``read`` or ``write``. A WebSocket may be opened with either, and
    says itself what a reader may not do.

    Args:
        app: What is inside.
        settings: Of the service.
        tokens: Who may do what.
    """

    def __init__(self, app: ASGIApp, settings: ServiceSettings, tokens: Tokens) -> None:
        self.app = app
        self.tokens = tokens
        self.origins = frozenset(settings.cors_origins)
        named = frozenset(host.lower() for host in settings.allowed_hosts)
        self.hosts = named | frozenset(LOCAL_HOSTS) if settings.is_loopback or named else named

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        outcome = self._by_token(scope) if self.tokens else self._by_place(scope)
        if isinstance(outcome, Problem):
            await refuse(outcome, scope, receive, send)
            return
        scope = {**scope, "state": {**scope.get("state", {}), "role": outcome}}
        if scope["type"] == "websocket":
            send = without_token(scope, send)
        await self.app(scope, receive, send)

    def _by_token(self, scope: Scope) -> Role | Problem:
        """Return what the caller may do, or why nothing."""
        if is_open(scope):
            return "read"
        shown = token_of(scope)
        if shown is None:
            return challenge(scope, "unauthorized", "send the header Authorization: Bearer TOKEN")
        role = self.tokens.role(shown)
        if role is None:
            detail = "the token is none of this service's; ask who runs it for one"
            return challenge(scope, "unauthorized", detail, "invalid_token")
        is_reading = scope["type"] == "websocket" or scope["method"] in READING
        if role == "read" and not is_reading:
            detail = "the token may only read; use one with the role write"
            return challenge(scope, "forbidden", detail, "insufficient_scope")
        return role

    def _by_place(self, scope: Scope) -> Role | Problem:
        """Return what the caller may do: everything, unless it is a page of somebody else's."""
        hosts = values_of(scope, b"host")
        if self.hosts and (len(hosts) != 1 or host_name(hosts[0]) not in self.hosts):
            detail = "ask for localhost or 127.0.0.1, or add the name to the setting allowed_hosts"
            return make_problem("host-not-allowed", detail, instance=shown_path(scope))
        changes = scope["type"] == "websocket" or scope["method"] not in READING
        origins = values_of(scope, b"origin")
        if changes and not all(self._is_ours(origin, hosts) for origin in origins):
            detail = "add the origin to the setting cors_origins, or use tokens"
            return make_problem("origin-not-allowed", detail, instance=shown_path(scope))
        return "write"

    def _is_ours(self, origin: str, hosts: Iterable[str]) -> bool:
        """Say whether a page may change something: one that this service gave, or one of the allowed."""
        same = {f"{scheme}://{host}".lower() for host in hosts for scheme in ("http", "https")}
        return bool(self.origins & {origin, "*"}) or origin.lower() in same


def challenge(scope: Scope, kind: str, detail: str, error: str | None = None) -> Problem:
    """Return a problem that says what is wanted of a token.

    Args:
        scope: Of the request.
        kind: Of problem.
        detail: What to do.
        error: Code of RFC 6750, where a token was shown.
    """
    wanted = 'Bearer realm="reliable-channel"' + (f', error="{error}"' if error else "")
    headers = {"WWW-Authenticate": wanted}
    return make_problem(kind, detail, instance=shown_path(scope), headers=headers)


def is_open(scope: Scope) -> bool:
    """Say whether nobody needs a token: the path must be written plainly, and nothing be changed."""
    if scope["type"] != "http" or scope["method"] not in READING:
        return False
    path = scope["path"]
    return path in OPEN_PATHS and raw_path(scope) == path


def values_of(scope: Scope, name: bytes) -> list[str]:
    """Return all values of a header."""
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def host_name(host: str) -> str:
    """Return the name in a ``Host`` header, without a port, in lower case."""
    return PORT.sub("", host.strip().lower())


def token_of(scope: Scope) -> str | None:
    """Return the token that a request shows; None without one, nothing at all if there are several."""
    shown = []
    for value in values_of(scope, b"authorization"):
        scheme, _, token = value.partition(" ")
        shown.append(token.strip() if scheme.lower() == "bearer" else "")
    if scope["type"] == "websocket":
        shown += [
            name.removeprefix(BEARER_PROTOCOL)
            for name in scope.get("subprotocols", ())
            if name.startswith(BEARER_PROTOCOL)
        ]
    if not shown:
        return None
    return shown[0] if len(shown) == 1 else ""


def without_token(scope: Scope, send: Send) -> Send:
    """Take the token out of a WebSocket's scope, and answer its subprotocols as browsers need it.

    A browser that named subprotocols wants one of them back; the application sees only those that are none of ours.

    Args:
        scope: Changed in place; a copy already.
        send: Where answers go.

    Returns:
        What the application sends with.
    """
    offered = list(scope.get("subprotocols", ()))
    kept = [name for name in offered if not name.startswith(BEARER_PROTOCOL)]
    if kept == offered:
        return send
    scope["subprotocols"] = kept
    hidden = (b"authorization", b"sec-websocket-protocol")
    scope["headers"] = [(name, value) for name, value in scope["headers"] if name not in hidden]

    async def answering_send(message: Message) -> None:
        if message["type"] == "websocket.accept" and not message.get("subprotocol"):
            message = {**message, "subprotocol": (kept or offered)[0]}
        await send(message)

    return answering_send


def client_finder(tokens: Tokens) -> Callable[[Scope], Hashable | None]:
    """Return what says whom a request is counted for: a known token, else an address.

    Unknown tokens do not count as clients, or each guess would have a budget of its own.
    """

    def client_of(scope: Scope) -> Hashable | None:
        if scope["path"] == "/health/live" and is_open(scope):
            return None
        shown = token_of(scope) if tokens else None
        return digest(shown) if shown and tokens.role(shown) else address_of(scope)

    return client_of
