"""Two runs are told apart only where their ranges do not meet."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import comparing
from benchmarks.comparing import UNKNOWN, WITHIN, Pair
from benchmarks.figures import Better, Figure, Table, figure, to_json


def run_of(*figures: Figure, cpu: str = "one") -> dict[str, Any]:
    return {
        "commit": {"id": "0123456789abcdef", "changed": True},
        "time": "2026-01-01T00:00:00+00:00",
        "versions": {"python": "3.11.1"},
        "machine": {"cpu": cpu},
        "load": {"before": [0.5, 1.0, 2.0], "after": []},
        "benchmarks": {"machine": {"tables": [to_json(Table("t", figures))], "lines": []}},
    }


def pair(first: list[float], second: list[float], better: Better = "more") -> Pair:
    return Pair(
        "machine",
        "t",
        figure("a", "s", first, better=better),
        figure("a", "s", second, better=better),
    )


@pytest.mark.parametrize(
    ("first", "second", "better", "verdict"),
    [
        ([1, 2, 3], [3, 4, 5], "more", WITHIN),
        ([1, 2, 3], [3.1, 4, 5], "more", "better"),
        ([1, 2, 3], [3.1, 4, 5], "less", "worse"),
        ([3.1, 4, 5], [1, 2, 3], "more", "worse"),
        ([3.1, 4, 5], [1, 2, 3], "less", "better"),
        ([1, 2, 3], [3.1, 4, 5], "neither", "more"),
        ([1, 2, 3], [9], "more", UNKNOWN),
    ],
)
def test_the_verdict_depends_on_the_ranges(
    first: list[float], second: list[float], better: Better, verdict: str
) -> None:
    assert pair(first, second, better).verdict == verdict


def test_ratios_are_compared_where_both_have_the_same_peer() -> None:
    slow = figure("a", "s", [10, 11], peer="floor", theirs=[100, 110])
    fast = figure("a", "s", [20, 22], peer="floor", theirs=[200, 220])
    assert Pair("machine", "t", slow, fast).verdict == WITHIN
    assert Pair("machine", "t", slow, fast).change == pytest.approx(1)
    other = figure("a", "s", [20, 22], peer="another", theirs=[200, 220])
    assert Pair("machine", "t", slow, other).verdict == "better"
    assert Pair("machine", "t", slow, other).change == pytest.approx(2)


def test_only_what_both_runs_have_is_compared() -> None:
    first = run_of(figure("a", "s", [1]), figure("b", "s", [1]))
    second = run_of(figure("b", "s", [3]), figure("b", "MB", [1]))
    (found,) = comparing.pairs(first, second)
    assert (found.first.name, found.change) == ("b", 3)
    assert comparing.only_in_one(first, second) == 2
    (table,) = comparing.rendered([found])
    assert (table.title, table.row_count) == ("machine: t", 1)


def test_what_else_differs_is_said() -> None:
    lines = list(comparing.differences(run_of(), run_of(cpu="two")))
    assert lines == ["cpu: one and two", "load of A: 0.5 to ", "load of B: 0.5 to "]
    assert comparing.described(run_of()) == "0123456789ab with changes, 2026-01-01T00:00:00+00:00"
