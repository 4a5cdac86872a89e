"""docs/laboratory.md says what the loss laboratory does, and its example works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from api.cli import run
from benchmarks.laboratory.grids import Grid, grid_names, read_grid
from benchmarks.laboratory.parameters import names, tables
from benchmarks.laboratory.results import SCHEMA
from benchmarks.laboratory.spark_session import MASTER_VARIABLES
from benchmarks.laboratory.trial import run_trial

PAGE = (Path(__file__).parents[2] / "docs" / "laboratory.md").read_text(encoding="utf-8")


@pytest.fixture
def example() -> Grid:
    """The grid of the page."""
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    return read_grid(text.encode(), "example.toml")


def rows(header: str) -> list[list[str]]:
    """The cells of the table with this header."""
    lines = PAGE.split(header + "\n", 1)[1].splitlines()[1:]
    table = []
    for line in lines:
        if not line.startswith("| "):
            break
        table.append([part.strip() for part in line.strip("|").split(" | ")])
    return table


def test_the_example_can_be_read_and_played(example: Grid) -> None:
    assert [cell.name for cell in example.cells] == [
        "plain loss=0.05",
        "plain loss=0.2",
        "store loss=0.05",
        "store loss=0.2",
        "both loss=0.05",
        "both loss=0.2",
        "groups participants=5 repair=on",
        "groups participants=5 repair=off",
        "groups participants=20 repair=on",
        "groups participants=20 repair=off",
        "cut off",
    ]
    for name in re.findall(r"such as `(.*?)` and `(.*?)`; a sweep", PAGE.replace("\n", " "))[0]:
        assert example.cell(name)
    assert {cell.max_channels for cell in example.cells} == {None, 500}
    for cell in (example.cells[0], example.cell("both loss=0.2"), example.cell("cut off")):
        trial = run_trial(cell, 0, 0)
        assert trial.problem == ""
        assert trial.messages == 10


def test_columns_are_those_of_the_rows() -> None:
    found = [row[0].strip("`") for row in rows("| column | meaning |")]
    assert found == SCHEMA.names


def test_grids_are_those_that_are_shipped() -> None:
    found = {row[0].strip("`") for row in rows("| grid | question |")}
    assert found | {"theory"} >= {*grid_names()}
    assert found <= {*grid_names()}


def test_parameters_are_those_that_there_are() -> None:
    known = {*names(), *tables()}
    for row in rows("| parameter | meaning |"):
        before = ""
        for name in re.findall(r"`(.*?)`", row[0]):
            if name.startswith("."):
                assert before + name in known
            elif name.endswith(".…"):
                assert name[:-2] in known
            else:
                assert name in known
                before = name.rpartition(".")[0]


def test_options_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "run", "--help"]) == 0
    shown = re.findall(r"^  (--\w+)", capsys.readouterr().out, re.MULTILINE)
    found = [row[0].strip("`") for row in rows("| option | default | meaning |")]
    assert [*found, "--help"] == shown


def test_the_environment_is_told_in_the_order_in_which_it_counts() -> None:
    places = [PAGE.index(f"`{name}`") for name in MASTER_VARIABLES]
    assert places == sorted(places)
