"""The report of small real results: complete, self-contained, escaped, the same bytes each time."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.manifest import Manifest
from benchmarks.laboratory.measures import Measures, measures_by_arrow
from benchmarks.laboratory.report import page, replay_command, write_report
from benchmarks.laboratory.trial import run_trial
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import SegmentationConfig
from tests.support.laboratory_rows import Place, cell_of, measures_of, write_rows

HOSTILE = "<script>alert(1)</script> $title & \"'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """As far as a report looks at it."""

    name: str = "small"
    title: str = "A small grid"
    description: str = "Parity against loss."
    cells: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """As far as a report looks at it."""

    form: str = "2"
    cell: str = "loss 0.1"
    statement: str = "delivered"
    expected: float = 0.99
    measured: float = 0.9912
    low: float = 0.985
    high: float = 0.995
    adjusted: float = 0.4
    passed: bool = True


def run(**changes: Any) -> Manifest:
    """Return a manifest."""
    known = Manifest(
        versions={"python": "3.11.7", "java": ""},
        seed=7,
        channels=3,
        engine="process",
        digest="d1" * 16,
        started="2026-11-21T20:00:00Z",
        seconds=61.5,
    )
    return replace(known, **changes)


def lossy(loss: float, parity: float) -> Cell:
    segmentation = SegmentationConfig(
        segment_size_bytes=256, enable_reed_solomon=parity > 0, parity_rate=parity or 0.125
    )
    return cell_of(
        f"loss {loss} parity {parity}",
        {"faults.loss": loss, "segmentation.parity_rate": parity},
        faults=LinkFaults(delay_ms=20, loss=loss),
        segmentation=segmentation,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Grid, dict[str, Measures]]:
    """Give a grid of four cells, and the measures of three real channels of each."""
    folder = tmp_path_factory.mktemp("results")
    grid = Grid(cells=tuple(lossy(loss, parity) for loss in (0.05, 0.3) for parity in (0.0, 0.5)))
    for cell in grid.cells:
        write_rows(folder, [run_trial(cell, 1, channel) for channel in range(3)])
    return grid, measures_by_arrow(folder, grid.cells)


@pytest.fixture(scope="module")
def text(played: tuple[Grid, dict[str, Measures]]) -> str:
    """Give the page of these, with two checks."""
    grid, measures = played
    checks = [Check(), Check(form="5", cell="other", passed=False, adjusted=0.0001)]
    return page(Path("out"), run(), grid, measures, checks)


def plain(text: str) -> str:
    """Return what a reader sees of HTML."""
    return html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("\N{NO-BREAK SPACE}", " ")


def section(text: str, name: str) -> str:
    found = re.search(rf'<section id="{name}">.*?</section>', text, re.DOTALL)
    assert found is not None, f"no {name}"
    return found[0]


def test_files_are_written(played: tuple[Grid, dict[str, Measures]], tmp_path: Path) -> None:
    grid, measures = played
    paths = write_report(tmp_path, run(), grid, measures, [])
    assert paths == [tmp_path / "report.html", tmp_path / "summary.csv"]
    assert sorted(tmp_path.iterdir()) == sorted(paths), "nothing else is left behind"
    rows = list(csv.DictReader(io.StringIO(paths[1].read_text())))
    assert [row["name"] for row in rows] == [cell.name for cell in grid.cells]
    assert {row["channels"] for row in rows} == {"3"}


def test_the_same_results_give_the_same_bytes(
    played: tuple[Grid, dict[str, Measures]], tmp_path: Path
) -> None:
    first, second = (
        [path.read_bytes() for path in write_report(tmp_path, run(), *played, [])] for _ in range(2)
    )
    assert first == second


def test_the_parts_come_in_order(text: str) -> None:
    names = ["checks", "answers", "figures", "cells", "problems", "limits"]
    assert re.findall(r'<section id="(\w+)"', text) == names
    assert re.findall(r'<a href="#(\w+)">', text) == names
    head = plain(text[: text.index("<section")])
    for part in (
        "A small grid",
        "Parity against loss.",
        "seed  7",
        "python 3.11.7",
        "d1d1",
        "61.5 s",
    ):
        assert part in head
    assert "java" not in head


def test_every_cell_is_in_the_table(played: tuple[Grid, dict[str, Measures]], text: str) -> None:
    grid, _ = played
    table = section(text, "cells")
    assert table.count("<tr") == 1 + len(grid.cells)
    for cell in grid.cells:
        assert f">{cell.name}</td>" in table
        assert cell.key in table


def test_figures_are_in_the_page_and_nothing_is_fetched(text: str) -> None:
    assert text.count("<svg role=") == text.count("<figure id=") > 8
    assert "n = 3 channels a cell" in text
    assert not re.findall(r"(?:https?:)?//\w", text)
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    assert "default-src 'none'" in text
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert len(ids) == len(set(ids))


def test_checks_come_first_the_failed_above(text: str) -> None:
    found = section(text, "checks")
    assert "1 of 2 checks failed" in found
    assert found.index("FAILED") < found.index(">passed<")
    for part in ("delivered", "0.99", "0.9912", "0.985 to 0.995", "0.0001"):
        assert f">{part}<" in found
    fine = section(page(Path("out"), run(), Grid(cells=()), {}, [Check()]), "checks")
    assert "All 1 checks passed" in fine
    assert "FAILED" not in fine


@pytest.mark.parametrize(
    ("warm", "said", "not_said"),
    [
        ((False, False), "Channels are new at their first", "not new"),
        ((True, True), "Channels are not new at their first", "are new"),
        ((False, True), "Channels of [b] are not new at their first", "Channels are"),
        ((False, True), "Channels of the other cells are new at their first", "Channels are"),
    ],
)
def test_what_is_said_of_the_warm_up_is_so(
    warm: tuple[bool, bool], said: str, not_said: str
) -> None:
    cells = tuple(
        cell_of(name, warm_up=is_warm, faults=LinkFaults(loss=0.1 * place))
        for place, (name, is_warm) in enumerate(zip("ab", warm, strict=True))
    )
    measures = {cell.key: measures_of(cell) for cell in cells}
    found = plain(section(page(Path("o"), run(), Grid(cells=cells), measures, []), "limits"))
    assert said in found
    assert not_said not in found


def test_problems_name_the_command_that_plays_the_channel(tmp_path: Path) -> None:
    cells = (Place("good", (("loss", 0.1),)), Place("bad", (("loss", 0.2),)), Place("absent"))
    measures = {"good": measures_of("good", channels=5), "bad": measures_of("bad", channels=5)}
    measures["bad"].problems = 2
    measures["bad"].first_problem = (41, "ValueError: <oops>")
    out = tmp_path / "with space"
    text = page(out, run(), Grid(cells=cells), measures, [])
    found = plain(section(text, "problems"))
    assert "ValueError: <oops>" in found
    assert f"reliable-channel simulate replay --out '{out}' --scenario bad --channel 41" in found
    assert replay_command(out, cells[0], 0) in found
    assert "Without results: absent." in found
    assert "and 2 with a problem" in plain(text)


def test_real_traffic_has_no_forms_no_checks_and_nothing_to_replay() -> None:
    cells = tuple(Place(name, (("channel", name),)) for name in ("cranes", "quays"))
    measures = {name: measures_of(name, channels=1, delivered=990) for name in ("cranes", "quays")}
    text = page(
        Path("out"), run(grid={"window_sec": 3_600}, digest=""), Grid(cells=cells), measures, []
    )
    assert "What was delivered" in text
    assert 'id="checks"' not in text
    assert "cranes" in section(text, "answers")
    assert "closed form" not in text
    assert "simulate replay" not in text
    assert "Not modelled" not in text
    assert "played" not in text


def test_texts_of_people_are_escaped() -> None:
    cells = (
        Place(HOSTILE, ((HOSTILE, HOSTILE), ("loss", 0.1))),
        Place("b", ((HOSTILE, HOSTILE), ("loss", 0.2))),
        Place("c", ((HOSTILE, "other"), ("loss", 0.1))),
        Place("d", ((HOSTILE, "other"), ("loss", 0.2))),
    )
    measures = {cell.key: measures_of(cell.key, channels=4, delivered=990) for cell in cells}
    measures[HOSTILE].problems, measures[HOSTILE].first_problem = 1, (0, HOSTILE)
    grid = Grid(name=HOSTILE, title=HOSTILE, description=HOSTILE, cells=cells)
    check = Check(form=HOSTILE, cell=HOSTILE, statement=HOSTILE)
    manifest = run(engine=HOSTILE, master=HOSTILE, versions={HOSTILE: HOSTILE})
    text = page(Path(HOSTILE), manifest, grid, measures, [check])
    assert text.count("<script>") == text.count("</script>") == 1, "the page's own"
    assert "alert(1)</" not in text
    assert text.count("$title") >= 5, "what looks like a place of the page stays as it is"


def test_an_empty_grid_has_a_report(tmp_path: Path) -> None:
    assert len(write_report(tmp_path, run(), Grid(cells=()), {}, [])) == 2
