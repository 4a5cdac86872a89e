"""What comes in over a node's REST API: each message once, and from the store what did not come.

It knows the subscribed topics and since when, never how the node is asked for new messages, nor
whether it is there.

Spec: P2P-RELIABILITY, Store-based reliability for receiving; RELIABLE-CHANNEL-API, Node
initialization, step 4.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import Final

from messaging_adapter.rest_client import Refusals
from messaging_adapter.rest_seen import SeenMessages
from messaging_adapter.rest_store import MAX_TOPICS, RestStore
from messaging_adapter.rest_url import RestParameters
from messaging_adapter.rest_wire import PubsubTopicOf
from reliable_channel.core.wire import WakuMessage
from reliable_channel.errors import NodeError
from reliable_channel.ports import Clock, IncomingMessage
from reliable_channel.types import MS, SECOND, Nanoseconds

MARGIN_NS: Final = 5 * SECOND
"""Missed messages are asked for from this long before the last one seen."""

STORE_LAG_NS: Final = 20 * SECOND
"""A message may take so long to its store: as long as relays take it."""

MIN_CHECK_SEC: Final = 1.0
"""Shortest distance of checks for gaps."""

QUERY_SEC: Final = 0.1
"""With many topics checks are rarer: ten questions a second on average."""

logger = logging.getLogger("reliable_channel.messaging_adapter")


class Intake:
    """Takes messages in and asks the store for those that are missing.

    Args:
        parameters: How often, and how far back.
        clock: Unix time.
        store: Answers questions.
        refusals: Counts errors of ours.
        pubsub_topic_of: Where a content topic travels.
        deliver: Gets each message once.
    """

    def __init__(
        self,
        parameters: RestParameters,
        *,
        clock: Clock,
        store: RestStore,
        refusals: Refusals,
        pubsub_topic_of: PubsubTopicOf,
        deliver: Callable[[IncomingMessage], None],
    ) -> None:
        self._window_ns = parameters.window_ms * MS
        self._longest_sec = parameters.check_ms / 1_000
        self._clock = clock
        self._store = store
        self._refusals = refusals
        self._pubsub_topic_of = pubsub_topic_of
        self._deliver = deliver
        self.seen = SeenMessages(clock)
        """What was delivered, or is our own."""
        self.has_store = False
        """Whether the node has a store to ask."""
        self.topics: dict[str, Nanoseconds] = {}
        """The subscribed content topics, and since when messages are wanted."""
        self.behind_ns: Nanoseconds | None = None
        """Since when messages may be missing; None: for no reason but the usual ones."""
        self._checked_ns = clock.now_ns()
        self._soon = asyncio.Event()
        self._turn = asyncio.Lock()
        self._echoes: dict[bytes, list[list[IncomingMessage]]] = {}

    # --- Each message once -----------------------------------------------------------------------

    def take(self, message: IncomingMessage) -> None:
        """Deliver a message, unless nobody wants it, or it was delivered, or is our own."""
        if message.content_topic not in self.topics:
            return
        if self._echoes and (waiting := self._echoes.get(_content(message))):
            waiting[0].append(message)
        elif self.seen.add(message.message_hash, message.timestamp_ns):
            self._deliver(message)

    @asynccontextmanager
    async def own(self, message: WakuMessage) -> AsyncIterator[None]:
        """Hold back what has the content of a message of ours whose hash is not known yet.

        When left, the hash must be among `seen`; what has another one is delivered then.
        """
        key = _content(message)
        held: list[IncomingMessage] = []
        waiting = self._echoes.setdefault(key, [])
        waiting.append(held)
        try:
            yield
        finally:
            waiting.remove(held)
            if waiting:
                waiting[0].extend(held)
            else:
                del self._echoes[key]
                for item in held:
                    self.take(item)

    # --- What is missing -------------------------------------------------------------------------

    def suspect(self) -> None:
        """Take note that something may just have been lost: the store is asked soon."""
        self._soon.set()

    def interrupted(self) -> None:
        """Take note that the node may have been away since the last message."""
        self.fall_behind((self.seen.newest_ns or self._checked_ns) - MARGIN_NS)

    def fall_behind(self, start_ns: Nanoseconds) -> None:
        """Take note that the store has to be asked for what came since a time."""
        self.behind_ns = start_ns if self.behind_ns is None else min(self.behind_ns, start_ns)
        self._soon.set()

    def answered(
        self, content_topic: str, start_ns: Nanoseconds, found: Sequence[IncomingMessage]
    ) -> None:
        """Take note that a holder of a topic was told itself what a store has since a time.

        What was sent just before the topic was joined, and was on its way to the store then, is
        wanted too. What was told from before that is owed to nobody else: nobody held the topic.
        """
        joined = self.topics.get(content_topic)
        if joined is None:
            return
        since = max(start_ns, joined - STORE_LAG_NS)
        for message in found:
            if since <= message.timestamp_ns < joined:
                self.seen.add(message.message_hash, message.timestamp_ns)
        self.topics[content_topic] = min(joined, since)

    def cut_short(self, content_topic: str, found: Sequence[IncomingMessage]) -> None:
        """Take note that a holder of a topic was told only the oldest of what a store has."""
        joined = self.topics.get(content_topic)
        if joined is None:
            return
        newest = max(message.timestamp_ns for message in found)
        for message in found:
            if message.timestamp_ns == newest:
                self.seen.add(message.message_hash, newest)
        self.topics[content_topic] = min(joined, newest)
        self.fall_behind(newest)

    async def watch(self, connected: asyncio.Event) -> None:
        """Ask the store for what did not arrive: soon after trouble, else now and then.

        Args:
            connected: Set while the node can be asked.
        """
        shortest = wait = min(MIN_CHECK_SEC, self._longest_sec)
        while True:
            await asyncio.sleep(max(shortest, QUERY_SEC * len(list(self._queries()))))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait - shortest):
                    await self._soon.wait()
            await connected.wait()
            troubled = self._soon.is_set()
            self._soon.clear()
            found = await self.close_gaps()
            wait = shortest if troubled or found else min(self._longest_sec, 2 * wait)

    async def close_gaps(self) -> int:
        """Deliver what is missing, as far as the store answers; return how many that were."""
        if not self.has_store or not self.topics:
            self.behind_ns = None
            return 0
        try:
            async with self._turn:
                return await self._close_gaps()
        except NodeError as error:
            logger.debug("missed messages could not be asked for: %s", error)
        except Exception as error:  # an error of ours must not end reception
            self._refusals.count("unexpected", repr(error))
        return 0

    async def _close_gaps(self) -> int:
        began, behind = self._clock.now_ns(), self.behind_ns
        # Since the last success, if that is longer ago than the window.
        start = min(began - self._window_ns, self._checked_ns - MARGIN_NS)
        start = start if behind is None else min(start, behind)
        found = 0
        async with AsyncExitStack() as stack:
            streams = []
            for carrier, topics in self._queries():
                since = max(start, self.seen.horizon_ns + 1, min(map(self._since, topics)))
                stream = self._missing(carrier, topics, since)
                stack.push_async_callback(stream.aclose)
                streams.append(stream)
            async for message in merged(streams):
                found += self._fill(message)
        self._checked_ns = began
        if self.behind_ns == behind:
            self.behind_ns = None
        return found

    def _fill(self, message: IncomingMessage) -> bool:
        """Take in what the store has, and say whether it was missing."""
        since = self.topics.get(message.content_topic)
        if since is None or message.message_hash in self.seen:
            return False
        if message.timestamp_ns < since:  # from before somebody was interested
            self.seen.add(message.message_hash, message.timestamp_ns)
            return False
        self.take(message)
        return True

    async def _missing(
        self, carrier: str, topics: Sequence[str], start_ns: Nanoseconds
    ) -> AsyncGenerator[IncomingMessage, None]:
        """Give what is stored and was not seen, oldest first."""
        async with aclosing(self._store.hashes_since(carrier, topics, start_ns)) as pages:
            async for page in pages:
                unknown = [item for item in page if item not in self.seen]
                for message in await self._store.lookup(unknown):
                    yield message

    def _queries(self) -> Iterator[tuple[str, list[str]]]:
        """Give the pubsub topics with their content topics, a few at a time."""
        carried: dict[str, list[str]] = {}
        for topic in self.topics:
            carried.setdefault(self._pubsub_topic_of(topic), []).append(topic)
        for carrier, topics in carried.items():
            for first in range(0, len(topics), MAX_TOPICS):
                yield carrier, topics[first : first + MAX_TOPICS]

    def _since(self, topic: str) -> Nanoseconds:
        return self.topics.get(topic, self._clock.now_ns())


async def merged(
    streams: Sequence[AsyncIterator[IncomingMessage]],
) -> AsyncIterator[IncomingMessage]:
    """Give the messages of several streams in the order of their times, holding one of each.

    Args:
        streams: Each with the oldest first.
    """
    heads: list[tuple[IncomingMessage, AsyncIterator[IncomingMessage]]] = []
    for stream in streams:
        head = await anext(stream, None)
        if head is not None:
            heads.append((head, stream))
    while heads:
        index = min(range(len(heads)), key=lambda i: heads[i][0].timestamp_ns)
        head, stream = heads[index]
        yield head
        following = await anext(stream, None)
        if following is None:
            del heads[index]
        else:
            heads[index] = following, stream


def _content(message: IncomingMessage | WakuMessage) -> bytes:
    digest = hashlib.sha256(message.content_topic.encode())
    digest.update(b"\0" + (message.meta or b"") + b"\0" + message.payload)
    return digest.digest()
