"""Which URL names which store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from persistence import MemoryStore, SqlStore, open_store
from persistence.testing import sample_event, written
from reliable_channel.errors import ConfigurationError, EventsExpiredError
from reliable_channel.records import EventRecord


async def test_memory() -> None:
    store = open_store("memory://")
    assert isinstance(store, MemoryStore)
    async with store:
        await store.commit("room", written([sample_event(1)]))


async def test_relative_files_lie_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///alice.db")
    assert isinstance(store, SqlStore)
    monkeypatch.chdir("/")  # where it was asked for is what counts
    async with store:
        assert (tmp_path / "alice.db").is_file()


async def test_absolute_files(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/a b%20\u00fc.db", synchronous="NORMAL"):
        assert (tmp_path / "a b%20\u00fc.db").is_file()


def test_nothing_is_touched_before_it_is_opened(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/alice.db")
    assert list(tmp_path.iterdir()) == []


def old_event(sequence: int) -> EventRecord:
    return replace(sample_event(sequence), time_ns=1)


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_retention_is_passed_on(scheme: str, tmp_path: Path) -> None:
    url = "memory://" if scheme == "memory" else f"sqlite:///{tmp_path}/alice.db"
    async with open_store(url, max_events=2) as store:
        await store.commit("room", written(sample_event(place) for place in range(1, 5)))
        with pytest.raises(EventsExpiredError):
            await store.read_events("room", after=1, limit=1)
    async with open_store(url, max_event_age_sec=1) as store:
        await store.commit("hall", written(old_event(place) for place in range(1, 5)))
        with pytest.raises(EventsExpiredError):
            await store.read_events("hall", after=2, limit=1)
    with pytest.raises(ConfigurationError, match="max_event_bytes"):
        open_store(url, max_event_bytes=0)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://:memory:",
        "sqlite://alice.db",
        "sqlite:///alice.db?mode=memory",
        "sqlite:///file::memory:?uri=true",
        "sqlite:///file::memory:",
        "sqlite:///alice.db?synchronous=NORMAL&cache=shared",
    ],
)
def test_sqlite_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="use memory:// to") as refused:
        open_store(url)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "alice.db", "redis://host", "memory://lab", "postgres:x"])
def test_unknown_stores_are_refused_in_one_line(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)
    text = str(refused.value)
    assert "\n" not in text
    assert "memory://" in text
    assert "sqlite:///relative.db" in text


@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@host/0",
        "redis://:secret@host",
        "redis://user:secret@host:1234/0?x=y",
        "redis://user:a@secret:b/c?d@host",
        "redis://host/0?password=secret",
        "user:secret@host",
        "redis://user:new\nsecret@host",
    ],
)
def test_passwords_are_not_shown(url: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        open_store(url)
    assert "secret" not in str(refused.value)
    assert "redis" in str(refused.value) or "host" in str(refused.value)


def test_settings_that_the_store_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="synchronous"):
        open_store("memory://", synchronous="NORMAL")
    with pytest.raises(ConfigurationError, match="synchronous"):
        open_store(f"sqlite:///{tmp_path}/a.db", synchronous="OFF")  # type: ignore[arg-type]
