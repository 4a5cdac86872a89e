"""What a node tells the application: the events of the Messaging API, and how handlers get them.

A handler that raises is logged and counted; it never reaches the node. Nothing here decides when an
event happens.

Spec: MESSAGING-API, Messaging type definitions; Health type definitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, TypeAlias, TypeVar

from reliable_channel.errors import ConfigurationError
from reliable_channel.ports import Clock, MessageEnvelope
from reliable_channel.types import SECOND, RequestId

logger = logging.getLogger("reliable_channel.messaging_adapter")


class ConnectionStatus(StrEnum):
    """How well a node is connected."""

    DISCONNECTED = "Disconnected"
    """It cannot send, or cannot receive."""
    PARTIALLY_CONNECTED = "PartiallyConnected"
    """It can send, receive and query, each over one peer at least."""
    CONNECTED = "Connected"
    """It works as it should."""


class TopicHealth(StrEnum):
    """How well messages of a content topic can be sent and received."""

    UNHEALTHY = "UNHEALTHY"
    """No peer is known that has it."""
    MINIMALLY_HEALTHY = "MINIMALLY_HEALTHY"
    """At least one peer has it."""
    SUFFICIENTLY_HEALTHY = "SUFFICIENTLY_HEALTHY"
    """It works as it should."""
    NOT_SUBSCRIBED = "NOT_SUBSCRIBED"
    """It was left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMessageReceivedEvent:
    """A message came in on a content topic that the application itself subscribes to."""

    name: ClassVar[str] = "message_received"
    message_hash: bytes
    """The deterministic hash, 32 bytes."""
    message: MessageEnvelope


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMessagePropagatedEvent:
    """The network has taken a message. It does not prove that anyone who wants it has it."""

    name: ClassVar[str] = "message_propagated"
    request_id: RequestId
    message_hash: bytes
    """The deterministic hash, 32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMessageSentEvent:
    """A store node has a message; follows propagated, never for an ephemeral message."""

    name: ClassVar[str] = "message_sent"
    request_id: RequestId
    message_hash: bytes
    """The deterministic hash, 32 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMessageErrorEvent:
    """A message could not be sent and will not be tried again."""

    name: ClassVar[str] = "message_error"
    request_id: RequestId
    error: str
    """What happened, for people."""
    message_hash: bytes | None = None
    """The deterministic hash, where the message got one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConnectionStatusEvent:
    """The node is connected better or worse than before."""

    name: ClassVar[str] = "connection_status_change"
    connection_status: ConnectionStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTopicHealthEvent:
    """A content topic is better or worse off than before."""

    name: ClassVar[str] = "content_topic_health_change"
    content_topic: str
    health: TopicHealth


NodeEvent: TypeAlias = (
    NodeMessageReceivedEvent
    | NodeMessagePropagatedEvent
    | NodeMessageSentEvent
    | NodeMessageErrorEvent
    | NodeConnectionStatusEvent
    | NodeTopicHealthEvent
)

NODE_EVENTS: Final[tuple[type[NodeEvent], ...]] = (
    NodeMessageReceivedEvent,
    NodeMessagePropagatedEvent,
    NodeMessageSentEvent,
    NodeMessageErrorEvent,
    NodeConnectionStatusEvent,
    NodeTopicHealthEvent,
)
"""The classes that a handler can be registered for."""

E = TypeVar(
    "E",
    NodeMessageReceivedEvent,
    NodeMessagePropagatedEvent,
    NodeMessageSentEvent,
    NodeMessageErrorEvent,
    NodeConnectionStatusEvent,
    NodeTopicHealthEvent,
)
A = TypeVar("A")


class HandlerGuard:
    """Calls the application's handlers and keeps what they raise away from the node.

    Args:
        clock: Says when the last line was logged: at most one a second.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_until_ns = 0
        self.errors = 0
        """Calls that raised."""

    def call(self, handler: Callable[[A], None], argument: A) -> None:
        """Call a handler; an exception is counted and logged."""
        try:
            handler(argument)
        except Exception:
            self.errors += 1
            now = self._clock.now_ns()
            if now >= self._quiet_until_ns:
                self._quiet_until_ns = now + SECOND
                logger.exception(
                    "a handler of %s raised; %d so far", type(argument).__name__, self.errors
                )


class EventHub:
    """Gives each event to the handlers of its class, in the order in which they were registered.

    Args:
        guard: Calls them.
    """

    def __init__(self, guard: HandlerGuard) -> None:
        self._guard = guard
        self._handlers: dict[type[NodeEvent], list[Callable[[NodeEvent], None]]] = {
            kind: [] for kind in NODE_EVENTS
        }

    def on(self, kind: type[E], handler: Callable[[E], None]) -> Callable[[], None]:
        """Register a handler.

        Args:
            kind: The class of events that it wants.
            handler: Called on the event loop; it must not block.

        Returns:
            A function that ends the registration; harmless when repeated.

        Raises:
            ConfigurationError: There is no such event.
        """
        if kind not in self._handlers:
            names = ", ".join(known.__name__ for known in NODE_EVENTS)
            problem = f"a node has no event {kind!r}; it has {names}"
            raise ConfigurationError(problem)
        handlers = self._handlers[kind]

        def entry(event: NodeEvent) -> None:
            handler(event)  # type: ignore[arg-type]

        handlers.append(entry)

        def off() -> None:
            if entry in handlers:
                handlers.remove(entry)

        return off

    def emit(self, event: NodeEvent) -> None:
        """Call the handlers that are registered now."""
        for handler in tuple(self._handlers[type(event)]):
            self._guard.call(handler, event)

    def clear(self) -> None:
        """Drop all handlers."""
        for handlers in self._handlers.values():
            handlers.clear()
