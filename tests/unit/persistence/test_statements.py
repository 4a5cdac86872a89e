"""Records to rows and back, through a real database."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, StaticPool, create_engine, func, select
from sqlalchemy.dialects import postgresql

from persistence.retention import event_size
from persistence.statements import (
    RECOUNT_EVENTS,
    SELECT_EVENT_SIZES,
    RecordStatements,
    add_channel,
    compile_text,
)
from persistence.tables import TABLES, channels, metadata
from persistence.testing import exact, sample_event, sample_records
from reliable_channel.records import RECORD_TYPES, EventRecord, Record, RequestRecord, key_of

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))  # surrogates are no text

VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    bytes: st.binary(),
    bytes | None: st.none() | st.binary(),
    float: st.floats(allow_nan=False),
    int: INT64,
    str: TEXT,
    str | None: st.none() | TEXT,
    tuple[str, ...]: st.lists(TEXT, max_size=5).map(tuple),
}

each_type = pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.__name__)


def records(kind: type[Record]) -> st.SearchStrategy[Record]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: VALUES[hints[field.name]] for field in fields(kind)})


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://", poolclass=StaticPool)
    with engine.connect() as connection:
        metadata.create_all(connection)
        connection.exec_driver_sql(add_channel(connection.dialect), ("room",))
        connection.commit()
        yield connection
    engine.dispose()


def statements_of(kind: type[Record], connection: Connection) -> RecordStatements:
    return RecordStatements(kind, connection.dialect)


def write(connection: Connection, record: Record) -> None:
    statements = statements_of(type(record), connection)
    connection.exec_driver_sql(statements.upsert, statements.row("room", record))


def read(connection: Connection, kind: type[Record]) -> list[Record]:
    columns = [column for column in TABLES[kind].columns if column.name != "channel_id"]
    build = statements_of(kind, connection).record
    return [build(row) for row in connection.execute(select(*columns))]


@each_type
@given(data=st.data())
@settings(max_examples=50)
def test_rows_give_back_the_record(
    connection: Connection, kind: type[Record], data: st.DataObject
) -> None:
    record = data.draw(records(kind))
    write(connection, record)
    found = read(connection, kind)
    connection.rollback()
    assert exact(found) == exact([record])


@each_type
def test_deletion_takes_the_row_of_the_key(connection: Connection, kind: type[Record]) -> None:
    gone, *others = sample_records(kind)
    if not kind.key_fields:
        others = []
    for record in (gone, *others):
        write(connection, record)
    statements = statements_of(kind, connection)
    connection.exec_driver_sql(statements.delete, statements.key("room", key_of(gone)))
    found = read(connection, kind)
    connection.rollback()
    assert exact(found) == exact(others)


def test_the_database_measures_events_as_we_do(connection: Connection) -> None:
    variants = [sample_event(1), sample_event(2, payload=None), sample_event(3, payload=b"")]
    events = [*variants, replace(sample_event(4), detail='{"a":"b"}', payload=bytes(9_999))]
    for event in events:
        write(connection, event)
    page = {"channel": "room", "after": 0, "limit": 9}
    sizes = [tuple(row) for row in connection.execute(SELECT_EVENT_SIZES, page)]
    totals = connection.execute(RECOUNT_EVENTS, {"channel": "room"}).one()
    newest = connection.scalar(select(channels.c.newest_event))
    connection.rollback()
    assert sizes == [(event.sequence, event_size(event), event.time_ns) for event in events]
    assert tuple(totals) == (4, sum(map(event_size, events)), 0)
    assert newest == 4


def test_postgresql_is_given_text_that_it_takes() -> None:
    statements = RecordStatements(RequestRecord, postgresql.dialect())
    request = replace(sample_records(RequestRecord)[1], error="a\0b", leader=None)
    row = statements.row("room", request)
    assert "a\ufffdb" in row
    assert None in row
    assert not [value for value in row if isinstance(value, str) and "\0" in value]


def test_compiled_text_takes_its_parameters_in_order(connection: Connection) -> None:
    count = select(func.count()).select_from(TABLES[EventRecord])
    assert "count(" in compile_text(count, connection.dialect)
    assert add_channel(connection.dialect).count("?") == 1
