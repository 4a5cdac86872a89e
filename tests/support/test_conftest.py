"""What all tests share: skips that are failures, and programs that can be interrupted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SKIPPING = """
import pytest

@pytest.fixture
def program():
    pytest.skip("no such program")

@pytest.mark.real
def test_in_the_test():
    pytest.skip("no such program")

@pytest.mark.real
def test_in_its_fixture(program):
    pass

@pytest.mark.real
@pytest.mark.xfail
def test_expected_to_fail():
    assert False

def test_of_another_kind():
    pytest.skip("for another reason")
"""


@pytest.mark.parametrize(
    ("value", "summary"),
    [("", "3 skipped, 1 xfailed"), ("1", "1 failed, 1 skipped, 1 xfailed, 1 error")],
)
def test_a_skip_for_want_of_a_program_fails_when_all_are_required(
    tmp_path: Path, value: str, summary: str
) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real\n")
    (tmp_path / "test_skipping.py").write_text(SKIPPING)
    env = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rN", "-p", "no:cacheprovider", tmp_path],
        env={**env, "RELIABLE_CHANNEL_REQUIRE_ALL": value},
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert summary in done.stdout
    assert done.stdout.count("RELIABLE_CHANNEL_REQUIRE_ALL=1, but") == (2 if value else 0)


def test_programs_that_tests_start_can_be_interrupted_whoever_started_the_tests(
    tmp_path: Path,
) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = real\n")
    (tmp_path / "test_signal.py").write_text(
        "import signal\n\n\ndef test_it():\n"
        "    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler\n"
    )
    deaf = 'trap \'\' INT; exec "$0" "$@"'  # as of a shell's background jobs
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        ["/bin/sh", "-c", deaf, *command],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert "1 passed" in done.stdout
