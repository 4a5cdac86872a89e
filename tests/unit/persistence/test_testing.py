"""The suite for stores has to find stores that break their promises."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from persistence import MemoryStore
from persistence.testing import (
    ROW_TYPES,
    ChannelStoreSuite,
    deleted,
    exact,
    rows_of,
    sample_event,
    sample_records,
    written,
)
from reliable_channel.errors import ReliableChannelError
from reliable_channel.ports import ChannelStore
from reliable_channel.records import (
    RECORD_TYPES,
    Changes,
    DebtRecord,
    EventRecord,
    LedgerRecord,
    LogRecord,
    Record,
    Snapshot,
    key_of,
)


@pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.__name__)
def test_samples_differ_in_every_field(kind: type[Record]) -> None:
    samples = sample_records(kind)
    assert len({key_of(sample) for sample in samples}) == (3 if kind.key_fields else 1)
    for field in fields(kind):
        assert len({getattr(sample, field.name) for sample in samples}) >= 2, field.name


def test_samples_of_events_have_their_place() -> None:
    assert sample_event(7).sequence == 7
    assert sample_event(7, payload=None).payload is None


def test_changes_are_made_of_records() -> None:
    one, other, _ = sample_records(DebtRecord)
    assert written([one]) == {(DebtRecord, (one.message_id,)): one}
    assert deleted([one, other]) == {
        (DebtRecord, (one.message_id,)): None,
        (DebtRecord, (other.message_id,)): None,
    }


def test_comparisons_tell_true_from_one() -> None:
    wrong, right = (LedgerRecord(scope="node", epoch=epoch, used=0) for epoch in (True, 1))
    assert wrong == right
    assert exact([wrong]) != exact([right])
    assert rows_of({LedgerRecord: [right]}) == exact([right])


# --- Stores with a fault each --------------------------------------------------------------------


class _Forgetful(MemoryStore):
    """Leaves the first row of a commit out."""

    async def commit(self, channel_id: str, changes: Changes) -> None:
        if len(changes) > 1:
            changes = dict(list(changes.items())[1:])
        await super().commit(channel_id, changes)


class _Torn(MemoryStore):
    """Fails in the middle of a commit."""

    async def commit(self, channel_id: str, changes: Changes) -> None:
        for place, record in changes.items():
            if getattr(record, "lost_ns", 0) is None:
                raise ValueError
            await super().commit(channel_id, {place: record})


class _Appending(MemoryStore):
    """Takes an event that it has for the next one."""

    async def commit(self, channel_id: str, changes: Changes) -> None:
        place = 0
        with suppress(ReliableChannelError):
            place = len(await self.read_events(channel_id, after=0, limit=100))
        moved: Changes = {}
        for (kind, key), record in changes.items():
            if isinstance(record, EventRecord):
                place += 1
                moved[kind, (place,)] = replace(record, sequence=place)
            else:
                moved[kind, key] = record
        await super().commit(channel_id, moved)


class _Mixed(MemoryStore):
    """Takes channels whose ids differ in upper and lower case for one."""

    async def commit(self, channel_id: str, changes: Changes) -> None:
        await super().commit(channel_id.lower(), changes)

    async def acquire_channel(self, channel_id: str) -> Snapshot:
        return await super().acquire_channel(channel_id.lower())


class _Gathering(MemoryStore):
    """Lets what several want at once wait together."""

    def __init__(self, **limits: int) -> None:
        super().__init__(**limits)
        self._waiting: list[tuple[str, Changes]] = []

    async def _gather(self, channel_id: str, changes: Changes) -> None:
        self._waiting.append((channel_id, changes))
        await asyncio.sleep(0)


class _Together(_Gathering):
    """Does what several want at once in one go, and lets them fail together."""

    async def commit(self, channel_id: str, changes: Changes) -> None:
        await self._gather(channel_id, changes)
        if any(
            getattr(row, "lost_ns", 0) is None for _, item in self._waiting for row in item.values()
        ):
            raise ValueError
        for commit in self._waiting:
            await super().commit(*commit)
        self._waiting.clear()


class _Overtaking(_Gathering):
    """Does what several want at once, the last first."""

    async def commit(self, channel_id: str, changes: Changes) -> None:
        await self._gather(channel_id, changes)
        while self._waiting:
            await super().commit(*self._waiting.pop())


class _Cancelling(_Together):
    """Lets all of those go that share with one that was cancelled."""

    async def commit(self, channel_id: str, changes: Changes) -> None:
        try:
            await super().commit(channel_id, changes)
        except asyncio.CancelledError:
            self._waiting.clear()
            raise


class _Shared(MemoryStore):
    """Lets two drive one channel."""

    async def acquire_channel(self, channel_id: str) -> Snapshot:
        await self.release_channel(channel_id)
        return await super().acquire_channel(channel_id)


class _Unordered(MemoryStore):
    """Returns events newest first."""

    async def read_events(self, channel_id: str, *, after: int, limit: int) -> list[EventRecord]:
        return (await super().read_events(channel_id, after=after, limit=limit))[::-1]


class _Hoarding(MemoryStore):
    """Keeps all events."""

    def __init__(self, **_: int) -> None:
        super().__init__()


class _Resetting(MemoryStore):
    """Takes whatever ledger comes."""

    async def load_ledger(self, scope: str) -> LedgerRecord | None:
        return self.last

    async def commit(self, channel_id: str, changes: Changes) -> None:
        for record in changes.values():
            if isinstance(record, LedgerRecord):
                self.last = record

    last: LedgerRecord | None = None


class _Open(MemoryStore):
    """Never says that it is closed."""

    async def close(self) -> None:
        """Do nothing."""


class _Sticky(MemoryStore):
    """Forgets nothing."""

    async def purge_channel(self, channel_id: str) -> None:
        """Do nothing."""


Test = Callable[[ChannelStoreSuite], Coroutine[Any, Any, None]]


@pytest.mark.parametrize(
    ("store", "test"),
    [
        (_Forgetful, ChannelStoreSuite.test_one_commit_writes_replaces_and_deletes),
        (_Appending, ChannelStoreSuite.test_repeating_a_commit_changes_nothing),
        (_Torn, ChannelStoreSuite.test_commits_are_applied_wholly_or_not_at_all),
        (_Together, ChannelStoreSuite.test_a_commit_that_fails_takes_no_other_with_it),
        (
            _Overtaking,
            ChannelStoreSuite.test_concurrent_commits_of_many_channels_are_all_applied,
        ),
        (
            _Cancelling,
            ChannelStoreSuite.test_cancelled_commits_of_many_channels_take_no_other_with_them,
        ),
        (_Resetting, ChannelStoreSuite.test_the_newest_ledger_stays_whichever_channel_writes_it),
        pytest.param(_Mixed, lambda suite: suite.test_channels_are_kept_apart("ROOM"), id="case"),
        (_Shared, ChannelStoreSuite.test_a_channel_is_driven_once),
        (_Unordered, ChannelStoreSuite.test_events_come_in_pages),
        pytest.param(_Hoarding, lambda suite: suite.test_the_newest_events_are_kept(4), id="count"),
        pytest.param(_Hoarding, lambda suite: suite.test_events_are_bounded_in_bytes(4), id="size"),
        pytest.param(_Hoarding, lambda suite: suite.test_events_are_bounded_in_age(4), id="age"),
        (_Resetting, ChannelStoreSuite.test_ledgers_never_go_back),
        (_Open, ChannelStoreSuite.test_a_store_that_is_not_open_says_so),
        (_Sticky, ChannelStoreSuite.test_purging_forgets_rows_and_events),
    ],
)
async def test_faults_are_found(store: type[MemoryStore], test: Test) -> None:
    class Suite(ChannelStoreSuite):
        async def make_store(self, **limits: Any) -> ChannelStore:
            return store(**limits)

    with pytest.raises((AssertionError, pytest.fail.Exception, ReliableChannelError)):
        await test(Suite())


def test_every_row_type_is_tested() -> None:
    assert {*ROW_TYPES, EventRecord, LedgerRecord} == {*RECORD_TYPES}
    assert LogRecord in ROW_TYPES


def test_without_pytest_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "pytest.py").write_text("raise ImportError('hidden')\n")
    root = Path(__file__).parents[3]
    code = f"import sys; sys.path[:0] = {[str(tmp_path), str(root)]}; import persistence.testing"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert "persistence.testing needs pytest: pip install" in done.stderr
