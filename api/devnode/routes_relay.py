"""``/relay/v1``: messages by pubsub topic, or by content topic where the node finds the shard.

Nothing here keeps anything.

Spec: 11/WAKU2-RELAY; RELAY-SHARDING.
"""

from __future__ import annotations

from typing import Final

from api.devnode.bodies import message_json, message_of, read_json, read_texts
from api.devnode.caches import Place
from api.devnode.http import OK, Answer, Call, RefusedError, Route, json, text
from api.devnode.network import TopicError, is_shard_topic
from api.devnode.node import MAX_MESSAGE_BYTES, Node
from reliable_channel.core.wire import WakuMessage

TOO_LARGE: Final = f"Message size exceeded maximum of {MAX_MESSAGE_BYTES} bytes"

NO_PEERS: Final = "no peers for publishing"


def routes() -> list[Route]:
    """Return the routes."""
    found = [
        Route("POST", "/relay/v1/subscriptions", subscribe),
        Route("DELETE", "/relay/v1/subscriptions", unsubscribe),
        Route("GET", "/relay/v1/messages/{}", take),
        Route("POST", "/relay/v1/messages/{}", publish),
        Route("POST", "/relay/v1/auto/subscriptions", subscribe_content),
        Route("DELETE", "/relay/v1/auto/subscriptions", unsubscribe_content),
        Route("GET", "/relay/v1/auto/messages/{}", take_content),
        Route("POST", "/relay/v1/auto/messages", publish_content),
    ]
    paths = dict.fromkeys(route.path for route in found)
    return found + [Route("OPTIONS", path, options) for path in paths]


async def options(call: Call) -> Answer:
    """Say that a path is there."""
    return OK


def pubsub_places(call: Call) -> list[Place]:
    """Return the pubsub topics of a body.

    Raises:
        BodyError: It is no list of texts.
        RefusedError: Some are no shards.
    """
    topics = read_texts(call.data())
    bad = [topic for topic in topics if not is_shard_topic(topic)]
    if bad:
        shown = ", ".join(f'"{topic}"' for topic in bad)
        raise RefusedError(text(400, f"Invalid pubsub topic(s): @[{shown}]"))
    return [("pubsub", topic) for topic in topics]


def content_places(call: Call, verb: str) -> list[Place]:
    """Return the content topics of a body.

    Raises:
        BodyError: It is no list of texts.
        RefusedError: Some have no shard.
    """
    topics = read_texts(call.data())
    for topic in topics:
        if not call.node.settings.auto_sharding:
            raise RefusedError(text(500, f"{verb} failed: Autosharding is disabled"))
        try:
            call.node.network.shard_topic(topic)
        except TopicError as error:
            raise RefusedError(text(500, f"{verb} failed: {error}")) from error
    return [("content", topic) for topic in topics]


def keep(node: Node, places: list[Place]) -> Answer:
    """Subscribe to topics."""
    if all(node.relay.subscribe(place) for place in places):
        return OK
    return text(500, "Subscribe failed: too many subscriptions")


def leave(node: Node, places: list[Place]) -> Answer:
    """Unsubscribe from topics."""
    for place in places:
        node.relay.unsubscribe(place)
    return OK


async def subscribe(call: Call) -> Answer:
    """Subscribe to pubsub topics."""
    return keep(call.node, pubsub_places(call))


async def unsubscribe(call: Call) -> Answer:
    """Unsubscribe from pubsub topics."""
    return leave(call.node, pubsub_places(call))


async def subscribe_content(call: Call) -> Answer:
    """Subscribe to content topics."""
    return keep(call.node, content_places(call, "Subscribe"))


async def unsubscribe_content(call: Call) -> Answer:
    """Unsubscribe from content topics."""
    return leave(call.node, content_places(call, "Unsubscribe"))


async def take(call: Call) -> Answer:
    """Give the messages of a pubsub topic, and forget them."""
    taken = call.node.relay.take(("pubsub", call.parts[0]))
    return text(404) if taken is None else json([message_json(message) for message in taken])


async def take_content(call: Call) -> Answer:
    """Give the messages of a content topic, and forget them."""
    taken = call.node.relay.take(("content", call.parts[0]))
    if taken is None:
        return text(404, call.parts[0])
    return json([message_json(message) for message in taken])


def read_message(call: Call) -> WakuMessage:
    """Return the message of a body.

    Raises:
        BodyError: It is none.
        RefusedError: There is no body.
    """
    return message_of(read_json(call.data()), call.node.network.timers.now)


async def publish(call: Call) -> Answer:
    """Publish on a pubsub topic; whether anybody took it is not told."""
    topic = call.parts[0]
    message = read_message(call)
    if ("pubsub", topic) not in call.node.relay.places:
        return text(400, f"Failed to publish: Node not subscribed to topic: {topic}")
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        return text(400, f"Failed to publish: {TOO_LARGE}")
    if await call.stalls("relay"):
        return text(500, "Failed to publish: timedout")
    call.node.publish(topic, message)
    return OK


async def publish_content(call: Call) -> Answer:
    """Publish on the shard of a content topic."""
    if call.body is None:
        return text(400)
    message = read_message(call)
    if not call.node.settings.auto_sharding:
        return text(400, "Failed to publish. Autosharding is disabled")
    try:
        topic = call.node.network.shard_topic(message.content_topic)
    except TopicError as error:
        return text(400, f"Failed to publish. Autosharding error: {error}")
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        return text(400, f"Failed to publish: {TOO_LARGE}")
    if await call.stalls("relay"):
        return text(500, "Failed to publish: timedout")
    if not call.node.publish(topic, message):
        return text(400, f"Failed to publish: {NO_PEERS}")
    return OK
