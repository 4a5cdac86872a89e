"""The session with curl in docs/rest.md runs as it stands, and the answers are those that it shows."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.serve_process import ROOT, serving

PAGE: Final = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")

PLACE: Final = "http://127.0.0.1:8080"
"""Where the service of the page listens; that of the test has a port of its own."""

ID: Final = r"\b[0-9a-f]{24}\b"
TIMES: Final = (
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z",
    r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT",
)
ANYTHING: Final = r"\.\.\."
VARYING: Final = re.compile("(" + "|".join((ID, *TIMES, ANYTHING)) + ")")
"""What need not be as the page shows it: ids of requests, times, and what it leaves out."""


@dataclass(frozen=True)
class Step:
    """A command of the page, and what the page says it answers."""

    command: str
    answer: str


def steps_of(page: str) -> list[Step]:
    """Return the commands of a page's console blocks, in order; each begins with ``$``."""
    steps = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        before, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        assert before == "", "a block begins with a command"
        for part in parts:
            command = re.match(r"(?:.*\\\n)*.*", part)
            assert command is not None
            steps.append(Step(command[0], part[command.end() :].strip()))
    return steps


def pattern_of(shown: str, known: dict[str, str]) -> str:
    """Return what an answer must be like.

    Args:
        shown: By the page.
        known: For each id that the page has shown by now, the real one.
    """
    pattern = ""
    named = set()
    for number, part in enumerate(VARYING.split(shown)):
        if number % 2 == 0:
            pattern += re.escape(part)
        elif part == "...":
            pattern += ".*"
        elif not re.fullmatch(ID, part):
            pattern += next(kind for kind in TIMES if re.fullmatch(kind, part))
        elif part in known:
            pattern += known[part]
        else:
            pattern += f"(?P=id_{part})" if part in named else f"(?P<id_{part}>{ID})"
            named.add(part)
    return pattern


def ids_in(shown: str, given: str, known: dict[str, str]) -> dict[str, str] | None:
    """Return the real ids for those that the page shows the first time; None if it shows another answer."""
    match = re.fullmatch(pattern_of(shown, known), given)
    if match is None:
        return None
    return {name.removeprefix("id_"): found for name, found in match.groupdict().items()}


def run(command: str, folder: Path) -> str:
    """Return what a command prints, without the ends that curl and lines of HTTP have."""
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.stdout.decode().replace("\r\n", "\n").strip()


@pytest.mark.real
@pytest.mark.timeout(120)
def test_each_command_answers_what_the_page_shows(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is missing: apt-get install curl")
    assert "reliable-channel serve --database sqlite:///channels.db\n" in PAGE
    steps = steps_of(PAGE)
    known: dict[str, str] = {}
    with serving("--database", f"sqlite:///{tmp_path}/channels.db") as service:
        for step in steps:
            command = step.command.replace(PLACE, service.url)
            for shown, real in known.items():
                command = command.replace(shown, real)
            given = run(command, tmp_path)
            new = ids_in(step.answer, given, known)
            assert new is not None, f"{step.command}\n\nanswers\n\n{given}\n\nnot\n\n{step.answer}"
            known |= new
    assert len(set(known.values())) == len(known)


def test_the_session_shows_what_the_service_is_for() -> None:
    commands = [step.command for step in steps_of(PAGE)]
    for wanted in (
        "application/json", "application/octet-stream", "Idempotency-Key", "/requests/", "&wait=", "Last-Event-ID",
        "/messages?after=", "/health", "/metrics", "-X DELETE", "purge=true",
    ):  # fmt: skip
        assert any(wanted in command for command in commands), wanted
    assert any("application/problem+json" in step.answer for step in steps_of(PAGE))
    assert all("curl -s" in command and PLACE in command for command in commands)


# --- What compares -------------------------------------------------------------------------------

ONE, TWO = "1" * 24, "2" * 24


def test_blocks_become_commands_and_answers() -> None:
    page = "text\n```console\n$ a \\\n    b\nx\n\ny\n$ c\n```\n```sh\n$ d\n```\n```console\n$ e\nz\n```\n"
    assert steps_of(page) == [Step("a \\\n    b", "x\n\ny"), Step("c", ""), Step("e", "z")]


@pytest.mark.parametrize(
    ("shown", "given", "known", "found"),
    [
        ("same", "same", {}, {}),
        ("same", "other", {}, None),
        ("a.c", "abc", {}, None),
        ("same", "same, and more", {}, None),
        ("a...c", "abbc", {}, {}),
        ("a...c", "a\nc", {}, None),
        ("2026-11-21T19:43:22.486867Z", "2031-01-02T03:04:05.000006Z", {}, {}),
        ("2026-11-21T19:43:22.486867Z", "2031-01-02", {}, None),
        ("Sat, 21 Nov 2026 19:43:22 GMT", "Sun, 22 Nov 2026 01:00:00 GMT", {}, {}),
        (ONE, TWO, {}, {ONE: TWO}),
        (f"{ONE} {ONE}", f"{TWO} {TWO}", {}, {ONE: TWO}),
        (f"{ONE} {ONE}", f"{ONE} {TWO}", {}, None),
        (ONE, TWO, {ONE: TWO}, {}),
        (ONE, ONE, {ONE: TWO}, None),
        (ONE, "short", {}, None),
    ],
)
def test_answers_are_compared(
    shown: str, given: str, known: dict[str, str], found: dict[str, str] | None
) -> None:
    assert ids_in(shown, given, known) == found
