"""How many sends a second the service accepts, beside an empty FastAPI handler, and how long a message takes.

*Accepted*: POSTs of 1 KiB on a few connections, each one after the other, to a service with an SQLite file, until each
was answered with 202: it is stored then. Beside it, in turns, an application with one handler that does nothing, on the
same server with the same settings, given the same bytes. Client and server are processes of their own and share the
machine; the server's CPU time is its own, with what it does after the answers until all is published.

*Latency*: two services in one process on a network without faults; messages are posted to one at a fixed rate, whatever
becomes of those before, and read as server-sent events at the other.

Nothing here asserts a speed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
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
from api.serving import Server, listening, run_to_end, server_config
from api.settings import ServiceSettings
from api.tokens import Tokens
from benchmarks.acknowledging import offer_links
from benchmarks.figures import Figure, Part, Table, figure
from benchmarks.http_load import Answers, Pool, connected, drive, get, post, quantile

PAYLOAD_BYTES: Final = 1_024
MESSAGES: Final = 2_000
CONNECTIONS: Final = (1, 16, 64)
ROUNDS: Final = 5
CHANNEL: Final = "bench"
CHANNEL_PATH: Final = f"/v1/channels/{CHANNEL}"
MESSAGES_PATH: Final = f"{CHANNEL_PATH}/messages"
EVENTS_PATH: Final = f"{CHANNEL_PATH}/events"

POLL_SEC: Final = 0.05
"""How often is asked whether all is published."""

LATENCY_RATE: Final = 100
"""Messages a second."""

LATENCY_SEC: Final = 20
"""How long they are posted."""

NETWORK: Final = "memory://service-bench"

EMPTY: Final = "empty handler"

QUIET: Final = {"log_level": "error", "max_streams": 10}
"""Settings of all services: the lines of each request would be most of what is written."""


@dataclass(frozen=True, slots=True)
class Load:
    """One round of requests to one server.

    Attributes:
        answers: What it answered.
        cpu_seconds: CPU time of its process.
    """

    answers: Answers
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The rounds with so many connections.

    Attributes:
        connections: How many clients sent at once.
        ours: The service's.
        empty: The empty handler's, in the same rounds.
    """

    connections: int
    ours: tuple[Load, ...]
    empty: tuple[Load, ...]


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


def answer_questions() -> None:
    """Answer each line of standard input with the CPU seconds of this process, until there are no more."""
    for _ in sys.stdin:
        sys.stdout.write(f"{time.process_time()}\n")
        sys.stdout.flush()


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
        await asyncio.get_running_loop().run_in_executor(None, answer_questions)
        for service in services:
            service.begin_closing()
        for running_server in servers:
            running_server.should_exit = True
        await asyncio.gather(*running)


async def serve_empty() -> None:
    """Serve the handler that does nothing."""
    await serve([(empty_app(), ServiceSettings(**QUIET))])  # type: ignore[arg-type]


async def serve_services(folder: Path, count: int, node: str = NETWORK) -> None:
    """Serve services with a store each, on one network."""
    async with AsyncExitStack() as stack:
        apps: list[tuple[object, ServiceSettings]] = []
        services: list[Service] = []
        for number in range(count):
            settings = ServiceSettings(
                database=f"sqlite:///{folder}/{number}.db",
                node=node,
                **QUIET,  # type: ignore[arg-type]
            )
            app = create_app(settings, keys=KeyRing({}))
            await stack.enter_async_context(app.router.lifespan_context(app))
            apps.append(
                (
                    wrap(
                        app, settings, Tokens(), answered=app.state.service.metrics.request_answered
                    ),
                    settings,
                )
            )
            services.append(app.state.service)
        await serve(apps, *services)


