"""A relay with a store that several processes reach over a Unix socket, and the node that uses it.

The relay lives in the event loop of a test. It acknowledges a message when it has it, gives it to everybody else who
joined its topic, and keeps it: it can be asked by hash and by time. Copies on their way may get lost, by a seed; what
is kept never is.

Frames are four bytes of length and a pickle: the socket lies in a folder that only its maker can enter.
"""

from __future__ import annotations

import asyncio
import pickle
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from api.serving import stop_accepting
from messaging_adapter import ConnectionStatus, NodeConfig, WakuNode
from messaging_adapter.memory import MessageArchive
from reliable_channel import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.budget import restore_budget
from reliable_channel.clock import SystemClock
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.errors import NodeUnavailableError
from reliable_channel.ports import IncomingMessage
from reliable_channel.store import ChannelStore
from reliable_channel.types import Nanoseconds

LENGTH_BYTES: Final = 4
PUSHED: Final = 0
"""Number of a frame that answers nothing: a message on a topic that was joined."""


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """Return the next frame.

    Raises:
        asyncio.IncompleteReadError: The other side is gone, perhaps within a frame.
    """
    length = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
    return pickle.loads(await reader.readexactly(length))


def write_frame(writer: asyncio.StreamWriter, frame: object) -> None:
    """Send a frame; what the other side does not take waits in memory."""
    data = pickle.dumps(frame)
    writer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)


@dataclass(slots=True, eq=False)
class Peer:
    """A node, as the relay sees it."""

    name: str
    writer: asyncio.StreamWriter
    joined: set[tuple[str, str]] = field(default_factory=set)


