"""The one task that owns a channel's machine: inputs and sends in, durable effects out.

Inputs that arrive while a transaction is under way share the next one. Nothing is published or emitted before its
transaction is durable. While the store fails, sends are undone and everything else waits. It must not contain protocol
rules, nor wait for the network: the one is the machine's, the other for those whom effects are handed to.

Spec: RELIABLE-CHANNEL-API, The Reliable Channel API.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final

from reliable_channel.batch import Batch, Committer, PendingSend
from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.errors import (
    ChannelFullError,
    IdempotencyConflictError,
    ReliableChannelError,
    SendOutcomeUnknownError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.hub import EventHub
from reliable_channel.inputs import MAX_BATCH, InputQueue
from reliable_channel.ports import Clock
from reliable_channel.traffic import Fetcher, Publisher
from reliable_channel.types import SECOND, Nanoseconds, RequestId

logger = logging.getLogger("reliable_channel.channel")

STORE_RETRY_FIRST_SEC: Final = 0.1
STORE_RETRY_LONGEST_SEC: Final = 5.0
"""Distances of tries while the store fails."""


class Driver:
    """Applies inputs and sends in batches, makes each durable and hands its effects on.

    Args:
        machine: The protocol.
        clock: Unix time.
        inputs: What has happened.
        committer: Makes changes durable.
        publisher: Is handed publications.
        fetcher: Is handed queries.
        hub: Is handed events.
    """

    def __init__(
        self,
        machine: ChannelMachine,
        *,
        clock: Clock,
        inputs: InputQueue,
        committer: Committer,
        publisher: Publisher,
        fetcher: Fetcher,
        hub: EventHub,
    ) -> None:
        self._machine = machine
        self._channel_id = machine.state.channel_id
        self._clock = clock
        self._inputs = inputs
        self._committer = committer
        self._publisher = publisher
        self._fetcher = fetcher
        self._hub = hub
        self._sends: deque[PendingSend] = deque()
        self._batch = Batch()
        self._is_running = False
        self._is_stopping = False
        self._refusals_logged = 0
        self._refusals_logged_ns = 0

    # -- what the channel's handle uses -------------------------------------------------------------

    async def send(
        self, payload: bytes, key: str | None, *, ephemeral: bool, wait: bool
    ) -> RequestId:
        """Have a payload sent, and return once that is durable.

        Args:
            payload: Of the application, unchecked.
            key: Makes a repeat harmless; None has none.
            ephemeral: Outside causal order.
            wait: For room, where the channel is full.

        Raises:
            ReliableChannelError: As ``ReliableChannel.send`` and ``send_nowait`` say.
        """
        outgoing, loop = self._machine.outgoing, asyncio.get_running_loop()
        if key is not None:
            earlier = outgoing.sent_before(payload, key, ephemeral=ephemeral)
            if earlier is not None:
                repeat = PendingSend(b"", ephemeral, wait, loop.create_future(), earlier)
                self._settle_repeat(repeat)
                return await repeat.future
        data = outgoing.check_payload(payload)
        blocked = not self._can_send() and bool(self._sends)  # the first takes out who has gone
        if not wait and (blocked or not self._machine.has_room(len(data))):
            status = self._machine.status()
            raise ChannelFullError(self._channel_id, status.open_requests, status.open_bytes)
        future: asyncio.Future[RequestId] = loop.create_future()
        self._sends.append(PendingSend(data, ephemeral, wait, future, idempotency_key=key))
        self._inputs.wake()
        try:
            return await future
        except asyncio.CancelledError:
            self._inputs.wake()  # a cancelled wait for room makes place for the next
            raise
        finally:
            del future  # it holds its error, that holds this frame, and so the payload

    def is_storing(self, request_id: RequestId) -> bool:
        """Tell whether events of a request wait for their transaction."""
        return self._batch.holds_event(request_id)

    async def begin(self, effects: Effects) -> None:
        """Make durable and carry out what the opening asks for, before ``run``.

        Raises:
            StoreUnavailableError: It cannot be stored.
        """
        error = await self._committer.try_commit(effects.changes)
        if error is not None:
            raise error
        self._carry_out(effects)

    async def run(self) -> None:
        """Apply inputs, make their effects durable, carry them out; until it is stopped."""
        self._is_running = True
        try:
            while not self._is_stopping:
                await self._wait_for_work()
                await self._turn()
        finally:
            self._is_running = False

    def stop(self) -> None:
        """Let ``run`` return after the transaction that is under way."""
        self._is_stopping = True
        self._inputs.wake()

    def end(self, error: ReliableChannelError) -> None:
        """Tell those who wait in ``send`` that it will not come.

        What is being stored ends with its transaction while ``run`` can tell how.
        """
        self._refuse_waiting(error)
        if not self._is_running:
            self._end_batch(error)

    # -- one turn -----------------------------------------------------------------------------------

    async def _turn(self) -> None:
        batch = self._apply()
        if batch.effects or batch.sends:
            try:
                await self._make_durable(batch)
            except asyncio.CancelledError:
                batch.is_unsure = True
                raise
            self._carry_out(batch.effects)
            batch.settle()
        self._batch = Batch()
        self._log_refusals()

    async def _wait_for_work(self) -> None:
        """Return when there is an input, or a deadline of the machine has come."""
        if self._inputs or self._can_send():
            await asyncio.sleep(0)
            return
        deadline = self._machine.next_deadline()
        if deadline is None:
            await self._inputs.wait()
        elif (left := deadline - self._clock.now_ns()) > 0:
            await self._inputs.wait(left / SECOND)

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
        for tell in self._inputs.take():
            batch.effects.merge(tell(now))
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
            send.fail(error)
            return
        if is_repeat:
            self._settle_repeat(send)
            return
        batch.effects.merge(effects)
        batch.sends.append(send)

    def _settle_repeat(self, send: PendingSend) -> None:
        """Let a repeated send return: now, or with the transaction of the first where that is under way."""
        if self._batch.holds_send(send.request_id):
            self._batch.sends.append(send)
        else:
            send.settle()

    def _carry_out(self, effects: Effects) -> None:
        """Hand durable effects to those who do them."""
        for publish in effects.publishes:
            self._publisher.put(publish)
        for fetch in effects.fetches:
            self._fetcher.put(fetch)
        for event in effects.events:
            self._hub.emit(event)

    # -- while the store fails ----------------------------------------------------------------------

    async def _make_durable(self, batch: Batch) -> None:
        """Commit a batch; while the store fails, sends are undone and everything else waits for it.

        Once it may have been applied, its sends wait too: nobody is told that nothing was sent before that is sure.
        """
        wait = STORE_RETRY_FIRST_SEC
        while (error := await self._committer.try_commit(batch.effects.changes)) is not None:
            logger.warning(
                "channel %s: state not stored, next try in %.1f s (%s)",
                self._channel_id,
                wait,
                error,
            )
            refusal: ReliableChannelError = error
            if isinstance(error, StoreOutcomeUnknownError):
                batch.is_unsure = True
                refusal = StoreUnavailableError(error.reason)  # to those whose turn has not come
            if not batch.is_unsure:
                batch.undo_sends(self._machine, self._clock.now_ns(), error)
            self._refuse_waiting(refusal)
            await self._pause(wait)
            if self._is_stopping:
                batch.effects = Effects()
                self._end_batch(error)
                return
            wait = min(2 * wait, STORE_RETRY_LONGEST_SEC)

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond a close."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self._is_stopping and (left := end - loop.time()) > 0:
            await self._inputs.wait(left)

    def _refuse_waiting(self, error: ReliableChannelError) -> None:
        """Tell those whose turn has not come that it will not."""
        for send in self._sends:
            send.fail(error)
        self._sends.clear()

    def _end_batch(self, error: ReliableChannelError) -> None:
        """Tell the senders of a batch that is not known to be stored."""
        batch = self._batch
        batch.fail(SendOutcomeUnknownError(self._channel_id) if batch.is_unsure else error)

    # -- strangers ----------------------------------------------------------------------------------

    def _log_refusals(self) -> None:
        """Write at most one line a second about what the network sent and was refused."""
        dropped = self._machine.state.outbox.dropped
        if not dropped:
            return
        # Another channel on the same topic is nobody's fault.
        total = dropped.total() - dropped["foreign_channel"]
        now = self._clock.now_ns()
        if total > self._refusals_logged and now - self._refusals_logged_ns >= SECOND:
            logger.warning(
                "channel %s: %d messages from the network refused; so far: %s",
                self._channel_id,
                total - self._refusals_logged,
                dict(sorted(dropped.items())),
            )
            self._refusals_logged = total
            self._refusals_logged_ns = now
