"""Seeds are played and counted; one that fails is named with the command that plays it again."""

from __future__ import annotations

import shlex

import pytest

from benchmarks.simulation import __main__ as command_line
from benchmarks.simulation.torture import main, replay_command, run


def test_a_good_seed_has_no_problems_and_says_what_happened() -> None:
    played = run(0)
    assert played.problems == {}
    assert played.counts["crashes"] > 0
    assert played.counts["messages"] > played.counts["late"]


def test_a_run_that_raises_is_a_failure_of_its_seed() -> None:
    assert "error" in run(0, broken="no such breakage").problems


def test_replay_command_breaks_what_the_seed_broke(capsys: pytest.CaptureFixture[str]) -> None:
    problems = run(1, broken="forget_sequence").problems
    assert "sequence" in problems
    command = shlex.split(replay_command(1, broken="forget_sequence"))
    assert command_line.main(command[3:]) == 1
    assert f"sequence: {problems['sequence']}" in capsys.readouterr().out


@pytest.mark.timeout(60)
def test_command_plays_seeds_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "4", "--processes", "1"]) == 0
    text = capsys.readouterr().out
    assert "4 of 4 played, 0 failed" in text
    assert " crashes; " in text


@pytest.mark.timeout(60)
def test_command_names_seeds_that_fail(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seeds", "1", "--first", "1", "--processes", "1", "--broken", "forget_sequence"]
    assert main(arguments) == 1
    text = capsys.readouterr().out
    assert "seed 1 fails" in text
    assert replay_command(1, broken="forget_sequence") in text


@pytest.mark.parametrize("arguments", [["--seeds", "0"], ["--broken", "nonsense"]])
def test_unusable_arguments_are_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert arguments[0] in capsys.readouterr().err
