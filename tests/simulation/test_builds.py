"""A compiled core does what its sources do: every input and effect of whole channels is the same, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reliable_channel.core.build import IS_COMPILED

ROOT = Path(__file__).parents[2]


def played(*arguments: str) -> tuple[str, int, str]:
    """Return which build played, how many steps there were, and their hash."""
    command = [sys.executable, "-m", "tests.support.play_builds", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    build, steps, digest = done.stdout.split()
    return build, int(steps), digest


@pytest.mark.timeout(120)
@pytest.mark.skipif(not IS_COMPILED, reason="the core is not compiled: make test-compiled")
def test_a_compiled_core_does_what_its_sources_do() -> None:
    (sources, *expected), (compiled, *found) = played("sources"), played()
    assert (sources, compiled) == ("interpreted", "compiled")
    assert found == expected
    assert found[0] > 10_000