class Relay:
    """The relay; an asynchronous context manager.

    Args:
        loss: Which part of the copies for those who joined gets lost.
        seed: Chooses them.
    """

    def __init__(self, *, loss: float = 0.0, seed: int = 0) -> None:
        self.published: list[tuple[str, WakuMessage]] = []
        """Every message taken, with the name of its publisher, in order."""
        self.calls: Counter[tuple[str, str]] = Counter()
        """How often each node, by name, asked for what."""
        self._archive = MessageArchive()
        self._hashes: set[bytes] = set()
        self._loss = loss
        self._rng = random.Random(seed)
        self._peers: dict[Peer, None] = {}
        self._actions: dict[tuple[str, str], tuple[int, Callable[[], None]]] = {}
        self._left = asyncio.Event()
        self._folder = ""
        self._server: asyncio.Server | None = None

    @property
    def path(self) -> str:
        """Where the socket is."""
        return f"{self._folder}/relay"

    def when(self, name: str, call: str, count: int, action: Callable[[], None]) -> None:
        """Call a function as soon as a node has asked for something so many times more, before it is answered."""
        self._actions[name, call] = self.calls[name, call] + count, action

    async def __aenter__(self) -> Self:
        self._folder = tempfile.mkdtemp(prefix="rc-relay-")  # short: so must a socket's path be
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        await stop_accepting([self._server])
        for peer in self._peers:
            peer.writer.close()
        while self._peers:
            self._left.clear()
            await self._left.wait()
        await self._server.wait_closed()
        shutil.rmtree(self._folder)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer("", writer)
        self._peers[peer] = None
        try:
            while True:
                number, call, arguments = await read_frame(reader)
                answer = getattr(self, f"_{call}")(peer, *arguments)
                self._count(peer.name, call)
                write_frame(writer, (number, answer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # a node that is gone
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            del self._peers[peer]
            self._left.set()

    def _count(self, name: str, call: str) -> None:
        self.calls[name, call] += 1
        if (name, call) in self._actions and self._actions[name, call][0] == self.calls[name, call]:
            self._actions.pop((name, call))[1]()

    def _hello(self, peer: Peer, name: str) -> None:
        peer.name = name

    def _join(self, peer: Peer, pubsub_topic: str, content_topic: str) -> None:
        peer.joined.add((pubsub_topic, content_topic))

    def _leave(self, peer: Peer, pubsub_topic: str, content_topic: str) -> None:
        peer.joined.discard((pubsub_topic, content_topic))

    def _publish(self, peer: Peer, pubsub_topic: str, data: bytes) -> bytes:
        message = WakuMessage.decode(data)
        message_hash = waku_message_hash(pubsub_topic, message)
        if message_hash in self._hashes:
            return message_hash
        self._hashes.add(message_hash)
        self.published.append((peer.name, message))
        incoming = IncomingMessage(
            content_topic=message.content_topic,
            payload=message.payload,
            message_hash=message_hash,
            timestamp_ns=message.timestamp or 0,
            meta=message.meta,
            ephemeral=bool(message.ephemeral),
        )
        if not incoming.ephemeral:
            self._archive.add(incoming, pubsub_topic, len(data))
        for other in self._peers:
            if other is not peer and (pubsub_topic, incoming.content_topic) in other.joined:
                self._push(other, incoming)
        return message_hash

    def _push(self, peer: Peer, message: IncomingMessage) -> None:
        if not peer.writer.is_closing() and self._rng.random() >= self._loss:
            write_frame(peer.writer, (PUSHED, message))

    def _lookup(self, peer: Peer, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        return self._archive.lookup(hashes)

    def _query(
        self, peer: Peer, pubsub_topic: str, content_topic: str, start_ns: Nanoseconds
    ) -> list[IncomingMessage]:
        return self._archive.query(pubsub_topic, content_topic, start_ns)


class RelayNode(WakuNode):
    """A node on a ``relay://NAME/PATH/OF/SOCKET``; made by `relay_node`."""

    honoured: ClassVar = frozenset(
        {"transport", "sds_config", "segmentation_config", "rate_limit_config"}
    )

    _writer: asyncio.StreamWriter
    _reading: asyncio.Task[None]

    async def start(self) -> None:
        """Connect.

        Raises:
            OSError: There is no relay.
        """
        parts = urlsplit(self.config.transport)
        self.lost = asyncio.Event()
        """Set when the relay is gone, or the node is closed."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._number = PUSHED
        reader, self._writer = await asyncio.open_unix_connection(parts.path)
        self._reading = asyncio.create_task(self._read(reader))
        await self._call("hello", parts.netloc)
        self.connection_status = ConnectionStatus.CONNECTED

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                number, content = await read_frame(reader)
                if number == PUSHED:
                    self._received(content)
                elif not (answer := self._answers.pop(number)).done():
                    answer.set_result(content)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.lost.set()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(NodeUnavailableError("the relay is gone"))

    async def _call(self, call: str, *arguments: object) -> Any:
        if self.lost.is_set():
            raise NodeUnavailableError("the relay is gone")
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        write_frame(self._writer, (self._number, call, arguments))
        return await answer

    async def _stop(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
        await self._reading

    async def _join(self, content_topic: str) -> None:
        await self._call("join", self.pubsub_topic(content_topic), content_topic)

    async def _leave(self, content_topic: str) -> None:
        with suppress(NodeUnavailableError):
            await self._call("leave", self.pubsub_topic(content_topic), content_topic)

    async def _transmit(self, message: WakuMessage, data: bytes) -> bytes:
        answer: bytes = await self._call("publish", self.pubsub_topic(message.content_topic), data)
        return answer

    async def _is_stored(self, message_hash: bytes) -> bool:
        return bool(await self._find([message_hash]))

    async def _find(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        answer: list[IncomingMessage] = await self._call("lookup", list(hashes))
        return answer

    async def _find_since(self, content_topic: str, start_ns: Nanoseconds) -> list[IncomingMessage]:
        topics = self.pubsub_topic(content_topic), content_topic
        answer: list[IncomingMessage] = await self._call("query", *topics, start_ns)
        return answer


async def relay_node(
    path: str | Path,
    name: str,
    store: ChannelStore,
    *,
    sds: SdsConfig | None = None,
    segmentation: SegmentationConfig | None = None,
    rate_limit: RateLimitConfig | None = None,
) -> RelayNode:
    """Return a node that is connected to the relay of a socket.

    Args:
        path: The socket.
        name: What the relay calls the node.
        store: Open; it stays the caller's to close.
        sds: Its channels' settings.
        segmentation: The same.
        rate_limit: Of the node.
    """
    config = NodeConfig(
        transport=f"relay://{name}{path}",
        sds_config=sds or SdsConfig(),
        segmentation_config=segmentation or SegmentationConfig(),
        rate_limit_config=rate_limit or RateLimitConfig(),
    )
    RelayNode.check(config)
    budget = await restore_budget(config.rate_limit_config, store)
    node = RelayNode(config, clock=SystemClock(), store=store, budget=budget)
    await node.start()
    return node
