"""A small real application for tests of what stands around one, and ways to ask it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI, Request, WebSocket
from starlette.types import ASGIApp, Message, Scope

from api.security import wrap
from api.settings import ServiceSettings
from api.tokens import Tokens

READ = "read-token-0123456789"
WRITE = "write-token-0123456789"
TOKENS = Tokens([READ], [WRITE])


def edge_app() -> FastAPI:
    """Return an application with a route of each kind."""
    app = FastAPI()

    @app.get("/")
    @app.get("/health/live")
    @app.get("/v1/channels")
    async def look(request: Request) -> dict[str, str]:
        return {"role": request.state.role}

    @app.post("/v1/channels")
    async def take(request: Request) -> dict[str, int]:
        return {"octets": len(await request.body())}

    @app.post("/v1/json")
    async def parse(body: dict[str, str]) -> dict[str, int]:
        return {"fields": len(body)}

    @app.get("/v1/bug")
    async def fail() -> None:
        problem = "secret-of-a-bug"
        raise RuntimeError(problem)

    @app.websocket("/v1/ws")
    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        seen = [websocket.state.role, *websocket.scope["subprotocols"]]
        await websocket.send_text(" ".join(seen))
        await websocket.close()

    return app


def client_of(app: ASGIApp, *, host: str = "127.0.0.1") -> httpx.AsyncClient:
    """Return a client that asks an application without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{host}:8080")


def wrapped(
    tokens: Tokens | None = None, clock: Clock | None = None, **settings: object
) -> ASGIApp:
    """Return the small application with everything around it."""
    made = ServiceSettings.model_validate(settings)
    return wrap(edge_app(), made, tokens or Tokens(), clock=clock or Clock())


def bearer(token: str) -> Mapping[str, str]:
    """Return the header that shows a token."""
    return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True)
class Opening:
    """What came of an attempt to open a WebSocket."""

    status: int
    """Of HTTP: 101 is open."""
    subprotocol: str | None
    """Accepted."""
    text: str
    """The first message, or the document of a refusal."""


async def open_socket(
    app: ASGIApp, *subprotocols: str, headers: Mapping[str, str] | None = None
) -> Opening:
    """Open a WebSocket of an application without a network, and read what comes."""
    fields = {"host": "127.0.0.1", "sec-websocket-protocol": ", ".join(subprotocols)}
    fields |= headers or {}
    scope: Scope = {
        "type": "websocket",
        "path": "/v1/ws",
        "raw_path": b"/v1/ws",
        "query_string": b"",
        "root_path": "",
        "scheme": "ws",
        "headers": [(name.lower().encode(), value.encode()) for name, value in fields.items()],
        "subprotocols": list(subprotocols),
        "extensions": {"websocket.http.response": {}},
        "client": ("127.0.0.1", 1),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    first, second = sent[:2]
    if first["type"] == "websocket.accept":
        return Opening(101, first.get("subprotocol"), second["text"])
    return Opening(first["status"], None, second["body"].decode())


class Clock:
    """Monotonic time that stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time, seconds."""
        return self.now


class Collector(logging.Handler):
    """Keeps what a logger gets."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.records.append(record)


@contextmanager
def lines_logged(name: str = "reliable_channel.access") -> Iterator[list[logging.LogRecord]]:
    """Collect what a logger gets meanwhile."""
    collector = Collector()
    logger = logging.getLogger(name)
    before = logger.level
    logger.addHandler(collector)
    logger.setLevel(logging.DEBUG)
    try:
        yield collector.records
    finally:
        logger.removeHandler(collector)
        logger.setLevel(before)
