"""A whole service in this process, spoken to over ASGI: no sockets, but everything else is real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final
from urllib.parse import quote, unquote_to_bytes

import httpx
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from api.application import create_app
from api.keys import KeyRing
from api.security import RequestLog
from api.service import Service
from api.settings import ServiceSettings

TOPIC: Final = "/test/1/room/proto"

RAW_PATH: Final = "X-Raw-Path"

_networks = count(1)


def new_network() -> str:
    """Return the URL of a network that nobody else is on."""
    return f"memory://served-{next(_networks)}"


@dataclass(frozen=True, slots=True)
class Served:
    """A running service and a client of it."""

    app: FastAPI
    client: httpx.AsyncClient

    @property
    def service(self) -> Service:
        """The service behind the routes."""
        service = self.app.state.service
        assert isinstance(service, Service)
        return service

    async def raw(self, method: str, path: str) -> httpx.Response:
        """Send a request whose path goes out as it is."""
        return await self.client.request(method, "/", headers={RAW_PATH: path})

    async def open(
        self, channel_id: str = "room", sender_id: str = "alice", **more: object
    ) -> httpx.Response:
        """Open a channel."""
        return await self.client.post(
            "/v1/channels", json=channel_body(channel_id, sender_id, **more)
        )

    async def send(
        self, payload: bytes, channel_id: str = "room", **headers: str
    ) -> httpx.Response:
        """Send a message as raw bytes; ``idempotency_key="a"`` is a header."""
        more = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
        return await self.client.post(
            f"{path_of(channel_id)}/messages",
            content=payload,
            headers={b"Content-Type": b"application/octet-stream"} | more,
        )


def channel_body(
    channel_id: str = "room", sender_id: str = "alice", **more: object
) -> dict[str, Any]:
    """Return the body that opens a channel."""
    return {"channelId": channel_id, "contentTopic": TOPIC, "senderId": sender_id, **more}


def path_of(channel_id: str = "room") -> str:
    """Return the path of a channel."""
    return f"/v1/channels/{quote(channel_id, safe='')}"


@asynccontextmanager
async def served(
    *, keys: dict[str, bytes] | None = None, node: str | None = None, **settings: Any
) -> AsyncIterator[Served]:
    """Run a service, by default in memory and on a network of its own.

    Args:
        keys: What channels may encrypt with.
        node: URL of its node.
        settings: Others of `ServiceSettings`.
    """
    given = ServiceSettings(node=node or new_network(), **{"database": "memory://", **settings})
    app = create_app(given, keys=KeyRing(keys))
    logged = RequestLog(app, answered=app.state.service.metrics.request_answered)
    transport = httpx.ASGITransport(app=as_it_is(logged))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://service") as client,
    ):
        yield Served(app, client)


def as_it_is(app: ASGIApp) -> ASGIApp:
    """Take the path of a request from a header where it has one: clients would resolve dot segments."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in scope["headers"]:
            if name == RAW_PATH.lower().encode():
                path = unquote_to_bytes(value).decode("utf-8", "replace")
                scope = {**scope, "raw_path": value, "path": path}
        await app(scope, receive, send)

    return wrapped


def problem_name(response: httpx.Response) -> str:
    """Return which kind of problem a response is, after checking that it is a proper document."""
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == response.status_code
    assert body["title"]
    prefix, _, name = body["type"].rpartition("/")
    assert prefix == "/problems"
    return str(name)
