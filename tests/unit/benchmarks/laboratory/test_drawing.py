"""Charts: the same bytes for the same numbers, colours by name, texts as they are."""

from __future__ import annotations

import re
from html import unescape
from xml.etree import ElementTree

import pytest

from benchmarks.laboratory.drawing import (
    SERIES,
    Line,
    Point,
    Scale,
    _columns,
    bands_chart,
    curves_chart,
    dots_chart,
    heat_chart,
    lines_chart,
)

X = Scale(title="loss (%)", is_share=True, ticks=(0.1, 0.2))
Y = Scale(title="lost (%)", is_share=True, is_log=True)
POINTS = (Point(0.1, 0.01, 0.0, 0.02), Point(0.2, 0.03, 0.02, 0.04))
HOSTILE = "$x_{1$ <script>&"


def lines(name: str = "a", text: str = "one") -> str:
    return lines_chart(
        name, X, Y, [Line(text, POINTS), Line("two", POINTS, ((0.1, 0.5), (0.2, 0.6)))]
    )


def charts(text: str) -> list[str]:
    steps = [(0.1, 0.2), (1.0, 0.9)]
    return [
        lines(text=text),
        curves_chart("b", Scale(title=text), Y, [(text, steps)]),
        bands_chart("c", X, Scale(title=text), [1, 2], [(text, 0, [0.1, 0.2]), ("b", 5, [0, 0.1])]),
        heat_chart("d", (text, ["1"]), ("rows", [text]), [[0.7]], [[text]]),
        dots_chart("e", X, [(text, POINTS[0]), ("b", POINTS[1])]),
    ]


def test_the_same_numbers_give_the_same_bytes() -> None:
    assert charts("x") == charts("x")


def test_texts_from_files_are_neither_formulas_nor_tags() -> None:
    for svg in charts(HOSTILE):
        assert "<script" not in svg
        assert HOSTILE in unescape(svg)
        ElementTree.fromstring(svg)


def test_names_that_begin_with_an_underscore_are_in_the_legend() -> None:
    assert "_hidden" in lines(text="_hidden")


def test_long_names_are_cut() -> None:
    svg = lines(text="n" * 500)
    assert "n" * 59 + "…" in svg
    assert "n" * 60 not in svg


@pytest.mark.parametrize(
    ("names", "columns"),
    [
        ([f"loss {n} %" for n in (2, 5, 10, 20, 40)], 5),
        (["no parity", "parity 12.5 %", "parity 25 %", "parity 50 %"], 4),
        ([f"loss {n} %, bursts of 0.5 s" for n in (2, 5, 10)], 2),
        ([f"bursts of {n} s" for n in (0.1, 1, 5, 20)], 2),
        (["n" * 500, "m" * 500], 1),
        (["n" * 60, "a", "b"], 1),
        (["", ""], 2),
        ([], 1),
    ],
)
def test_a_legend_has_the_columns_that_fit(names: list[str], columns: int) -> None:
    assert _columns(names) == columns


def test_nothing_is_fetched_and_nothing_says_when_or_by_what() -> None:
    for svg in charts("x"):
        assert "http" not in svg
        assert "matplotlib" not in svg.lower()
        assert "DejaVu" not in svg, "the page has a font of its own"
        assert "<style" not in svg, "it would hold of all the page"


def test_colours_are_variables_with_a_value() -> None:
    svg = lines()
    assert f"var(--series-0, {SERIES[0]})" in svg
    assert "var(--text, #" in svg
    assert set(re.findall(r"(?<!, )#[0-9a-f]{6}", svg)) <= {"#000000", "#ffffff"}


def test_charts_of_one_page_share_no_ids_but_of_equal_things() -> None:
    ids = [set(re.findall(r'id="([^"]*)"', lines(name))) for name in ("a", "b")]
    assert ids[0]
    assert not ids[0] & ids[1]
    used = set(re.findall(r'href="#([^"]*)"', lines("a"))) | set(
        re.findall(r"url\(#([^)]*)\)", lines("a"))
    )
    assert used <= ids[0]


def test_small_numbers_of_an_axis_keep_their_digits() -> None:
    points = (Point(0.1, 0.00001, 0.00001, 0.00001), Point(0.2, 0.01, 0.01, 0.01))
    assert ">0.001<" in lines_chart("a", X, Y, [Line("", points)])


def test_large_numbers_of_an_axis_are_written_out() -> None:
    x = Scale(title="length (ms)", is_log=True, ticks=(100, 1_000, 20_000))
    svg = lines_chart("a", x, Y, [Line("", tuple(Point(n, 1, 1, 1) for n in x.ticks))])
    for text in ("100", "1,000", "20,000"):
        assert f">{text}<" in svg


def test_what_is_only_a_bound_is_no_part_of_the_line() -> None:
    bound = Point(0.1, 0.5, 0, 0.5, is_bound=True)
    drawn, alone = (
        lines_chart("a", X, Y, [Line("", (first, POINTS[1]))]) for first in (POINTS[0], bound)
    )
    line = re.compile(r'<path d="M [\d. ]+\sL [^"]*"[^>]*series-0, #\w+\); stroke-width: 1.5')
    assert line.search(drawn)
    assert not line.search(alone)
    ElementTree.fromstring(alone)


@pytest.mark.parametrize("points", [(), (Point(0.1, 0.5, 0, 0.5, is_bound=True),)])
def test_empty_lines_are_drawn(points: tuple[Point, ...]) -> None:
    ElementTree.fromstring(lines_chart("a", X, Y, [Line("none", points)]))


def test_values_without_a_place_leave_it_blank() -> None:
    svg = heat_chart("a", ("x", ["1", "2"]), ("y", ["1"]), [[0.2, None]], [["twenty", "hidden"]])
    assert "twenty" in svg
    assert "hidden" not in svg
