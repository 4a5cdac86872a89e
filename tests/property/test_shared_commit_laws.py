"""Commits that share transactions leave the same rows, and end the same way, as one after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from persistence import SqlStore
from persistence.testing import deleted, exact, rows_of, sample_event, written
from reliable_channel.errors import EventsExpiredError
from reliable_channel.records import Changes, EventRecord, LedgerRecord, LostRecord
from tests.support.held_up import ends, held_up

pytestmark = pytest.mark.timeout(120)  # some 400 transactions

ROOMS: Final = "abcd"

_examples = count()


def lost(message_id: str, lost_ns: Any) -> LostRecord:
    return LostRecord(message_id=message_id, lost_ns=lost_ns)


_ids = st.sampled_from("xyz")
_writes = st.builds(lost, _ids, st.integers(1, 9))
_refused = st.builds(lost, _ids, st.sampled_from([None, 1 << 70]))
"""What the database refuses, and what its driver does."""
_events = st.builds(
    lambda sequence, size: sample_event(sequence, payload=bytes(size)),
    st.integers(1, 6),
    st.sampled_from([0, 5_000]),
)
_ledgers = st.builds(
    LedgerRecord,
    scope=st.just("node"),
    epoch=st.integers(1, 2),
    used=st.integers(0, 5),
    in_flight=st.integers(0, 2),
)
_changes = st.builds(
    lambda rows, gone: written(rows) | deleted(gone),
    st.lists(_writes | _events | _ledgers | _writes | _events | _refused, max_size=4),
    st.lists(_writes, max_size=1),
)
_commits = st.lists(st.tuples(st.sampled_from(ROOMS), _changes, st.booleans()), max_size=12)
"""Whose, what, and whether it is cancelled while it waits."""

_bounds = st.fixed_dictionaries(
    {
        "MAX_SHARING": st.sampled_from([2, 3, 64]),
        "MAX_SHARED_BYTES": st.sampled_from([1_000, 12_000, 1 << 30]),
        "MAX_SHARED_S": st.sampled_from([-1, 3_600]),
        "MAX_TOGETHER": st.sampled_from([1, 2, 9]),
    }
)

ALONE: Final = {"MAX_SHARING": 1}

Left = tuple[list[type], dict[str, Counter[tuple[object, ...]]], LedgerRecord | None]
"""How commits ended, and what is left of them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


async def play(
    url: str, commits: Sequence[tuple[str, Changes, bool]], bounds: dict[str, float]
) -> Left:
    """Let commits wait together, and return what comes of it, in channels and a ledger of their own."""
    own = next(_examples)
    async with SqlStore(url, max_events=3, synchronous="NORMAL") as store:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in bounds.items():
                patch.setattr(f"persistence.shared_commits.{name}", value)
            with held_up(store.opened()):
                tasks = []
                for room, changes, is_cancelled in commits:
                    changes = with_ledger(changes, f"node {own}")
                    tasks.append(asyncio.create_task(store.commit(f"{room} {own}", changes)))
                    await asyncio.sleep(0)
                    if is_cancelled:
                        tasks[-1].cancel()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            ended = await ends(tasks)
        rows = {}
        for room in ROOMS:
            found = rows_of(await store.acquire_channel(f"{room} {own}"))
            rows[room] = found + exact(await events(store, f"{room} {own}"))
        ledger = await store.load_ledger(f"node {own}")
    return ended, rows, ledger and with_scope(ledger, "node")


def with_ledger(changes: Changes, scope: str) -> Changes:
    """Return changes whose ledger is another one."""
    return {
        (kind, (scope,) if kind is LedgerRecord else key): (
            with_scope(row, scope) if isinstance(row, LedgerRecord) else row
        )
        for (kind, key), row in changes.items()
    }


def with_scope(ledger: LedgerRecord, scope: str) -> LedgerRecord:
    return LedgerRecord(
        scope=scope, epoch=ledger.epoch, used=ledger.used, in_flight=ledger.in_flight
    )


async def events(store: SqlStore, room: str) -> list[EventRecord]:
    """Return those that are kept."""
    try:
        return await store.read_events(room, after=0, limit=99)
    except EventsExpiredError as expired:
        return await store.read_events(room, after=expired.oldest - 1, limit=99)


def _wrote(*rows: Any) -> Changes:
    return written(rows)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commits=_commits, bounds=_bounds)
@example(
    commits=[
        ("a", _wrote(lost("x", None)), False),
        ("b", _wrote(lost("x", 1), sample_event(1)), False),
        ("a", _wrote(lost("x", 2)), False),
        ("a", _wrote(lost("x", 3)), True),
        ("b", _wrote(lost("x", 1 << 70), sample_event(2)), False),
        ("c", _wrote(*(sample_event(sequence) for sequence in range(1, 6))), False),
    ],
    bounds={},
)
def test_shared_is_as_one_by_one(
    folder: Path, commits: list[tuple[str, Changes, bool]], bounds: dict[str, float]
) -> None:
    url = f"sqlite:///{folder}/store.db"
    shared = asyncio.run(play(url, commits, bounds))
    assert shared == asyncio.run(play(url, commits, ALONE))
