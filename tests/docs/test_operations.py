"""docs/operations.md lists the options of ``devnode`` as the command has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import typer

from api.cli import app

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
