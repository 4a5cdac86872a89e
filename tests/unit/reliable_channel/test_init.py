"""The public names of the library: the specification's and Python's, the events', the errors'."""

from __future__ import annotations

import asyncio
import inspect
import logging
import subprocess
import sys

import pytest

import messaging_adapter
import reliable_channel
from reliable_channel import errors, events

PROMISED = (
    "AesGcmEncryption",
    "RateLimitConfig",
    "SdsConfig",
    "SegmentationConfig",
    "MessageReceivedEvent",
    "MessageSentEvent",
    "MessageDeliveredEvent",
    "MessageSendErrorEvent",
    "MessageDeliveryErrorEvent",
    "create_reliable_channel",
    "createReliableChannel",
    "close_channel",
    "closeChannel",
)

SPECIFIED_EVENTS = {
    "MessageReceivedEvent": "reliable:message:received",
    "MessageSentEvent": "reliable:message:sent",
    "MessageDeliveredEvent": "reliable:message:delivered",
    "MessageSendErrorEvent": "reliable:message:send-error",
    "MessageDeliveryErrorEvent": "reliable:message:delivery-error",
    "MessageLostEvent": "reliable:message:lost",
    "MessageQueuedEvent": "reliable:message:queued",
    "MessageProgressEvent": "reliable:message:progress",
    "SenderIdConflictEvent": "reliable:channel:sender-id-conflict",
}

FIELDS = {
    "MessageReceivedEvent": {"message", "sender_id", "message_id"},
    "MessageSentEvent": {"request_id"},
    "MessageDeliveredEvent": {"request_id", "recipients"},
    "MessageSendErrorEvent": {"request_id", "error"},
    "MessageDeliveryErrorEvent": {"request_id", "error"},
    "MessageQueuedEvent": {"request_id"},
    "MessageProgressEvent": {
        "request_id",
        "sent",
        "acknowledged",
        "total",
        "recipients",
        "participants",
    },
}


@pytest.mark.parametrize("name", PROMISED)
def test_promised_names_are_public(name: str) -> None:
    assert name in reliable_channel.__all__
    assert getattr(reliable_channel, name) is not None


@pytest.mark.parametrize("name", reliable_channel.__all__)
def test_public_names_resolve(name: str) -> None:
    assert hasattr(reliable_channel, name)


@pytest.mark.parametrize(("kind", "name"), SPECIFIED_EVENTS.items())
def test_events_have_the_names_of_the_specification(kind: str, name: str) -> None:
    event = getattr(reliable_channel, kind)
    assert event.name == name
    assert name in events.EVENT_NAMES
    assert {"channel_id", "sequence"} <= set(event.__dataclass_fields__)
    assert FIELDS.get(kind, set()) <= set(event.__dataclass_fields__)


def test_no_event_is_missing_from_the_union() -> None:
    union = {kind.__name__ for kind in reliable_channel.ChannelEvent.__args__}
    assert union == set(SPECIFIED_EVENTS)
    assert len(events.EVENT_NAMES) == len(set(events.EVENT_NAMES)) == len(union)


def test_events_are_frozen_and_do_not_show_payloads() -> None:
    event = reliable_channel.MessageReceivedEvent(
        channel_id="room", message=b"secret", sender_id="bob", message_id="m"
    )
    assert "secret" not in repr(event)
    with pytest.raises(AttributeError):
        event.sequence = 5  # type: ignore[misc]


def test_every_error_is_under_the_one_root_and_public() -> None:
    found = [
        item
        for item in vars(errors).values()
        if inspect.isclass(item) and issubclass(item, Exception)
    ]
    assert [kind for kind in found if not issubclass(kind, errors.ReliableChannelError)] == []
    inner = {"InvalidSegmentError", "UnrecoverableError"}  # they never leave the core
    assert {kind.__name__ for kind in found} - inner <= set(reliable_channel.__all__)


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (
            reliable_channel.createReliableChannel,
            ["node", "channelId", "contentTopic", "senderId", "encryption"],
        ),
        (
            reliable_channel.create_reliable_channel,
            ["node", "channel_id", "content_topic", "sender_id", "encryption"],
        ),
        (reliable_channel.closeChannel, ["channel"]),
        (reliable_channel.close_channel, ["channel"]),
        (messaging_adapter.createNode, ["nodeConfig"]),
    ],
)
def test_opening_calls_have_the_parameters_of_the_specification(
    function: object, parameters: list[str]
) -> None:
    assert callable(function)
    assert list(inspect.signature(function).parameters)[: len(parameters)] == parameters
    assert asyncio.iscoroutinefunction(function)


def test_importing_leaves_logging_alone() -> None:
    """Our loggers get a NullHandler; nothing else is set up and nothing is written."""
    code = (
        "import logging, reliable_channel, messaging_adapter, persistence\n"
        "root = logging.getLogger()\n"
        "assert root.handlers == [] and root.level == logging.WARNING\n"
        "ours = logging.getLogger('reliable_channel')\n"
        "assert [type(h) for h in ours.handlers] == [logging.NullHandler]\n"
        "assert ours.level == logging.NOTSET and ours.propagate\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_library_logs_below_its_own_name() -> None:
    ours = [name for name in logging.root.manager.loggerDict if "reliable_channel" in name]
    assert ours
    assert [name for name in ours if not name.startswith("reliable_channel")] == []
