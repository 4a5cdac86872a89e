"""What a node keeps until it is asked for: messages by topic, the oldest evicted, each given once.

Nothing here knows HTTP or where messages come from.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from reliable_channel.core.wire import WakuMessage

Place: TypeAlias = tuple[Literal["pubsub", "content"], str]
"""A kind of topic, and the topic: under which a message is asked for."""

MAX_PLACES: Final = 10_000
"""Topics that one cache is subscribed to."""


@dataclass(slots=True)
class Cached:
    """One message that nobody has asked for yet.

    Attributes:
        message: As it came.
        places: Where it can still be had.
        again: Whether it came again meanwhile, and so comes once more after it was read.
    """

    message: WakuMessage
    places: set[Place] = field(default_factory=set)
    again: bool = False


class MessageCache:
    """Messages of the topics that are subscribed to; identical ones once, under all their topics.

    Args:
        capacity: Messages kept in all; a further one evicts that with the oldest timestamp.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.evicted = 0
        self._places: set[Place] = set()
        self._cached: OrderedDict[bytes, Cached] = OrderedDict()

    @property
    def places(self) -> frozenset[Place]:
        """What is subscribed to."""
        return frozenset(self._places)

    def __len__(self) -> int:
        """Return how many messages wait to be read."""
        return len(self._cached)

    def subscribe(self, place: Place) -> bool:
        """Keep messages of a topic from now on; return False where there are too many topics."""
        if place not in self._places and len(self._places) >= MAX_PLACES:
            return False
        self._places.add(place)
        return True

    def unsubscribe(self, place: Place) -> None:
        """Keep nothing of a topic any more; harmless where it was not subscribed to."""
        self._places.discard(place)
        for digest, cached in [*self._cached.items()]:
            self._leave(digest, cached, place)

    def clear(self) -> None:
        """Forget all messages and topics."""
        self._places.clear()
        self._cached.clear()

    def add(self, digest: bytes, pubsub_topic: str, message: WakuMessage, *, again: bool) -> bool:
        """Keep a message if its topics are subscribed to.

        Args:
            digest: Its hash.
            pubsub_topic: Where it was published.
            message: As it came.
            again: Whether it is a second copy, which is given once more after the first was read.

        Returns:
            Whether it is subscribed to.
        """
        places = self.places_of(pubsub_topic, message.content_topic)
        if not places:
            return False
        cached = self._cached.get(digest)
        if cached is not None:
            cached.again |= again
            return True
        if len(self._cached) >= self.capacity:
            oldest = min(self._cached, key=lambda key: self._cached[key].message.timestamp or 0)
            del self._cached[oldest]
            self.evicted += 1
        self._cached[digest] = Cached(message, places)
        return True

    def places_of(self, pubsub_topic: str, content_topic: str) -> set[Place]:
        """Return what of the subscriptions a message falls under."""
        places: set[Place] = {("pubsub", pubsub_topic), ("content", content_topic)}
        return places & self._places

    def take(self, place: Place) -> list[WakuMessage] | None:
        """Return the messages of a topic in the order in which they came, and forget them there.

        Returns:
            The messages; None where the topic is not subscribed to.
        """
        if place not in self._places:
            return None
        taken = []
        for digest, cached in [*self._cached.items()]:
            if place not in cached.places:
                continue
            taken.append(cached.message)
            if cached.again:
                cached.again = False
                self._cached.move_to_end(digest)
            else:
                self._leave(digest, cached, place)
        return taken

    def _leave(self, digest: bytes, cached: Cached, place: Place) -> None:
        cached.places.discard(place)
        if not cached.places:
            del self._cached[digest]
