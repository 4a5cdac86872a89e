"""A PostgreSQL server for tests: a private one, or the one that the environment names.

The private one is reached through a Unix socket in its own folder, so that it is in nobody's way; it is stopped
whatever happens to the tests. A server that the environment names is only given schemas, which are dropped again.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import create_engine, make_url, text
from sqlalchemy.exc import OperationalError

TEST_URL: Final = "RELIABLE_CHANNEL_TEST_POSTGRES"
"""Environment variable: a server to use instead of a private one."""

UNPRIVILEGED: Final = "nobody"
"""Who runs the server when root runs the tests: PostgreSQL refuses root."""

SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",  # the machine does not crash in tests
    "shared_buffers": "16MB",
    "max_connections": "60",
}

START_TIMEOUT_S: Final = 30.0
"""How long the server may take to answer."""

PR_SET_PDEATHSIG: Final = 1
"""Linux: which signal a process gets when its parent dies."""


class MissingPostgresError(Exception):
    """There is no server, for the reason given."""


def server_programs() -> Path:
    """Return the folder of the server's programs.

    Raises:
        MissingPostgresError: There are none, or the driver is missing.
    """
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        problem = "psycopg is not installed: pip install 'reliable-channel[postgres]'"
        raise MissingPostgresError(problem) from error
    on_path = shutil.which("initdb")
    # The folder that the programs really are in: Debian's `postgres` needs what lies beside it.
    found = [Path(os.path.realpath(on_path)).parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    for folder in found:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    problem = (
        "the PostgreSQL server's programs are missing: apt-get install postgresql, "
        f"or name a server in {TEST_URL}"
    )
    raise MissingPostgresError(problem)


def _version(folder: Path) -> int:
    name = folder.parent.name.partition(".")[0]
    return int(name) if name.isdigit() else 0


class Cluster:
    """A server of our own, that can be stopped and started.

    Args:
        programs: Where ``initdb`` and ``postgres`` are.
    """

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="rc-pg-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(self._folder, UNPRIVILEGED)
            self._identity = {
                "user": UNPRIVILEGED,
                "group": pwd.getpwnam(UNPRIVILEGED).pw_gid,
                "extra_groups": [],
            }

    @property
    def url(self) -> str:
        """Where it is."""
        return f"postgresql+psycopg://postgres@/postgres?host={self._folder}"

    def create(self) -> None:
        """Make its data folder."""
        command = [str(self._programs / "initdb"), "--pgdata=data", "--no-sync"]
        command += ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            **self._identity,
        )
        if done.returncode:
            raise MissingPostgresError(f"initdb failed: {done.stderr.decode()[-500:]}")

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", "data", "-k", self._folder, *options],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests; they stop it
                preexec_fn=_die_with_parent,
                **self._identity,
            )
        engine = create_engine(self.url)
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                engine.connect().close()
            except OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log_text = (self._folder / "log").read_text()[-500:]
                    raise MissingPostgresError(f"postgres does not start: {log_text}") from error
                time.sleep(0.02)
            else:
                break
        engine.dispose()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it, hanging up on everybody; harmless when repeated."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(START_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def remove(self) -> None:
        """Stop it and remove everything."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _die_with_parent() -> None:
    """Have this process stopped when the tests are killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


@contextmanager
def private_cluster() -> Iterator[Cluster]:
    """Run a server of our own.

    Raises:
        MissingPostgresError: It cannot be had.
    """
    cluster = Cluster(server_programs())
    try:
        cluster.create()
        cluster.start()
        yield cluster
    finally:
        cluster.remove()


@contextmanager
def server_url() -> Iterator[str]:
    """Give the URL of the server for tests: the environment's, or that of a private one.

    Raises:
        MissingPostgresError: There is none.
    """
    given = os.environ.get(TEST_URL)
    if given:
        yield given
    else:
        with private_cluster() as cluster:
            yield cluster.url


@contextmanager
def schema_url(server: str) -> Iterator[str]:
    """Make a schema on a server and give the URL of it; drop it at the end."""
    name = f"test_{secrets.token_hex(8)}"
    run_sql(server, f"CREATE SCHEMA {name}")
    try:
        query = {"options": f"-csearch_path={name}", "application_name": name}
        yield make_url(server).update_query_dict(query).render_as_string(hide_password=False)
    finally:
        run_sql(server, f"DROP SCHEMA {name} CASCADE")


def hang_up(url: str) -> None:
    """End all sessions of a schema's URL, as an administrator may, and wait until they have ended."""
    others = (
        "FROM pg_stat_activity WHERE application_name = current_setting('application_name') "
        "AND pid <> pg_backend_pid()"
    )
    run_sql(url, f"SELECT pg_terminate_backend(pid) {others}")
    while run_sql(url, f"SELECT pid {others}"):
        pass


def run_sql(url: str, statement: str) -> list[Any]:
    """Execute a statement on a connection of its own and return its rows, if it has any."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            result = connection.execute(text(statement))
            return [tuple(row) for row in result] if result.returns_rows else []
    finally:
        engine.dispose()