class ServerProcess:
    """A process that serves.

    Args:
        child: The process; it has said where it listens.
        ports: Of its servers, on loopback.
    """

    def __init__(self, child: asyncio.subprocess.Process, ports: list[int]) -> None:
        self._child = child
        self.ports = ports

    async def cpu_seconds(self) -> float:
        """Return the CPU time that it has taken so far."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(b"\n")
        return float(await self._child.stdout.readline())


@asynccontextmanager
async def process(*arguments: str, servers: int = 1) -> AsyncIterator[ServerProcess]:
    """Run this module as a process that serves."""
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
        yield ServerProcess(child, [int(line.rsplit(":", 1)[1]) for line in lines])
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
    async with connected(port) as connection:
        status, answer = await connection.ask(post("/v1/channels", json.dumps(body).encode()))
    if status != 201:
        text = f"the channel was not opened: {status} {answer.decode()}"
        raise RuntimeError(text)


async def wait_published(port: int) -> None:
    """Return when nothing of the channel waits for the network."""
    async with connected(port) as connection:
        while True:
            _, answer = await connection.ask(get(CHANNEL_PATH))
            status = json.loads(answer)["status"]
            if not status["waiting"] and not status["inFlight"]:
                return
            await asyncio.sleep(POLL_SEC)


async def measure_acceptance(connections: int, rounds: int, messages: int) -> Acceptance:
    """Drive service and empty handler in turns; one round before is not counted."""
    empty: list[Load] = []
    ours: list[Load] = []
    async with process("empty") as nothing:
        for number in range(rounds + 1):
            with TemporaryDirectory() as folder:
                async with process("services", folder, "1") as service:
                    await open_channel(service.ports[0], "alice")
                    accepted = await load(service, connections, messages, wait_published)
            answered = await load(nothing, connections, messages)
            if number:
                ours.append(accepted)
                empty.append(answered)
    return Acceptance(connections, tuple(ours), tuple(empty))


async def load(
    server: ServerProcess,
    connections: int,
    messages: int,
    settled: Callable[[int], Awaitable[None]] | None = None,
) -> Load:
    """Send messages and return what it took; everything has to be accepted.

    Args:
        server: The first of its ports is used.
        connections: How many send at once.
        messages: How many are sent.
        settled: Given the port, returns when the server is done with what it accepted.
    """
    port = server.ports[0]
    before = await server.cpu_seconds()
    answers = await drive(port, connections, sends(messages))
    if set(answers.statuses) != {202}:
        text = f"not everything was accepted: {dict(answers.statuses)}"
        raise RuntimeError(text)
    if settled is not None:
        await settled(port)
    return Load(answers, await server.cpu_seconds() - before)


async def measure_latency(rate: int, seconds: float) -> Latency:
    """Post to one service at a fixed rate, read at the other."""
    count = int(rate * seconds)
    began: dict[int, float] = {}
    took: list[float] = []
    with TemporaryDirectory() as folder:
        async with process("services", folder, "2", servers=2) as services:
            sending, receiving = services.ports
            await open_channel(sending, "alice")
            await open_channel(receiving, "bob")
            async with asyncio.TaskGroup() as group:
                group.create_task(read_events(receiving, count, began, took))
                group.create_task(post_steadily(sending, rate, count, began))
    took.sort()
    return Latency(count, *(1e3 * quantile(took, share) for share in (0.5, 0.99, 1.0)))


async def post_steadily(port: int, rate: int, count: int, began: dict[int, float]) -> None:
    """Post messages at a fixed rate; none waits for the one before."""
    loop = asyncio.get_running_loop()
    start = loop.time()

    async def send(request: bytes) -> None:
        async with pool.connection() as connection:
            status, answer = await connection.ask(request)
        if status != 202:
            text = f"not accepted: {status} {answer.decode()}"
            raise RuntimeError(text)

    async with Pool.of(port) as pool, asyncio.TaskGroup() as group:
        for number, request in enumerate(sends(count)):
            await asyncio.sleep(start + number / rate - loop.time())
            began[number] = time.perf_counter()
            group.create_task(send(request))


async def read_events(port: int, count: int, began: dict[int, float], took: list[float]) -> None:
    """Note when each message comes out of the event stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(get(f"{EVENTS_PATH}?after=0"))
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


# --- Figures -------------------------------------------------------------------------------------


def figures(found: Acceptance) -> Iterator[Figure]:
    """Give what the service reached with so many connections, beside the empty handler."""
    name = f"{found.connections} connections"
    yield figure(
        f"{name}: accepted",
        "a second",
        [item.answers.rate for item in found.ours],
        peer=EMPTY,
        theirs=[item.answers.rate for item in found.empty],
    )
    yield figure(
        f"{name}: CPU of the server",
        "µs a request",
        [cpu_us(item) for item in found.ours],
        better="less",
        peer=EMPTY,
        theirs=[cpu_us(item) for item in found.empty],
    )
    for share, label in ((0.5, "half"), (0.99, "99 %")):
        values = [1e3 * quantile(item.answers.latencies, share) for item in found.ours]
        yield figure(f"{name}: answered, {label}", "ms", values, better="less")


def cpu_us(item: Load) -> float:
    """Return the CPU time of the server, microseconds a request."""
    return 1e6 * item.cpu_seconds / len(item.answers.latencies)


def tables() -> Iterator[Part]:
    """Measure all numbers of connections, and the latency."""
    found = [
        item
        for connections in CONNECTIONS
        for item in figures(asyncio.run(measure_acceptance(connections, ROUNDS, MESSAGES)))
    ]
    note = "CPU: of the server's process, the service's until all is published"
    yield Table("The service: sends of 1 KiB beside an empty handler", tuple(found), (note,))
    latency = asyncio.run(measure_latency(LATENCY_RATE, LATENCY_SEC))
    times = {"half": latency.middle_ms, "99 %": latency.slow_ms, "all": latency.worst_ms}
    yield Table(
        f"From POST to the event at the receiving service, {LATENCY_RATE} messages a second",
        tuple(figure(name, "ms", [value], better="less") for name, value in times.items()),
        (f"{latency.messages:,} messages",),
    )


def main(arguments: list[str]) -> None:
    """Serve, as one of the processes of a measurement."""
    if arguments[0] == "empty":
        run_to_end(serve_empty())
    else:
        offer_links()
        run_to_end(serve_services(Path(arguments[1]), int(arguments[2]), *arguments[3:]))


if __name__ == "__main__":
    main(sys.argv[1:])
