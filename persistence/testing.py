# ruff: noqa: D102 - the name of a test states the rule
"""The suite that a store has to pass before channels can rely on it.

It needs pytest and pytest-asyncio. To run it on a store of your own::

    class TestMyStore(ChannelStoreSuite):
        async def make_store(self, **limits: Any) -> ChannelStore:
            return MyStore(**limits)

For details of failed assertions, have ``pytest.register_assert_rewrite("persistence.testing")`` in
``conftest.py``. Nothing here may know how a store works inside.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import Any, ClassVar, Final, TypeVar, get_type_hints

from reliable_channel.errors import ChannelExistsError, EventsExpiredError, StoreClosedError
from reliable_channel.ports import ChannelStore
from reliable_channel.records import (
    RECORD_TYPES,
    BodyRecord,
    Changes,
    DebtRecord,
    EventRecord,
    LedgerRecord,
    LogRecord,
    LostRecord,
    Record,
    Snapshot,
    key_of,
)
from reliable_channel.types import SECOND, ChannelId

try:
    import pytest
except ImportError as error:
    missing = "persistence.testing needs pytest: pip install pytest pytest-asyncio"
    raise ImportError(missing) from error

_TEXT: Final = "Grüße, \U0001f600 'a' \"b\"; -- %s\n\\"

VARIANTS: Final[dict[Any, tuple[Any, Any, Any]]] = {
    bool: (False, True, False),
    bytes: (b"", b"\x00\xff", bytes(range(256)) * 8),
    bytes | None: (None, b"", b"\x00\xff"),
    float: (0.0, 0.001, 1e-9),
    int: (0, 1, 2**63 - 1),
    str: ("", "plain", _TEXT),
    str | None: (None, "", _TEXT),
    tuple[str, ...]: ((), ("",), ("one", _TEXT)),
}
"""For each type that a record's field can have, values that are easily confused or lost."""

ODD_CHANNEL_IDS: Final = {
    "slash": "a/b",
    "dots": "../..",
    "spaces": " room ",
    "quote": "room'; DROP TABLE channels; --",
    "wildcard": "r_om%",
    "composed": "caf\u00e9",
    "decomposed": "cafe\u0301",
    "upper": "ROOM",
    "emoji": "\U0001f600" * 63,
    "long": "x" * 255,
}
"""Channel ids that some way of keeping them apart would mix up; none is ``room``."""

ROW_TYPES: Final = tuple(kind for kind in RECORD_TYPES if kind not in (EventRecord, LedgerRecord))
"""The record types of a snapshot."""

_R = TypeVar("_R", bound=Record)
_EACH_ROW_TYPE = pytest.mark.parametrize("kind", ROW_TYPES, ids=lambda kind: kind.__name__)
_EACH_ODD_ID = pytest.mark.parametrize(
    "channel_id", ODD_CHANNEL_IDS.values(), ids=list(ODD_CHANNEL_IDS)
)


def sample_records(kind: type[_R]) -> list[_R]:
    """Return three records of a type, with different keys and with the values of `VARIANTS`."""
    build: Callable[..., _R] = kind
    hints = get_type_hints(kind)
    return [
        build(**{field.name: VARIANTS[hints[field.name]][variant] for field in fields(kind)})
        for variant in range(3)
    ]


def sample_event(sequence: int, *, payload: bytes | None = b"payload") -> EventRecord:
    """Return an event with a place in the log."""
    return replace(sample_records(EventRecord)[2], sequence=sequence, payload=payload, detail="{}")


def _event_of_age(sequence: int, seconds: int) -> EventRecord:
    return replace(sample_event(sequence), time_ns=time.time_ns() - seconds * SECOND)


def written(records: Iterable[Record]) -> Changes:
    """Return the changes that write these rows."""
    return {(type(record), key_of(record)): record for record in records}


def deleted(records: Iterable[Record]) -> Changes:
    """Return the changes that delete these rows."""
    return {(type(record), key_of(record)): None for record in records}


def exact(records: Iterable[Record]) -> Counter[tuple[object, ...]]:
    """Return records with the type of each value, to be compared: ``True`` is not 1 here."""
    return Counter(
        (type(record), *((type(value), value) for value in _values(record))) for record in records
    )


