"""The connection to a node over its REST API: found, kept subscribed, asked for messages, lost.

::

    disconnected ──► probing ──► connected        connected: polls, and a look at its health
         ▲  wait longer │ no answer    │
         └──────────────┴──────────────┘ refused, or three failures in a row

It hands every message on and judges none. Whatever goes wrong, it waits before it asks again.

Spec: MESSAGING-API, Subscriptions, Health; P2P-RELIABILITY, re-subscription.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Literal

from messaging_adapter.events import ConnectionStatus
from messaging_adapter.rest_client import Backoff, Refusals, RestClient, RestError, Trouble
from messaging_adapter.rest_intake import Intake
from messaging_adapter.rest_probe import ORDER, choose, probe
from messaging_adapter.rest_publishers import PUBLISHERS, Publisher
from messaging_adapter.rest_receivers import RECEIVERS, ForgottenError, Receiver
from messaging_adapter.rest_url import RestParameters
from messaging_adapter.rest_ways import Ways
from messaging_adapter.rest_wire import read_connection_status
from reliable_channel.errors import (
    ConfigurationError,
    DecodeError,
    NodeError,
    PublishRejectedError,
)

HEALTH_SEC: Final = 5.0
"""Distance of questions about the node's health."""

RENEW_SEC: Final = 30.0
"""Distance of checks of subscriptions that polling does not see forgotten."""

MIN_POLL_SEC: Final = 0.05
"""Shortest distance of polls, when there is much to get."""

TARGET_SEC: Final = 0.02
"""Polls are so far apart at least: 50 a second in all, however many topics there are."""

MANY: Final = 10
"""So many messages in one answer are much."""

RING: Final = 50
"""A cache with so many has dropped some, most likely."""

LOST_AFTER: Final = 3
"""Failures in a row after which the node counts as gone."""

logger = logging.getLogger("reliable_channel.messaging_adapter")


class LinkState(StrEnum):
    """How far the connection to the node is."""

    DISCONNECTED = "disconnected"
    PROBING = "probing"
    CONNECTED = "connected"


