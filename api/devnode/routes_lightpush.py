"""``/lightpush``: publish through a peer that relays, version 3 and the one before.

Nothing here keeps anything.

Spec: 19/WAKU2-LIGHTPUSH, version 3.
"""

from __future__ import annotations

from typing import Final

from api.devnode.bodies import Base64Error, BodyError, field_of, message_of, read_object
from api.devnode.http import OK, Answer, Call, RefusedError, Route, json, text
from api.devnode.network import TopicError
from api.devnode.node import MAX_MESSAGE_BYTES, Node
from api.devnode.routes_relay import TOO_LARGE
from reliable_channel.core.wire import WakuMessage

NO_PEERS_TO_RELAY: Final = 505

INVALID_MESSAGE: Final = 500
"""The protocol says 420, which the HTTP library of nodes does not know and makes a 500."""


class PushError(Exception):
    """A message was not pushed.

    Args:
        status: The HTTP status that says so.
        reason: In words.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def routes() -> list[Route]:
    """Return the routes."""
    return [
        Route("POST", "/lightpush/v3/message", push),
        Route("POST", "/lightpush/v1/message", push_legacy),
    ]


def read_push(call: Call) -> tuple[str | None, WakuMessage]:
    """Return the pubsub topic, if a body names one, and its message.

    Raises:
        BodyError: It cannot be read.
        RefusedError: There is no body.
    """
    body = read_object(call.data())
    topic = field_of(body, "pubsubTopic", str) or None
    return topic, message_of(body.get("message"), call.node.network.timers.now)


def shard_topic(node: Node, message: WakuMessage) -> str:
    """Return the pubsub topic of a message for which nobody named one.

    Raises:
        PushError: There is none.
    """
    if not node.settings.auto_sharding:
        reason = "Pubsub topic must be specified when static sharding is enabled"
        raise PushError(INVALID_MESSAGE, reason)
    try:
        return node.network.shard_topic(message.content_topic)
    except TopicError as error:
        reason = f"Invalid content-topic: {error}"
        raise PushError(INVALID_MESSAGE, reason) from error


def pushed_to(node: Node, topic: str | None, message: WakuMessage) -> str:
    """Return the pubsub topic that a message goes to.

    Raises:
        PushError: There is none, or the message is too large.
    """
    if topic is None:
        topic = shard_topic(node, message)
    if not node.network.is_served(topic):
        reason = f"unsupported pubsub topic: {topic}"
        raise PushError(421, reason)
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        raise PushError(413, TOO_LARGE)
    return topic


async def publish(call: Call, topic: str | None, message: WakuMessage) -> int:
    """Push a message; return how many peers took it.

    Raises:
        PushError: None did.
    """
    goal = pushed_to(call.node, topic, message)
    if not call.node.peer_count:
        reason = "No suitable service peer & no discovery method"
        raise PushError(503, reason)
    if await call.stalls("lightpush"):
        reason = "Push request timed out"
        raise PushError(503, reason)
    reached = call.node.publish(goal, message)
    if not reached:
        reason = "no peers for relay, peersNotFound"
        raise PushError(NO_PEERS_TO_RELAY, reason)
    return reached


async def push(call: Call) -> Answer:
    """Push a message, version 3."""
    try:
        topic, message = read_push(call)
    except Base64Error as error:
        return json({"statusDesc": f"Invalid message! {error}"}, 400)
    except BodyError as error:
        reason = f"Invalid content body, could not decode: {error}"
        return json({"statusDesc": f"Invalid push request! {reason}"}, 400)
    except RefusedError as refused:
        reason = refused.answer.body.decode()
        return json({"statusDesc": f"Invalid push request! {reason}"}, 400)
    try:
        return json({"relayPeerCount": await publish(call, topic, message)})
    except PushError as error:
        return json({"statusDesc": str(error)}, error.status)


async def push_legacy(call: Call) -> Answer:
    """Push a message, the version before."""
    topic, message = read_push(call)
    try:
        await publish(call, topic, message)
    except PushError as error:
        return text(error.status if error.status in (400, 429) else 503, str(error))
    return OK
