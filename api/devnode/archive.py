"""The store of a stand-in network: messages by hash and in the order of their times, shown after a while.

Bounded by number and bytes; the oldest go first. Nothing here knows HTTP.

Spec: 13/WAKU2-STORE, version 3.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from reliable_channel.core.wire import WakuMessage
from reliable_channel.types import SECOND, Nanoseconds

Key: TypeAlias = tuple[Nanoseconds, bytes]
"""Time and hash: the order of a store."""

DEFAULT_PAGE: Final = 20
MAX_PAGE: Final = 100
"""Messages of one page: where nobody says, and at most."""


@dataclass(frozen=True, slots=True)
class Archived:
    """One message as the store has it.

    Attributes:
        digest: Its hash.
        pubsub_topic: Where it was published.
        message: Without anything changed.
        visible_at: When the store first shows it, Unix ns.
        octets: Its encoded size.
    """

    digest: bytes
    pubsub_topic: str
    message: WakuMessage
    visible_at: Nanoseconds
    octets: int

    @property
    def key(self) -> Key:
        """Its place in the order."""
        return self.message.timestamp or 0, self.digest


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreQuery:
    """What is asked of a store; what is None or empty is not asked.

    Attributes:
        pubsub_topic: The only one.
        content_topics: One of these.
        start: Earliest time, Unix ns.
        end: Latest time, Unix ns.
        hashes: One of these.
        cursor: Hash of the last message had.
        forward: Oldest first; otherwise the page before, whose messages are in the order of their times too.
        page_size: Messages wanted, clamped.
    """

    pubsub_topic: str | None = None
    content_topics: frozenset[str] = frozenset()
    start: Nanoseconds | None = None
    end: Nanoseconds | None = None
    hashes: tuple[bytes, ...] = ()
    cursor: bytes | None = None
    forward: bool = True
    page_size: int = DEFAULT_PAGE

    def wants(self, item: Archived) -> bool:
        """Say whether a message is one that is asked for, wherever the cursor is."""
        moment = item.message.timestamp or 0
        return (
            (self.pubsub_topic is None or item.pubsub_topic == self.pubsub_topic)
            and (not self.content_topics or item.message.content_topic in self.content_topics)
            and (self.start is None or moment >= self.start)
            and (self.end is None or moment <= self.end)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """One page of an answer.

    Attributes:
        items: In the order of their times.
        cursor: Where the next page begins; None is the last page.
    """

    items: list[Archived] = field(default_factory=list)
    cursor: bytes | None = None


class Archive:
    """The messages that a network keeps.

    Args:
        lag_s: How long after its arrival a message is shown, seconds.
        max_messages: Kept at most.
        max_bytes: Encoded bytes kept at most; a single message is kept whatever its size.
    """

    def __init__(self, *, lag_s: float, max_messages: int, max_bytes: int) -> None:
        self.lag_s = lag_s
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._bytes = 0
        self._keys: list[Key] = []
        self._items: dict[bytes, Archived] = {}

    def __len__(self) -> int:
        """Return how many messages are kept, shown or not."""
        return len(self._keys)

    def add(self, digest: bytes, pubsub_topic: str, message: WakuMessage, now: Nanoseconds) -> None:
        """Keep a message whose hash is new and which is not ephemeral."""
        if message.ephemeral or digest in self._items:
            return
        octets = len(message.encode())
        visible_at = now + int(self.lag_s * SECOND)
        item = Archived(digest, pubsub_topic, message, visible_at, octets)
        self._items[digest] = item
        insort(self._keys, item.key)
        self._bytes += octets
        while len(self._keys) > self._max_messages or (
            self._bytes > self._max_bytes and len(self._keys) > 1
        ):
            gone = self._items.pop(self._keys.pop(0)[1])
            self._bytes -= gone.octets

    def has(self, digest: bytes, now: Nanoseconds) -> bool:
        """Say whether the store shows a message."""
        return self.find(digest, now) is not None

    def find(self, digest: bytes, now: Nanoseconds) -> WakuMessage | None:
        """Return a message that the store shows, or None."""
        item = self._items.get(digest)
        return item.message if item is not None and item.visible_at <= now else None

    def query(self, query: StoreQuery, now: Nanoseconds) -> Page:
        """Return a page of what is asked for."""
        keys = self._candidates(query)
        if query.cursor is not None:
            last = self._items.get(query.cursor)
            if last is None:
                return Page()
            place = bisect_left(keys, last.key)
            if query.forward:
                keys = keys[place + 1 :] if keys[place : place + 1] == [last.key] else keys[place:]
            else:
                keys = keys[:place]
        limit = min(query.page_size or DEFAULT_PAGE, MAX_PAGE)
        found: list[Archived] = []
        for _, digest in keys if query.forward else reversed(keys):
            item = self._items[digest]
            if item.visible_at <= now and query.wants(item):
                found.append(item)
                if len(found) > limit:
                    break
        page = found[:limit]
        cursor = page[-1].digest if len(found) > limit else None
        return Page(page if query.forward else page[::-1], cursor)

    def _candidates(self, query: StoreQuery) -> list[Key]:
        if query.hashes:
            known = {digest for digest in query.hashes if digest in self._items}
            return sorted(self._items[digest].key for digest in known)
        first = 0 if query.start is None else bisect_left(self._keys, (query.start, b""))
        last = (
            len(self._keys) if query.end is None else bisect_left(self._keys, (query.end + 1, b""))
        )
        return self._keys[first:last]
