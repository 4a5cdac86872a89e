"""The handle of one channel: what its application uses, and how it opens, fails and closes.

::

    send, node, timers ─► inputs ─► machine ─► persist ─► publish: encrypt, node ─► published / publish_failed
                                                      ├─► fetch: node's store, decrypt ─► fetched / fetch_failed
                                                      └─► emit: streams, handlers, waiters

The first half is ``driver``'s, the second ``traffic``'s and ``hub``'s. It must not contain protocol rules: those are
the machine's.

Spec: RELIABLE-CHANNEL-API, The Reliable Channel API.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Any, Final, Self

from reliable_channel.batch import Committer
from reliable_channel.cipher import Cipher
from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine, ChannelStatus, RequestStatus
from reliable_channel.core.requests import RequestState
from reliable_channel.driver import Driver
from reliable_channel.errors import (
    ChannelClosedError,
    ChannelFailedError,
    ConfigurationError,
    NodeClosedError,
    ReliableChannelError,
    RequestFailedError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.events import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageSendErrorEvent,
)
from reliable_channel.hub import EventHub, Handler
from reliable_channel.inputs import InputQueue
from reliable_channel.ports import ChannelStore, Clock, MessagingNode, Subscription
from reliable_channel.records import EventRecord
from reliable_channel.streams import EventStream
from reliable_channel.traffic import Fetcher, Inbox, Publisher
from reliable_channel.types import ChannelId, Nanoseconds, ParticipantId, RequestId
from reliable_channel.workers import Workers

logger = logging.getLogger("reliable_channel.channel")

CLOSE_COMMIT_SEC: Final = 30.0
"""How long a close waits for a commit that is under way."""

CLOSE_SETTLE_SEC: Final = 2.0
"""How long it then waits for the store to keep what came of transmissions that were under way."""

CLOSE_RELEASE_SEC: Final = 3.0
"""How long it then waits for the store to take the channel back."""


class ReliableChannel:
    """A handle on an open channel; made by ``create_reliable_channel``.

    It is an async context manager that closes itself. Use it from the event loop that it was made on.

    Args:
        machine: The protocol, not started.
        node: Where messages go and come from.
        store: Where the state is kept; the channel is acquired.
        cipher: The caller's encryption.
        clock: Unix time.
        on_close: Called once when the channel closes.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        *,
        node: MessagingNode,
        store: ChannelStore,
        cipher: Cipher,
        clock: Clock,
        on_close: Callable[[ReliableChannel], None],
    ) -> None:
        self._machine = machine
        self._node = node
        self._store = store
        self._clock = clock
        self._on_close = on_close
        self._hub = EventHub(
            self.channel_id,
            self._read_records,
            last_sequence=machine.state.outbox.last_sequence,
        )
        inputs = InputQueue()
        self._publisher = Publisher(machine, node=node, cipher=cipher, clock=clock, inputs=inputs)
        self._fetcher = Fetcher(machine, node=node, cipher=cipher, inputs=inputs)
        self._inbox = Inbox(machine, node=node, cipher=cipher, clock=clock, inputs=inputs)
        self._committer = Committer(self.channel_id, store, node.store)
        self._driver = Driver(
            machine,
            clock=clock,
            inputs=inputs,
            committer=self._committer,
            publisher=self._publisher,
            fetcher=self._fetcher,
            hub=self._hub,
        )
        self._workers = Workers(f"reliable-channel {self.channel_id}", self._worker_died)
        self._subscription: Subscription | None = None
        self._unwatch: Callable[[], None] = lambda: None
        self._failure: ChannelFailedError | None = None
        self._close_task: asyncio.Task[None] | None = None
        self._closers: set[asyncio.Task[Any] | None] = set()

    # -- what the application uses ------------------------------------------------------------------

    @property
    def channel_id(self) -> ChannelId:
        """The channel's id."""
        return self._machine.state.channel_id

    @property
    def sender_id(self) -> ParticipantId:
        """Our id on the channel."""
        return self._machine.state.sender_id

    @property
    def content_topic(self) -> str:
        """Where the channel's messages go."""
        return self._machine.state.content_topic

    @property
    def max_payload_bytes(self) -> int:
        """Largest payload that one ``send`` takes, bytes."""
        sds = self._machine.state.sds
        return min(self._machine.outgoing.segmenter.max_payload_bytes, sds.max_outgoing_bytes)

    async def send(
        self, payload: bytes, *, ephemeral: bool = False, idempotency_key: str | None = None
    ) -> RequestId:
        """Send a message; it is stored when this returns, and events tell what becomes of it.

        Waits while the channel is full; cancelling that wait leaves nothing behind. Cancelled while it is being
        stored, the message may be sent whole all the same: ask ``events`` before sending it again.

        Args:
            payload: 1 to ``max_payload_bytes`` bytes.
            ephemeral: Outside causal order: not acknowledged, not repeated, not stored by the network.
            idempotency_key: Makes a repeat harmless, also after a restart: with the same key and message it returns
                the first request's id once that is stored, sends nothing, and needs no room, however the request
                ended. 1 to 255 bytes of UTF-8 without control characters. It is remembered while the request is
                open, and then until ``SdsConfig.max_finished_requests`` others have ended after it. A repeat of
                what still waits for room waits behind it.

        Returns:
            The id that the request's events carry.

        Raises:
            IdempotencyConflictError: The key belongs to another message.
            ConfigurationError: It cannot be a key.
            InvalidPayloadError: Not bytes.
            EmptyPayloadError: No bytes.
            MessageTooLargeError: Too many bytes.
            ChannelClosedError: The channel is closed.
            ChannelFailedError: The channel stopped working.
            StoreUnavailableError: It could not be stored; nothing was sent.
            SendOutcomeUnknownError: The channel was closed, or failed, while the store could not say whether it was
                stored: it may be sent after the next opening.

        Spec: RELIABLE-CHANNEL-API, send.
        """
        self._check_open()
        return await self._driver.send(payload, idempotency_key, ephemeral=ephemeral, wait=True)

    async def send_nowait(
        self, payload: bytes, *, ephemeral: bool = False, idempotency_key: str | None = None
    ) -> RequestId:
        """Send a message like ``send``, but never wait for room. It still has to be awaited.

        Raises:
            ChannelFullError: Too much is unacknowledged; nothing was stored.
        """
        self._check_open()
        return await self._driver.send(payload, idempotency_key, ephemeral=ephemeral, wait=False)

    def events(self, *, after: int | None = None) -> EventStream:
        """Return a stream of events, registered at once.

        Args:
            after: Replay from the store what comes after this sequence first, 0 from the beginning; None gives what
                comes from now on.

        Raises:
            CursorAheadError: ``after`` is larger than ``last_event_sequence``.
            ChannelClosedError: The channel is closed.
            ConfigurationError: ``after`` is negative.
        """
        self._check_open()
        if after is not None and after < 0:
            text = f"after must be a sequence from 0, not {after}"
            raise ConfigurationError(text)
        return self._hub.stream(after)

    @property
    def last_event_sequence(self) -> int:
        """Sequence of the last durable event that was shown; 0 when there was none."""
        return self._hub.last_sequence

    async def read_events(self, *, after: int, limit: int) -> list[ChannelEvent]:
        """Return durable events from the store, ascending: those that streams have shown, without waiting for more.

        Args:
            after: What follows this sequence; 0 from the beginning.
            limit: At most so many.

        Raises:
            CursorAheadError: ``after`` is larger than ``last_event_sequence``.
            EventsExpiredError: Retention has removed some of them.
            StoreUnavailableError: The store failed.
            ChannelClosedError: The channel is closed.
            ConfigurationError: ``after`` is negative, or ``limit`` less than 1.
        """
        self._check_open()
        if after < 0 or limit < 1:
            text = f"after must be a sequence from 0 and limit at least 1, not {after} and {limit}"
            raise ConfigurationError(text)
        return await self._hub.read(after, limit)

    def on(self, name: str, handler: Handler) -> Callable[[], None]:
        """Call a function, or coroutine function, for each event of a name.

        What a handler raises is logged and goes no further.

        Args:
            name: One of the specification's names, for example ``reliable:message:received``.
            handler: Takes the event.

        Returns:
            A function that ends it.

        Raises:
            ConfigurationError: No event has that name.
        """
        return self._hub.on(name, handler)

    async def wait_delivered(
        self, request_id: RequestId, *, timeout: float | None = None
    ) -> tuple[ParticipantId, ...]:
        """Wait until a request is delivered and return who has it by then.

        An ephemeral request ends when it is sent; nobody acknowledges it.

        Args:
            request_id: What ``send`` returned.
            timeout: Seconds; None waits as long as it takes.

        Raises:
            RequestNotFoundError: Not a request of this channel.
            RequestFailedError: It ended in an error event.
            TimeoutError: It has not ended in time; it goes on.
            ChannelClosedError: The channel was closed meanwhile.
        """
        status = self._machine.request_status(request_id)
        if status.is_final and not self._driver.is_storing(request_id):
            if status.state in (RequestState.SEND_ERROR, RequestState.DELIVERY_ERROR):
                name = f"reliable:message:{status.state}"
                raise RequestFailedError(request_id, name, status.error)
            return status.recipients
        self._check_open()
        event = await self._hub.wait_final(request_id, timeout, ephemeral=status.ephemeral)
        if isinstance(event, MessageSendErrorEvent | MessageDeliveryErrorEvent):
            raise RequestFailedError(request_id, event.name, event.error)
        return event.recipients if isinstance(event, MessageDeliveredEvent) else ()

    def request_status(self, request_id: RequestId) -> RequestStatus:
        """Return how far a request is, segment by segment.

        Raises:
            RequestNotFoundError: Not a request of this channel, or final and forgotten.
        """
        return self._machine.request_status(request_id)

    def status(self) -> ChannelStatus:
        """Return sizes and counters of the channel."""
        return self._machine.status()

    async def close(self) -> None:
        """Leave the topic and release everything; open requests go on with the next opening.

        Harmless when repeated. No event is shown afterwards. It goes on when its caller is cancelled: call it again
        to wait for its end.

        Raises:
            StoreOutcomeUnknownError: The store did not end what it was doing within the 35 s that a close waits for
                it in all: some of it may be stored. Everything is released all the same.
            ReliableChannelError: Node or store failed, or the store did not take the channel back within that time;
                everything is released all the same.

        Spec: RELIABLE-CHANNEL-API, closeChannel.
        """
        self._closers.add(asyncio.current_task())
        if self._close_task is None:
            self._inbox.close()
            self._driver.stop()
            self._close_task = asyncio.get_running_loop().create_task(self._close())
        elif self._close_task.done():
            return
        await asyncio.shield(self._close_task)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ReliableChannel {self.channel_id!r} as {self.sender_id!r}>"

    # -- opening --------------------------------------------------------------------------------------

    async def open(self, *, last_seen_ns: Nanoseconds) -> None:
        """Subscribe, take in what was missed, and begin to work.

        Args:
            last_seen_ns: When a message was last taken in, or the channel made; 0 for a channel without state.

        Raises:
            NodeError: The topic cannot be subscribed.
            StoreUnavailableError: The first state cannot be written.
        """
        self._subscription = await self._node.subscribe_topic(self.content_topic, self._inbox.take)
        self._unwatch = self._node.when_closed(self._node_closed)
        effects = Effects()
        if last_seen_ns:
            effects.merge(await self._inbox.catch_up(last_seen_ns))
        effects.merge(self._machine.start(self._clock.now_ns()))
        await self._driver.begin(effects)
        for name, work in (
            ("machine", self._driver.run()),
            ("publisher", self._publisher.run()),
            ("fetcher", self._fetcher.run()),
            ("reader", self._inbox.run()),
        ):
            self._workers.start(name, work)

    async def _read_records(self, after: int, limit: int) -> list[EventRecord]:
        return await self._store.read_events(self.channel_id, after=after, limit=limit)

    # -- failing --------------------------------------------------------------------------------------

    def _worker_died(self, name: str, cause: BaseException) -> None:
        """Make the death of a background task known to everybody who uses the channel."""
        if self._is_closing or self._failure is not None:
            return
        # A loop that ends cancels every task: that is no news.
        if not isinstance(cause, asyncio.CancelledError):
            logger.error("channel %s: %s died", self.channel_id, name, exc_info=cause)
        self._fail(cause)

    def _node_closed(self) -> None:
        """Stop: without its node the channel can do nothing; open requests go on with the next opening."""
        if not self._is_closing:
            self._fail(NodeClosedError())

    def _fail(self, cause: BaseException) -> None:
        """Tell everybody who uses the channel that it works no more."""
        self._failure = ChannelFailedError(self.channel_id, cause)
        self._failure.__cause__ = cause
        self._end_waiting(self._failure)

    def _check_open(self) -> None:
        if self._is_closing:
            raise ChannelClosedError(self.channel_id)
        if self._failure is not None:
            raise self._failure

    def _end_waiting(self, error: ReliableChannelError) -> None:
        """Tell everybody who waits for something that it will not come."""
        self._driver.end(error)
        self._hub.end(error, self._failure)

    # -- closing --------------------------------------------------------------------------------------

    @property
    def _is_closing(self) -> bool:
        return self._close_task is not None

    async def _close(self) -> None:
        """Release everything, in order, whatever fails on the way."""
        async with AsyncExitStack() as steps:
            steps.callback(self._on_close, self)
            steps.callback(self._end_waiting, ChannelClosedError(self.channel_id))
            steps.callback(self._machine.budget.close)
            steps.callback(self._unwatch)
            steps.push_async_exit(self._release)
            steps.push_async_callback(self._settle_budget)
            steps.push_async_callback(self._stop_workers)
            if self._subscription is not None:
                await self._subscription.close()

    async def _stop_workers(self) -> None:
        """Let the machine's task end after its transaction, then stop the others.

        Raises:
            StoreOutcomeUnknownError: That transaction does not end.
        """
        ended = await self._workers.stop(
            patience_sec=CLOSE_COMMIT_SEC, others=self._hub.handler_tasks, spared=self._closers
        )
        if not ended:
            text = (
                f"channel {self.channel_id!r}: a commit did not end within {CLOSE_COMMIT_SEC:.0f} s"
            )
            raise StoreOutcomeUnknownError(text)

    async def _settle_budget(self) -> None:
        """Keep what came of transmissions that the machine will not be told of any more."""
        ledgers = self._publisher.settle()
        if ledgers:
            with suppress(StoreError, TimeoutError):  # the next opening takes them for open
                async with asyncio.timeout(CLOSE_SETTLE_SEC):
                    await self._committer.commit_ledgers(ledgers)

    async def _release(
        self,
        kind: type[BaseException] | None,
        earlier: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the channel back; that this fails is not said where more is wrong with the store already.

        Raises:
            StoreError: The store cannot; or it is busy, and takes the channel back when it can.
        """
        try:
            async with asyncio.timeout(CLOSE_RELEASE_SEC):
                await self._store.release_channel(self.channel_id)
        except (StoreError, TimeoutError) as error:
            if isinstance(earlier, StoreOutcomeUnknownError):
                return
            if isinstance(error, StoreError):
                raise
            text = f"channel {self.channel_id!r}: the store is still busy with it; it cannot be opened before that ends"
            raise StoreUnavailableError(text) from error
