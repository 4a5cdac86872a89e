"""Java is found by JAVA_HOME, then on PATH; where there is none, or an old one, a line says what to install."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.java import find_java, major


def program(folder: Path, text: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def says(version: str) -> str:
    return f"echo 'openjdk version \"{version}\" 2026-01-01' >&2"


def test_java_home_comes_first(tmp_path: Path) -> None:
    ours = program(tmp_path / "ours", says("21.0.2"))
    other = program(tmp_path / "other", says("17.0.1"))
    found = find_java({"JAVA_HOME": str(tmp_path / "ours"), "PATH": str(other.parent)})
    assert (found.program, found.version, found.home) == (ours, "21.0.2", tmp_path / "ours")
    found = find_java({"PATH": str(other.parent)})
    assert (found.program, found.version, found.home) == (other, "17.0.1", None)


def test_no_java_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        LaboratoryError, match=r"^Spark needs Java.* install Java 17 or later"
    ) as got:
        find_java({"PATH": str(tmp_path)})
    assert "\n" not in str(got.value)


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(LaboratoryError, match=r"JAVA_HOME is .* no bin/java in it"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})


@pytest.mark.parametrize("version", ["1.8.0_292", "11.0.2"])
def test_an_old_java_is_refused(tmp_path: Path, version: str) -> None:
    program(tmp_path, says(version))
    with pytest.raises(LaboratoryError, match=f"is Java {version}, too old"):
        find_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize("text", ["exit 1", "echo no"])
def test_what_does_not_say_its_version_does_not_run(tmp_path: Path, text: str) -> None:
    program(tmp_path, text)
    with pytest.raises(LaboratoryError, match="does not run"):
        find_java({"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("version", "number"), [("1.8.0_292", 8), ("17", 17), ("21-ea", 21), ("25.0.1", 25)]
)
def test_major(version: str, number: int) -> None:
    assert major(version) == number
