"""The simulate commands' options: what is meant without a command, and one line for every mistake."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.cli import FAILED, MISUSED, PROGRAM, run
from api.simulate import simulate

ROOT = Path(__file__).parents[3]

GRID = 'title = "x"\n[base]\nmessages = 1\n[axes]\nfaults.loss = [0.0]'


def test_each_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    names = [command.name for command in simulate.registered_commands]
    assert names == ["run", "replay", "analyze", "grids"]
    for name in names:
        assert name is not None
        assert run(["simulate", name, "--help"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(f"Usage: {PROGRAM} simulate {name} ")
        assert err == ""
    assert run(["simulate", "--help"]) == 0
    out, _ = capsys.readouterr()
    commands = out.partition("Commands:")[2].strip().splitlines()
    assert [line.split()[0] for line in commands] == names
    assert not [line for line in commands if line.endswith("...")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--frob"], "No such option: --frob"),
        (["rnu"], "run"),
        (["--channels", "0"], "--channels"),
        (["--seed", "-1"], "--seed"),
        (["run", "--workers", "0"], "--workers"),
        (["--grid", "smok"], "did you mean 'smoke'?"),
        (["run", "--grid", "missing.toml"], "missing.toml: No such file or directory"),
        (["--engine", "sprak"], "did you mean 'spark'?"),
        (["--engine", "process", "--master", "local"], "--master is for --engine spark"),
        (["replay"], "--out"),
        (["replay", "--out", "a", "--scenario", "b", "--channel", "c"], "--channel"),
        (["analyze"], "--database URL or --events PATH"),
        (["grids", "smok"], "did you mean 'smoke'?"),
    ],
)
def test_a_mistake_is_one_line_on_standard_error(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["simulate", *arguments]) == MISUSED
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"{PROGRAM}: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_folder_without_a_run_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--out", str(tmp_path), "--scenario", "0", "--channel", "0"]
    assert run(["simulate", "replay", *arguments]) == FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"{PROGRAM}: {tmp_path} holds no results: there is no manifest.json in it\n"


@pytest.mark.timeout(120)
def test_without_a_command_it_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text(GRID)
    options = ["--grid", "one.toml", "--channels", "2", "--engine", "process", "--workers", "1"]
    assert run(["simulate", *options]) == 0
    first = capsys.readouterr().out
    assert first.startswith("results in simulate-one, digest ")
    assert run(["simulate", "run", *options]) == 0
    assert capsys.readouterr().out == first
    assert run(["simulate", "run", *options, "--seed", "1", "--out", "other"]) == 0
    other = capsys.readouterr().out
    assert other.split()[4] != first.split()[4]
    replay = ["--out", "other", "--scenario", "loss=0.0", "--channel", "1", "--trace", "t"]
    assert run(["simulate", "replay", *replay]) == 0
    assert capsys.readouterr().out.endswith("equal: the stored row has the same digest\n")


def test_grids_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "grids"]) == 0
    assert "Each feature once" in capsys.readouterr().out
    assert run(["simulate", "grids", "smoke"]) == 0
    assert "rate limit" in capsys.readouterr().out


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["--frob"], ["replay"]])
def test_help_does_not_wait_for_the_laboratory(arguments: list[str]) -> None:
    code = (
        "import sys; from api.cli import run; run(['simulate', *sys.argv[1:]]); "
        "sys.exit(str({'benchmarks', 'reliable_channel', 'numpy'} & set(sys.modules)))"
    )
    assert python("-c", code, *arguments).stderr.endswith("set()\n")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--grid", "smoke"], FAILED, "needs pyarrow and matplotlib and pyspark and pandas: pip"),
        (["--engine", "process"], FAILED, "needs pyarrow and matplotlib: pip install"),
        (["replay", "--out", ".", "--scenario", "0", "--channel", "0"], FAILED, "needs pyarrow: p"),
        (["grids"], 0, ""),
    ],
)
def test_without_the_extra_one_line_says_what_to_install(
    arguments: list[str], code: int, said: str
) -> None:
    """Python takes modules that are None for missing ones."""
    script = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pyarrow', 'pyspark', 'pandas', 'matplotlib']))\n"
        "from api.cli import run\n"
        "sys.exit(run(['simulate', *sys.argv[1:]]))\n"
    )
    done = python("-c", script, *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)
