"""How many sends a second the service accepts, beside an empty FastAPI handler, and how long a message takes.

*Accepted*: POSTs of 1 KiB on a few connections, each one after the other, to a service with an SQLite file, until each
was answered with 202: it is stored then. Beside it, in turns, an application with one handler that does nothing, on the
same server with the same settings, given the same bytes. Client and server are processes of their own and share the
machine.

*Latency*: two services in one process on a network without faults; messages are posted to one at a fixed rate, whatever
becomes of those before, and read as server-sent events at the other.

Nothing here asserts a speed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvicorn
from fastapi import FastAPI

from api.application import create_app
from api.keys import KeyRing
from api.security import wrap
from api.service import Service
from api.serving import Server, listening, server_config
from api.settings import ServiceSettings
from api.tokens import Tokens
from benchmarks.http_load import Answers, Connection, drive, post, quantile
from benchmarks.rounds import Ratio, ratio

PAYLOAD_BYTES: Final = 1_024
MESSAGES: Final = 2_000
CONNECTIONS: Final = (1, 16, 64)
ROUNDS: Final = 5
CHANNEL: Final = "bench"
MESSAGES_PATH: Final = f"/v1/channels/{CHANNEL}/messages"
EVENTS_PATH: Final = f"/v1/channels/{CHANNEL}/events"

LATENCY_RATE: Final = 100
"""Messages a second."""

LATENCY_SEC: Final = 20
"""How long they are posted."""

QUIET: Final = {"log_level": "error", "max_streams": 10}
"""Settings of all services: the lines of each request would be most of what is written."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Medians over the rounds with so many connections; rates are requests a second.

    Attributes:
        connections: How many clients sent at once.
        empty_rate: Of the empty handler.
        accepted_rate: Of the service.
        share: Of the empty handler's rate.
        middle_ms: Half of the service's answers took no longer, milliseconds.
        slow_ms: 99 of 100 of them took no longer.
    """

    connections: int
    empty_rate: float
    accepted_rate: float
    share: Ratio
    middle_ms: float
    slow_ms: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from the beginning of a POST to the event at the receiving channel.

    Attributes:
        messages: How many were measured.
        middle_ms: Half of them took no longer.
        slow_ms: 99 of 100.
        worst_ms: All.
    """

    messages: int
    middle_ms: float
    slow_ms: float
    worst_ms: float


# --- Servers, in processes of their own ------------------------------------------------------------


def empty_app() -> FastAPI:
    """Return an application whose only handler does nothing."""
    app = FastAPI()

    @app.post(MESSAGES_PATH, status_code=202)
    async def accept() -> None:
        """Do nothing."""

    return app


async def serve(apps: Sequence[tuple[object, ServiceSettings]], *services: Service) -> None:
    """Serve applications until standard input ends; each says where it listens.

    Args:
        apps: What is served, and how.
        services: Whose streams end then.
    """
    async with AsyncExitStack() as stack:
        servers: list[uvicorn.Server] = []
        running: list[asyncio.Task[None]] = []
        for app, settings in apps:
            sock = stack.enter_context(listening(settings.host, 0))
            server = Server(server_config(app, settings), settings)
            servers.append(server)
            running.append(asyncio.create_task(server.serve([sock])))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        for service in services:
            service.begin_closing()
        for running_server in servers:
            running_server.should_exit = True
        await asyncio.gather(*running)


async def serve_empty() -> None:
    """Serve the handler that does nothing."""
    await serve([(empty_app(), ServiceSettings(**QUIET))])  # type: ignore[arg-type]


async def serve_services(folder: Path, count: int) -> None:
    """Serve services with a store each, on one network."""
    async with AsyncExitStack() as stack:
        apps: list[tuple[object, ServiceSettings]] = []
        services: list[Service] = []
        for number in range(count):
            settings = ServiceSettings(
                database=f"sqlite:///{folder}/{number}.db",
                node="memory://service-bench",
                **QUIET,  # type: ignore[arg-type]
            )
            app = create_app(settings, keys=KeyRing({}))
            await stack.enter_async_context(app.router.lifespan_context(app))
            apps.append((wrap(app, settings, Tokens()), settings))
            services.append(app.state.service)
        await serve(apps, *services)


