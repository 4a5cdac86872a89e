"""A network of two processes: a node in the one, and in the other somebody who acknowledges what it sends.

So that what a service costs whose messages are acknowledged can be told from what the acknowledging costs. Who
acknowledges is no whole participant: it names, about as often as the library would, what came since, in syncs with a
filter of the same size, and looks at nothing else. The node does what ``memory://`` does, with a socket in the place of
the other nodes; nothing is kept, nothing is lost.

Spec: LIP-109 (SDS), Periodic sync message; 14/WAKU2-MESSAGE.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import ClassVar, Final, cast
from urllib.parse import urlsplit

from api.serving import stop_accepting
from messaging_adapter import ConnectionStatus, factory
from messaging_adapter.base import WakuNode
from messaging_adapter.memory import MemoryNode
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.wire import (
    HistoryEntry,
    SdsKind,
    SdsMessage,
    WakuMessage,
    waku_message_hash,
)
from reliable_channel.ports import IncomingMessage
from reliable_channel.traffic import WIRE_MARKER

SCHEME: Final = "linked"

LENGTH_BYTES: Final = 4
"""Each message follows its length."""

ACKNOWLEDGE_SEC: Final = 1.5
"""From the first message that came to the sync that names it: the library's own draws are 1.4 s in the middle."""

ERROR_RATE: Final = 0.001
"""Of the filters, the default."""


def framed(data: bytes) -> bytes:
    """Return a message as it goes over the socket."""
    return len(data).to_bytes(LENGTH_BYTES, "big") + data


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield the messages that come over a socket until it ends."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
            yield await reader.readexactly(length)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a socket, also one that the other side has closed."""
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


class LinkedNode(WakuNode):
    """A node that is connected to an `Acknowledger`: ``linked://127.0.0.1:PORT``."""

    honoured: ClassVar = MemoryNode.honoured

    _writer: asyncio.StreamWriter
    _reading: asyncio.Task[None]

    async def start(self) -> None:
        """Connect."""
        parts = urlsplit(self.config.transport)
        reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port)
        self._reading = asyncio.create_task(self._read(reader))
        self.connection_status = ConnectionStatus.CONNECTED

    async def _read(self, reader: asyncio.StreamReader) -> None:
        async for data in frames(reader):
            message = WakuMessage.decode(data)
            self._received(
                IncomingMessage(
                    content_topic=message.content_topic,
                    payload=message.payload,
                    message_hash=self._hash(message),
                    timestamp_ns=message.timestamp or 0,
                    meta=message.meta,
                )
            )

    def _hash(self, message: WakuMessage) -> bytes:
        return waku_message_hash(self.pubsub_topic(message.content_topic), message)

    async def _stop(self) -> None:
        await hang_up(self._writer)
        await self._reading

    async def _join(self, content_topic: str) -> None:
        """Do nothing: everything comes."""

    async def _leave(self, content_topic: str) -> None:
        """Do nothing: nobody holds the topic any more."""

    async def _transmit(self, message: WakuMessage, data: bytes) -> bytes:
        self._writer.write(framed(data))
        await self._writer.drain()
        return self._hash(message)

    async def _is_stored(self, message_hash: bytes) -> bool:
        return False

    async def _find(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        return []

    async def _find_since(self, content_topic: str, start_ns: int) -> list[IncomingMessage]:
        return []


def offer_links() -> None:
    """Let nodes of this process be linked ones."""
    cast("dict[str, type[WakuNode]]", factory.TRANSPORTS)[SCHEME] = LinkedNode


class Acknowledger:
    """Names in a sync of each channel what came there.

    Args:
        writer: To the node.
        bloom_capacity: Of the channels' filters; 0 has none.
    """

    def __init__(self, writer: asyncio.StreamWriter, bloom_capacity: int) -> None:
        self._writer = writer
        self._owed: dict[str, list[HistoryEntry]] = {}
        self._filter = (
            BloomFilter(bloom_capacity, ERROR_RATE).to_bytes() if bloom_capacity else None
        )
        self._syncs = 0

    def take(self, data: bytes) -> None:
        """Take a message; what has content will be acknowledged."""
        waku = WakuMessage.decode(data)
        message = SdsMessage.decode(waku.payload)
        if message.kind is not SdsKind.CONTENT:
            return
        owed = self._owed.setdefault(message.channel_id, [])
        if not owed:
            loop = asyncio.get_running_loop()
            loop.call_later(
                ACKNOWLEDGE_SEC, self._acknowledge, message.channel_id, waku.content_topic
            )
        owed.append(HistoryEntry(message.message_id, sender_id=message.sender_id))

    def _acknowledge(self, channel_id: str, content_topic: str) -> None:
        if self._writer.is_closing():
            return
        now = time.time_ns()
        self._syncs += 1
        sync = SdsMessage(
            sender_id="bob",
            message_id=f"sync-{self._syncs}",
            channel_id=channel_id,
            lamport_timestamp=now // 1_000_000,
            causal_history=tuple(self._owed.pop(channel_id)),
            bloom_filter=self._filter,
        )
        waku = WakuMessage(
            payload=sync.encode(), content_topic=content_topic, timestamp=now, meta=WIRE_MARKER
        )
        self._writer.write(framed(waku.encode()))


@asynccontextmanager
async def acknowledger(bloom_capacity: int) -> AsyncIterator[str]:
    """Acknowledge whatever nodes send that connect; give the transport that they connect by.

    Args:
        bloom_capacity: Of the channels' filters.
    """
    served: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        acknowledging = Acknowledger(writer, bloom_capacity)
        async for data in frames(reader):
            acknowledging.take(data)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served[writer] = asyncio.create_task(serve(reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 20)
    async with server:
        try:
            yield f"{SCHEME}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            await stop_accepting([server])
            for writer, task in served.items():
                await hang_up(writer)
                await task
