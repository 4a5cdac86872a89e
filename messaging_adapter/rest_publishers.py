"""The ways in which a node takes messages: relay, light push, messaging API.

A way hands over one message once and says what became of it. When to try again is not decided here.

Spec: MESSAGING-API; 19/WAKU2-LIGHTPUSH; the node's REST API.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from typing import Final
from urllib.parse import quote

from messaging_adapter.rest_client import Answer, RestError, Trouble
from messaging_adapter.rest_ways import Ways, command, judge
from messaging_adapter.rest_wire import message_to_json, read_request_id, read_send_events
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.errors import DecodeError

ALREADY: Final = re.compile(r"duplicate", re.I)
"""Words of a refusal that say the network has the message."""

OUTCOME_FIRST_SEC: Final = 0.05
OUTCOME_LONGEST_SEC: Final = 1.0
"""Distances of questions for what became of a message given to the messaging API."""

OUTCOME_PATIENCE_SEC: Final = 65.0
"""The messaging API itself gives a message up after 60 s."""


class StaleProofError(RestError):
    """The node's rate limit proof was stale; it is refreshing it, and wants one more try."""


class Publisher(ABC):
    """A way to hand over a message.

    Args:
        ways: How the node is reached.
    """

    republishes = True
    """Whether the same message can be handed over again under the same hash."""

    def __init__(self, ways: Ways) -> None:
        self._client = ways.client
        self._reader = ways.reader
        self._pubsub_topic_of = ways.pubsub_topic_of

    def hash_of(self, message: WakuMessage) -> bytes | None:
        """Return the hash that a message will have; None when the node decides."""
        return waku_message_hash(self._pubsub_topic_of(message.content_topic), message)

    @abstractmethod
    async def publish(self, message: WakuMessage) -> bytes:
        """Hand a message over, once, and return its hash.

        Raises:
            PublishRejectedError: The node refused it for good, in its words.
            RestError: It may work later.
        """

    def _known_hash(self, message: WakuMessage) -> bytes:
        message_hash = self.hash_of(message)
        assert message_hash is not None
        return message_hash


class RelayPublisher(Publisher):
    """By relay; the node finds the shard.

    Its answer is a success also when it has no peers.
    """

    async def publish(self, message: WakuMessage) -> bytes:
        """Hand a message to the relay."""
        answer = await self._client.request(
            "POST", "/relay/v1/auto/messages", body=message_to_json(message)
        )
        if "utosharding is disabled" in answer.words:
            raise RestError(Trouble.FAILED, "the node does not shard by content topic")
        _judge_relay(answer)
        return self._known_hash(message)


class StaticPublisher(Publisher):
    """By relay on a pubsub topic, which the node subscribes to where it has to."""

    async def publish(self, message: WakuMessage) -> bytes:
        """Hand a message to the relay."""
        topic = self._pubsub_topic_of(message.content_topic)
        path = f"/relay/v1/messages/{quote(topic, safe='')}"
        body = message_to_json(message)
        answer = await self._client.request("POST", path, body=body)
        if answer.status == 400 and "not subscribed" in answer.words:
            await command(self._client, "POST", "/relay/v1/subscriptions", [topic])
            answer = await self._client.request("POST", path, body=body)
        _judge_relay(answer)
        return self._known_hash(message)


class LightpushPublisher(Publisher):
    """By light push, version 3: a service node takes the message, or says why not."""

    async def publish(self, message: WakuMessage) -> bytes:
        """Hand a message to a service node."""
        topic = self._pubsub_topic_of(message.content_topic)
        body = {"pubsubTopic": topic, "message": message_to_json(message)}
        answer = await self._client.request("POST", "/lightpush/v3/message", body=body)
        refused = answer.status == 500 and "invalid message" in answer.words.lower()  # 420
        judge(answer, final=refused)
        return self._known_hash(message)


class MessagingPublisher(Publisher):
    """By the messaging API, which stamps the message and tells later what its hash is."""

    republishes = False

    def hash_of(self, message: WakuMessage) -> bytes | None:
        """Return None: the node stamps it."""
        return None

    async def publish(self, message: WakuMessage) -> bytes:
        """Hand a message over and wait until it is propagated."""
        whole = message_to_json(message)
        body = {name: whole[name] for name in ("payload", "contentTopic", "ephemeral")}
        if "meta" in whole:
            body["meta"] = whole["meta"]
        answer = await self._client.request("POST", "/messaging/v1/messages", body=body)
        judge(answer)
        try:
            request_id = read_request_id(await answer.json())
        except DecodeError as error:
            raise RestError(Trouble.BROKEN, f"not an answer to a message: {error}") from error
        return await self._outcome(request_id)

    async def _outcome(self, request_id: str) -> bytes:
        path = f"/messaging/v1/events/send/{quote(request_id, safe='')}"
        loop = asyncio.get_running_loop()
        end = loop.time() + OUTCOME_PATIENCE_SEC
        wait = OUTCOME_FIRST_SEC
        while loop.time() < end:
            await asyncio.sleep(wait)
            wait = min(2 * wait, OUTCOME_LONGEST_SEC)
            answer = await self._client.request("GET", path)
            if answer.status == 404:
                continue
            if not answer.ok:  # the question was refused, not the message, which the node has
                raise RestError(Trouble.FAILED, answer.words)
            try:
                events = read_send_events(await answer.json())
            except DecodeError as error:
                raise RestError(Trouble.BROKEN, f"not events of a message: {error}") from error
            for event in events:
                if event.kind in ("propagated", "sent") and event.message_hash is not None:
                    return event.message_hash
                if event.kind == "error":
                    raise RestError(Trouble.FAILED, event.error or "the node could not send it")
        raise RestError(Trouble.TIMEOUT, "the node does not say that it has sent the message")


def _judge_relay(answer: Answer) -> None:
    if answer.status == 503 and "stale RLN proof" in answer.words:
        raise StaleProofError(Trouble.FAILED, answer.words)
    if answer.status == 400 and ALREADY.search(answer.words):
        return
    judge(answer)


PUBLISHERS: Final[dict[str, type[Publisher]]] = {
    "relay": RelayPublisher,
    "static": StaticPublisher,
    "lightpush": LightpushPublisher,
    "messaging": MessagingPublisher,
}
"""By the name that the URL has for them."""
