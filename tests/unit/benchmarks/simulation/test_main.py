"""The command plays what a failed check prints, and says what it found."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from benchmarks.simulation import __main__ as command_line
from benchmarks.simulation.invariants import InvariantError
from benchmarks.simulation.scenario import Scenario
from benchmarks.simulation.workload import play
from messaging_adapter.faults import LinkFaults


def test_failed_check_says_seed_problems_and_a_command_that_plays_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenario = Scenario(seed=42, messages=3, settle_ms=1_000, faults=LinkFaults(loss=1.0))
    simulation = play(scenario)
    with pytest.raises(InvariantError) as failure:
        simulation.check()
    assert set(failure.value.problems) == {"delivery", "requests", "quiet"}
    text = str(failure.value)
    assert text.startswith("seed 42; ")
    assert " lacks " in text
    command = text.splitlines()[0].partition(": ")[2]
    assert command == scenario.command
    assert shlex.split(command)[:5] == ["python", "-m", "benchmarks.simulation", "--seed", "42"]
    assert command_line.main(shlex.split(command)[3:]) == 1
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["{", '{"nonsense": 1}', '{"faults": {"loss": 2}}', '{"sds": {"loss": 1}}']
)
def test_unusable_scenario_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command_line.main(["--scenario", text])
    assert end.value.code == 2
    assert "--scenario:" in capsys.readouterr().err


def test_command_plays_a_scenario_and_writes_its_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace"
    arguments = ["--seed", "1", "--scenario", '{"messages": 5}', "--trace", str(path)]
    assert command_line.main(arguments) == 0
    lines: list[bytes] = []
    play(Scenario(seed=1, messages=5), trace=lines)
    assert path.read_bytes().splitlines() == lines
    assert "p0: " in capsys.readouterr().out
