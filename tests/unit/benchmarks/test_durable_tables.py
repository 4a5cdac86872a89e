"""The tables have a row for each load, each log and each part of an opening."""

from __future__ import annotations

import pytest

from benchmarks import durable_speed, durable_tables, opening_speed
from benchmarks.figures import Table


def test_the_durable_tables_have_every_load_and_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(durable_tables.SERVER, raising=False)
    load = durable_speed.Load(2, 4)
    monkeypatch.setattr(durable_speed, "LOADS", (load,))
    monkeypatch.setattr(durable_speed, "ROUNDS", 1)
    monkeypatch.setattr(opening_speed, "SIZES", (3, 6))
    monkeypatch.setattr(opening_speed, "ROUNDS", 1)
    monkeypatch.setattr(opening_speed, "LOAD", load)
    tables = [part for part in durable_tables.tables() if isinstance(part, Table)]
    sends, rows, openings, growth = tables
    assert [item.peer for item in sends.figures] == ["bare"] * 4 + [""]
    assert {item.name: item.ours.median for item in rows.figures}["BodyRecord"] == 2
    assert [item.name.split(",")[0] for item in openings.figures] == (
        ["3 log entries"] * 8 + ["6 log entries"] * 8
    )
    assert len(growth.figures) == 4
