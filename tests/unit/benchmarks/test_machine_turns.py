"""Each turn is answered by what it took and how much has been delivered."""

from __future__ import annotations

import json
import subprocess
import sys

from benchmarks.machine_turns import answers


def test_each_turn_is_answered_when_it_is_done() -> None:
    found = list(answers(["20\n", "10\n"]))
    assert [item["delivered"] for item in found] == [20, 30]
    assert all(item["send"] > 0 and item["receive"] > 0 for item in found)


def test_the_program_answers_line_by_line_and_ends_with_its_input() -> None:
    command = [sys.executable, "-m", "benchmarks.machine_turns"]
    done = subprocess.run(command, input="5\n5\n", capture_output=True, text=True, check=True)
    assert [json.loads(line)["delivered"] for line in done.stdout.splitlines()] == [5, 10]
