"""The messaging nodes that a channel can stand on, and the Messaging API on top of each of them.

One file for each kind of node, all behind ``reliable_channel.ports.MessagingNode``. Nothing here
knows channels, segments or SDS.

Spec: MESSAGING-API.
"""

from __future__ import annotations

from messaging_adapter.base import WakuNode
from messaging_adapter.config import (
    AutoShardingConfig,
    MessageValidation,
    NetworkingConfig,
    NodeConfig,
    ProtocolsConfig,
    RlnConfig,
)
from messaging_adapter.events import (
    ConnectionStatus,
    NodeConnectionStatusEvent,
    NodeMessageErrorEvent,
    NodeMessagePropagatedEvent,
    NodeMessageReceivedEvent,
    NodeMessageSentEvent,
    NodeTopicHealthEvent,
    TopicHealth,
)
from messaging_adapter.factory import create_node, createNode
from reliable_channel.ports import MessageEnvelope

__all__ = (
    "AutoShardingConfig",
    "ConnectionStatus",
    "MessageEnvelope",
    "MessageValidation",
    "NetworkingConfig",
    "NodeConfig",
    "NodeConnectionStatusEvent",
    "NodeMessageErrorEvent",
    "NodeMessagePropagatedEvent",
    "NodeMessageReceivedEvent",
    "NodeMessageSentEvent",
    "NodeTopicHealthEvent",
    "ProtocolsConfig",
    "RlnConfig",
    "TopicHealth",
    "WakuNode",
    "createNode",
    "create_node",
)
