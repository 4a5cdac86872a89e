"""The command runs what is named, keeps the figures, and compares two runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.figures import Part, Table, figure
from benchmarks.registry import BENCHMARKS, Benchmark


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    def tables() -> Iterator[Part]:
        yield Table("Some figures", (figure("a figure", "s", [1.0, 2.0]),), ("a note",))

    def lines() -> Iterator[Part]:
        yield "| a | b |"
        yield "|---|---|"

    def broken() -> Iterator[Part]:
        yield from tables()
        raise RuntimeError

    known = {
        "quick": Benchmark(tables, "some figures", is_quick=True),
        "long": Benchmark(lines, "some lines"),
        "broken": Benchmark(broken, "fails"),
    }
    monkeypatch.setattr(command, "BENCHMARKS", known)


def test_only_the_quick_ones_are_run_when_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([]) == 0
    shown = capsys.readouterr().out
    assert "Some figures" in shown
    assert "a note" in shown
    assert "| b |" not in shown


def test_lines_come_out_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["long"]) == 0
    assert capsys.readouterr().out == "| a | b |\n|---|---|\n"


def test_all_figures_are_written_with_where_they_come_from(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    assert command.main(["quick", "long", "--json", str(target)]) == 0
    run = json.loads(target.read_text("utf-8"))
    assert set(run) == {"commit", "time", "versions", "machine", "load", "benchmarks"}
    assert set(run["load"]) == {"before", "after"}
    assert run["benchmarks"]["quick"]["tables"][0]["figures"][0]["ours"]["median"] == 1.5
    assert run["benchmarks"]["long"] == {"tables": [], "lines": ["| a | b |", "|---|---|"]}


def test_a_benchmark_that_fails_takes_none_before_it_along(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    with pytest.raises(RuntimeError):
        command.main(["quick", "broken", "--json", str(target)])
    assert set(json.loads(target.read_text("utf-8"))["benchmarks"]) == {"quick"}


def test_two_runs_are_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        command.main(["quick", "--json", str(tmp_path / name)])
    capsys.readouterr()
    assert command.main(["compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    shown = capsys.readouterr().out
    assert "quick: Some figures" in shown
    assert "within the spread" in shown


def test_what_cannot_be_compared_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text("[]")
    for arguments, text in (
        (["a"], "two files"),
        (["missing", "b"], "missing cannot be read"),
        ([str(other), str(other)], "is not what --json writes"),
    ):
        assert command.main(["compare", *arguments]) == 2
        shown = capsys.readouterr().err
        assert text in shown
        assert shown.count("\n") == 1


def test_an_unknown_name_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["quick", "nothing"]) == 2
    assert capsys.readouterr().err == "no benchmark 'nothing'; there is: quick, long, broken\n"


def test_the_help_lists_every_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "BENCHMARKS", BENCHMARKS)
    with pytest.raises(SystemExit):
        command.main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {name} " in shown for name in BENCHMARKS)
