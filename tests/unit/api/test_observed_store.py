"""A store in front of another: the same answers, and somebody is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from api.observed_store import ObservedStore
from persistence import MemoryStore
from persistence.testing import sample_records, written
from reliable_channel import (
    BudgetInUseError,
    ChannelExistsError,
    RateLimitConfig,
    StoreUnavailableError,
)
from reliable_channel.budget import acquire_budget, release_budget
from reliable_channel.errors import StoreError
from reliable_channel.ports import ChannelStore
from reliable_channel.records import Changes, EventRecord, LedgerRecord
from reliable_channel.types import ChannelId
from reliable_channel.volatile import VolatileStore

ROOM = ChannelId("room")
LIMITED = RateLimitConfig(enabled=True)


@dataclass
class Notes:
    """Writes down what it is told."""

    told: list[tuple[Any, ...]] = field(default_factory=list)

    def committed(self, channel_id: ChannelId, changes: Changes, seconds: float) -> None:
        assert seconds >= 0
        self.told.append(("committed", channel_id, len(changes)))

    def commit_failed(self, channel_id: ChannelId, error: StoreError, seconds: float) -> None:
        assert seconds >= 0
        self.told.append(("failed", channel_id, str(error)))

    def released(self, channel_id: ChannelId) -> None:
        self.told.append(("released", channel_id))

    def purged(self, channel_id: ChannelId) -> None:
        self.told.append(("purged", channel_id))


class Unavailable(VolatileStore):
    """A disk that is full."""

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        raise StoreUnavailableError("the disk is full")


async def test_calls_are_passed_on_and_told() -> None:
    notes, inner = Notes(), MemoryStore()
    store: ChannelStore = ObservedStore(inner, notes)
    await store.open()
    assert not await store.acquire_channel(ROOM)
    with pytest.raises(ChannelExistsError):
        await inner.acquire_channel(ROOM)
    events = [replace(sample_records(EventRecord)[0], sequence=1)]
    changes = written(events)
    await store.commit(ROOM, changes)
    assert await store.read_events(ROOM, after=0, limit=1) == events
    ledger = LedgerRecord(scope="node:600", epoch=3, used=4)
    await store.commit(ChannelId(""), written([ledger]))
    assert await store.load_ledger("node:600") == ledger
    await store.purge_channel(ROOM)
    assert await inner.read_events(ROOM, after=0, limit=1) == []
    await store.release_channel(ROOM)
    await inner.acquire_channel(ROOM)
    await store.close()
    assert notes.told == [
        ("committed", ROOM, len(changes)),
        ("committed", "", 1),
        ("purged", ROOM),
        ("released", ROOM),
    ]


async def test_budgets_are_leased_through_it() -> None:
    """As a node on the store itself would: two services must not spend one budget."""
    inner = MemoryStore()
    await inner.open()
    store: ChannelStore = ObservedStore(inner, Notes())
    budget = await acquire_budget(LIMITED, store, now=0)
    with pytest.raises(BudgetInUseError):
        await inner.acquire_ledger("node:600")
    await release_budget(budget, store)
    await inner.acquire_ledger("node:600")
    await inner.close()


async def test_a_failure_is_told_and_raised() -> None:
    notes = Notes()
    with pytest.raises(StoreUnavailableError) as raised:
        await ObservedStore(Unavailable(), notes).commit(ROOM, {})
    assert notes.told == [("failed", ROOM, str(raised.value))]
