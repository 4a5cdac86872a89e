"""How the browser for the page's tests is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import PROGRAMS, MissingBrowserError, browser_program


def install(folder: Path, name: str) -> Path:
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_browser_is_found_by_each_of_its_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = install(tmp_path, name)
    assert browser_program() == str(program)


def test_the_first_name_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    programs = [install(tmp_path, name) for name in PROGRAMS]
    assert browser_program() == str(programs[0])


def test_whoever_has_none_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingBrowserError, match="apt-get install chromium"):
        browser_program()
