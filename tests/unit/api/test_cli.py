"""The command line: what it offers, one line for every mistake, exit codes, what it does not import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from api.cli import FAILED, INTERRUPTED, MISUSED, PROGRAM, app, complain, explain, run
from reliable_channel import ChannelClosedError, ConfigurationError, __version__

ROOT = Path(__file__).parents[3]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr() == (f"{PROGRAM} {__version__}\n", "")


def test_help_lists_the_commands_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.startswith(f"Usage: {PROGRAM} ")
    commands = out.partition("Commands:")[2].strip().splitlines()
    assert "demo" in [line.split()[0] for line in commands]
    assert not [line for line in commands if line.endswith("...")]  # each says it in one line


def test_each_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in app.registered_commands:
        assert command.callback is not None
        assert run([command.callback.__name__, "--help"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"Usage: {PROGRAM} {command.callback.__name__} ")
        assert err == ""


def test_without_a_command_the_help_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == MISUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert "Commands:" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["dmeo"],
        ["--frob"],
        ["demo", "--frob"],
        ["demo", "--loss"],
        ["demo", "--loss", "2"],
        ["demo", "--loss", "-0.1"],
        ["demo", "--loss", "much"],
        ["demo", "--loss", "nan"],
        ["demo", "--duplicate", "1.5"],
        ["demo", "--reorder", "inf"],
        ["demo", "--seed", "1.5"],
        ["demo", "--timeout", "0"],
        ["demo", "--timeout", "soon"],
        ["demo", "a", "b"],
        ["demo", "no\nsuch\tfile"],
        ["demo", ""],
        ["inspect"],
        ["inspect", "--database", "alice.db"],
        ["inspect", "--database", "mysql://host/db"],
    ],
)
def test_a_mistake_is_one_line_on_standard_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == MISUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{PROGRAM}: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")


def test_a_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    run(["dmeo"])
    assert "'demo'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigurationError(["this", "that"]), MISUSED, "this; that"),
        (
            ChannelClosedError("room"),
            FAILED,
            "channel 'room' is closed; create it again",
        ),
        (OSError(28, "No space left on device"), FAILED, "No space left on device"),
        (OSError(30, "Read-only file system", "/a b"), FAILED, "/a b: Read-only file system"),
        (OSError(9, "Bad file descriptor", 7), FAILED, "Bad file descriptor"),
        (OSError("odd"), FAILED, "odd"),
        (typer.BadParameter("must be even"), MISUSED, "Invalid value: must be even"),
    ],
)
def test_errors_have_a_code_and_a_text(error: Exception, code: int, text: str) -> None:
    assert explain(error) == (code, text)


def test_a_bug_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        explain(ZeroDivisionError())


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain("two\nlines,\ttabs  and\r\nmore")
    assert capsys.readouterr().err == f"{PROGRAM}: two lines, tabs and more\n"


def test_exit_codes_differ() -> None:
    assert len({0, FAILED, MISUSED, INTERRUPTED}) == 4
    assert INTERRUPTED == 128 + 2  # what shells make of SIGINT


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["demo", "--help"], ["devnode", "--help"], ["inspect", "--help"], ["dmeo"], []],
)
def test_help_does_not_wait_for_the_library(arguments: list[str]) -> None:
    code = (
        "import sys; from api.cli import run; run(sys.argv[1:]); "
        "sys.exit(str({'reliable_channel', 'rich', 'numpy', 'sqlalchemy'} & set(sys.modules)))"
    )
    assert python("-c", code, *arguments).stderr.endswith("set()\n")


def test_the_module_runs_like_the_command() -> None:
    done = python("-m", "api", "--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{PROGRAM} {__version__}\n", "")
    done = python("-m", "api", "dmeo")
    assert (done.returncode, done.stdout) == (MISUSED, "")
    assert done.stderr.startswith(f"{PROGRAM}: ")


def test_output_that_is_closed_is_no_reason_to_crash() -> None:
    code = "import sys; sys.stdout = sys.stderr = None; from api.cli import main; main()"
    assert python("-c", code, "--version").returncode == 0
    assert python("-c", code, "dmeo").returncode == MISUSED
