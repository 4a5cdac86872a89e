"""The registry of channels that a service has open: one table of tests for all stores."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from persistence import MemoryStore, SqlStore, open_registry, open_store
from persistence.testing import (
    exact,
    rows_of,
    sample_event,
    sample_records,
    written,
)
from reliable_channel.errors import ConfigurationError, StoreClosedError, StoreUnavailableError
from reliable_channel.records import LostRecord
from reliable_channel.volatile import VolatileStore

Store: TypeAlias = MemoryStore | SqlStore
Open: TypeAlias = Callable[[], Store]
"""Gives the store, as another process would have it where that is possible."""


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgresql", marks=[pytest.mark.real, pytest.mark.timeout(60)]),
    ]
)
def open_again(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    if request.param == "memory":
        store = open_store("memory://")
        return lambda: store
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_url")
    return lambda: open_store(url)


async def test_a_new_registry_is_empty(open_again: Open) -> None:
    async with open_again() as store:
        assert await open_registry(store).channels() == {}


async def test_channels_come_in_the_order_in_which_they_were_first_put(open_again: Open) -> None:
    steps: list[tuple[str, str | None, list[tuple[str, str]]]] = [
        ("b", "1", [("b", "1")]),
        ("a", "2", [("b", "1"), ("a", "2")]),
        ("c", "", [("b", "1"), ("a", "2"), ("c", "")]),
        ("b", "3", [("b", "3"), ("a", "2"), ("c", "")]),
        ("a", None, [("b", "3"), ("c", "")]),
        ("nowhere", None, [("b", "3"), ("c", "")]),
        ("a", "4", [("b", "3"), ("c", ""), ("a", "4")]),
        ("a", None, [("b", "3"), ("c", "")]),
        ("c", None, [("b", "3")]),
        ("b", None, []),
        ("b", "5", [("b", "5")]),
    ]
    async with open_again() as store:
        registry = open_registry(store)
        for channel_id, settings, expected in steps:
            if settings is None:
                await registry.remove(channel_id)
            else:
                await registry.put(channel_id, settings)
            assert list((await registry.channels()).items()) == expected
            assert await open_registry(store).channels() == dict(expected)


async def test_texts_come_back_as_they_were(open_again: Open) -> None:
    texts = {
        "plain": "{}",
        "x" * 255: "x" * 100_000,
        "Grüße \U0001f600": "\U0001f600\n\\ %s 'a' \"b\"; DROP TABLE registry; --",
        "a/../b": "\x01\x7f\u2028",
    }
    async with open_again() as store:
        registry = open_registry(store)
        for channel_id, settings in texts.items():
            await registry.put(channel_id, settings)
        assert await registry.channels() == texts


async def test_everything_is_there_after_a_restart(open_again: Open) -> None:
    async with open_again() as store:
        for channel_id in ("b", "a", "c"):
            await open_registry(store).put(channel_id, channel_id.upper())
        await open_registry(store).remove("c")
    async with open_again() as store:
        found = await open_registry(store).channels()
        assert list(found.items()) == [("b", "B"), ("a", "A")]


async def test_the_registry_and_channels_leave_each_other_alone(open_again: Open) -> None:
    """Purging, retention, and whoever drives the channel."""
    rows = sample_records(LostRecord)
    async with open_again() as store:
        registry = open_registry(store)
        await registry.put("room", "settings")
        await store.acquire_channel("room")
        await store.commit("room", written([*rows, sample_event(1)]))
        await store.release_channel("room")
        await registry.put("room", "others")
        assert rows_of(await store.acquire_channel("room")) == exact(rows)
        await registry.remove("room")
        assert await store.read_events("room", after=0, limit=9) == [sample_event(1)]
        await registry.put("room", "again")
        await store.purge_channel("room")
        assert await registry.channels() == {"room": "again"}
        assert await store.read_events("room", after=0, limit=9) == []


async def test_a_store_that_is_not_open_says_so(open_again: Open) -> None:
    store = open_again()
    registry = open_registry(store)
    for _ in range(2):
        with pytest.raises(StoreClosedError):
            await registry.channels()
        with pytest.raises(StoreClosedError):
            await registry.put("room", "")
        with pytest.raises(StoreClosedError):
            await registry.remove("room")
        async with store:
            assert await registry.channels() == {}


@pytest.mark.parametrize(
    ("channel_id", "settings", "problem"),
    [
        ("", "", "channel_id is empty"),
        ("x" * 256, "", "channel_id must be 1 to 255 bytes"),
        ("a\0", "", "channel_id must be 1 to 255 bytes"),
        (5, "", "channel_id must be text, not int"),
        ("room", None, "settings must be text, not NoneType"),
        ("room", b"{}", "settings must be text, not bytes"),
        ("room", "a\0", "settings must be text without NUL"),
        ("room", "\ud800", "settings must be text without NUL and surrogates"),
    ],
)
async def test_what_not_every_store_can_keep_is_refused(
    open_again: Open, channel_id: Any, settings: Any, problem: str
) -> None:
    async with open_again() as store:
        registry = open_registry(store)
        with pytest.raises(ConfigurationError, match=problem):
            await registry.put(channel_id, settings)
        if channel_id != "room":
            with pytest.raises(ConfigurationError, match=problem):
                await registry.remove(channel_id)
        assert await registry.channels() == {}


def test_a_store_of_another_kind_is_refused() -> None:
    other: Any = VolatileStore()
    with pytest.raises(ConfigurationError, match="what open_store returns, not VolatileStore"):
        open_registry(other)


async def test_a_file_that_is_locked_changes_nothing_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with SqlStore(f"sqlite:///{path}", busy_timeout_ms=20) as store:
        registry = open_registry(store)
        await registry.put("room", "kept")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for change in (registry.put("room", "lost"), registry.remove("room")):
                with pytest.raises(StoreUnavailableError) as failed:
                    await change
                assert "\n" not in str(failed.value)
        assert await registry.channels() == {"room": "kept"}
        await registry.put("room", "later")
        assert await registry.channels() == {"room": "later"}
