"""Which build of the core the tests meet, and that it is of the sources that lie beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from reliable_channel.core import build, machine
from reliable_channel.core.build import IS_COMPILED
from tests.support.core_build import stale_extensions


def test_all_of_the_core_is_of_one_build() -> None:
    for module in (build, machine):
        origin = getattr(module.__spec__, "origin", None)
        assert isinstance(origin, str)
        assert origin.endswith(".py") is not IS_COMPILED


def test_the_build_that_was_asked_for_is_there() -> None:
    """``make test-compiled`` says that it tests compiled code; it must not test sources without a word."""
    assert IS_COMPILED or os.environ.get("RELIABLE_CHANNEL_TEST_COMPILED") != "1"


def test_extensions_older_than_their_sources_are_found(tmp_path: Path) -> None:
    suffix = subprocess.run(
        [sys.executable, "-c", "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    for number, name in enumerate(("fresh", "stale", "gone")):
        source, extension = tmp_path / f"{name}.py", tmp_path / f"{name}{suffix}"
        source.touch()
        extension.touch()
        os.utime(extension, (1_000, 1_000))
        os.utime(source, (999 + 2 * number, 999 + 2 * number))
    (tmp_path / "gone.py").unlink()
    assert stale_extensions(tmp_path) == ["gone.py", "stale.py"]
