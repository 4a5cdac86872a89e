"""``waku+http://HOST:PORT``: a real Waku node, used over its REST API.

Puts together the connection, what comes in and what goes out, as the node that channels stand on.
It must not know channels.

Spec: MESSAGING-API; P2P-RELIABILITY; 13/WAKU2-STORE.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from typing import ClassVar, Final

import httpx

from messaging_adapter.base import WakuNode
from messaging_adapter.config import NodeConfig
from messaging_adapter.events import (
    ConnectionStatus,
    NodeConnectionStatusEvent,
    NodeTopicHealthEvent,
    TopicHealth,
)
from messaging_adapter.rest_client import Backoff, Refusals, RestClient, RestError, Trouble
from messaging_adapter.rest_intake import Intake
from messaging_adapter.rest_link import LinkState, RestLink
from messaging_adapter.rest_outbox import Outbox
from messaging_adapter.rest_publishers import StaleProofError
from messaging_adapter.rest_store import RestStore
from messaging_adapter.rest_url import RestParameters
from messaging_adapter.rest_ways import Ways
from messaging_adapter.rest_wire import MessageReader
from reliable_channel.core.wire import WakuMessage
from reliable_channel.errors import InvalidContentTopicError, NodeError, NodeUnavailableError
from reliable_channel.ports import IncomingMessage, MessageEnvelope
from reliable_channel.types import SECOND, Nanoseconds, RequestId

RENEW_NS: Final = 15 * SECOND
"""Messages are stamped anew when they are older: relays refuse what is 20 s old."""

PATIENCE_SEC: Final = 10.0
"""How long one publication waits for a connection, or for a node that asks for a pause."""

AGAIN_SEC: Final = 1.0
"""A node that refreshes its proof, or asks for a pause without saying how long, is given so long."""

START_SEC: Final = 5.0
"""How long a node that does not answer holds up the start."""

LEAVE_SEC: Final = 1.0
"""How long the node is given to take note that we leave."""

MAX_QUERY_BYTES: Final = 64 << 20
"""Payload bytes that one query returns, about; the rest comes as what was missed does."""

MAX_QUERY_MESSAGES: Final = 10_000
"""Messages that one query returns, about."""

HEALTH: Final = {
    ConnectionStatus.DISCONNECTED: TopicHealth.UNHEALTHY,
    ConnectionStatus.PARTIALLY_CONNECTED: TopicHealth.MINIMALLY_HEALTHY,
    ConnectionStatus.CONNECTED: TopicHealth.SUFFICIENTLY_HEALTHY,
}
"""What a topic's health is taken for: the node does not tell it by topic."""

logger = logging.getLogger("reliable_channel.messaging_adapter")


