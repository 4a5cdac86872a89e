"""The event log of a database: what is counted, what goes and when, what a page holds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, create_engine

from persistence import migrations
from persistence.event_log import EventLog
from persistence.retention import SWEEP_PAGES, EventRetention, EventTotals, event_size
from persistence.statements import SELECT_TOTALS, RecordStatements, add_channel
from persistence.testing import deleted, sample_event, written
from reliable_channel.errors import EventsExpiredError
from reliable_channel.records import Changes, EventRecord
from reliable_channel.types import SECOND

HOUR_AGO_NS = time.time_ns() - 3_600 * SECOND


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Connection]:
    """Return a connection to a database with one channel, in a transaction."""
    engine = create_engine(f"sqlite:///{tmp_path}/a.db")
    with engine.begin() as connection:
        migrations.upgrade(connection)
        connection.exec_driver_sql(add_channel(engine.dialect), ("room",))
        yield connection
    engine.dispose()


def log_of(writer: Connection, **bounds: int) -> EventLog:
    statements = RecordStatements(EventRecord, writer.dialect)
    return EventLog(writer.dialect, statements, EventRetention(**bounds))


def old_events(count: int) -> list[EventRecord]:
    return [replace(sample_event(place), time_ns=HOUR_AGO_NS) for place in range(1, count + 1)]


def write(log: EventLog, writer: Connection, changes: Changes) -> EventTotals | None:
    """Write events as a transaction does, and return what was counted."""
    statements = RecordStatements(EventRecord, writer.dialect)
    with closing(writer.connection.cursor()) as cursor:
        for (_, key), record in changes.items():
            if record is None:
                cursor.execute(statements.delete, statements.key("room", key))
            else:
                cursor.execute(statements.upsert, statements.row("room", record))
        return log.count_appended(cursor, "room", changes)


def kept_totals(writer: Connection) -> EventTotals:
    return EventTotals(*writer.execute(SELECT_TOTALS, {"channel": "room"}).one())


def test_appended_events_are_counted_without_reading_those_before(writer: Connection) -> None:
    log = log_of(writer)
    size = event_size(sample_event(1))
    assert write(log, writer, written([sample_event(1), sample_event(2)])) == EventTotals(
        2, 2 * size
    )
    assert write(log, writer, written([sample_event(3)])) == EventTotals(3, 3 * size)
    assert kept_totals(writer) == EventTotals(3, 3 * size)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        (written([sample_event(2)]), 3),
        (deleted([sample_event(2)]), 2),
        (written([sample_event(4)]) | deleted([sample_event(2)]), 3),
        (written([sample_event(3), sample_event(4)]), 4),
        (written([sample_event(4)]) | deleted([sample_event(5)]), 4),
    ],
    ids=["replaced", "deleted", "one of each", "replaced and appended", "one that never was"],
)
def test_what_was_not_only_appended_is_counted_anew(
    writer: Connection, changes: Changes, count: int
) -> None:
    log = log_of(writer)
    write(log, writer, written([sample_event(place) for place in (1, 2, 3)]))
    totals = write(log, writer, changes)
    assert totals is None
    assert not log.trim(writer, "room", totals)
    assert kept_totals(writer) == EventTotals(count, count * event_size(sample_event(1)))


def test_without_events_nothing_is_counted(writer: Connection) -> None:
    assert write(log_of(writer), writer, {}) is None


def test_what_is_beyond_the_bounds_goes_with_the_transaction(writer: Connection) -> None:
    log = log_of(writer, max_events=2)
    totals = write(log, writer, written([sample_event(place) for place in range(1, 6)]))
    assert not log.trim(writer, "room", totals)
    assert kept_totals(writer) == EventTotals(2, 2 * event_size(sample_event(1)), 3)
    assert [event.sequence for event in log.read(writer, "room", 3, 10)] == [4, 5]


def test_a_page_is_what_follows_in_order(writer: Connection) -> None:
    log = log_of(writer)
    events = [sample_event(place) for place in range(1, 6)]
    write(log, writer, written(reversed(events)))
    assert log.read(writer, "room", 1, 3) == events[1:4]
    assert log.read(writer, "room", 5, 3) == []
    assert log.read(writer, "hall", 0, 3) == []


def test_a_page_is_refused_where_something_before_it_was_removed(writer: Connection) -> None:
    log = log_of(writer, max_events=1)
    log.trim(writer, "room", write(log, writer, written(old_events(3))))
    with pytest.raises(EventsExpiredError) as expired:
        log.read(writer, "room", 1, 10)
    assert (expired.value.after, expired.value.oldest) == (1, 3)


def test_one_transaction_removes_so_many_and_says_that_more_have_to_go(writer: Connection) -> None:
    most = sum(SWEEP_PAGES)
    log = log_of(writer, max_event_age_sec=60)
    totals = write(log, writer, written(old_events(2 * most)))
    assert log.trim(writer, "room", totals)
    assert kept_totals(writer).removed_through == most
    assert log.is_due("room")
    assert not log.sweep(writer, "room")
    assert kept_totals(writer).count == 1, "the newest stays"


def test_the_age_is_looked_at_when_the_oldest_may_be_too_old(writer: Connection) -> None:
    log = log_of(writer, max_event_age_sec=60)
    assert log.is_due("room"), "nobody has looked yet"
    new = replace(sample_event(1), time_ns=time.time_ns())
    assert not log.trim(writer, "room", write(log, writer, written([new])))
    assert not log.is_due("room")
    log.forget("room")
    assert log.is_due("room")
    assert not log_of(writer).is_due("room"), "without such a bound"


def test_a_channel_without_rows_has_nothing_to_sweep(writer: Connection) -> None:
    assert not log_of(writer, max_events=1).sweep(writer, "hall")
