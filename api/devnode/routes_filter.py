"""``/filter/v2``: messages by content topic, through a peer that forwards them.

Every answer but the messages is an object of its own form. Nothing here keeps anything.

Spec: 12/WAKU2-FILTER.
"""

from __future__ import annotations

from typing import Final

from api.devnode.bodies import (
    BodyError,
    check_texts,
    field_of,
    message_json,
    present,
    read_object,
)
from api.devnode.caches import MAX_PLACES
from api.devnode.http import JSON, Answer, Call, RefusedError, Route, json, text
from api.devnode.network import TopicError
from api.devnode.node import Node
from reliable_channel.core.wire.topics import MAX_TOPIC_LENGTH

NO_SUBSCRIPTIONS: Final = "peer has no subscriptions"

NO_PEER: Final = "SERVICE_UNAVAILABLE: No suitable service peer & no discovery method"

UNDECODED: Final = "Invalid content body, could not decode: "

WRONG_TYPE: Final = f"Wrong Content-Type, expected {JSON}"

TIMED_OUT: Final = "SERVICE_UNAVAILABLE: Subscription request timed out"


def routes() -> list[Route]:
    """Return the routes."""
    return [
        Route("POST", "/filter/v2/subscriptions", subscribe),
        Route("PUT", "/filter/v2/subscriptions", subscribe),
        Route("DELETE", "/filter/v2/subscriptions", unsubscribe),
        Route("DELETE", "/filter/v2/subscriptions/all", unsubscribe_all),
        Route("GET", "/filter/v2/subscriptions/{}", ping),
        Route("GET", "/filter/v2/messages/{}", take),
    ]


def said(request_id: str, status: int, description: str) -> Answer:
    """Return the answer that a request about subscriptions gets."""
    return json({"requestId": request_id, "statusDesc": description}, status)


def undecoded(reason: str) -> RefusedError:
    """Return the refusal of a body."""
    description = f"BAD_REQUEST: Failed to decode request: {reason}"
    return RefusedError(said("unknown", 400, description))


def read_request(call: Call) -> tuple[str, str | None, list[str]]:
    """Return id, pubsub topic and content topics that a body names; the last two may be missing.

    Raises:
        RefusedError: The body cannot be read.
    """
    if call.body is None:
        raise undecoded("Missing content body")
    if call.content_type != JSON:
        raise undecoded(WRONG_TYPE)
    try:
        body = read_object(call.body)
        filters = check_texts(body.get("contentFilters") or [])
        return present(body, "requestId"), field_of(body, "pubsubTopic", str) or None, filters
    except BodyError as error:
        reason = f"{UNDECODED}{error}"
        raise undecoded(reason) from error


def pairs(
    node: Node, request_id: str, topic: str | None, filters: list[str]
) -> set[tuple[str, str]]:
    """Return pubsub and content topics together.

    Raises:
        RefusedError: There are no content topics, or one has no shard.
    """
    if not filters:
        reason = f"{UNDECODED}{BodyError('Field `contentFilters` is empty')}"
        raise undecoded(reason)
    if any(len(name) > MAX_TOPIC_LENGTH for name in (topic or "", *filters)):
        raise RefusedError(said(request_id, 400, "BAD_REQUEST: topic too long"))
    if topic is not None:
        return {(topic, content) for content in filters}
    if not node.settings.auto_sharding:
        problem = "BAD_REQUEST: Pubsub topic must be specified when static sharding is enabled"
        raise RefusedError(said(request_id, 400, problem))
    try:
        return {(node.network.shard_topic(content), content) for content in filters}
    except TopicError as error:
        raise RefusedError(said(request_id, 400, f"BAD_REQUEST: {error}")) from error


async def ask_peer(call: Call, request_id: str) -> None:
    """Reach the peer that forwards.

    Raises:
        RefusedError: There is none, or it does not answer.
    """
    if not call.node.peer_count:
        raise RefusedError(said(request_id, 503, NO_PEER))
    if await call.stalls("filter"):
        raise RefusedError(said(request_id, 503, TIMED_OUT))


async def subscribe(call: Call) -> Answer:
    """Have content topics forwarded."""
    node = call.node
    request_id, topic, filters = read_request(call)
    wanted = pairs(node, request_id, topic, filters)
    await ask_peer(call, request_id)
    room = len(node.filtered | wanted) <= MAX_PLACES
    if not room or not all(node.filter.subscribe(("content", content)) for _, content in wanted):
        return said(request_id, 503, "filter is at its limit")
    node.filtered |= wanted
    return said(request_id, 200, "OK")


async def unsubscribe(call: Call) -> Answer:
    """Have content topics forwarded no more."""
    node = call.node
    request_id, topic, filters = read_request(call)
    unwanted = pairs(node, request_id, topic, filters)
    await ask_peer(call, request_id)
    if not node.filtered:
        return said(request_id, 404, NO_SUBSCRIPTIONS)
    node.filtered -= unwanted
    for content in {content for _, content in unwanted} - {content for _, content in node.filtered}:
        node.filter.unsubscribe(("content", content))
    return said(request_id, 200, "OK")


async def unsubscribe_all(call: Call) -> Answer:
    """Have nothing forwarded any more."""
    node = call.node
    request_id, _, _ = read_request(call)
    await ask_peer(call, request_id)
    if not node.filtered:
        return said(request_id, 404, NO_SUBSCRIPTIONS)
    node.filtered.clear()
    node.filter.clear()
    return said(request_id, 200, "OK")


async def ping(call: Call) -> Answer:
    """Say whether the peer still knows the node."""
    (request_id,) = call.parts
    await ask_peer(call, request_id)
    if not call.node.filtered:
        return said(request_id, 404, NO_SUBSCRIPTIONS)
    return said(request_id, 200, "OK")


async def take(call: Call) -> Answer:
    """Give the messages of a content topic, and forget them."""
    taken = call.node.filter.take(("content", call.parts[0]))
    if taken is None:
        return text(400, f"Not subscribed to topic: {call.parts[0]}")
    return json([message_json(message, proof=False) for message in taken])
