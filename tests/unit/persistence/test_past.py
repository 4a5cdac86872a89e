"""What a database tells of its channels' past, page by page, and that being asked changes nothing."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from persistence import SqlStore
from persistence.past import ChannelPast, Past, PastMessage
from persistence.testing import sample_event, sample_records, written
from reliable_channel.errors import ConfigurationError, StoreUnavailableError
from reliable_channel.records import ChannelRecord, EventRecord, LogRecord, Record, RequestRecord
from reliable_channel.types import MS, SECOND

START_NS = 1_700_000_000 * SECOND


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.real)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'alice.db'}"
    return str(request.getfixturevalue("postgres_url"))


def state(*, last_seen_ns: int = START_NS, lamport_clock: int = START_NS // MS + 99) -> Record:
    return replace(
        sample_records(ChannelRecord)[1],
        sender_id="alice",
        created_ns=START_NS,
        last_seen_ns=last_seen_ns,
        lamport_clock=lamport_clock,
    )


def received(sequence: int, payload: bytes = b"hello") -> EventRecord:
    return replace(
        sample_event(sequence, payload=payload),
        name="reliable:message:received",
        time_ns=START_NS + sequence * SECOND,
        request_id=None,
        message_id=f"m{sequence}",
        sender_id="bob",
        detail='{"ephemeral":false,"late":true}',
    )


def known(name: str, lamport: int, *, sender: str = "alice", index: int = 0) -> LogRecord:
    return replace(
        sample_records(LogRecord)[0],
        message_id=name,
        lamport_timestamp=START_NS // MS + lamport,
        sender_id=sender,
        segment_index=index,
        segment_count=3,
    )


def past_of(url: str, channel_id: str = "room") -> ChannelPast:
    return {found.channel_id: found for found in Past(url).channels()}[channel_id]


# --- What is told --------------------------------------------------------------------------------


@pytest.mark.timeout(60)  # the first one waits for the server
async def test_a_channel_has_its_beginning_and_its_last_sign_of_life(url: str) -> None:
    async with SqlStore(url) as store:
        await store.commit("room", written([state(), received(1), received(2)]))
        await store.commit("hall", written([state(last_seen_ns=START_NS + 9 * SECOND)]))
        await store.acquire_channel("never opened")
        hall, room = Past(url).channels()
    assert (hall.channel_id, hall.since_ns, hall.until_ns) == (
        "hall",
        START_NS,
        START_NS + 9 * SECOND,
    )
    assert room == ChannelPast(
        channel_id="room",
        sender_id="alice",
        since_ns=START_NS,
        until_ns=START_NS + 2 * SECOND,
        oldest=0,
        newest=2,
        lamport_clock=START_NS // MS + 99,
    )


async def test_events_come_in_pages_without_their_payloads(url: str) -> None:
    events = [received(sequence, bytes(sequence)) for sequence in range(1, 8)]
    rows = [known(f"m{sequence}", sequence, sender="bob") for sequence in (2, 7)]
    async with SqlStore(url) as store:
        await store.commit("room", written([state(), *events, *rows]))
        past = past_of(url)
        await store.commit(
            "room", written([received(8)])
        )  # it comes later, and is not of this past
        found = list(Past(url).events(past, page=3))
    assert [(event.sequence, event.payload_bytes) for event in found] == [
        (number, number) for number in range(1, 8)
    ]
    lamports = [event.lamport_timestamp for event in found]
    assert [lamport and lamport - START_NS // MS for lamport in lamports] == [0, 2, 0, 0, 0, 0, 7]
    assert (found[0].name, found[0].time_ns, found[0].message_id, found[0].sender_id) == (
        "reliable:message:received",
        START_NS + SECOND,
        "m1",
        "bob",
    )
    assert found[0].detail == events[0].detail


async def test_a_log_begins_where_retention_has_left_it(url: str) -> None:
    async with SqlStore(url, max_events=2) as store:
        await store.commit(
            "room", written([state(), *(received(number) for number in range(1, 6))])
        )
        past = past_of(url)
    assert (past.since_ns, past.oldest) == (START_NS + 4 * SECOND, 3)
    assert [event.sequence for event in Past(url).events(past)] == [4, 5]


async def test_events_that_are_removed_meanwhile_are_left_out(url: str) -> None:
    async with SqlStore(url, max_events=4) as store:
        await store.commit(
            "room", written([state(), *(received(number) for number in range(1, 5))])
        )
        past = past_of(url)
        events = Past(url).events(past, page=1)
        assert next(events).sequence == 1
        await store.commit("room", written([received(number) for number in range(5, 8)]))
        assert [event.sequence for event in events] == [4]


@pytest.mark.parametrize("page", [1, 2, 100])
async def test_own_messages_come_by_their_lamport_time(url: str, page: int) -> None:
    rows = [
        *(known("c", 30), known("a", 10), known("b2", 20), known("b1", 20)),
        *(known("other", 15, sender="bob"), known("second", 11, index=1)),
        *(known("before the log", -1), known("later", 100)),
    ]
    async with SqlStore(url) as store:
        await store.commit("room", written([state(), *rows]))
        found = list(Past(url).sent(past_of(url), page))
    begin = START_NS // MS
    assert found == [
        PastMessage("a", begin + 10, 3),
        PastMessage("b1", begin + 20, 3),
        PastMessage("b2", begin + 20, 3),
        PastMessage("c", begin + 30, 3),
    ]


async def test_requests_are_told_while_they_are_remembered(url: str) -> None:
    rows = sample_records(RequestRecord)
    async with SqlStore(url) as store:
        await store.commit("room", written([state(), *rows]))
        await store.commit("hall", written([state()]))
        found = {request.request_id: request for request in Past(url).requests("room")}
        assert Past(url).requests("hall") == []
    assert found.keys() == {row.request_id for row in rows}
    for row in rows:
        assert found[row.request_id] == tuple(
            getattr(row, name)
            for name in (
                *("request_id", "created_ns", "payload_bytes", "segment_count", "ephemeral"),
                "lamport_timestamp",
            )
        )


# --- Beside those who use it ---------------------------------------------------------------------


async def test_no_lease_is_taken_and_no_writer_waited_for_between_pages(url: str) -> None:
    """A page is a transaction of its own: between two of them, a channel is taken, written and purged."""
    async with SqlStore(url) as store:
        await store.acquire_channel("room")
        await store.commit("room", written([state(), *(received(n) for n in range(1, 5))]))
        events = Past(url).events(past_of(url), page=2)
        assert next(events).sequence == 1
        await store.commit("room", written([received(5)]))
        await store.release_channel("room")
        async with SqlStore(url) as other:
            await asyncio.wait_for(other.acquire_channel("room"), 5)
            await other.purge_channel("room")
        assert [event.sequence for event in events] == [2]


async def test_a_file_that_nobody_has_open_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "alice.db"
    async with SqlStore(f"sqlite:///{path}") as store:
        await store.commit("room", written([state(), received(1)]))
    contents = path.read_bytes()
    past = Past(f"sqlite:///{path}")
    assert len(list(past.events(*past.channels()))) == 1
    assert os.listdir(tmp_path) == ["alice.db"]
    assert path.read_bytes() == contents


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        Past(f"sqlite:///{tmp_path}/no.db").channels()
    assert list(tmp_path.iterdir()) == []


def test_a_password_is_not_in_the_name() -> None:
    past = Past("postgresql+psycopg://alice:geheim@127.0.0.1:1/none")
    assert past.name == "postgresql+psycopg://alice:***@127.0.0.1:1/none"
    with pytest.raises(StoreUnavailableError) as refused:
        past.channels()
    assert "geheim" not in str(refused.value)
