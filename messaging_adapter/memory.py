"""``memory://NAME``: a broadcast network within the process, with seeded faults and a store.

All nodes of a name share one network, in one event loop; it vanishes when the last of them closes.
Messages really are encoded and hashed, travel through the event loop, never by a nested call, and
are lost, doubled and delayed for each receiver apart. It is for tests, demos and first steps: what
it keeps is gone with the process.

As relays do, it does not return a message to its publisher, and it takes a message whose hash it
has seen as a repetition, which goes nowhere.

Spec: MESSAGING-API; 14/WAKU2-MESSAGE; 13/STORE (query by content topic and time, lookup by hash).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar, Final, Self
from urllib.parse import SplitResult, urlsplit

from messaging_adapter.base import WakuNode
from messaging_adapter.config import NodeConfig
from messaging_adapter.events import ConnectionStatus
from messaging_adapter.faults import LinkFaults
from messaging_adapter.parameters import read_parameters
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.errors import ConfigurationError
from reliable_channel.ports import IncomingMessage
from reliable_channel.types import SECOND, Nanoseconds

SCHEME: Final = "memory"

MAX_STORED_MESSAGES: Final = 65_536
"""Messages that a network's store keeps."""

MAX_STORED_BYTES: Final = 64 << 20
"""Encoded bytes that a network's store keeps: more than two of a channel's largest payloads."""

MAX_SEEN_HASHES: Final = 16_384
"""Hashes by which a network knows repetitions."""

