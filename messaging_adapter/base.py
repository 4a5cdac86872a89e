"""What every messaging node shares: configuration, store, budget, subscriptions, the Messaging API.

A transport is a subclass that connects, joins topics, transmits bytes and asks a store. Nothing
here knows a network, or channels: they use the node through ``MessagingNode``.

Spec: MESSAGING-API; 14/WAKU2-MESSAGE; 23/TOPICS.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import ClassVar, Final, Self

from messaging_adapter.config import NodeConfig, unsupported_fields
from messaging_adapter.events import (
    ConnectionStatus,
    E,
    EventHub,
    HandlerGuard,
    NodeMessageErrorEvent,
    NodeMessagePropagatedEvent,
    NodeMessageReceivedEvent,
    NodeMessageSentEvent,
)
from messaging_adapter.subscriptions import Subscriptions
from reliable_channel.budget import BudgetGate, EpochRateLimiter, release_budget
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.wire import WakuMessage, parse_content_topic, pubsub_topic, shard_of
from reliable_channel.errors import (
    ConfigurationError,
    InvalidContentTopicError,
    InvalidPayloadError,
    LocalProtocolError,
    MessageTooLargeError,
    NodeClosedError,
    NodeError,
    PublishRejectedError,
    ReliableChannelError,
)
from reliable_channel.ports import (
    ChannelStore,
    Clock,
    IncomingMessage,
    MessageEnvelope,
    MessageHandler,
    Subscription,
)
from reliable_channel.types import Nanoseconds, RequestId

MAX_META_BYTES: Final = 64
"""Largest ``meta`` of a message (14/WAKU2-MESSAGE), bytes."""

MAX_OPEN_SENDS: Final = 1_000
"""Messages given to `WakuNode.send` that wait or are under way before ``send`` itself waits."""

MAX_LOOKUP_HASHES: Final = 100
"""Hashes in one store query (13/STORE)."""

MAX_KNOWN_TOPICS: Final = 4_096
"""Content topics whose pubsub topics are remembered."""

logger = logging.getLogger("reliable_channel.messaging_adapter")


class WakuNode(ABC):
    """A messaging node; implements ``MessagingNode``. Use `create_node` to make one.

    It belongs to the event loop that it was made in. Use after `close` raises ``NodeClosedError``.

    Args:
        config: Checked by `check`.
        clock: Gives messages their timestamps.
        store: Open; where channels and the budget keep their state.
        budget: The membership's ledger, restored from that store.
        owns_store: Close the store with the node.
    """

    honoured: ClassVar[frozenset[str]]
    """Dotted names of the configuration fields that the transport honours."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        clock: Clock,
        store: ChannelStore,
        budget: EpochRateLimiter,
        owns_store: bool = False,
    ) -> None:
        self.config = config
        """What the node was made from."""
        self.clock = clock
        """Unix time, as the node's messages carry it."""
        self.connection_status = ConnectionStatus.DISCONNECTED
        """How well the node is connected now."""
        self._rng = random.Random()
        """Draws request ids and jitter; a transport may put a seeded one in its place."""
        self._store = store
        self._owns_store = owns_store
        self._budget = budget
        self._gate = BudgetGate(budget, store, clock=clock, jitter=lambda: self._rng.random())
        self._guard = HandlerGuard(clock)
        self._hub = EventHub(self._guard)
        self._subscriptions = Subscriptions(join=self._join, leave=self._leave, guard=self._guard)
        self._own_topics: dict[str, Subscription] = {}
        self._own_turn = asyncio.Lock()
        self._sends: set[asyncio.Task[None]] = set()
        self._unsent: dict[RequestId, None] = {}
        self._open_sends = asyncio.Semaphore(MAX_OPEN_SENDS)
        self._last_timestamp_ns: Nanoseconds = 0
        self._closed = False
        self._close_callbacks: dict[object, Callable[[], None]] = {}

    # --- What a transport is ---------------------------------------------------------------------

    @classmethod
    def check(cls, config: NodeConfig) -> None:
        """Refuse what the transport cannot honour; called before anything is opened.

        Raises:
            ConfigurationError: One line for each field.
        """
        scheme = config.transport.partition("://")[0]
        problems = [
            f"{name} cannot be honoured by {scheme}://; leave it at its default"
            for name in unsupported_fields(config, cls.honoured)
        ]
        if problems:
            raise ConfigurationError(problems)

    @abstractmethod
    async def start(self) -> None:
        """Enter the network.

        Raises:
            ConfigurationError: The network is set up in a way that contradicts the configuration.
            NodeError: It cannot be entered.
        """

    @abstractmethod
    async def _stop(self) -> None:
        """Leave the network; called once. Nothing may be received afterwards."""

    @abstractmethod
    async def _join(self, content_topic: str) -> None:
        """Receive a valid content topic from now on, by `_received`."""

    @abstractmethod
    async def _leave(self, content_topic: str) -> None:
        """Receive a content topic no longer; must not raise."""

    @abstractmethod
    async def _transmit(self, message: WakuMessage, data: bytes) -> bytes:
        """Hand a message to the network and return its hash.

        Args:
            message: Valid, with a timestamp of its own.
            data: The same, encoded; not above the limit.

        Raises:
            NodeError: It was not handed over.
        """

    @abstractmethod
    async def _is_stored(self, message_hash: bytes) -> bool:
        """Say whether a store node has a message, once that is known.

        Raises:
            PublishRejectedError: No store has it, and it will not be published again.
            NodeError: No store could be asked.
        """

    @abstractmethod
    async def _find(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        """Return those of at most 100 messages that the store has."""

    @abstractmethod
    async def _find_since(self, content_topic: str, start_ns: Nanoseconds) -> list[IncomingMessage]:
        """Return what the store has on a valid content topic from a time on, oldest first."""

    # --- What channels need ----------------------------------------------------------------------

    @property
    def sds_config(self) -> SdsConfig:
        """What its channels use unless they say otherwise."""
        return self.config.sds_config

    @property
    def segmentation_config(self) -> SegmentationConfig:
        """What its channels use unless they say otherwise."""
        return self.config.segmentation_config

    @property
    def rate_limit_config(self) -> RateLimitConfig:
        """The limits of the node's membership."""
        return self.config.rate_limit_config

    @property
    def store(self) -> ChannelStore:
        """Where channels of this node keep their state."""
        return self._store

    @property
    def epoch_budget(self) -> EpochRateLimiter:
        """The one ledger that everything this node transmits draws from."""
        return self._budget

    @property
    def max_message_bytes(self) -> int:
        """Largest encoded WakuMessage that the network takes, bytes."""
        return self.config.protocols_config.message_validation.max_message_bytes

    @property
    def handler_errors(self) -> int:
        """Calls of handlers that raised."""
        return self._guard.errors

    def pubsub_topic(self, content_topic: str) -> str:
        """Return the pubsub topic that carries a content topic.

        Raises:
            InvalidContentTopicError: It is not a content topic that the network can carry.
        """
        if not isinstance(content_topic, str):
            raise InvalidContentTopicError(repr(content_topic), "is not text")
        protocols = self.config.protocols_config
        shards = protocols.auto_sharding_config.num_shards_in_cluster
        return pubsub_topic_of(content_topic, protocols.cluster_id, shards)

    async def subscribe_topic(self, content_topic: str, handler: MessageHandler) -> Subscription:
        """Receive messages of a content topic from now on.

        The topic is left when the last holder closes. A handler that raises is counted and logged.

        Raises:
            InvalidContentTopicError: It is not a content topic of 23/TOPICS.
            NodeError: The node cannot subscribe.
        """
        self._check_open()
        self.pubsub_topic(content_topic)
        return await self._subscriptions.hold(content_topic, handler)

    async def publish(self, request_id: RequestId, envelope: MessageEnvelope) -> bytes:
        """Hand a message to the network and return its transport hash, 32 bytes.

        Each call makes a new message with a later timestamp, so equal payloads get different
        hashes. The caller has counted it in the epoch budget.

        Raises:
            PublishRejectedError: It would be refused again; it is invalid or too large.
            NodeError: It may work later.
        """
        self._check_open()
        return await self._transmit(*self._new_message(envelope))

    async def lookup(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        """Return those of the messages that the node's store has.

        Args:
            hashes: At most 100.

        Raises:
            LocalProtocolError: More than 100.
            NodeError: The store could not be asked; this says nothing about the messages.
        """
        self._check_open()
        if len(hashes) > MAX_LOOKUP_HASHES:
            problem = f"{len(hashes)} hashes in one lookup; at most {MAX_LOOKUP_HASHES} are allowed"
            raise LocalProtocolError(problem)
        return await self._find(hashes)

    async def query(self, content_topic: str, start_ns: Nanoseconds) -> list[IncomingMessage]:
        """Return what the node's store has on a content topic from a time on, oldest first.

        Raises:
            InvalidContentTopicError: It is not a content topic of 23/TOPICS.
            NodeError: The store could not be asked.
        """
        self._check_open()
        self.pubsub_topic(content_topic)
        return await self._find_since(content_topic, start_ns)

    # --- The Messaging API -----------------------------------------------------------------------

    async def send(self, envelope: MessageEnvelope) -> RequestId:
        """Send a message in the background and return the id that its events will carry.

        The first message on a content topic subscribes the application to it. The message waits for
        the epoch budget; then propagated and, where a store has it, sent are raised, or error.
        Nothing is kept across restarts: that is what channels are for. With 1,000 messages under
        way it waits; when cancelled, nothing is sent.

        Raises:
            InvalidContentTopicError: The content topic is not one of 23/TOPICS.
            InvalidPayloadError: The payload is not bytes.
            MessageTooLargeError: The message is above the network's limit, or its meta above 64.
            NodeError: The node cannot subscribe.
        """
        self._check_open()
        self._encode(envelope, self.clock.now_ns())
        await self.subscribe([envelope.content_topic])
        await self._open_sends.acquire()
        if self._closed:
            self._open_sends.release()  # the next one that waits finds out too
            raise NodeClosedError
        request_id = f"{self._rng.getrandbits(80):020x}"
        self._unsent[request_id] = None
        task = asyncio.create_task(self._carry_out(request_id, envelope), name=f"send {request_id}")
        self._sends.add(task)
        task.add_done_callback(self._forget_send)
        return request_id

    async def subscribe(self, content_topics: Iterable[str]) -> None:
        """Raise received events for these content topics; harmless where that is so already.

        Raises:
            InvalidContentTopicError: One of them is not a content topic; nothing was changed.
            NodeError: The node cannot subscribe.
        """
        topics = self._checked_topics(content_topics)
        async with self._own_turn:
            for topic in topics:
                if topic not in self._own_topics:
                    self._own_topics[topic] = await self.subscribe_topic(topic, self._emit_received)

    async def unsubscribe(self, content_topics: Iterable[str]) -> None:
        """Raise no more received events for these content topics; channels on them go on.

        Raises:
            InvalidContentTopicError: One of them is not a content topic; nothing was changed.
            LocalProtocolError: The application does not subscribe to one of them; nothing was
                changed.
        """
        topics = self._checked_topics(content_topics)
        async with self._own_turn:
            if missing := [topic for topic in topics if topic not in self._own_topics]:
                problem = f"not subscribed to {', '.join(missing)}"
                raise LocalProtocolError(problem)
            for topic in topics:
                await self._own_topics.pop(topic).close()

    def on(self, kind: type[E], handler: Callable[[E], None]) -> Callable[[], None]:
        """Call a handler for each event of a class, until the returned function is called.

        Args:
            kind: One of the ``Node…Event`` classes.
            handler: Called on the event loop; it must not block. What it raises is counted and
                logged.

        Raises:
            ConfigurationError: There is no such event.
        """
        self._check_open()
        return self._hub.on(kind, handler)

    def when_closed(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function once when the node closes; return a function that ends that."""
        registration = object()
        self._close_callbacks[registration] = callback

        def remove() -> None:
            self._close_callbacks.pop(registration, None)

        return remove

    async def close(self) -> None:
        """Leave the network; harmless when repeated.

        Messages that were not transmitted end in an error event. When it returns, no handler is
        called any more. A store that was given to the node stays open.
        """
        if self._closed:
            return
        self._closed = True
        for callback in list(self._close_callbacks.values()):
            callback()
        self.connection_status = ConnectionStatus.DISCONNECTED
        for task in self._sends:
            task.cancel()
        try:
            await asyncio.gather(*self._sends, return_exceptions=True)
            for request_id in tuple(self._unsent):
                self._emit_error(request_id, "the node was closed before the network took it")
            await self._gate.close()
            await self._stop()
        finally:
            self._subscriptions.clear()
            self._hub.clear()
            await release_budget(self._budget, self._store)
            if self._owns_store:
                await self._store.close()

    async def __aenter__(self) -> Self:
        self._check_open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- Inside ----------------------------------------------------------------------------------

    def _received(self, message: IncomingMessage) -> None:
        """Give a message to the holders of its topic; for transports, from the event loop."""
        if not self._closed:
            self._subscriptions.dispatch(message)

    def _check_open(self) -> None:
        if self._closed:
            raise NodeClosedError

    def _checked_topics(self, content_topics: Iterable[str]) -> list[str]:
        self._check_open()
        if isinstance(content_topics, str):
            problem = "content_topics must be a list of content topics, not one string"
            raise ConfigurationError(problem)
        topics = list(dict.fromkeys(content_topics))
        for topic in topics:
            self.pubsub_topic(topic)
        return topics

    def _new_message(self, envelope: MessageEnvelope) -> tuple[WakuMessage, bytes]:
        """Return a message with a timestamp of its own, and its bytes.

        Raises:
            PublishRejectedError: It is invalid or too large.
        """
        self._last_timestamp_ns = max(self.clock.now_ns(), self._last_timestamp_ns + 1)
        try:
            return self._encode(envelope, self._last_timestamp_ns)
        except (ConfigurationError, LocalProtocolError) as error:
            raise PublishRejectedError(str(error)) from error

    def _encode(
        self, envelope: MessageEnvelope, timestamp_ns: Nanoseconds
    ) -> tuple[WakuMessage, bytes]:
        """Return a message and its bytes, or raise what is wrong with the envelope."""
        self.pubsub_topic(envelope.content_topic)
        if not isinstance(envelope.payload, bytes):
            raise InvalidPayloadError(envelope.payload)
        if envelope.meta is not None and len(envelope.meta) > MAX_META_BYTES:
            raise MessageTooLargeError(len(envelope.meta), MAX_META_BYTES, "meta")
        message = WakuMessage(
            payload=envelope.payload,
            content_topic=envelope.content_topic,
            timestamp=timestamp_ns,
            meta=envelope.meta,
            ephemeral=envelope.ephemeral or None,
        )
        data = message.encode()
        if len(data) > self.max_message_bytes:
            raise MessageTooLargeError(len(data), self.max_message_bytes, "message")
        return message, data

    async def _carry_out(self, request_id: RequestId, envelope: MessageEnvelope) -> None:
        """Transmit one message of the application and raise its events."""
        try:
            message_hash = await self._hand_over(request_id, envelope)
        except ReliableChannelError as error:
            self._emit_error(request_id, str(error))
        except Exception as error:
            logger.exception("request %s failed", request_id)
            self._emit_error(request_id, f"{type(error).__name__}: {error}")
        else:
            del self._unsent[request_id]
            await self._report(request_id, envelope, message_hash)

    async def _hand_over(self, request_id: RequestId, envelope: MessageEnvelope) -> bytes:
        """Count a message of the application and transmit it; a transport may try again.

        Raises:
            ReliableChannelError: It will not be tried any more.
        """
        async with self._gate.transmission():
            return await self.publish(request_id, envelope)

    async def _report(
        self, request_id: RequestId, envelope: MessageEnvelope, message_hash: bytes
    ) -> None:
        """Raise the events of a message that is with the network."""
        self._hub.emit(NodeMessagePropagatedEvent(request_id=request_id, message_hash=message_hash))
        if envelope.ephemeral:
            return
        try:
            stored = await self._is_stored(message_hash)
        except PublishRejectedError as error:
            self._hub.emit(
                NodeMessageErrorEvent(
                    request_id=request_id, error=str(error), message_hash=message_hash
                )
            )
        except NodeError as error:
            logger.warning("request %s cannot be confirmed: %s", request_id, error)
        else:
            if stored:
                self._hub.emit(
                    NodeMessageSentEvent(request_id=request_id, message_hash=message_hash)
                )

    def _forget_send(self, task: asyncio.Task[None]) -> None:
        self._sends.discard(task)
        self._open_sends.release()

    def _emit_error(self, request_id: RequestId, error: str) -> None:
        del self._unsent[request_id]
        self._hub.emit(NodeMessageErrorEvent(request_id=request_id, error=error))

    def _emit_received(self, message: IncomingMessage) -> None:
        envelope = MessageEnvelope(
            content_topic=message.content_topic,
            payload=message.payload,
            ephemeral=message.ephemeral,
            meta=message.meta,
        )
        self._hub.emit(
            NodeMessageReceivedEvent(message_hash=message.message_hash, message=envelope)
        )


@lru_cache(maxsize=MAX_KNOWN_TOPICS)
def pubsub_topic_of(content_topic: str, cluster_id: int, shards: int) -> str:
    """Return the pubsub topic of a content topic; each message asks for it twice.

    Raises:
        InvalidContentTopicError: It is not a content topic that the network can carry.
    """
    return pubsub_topic(cluster_id, shard_of(parse_content_topic(content_topic), shards))
