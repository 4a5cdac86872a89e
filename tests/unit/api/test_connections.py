"""Requests that arrive slowly end; what takes its time on our side does not."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect

from api.serving import Server, listening, server_config
from api.settings import ServiceSettings

TIMEOUT_SEC = 0.4

PAUSE_SEC = 0.6 * TIMEOUT_SEC
"""Between drops: a time that began again with each would never end; and none meets the end of ours."""

HOST = b"Host: localhost\r\n"
WHOLE = b"GET /now HTTP/1.1\r\n" + HOST + b"\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with what came; ``/later`` not before all requests of the time would be late."""
    later = asyncio.Event()
    if scope["path"] == "/later":
        asyncio.get_running_loop().call_later(2 * TIMEOUT_SEC, later.set)
    else:
        later.set()
    if scope["type"] == "websocket":
        websocket = WebSocket(scope, receive, send)
        await websocket.accept()
        await later.wait()
        await websocket.send_text("still here")
        await websocket.close()
        return
    body = await Request(scope, receive).body()
    await later.wait()
    await PlainTextResponse(b"whole" + body)(scope, receive, send)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    settings = ServiceSettings(request_timeout_sec=TIMEOUT_SEC)
    with listening("127.0.0.1", 0) as sock:
        server = Server(server_config(app, settings), settings)
        running = asyncio.create_task(server.serve([sock]))
        try:
            yield sock.getsockname()[1]
        finally:
            server.should_exit = True
            await running


async def answer_to(port: int, data: bytes, drops: bytes = b"") -> bytes:
    """Send bytes, then one of the drops now and then, until the server ends the connection.

    Returns:
        All that it answered.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    answer = b""
    try:
        async with asyncio.timeout(30):
            while True:
                try:
                    async with asyncio.timeout(PAUSE_SEC):
                        part = await reader.read(65_536)
                except TimeoutError:
                    writer.write(drops)
                else:
                    if not part:
                        return answer
                    answer += part
    finally:
        writer.close()


def problem_in(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head
    document = json.loads(body)
    assert head.startswith(b"HTTP/1.1 %d " % document["status"])
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("drops", [b"", b"x"], ids=["nothing more", "byte by byte"])
@pytest.mark.parametrize(
    "begun",
    [
        b"G",
        b"GET /now HTTP/1.1\r\n" + HOST + b"X-Long: ",
        b"POST /now HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n",
    ],
    ids=["first byte", "head", "body"],
)
async def test_a_late_request_is_answered_408(
    port: int, begun: bytes, drops: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    problem = problem_in(await answer_to(port, begun, drops))
    assert (problem["status"], problem["type"]) == (408, "/problems/request-timeout")
    assert "request_timeout_sec" in problem["detail"]
    ours = [line for line in caplog.records if line.name == "reliable_channel.connections"]
    assert [line.levelno for line in ours] == [logging.WARNING]


async def test_who_says_nothing_is_told_nothing(port: int) -> None:
    assert await answer_to(port, b"") == b""


async def test_a_late_second_request_ends_too(port: int) -> None:
    answer = await answer_to(port, WHOLE + WHOLE[:9], b"x")
    first, _, second = answer.partition(b"whole")
    assert first.startswith(b"HTTP/1.1 200 ")
    assert problem_in(second)["status"] == 408


async def test_what_takes_us_long_is_not_late(port: int) -> None:
    data = b"POST /later HTTP/1.1\r\nContent-Length: 1\r\nConnection: close\r\n" + HOST + b"\r\n!"
    assert (await answer_to(port, data)).endswith(b"\r\n\r\nwhole!")


async def test_a_websocket_stays_and_is_not_compressed(port: int) -> None:
    async with connect(f"ws://127.0.0.1:{port}/later", compression="deflate") as socket:
        assert await socket.recv() == "still here"
        assert socket.protocol.extensions == []


async def test_what_is_no_http_gets_a_document(port: int) -> None:
    problem = problem_in(await answer_to(port, b"GET /now HTTP/1.1\r\nHost : x\r\n\r\n"))
    assert (problem["status"], problem["type"]) == (400, "/problems/bad-request")
