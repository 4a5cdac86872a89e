"""Stand-in Waku nodes for tests: in the test's own loop, as a process, or without HTTP and in time turned by hand."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import uvicorn

from api.devnode.command import make_application, server_config
from api.devnode.network import Network
from api.devnode.node import Node
from api.devnode.settings import DevnodeSettings
from api.devnode.timers import LoopTimers
from api.serving import listening, stop_accepting
from reliable_channel.types import SECOND, Nanoseconds
from tests.support.serve_process import END_SEC, READY, ROOT, environment

START_NS: Final = 1_700_000_000 * SECOND


class ManualTimers:
    """Time that stands still until it is turned."""

    def __init__(self) -> None:
        self._now = START_NS
        self._count = itertools.count()
        self._waiting: list[tuple[Nanoseconds, int, Callable[[], None]]] = []

    def now(self) -> Nanoseconds:
        """Return Unix time, nanoseconds."""
        return self._now

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do something once, so many seconds from now."""
        when = self._now + int(delay_s * SECOND)
        heapq.heappush(self._waiting, (when, next(self._count), action))

    def advance(self, seconds: float) -> None:
        """Let time pass, and have happen what is due meanwhile."""
        end = self._now + int(seconds * SECOND)
        while self._waiting and self._waiting[0][0] <= end:
            self._now, _, action = heapq.heappop(self._waiting)
            action()
        self._now = end


class QuietServer(uvicorn.Server):
    """A server that neither takes signals nor says where it listens, and ends at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ended = asyncio.Event()

    async def main_loop(self) -> None:
        """Wait until it is to end, without looking ten times a second."""
        await self.ended.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Cut everything off, as the end of a process does."""
        await stop_accepting(self.servers)
        for task in self.server_state.tasks:
            task.cancel()
        for connection in self.server_state.connections:
            connection.transport.abort()
        while self.server_state.tasks or self.server_state.connections:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until it is told to exit."""
        await self._serve(sockets)


class Devnode:
    """A network of stand-in nodes that listen in the test's loop; it can be stopped and started again.

    Args:
        settings: Of the network.
    """

    def __init__(self, settings: DevnodeSettings) -> None:
        self.timers = LoopTimers()
        self.network = Network(settings, self.timers)
        self.ports = [0] * settings.nodes
        self._sockets = ExitStack()
        self._server: QuietServer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def nodes(self) -> list[Node]:
        """The nodes, whose ``faults`` a test may change at any time."""
        return self.network.nodes

    @property
    def node(self) -> Node:
        """The first node."""
        return self.network.nodes[0]

    @property
    def urls(self) -> list[str]:
        """Where the nodes listen."""
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def url(self) -> str:
        """Where the first node listens."""
        return self.urls[0]

    def client(self, number: int = 0, **options: Any) -> httpx.AsyncClient:
        """Return a client that asks one of the nodes."""
        # Nothing to verify; reading certificates takes longer than most tests.
        return httpx.AsyncClient(base_url=self.urls[number], verify=False, **options)

    async def start(self) -> None:
        """Listen; after a stop on the same ports."""
        sockets = [self._sockets.enter_context(listening("127.0.0.1", p)) for p in self.ports]
        self.ports = [sock.getsockname()[1] for sock in sockets]
        application = make_application(self.network, self.ports)
        self._server = QuietServer(server_config(application))
        self._task = asyncio.create_task(self._server.serve(sockets))
        while not self._server.started:
            if self._task.done():
                self._task.result()
            await asyncio.sleep(0)

    async def stop(self, *, forget: bool = True) -> None:
        """Close ports and connections, as the end of a node's process does; harmless when repeated.

        Args:
            forget: Whether the nodes lose what they hold in memory, as they do; the store stays.
        """
        server, task = self._server, self._task
        self._server = self._task = None
        if server is not None and task is not None:
            server.ended.set()
            await task
        self._sockets.close()
        if forget:
            for node in self.nodes:
                node.restart()


@asynccontextmanager
async def run_devnode(**settings: Any) -> AsyncIterator[Devnode]:
    """Run a network in the test's loop, on free ports of this machine.

    Args:
        settings: Of the network; without any there is no store lag, and nothing goes wrong.
    """
    devnode = Devnode(DevnodeSettings(**{"port": 0, "store_lag_s": 0.0, **settings}))
    await devnode.start()
    try:
        yield devnode
    finally:
        await devnode.stop()
        devnode.timers.close()


@dataclass(frozen=True)
class DevnodeProcess:
    """A devnode that is a process of its own.

    Attributes:
        process: Running.
        urls: Where its nodes listen.
    """

    process: asyncio.subprocess.Process
    urls: list[str]

    @property
    def url(self) -> str:
        """Where its first node listens."""
        return self.urls[0]

    async def stop(self) -> int:
        """End it gracefully, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(END_SEC):
            return await self.process.wait()


@asynccontextmanager
async def run_devnode_process(*arguments: str, nodes: int = 1) -> AsyncIterator[DevnodeProcess]:
    """Run ``reliable-channel devnode`` as a process, and end it at once if the test has not.

    Args:
        arguments: Further options; a port is free unless one is named.
        nodes: How many of the network listen.
    """
    command = [sys.executable, "-W", "error", "-m", "api", "devnode", "--nodes", str(nodes)]
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            *([] if "--port" in arguments else ["--port", "0"]),
            *arguments,
            cwd=ROOT,
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            assert process.stdout is not None
            lines = [(await process.stdout.readline()).decode() for _ in range(nodes)]
            assert all(line.startswith(READY) for line in lines), [*lines, said(log)]
            yield DevnodeProcess(process, [line.removeprefix(READY).strip() for line in lines])
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


def said(log: Any) -> str:
    """Return what a process wrote to a file."""
    log.seek(0)
    return str(log.read().decode())
