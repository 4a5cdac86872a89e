"""What stands between a store and its PostgreSQL server: a network that swallows answers, hangs up or goes silent."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final, Self

from sqlalchemy import make_url

from api.serving import stop_accepting

COMMIT: Final = b"COMMIT\0"
"""How a session ends a transaction."""


class Middleman:
    """Passes on what clients and a server say to each other; an async context manager.

    Args:
        server: URL of a server with a Unix socket.
    """

    def __init__(self, server: str) -> None:
        self._server = make_url(server)
        self._links: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._speaks = asyncio.Event()
        self._speaks.set()
        self.loses_commit = False
        """Pass the next COMMIT on, but not its answer: be down from then on."""
        self.is_down = False
        """Hang up on everybody."""
        self.calls = 0
        """How often anybody connected."""
        self.swallowing = asyncio.Event()
        """Set when an answer was swallowed."""

    @property
    def url(self) -> str:
        """Of the server, through here: over TCP, for that is where networks fail."""
        assert self._listener is not None
        port = self._listener.sockets[0].getsockname()[1]
        query = {name: self._server.query[name] for name in self._server.query if name != "host"}
        url = self._server.set(host="127.0.0.1", port=port, query=query)
        return url.render_as_string(hide_password=False)

    def go_silent(self) -> None:
        """Pass nothing on any more; connections stay, and new ones are accepted."""
        self._speaks.clear()

    def speak(self) -> None:
        """Go on."""
        self._speaks.set()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._link, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None
        await stop_accepting([self._listener])
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.calls += 1
        self._links.add(task)
        writers = [writer]
        with suppress(OSError, asyncio.CancelledError):
            if not self.is_down:
                path = f"{self._server.query['host']}/.s.PGSQL.5432"
                answers, server = await asyncio.open_unix_connection(path)
                writers.append(server)
                asked = asyncio.create_task(self._pass_on(reader, server, asks=True))
                answered = asyncio.create_task(self._pass_on(answers, writer, asks=False))
                try:
                    await asyncio.wait([asked, answered], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    asked.cancel()
                    answered.cancel()
                    await asyncio.gather(asked, answered, return_exceptions=True)
        for each in writers:
            each.close()
        self._links.discard(task)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, asks: bool
    ) -> None:
        while data := await reader.read(65536):
            await self._speaks.wait()
            if not asks and self.is_down:
                self.swallowing.set()
                return
            if asks and self.loses_commit and COMMIT in data:
                self.loses_commit, self.is_down = False, True
            writer.write(data)