_networks: dict[str, MemoryNetwork] = {}
"""The networks that have a node now, by name; the one thing here that the process shares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkParameters:
    """What the URL of a memory network says."""

    name: str
    faults: LinkFaults = field(default_factory=LinkFaults)
    seed: int = 0
    """Makes the faults; the same seed and the same traffic give the same faults."""

    @classmethod
    def parse(cls, transport: str) -> Self:
        """Read ``memory://NAME?loss=&duplicate=&reorder=&delay_ms=&jitter_ms=&seed=``.

        Raises:
            ConfigurationError: Not such a URL, an unknown or repeated parameter, or a value that is
                no number or out of its bounds; all problems are named.
        """
        parts = _split(transport)
        values = read_parameters(parts, _PARAMETERS)
        seed = values.pop("seed", 0)
        return cls(name=parts.netloc, faults=LinkFaults(**values), seed=seed)

    def __str__(self) -> str:
        """Return the URL, with the parameters that differ from their defaults."""
        shown = [
            f"{item.name}={value:g}"
            for item in fields(LinkFaults)
            if (value := getattr(self.faults, item.name))
        ]
        if self.seed:
            shown.append(f"seed={self.seed}")
        return f"{SCHEME}://{self.name}" + (f"?{'&'.join(shown)}" if shown else "")


_PARAMETERS: Final[dict[str, Callable[[str], float]]] = {
    **{item.name: float for item in fields(LinkFaults)},
    "seed": int,
}


def _split(transport: str) -> SplitResult:
    try:
        parts = urlsplit(transport)
    except ValueError as error:
        problem = f"memory:// is given an unreadable name: {error}"
        raise ConfigurationError(problem) from error
    if not parts.netloc or parts.path.strip("/") or parts.fragment:
        problem = "memory:// needs a name and, besides parameters, nothing else: memory://lab"
        raise ConfigurationError(problem)
    return parts


class MessageArchive:
    """The store of a network: messages by hash, and by content topic and time; the oldest go first.

    Args:
        max_messages: Messages kept.
        max_bytes: Encoded bytes kept; a single message is kept whatever its size.
    """

    def __init__(
        self, *, max_messages: int = MAX_STORED_MESSAGES, max_bytes: int = MAX_STORED_BYTES
    ) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._order: deque[tuple[IncomingMessage, str, int]] = deque()
        self._by_hash: dict[bytes, IncomingMessage] = {}
        self._by_topic: dict[tuple[str, str], deque[IncomingMessage]] = {}
        self._bytes = 0

    def add(self, message: IncomingMessage, pubsub_topic: str, octets: int) -> None:
        """Keep a message whose hash is new.

        Args:
            message: The message.
            pubsub_topic: Where it was published.
            octets: Its encoded size.
        """
        self._order.append((message, pubsub_topic, octets))
        self._by_hash[message.message_hash] = message
        self._by_topic.setdefault((pubsub_topic, message.content_topic), deque()).append(message)
        self._bytes += octets
        while len(self._order) > 1 and (
            len(self._order) > self._max_messages or self._bytes > self._max_bytes
        ):
            self._drop_oldest()

    def lookup(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        """Return those that are there, in the order asked."""
        return [self._by_hash[key] for key in dict.fromkeys(hashes) if key in self._by_hash]

    def query(
        self, pubsub_topic: str, content_topic: str, start_ns: Nanoseconds
    ) -> list[IncomingMessage]:
        """Return what was sent on a content topic from a time on, oldest first."""
        found = [
            message
            for message in self._by_topic.get((pubsub_topic, content_topic), ())
            if message.timestamp_ns >= start_ns
        ]
        return sorted(found, key=lambda message: message.timestamp_ns)

    def _drop_oldest(self) -> None:
        message, pubsub_topic, octets = self._order.popleft()
        key = (pubsub_topic, message.content_topic)
        self._by_topic[key].popleft()  # the oldest of all is the oldest of its topic
        if not self._by_topic[key]:
            del self._by_topic[key]
        self._by_hash.pop(message.message_hash, None)
        self._bytes -= octets


class MemoryNetwork:
    """What the nodes of one name share.

    Args:
        parameters: The same for all of its nodes.
        loop: The event loop that all of its nodes live in.
    """

    def __init__(self, parameters: NetworkParameters, loop: asyncio.AbstractEventLoop) -> None:
        self.parameters = parameters
        self.loop = loop
        self.archive = MessageArchive()
        self._members: dict[MemoryNode, random.Random] = {}
        self._joined = 0
        self._under_way: list[tuple[float, int, MemoryNode, IncomingMessage]] = []
        self._numbers = itertools.count()
        self._seen: dict[bytes, None] = {}
        self._seen_order: deque[bytes] = deque()

    @classmethod
    def enter(cls, node: MemoryNode, parameters: NetworkParameters) -> MemoryNetwork:
        """Add a node to the network of a name, which is made where there is none.

        Raises:
            ConfigurationError: The network has other parameters, or lives in another event loop.
        """
        loop = asyncio.get_running_loop()
        network = _networks.get(parameters.name)
        if network is None or network.loop.is_closed():
            network = _networks[parameters.name] = cls(parameters, loop)
        if network.parameters != parameters:
            problem = (
                f"the network is open as {network.parameters} and cannot be {parameters} at the "
                "same time; close its nodes first, or use another name"
            )
            raise ConfigurationError(problem)
        if network.loop is not loop:
            problem = f"{parameters} is open in another event loop; use another name in this one"
            raise ConfigurationError(problem)
        network._add(node)
        return network

    def leave(self, node: MemoryNode) -> None:
        """Take a node out; the last one ends the network."""
        self._members.pop(node, None)
        if not self._members and _networks.get(self.parameters.name) is self:
            del _networks[self.parameters.name]

    def broadcast(self, sender: MemoryNode, pubsub_topic: str, data: bytes) -> bytes:
        """Store an encoded message, put its copies on their way, and return its hash."""
        message = WakuMessage.decode(data)
        message_hash = waku_message_hash(pubsub_topic, message)
        if self._is_new(message_hash):
            incoming = _incoming(message, message_hash)
            if not incoming.ephemeral:
                self.archive.add(incoming, pubsub_topic, len(data))
            for member, rng in self._members.items():
                if member is not sender and member.hears(pubsub_topic, incoming.content_topic):
                    self._deliver(member, rng, incoming)
        return message_hash

    def _add(self, node: MemoryNode) -> None:
        seed = f"{self.parameters.seed}/{self._joined}"
        self._joined += 1
        self._members[node] = random.Random(seed)
        node.seed(seed)

    def _deliver(self, member: MemoryNode, rng: random.Random, message: IncomingMessage) -> None:
        for delay_ns in self.parameters.faults.copies(rng):
            due = self.loop.time() + delay_ns / SECOND
            heapq.heappush(self._under_way, (due, next(self._numbers), member, message))
            self.loop.call_at(due, self._hand_over)

    def _hand_over(self) -> None:
        """Deliver what is due first; of timers for the same moment, any may fire first."""
        _, _, member, message = heapq.heappop(self._under_way)
        member.arrive(message)

    def _is_new(self, message_hash: bytes) -> bool:
        if message_hash in self._seen:
            return False
        self._seen[message_hash] = None
        self._seen_order.append(message_hash)
        if len(self._seen_order) > MAX_SEEN_HASHES:
            del self._seen[self._seen_order.popleft()]
        return True


class MemoryNode(WakuNode):
    """A node of a memory network; see `WakuNode`.

    It hears the content topics that it has joined, on the pubsub topics that its cluster and number
    of shards give them. After `close` nothing that is still under way reaches it.
    """

    honoured: ClassVar = frozenset(
        {
            "transport",
            "protocols_config.cluster_id",
            "protocols_config.auto_sharding_config",
            "protocols_config.message_validation.max_message_size",
            "sds_config",
            "segmentation_config",
            "rate_limit_config",
        }
    )
    """Dotted names of the configuration fields that the transport honours."""

    _network: MemoryNetwork
    _heard: set[tuple[str, str]]

    @classmethod
    def check(cls, config: NodeConfig) -> None:
        """Refuse fields that mean nothing here, and a URL that cannot be read.

        Raises:
            ConfigurationError: One line for each problem.
        """
        super().check(config)
        NetworkParameters.parse(config.transport)

    async def start(self) -> None:
        """Enter the network.

        Raises:
            ConfigurationError: The network has other parameters, or lives in another event loop.
        """
        parameters = NetworkParameters.parse(self.config.transport)
        self._heard = set()
        self._network = MemoryNetwork.enter(self, parameters)
        self.connection_status = ConnectionStatus.CONNECTED

    def seed(self, seed: str) -> None:
        """Make request ids and jitter reproducible; for the network, when the node enters it."""
        self._rng = random.Random(f"{seed}/node")

    def hears(self, pubsub_topic: str, content_topic: str) -> bool:
        """Say whether a message is for this node; for the network."""
        return (pubsub_topic, content_topic) in self._heard

    def arrive(self, message: IncomingMessage) -> None:
        """Take a message in; for the network, from the event loop."""
        self._received(message)

    async def _stop(self) -> None:
        self._network.leave(self)

    async def _join(self, content_topic: str) -> None:
        self._heard.add((self.pubsub_topic(content_topic), content_topic))

    async def _leave(self, content_topic: str) -> None:
        self._heard.discard((self.pubsub_topic(content_topic), content_topic))

    async def _transmit(self, message: WakuMessage, data: bytes) -> bytes:
        return self._network.broadcast(self, self.pubsub_topic(message.content_topic), data)

    async def _is_stored(self, message_hash: bytes) -> bool:
        return bool(self._network.archive.lookup([message_hash]))

    async def _find(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        return self._network.archive.lookup(hashes)

    async def _find_since(self, content_topic: str, start_ns: Nanoseconds) -> list[IncomingMessage]:
        pubsub_topic = self.pubsub_topic(content_topic)
        return self._network.archive.query(pubsub_topic, content_topic, start_ns)


def _incoming(message: WakuMessage, message_hash: bytes) -> IncomingMessage:
    return IncomingMessage(
        content_topic=message.content_topic,
        payload=message.payload,
        message_hash=message_hash,
        timestamp_ns=message.timestamp or 0,
        meta=message.meta,
        ephemeral=bool(message.ephemeral),
    )