class WakuRestNode(WakuNode):
    """A Waku node behind its REST API; see `WakuNode`.

    The node's cache is emptied by whoever reads it, so it should be this adapter's own; where it is
    not, what others took comes from the store a little later.
    """

    honoured: ClassVar = frozenset(
        {
            "transport",
            "mode",
            "protocols_config.cluster_id",
            "protocols_config.static_store_nodes",
            "protocols_config.auto_sharding_config",
            "protocols_config.message_validation.max_message_size",
            "sds_config",
            "segmentation_config",
            "rate_limit_config",
        }
    )
    """Dotted names of the configuration fields that the transport honours."""

    client: RestClient
    """Counts requests by part of the API."""
    refusals: Refusals
    """What the node answered and could not be used, by reason."""
    link: RestLink
    """The connection."""
    outbox: Outbox
    """What is not known to be stored."""

    @classmethod
    def check(cls, config: NodeConfig) -> None:
        """Refuse fields that mean nothing here, and a URL that cannot be read.

        Raises:
            ConfigurationError: One line for each problem.
        """
        super().check(config)
        RestParameters.parse(config.transport)

    async def start(self) -> None:
        """Find the node and begin to ask it; one that does not answer is waited for in background.

        Raises:
            ConfigurationError: The node answers, and has no way to do what is asked of it.
        """
        self._prepare(RestParameters.parse(self.config.transport))
        self._tasks = [
            asyncio.create_task(work, name=f"waku rest {name}")
            for name, work in (
                ("receive", self.link.run()),
                ("health", self.link.watch_health()),
                ("gaps", self._intake.watch(self.link.connected)),
                ("confirm", self.outbox.run()),
                ("publish again", self.outbox.run_again()),
            )
        ]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_SEC):
                    await self.link.tried.wait()
        except BaseException:
            await self._stop()
            raise
        if self.link.unusable is not None:
            await self._stop()
            raise self.link.unusable
        if self.link.state is not LinkState.CONNECTED:
            why = self.link.failure or f"no answer within {START_SEC:g} s"
            logger.warning("%s: not connected yet, it is tried again: %s", self._parameters, why)

    def _prepare(self, parameters: RestParameters) -> None:
        self._parameters = parameters
        self.refusals = Refusals(self.clock)
        self.client = RestClient(parameters, clock=self.clock, transport=self._http_transport())
        reader = MessageReader(self.pubsub_topic, self.max_message_bytes, self.refusals)
        peers = self.config.protocols_config.static_store_nodes
        self._rest_store = RestStore(self.client, reader, self.refusals, peers)
        self._intake = Intake(
            parameters,
            clock=self.clock,
            store=self._rest_store,
            refusals=self.refusals,
            pubsub_topic_of=self.pubsub_topic,
            deliver=self._received,
        )
        self.link = RestLink(
            parameters,
            mode=self.config.mode,
            ways=Ways(self.client, reader, self.pubsub_topic),
            intake=self._intake,
            refusals=self.refusals,
            draw=self._rng.random,
            on_status=self._set_status,
        )
        self.outbox = Outbox(
            self._rest_store.present,
            self._publish_again,
            period=parameters.confirm_ms / 1_000,
            patience=parameters.give_up_ms / 1_000,
            expires=self.rate_limit_config.enabled,
        )

    def _http_transport(self) -> httpx.AsyncBaseTransport | None:
        """Return another way to the node than the network; for tests."""
        return None

    # --- What a transport is ---------------------------------------------------------------------

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.outbox.close()
        with suppress(NodeError, TimeoutError):
            async with asyncio.timeout(LEAVE_SEC):
                await self.link.leave_all()
        self.link.connected.clear()
        await self.client.close()

    async def _join(self, content_topic: str) -> None:
        if "," in content_topic and self._parameters.store != "off":
            reason = "has a comma, and a node's store cannot be asked for such a one"
            raise InvalidContentTopicError(content_topic, reason)
        self._intake.topics[content_topic] = self.clock.now_ns()
        try:
            await self.link.join(content_topic)
        except BaseException:
            self._intake.topics.pop(content_topic, None)
            raise
        self._emit_health([content_topic], HEALTH[self.connection_status])

    async def _leave(self, content_topic: str) -> None:
        self._intake.topics.pop(content_topic, None)
        await self.link.leave(content_topic)
        self._emit_health([content_topic], TopicHealth.NOT_SUBSCRIBED)

    async def _hand_over(self, request_id: RequestId, envelope: MessageEnvelope) -> bytes:
        loop = asyncio.get_running_loop()
        patience = self._parameters.give_up_ms / 1_000
        end = loop.time() + patience
        backoff = Backoff(self._rng.random)
        made: tuple[WakuMessage, bytes] | None = None
        while True:
            await self.link.until_connected(end - loop.time())  # counted only when it may go out
            try:
                async with self._gate.transmission():
                    if made is None or self._is_old(made[0]):
                        made = self._new_message(envelope)
                    return await self._transmit(*made)
            except RestError as error:
                left = end - loop.time()
                if left <= 0:
                    text = f"not sent within {patience:g} s: {error}"
                    raise NodeUnavailableError(text) from error
                await asyncio.sleep(min(left, backoff.after(error)))

    async def _transmit(self, message: WakuMessage, data: bytes) -> bytes:
        await self.link.until_connected(PATIENCE_SEC)
        message_hash = self.link.publisher.hash_of(message)
        if message_hash is not None:
            self._intake.seen.add(message_hash, message.timestamp or 0)  # relays may give it back
            await self._publish(message)
        else:
            async with self._intake.own(message):
                message_hash = await self._publish(message)
                self._intake.seen.add(message_hash, message.timestamp or 0)
        if not message.ephemeral and self.link.has_store:
            self.outbox.add(message, message_hash)
        return message_hash

    async def _is_stored(self, message_hash: bytes) -> bool:
        return await self.outbox.outcome(message_hash)

    async def _find(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        self._check_store()
        return await self._rest_store.lookup(hashes)

    async def _find_since(self, content_topic: str, start_ns: Nanoseconds) -> list[IncomingMessage]:
        found: list[IncomingMessage] = []
        size, cut = 0, False
        try:
            self._check_store()
            carrier = self.pubsub_topic(content_topic)
            pages = self._rest_store.messages_since(carrier, [content_topic], start_ns)
            async with aclosing(pages):
                async for page in pages:
                    found += [item for item in page if item.content_topic == content_topic]
                    size += sum(len(item.payload) for item in page)
                    if size > MAX_QUERY_BYTES or len(found) >= MAX_QUERY_MESSAGES:
                        cut = True
                        break
        except NodeError:
            topics = self._intake.topics
            if content_topic in topics and self.link.may_have_store:
                # Asked for again, with the others, once there is somebody to ask.
                topics[content_topic] = min(topics[content_topic], start_ns)
                self._intake.fall_behind(start_ns)
            raise
        self._intake.answered(content_topic, start_ns, found)
        if cut and found:
            self._intake.cut_short(content_topic, found)
        return found

    # --- Inside ----------------------------------------------------------------------------------

    async def _publish(self, message: WakuMessage) -> bytes:
        """Hand a message over; wait where the node asks for it, try a stale proof once more."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_SEC
        stale = False
        while True:
            try:
                return await self.link.publisher.publish(message)
            except StaleProofError:
                if stale:
                    raise
                stale, wait = True, AGAIN_SEC
            except RestError as error:
                wait = error.retry_after_sec or AGAIN_SEC
                if error.trouble is not Trouble.BUSY or loop.time() + wait > end:
                    raise
            await asyncio.sleep(wait)

    async def _publish_again(self, message: WakuMessage) -> bool:
        if not self.link.publisher.republishes:
            return False
        await self.link.until_connected(PATIENCE_SEC)
        async with self._gate.transmission():
            await self._publish(message)
        return True

    def _is_old(self, message: WakuMessage) -> bool:
        return (message.timestamp or 0) < self.clock.now_ns() - RENEW_NS

    def _check_store(self) -> None:
        if not self.link.may_have_store:
            text = "the node has no store"
            raise NodeUnavailableError(text)
        if self.link.state is not LinkState.CONNECTED:
            text = f"not connected to {self._parameters}"
            raise NodeUnavailableError(text)

    def _set_status(self, status: ConnectionStatus) -> None:
        if status is not self.connection_status:
            self.connection_status = status
            self._hub.emit(NodeConnectionStatusEvent(connection_status=status))
            self._emit_health(tuple(self._intake.topics), HEALTH[status])

    def _emit_health(self, topics: Iterable[str], health: TopicHealth) -> None:
        for topic in topics:
            self._hub.emit(NodeTopicHealthEvent(content_topic=topic, health=health))
