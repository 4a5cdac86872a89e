"""What is timed does the same as its peer."""

from __future__ import annotations

from itertools import chain

import pytest

from benchmarks import micro_speed
from benchmarks.figures import Table


def test_every_case_runs_on_both_sides() -> None:
    cases = list(chain(micro_speed.hashing(), micro_speed.filters(), micro_speed.codecs()))
    assert len({case.name for case in cases}) == len(cases)
    for case in cases:
        case.ours()
        case.theirs()
    by_name = {case.name: case for case in cases}
    encoding = by_name["SDS message with a filter: encode"]
    assert encoding.ours() == encoding.theirs()


def test_the_tables_have_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_speed, "ROUNDS", 1)
    monkeypatch.setattr(micro_speed, "LEAST_SECONDS", 0)
    tables = [part for part in micro_speed.tables() if isinstance(part, Table)]
    assert [len(table.figures) for table in tables] == [5, 6, 6]
    assert all(item.ratio and item.better == "less" for table in tables for item in table.figures)


def test_what_disagrees_with_the_peer_is_not_timed() -> None:
    with pytest.raises(RuntimeError, match="the hashes do not agree"):
        micro_speed.check(False, "the hashes")
