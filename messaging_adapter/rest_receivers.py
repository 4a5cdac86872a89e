"""The ways in which a node gives messages: relay's cache, filter's cache, messaging API.

A way subscribes the node, asks it, and tells when it has forgotten. How often is not decided here,
nor what is new in an answer.

Spec: MESSAGING-API; 12/WAKU2-FILTER; the node's REST API.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final
from urllib.parse import quote

from messaging_adapter.rest_client import Answer, RestError, Trouble
from messaging_adapter.rest_ways import MAX_SUBSCRIBED, Ways, command, judge
from reliable_channel.errors import DecodeError
from reliable_channel.ports import IncomingMessage


class ForgottenError(RestError):
    """The node does not know the subscription that it is asked about."""

    def __init__(self, words: str) -> None:
        super().__init__(Trouble.FORGOTTEN, words)


class Receiver(ABC):
    """A way to get messages.

    Args:
        ways: How the node is reached.
        new_id: Makes ids of requests.
    """

    def __init__(self, ways: Ways, new_id: Callable[[], str]) -> None:
        self._client = ways.client
        self._reader = ways.reader
        self._pubsub_topic_of = ways.pubsub_topic_of
        self._new_id = new_id

    @abstractmethod
    async def join(self, topics: Sequence[str]) -> None:
        """Subscribe the node to content topics; harmless where it is.

        Raises:
            PublishRejectedError: The node refused for good, in its words.
            RestError: It may work later.
        """

    @abstractmethod
    async def leave(self, topics: Sequence[str], kept: Collection[str]) -> None:
        """Unsubscribe the node from content topics.

        Args:
            topics: What is left.
            kept: What is still subscribed.

        Raises:
            RestError: It was not done.
        """

    @abstractmethod
    def targets(self, topics: Collection[str]) -> list[str]:
        """Return what has to be asked one by one to hear of all these content topics."""

    @abstractmethod
    async def poll(self, target: str) -> list[IncomingMessage]:
        """Take what came in.

        Raises:
            ForgottenError: The node is not subscribed any more.
            RestError: It could not be asked; messages may have been lost.
        """

    async def renew(self, topics: Sequence[str]) -> None:
        """Make sure of subscriptions that `poll` would not see forgotten; others need nothing.

        Raises:
            ForgottenError: The node is not subscribed any more.
            RestError: It could not be asked.
        """
        return

    async def _read(
        self, answer: Answer, read: Callable[[Any], list[IncomingMessage]]
    ) -> list[IncomingMessage]:
        if not answer.ok:
            raise RestError(Trouble.FAILED, answer.words)
        try:
            return read(await answer.json())
        except DecodeError as error:
            raise RestError(Trouble.BROKEN, f"unreadable messages: {error}") from error


class RelayReceiver(Receiver):
    """From the relay's cache, by content topic."""

    async def join(self, topics: Sequence[str]) -> None:
        """Subscribe."""
        await command(self._client, "POST", "/relay/v1/auto/subscriptions", topics)

    async def leave(self, topics: Sequence[str], kept: Collection[str]) -> None:
        """Unsubscribe."""
        await command(self._client, "DELETE", "/relay/v1/auto/subscriptions", topics)

    def targets(self, topics: Collection[str]) -> list[str]:
        """Return the content topics themselves."""
        return list(topics)

    async def poll(self, target: str) -> list[IncomingMessage]:
        """Take what came in on a content topic."""
        path = f"/relay/v1/auto/messages/{quote(target, safe='')}"
        answer = await self._client.request("GET", path)
        if answer.status == 404:
            raise ForgottenError(answer.words)
        return await self._read(answer, self._reader.messages)


