"""Requests over loopback, as many as a few connections take: a client that costs little beside the server.

It speaks just as much HTTP/1.1 as is needed to send request after request on connections that stay open. It must not
know what the server does.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

HEAD_END: Final = b"\r\n\r\n"

MAX_IDLE_SEC: Final = 2.0
"""Connections that were idle for longer are not used again: the server hangs up after 5 s."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a server answered.

    Attributes:
        seconds: Wall time until the last answer.
        statuses: How many answers had each status.
        latencies: Seconds of each request, ascending.
    """

    seconds: float
    statuses: Counter[int]
    latencies: list[float]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.latencies) / self.seconds


class Connection:
    """One connection to a server on loopback, one request at a time.

    Args:
        reader: Of the connection.
        writer: The same.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request and return status and body of the answer, which has to say its length."""
        self._writer.write(request)
        head = await self._reader.readuntil(HEAD_END)
        status, length = parse_head(head)
        return status, await self._reader.readexactly(length) if length else b""

    def abort(self) -> None:
        """Hang up at once, whatever is under way."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        await self._writer.wait_closed()


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """Connect for a while."""
    connection = await Connection.open(port)
    try:
        yield connection
    finally:
        await connection.close()


class Pool:
    """As many connections to a server as are in use at once; those that are free are used again.

    Args:
        port: The server's, on loopback.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._free: list[tuple[float, Connection]] = []

    @classmethod
    @asynccontextmanager
    async def of(cls, port: int) -> AsyncIterator[Pool]:
        """Give a pool, and hang up in the end."""
        pool = cls(port)
        try:
            yield pool
        finally:
            await pool.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Give a connection that nobody else uses; one that was in use when something failed is thrown away."""
        connection = await self._take()
        try:
            yield connection
        except BaseException:
            await connection.close()
            raise
        self._free.append((time.monotonic(), connection))

    async def _take(self) -> Connection:
        """Return the connection that was used last, or a new one where the server may have given that one up."""
        if self._free and self._free[-1][0] < time.monotonic() - MAX_IDLE_SEC:
            await self.close()
        return self._free.pop()[1] if self._free else await Connection.open(self._port)

    async def close(self) -> None:
        """Hang up on all free connections."""
        free, self._free = self._free, []
        for _, connection in free:
            await connection.close()


def parse_head(head: bytes) -> tuple[int, int]:
    """Return status and body length of an answer's head."""
    lines = head.split(b"\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in lines[1:]
        if line[:15].lower() == b"content-length:"
    ]
    return int(lines[0].split(b" ", 2)[1]), lengths[0] if lengths else 0


def post(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """Return a POST request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def get(path: str) -> bytes:
    """Return a GET request."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


async def drive(port: int, connections: int, requests: Iterator[bytes]) -> Answers:
    """Send all requests, each connection one after the other.

    Args:
        port: The server's, on loopback.
        connections: How many send at once.
        requests: What is sent; the connections share it.
    """
    opened = [await Connection.open(port) for _ in range(connections)]
    statuses: Counter[int] = Counter()
    latencies: list[float] = []

    async def send(connection: Connection) -> None:
        for request in requests:
            began = time.perf_counter()
            status, _ = await connection.ask(request)
            latencies.append(time.perf_counter() - began)
            statuses[status] += 1

    began = time.perf_counter()
    await asyncio.gather(*map(send, opened))
    seconds = time.perf_counter() - began
    for connection in opened:
        await connection.close()
    return Answers(seconds, statuses, sorted(latencies))


def quantile(ascending: list[float], share: float) -> float:
    """Return the value that this share of the values does not exceed."""
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]
