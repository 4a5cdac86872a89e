"""Memory is that of open channels, by either way of counting."""

from __future__ import annotations

import tracemalloc
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from benchmarks import idle_memory
from benchmarks.idle_memory import Memory


@pytest.mark.parametrize("store", idle_memory.STORES)
async def test_so_many_channels_are_open_in_the_store(store: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        opened = await idle_memory.open_some(stack, store, str(tmp_path), 3, 2)
        assert [channel.channel_id for channel in opened] == ["idle-3", "idle-4"]
        await opened[0].send(b"kept")
        assert (tmp_path / "3.db").exists() == store.startswith("sqlite")


async def test_channels_that_were_used_take_more() -> None:
    tracemalloc.start()
    try:
        found = await idle_memory.measure("memory://", 5, 3, settle_sec=0.05)
    finally:
        tracemalloc.stop()
    assert 1_000 < found.new < found.used


def test_every_store_is_counted_both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool]] = []

    def measured(store: str, channels: int, messages: int, *, is_traced: bool) -> Memory:
        asked.append((store, is_traced))
        return Memory(1_000, 2_000)

    monkeypatch.setattr(idle_memory, "measure_afresh", measured)
    (table,) = idle_memory.tables()
    assert isinstance(table, idle_memory.Table)
    assert [item.ours.median for item in table.figures] == [1, 2] * 4
    assert asked == [(store, way) for store in idle_memory.STORES for way in (False, True)]


def test_without_tracing_it_is_the_process_that_is_counted() -> None:
    assert idle_memory.bytes_now() > 1 << 20
