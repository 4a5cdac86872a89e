"""The archive is enough for a trial, wherever it lies, and is used before what is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.laboratory.shipping import PACKAGES, pack

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from benchmarks.laboratory import spark_engine, trial
ours = {n: m for n, m in sys.modules.items()
        if n.partition(".")[0] in ("api", "benchmarks", "messaging_adapter", "persistence", "reliable_channel")}
print(*sorted({name.partition(".")[0] for name in ours}))
print(*[m.__file__ for m in ours.values() if not (m.__file__ or "").startswith(sys.argv[1])])
print(*[n for n, m in ours.items() if not (m.__file__ or "").endswith(".pyc")])
"""


@pytest.mark.timeout(60)
def test_everything_a_trial_imports_is_in_the_archive(tmp_path: Path) -> None:
    archive = pack(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-c", SCRIPT, str(archive)],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    names, elsewhere, uncompiled = done.stdout.split("\n")[:3]
    assert names.split() == sorted(PACKAGES)
    assert (elsewhere, uncompiled) == ("", "")
