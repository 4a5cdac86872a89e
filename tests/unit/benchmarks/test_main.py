"""The command names what it knows."""

from __future__ import annotations

import pytest

from benchmarks import __main__ as command
from benchmarks import sync_cost


def test_the_table_has_a_row_for_each_size_and_the_floor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "SIZES", (5, 10))
    monkeypatch.setattr(command, "FLOOR", 5)
    assert command.main(["machine"]) == 0
    shown = capsys.readouterr().out
    assert "received with delivery" in shown
    assert len([line for line in shown.splitlines() if line.startswith("│")]) == 3


def test_the_sync_table_is_markdown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_cost, "GROUPS", (2,))
    assert command.main(["sync"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(sync_cost.DELAYS_MS)
    assert all(line.startswith("|") for line in lines)


def test_only_the_quick_ones_are_run_when_none_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync_cost, "GROUPS", ())
    monkeypatch.setattr(command, "SIZES", (5,))
    assert command.main([]) == 0
    shown = capsys.readouterr().out
    assert "received with delivery" in shown
    assert "participants" not in shown


def test_an_unknown_name_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["machine", "nothing"]) == 2
    assert capsys.readouterr().err == "no benchmark 'nothing'; there is: machine, sync, parity\n"
