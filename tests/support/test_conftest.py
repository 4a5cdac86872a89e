"""Where every program has to be there, a skipped test that drives one has failed."""

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
