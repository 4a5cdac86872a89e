"""A store that tells how its commits go: what was stored, how long it took, what failed.

It passes every call on to the store that it was given and changes nothing. What is told is for metrics and health, so
an observer must not raise.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import time
from typing import Protocol

from reliable_channel.errors import StoreError
from reliable_channel.ports import ChannelStore
from reliable_channel.records import Changes, EventRecord, LedgerRecord, Snapshot
from reliable_channel.store import LedgerLeases
from reliable_channel.types import ChannelId


class StoreObserver(Protocol):
    """What wants to know how commits go; called on the event loop."""

    def committed(self, channel_id: ChannelId, changes: Changes, seconds: float) -> None:
        """Take note of what was stored, and how long that took."""

    def commit_failed(self, channel_id: ChannelId, error: StoreError, seconds: float) -> None:
        """Take note that nothing was stored."""

    def released(self, channel_id: ChannelId) -> None:
        """Take note that a channel is about to be given back: it counts no more."""

    def purged(self, channel_id: ChannelId) -> None:
        """Take note that a channel was forgotten."""


class ObservedStore:
    """A ``ChannelStore`` in front of another one, with ``LedgerLeases`` where that one has them.

    Args:
        store: Does the work.
        observer: Is told.
    """

    def __init__(self, store: ChannelStore, observer: StoreObserver) -> None:
        self.store = store
        self._observer = observer

    async def open(self) -> None:
        """Make the store ready."""
        await self.store.open()

    async def close(self) -> None:
        """Release everything."""
        await self.store.close()

    async def acquire_channel(self, channel_id: ChannelId) -> Snapshot:
        """Take the channel for this process and return its rows, but for the events."""
        return await self.store.acquire_channel(channel_id)

    async def release_channel(self, channel_id: ChannelId) -> None:
        """Give the channel back."""
        self._observer.released(channel_id)
        await self.store.release_channel(channel_id)

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Apply all changes durably in one transaction, or none."""
        began = time.perf_counter()
        try:
            await self.store.commit(channel_id, changes)
        except StoreError as error:
            self._observer.commit_failed(channel_id, error, time.perf_counter() - began)
            raise
        self._observer.committed(channel_id, changes, time.perf_counter() - began)

    async def read_events(
        self, channel_id: ChannelId, *, after: int, limit: int
    ) -> list[EventRecord]:
        """Return events with a larger sequence, ascending, at most ``limit``."""
        return await self.store.read_events(channel_id, after=after, limit=limit)

    async def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Return the ledger row of a scope, or None."""
        return await self.store.load_ledger(scope)

    async def acquire_ledger(self, scope: str) -> None:
        """Take a ledger for one node, where the store can keep others away."""
        if isinstance(self.store, LedgerLeases):
            await self.store.acquire_ledger(scope)

    async def release_ledger(self, scope: str) -> None:
        """Give back what `acquire_ledger` took."""
        if isinstance(self.store, LedgerLeases):
            await self.store.release_ledger(scope)

    async def purge_channel(self, channel_id: ChannelId) -> None:
        """Forget everything about a channel."""
        await self.store.purge_channel(channel_id)
        self._observer.purged(channel_id)
