"""The private PostgreSQL server: it stops with the tests, whatever happens to them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.support import postgres
from tests.support.postgres import MissingPostgresError, server_programs, server_url

ROOT = Path(__file__).parents[2]

USE_AND_DIE = """
import os, signal
from tests.support.postgres import private_cluster
with private_cluster() as cluster:
    print(cluster._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def programs_or_skip() -> None:
    try:
        server_programs()
    except MissingPostgresError as missing:
        pytest.skip(str(missing))


@pytest.mark.real
@pytest.mark.timeout(90)
@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux tells children of their parent's end"
)
def test_the_server_ends_with_a_killed_parent() -> None:
    programs_or_skip()
    with tempfile.TemporaryDirectory(prefix="rc-") as folder:
        Path(folder).chmod(0o755)  # the server may run as another user
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": folder}
        command = [sys.executable, "-c", USE_AND_DIE]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
        assert done.stdout, done.stderr.decode()
        deadline = time.monotonic() + 30
        while is_running(int(done.stdout)):
            assert time.monotonic() < deadline, "the server outlived the tests"
            time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_what_is_missing_and_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    with pytest.raises(MissingPostgresError, match="apt-get install postgresql") as missing:
        server_programs()
    assert postgres.TEST_URL in str(missing.value)


def test_the_environment_may_name_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(postgres.TEST_URL, "postgresql+psycopg://host/db")
    with server_url() as url:
        assert url == "postgresql+psycopg://host/db"