def rows_of(snapshot: Snapshot) -> Counter[tuple[object, ...]]:
    """Return what a snapshot holds, as `exact` does."""
    return exact(record for records in snapshot.values() for record in records)


def _values(record: Record) -> list[object]:
    return [getattr(record, field.name) for field in fields(record)]


class ChannelStoreSuite(ABC):
    """Tests of everything that ``ChannelStore`` promises; subclass it as ``Test…``."""

    pytestmark: ClassVar[Any] = pytest.mark.asyncio

    @abstractmethod
    async def make_store(
        self, *, max_events: int, max_event_bytes: int, max_event_age_sec: int | None
    ) -> ChannelStore:
        """Return a new, empty store that is not open yet.

        Args:
            max_events: Events that it keeps of each channel.
            max_event_bytes: Size of the events that it keeps of each channel, bytes; what an event
                counts beyond its payload is the store's choice.
            max_event_age_sec: How long it keeps them, seconds; None: as long as the other bounds
                allow. When it looks at their age is the store's choice too, but it does with each
                commit of a channel that is held.
        """

    @asynccontextmanager
    async def opened(
        self,
        *,
        max_events: int = 1_000,
        max_event_bytes: int = 16 << 20,
        max_event_age_sec: int | None = None,
    ) -> AsyncIterator[ChannelStore]:
        """Open a new store, and close it at the end."""
        store = await self.make_store(
            max_events=max_events,
            max_event_bytes=max_event_bytes,
            max_event_age_sec=max_event_age_sec,
        )
        await store.open()
        try:
            yield store
        finally:
            await store.close()

    async def peek(self, store: ChannelStore, channel_id: ChannelId = "room") -> Snapshot:
        """Return the rows of a channel that nobody holds."""
        snapshot = await store.acquire_channel(channel_id)
        await store.release_channel(channel_id)
        return snapshot

    # Rows.

    async def test_new_channel_has_no_rows(self) -> None:
        async with self.opened() as store:
            assert rows_of(await self.peek(store)) == exact([])

    @_EACH_ROW_TYPE
    async def test_rows_come_back_as_written(self, kind: type[Record]) -> None:
        async with self.opened() as store:
            for record in sample_records(kind):
                await store.commit("room", written([record]))
                assert exact([record]) <= rows_of(await self.peek(store))

    @_EACH_ROW_TYPE
    async def test_rows_are_replaced_whole(self, kind: type[Record]) -> None:
        old, new, _ = sample_records(kind)
        new = replace(new, **{name: getattr(old, name) for name in kind.key_fields})
        async with self.opened() as store:
            await store.commit("room", written([old]))
            await store.commit("room", written([new]))
            assert rows_of(await self.peek(store)) == exact([new])

    @_EACH_ROW_TYPE
    async def test_rows_are_deleted_by_key(self, kind: type[Record]) -> None:
        gone, *others = sample_records(kind)
        if not kind.key_fields:  # there is only one such row
            others = []
        async with self.opened() as store:
            await store.commit("room", written([*others, gone]))
            await store.commit("room", deleted([gone]))
            assert rows_of(await self.peek(store)) == exact(others)

    async def test_one_commit_writes_replaces_and_deletes(self) -> None:
        old, gone, new = sample_records(LogRecord)
        debts = sample_records(DebtRecord)
        changed = replace(old, sender_id="changed")
        async with self.opened() as store:
            await store.commit("room", written([old, gone, debts[0]]))
            changes = written([changed, new, debts[1]]) | deleted([gone, debts[0]])
            await store.commit("room", changes)
            assert rows_of(await self.peek(store)) == exact([changed, new, debts[1]])

    async def test_repeating_a_commit_changes_nothing(self) -> None:
        """A channel repeats what may have been applied."""
        old, gone, new = sample_records(LogRecord)
        events = [sample_event(sequence) for sequence in range(1, 5)]
        ledger = LedgerRecord(scope="node", epoch=1, used=2)
        changes = written([replace(old, sender_id="changed"), new, *events[2:], ledger])
        async with self.opened(max_events=4) as store:
            await store.commit("room", written([old, gone, *events[:2]]))
            for _ in range(3):
                await store.commit("room", changes | deleted([gone]))
            expected = exact([replace(old, sender_id="changed"), new])
            assert rows_of(await self.peek(store)) == expected
            assert await store.read_events("room", after=0, limit=10) == events
            assert await store.load_ledger("node") == ledger

    async def test_the_last_change_of_a_row_counts(self) -> None:
        first, second, _ = sample_records(LogRecord)
        async with self.opened() as store:
            await store.commit("room", written([first, second]) | deleted([second]))
            await store.commit("room", deleted([first]) | written([first]))
            assert rows_of(await self.peek(store)) == exact([first])

    async def test_deleting_what_is_not_there_is_harmless(self) -> None:
        records = [sample_records(kind)[1] for kind in RECORD_TYPES]
        async with self.opened() as store:
            await store.commit("room", deleted(records))
            assert rows_of(await self.peek(store)) == exact([])

    async def test_empty_commits_are_harmless(self) -> None:
        async with self.opened() as store:
            await store.commit("room", {})
            await store.commit("", {})
            assert rows_of(await self.peek(store)) == exact([])

    async def test_large_bodies_come_back(self) -> None:
        body = BodyRecord(message_id="large", part="content", data=bytes(range(256)) * 4096)
        async with self.opened() as store:
            await store.commit("room", written([body]))
            assert rows_of(await self.peek(store)) == exact([body])

    async def test_snapshots_do_not_change(self) -> None:
        old, new, _ = sample_records(LogRecord)
        async with self.opened() as store:
            await store.commit("room", written([old]))
            snapshot = await store.acquire_channel("room")
            await store.commit("room", written([new]) | deleted([old]))
            assert rows_of(snapshot) == exact([old])

    # All or none.

    async def test_commits_are_applied_wholly_or_not_at_all(self) -> None:
        """A store may take a row that is not what its type says, but not a part of a commit."""
        before, after, _ = sample_records(LogRecord)
        strange = replace(sample_records(LostRecord)[0], lost_ns=None)  # type: ignore[arg-type]
        async with self.opened() as store:
            await store.commit("room", written([before]))
            changes = deleted([before]) | written([after, strange])
            try:
                await store.commit("room", changes)
            except Exception:  # whichever: the store's choice
                expected = exact([before])
            else:
                expected = exact([after, strange])
            assert rows_of(await self.peek(store)) == expected

    async def test_cancelled_commits_are_applied_wholly_or_not_at_all(self) -> None:
        commits = [
            [LostRecord(message_id=f"{number}-{part}", lost_ns=part) for part in range(20)]
            for number in range(20)
        ]
        async with self.opened() as store:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(store.commit("room", written(rows))) for rows in commits]
                group.create_task(_cancel_every_other(tasks))
            found = rows_of(await self.peek(store))
        for number, (task, rows) in enumerate(zip(tasks, commits, strict=True)):
            there = found & exact(rows)
            assert len(there) in ({0, len(rows)} if task.cancelled() else {len(rows)}), number

    async def test_concurrent_commits_are_all_applied(self) -> None:
        records = [LostRecord(message_id=str(number), lost_ns=number) for number in range(50)]
        async with self.opened() as store:
            async with asyncio.TaskGroup() as group:
                for record in records:
                    group.create_task(store.commit("room", written([record])))
            assert rows_of(await self.peek(store)) == exact(records)

    async def test_concurrent_commits_of_many_channels_are_all_applied(self) -> None:
        """A store may do them together, but each channel's in their order."""
        ids = [f"room {number}" for number in range(30)]
        rows = [LostRecord(message_id="same", lost_ns=number) for number in range(3)]
        async with self.opened() as store:
            async with asyncio.TaskGroup() as group:
                for number, row in enumerate(rows, start=1):
                    for channel_id in ids:
                        changes = written([row, sample_event(number)])
                        group.create_task(store.commit(channel_id, changes))
            for channel_id in ids:
                assert rows_of(await self.peek(store, channel_id)) == exact(rows[2:])
                events = await store.read_events(channel_id, after=0, limit=9)
                assert [event.sequence for event in events] == [1, 2, 3]

    async def test_a_commit_that_fails_takes_no_other_with_it(self) -> None:
        good, strange = sample_records(LogRecord)[1], sample_records(LostRecord)[0]
        strange = replace(strange, lost_ns=None)  # type: ignore[arg-type]
        ids = [f"room {number}" for number in range(9)]
        async with self.opened() as store:
            commits = [
                store.commit(channel_id, written([good, strange] if place % 4 == 1 else [good]))
                for place, channel_id in enumerate(ids)
            ]
            ends = await asyncio.gather(*commits, return_exceptions=True)
            for place, (channel_id, end) in enumerate(zip(ids, ends, strict=True)):
                is_strange = place % 4 == 1
                assert is_strange or not end
                expected = exact([good, strange] if is_strange else [good])
                found = rows_of(await self.peek(store, channel_id))
                assert found == (exact([]) if end else expected)

    async def test_cancelled_commits_of_many_channels_take_no_other_with_them(self) -> None:
        rows = sample_records(LostRecord)
        ids = [f"room {number}" for number in range(20)]
        async with self.opened() as store:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(store.commit(channel_id, written(rows))) for channel_id in ids
                ]
                group.create_task(_cancel_every_other(tasks))
            for task, channel_id in zip(tasks, ids, strict=True):
                found = rows_of(await self.peek(store, channel_id))
                assert found == exact(rows) or (task.cancelled() and found == exact([]))

    # Channels.

    @_EACH_ODD_ID
    async def test_channels_are_kept_apart(self, channel_id: ChannelId) -> None:
        ours, theirs, _ = sample_records(LogRecord)
        async with self.opened() as store:
            await store.commit("room", written([theirs, sample_event(1)]))
            await store.commit(channel_id, written([ours]))
            assert rows_of(await store.acquire_channel(channel_id)) == exact([ours])
            assert rows_of(await store.acquire_channel("room")) == exact([theirs])
            assert await store.read_events(channel_id, after=0, limit=10) == []
            await store.purge_channel(channel_id)
            assert await store.read_events("room", after=0, limit=10) == [sample_event(1)]

    async def test_ids_that_look_alike_are_kept_apart(self) -> None:
        async with self.opened() as store:
            for number, channel_id in enumerate(ODD_CHANNEL_IDS.values()):
                row = LostRecord(message_id="same", lost_ns=number)
                await store.commit(channel_id, written([row, sample_event(1)]))
            for number, channel_id in enumerate(ODD_CHANNEL_IDS.values()):
                row = LostRecord(message_id="same", lost_ns=number)
                assert rows_of(await store.acquire_channel(channel_id)) == exact([row])

    async def test_a_channel_is_driven_once(self) -> None:
        async with self.opened() as store:
            await store.acquire_channel("room")
            for _ in range(2):  # being refused takes nothing away
                with pytest.raises(ChannelExistsError) as refused:
                    await store.acquire_channel("room")
                assert refused.value.channel_id == "room"
            await store.acquire_channel("another")

    async def test_a_released_channel_can_be_taken(self) -> None:
        async with self.opened() as store:
            await store.acquire_channel("room")
            await store.release_channel("room")
            await store.acquire_channel("room")

    async def test_releasing_what_is_not_held_is_harmless(self) -> None:
        async with self.opened() as store:
            await store.release_channel("room")
            await store.acquire_channel("room")
            await store.release_channel("room")
            await store.release_channel("room")

    async def test_cancelled_acquisitions_hold_nothing(self) -> None:
        async with self.opened() as store:
            try:
                async with asyncio.timeout(0):
                    await store.acquire_channel("room")
            except TimeoutError:
                pass
            else:
                await store.release_channel("room")
            await store.acquire_channel("room")

    async def test_purging_forgets_rows_and_events(self) -> None:
        records = [sample_records(kind)[1] for kind in ROW_TYPES]
        events = [sample_event(sequence) for sequence in range(1, 6)]
        async with self.opened(max_events=3) as store:
            await store.commit("room", written([*records, *events]))
            await store.purge_channel("room")
            assert rows_of(await self.peek(store)) == exact([])
            assert await store.read_events("room", after=0, limit=10) == []
            await store.commit("room", written([records[0], events[0]]))
            assert rows_of(await self.peek(store)) == exact([records[0]])
            assert await store.read_events("room", after=0, limit=10) == events[:1]

    async def test_purging_an_unknown_channel_is_harmless(self) -> None:
        async with self.opened() as store:
            await store.purge_channel("nowhere")

    # Events.

    async def test_events_come_back_as_written(self) -> None:
        variants = sample_records(EventRecord)
        events = [replace(event, sequence=place) for place, event in enumerate(variants, start=1)]
        async with self.opened() as store:
            await store.commit("room", written(events))
            found = await store.read_events("room", after=0, limit=10)
            assert found == events
            assert exact(found) == exact(events)

    async def test_events_are_in_no_snapshot(self) -> None:
        async with self.opened() as store:
            await store.commit("room", written([sample_event(1)]))
            assert rows_of(await self.peek(store)) == exact([])

    async def test_events_come_in_pages(self) -> None:
        events = [sample_event(sequence) for sequence in range(1, 11)]
        async with self.opened() as store:
            await store.commit("room", written(reversed(events[:4])))
            for event in events[4:]:
                await store.commit("room", written([event]))
            assert await store.read_events("room", after=0, limit=4) == events[:4]
            assert await store.read_events("room", after=4, limit=4) == events[4:8]
            assert await store.read_events("room", after=8, limit=4) == events[8:]
            assert await store.read_events("room", after=10, limit=4) == []
            assert await store.read_events("room", after=11, limit=4) == []

    async def test_unknown_channels_have_no_events(self) -> None:
        async with self.opened() as store:
            assert await store.read_events("nowhere", after=0, limit=10) == []

    @pytest.mark.parametrize("together", [1, 4, 10])
    async def test_the_newest_events_are_kept(self, together: int) -> None:
        events = [sample_event(sequence) for sequence in range(1, 21)]
        async with self.opened(max_events=5) as store:
            for start in range(0, len(events), together):
                await store.commit("room", written(events[start : start + together]))
            kept = await self._check_retained(store, events)
            assert len(kept) <= 5

    @pytest.mark.parametrize("together", [1, 4, 10])
    async def test_events_are_bounded_in_bytes(self, together: int) -> None:
        events = [sample_event(sequence, payload=bytes(10_000)) for sequence in range(1, 21)]
        async with self.opened(max_event_bytes=55_000) as store:
            for start in range(0, len(events), together):
                await store.commit("room", written(events[start : start + together]))
            kept = await self._check_retained(store, events)
            assert len(kept) <= 5

    async def test_the_newest_event_is_always_kept(self) -> None:
        events = [sample_event(sequence, payload=bytes(10_000)) for sequence in range(1, 4)]
        async with self.opened(max_event_bytes=5_000) as store:
            for event in events:
                await store.commit("room", written([event]))
                assert await store.read_events("room", after=event.sequence - 1, limit=9) == [event]
            assert await self._check_retained(store, events) == events[2:]

    @pytest.mark.parametrize("together", [1, 4, 10])
    async def test_events_are_bounded_in_age(self, together: int) -> None:
        events = [_event_of_age(sequence, 7_200) for sequence in range(1, 8)]
        events += [_event_of_age(sequence, 0) for sequence in range(8, 12)]
        async with self.opened(max_event_age_sec=3_600) as store:
            await store.acquire_channel("room")
            for start in range(0, len(events), together):
                await store.commit("room", written(events[start : start + together]))
            assert await self._check_retained(store, events) == events[7:]

    async def test_younger_events_are_kept(self) -> None:
        events = [_event_of_age(sequence, 7_200) for sequence in range(1, 8)]
        async with self.opened(max_event_age_sec=10_000) as store:
            await store.acquire_channel("room")
            for event in events:
                await store.commit("room", written([event]))
            assert await store.read_events("room", after=0, limit=9) == events

    async def test_the_newest_event_is_kept_whatever_its_age(self) -> None:
        events = [_event_of_age(sequence, 7_200) for sequence in range(1, 4)]
        async with self.opened(max_event_age_sec=1) as store:
            await store.acquire_channel("room")
            for event in events:
                await store.commit("room", written([event]))
                assert await store.read_events("room", after=event.sequence - 1, limit=9) == [event]
            await store.commit("room", written(sample_records(DebtRecord)))
            assert await self._check_retained(store, events) == events[2:]

    async def test_a_reader_is_told_of_what_went_between_two_pages(self) -> None:
        events = [sample_event(sequence) for sequence in range(1, 21)]
        async with self.opened(max_events=5) as store:
            await store.commit("room", written(events[:5]))
            assert await store.read_events("room", after=0, limit=2) == events[:2]
            after = 2
            for newest in range(6, 21):
                await store.commit("room", written(events[newest - 1 : newest]))
                try:
                    found = await store.read_events("room", after=2, limit=1)
                except EventsExpiredError as expired:
                    after = expired.oldest - 1
                    found = await store.read_events("room", after=after, limit=1)
                assert found == events[after : after + 1]
            assert after >= 15

    async def test_each_channel_has_its_own_bounds(self) -> None:
        events = [sample_event(sequence) for sequence in range(1, 5)]
        async with self.opened(max_events=4) as store:
            for channel_id in ("room", "hall"):
                await store.commit(channel_id, written(events))
            for channel_id in ("room", "hall"):
                assert await store.read_events(channel_id, after=0, limit=9) == events

    async def _check_retained(
        self, store: ChannelStore, events: list[EventRecord]
    ) -> list[EventRecord]:
        """Check that some of the newest are there, and the others said to be gone; return them."""
        with pytest.raises(EventsExpiredError) as expired:
            await store.read_events("room", after=0, limit=len(events))
        oldest = expired.value.oldest
        assert expired.value.after == 0
        with pytest.raises(EventsExpiredError):
            await store.read_events("room", after=oldest - 2, limit=1)
        kept = await store.read_events("room", after=oldest - 1, limit=len(events))
        assert kept
        assert kept == [event for event in events if event.sequence >= oldest]
        return kept

    # The ledger.

    async def test_ledgers_never_go_back(self) -> None:
        """A store keeps the larger of what it has and what it is given, as (epoch, used)."""
        steps = [((5, 10), (5, 10)), ((5, 9), (5, 10)), ((4, 99), (5, 10)), ((6, 0), (6, 0))]
        steps += [((5, 11), (6, 0)), ((6, 1), (6, 1))]
        async with self.opened() as store:
            assert await store.load_ledger("node") is None
            for (epoch, used), expected in steps:
                given = LedgerRecord(scope="node", epoch=epoch, used=used)
                await store.commit("", written([given]))
                found = await store.load_ledger("node")
                assert found is not None
                assert (found.scope, found.epoch, found.used) == ("node", *expected)

    async def test_of_equal_ledgers_the_one_with_fewer_open_outcomes_is_kept(self) -> None:
        steps = [((5, 10, 6, 2), (6, 2)), ((5, 10, 5, 2), (5, 2)), ((5, 10, 6, 1), (5, 2))]
        steps += [((5, 10, 6, 0), (6, 0)), ((5, 9, 0, 0), (6, 0)), ((5, 11, 7, 0), (7, 0))]
        steps += [((6, 0, 0, 7), (0, 7)), ((6, 0, 0, 0), (0, 0))]
        async with self.opened() as store:
            for (epoch, used, in_flight, held), expected in steps:
                given = LedgerRecord(
                    scope="node", epoch=epoch, used=used, in_flight=in_flight, held=held
                )
                await store.commit("", written([given]))
                found = await store.load_ledger("node")
                assert found is not None
                assert (found.in_flight, found.held) == expected

    async def test_the_newest_ledger_stays_whichever_channel_writes_it(self) -> None:
        useds = [3, 9, 1, 7, 8, 2]
        newest = LedgerRecord(scope="node", epoch=5, used=max(useds))
        async with self.opened() as store:
            async with asyncio.TaskGroup() as group:
                for used in useds:
                    ledger = replace(newest, used=used)
                    row = LostRecord(message_id="a", lost_ns=used)
                    group.create_task(store.commit(f"room {used}", written([row, ledger])))
            assert await store.load_ledger("node") == newest
            for used in useds:
                found = rows_of(await self.peek(store, f"room {used}"))
                assert found == exact([LostRecord(message_id="a", lost_ns=used)])

    async def test_ledgers_outlive_deletion_and_purge(self) -> None:
        node = LedgerRecord(scope="node", epoch=1, used=1)
        channel = LedgerRecord(scope="channel:room", epoch=1, used=2)
        async with self.opened() as store:
            await store.commit("room", written([node, channel, *sample_records(DebtRecord)]))
            await store.commit("room", deleted([node, channel]))
            await store.purge_channel("room")
            assert await store.load_ledger("node") == node
            assert await store.load_ledger("channel:room") == channel
            assert await store.load_ledger("channel:hall") is None

    # Opening, closing, coming back.

    async def test_opening_and_closing_can_be_repeated(self) -> None:
        async with self.opened() as store:
            await store.commit("room", written(sample_records(DebtRecord)))
            await store.open()
            assert len(rows_of(await self.peek(store))) == 3
            await store.close()
            await store.close()

    async def test_a_store_that_is_not_open_says_so(self) -> None:
        store = await self.make_store(max_events=1, max_event_bytes=1, max_event_age_sec=None)
        await self._check_closed(store)
        await store.open()
        await store.acquire_channel("room")
        await store.close()
        await self._check_closed(store)
        await store.release_channel("room")

    async def _check_closed(self, store: ChannelStore) -> None:
        with pytest.raises(StoreClosedError):
            await store.acquire_channel("room")
        with pytest.raises(StoreClosedError):
            await store.commit("room", written(sample_records(DebtRecord)))
        with pytest.raises(StoreClosedError):
            await store.read_events("room", after=0, limit=1)
        with pytest.raises(StoreClosedError):
            await store.load_ledger("node")
        with pytest.raises(StoreClosedError):
            await store.purge_channel("room")


