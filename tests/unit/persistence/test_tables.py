"""The schema against the record types."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest
from sqlalchemy import BigInteger, Boolean, Double, LargeBinary, Text, create_engine, select

from persistence.tables import TABLES, TextTuple, channels, metadata, registry
from reliable_channel.records import RECORD_TYPES, LedgerRecord, Record

COLUMN_TYPES: dict[Any, type[Any]] = {
    bool: Boolean,
    bytes: LargeBinary,
    float: Double,
    int: BigInteger,
    str: Text,
    tuple[str, ...]: TextTuple,
}

each_type = pytest.mark.parametrize("kind", RECORD_TYPES, ids=lambda kind: kind.__name__)


def test_every_record_type_has_a_table() -> None:
    assert tuple(TABLES) == RECORD_TYPES
    assert {*metadata.tables.values()} == {*TABLES.values(), channels, registry}


@each_type
def test_columns_are_the_fields(kind: type[Record]) -> None:
    owner = [] if kind is LedgerRecord else ["channel_id"]
    assert TABLES[kind].columns.keys() == owner + [field.name for field in fields(kind)]


@each_type
def test_columns_have_the_types_of_the_fields(kind: type[Record]) -> None:
    for name, hint in get_type_hints(kind).items():
        if name == "key_fields":
            continue
        options = [option for option in get_args(hint) if option is not NoneType]
        is_optional = NoneType in get_args(hint)
        column = TABLES[kind].c[name]
        assert type(column.type) is COLUMN_TYPES[options[0] if is_optional else hint], name
        assert column.nullable is is_optional, name


@each_type
def test_the_primary_key_is_the_channel_and_the_key(kind: type[Record]) -> None:
    owner = [] if kind is LedgerRecord else ["channel_id"]
    assert TABLES[kind].primary_key.columns.keys() == [*owner, *kind.key_fields]


@each_type
def test_rows_go_with_their_channel(kind: type[Record]) -> None:
    targets = [(key.column, key.ondelete) for key in TABLES[kind].foreign_keys]
    assert targets == ([] if kind is LedgerRecord else [(channels.c.channel_id, "CASCADE")])


@pytest.mark.parametrize("value", [(), ("",), ("a", 'b"\n', "\u00fc", "\ud800"), None])
def test_tuples_of_text_come_back(value: tuple[str, ...] | None) -> None:
    engine = create_engine("sqlite://")
    kind = TextTuple()
    written = kind.process_bind_param(value, engine.dialect)
    assert kind.process_result_value(written, engine.dialect) == value
    with engine.connect() as connection:
        select(channels).compile(connection)
    engine.dispose()
