"""What goes between a channel and its node: publications, queries, and what the network brings.

The caller's encryption stands between the two. Each outcome becomes an input of the machine, in order. It must not
decide what is sent or believed: that is the machine's.

Spec: RELIABLE-CHANNEL-API, Outgoing message processing, Incoming message processing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from reliable_channel.cipher import Cipher
from reliable_channel.core.effects import Effects, Fetch, Publish
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.errors import (
    EncryptError,
    NodeClosedError,
    NodeError,
    PublishRejectedError,
)
from reliable_channel.inputs import Input, InputQueue
from reliable_channel.ports import Clock, IncomingMessage, MessageEnvelope, MessagingNode
from reliable_channel.records import Changes, LedgerRecord, key_of
from reliable_channel.types import SECOND, Nanoseconds, RequestId

logger = logging.getLogger("reliable_channel.channel")

WIRE_MARKER: Final = b"RELIABLE-CHANNEL-API/1"
"""Meta field of our messages; the Nim implementation drops anything else."""

MAX_INBOX_MESSAGES: Final = 4096
"""Received messages that wait for the machine; more are dropped, as a network might have."""

MAX_INBOX_BYTES: Final = 64 << 20
"""Bytes of those messages."""

CATCH_UP_MARGIN_NS: Final = 5 * SECOND
"""Missed messages are asked for from this long before the last one seen: clocks and stores differ."""


class Publisher:
    """Encrypts and publishes, one message after the other.

    Args:
        machine: Is told of the outcome.
        node: Takes the messages.
        cipher: The caller's encryption.
        clock: Unix time.
        inputs: Where outcomes go.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        *,
        node: MessagingNode,
        cipher: Cipher,
        clock: Clock,
        inputs: InputQueue,
    ) -> None:
        self._machine = machine
        self._node = node
        self._cipher = cipher
        self._clock = clock
        self._inputs = inputs
        self._waiting: asyncio.Queue[Publish] = asyncio.Queue()
        self._publishing: RequestId | None = None

    def put(self, publish: Publish) -> None:
        """Publish a message after those before it."""
        self._waiting.put_nowait(publish)

    async def run(self) -> None:
        """Publish what comes, for ever: order is kept."""
        while True:
            publish = await self._waiting.get()
            self._publishing = publish.segment_id
            self._inputs.put(await self._publish(publish))
            self._publishing = None

    async def _publish(self, publish: Publish) -> Input:
        """Return what the machine has to be told of one publication."""
        machine, segment_id = self._machine, publish.segment_id
        if self._has_expired(publish):
            return lambda now: machine.expired(segment_id, now)
        began_ns = self._clock.now_ns()
        try:
            envelope = MessageEnvelope(
                content_topic=machine.state.content_topic,
                payload=await self._cipher.encrypt(publish.data),
                ephemeral=publish.ephemeral,
                meta=WIRE_MARKER,
            )
            if self._has_expired(publish):
                held_ns = self._clock.now_ns() - began_ns
                return lambda now: machine.expired(segment_id, now, held_ns=held_ns)
            transport_hash = await self._node.publish(segment_id, envelope)
        except NodeClosedError:
            return lambda now: Effects()  # not made; the channel has told everybody
        except (EncryptError, PublishRejectedError) as error:
            reason = str(error)
            return lambda now: machine.publish_failed(segment_id, reason, now, retryable=False)
        except NodeError as error:
            reason = str(error)
            return lambda now: machine.publish_failed(segment_id, reason, now, retryable=True)
        return lambda now: machine.published(segment_id, transport_hash, now)

    def _has_expired(self, publish: Publish) -> bool:
        """Tell whether the epoch that a message was counted in is over."""
        return 0 < publish.expires_ns <= self._clock.now_ns()

    def settle(self) -> Changes:
        """Settle the budget of what the machine will not be told of any more; one transmission can be in doubt.

        Returns:
            The ledgers to keep; none where nothing was counted in vain.
        """
        queue, unmade = self._machine.queue, set()
        while not self._waiting.empty():
            unmade.add(self._waiting.get_nowait().segment_id)
        if not queue.settle(unmade, self._publishing, self._clock.now_ns()):
            return {}
        return {(LedgerRecord, key_of(row)): row for row in queue.budget.records()}