class DurableStoreSuite(ChannelStoreSuite):
    """The same for a store that outlives its object, and what it promises besides."""

    @abstractmethod
    async def reopen_store(self, store: ChannelStore) -> ChannelStore:
        """Return another store object, not open yet, on the data of one that was closed."""

    @asynccontextmanager
    async def reopened(self, store: ChannelStore) -> AsyncIterator[ChannelStore]:
        """Close a store and go on with its data."""
        await store.close()
        again = await self.reopen_store(store)
        await again.open()
        try:
            yield again
        finally:
            await again.close()

    async def test_everything_is_there_after_a_restart(self) -> None:
        records = [sample_records(kind)[2] for kind in ROW_TYPES]
        ledger = LedgerRecord(scope="node", epoch=3, used=4, in_flight=2, held=1)
        events = [sample_event(sequence) for sequence in range(1, 4)]
        async with self.opened() as store:
            await store.commit("room", written([*records, *events, ledger]))
            async with self.reopened(store) as again:
                assert rows_of(await again.acquire_channel("room")) == exact(records)
                assert await again.read_events("room", after=0, limit=9) == events
                assert await again.load_ledger("node") == ledger

    async def test_what_is_gone_is_gone_after_a_restart(self) -> None:
        events = [sample_event(sequence) for sequence in range(1, 10)]
        async with self.opened(max_events=3) as store:
            await store.commit("room", written(events))
            await store.commit("hall", written(sample_records(LogRecord)))
            await store.purge_channel("hall")
            async with self.reopened(store) as again:
                await self._check_retained(again, events)
                assert rows_of(await again.acquire_channel("hall")) == exact([])

    async def test_a_restart_frees_what_was_held(self) -> None:
        async with self.opened() as store:
            await store.acquire_channel("room")
            async with self.reopened(store) as again:
                await again.acquire_channel("room")


async def _cancel_every_other(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks[::2]:
        task.cancel()
