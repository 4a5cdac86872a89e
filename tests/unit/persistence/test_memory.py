"""The store in memory, against the suite for all stores."""

from __future__ import annotations

from typing import Any

import pytest

from persistence import MemoryStore
from persistence.testing import ChannelStoreSuite, sample_event, written
from reliable_channel.errors import ConfigurationError


class TestMemoryStore(ChannelStoreSuite):
    async def make_store(self, **limits: Any) -> MemoryStore:
        return MemoryStore(**limits)


async def test_a_context_opens_and_closes() -> None:
    async with MemoryStore() as store:
        await store.commit("room", written([sample_event(1)]))
        await store.acquire_channel("room")
    async with store:
        await store.acquire_channel("room")


async def test_stores_share_nothing() -> None:
    async with MemoryStore() as one, MemoryStore() as other:
        await one.acquire_channel("room")
        await one.commit("room", written([sample_event(1)]))
        await other.acquire_channel("room")
        assert await other.read_events("room", after=0, limit=1) == []


def test_settings_are_checked_together() -> None:
    with pytest.raises(ConfigurationError, match=r"max_events .*; max_event_bytes "):
        MemoryStore(max_events=0, max_event_bytes=-1)
