"""What shares one transaction: inputs that were applied together, the sends among them, and their commit.

It must not decide when to commit, or when to try again: that is the driver's.

Spec: RELIABLE-CHANNEL-API, The Reliable Channel API.
"""

from __future__ import annotations

import asyncio
from collections.abc import Set
from dataclasses import dataclass, field

from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.errors import (
    ReliableChannelError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.events import ChannelEvent, event_to_record
from reliable_channel.ports import ChannelStore
from reliable_channel.records import Changes, EventRecord, LedgerRecord
from reliable_channel.types import ChannelId, Nanoseconds, RequestId


@dataclass(slots=True, eq=False)
class PendingSend:
    """A ``send`` whose caller waits for it to be durable."""

    payload: bytes
    ephemeral: bool
    wait: bool
    """For room, where the channel is full."""
    future: asyncio.Future[RequestId]
    request_id: RequestId = ""
    idempotency_key: str | None = None

    def settle(self) -> None:
        """Let it return its request id, unless its caller has gone."""
        if not self.future.done():
            self.future.set_result(self.request_id)

    def fail(self, error: Exception) -> None:
        """Let it raise, unless its caller has gone."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Batch:
    """Inputs that were applied together, and what they ask for."""

    effects: Effects = field(default_factory=Effects)
    sends: list[PendingSend] = field(default_factory=list)
    is_unsure: bool = False
    """The store failed and may have applied it all the same."""

    def holds_send(self, request_id: RequestId) -> bool:
        """Tell whether a send waits for this transaction."""
        return any(send.request_id == request_id for send in self.sends)

    def holds_event(self, request_id: RequestId) -> bool:
        """Tell whether events of a request wait for this transaction."""
        return any(getattr(event, "request_id", "") == request_id for event in self.effects.events)

    def settle(self) -> None:
        """Let all sends return: the transaction is durable."""
        for send in self.sends:
            send.settle()

    def fail(self, error: ReliableChannelError) -> None:
        """Let all sends raise: the transaction is not known to be durable."""
        for send in self.sends:
            send.fail(error)
        self.sends.clear()

    def undo_sends(
        self, machine: ChannelMachine, now: Nanoseconds, error: ReliableChannelError
    ) -> None:
        """Take back what was sent in a batch that cannot be stored, and syncs that may name it.

        Args:
            machine: It has applied the batch.
            now: Unix time.
            error: What the senders get.
        """
        undone = dict.fromkeys(send.request_id for send in self.sends)  # each once, repeats or not
        self._drop_events(machine, undone.keys())
        for request_id in undone:
            self.effects.merge(machine.withdraw(request_id, now))
        self.fail(error)
        kept = []
        for publish in self.effects.publishes:
            owner = publish.segment_id.rpartition(":")[0]
            if owner == "sync" and undone:
                self.effects.merge(
                    machine.publish_failed(
                        publish.segment_id, "the store failed", now, retryable=True
                    )
                )
            elif owner not in undone:
                kept.append(publish)
        self.effects.publishes[:] = kept

    def _drop_events(self, machine: ChannelMachine, request_ids: Set[RequestId]) -> None:
        """Drop events of requests; those that stay close the gap, for none was stored or shown."""
        effects = self.effects
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
        machine.state.outbox.last_sequence = sequence


class Committer:
    """Makes changes of one channel durable, and what they count where the node keeps its ledger.

    Args:
        channel_id: The channel.
        store: Where its state is kept.
        node_store: Where the node's ledger is kept; often the same.
    """

    def __init__(
        self, channel_id: ChannelId, store: ChannelStore, node_store: ChannelStore
    ) -> None:
        self._channel_id = channel_id
        self._store = store
        self._node_store = node_store

    async def try_commit(self, changes: Changes) -> StoreUnavailableError | None:
        """Make changes durable; return why that was not possible."""
        if changes:
            try:
                if self._store is not self._node_store:
                    await self._commit_ledger(changes)
                await self._store.commit(self._channel_id, changes)
            except StoreUnavailableError as error:
                return error
        return None

    async def _commit_ledger(self, changes: Changes) -> None:
        """Make the ledger durable where the node keeps it, before what was counted in it goes out."""
        ledger = {key: row for key, row in changes.items() if key[0] is LedgerRecord}
        if ledger:
            try:
                await self._node_store.commit("", ledger)
            except StoreOutcomeUnknownError as error:  # of the channel's own, nothing was applied
                raise StoreUnavailableError(error.reason) from error

    async def commit_ledgers(self, ledgers: Changes) -> None:
        """Make ledgers durable wherever they are kept.

        Raises:
            StoreError: A store failed.
        """
        await self._node_store.commit("", ledgers)
        if self._store is not self._node_store:
            await self._store.commit("", ledgers)
