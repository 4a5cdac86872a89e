"""Requests as bytes over a real socket: what no HTTP client would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn

from api.application import create_app
from api.keys import KeyRing
from api.serving import stop_accepting
from api.settings import ServiceSettings
from tests.support.served import channel_body, new_network


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    """Run a service behind uvicorn on a free port of this machine."""
    settings = ServiceSettings(database="memory://", node=new_network())
    app = create_app(settings, keys=KeyRing())
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    async with app.router.lifespan_context(app):
        await server.startup()
        try:
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            await stop_accepting(server.servers)
            await server.shutdown()


async def exchange(port: int, head: str, body: bytes = b"") -> tuple[int, bytes]:
    """Send a request and return status and body of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = f"{head}\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(lines.encode("latin-1") + body)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    top, _, rest = answer.partition(b"\r\n\r\n")
    return int(top.split()[1]), rest


async def open_channel(port: int, channel_id: str) -> None:
    body = json.dumps(channel_body(channel_id)).encode()
    head = "POST /v1/channels HTTP/1.1\r\nContent-Type: application/json"
    status, _ = await exchange(port, head, body)
    assert status == 201


@pytest.mark.parametrize(
    ("channel_id", "segments"),
    [
        ("..", ["..", "%2e%2E"]),
        (".", [".", "%2E"]),
        ("a/b", ["a%2Fb", "a%2fb", "%61%2f%62"]),
        ("ü", ["%C3%BC", "%c3%bc"]),
        ("%2F", ["%252F"]),
        ("a;b,c:d@e", ["a;b,c:d@e", "a%3Bb%2Cc%3Ad%40e"]),
    ],
)
async def test_every_spelling_of_an_id_is_the_same_channel(
    channel_id: str, segments: list[str]
) -> None:
    async with listening() as port:
        await open_channel(port, channel_id)
        for segment in segments:
            status, body = await exchange(port, f"GET /v1/channels/{segment} HTTP/1.1")
            assert (status, json.loads(body)["channelId"]) == (200, channel_id)
            status, _ = await exchange(port, f"GET /v1/channels/{segment}/messages HTTP/1.1")
            assert status == 200


@pytest.mark.parametrize(
    "target",
    [
        "/v1/channels/../../etc/passwd",
        "/v1/channels/%2e%2e/%2e%2e/x",
        "/v1/channels/room/../room",
        "/v1/../v1/channels",
        "//v1/channels",
        "/v1/channels/%zz",
        "/v1/channels/%",
        "/v1/channels/\xff",
        "/v1/channels/" + "x" * 5000,
    ],
)
async def test_tricks_with_paths_find_nothing(target: str) -> None:
    async with listening() as port:
        await open_channel(port, "room")
        status, body = await exchange(port, f"GET {target} HTTP/1.1")
        assert status in (400, 404)
        if status == 404:
            assert json.loads(body)["type"] in (
                "/problems/not-found",
                "/problems/channel-not-found",
            )
            assert len(body) < 1500
