"""``reliable-channel serve`` as a process of its own, for tests that ask it over the network."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import httpx

ROOT: Final = Path(__file__).parents[2]

COMMAND: Final = (sys.executable, "-W", "error", "-m", "api", "serve")

READY: Final = "Listening on "

END_SEC: Final = 30.0
"""A process that has not ended by then hangs."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with nothing of the caller's that settings could come from."""
    return {"PATH": os.environ.get("PATH", ""), "PYTHONPATH": str(ROOT), **(more or {})}


@dataclass(frozen=True)
class Ended:
    """What a process left behind."""

    code: int
    out: str
    log: str


def serve_once(*arguments: str, env: Mapping[str, str] | None = None) -> Ended:
    """Run the command to its end, which must come by itself."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=ROOT,
        env=environment(env),
        capture_output=True,
        encoding="utf-8",
        timeout=END_SEC,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


class ServeProcess:
    """A service that listens.

    Args:
        process: Running.
        url: Where it listens.
        log: Its standard error, a file.
    """

    def __init__(self, process: subprocess.Popen[str], url: str, log: IO[bytes]) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def port(self) -> int:
        """Where it listens on this machine."""
        return int(self.url.rpartition(":")[2])

    def client(self) -> httpx.Client:
        """Return a client that asks it."""
        return httpx.Client(base_url=self.url, timeout=END_SEC)

    def log(self) -> list[str]:
        """Return the lines that it has logged by now, whole ones only."""
        # The file's position is the process's too: reading must not move it.
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), size, 0).decode()
        return text[: text.rfind("\n") + 1].splitlines()

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self) -> Ended:
        """Return what it left behind, when it has ended."""
        code = self.process.wait(END_SEC)
        assert self.process.stdout is not None
        return Ended(code, self.process.stdout.read(), "\n".join(self.log()))

    def stop(self) -> Ended:
        """End it gracefully."""
        self.signal(signal.SIGTERM)
        return self.wait()


@contextmanager
def serving(*arguments: str, env: Mapping[str, str] | None = None) -> Iterator[ServeProcess]:
    """Start a service on a free port, and end it at once if the test has not."""
    with (
        tempfile.TemporaryFile() as log,
        subprocess.Popen(
            [*COMMAND, "--port", "0", *arguments],
            cwd=ROOT,
            env=environment(env),
            stdout=subprocess.PIPE,
            stderr=log,
            encoding="utf-8",
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # the end of the process ends the wait too
            service = ServeProcess(process, line.removeprefix(READY).strip(), log)
            assert line.startswith(READY), service.log()
            yield service
        finally:
            process.kill()
