"""What the library needs from outside, as Protocols: a messaging node, a store (``store``), encryption, a clock.

Implementations live in ``messaging_adapter`` and ``persistence``, or are the user's own. Nothing here does anything.

Spec: RELIABLE-CHANNEL-API, Type definitions (Encryption, Persistence); MESSAGING-API.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.rate_limit import EpochRateLimiter
from reliable_channel.store import ChannelStore
from reliable_channel.types import Nanoseconds, RequestId

__all__ = (
    "ChannelStore",
    "Clock",
    "Encryption",
    "IncomingMessage",
    "MessageEnvelope",
    "MessageHandler",
    "MessagingNode",
    "Subscription",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageEnvelope:
    """A message for the messaging node.

    Spec: MESSAGING-API, MessageEnvelope; 14/WAKU2-MESSAGE for the meta field.
    """

    content_topic: str
    payload: bytes = field(repr=False)
    ephemeral: bool = False
    """Store nodes do not keep it."""
    meta: bytes | None = None
    """At most 64 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomingMessage:
    """A message that the messaging node received or that its store returned."""

    content_topic: str
    payload: bytes = field(repr=False)
    message_hash: bytes
    """The deterministic message hash of 14/WAKU2-MESSAGE, 32 bytes."""
    timestamp_ns: Nanoseconds = 0
    """The sender's timestamp; 0 when there is none."""
    meta: bytes | None = None
    ephemeral: bool = False


MessageHandler: TypeAlias = Callable[[IncomingMessage], None]
"""Called on the event loop for each message; it must not block and must not raise."""


class Subscription(Protocol):
    """One holder's interest in a content topic; the topic is left when the last holder closes."""

    async def close(self) -> None:
        """Stop receiving; harmless when repeated."""


class MessagingNode(Protocol):
    """A messaging node, as far as channels need one. One node stands for one RLN membership."""

    @property
    def sds_config(self) -> SdsConfig:
        """What its channels use unless they say otherwise."""

    @property
    def segmentation_config(self) -> SegmentationConfig:
        """What its channels use unless they say otherwise."""

    @property
    def rate_limit_config(self) -> RateLimitConfig:
        """The limits of the node's membership."""

    @property
    def store(self) -> ChannelStore:
        """Where channels of this node keep their state."""

    @property
    def epoch_budget(self) -> EpochRateLimiter:
        """The one ledger that everything this node transmits draws from."""

    @property
    def clock(self) -> Clock:
        """Unix time, for the node and its channels."""

    @property
    def max_message_bytes(self) -> int:
        """Largest encoded WakuMessage that the network takes, bytes."""

    async def subscribe_topic(self, content_topic: str, handler: MessageHandler) -> Subscription:
        """Receive messages of a content topic from now on.

        Raises:
            NodeError: The node cannot subscribe.
        """

    async def publish(self, request_id: RequestId, envelope: MessageEnvelope) -> bytes:
        """Hand a message to the network and return its transport hash, 32 bytes.

        Each call makes a new WakuMessage with a new timestamp. The caller has counted it in the epoch budget.

        Raises:
            PublishRejectedError: It would be refused again.
            NodeError: It may work later.
        """

    async def lookup(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        """Return those of the messages that the node's store has, at most 100 hashes a call.

        Raises:
            NodeError: The store could not be asked; this says nothing about the messages.
        """

    async def query(self, content_topic: str, start_ns: Nanoseconds) -> list[IncomingMessage]:
        """Return what the node's store has on a content topic from a time on, oldest first.

        Raises:
            NodeError: The store could not be asked.
        """

    def when_closed(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call a function once when the node closes; return a function that ends that."""

    async def close(self) -> None:
        """Leave the network; harmless when repeated."""


@runtime_checkable
class Encryption(Protocol):
    """The caller's encryption of each message; both operations may also be coroutines.

    An implementation may have ``overhead_bytes``: how much longer ``encrypt`` makes its input at most. Where it
    does not say, 1,024 bytes are reserved.

    Spec: RELIABLE-CHANNEL-API, Type definitions, Encryption.
    """

    def encrypt(self, content: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the encrypted bytes; an exception ends the request with a send-error."""

    def decrypt(self, payload: bytes, /) -> bytes | Awaitable[bytes]:
        """Return the plain bytes; an exception drops the message and counts it."""


class Clock(Protocol):
    """Unix time that never goes back."""

    def now_ns(self) -> Nanoseconds:
        """Return the time in nanoseconds, not below any earlier answer."""
