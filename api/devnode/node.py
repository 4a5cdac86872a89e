"""One node of a stand-in network: its caches and subscriptions, and what arrives there.

What it publishes goes to the network. Nothing here knows HTTP or event loops.

Spec: 11/WAKU2-RELAY; 12/WAKU2-FILTER.
"""

from __future__ import annotations

import hashlib
import random
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

from api.devnode.caches import MessageCache
from api.devnode.messaging import Messaging
from reliable_channel.core.wire import WakuMessage
from reliable_channel.types import SECOND

if TYPE_CHECKING:
    from api.devnode.network import Network

MAX_SEEN: Final = 16_384
"""Hashes by which a node knows repetitions."""

MAX_UNDER_WAY_BYTES: Final = 64 << 20
"""Payload bytes that are on their way to one node; further messages are lost."""

OVERHEAD_BYTES: Final = 1_024
"""What a message under way counts besides its payload."""

FILTER_CAPACITY: Final = 50
"""Messages in the filter cache; nothing sets it."""

MAX_MESSAGE_BYTES: Final = 150 << 10
"""Largest message, encoded."""


class Seen:
    """The newest hashes of something, a bounded number."""

    def __init__(self, capacity: int = MAX_SEEN) -> None:
        self._capacity = capacity
        self._hashes: OrderedDict[bytes, None] = OrderedDict()

    def add(self, digest: bytes) -> None:
        """Know a hash from now on."""
        self._hashes[digest] = None
        while len(self._hashes) > self._capacity:
            self._hashes.popitem(last=False)

    def knows(self, digest: bytes) -> bool:
        """Say whether a hash was added lately."""
        return digest in self._hashes


class Node:
    """A node and all that is its own.

    Args:
        network: What it is part of.
        number: Its place there, from 0.
    """

    def __init__(self, network: Network, number: int) -> None:
        self.network = network
        self.number = number
        self.settings = network.settings
        self.faults = network.settings.faults()
        self.random = random.Random(f"{network.settings.seed}/{number}")
        self.choices = random.Random(f"{network.settings.seed}/{number}/answers")
        self.peer_id = make_peer_id(f"{network.settings.seed}/{number}")
        self.restart()

    def restart(self) -> None:
        """Forget all that a node's process holds; the network's store stays."""
        self.relay = MessageCache(self.settings.cache_capacity)
        self.filter = MessageCache(FILTER_CAPACITY)
        self.messaging = Messaging(self)
        self.seen = Seen()
        self.published = Seen()
        self.filtered: set[tuple[str, str]] = set()
        """What the filter peer has of us: pubsub and content topics."""
        self.arrived = 0
        self.lost = 0
        self.under_way_bytes = 0

    def forget_filter(self) -> None:
        """Have the filter peer lose its subscriptions, as its restart does; the node does not notice."""
        self.filtered.clear()

    @property
    def peer_count(self) -> int:
        """How many peers it has."""
        return self.network.peer_count(self)

    def publish(self, topic: str, message: WakuMessage) -> int:
        """Publish a message; return how many peers took it."""
        return self.network.publish(self, topic, message)

    def make_id(self) -> str:
        """Return a new request id: 20 hex digits."""
        return self.choices.randbytes(10).hex()

    def wants(self, topic: str, content_topic: str) -> bool:
        """Say whether anything here is subscribed to a message."""
        return (
            bool(self.relay.places_of(topic, content_topic))
            or (topic, content_topic) in self.filtered
            or content_topic in self.messaging.topics
        )

    def receive(self, digest: bytes, topic: str, message: WakuMessage) -> None:
        """Take a message from the network, with whatever the node's faults make of it.

        Args:
            digest: Its hash.
            topic: Where it was published.
            message: As it was published.
        """
        if self.seen.knows(digest) or not self.wants(topic, message.content_topic):
            return
        self.arrived += 1
        faults = self.faults
        dropped = bool(faults.drop_every) and self.arrived % faults.drop_every == 0
        copies = [] if dropped else faults.link.copies(self.random)
        if not copies:
            self.lost += 1
            self.messaging.missed(digest, message.content_topic)
            return
        self.seen.add(digest)
        cost = OVERHEAD_BYTES + len(message.payload)
        for number, delay in enumerate(copies):
            act = partial(self._deliver, digest, topic, message, number > 0)
            if not delay:
                act()
            elif self.under_way_bytes + cost > MAX_UNDER_WAY_BYTES:
                self.lost += 1
            else:
                self.under_way_bytes += cost
                land = partial(self._land, self.seen, cost, act)
                self.network.timers.later(delay / SECOND, land)

    def _land(self, life: Seen, cost: int, act: partial[None]) -> None:
        if life is self.seen:  # else the node was restarted meanwhile
            self.under_way_bytes -= cost
            act()

    def _deliver(self, digest: bytes, topic: str, message: WakuMessage, again: bool) -> None:
        self.relay.add(digest, topic, message, again=again)
        if (topic, message.content_topic) in self.filtered:
            self.filter.add(digest, topic, message, again=again)
        self.messaging.receive(digest, message, "live")


def make_peer_id(seed: str) -> str:
    """Return a text that looks like the id of a libp2p peer."""
    return "16Uiu2HAm" + hashlib.sha256(seed.encode()).hexdigest()[:44].replace("0", "z")
