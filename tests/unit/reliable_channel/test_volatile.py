"""The store in memory: changes, snapshots, exclusive channels, bounded events, ledgers."""

from __future__ import annotations

import pytest

from reliable_channel.errors import ChannelExistsError, EventsExpiredError, StoreClosedError
from reliable_channel.ports import ChannelStore
from reliable_channel.records import (
    BodyRecord,
    Changes,
    DebtRecord,
    EventRecord,
    LedgerRecord,
    Record,
    key_of,
)
from reliable_channel.volatile import EVENT_OVERHEAD_BYTES, VolatileStore


def written(*records: Record) -> Changes:
    return {(type(record), key_of(record)): record for record in records}


def event(sequence: int, payload: bytes | None = None) -> EventRecord:
    return EventRecord(
        sequence=sequence,
        name="reliable:message:sent",
        time_ns=sequence,
        request_id="r",
        message_id=None,
        sender_id=None,
        payload=payload,
        detail="",
    )


def ledger(epoch: int, used: int, scope: str = "node:600") -> LedgerRecord:
    return LedgerRecord(scope=scope, epoch=epoch, used=used)


async def opened(**bounds: int) -> VolatileStore:
    store = VolatileStore(**bounds)
    await store.open()
    return store


async def sequences(store: ChannelStore, after: int, limit: int = 1_000) -> list[int]:
    return [row.sequence for row in await store.read_events("c", after=after, limit=limit)]


async def test_a_new_channel_has_no_rows() -> None:
    assert await (await opened()).acquire_channel("c") == {}


async def test_rows_are_written_whole_replaced_and_deleted() -> None:
    store = await opened()
    first = BodyRecord(message_id="m", part="content", data=b"1")
    other = BodyRecord(message_id="m", part="header", data=b"2")
    replaced = BodyRecord(message_id="m", part="content", data=b"3")
    debt = DebtRecord(message_id="m")
    await store.commit("c", written(first, other, debt))
    await store.commit("c", {**written(replaced), (DebtRecord, ("m",)): None})
    assert await store.acquire_channel("c") == {BodyRecord: [replaced, other]}


async def test_deleting_what_is_not_there_is_harmless() -> None:
    store = await opened()
    await store.commit("c", {(DebtRecord, ("m",)): None, (EventRecord, (1,)): None})
    assert await store.acquire_channel("c") == {}


async def test_channels_are_apart() -> None:
    store = await opened()
    await store.commit("a", written(DebtRecord(message_id="m"), event(1)))
    assert await store.acquire_channel("b") == {}
    assert await store.read_events("b", after=0, limit=9) == []


async def test_snapshots_hold_neither_events_nor_ledgers() -> None:
    store = await opened()
    await store.commit("c", written(event(1), ledger(1, 1)))
    assert await store.acquire_channel("c") == {}


async def test_a_channel_is_taken_by_one_at_a_time() -> None:
    store = await opened()
    await store.acquire_channel("c")
    with pytest.raises(ChannelExistsError, match="on this store"):
        await store.acquire_channel("c")
    await store.acquire_channel("d")
    await store.release_channel("c")
    await store.release_channel("c")
    await store.acquire_channel("c")


async def test_events_are_read_in_pages() -> None:
    store = await opened()
    await store.commit("c", written(event(1), event(2)))
    await store.commit("c", written(event(3)))
    assert await sequences(store, after=0, limit=2) == [1, 2]
    assert await sequences(store, after=2, limit=2) == [3]
    assert await sequences(store, after=3) == []
    await store.commit("c", {(EventRecord, (2,)): None})
    assert await sequences(store, after=0) == [1, 3]


async def test_the_oldest_events_expire_by_count() -> None:
    store = await opened(max_events=3)
    for number in range(1, 6):
        await store.commit("c", written(event(number)))
    assert await sequences(store, after=2) == [3, 4, 5]
    with pytest.raises(EventsExpiredError) as caught:
        await sequences(store, after=1)
    assert (caught.value.after, caught.value.oldest) == (1, 3)


async def test_the_oldest_events_expire_by_bytes() -> None:
    store = await opened(max_event_bytes=2 * (EVENT_OVERHEAD_BYTES + 100))
    for number in range(1, 4):
        await store.commit("c", written(event(number, bytes(100))))
    assert await sequences(store, after=1) == [2, 3]


async def test_the_newest_event_is_kept_whatever_its_size() -> None:
    store = await opened(max_event_bytes=10)
    await store.commit("c", written(event(1), event(2, bytes(1_000))))
    assert await sequences(store, after=1) == [2]


async def test_a_rewritten_event_counts_once() -> None:
    store = await opened(max_event_bytes=2 * (EVENT_OVERHEAD_BYTES + 100))
    for _ in range(5):
        await store.commit("c", written(event(1, bytes(100)), event(2, bytes(100))))
    assert await sequences(store, after=0) == [1, 2]


async def test_many_expiries_stay_quick() -> None:
    """Dropping one event must not look at all that were dropped before."""
    store = await opened(max_events=10)
    for number in range(1, 50_001):
        await store.commit("c", written(event(number)))
    assert await sequences(store, after=49_990) == list(range(49_991, 50_001))


async def test_a_ledger_never_goes_back() -> None:
    store = await opened()
    for epoch, used in ((5, 3), (5, 2), (4, 90), (5, 4)):
        await store.commit("", written(ledger(epoch, used)))
    assert await store.load_ledger("node:600") == ledger(5, 4)
    await store.commit("c", written(ledger(6, 1)))
    assert await store.load_ledger("node:600") == ledger(6, 1)
    await store.commit("", {(LedgerRecord, ("node:600",)): None})
    assert await store.load_ledger("node:600") == ledger(6, 1)
    assert await store.load_ledger("channel:c") is None


async def test_purging_forgets_all_but_the_ledger() -> None:
    store = await opened()
    share = ledger(1, 1, "channel:c")
    await store.commit("c", written(DebtRecord(message_id="m"), event(1), share))
    await store.purge_channel("c")
    await store.purge_channel("c")
    assert await store.acquire_channel("c") == {}
    assert await sequences(store, after=0) == []
    assert await store.load_ledger("channel:c") == share


async def test_rows_outlive_closing_and_channels_are_given_back() -> None:
    store = await opened()
    debt = DebtRecord(message_id="m")
    await store.acquire_channel("c")
    await store.commit("c", written(debt, event(1)))
    await store.close()
    await store.close()
    await store.open()
    assert await store.acquire_channel("c") == {DebtRecord: [debt]}
    assert await sequences(store, after=0) == [1]


@pytest.mark.parametrize("state", ["never opened", "closed"])
async def test_use_while_not_open_is_refused(state: str) -> None:
    store = VolatileStore()
    if state == "closed":
        await store.open()
        await store.close()
    for call in (
        store.acquire_channel("c"),
        store.commit("c", {}),
        store.read_events("c", after=0, limit=1),
        store.load_ledger("node:600"),
        store.purge_channel("c"),
    ):
        with pytest.raises(StoreClosedError):
            await call
    await store.release_channel("c")
