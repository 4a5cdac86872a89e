"""docs/operations.md lists the options of ``devnode`` as the command has them, and its commands work."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from api.cli import app, run
from api.readers import event_json
from persistence import SqlStore
from persistence.testing import sample_records, written
from reliable_channel.events import MessageReceivedEvent, event_to_record
from reliable_channel.records import ChannelRecord
from reliable_channel.types import SECOND

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"
TITLE = "## Trying it without a Waku network\n"


def section() -> str:
    return PAGE.read_text(encoding="utf-8").split(TITLE)[1].split("\n## ")[0]


def shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) and value > 9_999 else str(value)


def rows() -> list[str]:
    command: Any = typer.main.get_command(app)
    found = []
    for option in command.commands["devnode"].params:
        if option.name == "help":
            continue
        names = "`, `".join([*option.opts, *option.secondary_opts])
        found.append(f"| `{names}` | {shown(option.default)} | {option.help.rstrip('.')} |")
    return found


def test_the_table_has_every_option_with_its_default_and_help() -> None:
    lines = [line for line in section().splitlines() if line.startswith("| `--")]
    assert lines == rows()
    assert len(lines) > 25


def test_the_commands_of_the_section_have_only_options_that_there_are() -> None:
    known = set(re.findall(r"--[\w-]+", "\n".join(rows())))
    used = re.findall(r"reliable-channel devnode(.*)", section())
    assert used
    assert {name for line in used for name in re.findall(r"--[\w-]+", line)} <= known


PAST = "## Looking at a service's past\n"


async def test_the_commands_that_look_at_a_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="no matplotlib: pip install '.[spark]'")
    text = PAGE.read_text(encoding="utf-8").split(PAST)[1].split("\n## ")[0]
    commands = re.findall(r"^    reliable-channel (simulate .*)", text, re.MULTILINE)
    assert len(commands) == 3
    monkeypatch.chdir(tmp_path)
    for name, other in (("alice", "bob"), ("bob", "alice")):
        event = MessageReceivedEvent(
            channel_id="room", sequence=1, time_ns=1_700_000_000 * SECOND,
            message=b"hello", sender_id=other, message_id=f"of {other}",
        )  # fmt: skip
        state = replace(sample_records(ChannelRecord)[1], sender_id=name, created_ns=1)
        async with SqlStore(f"sqlite:///{name}.db") as store:
            await store.commit("room", written([state, event_to_record(event)]))
        page = {"events": [event_json(event)], "next": 1}
        Path(f"{name}.jsonl").write_text(json.dumps(page))  # noqa: ASYNC240
    for number, command in enumerate(commands):
        given = [*shlex.split(command), "--engine", "process"]
        given[given.index("--out") + 1] = f"out{number}"
        assert run(given) == 0, capsys.readouterr().err
        found = json.loads(Path(f"out{number}", "manifest.json").read_text())  # noqa: ASYNC240
        assert [cell["name"] for cell in found["grid"]["cells"]] == ["channel room"]
        assert Path(f"out{number}", "report.html").is_file()  # noqa: ASYNC240
