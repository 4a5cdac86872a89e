"""The asyncio driver of one channel: inputs in, effects out, one task that owns the machine.

::

    send, node, timers ─► inputs ─► machine ─► persist ─► publish: encrypt, node ─► published / publish_failed
                                                      ├─► fetch: node's store, decrypt ─► fetched / fetch_failed
                                                      └─► emit: streams, handlers, waiters

Inputs that arrive while a transaction is under way share the next one. Nothing is published or emitted before its
transaction is durable. It must not contain protocol rules: those are the machine's.

Spec: RELIABLE-CHANNEL-API, The Reliable Channel API.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Set
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from reliable_channel.cipher import Cipher
from reliable_channel.core.effects import Effects, Fetch, Publish
from reliable_channel.core.machine import ChannelMachine, ChannelStatus, RequestStatus
from reliable_channel.core.requests import RequestState
from reliable_channel.errors import (
    ChannelClosedError,
    ChannelFailedError,
    ChannelFullError,
    ConfigurationError,
    EncryptError,
    IdempotencyConflictError,
    NodeClosedError,
    NodeError,
    PublishRejectedError,
    ReliableChannelError,
    RequestFailedError,
    SendOutcomeUnknownError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.events import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageSendErrorEvent,
    event_to_record,
)
from reliable_channel.hub import EventHub, Handler
from reliable_channel.ports import (
    ChannelStore,
    Clock,
    IncomingMessage,
    MessageEnvelope,
    MessagingNode,
    Subscription,
)
from reliable_channel.records import Changes, EventRecord, LedgerRecord, key_of
from reliable_channel.streams import EventStream
from reliable_channel.types import SECOND, ChannelId, Nanoseconds, ParticipantId, RequestId

logger = logging.getLogger("reliable_channel.channel")

WIRE_MARKER: Final = b"RELIABLE-CHANNEL-API/1"
"""Meta field of our messages; the Nim implementation drops anything else."""

MAX_INBOX_MESSAGES: Final = 4096
"""Received messages that wait for the machine; more are dropped, as a network might have."""

MAX_INBOX_BYTES: Final = 64 << 20
"""Bytes of those messages."""

MAX_BATCH: Final = 256
"""Inputs that share one transaction."""

STORE_RETRY_FIRST_SEC: Final = 0.1
STORE_RETRY_LONGEST_SEC: Final = 5.0
"""Distances of tries while the store fails."""

CLOSE_COMMIT_SEC: Final = 30.0
"""How long a close waits for a commit that is under way."""

CLOSE_RELEASE_SEC: Final = 5.0
"""How long it then waits for the store to take the channel back."""

CATCH_UP_MARGIN_NS: Final = 5 * SECOND
"""Missed messages are asked for from this long before the last one seen: clocks and stores differ."""

Input = Callable[[Nanoseconds], Effects]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class PendingSend:
    """A ``send`` whose caller waits for it to be durable."""

    payload: bytes
    ephemeral: bool
    wait: bool
    future: asyncio.Future[RequestId]
    request_id: RequestId = ""
    idempotency_key: str | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """Inputs that were applied together, and what they ask for."""

    effects: Effects = field(default_factory=Effects)
    sends: list[PendingSend] = field(default_factory=list)
    is_unsure: bool = False
    """The store failed and may have applied it all the same."""


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
        self._cipher = cipher
        self._clock = clock
        self._on_close = on_close
        self._wake = asyncio.Event()
        self._inputs: deque[Input] = deque()
        self._sends: deque[PendingSend] = deque()
        self._inbox: deque[IncomingMessage] = deque()
        self._inbox_bytes = 0
        self._inbox_ready = asyncio.Event()
        self._drained = asyncio.Event()
        self._publishes: asyncio.Queue[Publish] = asyncio.Queue()
        self._publishing: RequestId | None = None
        self._fetches: asyncio.Queue[Fetch] = asyncio.Queue()
        self._hub = EventHub(
            self.channel_id,
            self._read_records,
            last_sequence=machine.state.outbox.last_sequence,
        )
        self._batch = Batch()
        self._close_task: asyncio.Task[None] | None = None
        self._closers: set[asyncio.Task[Any] | None] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._subscription: Subscription | None = None
        self._closing = False
        self._unwatch: Callable[[], None] = lambda: None
        self._failure: ChannelFailedError | None = None
        self._refusals_logged = 0
        self._refusals_logged_ns = 0

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
        return await self._send(payload, idempotency_key, ephemeral=ephemeral, wait=True)

    async def send_nowait(
        self, payload: bytes, *, ephemeral: bool = False, idempotency_key: str | None = None
    ) -> RequestId:
        """Send a message like ``send``, but never wait for room. It still has to be awaited.

        Raises:
            ChannelFullError: Too much is unacknowledged; nothing was stored.
        """
        return await self._send(payload, idempotency_key, ephemeral=ephemeral, wait=False)

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
        if status.is_final and not self._is_being_stored(request_id):
            if status.state in (RequestState.SEND_ERROR, RequestState.DELIVERY_ERROR):
                name = f"reliable:message:{status.state}"
                raise RequestFailedError(request_id, name, status.error)
            return status.recipients
        self._check_open()
        event = await self._hub.wait_final(request_id, timeout, ephemeral=status.ephemeral)
        if isinstance(event, MessageSendErrorEvent | MessageDeliveryErrorEvent):
            raise RequestFailedError(request_id, event.name, event.error)
        return event.recipients if isinstance(event, MessageDeliveredEvent) else ()

    def _is_being_stored(self, request_id: RequestId) -> bool:
        """Tell whether events of a request wait for their transaction."""
        events = self._batch.effects.events
        return any(getattr(event, "request_id", "") == request_id for event in events)

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
            ReliableChannelError: Node or store failed, or the store did not end within 35 s what it was doing;
                everything is released all the same.

        Spec: RELIABLE-CHANNEL-API, closeChannel.
        """
        self._closers.add(asyncio.current_task())
        if self._close_task is None:
            self._closing = True
            self._wake.set()
            self._close_task = asyncio.get_running_loop().create_task(self._close())
        elif self._close_task.done():
            return
        await asyncio.shield(self._close_task)

    async def _close(self) -> None:
        """Release everything, in order, whatever fails on the way."""
        async with AsyncExitStack() as steps:
            steps.callback(self._on_close, self)
            steps.callback(self._end_waiting, ChannelClosedError(self.channel_id))
            steps.callback(self._machine.budget.close)
            steps.callback(self._unwatch)
            steps.push_async_callback(self._release)
            steps.push_async_callback(self._settle_budget)
            steps.push_async_callback(self._stop_tasks)
            if self._subscription is not None:
                await self._subscription.close()

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
        self._subscription = await self._node.subscribe_topic(self.content_topic, self._take)
        self._unwatch = self._node.when_closed(self._node_closed)
        effects = Effects()
        if last_seen_ns:
            effects.merge(await self._catch_up(last_seen_ns - CATCH_UP_MARGIN_NS))
        effects.merge(self._machine.start(self._clock.now_ns()))
        error = await self._try_commit(effects)
        if error is not None:
            raise error
        self._carry_out(effects)
        for name, work in (
            ("machine", self._run()),
            ("publisher", self._publish_all()),
            ("fetcher", self._fetch_all()),
            ("reader", self._read_inbox()),
        ):
            self._spawn(name, work)

    async def _catch_up(self, start_ns: Nanoseconds) -> Effects:
        """Return the effects of what the node's store has since a time.

        Spec: RELIABLE-CHANNEL-API, Node initialization, step 4.
        """
        effects = Effects()
        try:
            missed = await self._node.query(self.content_topic, start_ns)
        except NodeError as error:
            logger.warning(
                "channel %s: missed messages could not be asked for (%s); gaps are repaired one by one",
                self.channel_id,
                error,
            )
            return effects
        for message in missed:
            data = await self._cipher.decrypt(message.payload)
            now = self._clock.now_ns()
            if data is None:
                effects.merge(self._machine.refuse("decrypt_failed", now))
            else:
                effects.merge(
                    self._machine.receive(data, message.message_hash, now, from_store=True)
                )
        return effects

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(
            work, name=f"reliable-channel {self.channel_id} {name}"
        )
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Make the death of a background task known to everybody who uses the channel."""
        cause = asyncio.CancelledError() if task.cancelled() else task.exception()
        if cause is None or self._closing or self._failure is not None:
            return
        if not task.cancelled():  # a loop that ends cancels every task: that is no news
            logger.error("channel %s: %s died", self.channel_id, task.get_name(), exc_info=cause)
        self._fail(cause)

    def _node_closed(self) -> None:
        """Stop: without its node the channel can do nothing; open requests go on with the next opening."""
        if not self._closing:
            self._fail(NodeClosedError())

    def _fail(self, cause: BaseException) -> None:
        """Tell everybody who uses the channel that it works no more."""
        self._failure = ChannelFailedError(self.channel_id, cause)
        self._failure.__cause__ = cause
        self._end_waiting(self._failure)

    async def _stop_tasks(self) -> None:
        """Let the machine's task end after its transaction, then stop the others.

        Raises:
            StoreOutcomeUnknownError: That transaction does not end.
        """
        late: Set[asyncio.Task[None]] = set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks[:1], timeout=CLOSE_COMMIT_SEC)
        others = {*self._tasks, *self._hub.handler_tasks} - self._closers
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if late:
            text = (
                f"channel {self.channel_id!r}: a commit did not end within {CLOSE_COMMIT_SEC:.0f} s"
            )
            raise StoreOutcomeUnknownError(text)

    async def _release(self) -> None:
        """Give the channel back.

        Raises:
            StoreUnavailableError: The store is busy; it takes the channel back when it can.
        """
        try:
            async with asyncio.timeout(CLOSE_RELEASE_SEC):
                await self._store.release_channel(self.channel_id)
        except TimeoutError as error:
            text = f"channel {self.channel_id!r}: the store is still busy with it; it cannot be opened before that ends"
            raise StoreUnavailableError(text) from error

    async def _settle_budget(self) -> None:
        """Keep what came of transmissions that the machine will not be told of any more; one can be in doubt."""
        queue, unmade = self._machine.queue, set()
        while not self._publishes.empty():
            unmade.add(self._publishes.get_nowait().segment_id)
        if queue.settle(unmade, self._publishing, self._clock.now_ns()):
            ledgers: Changes = {(LedgerRecord, key_of(row)): row for row in queue.budget.records()}
            with suppress(StoreError, TimeoutError):  # the next opening takes them for open
                async with asyncio.timeout(CLOSE_RELEASE_SEC):
                    await self._node.store.commit("", ledgers)
                    if self._store is not self._node.store:
                        await self._store.commit("", ledgers)

    # -- sending --------------------------------------------------------------------------------------

    async def _send(
        self, payload: bytes, key: str | None, *, ephemeral: bool, wait: bool
    ) -> RequestId:
        self._check_open()
        outgoing, loop = self._machine.outgoing, asyncio.get_running_loop()
        if key is not None:
            earlier = outgoing.sent_before(payload, key, ephemeral=ephemeral)
            if earlier is not None:
                repeat = PendingSend(b"", ephemeral, wait, loop.create_future(), earlier)
                self._settle_repeat(repeat)
                return await repeat.future
        data = outgoing.check_payload(payload)
        blocked = bool(self._sends) and not self._can_send()
        if not wait and (blocked or not self._machine.has_room(len(data))):
            status = self._machine.status()
            raise ChannelFullError(self.channel_id, status.open_requests, status.open_bytes)
        future: asyncio.Future[RequestId] = loop.create_future()
        self._sends.append(PendingSend(data, ephemeral, wait, future, idempotency_key=key))
        self._wake.set()
        try:
            return await future
        finally:
            self._wake.set()  # a cancelled wait for room makes place for the next

    def _settle_repeat(self, send: PendingSend) -> None:
        """Let a repeated send return: now, or with the transaction of the first where that is under way."""
        if any(other.request_id == send.request_id for other in self._batch.sends):
            self._batch.sends.append(send)
        else:
            settle(send.future, send.request_id)

    def _check_open(self) -> None:
        if self._closing:
            raise ChannelClosedError(self.channel_id)
        if self._failure is not None:
            raise self._failure

    def _end_waiting(self, error: ReliableChannelError) -> None:
        """Tell everybody who waits for something that it will not come.

        What is being stored ends with its transaction while the machine's task can tell how.
        """
        for send in self._sends:
            settle_error(send.future, error)
        self._sends.clear()
        if not self._tasks or self._tasks[0].done():
            self._end_batch(self._batch, error)
        self._hub.end(error, self._failure)

    def _end_batch(self, batch: Batch, error: ReliableChannelError) -> None:
        """Tell the senders of a batch that is not known to be stored."""
        if batch.is_unsure:
            error = SendOutcomeUnknownError(self.channel_id)
        for send in batch.sends:
            settle_error(send.future, error)
        batch.sends.clear()

    # -- the machine's task ---------------------------------------------------------------------------

    async def _run(self) -> None:
        """Apply inputs, make their effects durable, carry them out."""
        while not self._closing:
            await self._wait_for_work()
            batch = self._apply()
            if batch.effects or batch.sends:
                try:
                    await self._make_durable(batch)
                except asyncio.CancelledError:
                    batch.is_unsure = True
                    raise
                self._carry_out(batch.effects)
                for send in batch.sends:
                    settle(send.future, send.request_id)
            self._batch = Batch()
            self._log_refusals()

    async def _wait_for_work(self) -> None:
        """Return when there is an input, or a deadline of the machine has come."""
        if self._inputs or self._can_send():
            await asyncio.sleep(0)
            return
        deadline = self._machine.next_deadline()
        if deadline is not None and deadline <= self._clock.now_ns():
            return
        loop = asyncio.get_running_loop()
        timer = None
        if deadline is not None:
            wait = max(0, deadline - self._clock.now_ns()) / SECOND
            timer = loop.call_later(wait, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            self._wake.clear()
            if timer is not None:
                timer.cancel()

    def _can_send(self) -> bool:
        """Tell whether the first waiting ``send`` can go on."""
        while self._sends and self._sends[0].future.done():
            self._sends.popleft()
        if not self._sends:
            return False
        first = self._sends[0]
        return (
            not first.wait
            or self._machine.has_room(len(first.payload))
            or self._machine.knows_key(first.idempotency_key)
        )

    def _apply(self) -> Batch:
        """Give the machine what has happened; what a ``send`` raises goes to its caller."""
        batch = self._batch = Batch()
        now = self._clock.now_ns()
        for _ in range(min(len(self._inputs), MAX_BATCH)):
            batch.effects.merge(self._inputs.popleft()(now))
        self._drained.set()
        while len(batch.sends) < MAX_BATCH and self._can_send():
            self._apply_send(self._sends.popleft(), batch, now)
        deadline = self._machine.next_deadline()
        if deadline is not None and deadline <= now:
            batch.effects.merge(self._machine.tick(now))
        return batch

    def _apply_send(self, send: PendingSend, batch: Batch, now: Nanoseconds) -> None:
        try:
            is_repeat = self._machine.knows_key(send.idempotency_key)
            send.request_id, effects = self._machine.send(
                send.payload, now, ephemeral=send.ephemeral, idempotency_key=send.idempotency_key
            )
        except (ChannelFullError, IdempotencyConflictError) as error:
            settle_error(send.future, error)
            return
        if is_repeat:
            self._settle_repeat(send)
            return
        batch.effects.merge(effects)
        batch.sends.append(send)

    async def _make_durable(self, batch: Batch) -> None:
        """Commit a batch; while the store fails, sends are undone and everything else waits for it.

        Once it may have been applied, its sends wait too: nobody is told that nothing was sent before that is sure.
        """
        wait = STORE_RETRY_FIRST_SEC
        while (error := await self._try_commit(batch.effects)) is not None:
            logger.warning(
                "channel %s: state not stored, next try in %.1f s (%s)",
                self.channel_id,
                wait,
                error,
            )
            batch.is_unsure |= isinstance(error, StoreOutcomeUnknownError)
            if not batch.is_unsure:
                self._undo_sends(batch, error)
            self._refuse_waiting(error)
            await self._pause(wait)
            if self._closing:
                batch.effects = Effects()
                self._end_batch(batch, error)
                return
            wait = min(2 * wait, STORE_RETRY_LONGEST_SEC)

    async def _try_commit(self, effects: Effects) -> StoreUnavailableError | None:
        """Make changes durable; return why that was not possible."""
        if effects.changes:
            try:
                if self._store is not self._node.store:
                    await self._commit_ledger(effects)
                await self._store.commit(self.channel_id, effects.changes)
            except StoreUnavailableError as error:
                return error
        return None

    async def _commit_ledger(self, effects: Effects) -> None:
        """Make the node's ledger durable where the node keeps it, before what was counted in it goes out."""
        ledger = {key: row for key, row in effects.changes.items() if key[0] is LedgerRecord}
        if ledger:
            try:
                await self._node.store.commit("", ledger)
            except StoreOutcomeUnknownError as error:  # of the channel's own, nothing was applied
                raise StoreUnavailableError(error.reason) from error

    def _undo_sends(self, batch: Batch, error: StoreUnavailableError) -> None:
        """Take back what was sent in a batch that cannot be stored, and syncs that may name it."""
        now = self._clock.now_ns()
        effects = batch.effects
        undone = dict.fromkeys(send.request_id for send in batch.sends)  # each once, repeats or not
        self._drop_events(effects, undone.keys())
        for request_id in undone:
            effects.merge(self._machine.withdraw(request_id, now))
        self._end_batch(batch, error)
        kept = []
        for publish in effects.publishes:
            owner = publish.segment_id.rpartition(":")[0]
            if owner == "sync" and undone:
                effects.merge(
                    self._machine.publish_failed(
                        publish.segment_id, "the store failed", now, retryable=True
                    )
                )
            elif owner not in undone:
                kept.append(publish)
        effects.publishes[:] = kept

    def _refuse_waiting(self, error: StoreUnavailableError) -> None:
        """Tell those whose turn has not come that the store fails; nothing of theirs was stored."""
        if isinstance(error, StoreOutcomeUnknownError):
            error = StoreUnavailableError(error.reason)
        for send in self._sends:
            settle_error(send.future, error)
        self._sends.clear()

    def _drop_events(self, effects: Effects, request_ids: Set[RequestId]) -> None:
        """Drop events of requests; those that stay close the gap, for none was stored or shown."""
        durable = [event for event in effects.events if event.sequence]
        if not durable:
            return
        sequence = durable[0].sequence - 1
        kept: list[ChannelEvent] = []
        for event in effects.events:
            effects.changes.pop((EventRecord, (event.sequence,)), None)
            if getattr(event, "request_id", "") in request_ids:
                continue
            if event.sequence:
                sequence += 1
                event = event.with_sequence(sequence)
                effects.changes[EventRecord, (sequence,)] = event_to_record(event)
            kept.append(event)
        effects.events[:] = kept
        self._machine.state.outbox.last_sequence = sequence

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond a close."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self._closing and (left := end - loop.time()) > 0:
            timer = loop.call_later(left, self._wake.set)
            self._wake.clear()
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _carry_out(self, effects: Effects) -> None:
        """Hand durable effects to those who do them."""
        for publish in effects.publishes:
            self._publishes.put_nowait(publish)
        for fetch in effects.fetches:
            self._fetches.put_nowait(fetch)
        for event in effects.events:
            self._hub.emit(event)

    def _put(self, item: Input) -> None:
        """Give the machine's task an input."""
        self._inputs.append(item)
        self._wake.set()

    def _log_refusals(self) -> None:
        """Write at most one line a second about what the network sent and was refused."""
        dropped = self._machine.state.outbox.dropped
        # Another channel on the same topic is nobody's fault.
        total = dropped.total() - dropped["foreign_channel"]
        now = self._clock.now_ns()
        if total > self._refusals_logged and now - self._refusals_logged_ns >= SECOND:
            logger.warning(
                "channel %s: %d messages from the network refused; so far: %s",
                self.channel_id,
                total - self._refusals_logged,
                dict(sorted(dropped.items())),
            )
            self._refusals_logged = total
            self._refusals_logged_ns = now

    # -- effects --------------------------------------------------------------------------------------

    async def _publish_all(self) -> None:
        """Encrypt and publish, one message after the other: order is kept."""
        while True:
            publish = await self._publishes.get()
            self._publishing = publish.segment_id
            self._put(await self._publish(publish))
            self._publishing = None

    async def _publish(self, publish: Publish) -> Input:
        """Return what the machine has to be told of one publication."""
        machine, segment_id = self._machine, publish.segment_id
        if self._has_expired(publish):
            return lambda now: machine.expired(segment_id, now)
        began_ns = self._clock.now_ns()
        try:
            envelope = MessageEnvelope(
                content_topic=self.content_topic,
                payload=await self._cipher.encrypt(publish.data),
                ephemeral=publish.ephemeral,
                meta=WIRE_MARKER,
            )
            if self._has_expired(publish):
                held_ns = self._clock.now_ns() - began_ns
                return lambda now: machine.expired(segment_id, now, held_ns=held_ns)
            transport_hash = await self._node.publish(segment_id, envelope)
        except NodeClosedError:
            return lambda now: Effects()  # not made; `_node_closed` has told everybody
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

    async def _fetch_all(self) -> None:
        """Ask the node's store for missing messages."""
        while True:
            fetch = await self._fetches.get()
            self._put(await self._fetch(fetch))

    async def _fetch(self, fetch: Fetch) -> Input:
        """Return what the machine has to be told of one query."""
        machine = self._machine
        try:
            messages = await self._node.lookup(fetch.hashes)
        except NodeError as error:
            logger.debug("channel %s: store query failed (%s)", self.channel_id, error)
            return machine.fetch_failed
        found = [(item.message_hash, await self._cipher.decrypt(item.payload)) for item in messages]
        return lambda now: machine.fetched(found, now)

    # -- receiving ------------------------------------------------------------------------------------

    def _take(self, message: IncomingMessage) -> None:
        """Take a message from the node; more than fits is dropped and counted."""
        if self._closing:
            return
        size = len(message.payload)
        if len(self._inbox) >= MAX_INBOX_MESSAGES or self._inbox_bytes + size > MAX_INBOX_BYTES:
            self._machine.state.outbox.drop("inbox_full")
            return
        self._inbox.append(message)
        self._inbox_bytes += size
        self._inbox_ready.set()

    async def _read_inbox(self) -> None:
        """Decrypt received messages in their order and give them to the machine's task."""
        while True:
            await self._inbox_ready.wait()
            self._inbox_ready.clear()
            while self._inbox:
                message = self._inbox.popleft()
                self._inbox_bytes -= len(message.payload)
                self._put(self._input_of(message, await self._cipher.decrypt(message.payload)))
                while len(self._inputs) >= MAX_BATCH:
                    self._drained.clear()
                    await self._drained.wait()

    def _input_of(self, message: IncomingMessage, data: bytes | None) -> Input:
        machine = self._machine
        if data is None:
            return lambda now: machine.refuse("decrypt_failed", now)
        transport_hash = None if message.ephemeral else message.message_hash
        return lambda now: machine.receive(data, transport_hash, now)

    async def _read_records(self, after: int, limit: int) -> list[EventRecord]:
        return await self._store.read_events(self.channel_id, after=after, limit=limit)


def settle(future: asyncio.Future[T], result: T) -> None:
    """Give a future its result unless its owner has gone."""
    if not future.done():
        future.set_result(result)


def settle_error(future: asyncio.Future[Any], error: Exception) -> None:
    """Give a future its error unless its owner has gone."""
    if not future.done():
        future.set_exception(error)
