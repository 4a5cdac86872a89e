"""Real services on ports of their own, built as ``serve`` builds them, several in one process.

A ``memory://`` network joins services of one process only. `live_pair` runs two of them in a process that does nothing
else, so that a test can look at what they need. Lines from that process: the two ports. It ends when its standard
input does.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI

from api.application import create_app
from api.keys import KeyRing
from api.logs import configure_logging
from api.security import wrap
from api.serving import Server, server_config
from api.settings import ServiceSettings
from api.tokens import Tokens

ROOT: Final = Path(__file__).parents[2]

END_SEC: Final = 30.0
"""Services that have not ended by then hang."""


class LiveService:
    """One service that listens, built as ``serve`` builds it; it can be stopped and started again at its address.

    Args:
        settings: Of the service; its port is chosen here.
        tokens: Who may do what.
    """

    def __init__(self, settings: ServiceSettings, tokens: Tokens) -> None:
        self._settings = settings
        self._tokens = tokens
        self._app: FastAPI | None = None
        self._server: Server | None = None
        self._task: asyncio.Task[None] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where its page is."""
        return f"http://127.0.0.1:{self.port}/"

    async def start(self) -> None:
        """Listen, and open the channels that were open."""
        sock = socket.create_server(("127.0.0.1", self.port))
        self.port = sock.getsockname()[1]
        self._app = create_app(self._settings, keys=KeyRing({}))
        answered = self._app.state.service.metrics.request_answered
        wrapped = wrap(self._app, self._settings, self._tokens, answered=answered)
        self._server = Server(server_config(wrapped, self._settings), self._settings)
        self._task = asyncio.create_task(self._run(self._app, self._server, sock))

    @staticmethod
    async def _run(app: FastAPI, server: Server, sock: socket.socket) -> None:
        async with app.router.lifespan_context(app):
            await server.serve([sock])

    async def stop(self) -> None:
        """End as the first SIGTERM ends it; harmless when repeated."""
        app, server, task = self._app, self._server, self._task
        self._app = self._server = self._task = None
        if app is not None and server is not None and task is not None:
            server.should_exit = True
            app.state.service.begin_closing()
            await task


# --- Two in a process of their own ---------------------------------------------------------------


@dataclass(frozen=True)
class LivePair:
    """Two services in one process and one network.

    Attributes:
        process: Both.
        ports: Where each listens.
    """

    process: subprocess.Popen[str]
    ports: tuple[int, int]

    def resident_bytes(self) -> int:
        """Return how much memory the process has, 0 where the system does not say."""
        statm = Path(f"/proc/{self.process.pid}/statm")
        if not statm.exists():
            return 0
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def live_pair(folder: Path, network: str) -> Iterator[LivePair]:
    """Run two services with databases of their own.

    Args:
        folder: Where databases and a log are kept.
        network: URL of the network that both are in.
    """
    command = [sys.executable, "-W", "error", "-m", "tests.support.live", str(folder), network]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            encoding="utf-8",
        ) as process,
    ):
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            line = process.stdout.readline()  # the end of the process ends the wait too
            assert line, (folder / "log").read_text()
            first, second = map(int, line.split())
            yield LivePair(process, (first, second))
            process.stdin.close()
            assert process.wait(END_SEC) == 0, (folder / "log").read_text()
        finally:
            process.kill()


async def run_pair(folder: str, network: str) -> None:
    """Run two services until the standard input ends."""
    services = []
    for name in ("first", "second"):
        given: dict[str, Any] = {"database": f"sqlite:///{folder}/{name}.db", "node": network}
        services.append(LiveService(ServiceSettings(**given), Tokens()))
    for service in services:
        await service.start()
    sys.stdout.write(" ".join(str(service.port) for service in services) + "\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for service in services:
        await service.stop()


if __name__ == "__main__":
    configure_logging("info", "text")
    asyncio.run(run_pair(*sys.argv[1:]))
