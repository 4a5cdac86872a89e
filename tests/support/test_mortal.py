"""The processes that are made to be killed: none outlives the test."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.support.test_postgres import is_running

ROOT = Path(__file__).parents[2]

START_AND_DIE = """
import asyncio, os, pathlib, signal, sys
from tests.support.mortal import Life, Mortals
from tests.support.relay import Relay

async def main():
    folder = sys.argv[1]
    async with Relay() as relay, Mortals(pathlib.Path(folder, "log")) as mortals:
        life = Life(number=0, url=f"sqlite:///{folder}/alice.db", relay=relay.path,
                    notebook=f"{folder}/notes", parity=False, talks=True)
        await mortals.start(life)
        await mortals.opened(life)
        print(mortals.pid, mortals._helper.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.timeout(60)
@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_no_life_outlives_a_killed_test(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:  # what the killed test leaves
        done = subprocess.run(
            [sys.executable, "-c", START_AND_DIE, str(tmp_path)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": folder},
            capture_output=True,
            check=False,
        )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr.decode()
    deadline = time.monotonic() + 30
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < deadline, "a process outlived the test"
        time.sleep(0.02)
