"""Reliable channels over brokerless publish/subscribe: whole, once, in causal order, with proof.

Segmentation, Scalable Data Sync, an epoch rate limiter and an encryption hook over any messaging node. The public
names are those of ``__all__``; ``reliable_channel.core`` is the documented layer without I/O below them.

Spec: RELIABLE-CHANNEL-API.
"""

from __future__ import annotations

import logging

from reliable_channel._version import __version__
from reliable_channel.channel import ReliableChannel
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.machine import ChannelStatus, RequestStatus, SegmentStatus
from reliable_channel.core.requests import RequestState, SegmentState
from reliable_channel.encryption import AesGcmEncryption
from reliable_channel.errors import (
    BudgetInUseError,
    ChannelClosedError,
    ChannelError,
    ChannelExistsError,
    ChannelFailedError,
    ChannelFullError,
    ConfigurationError,
    CursorAheadError,
    DecodeError,
    DecryptError,
    EmptyPayloadError,
    EncryptError,
    EncryptionError,
    EventsExpiredError,
    IdempotencyConflictError,
    InvalidContentTopicError,
    InvalidPayloadError,
    LeaseLostError,
    LocalProtocolError,
    MessageTooLargeError,
    NodeClosedError,
    NodeError,
    NodeUnavailableError,
    PublishRejectedError,
    ReliableChannelError,
    RemoteProtocolError,
    RequestError,
    RequestFailedError,
    RequestNotFoundError,
    SendOutcomeUnknownError,
    SlowConsumerError,
    StoreClosedError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.events import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageProgressEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    SenderIdConflictEvent,
)
from reliable_channel.manager import (
    close_channel,
    closeChannel,
    create_reliable_channel,
    createReliableChannel,
)
from reliable_channel.ports import ChannelStore, Clock, Encryption, MessageEnvelope, MessagingNode
from reliable_channel.streams import EventStream

logging.getLogger("reliable_channel").addHandler(logging.NullHandler())

__all__ = (
    "AesGcmEncryption",
    "BudgetInUseError",
    "ChannelClosedError",
    "ChannelError",
    "ChannelEvent",
    "ChannelExistsError",
    "ChannelFailedError",
    "ChannelFullError",
    "ChannelStatus",
    "ChannelStore",
    "Clock",
    "ConfigurationError",
    "CursorAheadError",
    "DecodeError",
    "DecryptError",
    "EmptyPayloadError",
    "EncryptError",
    "Encryption",
    "EncryptionError",
    "EventStream",
    "EventsExpiredError",
    "IdempotencyConflictError",
    "InvalidContentTopicError",
    "InvalidPayloadError",
    "LeaseLostError",
    "LocalProtocolError",
    "MessageDeliveredEvent",
    "MessageDeliveryErrorEvent",
    "MessageEnvelope",
    "MessageLostEvent",
    "MessageProgressEvent",
    "MessageQueuedEvent",
    "MessageReceivedEvent",
    "MessageSendErrorEvent",
    "MessageSentEvent",
    "MessageTooLargeError",
    "MessagingNode",
    "NodeClosedError",
    "NodeError",
    "NodeUnavailableError",
    "PublishRejectedError",
    "RateLimitConfig",
    "ReliableChannel",
    "ReliableChannelError",
    "RemoteProtocolError",
    "RequestError",
    "RequestFailedError",
    "RequestNotFoundError",
    "RequestState",
    "RequestStatus",
    "SdsConfig",
    "SegmentState",
    "SegmentStatus",
    "SegmentationConfig",
    "SendOutcomeUnknownError",
    "SenderIdConflictEvent",
    "SlowConsumerError",
    "StoreClosedError",
    "StoreError",
    "StoreOutcomeUnknownError",
    "StoreUnavailableError",
    "__version__",
    "closeChannel",
    "close_channel",
    "createReliableChannel",
    "create_reliable_channel",
)