class Fetcher:
    """Asks the node's store for missing messages, one query after the other.

    Args:
        machine: Is told of the answers.
        node: Has a store, or none.
        cipher: The caller's encryption.
        inputs: Where answers go.
    """

    def __init__(
        self, machine: ChannelMachine, *, node: MessagingNode, cipher: Cipher, inputs: InputQueue
    ) -> None:
        self._machine = machine
        self._node = node
        self._cipher = cipher
        self._inputs = inputs
        self._waiting: asyncio.Queue[Fetch] = asyncio.Queue()

    def put(self, fetch: Fetch) -> None:
        """Make a query after those before it."""
        self._waiting.put_nowait(fetch)

    async def run(self) -> None:
        """Make what queries come, for ever."""
        while True:
            fetch = await self._waiting.get()
            self._inputs.put(await self._fetch(fetch))

    async def _fetch(self, fetch: Fetch) -> Input:
        """Return what the machine has to be told of one query."""
        machine = self._machine
        try:
            messages = await self._node.lookup(fetch.hashes)
        except NodeError as error:
            logger.debug("channel %s: store query failed (%s)", machine.state.channel_id, error)
            return machine.fetch_failed
        found = [(item.message_hash, await self._cipher.decrypt(item.payload)) for item in messages]
        return lambda now: machine.fetched(found, now)


class Inbox:
    """Takes what the network brings, decrypts it and gives it to the machine, in its order.

    Args:
        machine: Takes the decrypted messages.
        node: Its store has what was missed.
        cipher: The caller's encryption.
        clock: Unix time.
        inputs: Where messages go.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        *,
        node: MessagingNode,
        cipher: Cipher,
        clock: Clock,
        inputs: InputQueue,
    ) -> None:
        self._machine = machine
        self._node = node
        self._cipher = cipher
        self._clock = clock
        self._inputs = inputs
        self._messages: deque[IncomingMessage] = deque()
        self._octets = 0
        self._has_come = asyncio.Event()
        self._is_closed = False

    def take(self, message: IncomingMessage) -> None:
        """Take a message from the node; more than fits is dropped and counted."""
        if self._is_closed:
            return
        size = len(message.payload)
        if len(self._messages) >= MAX_INBOX_MESSAGES or self._octets + size > MAX_INBOX_BYTES:
            self._machine.state.outbox.drop("inbox_full")
            return
        self._messages.append(message)
        self._octets += size
        self._has_come.set()

    def close(self) -> None:
        """Take nothing more."""
        self._is_closed = True

    async def run(self) -> None:
        """Give what comes to the machine's task, for ever, and hold it back while that has enough."""
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            while self._messages:
                message = self._messages.popleft()
                self._octets -= len(message.payload)
                data = await self._cipher.decrypt(message.payload)
                self._inputs.put(self._input_of(message, data))
                await self._inputs.wait_for_room()

    def _input_of(self, message: IncomingMessage, data: bytes | None) -> Input:
        machine = self._machine
        if data is None:
            return lambda now: machine.refuse("decrypt_failed", now)
        transport_hash = None if message.ephemeral else message.message_hash
        return lambda now: machine.receive(data, transport_hash, now)

    async def catch_up(self, last_seen_ns: Nanoseconds) -> Effects:
        """Give the machine what the node's store has since a time, at once, and return its effects.

        Args:
            last_seen_ns: When a message was last taken in, Unix time.

        Spec: RELIABLE-CHANNEL-API, Node initialization, step 4.
        """
        machine, effects = self._machine, Effects()
        try:
            missed = await self._node.query(
                machine.state.content_topic, last_seen_ns - CATCH_UP_MARGIN_NS
            )
        except NodeError as error:
            logger.warning(
                "channel %s: missed messages could not be asked for (%s); gaps are repaired one by one",
                machine.state.channel_id,
                error,
            )
            return effects
        for message in missed:
            data = await self._cipher.decrypt(message.payload)
            now = self._clock.now_ns()
            if data is None:
                effects.merge(machine.refuse("decrypt_failed", now))
            else:
                effects.merge(machine.receive(data, message.message_hash, now, from_store=True))
        return effects
