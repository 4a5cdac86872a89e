"""A small service with channels and streams on a loopback port, and clients that read it byte by byte."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from api.errors import ChannelNotFoundError
from api.readers import OpenStreams
from api.streaming import event_response, poll_events
from messaging_adapter import NodeConfig, WakuNode, create_node
from persistence import open_store
from reliable_channel import (
    ReliableChannel,
    ReliableChannelError,
    SdsConfig,
    create_reliable_channel,
)
from reliable_channel.ports import ChannelStore

TOPIC = "/streams/1/room/proto"
_networks = count(1)


@dataclass
class SmallSettings:
    """The settings that streams need."""

    heartbeat_sec: float = 15
    max_streams: int = 100
    max_body_bytes: int = 1 << 20


@dataclass
class SmallService:
    """What streams need of the service."""

    settings: SmallSettings = field(default_factory=SmallSettings)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    channels: dict[str, ReliableChannel] = field(default_factory=dict)

    def get(self, channel_id: str) -> ReliableChannel:
        """Return a channel of the service."""
        if channel_id not in self.channels:
            raise ChannelNotFoundError(channel_id)
        return self.channels[channel_id]

    def check_ready(self) -> None:
        """Do nothing: it is."""


def small_app(
    service: SmallService, routes: tuple[BaseRoute, ...] = (), **limits: Any
) -> Starlette:
    """Return an application that has nothing but events.

    Args:
        service: Its channels.
        routes: Further routes.
        **limits: For `event_response`.
    """

    async def events(request: Request) -> Response:
        channel = service.channels[request.path_params["channel_id"]]
        query = request.query_params
        after = int(query["after"]) if "after" in query else None
        if "limit" in query:
            found = await poll_events(
                channel,
                after=after,
                limit=int(query["limit"]),
                wait=float(query.get("wait", 0)),
                closing=service.closing,
            )
            return JSONResponse(found)
        return await event_response(service, channel, request, after=after, **limits)

    async def refuse(request: Request, error: Exception) -> Response:
        return JSONResponse({"type": type(error).__name__}, status_code=409)

    app = Starlette(
        routes=[Route("/v1/channels/{channel_id}/events", events), *routes],
        exception_handlers={ReliableChannelError: refuse},
    )
    app.state.service = service
    app.state.streams = OpenStreams(service.settings.max_streams, service.closing)
    return app


@asynccontextmanager
async def running(app: ASGIApp) -> AsyncIterator[int]:
    """Serve an application on a free port of the loopback address; give the port."""
    listening = socket.create_server(("127.0.0.1", 0))  # connections wait here until it accepts
    config = uvicorn.Config(
        app, lifespan="off", log_config=None, timeout_graceful_shutdown=5, ws_ping_interval=None
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield int(listening.getsockname()[1])
    finally:
        server.should_exit = True
        await task
        listening.close()


@asynccontextmanager
async def room(store: ChannelStore | None = None) -> AsyncIterator[tuple[ReliableChannel, ...]]:
    """Give two ends of a channel, alice's and bob's, on a network of their own.

    Args:
        store: Where bob keeps his; None is memory.
    """
    network = f"memory://streams-{next(_networks)}"
    async with AsyncExitStack() as stack:
        yield (
            await stack.enter_async_context(await _side(stack, network, "alice", None)),
            await stack.enter_async_context(await _side(stack, network, "bob", store)),
        )


async def _side(
    stack: AsyncExitStack, network: str, sender_id: str, store: ChannelStore | None
) -> ReliableChannel:
    store = store or open_store("memory://")
    sds = SdsConfig(persistence=store, sync_interval_ms=100)
    node: WakuNode = await stack.enter_async_context(
        await create_node(NodeConfig(transport=network, sds_config=sds))
    )
    return await create_reliable_channel(
        node, channel_id="room", content_topic=TOPIC, sender_id=sender_id
    )


@dataclass(frozen=True)
class Frame:
    """One event, or comment, of an event stream."""

    event: str
    data: dict[str, Any]
    id: str | None = None
    comment: str | None = None


class EventClient:
    """Reads an event stream over a socket of its own, exactly as far as it is told to.

    Args:
        port: Of the service.
        query: After the path.
        headers: Further headers.
        receive_buffer: Size of the socket's receive buffer, bytes; None leaves it to the system.
    """

    def __init__(
        self,
        port: int,
        query: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        receive_buffer: int | None = None,
    ) -> None:
        self._port = port
        self._query = query
        self._headers = dict(headers or {})
        self._receive_buffer = receive_buffer
        self.status = 0
        self.body = b""
        self._text = b""

    async def __aenter__(self) -> Self:
        connection = socket.socket()
        try:
            if self._receive_buffer:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer)
            connection.setblocking(False)
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
            opened = await asyncio.open_connection(sock=connection, limit=1 << 22)
        except BaseException:  # also of whoever waits no longer
            connection.close()
            raise
        self._reader, self._writer = opened
        try:
            await self._ask()
        except BaseException:
            self._writer.transport.abort()
            raise
        return self

    async def _ask(self) -> None:
        """Send the request and read the head of the answer; all of it, where there is no stream."""
        lines = [f"GET /v1/channels/room/events{self._query} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in self._headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        self.status = int(head.split()[1])
        if self.status != 200:
            length = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
            self.body = await self._reader.readexactly(length)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.transport.abort()

    async def frames(self, *, comments: bool = False) -> AsyncIterator[Frame]:
        """Give frames until the server ends the response."""
        while True:
            while b"\n\n" in self._text:
                raw, _, self._text = self._text.partition(b"\n\n")
                frame = _parse(raw.decode())
                if comments or frame.comment is None:
                    yield frame
            size = int(await self._reader.readline() or b"0", 16)
            if not size:
                return
            self._text += (await self._reader.readexactly(size + 2))[:-2]

    async def take(self, count: int) -> list[Frame]:
        """Return so many durable frames, or fewer where the stream ends before."""
        taken: list[Frame] = []
        if count:
            async for frame in self.frames():
                if frame.id is not None:
                    taken.append(frame)
                if len(taken) == count:
                    break
        return taken


def _parse(raw: str) -> Frame:
    fields: dict[str, str] = {}
    for line in raw.split("\n"):
        name, _, value = line.partition(": ")
        fields[name] = value
    if "" in fields:
        return Frame("", {}, comment=fields[""])
    return Frame(fields["event"], json.loads(fields["data"]), fields.get("id"))
