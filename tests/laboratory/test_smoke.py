"""A small run as people start it: both engines give the same digest, and a report whose checks pass."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.laboratory import ROOT

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(240)]


def simulate(out: Path, engine: str) -> str:
    """Run the smoke grid, 20 channels of each of its 10 cells, look at what it left, and return its digest."""
    command = ["simulate", "--grid", "smoke", "--channels", "20"]
    script = "import sys; from api.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *command, "--engine", engine, "--out", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    manifest = json.loads((out / "manifest.json").read_text())
    assert sum(cell["channels"] for cell in manifest["finished"].values()) == 200
    assert (out / "summary.csv").stat().st_size
    page = (out / "report.html").read_text()
    assert "Every channel was played to its end." in page
    assert "checks failed" not in page
    return str(manifest["digest"])


def test_both_engines_play_the_smoke_grid(needs_spark: None, tmp_path: Path) -> None:
    digest = simulate(tmp_path / "process", "process")
    assert len(digest) == 32
    assert simulate(tmp_path / "spark", "spark") == digest
