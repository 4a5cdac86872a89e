"""The demo as people run it: a process of its own, with and without a terminal, and every way that it can fail."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import random
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-W", "error", "-m", "api", "demo")
ENVIRONMENT = {
    "PATH": os.environ.get("PATH", ""),
    "PYTHONPATH": str(ROOT),
    "PYTHONIOENCODING": "utf-8",
    "TERM": "xterm",
}
NAMES = ("alice", "bob", "carol")

pytestmark = pytest.mark.timeout(120)


def demo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the demo without a terminal."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
    )


def demo_on_a_terminal(
    *arguments: str | Path, columns: int, interrupt_at: bytes | None = None
) -> tuple[int, str]:
    """Run the demo on a terminal, press Ctrl-C when a text is seen; return exit code and output."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    with process:
        try:
            while piece := read_terminal(ours):
                seen += piece
                if interrupt_at is not None and interrupt_at in seen:
                    interrupt_at = None
                    process.send_signal(signal.SIGINT)
        finally:
            os.close(ours)
    return process.returncode, seen.decode("utf-8")


def read_terminal(descriptor: int) -> bytes:
    """Return what was written to a terminal; nothing when everybody has closed it."""
    ready, _, _ = select.select([descriptor], [], [], 100)
    assert ready, "nothing was written for a long time"
    try:
        return os.read(descriptor, 65536)
    except OSError as error:  # Linux says so; others give nothing
        if error.errno == errno.EIO:
            return b""
        raise


def make_file(path: Path, size: int) -> str:
    """Write a file of random bytes and return its SHA-256."""
    content = random.Random(size).randbytes(size)
    path.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def digests(output: str) -> list[tuple[str, str]]:
    """Return who has which digest, from lines that hold nothing else."""
    return re.findall(r"^sha256 (\w+) +([0-9a-f]{64})\r?$", output, re.MULTILINE)


def numbers(output: str, title: str) -> list[float]:
    """Return a row of the table."""
    (row,) = re.findall(rf"^. {title} .*$", output, re.MULTILINE)
    return [float(text) for text in re.findall(r"[0-9.]+", row)]


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    """Make a file of a few segments."""
    make_file(tmp_path / "small", 1_000_000)
    return tmp_path / "small"


# --- It works ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 102_400, 1_000_000])
def test_a_file_arrives(size: int, tmp_path: Path) -> None:
    digest = make_file(tmp_path / "file", size)
    done = demo(tmp_path / "file")
    assert (done.returncode, done.stderr) == (0, "")
    assert digests(done.stdout) == [(name, digest) for name in NAMES]
    assert "20 % loss" in done.stdout
    assert "AES-256-GCM" in done.stdout
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    assert len(done.stdout.splitlines()) <= 25
    segments = numbers(done.stdout, "segments")
    assert segments == [max(1, segments[0])] * 3
    transmissions, retransmissions = (
        numbers(done.stdout, title) for title in ("transmissions", "retransmissions")
    )
    assert transmissions[0] >= segments[0] + retransmissions[0]
    assert min(numbers(done.stdout, "seconds")) > 0
    assert len(numbers(done.stdout, "duplicates dropped")) == 3


def test_a_large_file_goes_as_several_messages(tmp_path: Path) -> None:
    digest = make_file(tmp_path / "large", 9 << 20)
    done = demo(tmp_path / "large")
    assert (done.returncode, done.stderr) == (0, "")
    assert "in 2 messages" in done.stdout
    assert digests(done.stdout) == [(name, digest) for name in NAMES]


@pytest.mark.slow
def test_the_default_file_arrives() -> None:
    done = demo()
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = re.findall(r"^alice sends '(.*)' to bob and carol", done.stdout)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    assert digests(done.stdout) == [(name, digest) for name in NAMES]


def test_parity_is_on_request(small_file: Path) -> None:
    done = demo(small_file, "--parity", "--loss", "0.1")
    assert (done.returncode, done.stderr) == (0, "")
    segments = numbers(done.stdout, "segments")[0]
    retransmissions = numbers(done.stdout, "retransmissions")[0]
    assert numbers(done.stdout, "transmissions")[0] > segments + retransmissions


def test_a_perfect_network_needs_no_second_try(small_file: Path) -> None:
    done = demo(small_file, "--loss", "0", "--duplicate", "0", "--reorder", "0", "--seed", "7")
    assert (done.returncode, done.stderr) == (0, "")
    assert "seed 7;" in done.stdout
    assert len(set(digests(done.stdout))) == 3


def test_a_terminal_shows_bars_and_whole_digests(tmp_path: Path) -> None:
    digest = make_file(tmp_path / "file", 3_000_000)
    code, output = demo_on_a_terminal(tmp_path / "file", columns=60)
    assert code == 0
    assert digests(output) == [(name, digest) for name in NAMES]
    assert "\x1b[?25l" in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")  # the cursor is back
    assert "…" not in output


# --- It fails ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["nowhere"], 2, "'nowhere' cannot be read: No such file or directory"),
        (["folder"], 2, "'folder' is a directory"),
        (["empty"], 2, "'empty' is empty"),
        (["/dev/null"], 2, "no regular file"),
        (["two", "files"], 2, "extra argument"),
        (["small", "--frob"], 2, "--frob"),
        (["small", "--loss", "2"], 2, "--loss"),
        (["small", "--loss", "nan"], 2, "loss"),
        (["small", "--loss", "1"], 1, "not acknowledged after 6 timeouts"),
        (["small", "--loss", "1", "--timeout", "1"], 1, "not finished within 1 s"),
    ],
)
def test_what_fails_says_why_in_one_line(
    arguments: list[str], code: int, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").touch()
    (tmp_path / "small").write_bytes(b"small")
    done = subprocess.run(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("reliable-channel: ")
    assert problem in done.stderr
    assert digests(done.stdout) == []
    assert "delivered" not in done.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read what nobody may read")
def test_a_file_that_may_not_be_read_is_refused(small_file: Path) -> None:
    small_file.chmod(0)
    done = demo(small_file)
    assert done.returncode == 2
    assert done.stderr.endswith("cannot be read: Permission denied\n")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_ends_it_with_one_line(small_file: Path) -> None:
    started = time.monotonic()
    code, output = demo_on_a_terminal(
        small_file, "--loss", "1", columns=80, interrupt_at=b"\x1b[?25l"
    )
    assert code == 130
    assert time.monotonic() - started < 20
    assert output.endswith("reliable-channel: interrupted\r\n")
    assert "Traceback" not in output
    assert output.rindex("\x1b[?25h") > output.rindex("\x1b[?25l")


def test_a_reader_that_has_seen_enough_is_no_traceback(small_file: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(small_file)],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline().startswith(b"alice sends ")
        process.stdout.close()
        errors = process.stderr.read()
    assert process.returncode == 1
    assert errors == b""


def test_a_full_disk_is_one_line(small_file: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no device that is always full here")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, str(small_file)],
            cwd=ROOT,
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "reliable-channel: No space left on device\n"


def test_a_name_that_the_encoding_lacks_is_shown_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "d\u00e9j\u00e0 :vu: [b]\u2603.bin"
    make_file(path, 1_000)
    done = subprocess.run(
        [*COMMAND, str(path)],
        cwd=ROOT,
        env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"d\\xe9j\\xe0 :vu: [b]\\u2603.bin" in done.stdout
