"""The messaging API of a node: what it does with messages by itself, and the events it tells of that.

Nothing here knows HTTP or event loops.

Spec: MESSAGING-API; P2P-RELIABILITY.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.types import SECOND, Nanoseconds

if TYPE_CHECKING:
    from api.devnode.node import Node

RING: Final = 50
"""Received messages that wait to be read; a further one pushes out the oldest."""

MAX_REQUESTS: Final = 10_000
"""Requests whose events wait to be read, and requests under way."""

MAX_OUTGOING_BYTES: Final = 64 << 20
"""Payload bytes of requests under way."""

MAX_TOPICS: Final = 10_000
"""Content topics subscribed to."""

CADENCE_S: Final = 3.0
"""Seconds from one look at the store, or attempt to publish, to the next."""

GIVE_UP_S: Final = 60.0
"""Seconds after which a request is no longer tried."""

GAVE_UP: Final = "Unable to send within retry time window"


@dataclass(frozen=True, slots=True)
class Received:
    """A message that came, and from where: ``live`` or ``history``."""

    digest: bytes
    message: WakuMessage
    source: str


@dataclass(slots=True)
class Outgoing:
    """A message that is being sent."""

    request_id: str
    topic: str
    message: WakuMessage
    digest: bytes
    admitted_at: Nanoseconds
    propagated: bool = False


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Something that happened to a request."""

    kind: str
    digest: bytes
    timestamp: Nanoseconds
    more: dict[str, Any] = field(default_factory=dict)


class Messaging:
    """What one node sends and receives by content topic.

    Args:
        node: Its own.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.topics: set[str] = set()
        self.evicted = 0
        self._received: deque[Received] = deque(maxlen=RING)
        self._events: OrderedDict[str, list[SendEvent]] = OrderedDict()
        self._outgoing: dict[str, Outgoing] = {}
        self._outgoing_bytes = 0
        self._looks = 0

    @property
    def is_detailed(self) -> bool:
        """Whether it is of the newer generation."""
        return self._node.settings.messaging_api == "2026-09"

    @property
    def under_way(self) -> int:
        """How many requests have not ended."""
        return len(self._outgoing)

    def subscribe(self, content_topic: str) -> str | None:
        """Receive a content topic from now on; return why not, where that cannot be."""
        if content_topic not in self.topics and len(self.topics) >= MAX_TOPICS:
            return "too many subscriptions"
        self.topics.add(content_topic)
        return None

    # -- receiving ----------------------------------------------------------------------------------

    def receive(self, digest: bytes, message: WakuMessage, source: str) -> None:
        """Keep a message until it is read, if its topic is subscribed to."""
        if message.content_topic in self.topics:
            self.evicted += len(self._received) == RING
            self._received.append(Received(digest, message, source))

    def missed(self, digest: bytes, content_topic: str) -> None:
        """Look for a message in the store, as a node with reliability does for what it missed."""
        if not self._node.settings.reliability or content_topic not in self.topics:
            return
        if self._looks >= MAX_REQUESTS:
            return
        self._looks += 1
        network = self._node.network

        def look() -> None:
            self._looks -= 1
            if self._node.messaging is not self or self._node.seen.knows(digest):
                return
            found = network.archive.find(digest, network.timers.now())
            if found is not None:
                self._node.seen.add(digest)
                self.receive(digest, found, "history")

        network.timers.later(network.archive.lag_s + CADENCE_S, look)

    def take_received(self) -> list[Received]:
        """Return what was received, oldest first, and forget it."""
        taken = [*self._received]
        self._received.clear()
        return taken

    # -- sending ------------------------------------------------------------------------------------

    def send(self, topic: str, message: WakuMessage) -> str | None:
        """Send a message; its fate is told in events.

        Args:
            topic: Its pubsub topic.
            message: With a timestamp.

        Returns:
            The request's id; None where too much is under way.
        """
        octets = self._outgoing_bytes + len(message.payload)
        if len(self._outgoing) >= MAX_REQUESTS or octets > MAX_OUTGOING_BYTES:
            return None
        self._outgoing_bytes = octets
        timers = self._node.network.timers
        request_id = self._node.make_id()
        digest = waku_message_hash(topic, message)
        item = Outgoing(request_id, topic, message, digest, timers.now())
        self._outgoing[request_id] = item
        queue_s = self._node.faults.queue_s
        if not queue_s:
            self._try(item)
            return request_id
        if self.is_detailed:
            expected = item.admitted_at + int(queue_s * SECOND)
            self._tell(item, "queued", expectedPublishTimestamp=expected)
        item.admitted_at += int(queue_s * SECOND)
        timers.later(queue_s, lambda: self._try(item))
        return request_id

    def _try(self, item: Outgoing) -> None:
        """Publish, and see to what follows; called again at the cadence until the request has ended."""
        node = self._node
        if node.messaging is not self:
            return  # the node was restarted
        now = node.network.timers.now()
        given_up = now - item.admitted_at >= GIVE_UP_S * SECOND
        if item.propagated and node.network.archive.has(item.digest, now):
            self._tell(item, "sent")
            self._end(item)
            return
        if given_up:
            if not item.propagated:
                self._tell(item, "error", error=GAVE_UP)
            self._end(item)
            return
        if node.publish(item.topic, item.message) and not item.propagated:
            item.propagated = True
            self._tell(item, "propagated")
        if item.propagated and (item.message.ephemeral or not node.settings.reliability):
            self._end(item)
            return
        node.network.timers.later(CADENCE_S, lambda: self._try(item))

    def _end(self, item: Outgoing) -> None:
        del self._outgoing[item.request_id]
        self._outgoing_bytes -= len(item.message.payload)

    def _tell(self, item: Outgoing, kind: str, **more: Any) -> None:
        event = SendEvent(kind, item.digest, self._node.network.timers.now(), more)
        self._events.setdefault(item.request_id, []).append(event)
        while len(self._events) > MAX_REQUESTS:
            self._events.popitem(last=False)

    def take_events(self) -> list[tuple[str, list[SendEvent]]]:
        """Return the events of all requests, in the order in which the requests had their first, and forget them."""
        taken = [*self._events.items()]
        self._events.clear()
        return taken

    def take_events_of(self, request_id: str) -> list[SendEvent] | None:
        """Return the events of one request and forget them; None where there are none."""
        return self._events.pop(request_id, None)