class RestLink:
    """Connects and receives. Run `run` and `watch_health` as tasks.

    Args:
        parameters: What the URL says.
        mode: ``edge`` takes no part in relaying.
        ways: How the node is reached.
        intake: Gets the messages, and knows the topics.
        refusals: Counts what the node answered and was of no use.
        draw: Draws from [0, 1), for back-off and ids.
        on_status: Told whenever the status of the connection may have changed.
    """

    publisher: Publisher
    """How messages are handed over; there once the state was ``connected``."""
    receiver: Receiver

    def __init__(
        self,
        parameters: RestParameters,
        *,
        mode: Literal["core", "edge"],
        ways: Ways,
        intake: Intake,
        refusals: Refusals,
        draw: Callable[[], float],
        on_status: Callable[[ConnectionStatus], None],
    ) -> None:
        self._parameters = parameters
        self._mode: Literal["core", "edge"] = mode
        self._ways = ways
        self._client: RestClient = ways.client
        self._intake = intake
        self._refusals = refusals
        self._draw = draw
        self._on_status = on_status
        self._node_status = ConnectionStatus.CONNECTED
        self._unjoined: dict[str, None] = {}
        self._refused: set[str] = set()
        self._joining: set[str] = set()
        self._renewed = 0.0
        self.state = LinkState.DISCONNECTED
        self.areas: frozenset[str] = frozenset()
        """The parts of the API that the node has; empty as long as that is unknown."""
        self.connected = asyncio.Event()
        """Set while connected."""
        self.tried = asyncio.Event()
        """Set once the first attempt has ended."""
        self.failure = ""
        """Why there is no connection, for people; empty while there is one, or none was tried."""
        self.unusable: ConfigurationError | None = None
        """Why the node, though it answers, is of no use."""

    async def until_connected(self, patience: float) -> None:
        """Wait for the connection.

        Args:
            patience: Seconds.

        Raises:
            RestError: There is none yet.
        """
        if self.connected.is_set():
            return
        try:
            async with asyncio.timeout(max(0.0, patience)):
                await self.connected.wait()
        except TimeoutError as error:
            text = f"not connected to {self._parameters}"
            raise RestError(Trouble.REFUSED, text) from error

    # --- Topics ----------------------------------------------------------------------------------

    async def join(self, topic: str) -> None:
        """Subscribe the node, now or when it is there.

        Raises:
            PublishRejectedError: It refused for good, in its words.
        """
        if self.state is not LinkState.CONNECTED:
            self._unjoined[topic] = None
            return
        self._joining.add(topic)  # not to be asked for before the node knows it
        try:
            await self.receiver.join([topic])
        except RestError as error:
            logger.warning("the node is subscribed to %s later: %s", topic, error)
            self._unjoined[topic] = None
        finally:
            self._joining.discard(topic)

    async def leave(self, topic: str) -> None:
        """Unsubscribe the node, where that is possible."""
        self._unjoined.pop(topic, None)
        self._refused.discard(topic)
        if self.state is LinkState.CONNECTED:
            try:
                await self.receiver.leave([topic], self._intake.topics)
            except NodeError as error:
                logger.warning("the node stays subscribed to %s: %s", topic, error)

    async def leave_all(self) -> None:
        """Unsubscribe the node from everything.

        Raises:
            NodeError: It was not possible.
        """
        if self.state is LinkState.CONNECTED:
            await self.receiver.leave(list(self._intake.topics), ())

    # --- The connection --------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, receive until the connection is lost, wait, again."""
        backoff = Backoff(self._draw)
        while True:
            failure: Exception
            try:
                await self._connect()
                await self._receive(backoff)
            except ConfigurationError as error:
                if str(error) != str(self.unusable):
                    logger.error("%s: %s", self._parameters, error)  # noqa: TRY400 our own words
                self.unusable = error
                failure = error
            except NodeError as error:
                failure = error
            except Exception as error:  # an error of ours must not end reception
                self._refusals.count("unexpected", repr(error))
                failure = error
            self._lost(failure)
            await asyncio.sleep(backoff.after(failure))

    async def _connect(self) -> None:
        self.state = LinkState.PROBING
        areas = await probe(self._client)
        publish, receive = ORDER[self._mode]
        way_out = choose(self._parameters.publish, publish, areas, "publish")
        way_in = choose(self._parameters.receive, receive, areas, "receive")
        self.publisher = PUBLISHERS[way_out](self._ways)
        self.receiver = RECEIVERS[way_in](self._ways, self._new_id)
        self.areas = areas
        self.unusable = None
        self._intake.has_store = self.has_store
        topics = list(self._intake.topics)
        await self._join_all(topics)
        self._unjoined = {topic: None for topic in self._intake.topics if topic not in topics}
        self._renewed = asyncio.get_running_loop().time()
        self.state = LinkState.CONNECTED
        self.failure = ""
        self.connected.set()
        self.tried.set()
        store = "with a store" if self.has_store else "without a store"
        words = "%s: connected; publishes by %s, receives by %s, %s"
        logger.info(words, self._parameters, way_out, way_in, store)
        await self._read_health()
        if self._intake.behind_ns is not None:
            await self._intake.close_gaps()

    def _lost(self, cause: Exception) -> None:
        if self.state is LinkState.CONNECTED:
            logger.warning("%s: the connection is lost: %s", self._parameters, cause)
            self._intake.interrupted()
        elif self.tried.is_set() and str(cause) != self.failure:
            logger.warning("%s: no connection: %s", self._parameters, cause)
        self.failure = str(cause)
        self.state = LinkState.DISCONNECTED
        self.connected.clear()
        self.tried.set()
        self._on_status(ConnectionStatus.DISCONNECTED)

    @property
    def has_store(self) -> bool:
        """Whether there is a store that may be asked."""
        return "store" in self.areas and self._parameters.store != "off"

    @property
    def may_have_store(self) -> bool:
        """The same, and yes as long as it is unknown."""
        return self._parameters.store != "off" and (not self.areas or "store" in self.areas)

    def _new_id(self) -> str:
        return f"{int(self._draw() * (1 << 53)):014x}"

    # --- Receiving -------------------------------------------------------------------------------

    async def _receive(self, backoff: Backoff) -> None:
        """Ask for messages until the node is gone.

        Raises:
            NodeError: It is gone.
        """
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            began = loop.time()
            try:
                most = await self._poll_all()
            except ForgottenError as error:
                logger.warning("the node has forgotten its subscriptions: %s", error)
                self._unjoined = dict.fromkeys(self._intake.topics)
                self._intake.interrupted()
                wait = backoff.after(error)
            except RestError as error:
                self._intake.suspect()  # what the node has given is gone from its cache
                if error.trouble is Trouble.BROKEN:
                    self._refusals.count("broken_answer", error)
                failures += error.trouble is not Trouble.BUSY
                if error.trouble is Trouble.REFUSED or failures >= LOST_AFTER:
                    raise
                wait = backoff.after(error)
            else:
                failures = 0
                backoff.reset()
                wait = self._pause_after(most, loop.time() - began)
            await asyncio.sleep(wait)

    async def _poll_all(self) -> int:
        """Ask for messages once everywhere, and return the largest number that one answer had."""
        await self._mend_subscriptions()
        most = 0
        for number, target in enumerate(self._targets()):
            await asyncio.sleep(TARGET_SEC if number else 0)
            try:
                messages = await self.receiver.poll(target)
            except ForgottenError:
                if target not in self._targets():
                    continue  # it was left meanwhile
                raise
            for message in messages:
                self._intake.take(message)
            most = max(most, len(messages))
        if most >= RING:
            self._intake.suspect()
        return most

    def _targets(self) -> list[str]:
        left_out = self._refused | self._joining
        return self.receiver.targets([t for t in self._intake.topics if t not in left_out])

    async def _mend_subscriptions(self) -> None:
        loop = asyncio.get_running_loop()
        if self._unjoined:
            topics = [topic for topic in self._unjoined if topic in self._intake.topics]
            self._unjoined = {}
            try:
                await self._join_all(topics)
            except BaseException:
                self._unjoined = dict.fromkeys(topics) | self._unjoined
                raise
            if self._intake.behind_ns is not None:
                await self._intake.close_gaps()
        elif self._intake.topics and loop.time() >= self._renewed + RENEW_SEC:
            self._renewed = loop.time()
            await self.receiver.renew(list(self._intake.topics))

    async def _join_all(self, topics: list[str]) -> None:
        """Subscribe the node; topics that it refuses for good do not spoil the others."""
        self._refused.clear()
        try:
            await self.receiver.join(topics)
        except PublishRejectedError:
            for topic in topics:
                try:
                    await self.receiver.join([topic])
                except PublishRejectedError as error:
                    self._refusals.count("topic_refused", f"{topic}: {error}")
                    self._refused.add(topic)

    def _pause_after(self, most: int, took: float) -> float:
        wait = self._parameters.poll_ms / 1_000
        if most >= MANY:
            wait = min(wait, MIN_POLL_SEC)
        return max(wait - took, TARGET_SEC)

    # --- Health ----------------------------------------------------------------------------------

    async def watch_health(self) -> None:
        """Ask the node how it is, now and then."""
        while True:
            await self.connected.wait()
            await asyncio.sleep(HEALTH_SEC)
            if self.connected.is_set():
                try:
                    await self._read_health()
                except Exception as error:  # an error of ours must not end this
                    self._refusals.count("unexpected", repr(error))

    async def _read_health(self) -> None:
        """Ask the node how it is; what cannot be read changes nothing."""
        if "health" in self.areas:
            try:
                answer = await self._client.request("GET", "/health")
                if answer.ok:
                    self._node_status = read_connection_status(await answer.json())
                else:
                    self._node_status = ConnectionStatus.PARTIALLY_CONNECTED
            except DecodeError as error:
                self._refusals.count("bad_health", error)
            except RestError as error:
                logger.debug("the node's health is not known: %s", error)
        else:
            self._node_status = ConnectionStatus.CONNECTED
        if self.state is LinkState.CONNECTED:
            self._on_status(self._node_status)
