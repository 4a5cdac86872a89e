"""A stand-in network: its nodes, its store, and what becomes of a message that one of them publishes.

Deterministic: the same seed, requests and times give the same faults. Nothing here knows HTTP or event loops.

Spec: RELAY-SHARDING; 14/WAKU2-MESSAGE, Deterministic message hashing.
"""

from __future__ import annotations

import random
import re
from typing import Final

from api.devnode.archive import Archive
from api.devnode.node import Node
from api.devnode.settings import DevnodeSettings
from api.devnode.timers import Timers
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.core.wire.topics import parse_content_topic, pubsub_topic, shard_of
from reliable_channel.errors import InvalidContentTopicError

SHARD_TOPIC: Final = re.compile(r"/waku/2/rs/(0|[1-9][0-9]{0,4})/(0|[1-9][0-9]{0,4})")


class TopicError(Exception):
    """A content topic has no shard, for the reason given."""


class Network:
    """Nodes that all hear what one of them publishes, as far as their faults let them.

    Args:
        settings: Of the network.
        timers: Time.
    """

    def __init__(self, settings: DevnodeSettings, timers: Timers) -> None:
        self.settings = settings
        self.timers = timers
        self.store_loss = settings.store_loss
        self.archive = Archive(
            lag_s=settings.store_lag_s,
            max_messages=settings.store_messages,
            max_bytes=settings.store_mb << 20,
        )
        self.random = random.Random(f"{settings.seed}/network")
        self.nodes = [Node(self, number) for number in range(settings.nodes)]

    def peers_of(self, node: Node) -> list[Node]:
        """Return the other nodes that a node is connected to."""
        if node.faults.isolated:
            return []
        return [other for other in self.nodes if other is not node and not other.faults.isolated]

    def peer_count(self, node: Node) -> int:
        """Return how many peers a node is connected to, those that are not here among them."""
        return 0 if node.faults.isolated else self.settings.peers + len(self.peers_of(node))

    def shard_topic(self, content_topic: str) -> str:
        """Return the pubsub topic of a content topic.

        Raises:
            TopicError: The content topic has no shard.

        Spec: RELAY-SHARDING, Automatic sharding.
        """
        try:
            parsed = parse_content_topic(content_topic)
        except InvalidContentTopicError as error:
            if not content_topic.startswith("/"):
                reason = f"content-topic '{content_topic}' must start with slash"
            else:
                reason = f"content-topic '{content_topic}' must be /<app>/<version>/<name>/<enc>"
            problem = f"invalid format: {reason}"
            raise TopicError(problem) from error
        if parsed.generation:
            problem = "Generation > 0 are not supported yet"
            raise TopicError(problem)
        return pubsub_topic(self.settings.cluster_id, shard_of(parsed, self.settings.shards))

    def is_served(self, topic: str) -> bool:
        """Say whether a pubsub topic is one of this network's shards."""
        found = SHARD_TOPIC.fullmatch(topic)
        return (
            found is not None
            and int(found[1]) == self.settings.cluster_id
            and int(found[2]) < self.settings.shards
        )

    def publish(self, origin: Node, topic: str, message: WakuMessage) -> int:
        """Spread a message from one node.

        Args:
            origin: Where it begins.
            topic: Pubsub topic.
            message: With a timestamp.

        Returns:
            How many peers took it; 0 says that nobody will ever see it, but the node itself.
        """
        digest = waku_message_hash(topic, message)
        if origin.faults.strict_seen and origin.published.knows(digest):
            return 0
        origin.published.add(digest)
        if origin.faults.self_echo:
            origin.receive(digest, topic, message)
        else:
            origin.seen.add(digest)
        reached = self.peer_count(origin)
        if reached:
            for node in self.peers_of(origin):
                node.receive(digest, topic, message)
            if not self.store_loss or self.random.random() >= self.store_loss:
                self.archive.add(digest, topic, message, self.timers.now())
        return reached


def is_shard_topic(topic: str) -> bool:
    """Say whether a text names a shard of any network."""
    return SHARD_TOPIC.fullmatch(topic) is not None
