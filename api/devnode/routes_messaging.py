"""``/messaging/v1``: send and receive by content topic, in both generations of its answers.

Nothing here keeps anything.

Spec: MESSAGING-API.
"""

from __future__ import annotations

from typing import Any

from api.devnode.bodies import (
    binary,
    field_of,
    hash_text,
    message_json,
    read_object,
    read_texts,
    required,
)
from api.devnode.http import OK, Answer, Call, Route, json, text
from api.devnode.messaging import SendEvent
from api.devnode.network import TopicError
from api.devnode.node import MAX_MESSAGE_BYTES
from api.devnode.routes_relay import TOO_LARGE
from reliable_channel.core.wire import WakuMessage


def routes() -> list[Route]:
    """Return the routes."""
    return [
        Route("POST", "/messaging/v1/subscriptions", subscribe),
        Route("DELETE", "/messaging/v1/subscriptions", unsubscribe),
        Route("POST", "/messaging/v1/messages", send),
        Route("GET", "/messaging/v1/events/send", send_events),
        Route("GET", "/messaging/v1/events/send/{}", send_events_of),
        Route("GET", "/messaging/v1/events/received", received),
    ]


async def subscribe(call: Call) -> Answer:
    """Subscribe to content topics, as far as the first that cannot be."""
    for topic in read_texts(call.data()):
        problem = join(call, topic)
        if problem is not None:
            return text(500, f"Subscribe failed: {problem}")
    return OK


async def unsubscribe(call: Call) -> Answer:
    """Unsubscribe from content topics."""
    for topic in read_texts(call.data()):
        call.node.messaging.topics.discard(topic)
    return OK


def join(call: Call, topic: str) -> str | None:
    """Subscribe to a content topic; return why not, where that cannot be."""
    try:
        call.node.network.shard_topic(topic)
    except TopicError as error:
        return str(error)
    return call.node.messaging.subscribe(topic)


async def send(call: Call) -> Answer:
    """Send a message, and subscribe to its topic."""
    body = read_object(call.data())
    required(body, "payload")
    node = call.node
    message = WakuMessage(
        payload=binary(body, "payload") or b"",
        content_topic=required(body, "contentTopic"),
        version=0,
        timestamp=node.network.timers.now(),
        meta=binary(body, "meta") or None,
        ephemeral=field_of(body, "ephemeral", bool) or False,
    )
    if len(message.encode()) > MAX_MESSAGE_BYTES:
        return text(400, f"Invalid message: {TOO_LARGE}")
    problem = join(call, message.content_topic)
    if problem is not None:
        return text(500, f"Send failed: {problem}")
    topic = node.network.shard_topic(message.content_topic)
    request_id = node.messaging.send(topic, message)
    if request_id is None:
        return text(500, "Send failed: too many requests under way")
    return json({"requestId": request_id})


async def send_events(call: Call) -> Answer:
    """Give all events of requests, and forget them."""
    taken = call.node.messaging.take_events()
    return json([request_json(request_id, events) for request_id, events in taken])


async def send_events_of(call: Call) -> Answer:
    """Give the events of one request, and forget them."""
    (request_id,) = call.parts
    events = call.node.messaging.take_events_of(request_id)
    if events is None:
        return text(404, f"No send events for requestId: {request_id}")
    return json(request_json(request_id, events))


def request_json(request_id: str, events: list[SendEvent]) -> dict[str, Any]:
    """Return the events of a request."""
    return {"requestId": request_id, "events": [event_json(event) for event in events]}


def event_json(event: SendEvent) -> dict[str, Any]:
    """Return one event."""
    body = {"kind": event.kind, "messageHash": hash_text(event.digest), **event.more}
    return body | {"timestamp": event.timestamp}


async def received(call: Call) -> Answer:
    """Give what was received, and forget it."""
    messaging = call.node.messaging
    bodies = []
    for item in messaging.take_received():
        body: dict[str, Any] = {
            "messageHash": hash_text(item.digest),
            "message": message_json(item.message),
        }
        if messaging.is_detailed:
            body["source"] = item.source
        bodies.append(body)
    return json(bodies)