class StaticReceiver(Receiver):
    """From the relay's cache, by pubsub topic: with whatever else travels there."""

    async def join(self, topics: Sequence[str]) -> None:
        """Subscribe to the pubsub topics."""
        await command(self._client, "POST", "/relay/v1/subscriptions", self.targets(topics))

    async def leave(self, topics: Sequence[str], kept: Collection[str]) -> None:
        """Unsubscribe from the pubsub topics that nothing else needs."""
        needed = set(self.targets(kept))
        left = [topic for topic in self.targets(topics) if topic not in needed]
        await command(self._client, "DELETE", "/relay/v1/subscriptions", left)

    def targets(self, topics: Collection[str]) -> list[str]:
        """Return the pubsub topics."""
        return list(dict.fromkeys(map(self._pubsub_topic_of, topics)))

    async def poll(self, target: str) -> list[IncomingMessage]:
        """Take what came in on a pubsub topic."""
        answer = await self._client.request("GET", f"/relay/v1/messages/{quote(target, safe='')}")
        if answer.status == 404:
            raise ForgottenError(answer.words)
        return await self._read(answer, lambda raw: self._reader.messages(raw, target))


class FilterReceiver(Receiver):
    """From a filter service node, by content topic."""

    async def join(self, topics: Sequence[str]) -> None:
        """Subscribe at a service node."""
        await self._change("POST", topics)

    async def leave(self, topics: Sequence[str], kept: Collection[str]) -> None:
        """Unsubscribe at the service node."""
        await self._change("DELETE", topics)

    def targets(self, topics: Collection[str]) -> list[str]:
        """Return the content topics themselves."""
        return list(topics)

    async def poll(self, target: str) -> list[IncomingMessage]:
        """Take what came in on a content topic."""
        answer = await self._client.request("GET", f"/filter/v2/messages/{quote(target, safe='')}")
        if answer.status == 404 or (answer.status == 400 and "Not subscribed" in answer.words):
            raise ForgottenError(answer.words)
        return await self._read(answer, self._reader.messages)

    async def renew(self, topics: Sequence[str]) -> None:
        """Ping the service node."""
        answer = await self._client.request("GET", f"/filter/v2/subscriptions/{self._new_id()}")
        if answer.status == 404:
            raise ForgottenError(answer.words)

    async def _change(self, method: str, topics: Sequence[str]) -> None:
        by_carrier: dict[str, list[str]] = {}
        for topic in topics:
            by_carrier.setdefault(self._pubsub_topic_of(topic), []).append(topic)
        for carrier, theirs in by_carrier.items():
            for first in range(0, len(theirs), MAX_SUBSCRIBED):
                part = theirs[first : first + MAX_SUBSCRIBED]
                body = {
                    "requestId": self._new_id(),
                    "pubsubTopic": carrier,
                    "contentFilters": part,
                }
                answer = await self._client.request(method, "/filter/v2/subscriptions", body=body)
                judge(answer)


class MessagingReceiver(Receiver):
    """From the messaging API: all content topics at once, and whoever asks first gets it."""

    async def join(self, topics: Sequence[str]) -> None:
        """Subscribe."""
        await command(self._client, "POST", "/messaging/v1/subscriptions", topics)

    async def leave(self, topics: Sequence[str], kept: Collection[str]) -> None:
        """Unsubscribe."""
        await command(self._client, "DELETE", "/messaging/v1/subscriptions", topics)

    def targets(self, topics: Collection[str]) -> list[str]:
        """Return one target for all, or none."""
        return ["received"] if topics else []

    async def poll(self, target: str) -> list[IncomingMessage]:
        """Take what came in."""
        answer = await self._client.request("GET", f"/messaging/v1/events/{target}")
        return await self._read(answer, self._reader.received)

    async def renew(self, topics: Sequence[str]) -> None:
        """Subscribe again: the node does not tell that it has forgotten."""
        await self.join(topics)


RECEIVERS: Final[dict[str, type[Receiver]]] = {
    "relay": RelayReceiver,
    "static": StaticReceiver,
    "filter": FilterReceiver,
    "messaging": MessagingReceiver,
}
"""By the name that the URL has for them."""