@asynccontextmanager
async def process(*arguments: str, servers: int = 1) -> AsyncIterator[list[int]]:
    """Run this module as a process that serves, and give its ports."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.service_speed", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        lines = [(await child.stdout.readline()).decode() for _ in range(servers)]
        if not all(lines):
            text = "the server ended before it listened; what it said stands above"
            raise RuntimeError(text)
        yield [int(line.rsplit(":", 1)[1]) for line in lines]
    finally:
        child.stdin.close()
        await child.wait()


# --- Clients -----------------------------------------------------------------------------------------


def sends(messages: int) -> Iterator[bytes]:
    """Yield requests to send payloads that differ; each begins with its number."""
    filling = os.urandom(PAYLOAD_BYTES - 8)
    for number in range(messages):
        payload = base64.b64encode(number.to_bytes(8, "big") + filling).decode()
        yield post(MESSAGES_PATH, json.dumps({"payload": payload}).encode())


async def open_channel(port: int, sender_id: str) -> None:
    """Open the channel in a service, with room for all messages."""
    body = {
        "channelId": CHANNEL,
        "contentTopic": "/bench/1/service/proto",
        "senderId": sender_id,
        "sds": {"maxOutgoingMessages": 1_000_000, "maxOutgoingBytes": 1 << 30},
    }
    connection = await Connection.open(port)
    status, answer = await connection.ask(post("/v1/channels", json.dumps(body).encode()))
    await connection.close()
    if status != 201:
        text = f"the channel was not opened: {status} {answer.decode()}"
        raise RuntimeError(text)


async def measure_acceptance(connections: int, rounds: int, messages: int) -> Acceptance:
    """Drive service and empty handler in turns; one round before is not counted."""
    empty: list[Answers] = []
    ours: list[Answers] = []
    async with process("empty") as (empty_port,):
        for number in range(rounds + 1):
            with TemporaryDirectory() as folder:
                async with process("services", folder, "1") as (port,):
                    await open_channel(port, "alice")
                    accepted = await drive(port, connections, sends(messages))
            nothing = await drive(empty_port, connections, sends(messages))
            for answers in (accepted, nothing):
                if set(answers.statuses) != {202}:
                    text = f"not everything was accepted: {dict(answers.statuses)}"
                    raise RuntimeError(text)
            if number:
                ours.append(accepted)
                empty.append(nothing)
    latencies = sorted(seconds for answers in ours for seconds in answers.latencies)
    return Acceptance(
        connections=connections,
        empty_rate=statistics.median(answers.rate for answers in empty),
        accepted_rate=statistics.median(answers.rate for answers in ours),
        share=ratio([item.seconds for item in ours], [item.seconds for item in empty]),
        middle_ms=1e3 * quantile(latencies, 0.5),
        slow_ms=1e3 * quantile(latencies, 0.99),
    )


async def measure_latency(rate: int, seconds: float) -> Latency:
    """Post to one service at a fixed rate, read at the other."""
    count = int(rate * seconds)
    began: dict[int, float] = {}
    took: list[float] = []
    with TemporaryDirectory() as folder:
        async with process("services", folder, "2", servers=2) as (sending, receiving):
            for port, sender_id in ((sending, "alice"), (receiving, "bob")):
                await open_channel(port, sender_id)
            reading = asyncio.create_task(read_events(receiving, count, began, took))
            await post_steadily(sending, rate, count, began)
            await reading
    took.sort()
    return Latency(count, *(1e3 * quantile(took, share) for share in (0.5, 0.99, 1.0)))


async def post_steadily(port: int, rate: int, count: int, began: dict[int, float]) -> None:
    """Post messages at a fixed rate; none waits for the one before."""
    idle: list[Connection] = []
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def send(request: bytes) -> None:
        connection = idle.pop() if idle else await Connection.open(port)
        status, answer = await connection.ask(request)
        idle.append(connection)
        if status != 202:
            text = f"not accepted: {status} {answer.decode()}"
            raise RuntimeError(text)

    async with asyncio.TaskGroup() as group:
        for number, request in enumerate(sends(count)):
            await asyncio.sleep(start + number / rate - loop.time())
            began[number] = time.perf_counter()
            group.create_task(send(request))
    for connection in idle:
        await connection.close()


async def read_events(port: int, count: int, began: dict[int, float], took: list[float]) -> None:
    """Note when each message comes out of the event stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {EVENTS_PATH}?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    while len(took) < count:
        line = await reader.readline()
        now = time.perf_counter()
        if not line:
            text = "the event stream ended"
            raise RuntimeError(text)
        if line.startswith(b"data: ") and b'"reliable:message:received"' in line:
            payload = base64.b64decode(json.loads(line[6:])["payload"])
            took.append(now - began[int.from_bytes(payload[:8], "big")])
    writer.close()


def main(arguments: list[str]) -> None:
    """Serve, as one of the processes of a measurement."""
    if arguments[0] == "empty":
        asyncio.run(serve_empty())
    else:
        asyncio.run(serve_services(Path(arguments[1]), int(arguments[2])))


if __name__ == "__main__":
    main(sys.argv[1:])
