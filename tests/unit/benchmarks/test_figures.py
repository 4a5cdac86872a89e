"""A figure compares round by round, and outlives JSON."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from benchmarks import figures
from benchmarks.figures import Spread, Table, figure, rate_figure


def shown(table: Table) -> list[list[str]]:
    console = Console(width=160, record=True, file=StringIO())
    console.print(figures.rendered(table))
    lines = console.export_text().splitlines()
    return [
        [cell.strip() for cell in line.strip().strip("│").split("│")]
        for line in lines
        if "│" in line
    ]


def test_the_ratio_is_taken_round_by_round_and_not_of_the_medians() -> None:
    found = figure("send", "a second", [10, 20, 90], peer="floor", theirs=[10, 10, 100])
    assert found.ours == Spread(20, 10, 90, 3)
    assert found.theirs == Spread(10, 10, 100, 3)
    assert found.ratio is not None
    assert (found.ratio.median, found.ratio.low, found.ratio.high) == (1.0, 0.9, 2.0)


def test_a_peer_that_took_no_part_is_named_without_figures() -> None:
    found = figure("encode", "MB", [1], peer="zfec")
    assert (found.peer, found.theirs, found.ratio) == ("zfec", None, None)


def test_a_rate_is_an_amount_by_the_seconds_of_each_round() -> None:
    found = rate_figure("kept", "a second", 100, [1, 4], peer="bare", peer_seconds=[0.5, 1])
    assert found.ours == Spread(62.5, 25, 100, 2)
    assert found.ratio is not None
    assert (found.ratio.low, found.ratio.high) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (123_456.7, "123,457"),
        (99.96, "100.0"),
        (3, "3"),
        (1.234, "1.23"),
        (0.01234, "0.012"),
        (0, "0"),
    ],
)
def test_numbers_have_about_three_digits(value: float, text: str) -> None:
    assert figures.number(value) == text


def test_one_round_has_no_spread() -> None:
    assert str(Spread.of([2.5])) == "2.50"
    assert str(Spread.of([2.5, 3.5])) == "3 (2.50–3.50)"


def test_a_table_leaves_out_what_all_rows_leave_empty() -> None:
    alone = figure("a", "s", [1.5], better="neither")
    assert shown(Table("t", (alone,))) == [["a", "s", "1.50"]]
    beside = figure("b", "s", [2.0, 4.0], better="less", peer="x", theirs=[1.0, 4.0])
    rows = shown(Table("t", (alone, beside)))
    assert rows[1] == ["b", "s", "3 (2–4)", "x", "2.50 (1–4)", "1.50 (1–2)", "less"]


def test_markdown_has_a_line_for_each_figure() -> None:
    lines = list(figures.markdown(Table("t", (figure("a", "s", [1.5]), figure("b", "s", [2])))))
    assert lines[0].startswith("| t | unit |")
    assert lines[2] == "| a | s | 1.50 |  |  |  |"
    assert len(lines) == 4


def test_a_table_is_the_same_after_json() -> None:
    table = Table(
        "t",
        (figure("a", "s", [1, 2], peer="x", theirs=[2, 3]), figure("b", "MB", [1], better="less")),
        ("a note",),
    )
    assert figures.from_json(json.loads(json.dumps(figures.to_json(table)))) == table


@pytest.mark.parametrize("broken", [{}, {"title": "t", "figures": [{"name": "a"}], "notes": []}])
def test_what_is_no_table_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError)):
        figures.from_json(broken)
