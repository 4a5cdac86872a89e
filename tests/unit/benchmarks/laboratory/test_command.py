"""What the simulate commands do, without Spark: runs, replays, lists, and one line for what is wrong."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from benchmarks.laboratory import command
from benchmarks.laboratory.command import (
    check_engine,
    need,
    reports,
    run_analyze,
    run_grids,
    run_replay,
    run_simulate,
    told,
)
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.grids import grid_names
from reliable_channel.errors import ConfigurationError, ReliableChannelError

TINY = """
title = "Two cells"
[base]
messages = 1
store.enabled = false
[axes]
faults.loss = [0.0, 0.3]
"""

TOO_FULL = """
title = "What cannot be sent"
[[cell]]
name = "no room for the warm-up"
base.messages = 1
base.warm_up = true
base.faults.loss = 0.9
base.sds.max_outgoing_messages = 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a small grid in it."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(TINY)
    return tmp_path


def play(grid: str, *, channels: int = 3, seed: int = 0, out: Path | None = None) -> int:
    return run_simulate(
        grid,
        channels=channels,
        seed=seed,
        engine="process",
        master=None,
        out=out,
        workers=1,
        partitions=1,
    )


@pytest.mark.timeout(120)
def test_a_run_is_resumed_refused_and_replayed(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play("tiny.toml") == 0
    manifest = json.loads((here / "simulate-tiny" / "manifest.json").read_text())
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"results in simulate-tiny, digest {manifest['digest']}"

    # The same once more plays nothing; anything else has to go elsewhere.
    assert play("tiny.toml") == 0
    assert capsys.readouterr().out.splitlines() == said
    for channels, seed in ((4, 0), (3, 1)):
        with pytest.raises(ReliableChannelError, match=r"simulate-tiny holds another run"):
            play("tiny.toml", channels=channels, seed=seed)
    with pytest.raises(ReliableChannelError, match="name another folder with --out"):
        play("smoke", out=Path("simulate-tiny"))
    assert json.loads((here / "simulate-tiny" / "manifest.json").read_text())["digest"]

    capsys.readouterr()
    assert run_replay(Path("simulate-tiny"), "loss=0.3", 2, "-") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "equal: the stored row has the same digest"
    assert any("send        message 1" in line for line in lines)

    assert run_replay(Path("simulate-tiny"), "1", 2, "trace.txt") == 0
    shorter = capsys.readouterr().out.splitlines()
    assert [*Path("trace.txt").read_text().splitlines(), *shorter] == lines

    # What was stored is not what comes of another seed.
    manifest["seed"] = 9
    (here / "simulate-tiny" / "manifest.json").write_text(json.dumps(manifest))
    assert run_replay(Path("simulate-tiny"), "1", 2, "trace.txt") == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "not equal: the stored row has another digest"


@pytest.mark.timeout(120)
def test_channels_that_cannot_be_played_are_told_with_the_command_that_shows_one(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("full.toml").write_text(TOO_FULL)
    assert play("full.toml", channels=2, out=Path("a folder")) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "ChannelFullError" in said
    line = said[said.index("reliable-channel simulate replay") :]
    words = shlex.split(line)
    assert words[:5] == ["reliable-channel", "simulate", "replay", "--out", "a folder"]
    assert words[5] == "--scenario"
    assert words[7:9] == ["--channel", "0"]
    assert run_replay(Path("a folder"), words[6], 0, "-") == 0
    assert "problem: ChannelFullError" in capsys.readouterr().out


def test_results_go_only_into_a_folder_of_their_own(here: Path) -> None:
    Path("file").write_text("")
    with pytest.raises(ConfigurationError, match="file is no folder: name another one"):
        play("tiny.toml", out=Path("file"))
    with pytest.raises(ReliableChannelError, match="is not empty and holds no run"):
        play("tiny.toml", out=here)


@pytest.mark.parametrize(
    ("engine", "master", "text"),
    [
        ("sprak", None, "--engine: there is no 'sprak'; did you mean 'spark'?"),
        ("process", "local[2]", "--master is for --engine spark, not process; leave it out"),
    ],
)
def test_engines_that_there_are(engine: str, master: str | None, text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_engine(engine, master)
    assert str(caught.value) == text
    check_engine("spark", "local[2]")
    check_engine("process", None)


def test_what_is_not_installed_is_told_with_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "EXTRA", {"no_such_module": "arrow"})
    monkeypatch.setattr(command, "SPARK_EXTRA", {"nor_this_one": "spark"})
    for engine, names in (("process", "arrow"), ("spark", "arrow and spark")):
        with pytest.raises(ReliableChannelError) as caught:
            need(engine)
        text = f"the loss laboratory needs {names}: pip install 'reliable-channel[spark]'"
        assert str(caught.value) == text
    need("spark", only=("json",))


@pytest.mark.parametrize(
    ("databases", "events"), [([], []), (["sqlite:///a.db"], [Path("a.ndjson")])]
)
def test_traffic_comes_from_databases_or_from_files(
    databases: list[str], events: list[Path]
) -> None:
    with pytest.raises(ConfigurationError, match="--database URL or --events PATH"):
        run_analyze(databases, events, out=Path("a"), engine="process", master=None)


def test_grids_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_grids(None, measure=False) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == grid_names()
    (smoke,) = (line for line in lines if line.startswith("smoke"))
    assert smoke.split()[1:4] == ["10", "1,000", "0.2"]
    assert smoke.endswith("  Each feature once")


def test_the_cells_of_a_grid_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_grids("tiny.toml", measure=True) == 0
    title, first, second = capsys.readouterr().out.splitlines()
    assert title == "tiny: Two cells"
    assert first.split()[0] == "0"
    assert first.endswith(" s  loss=0.0")
    assert float(first.split()[3]) > 0
    assert second.split()[2] == "5,000"
    with pytest.raises(ConfigurationError, match=r"nothing\.toml: No such file"):
        run_grids("nothing.toml", measure=False)


def test_reports_are_named_where_there_are_any(tmp_path: Path) -> None:
    assert reports(tmp_path) == []
    (tmp_path / "report.html").write_text("")
    assert reports(tmp_path) == [f"report: {tmp_path / 'report.html'}"]


def test_errors_of_the_laboratory_become_those_of_the_library() -> None:
    with pytest.raises(ReliableChannelError, match=r"^no Java$"), told():
        raise LaboratoryError("no Java")
