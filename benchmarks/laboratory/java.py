"""Finds the Java that Spark's driver runs on, and says what to install where there is none.

Spec: none of its own; Spark 4 needs Java 17 or later.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.laboratory.errors import LaboratoryError

OLDEST: Final = 17

INSTALL: Final = (
    f"install Java {OLDEST} or later (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk), "
    "or play without Spark: --engine process"
)

ANSWER_SECONDS: Final = 30.0
"""How long ``java -version`` may take; it takes 0.1 s."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that is recent enough."""

    program: Path
    version: str
    home: Path | None
    """Of ``JAVA_HOME``; None where the program was found on ``PATH``."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """Find Java by ``JAVA_HOME``, then on ``PATH``.

    Args:
        environment: Variables; None is this process's.

    Raises:
        LaboratoryError: There is none, or it is too old.
    """
    variables = os.environ if environment is None else environment
    home = variables.get("JAVA_HOME", "")
    if home:
        program = Path(home) / "bin" / "java"
        if not shutil.which(program):
            text = (
                f"JAVA_HOME is {home}, but there is no bin/java in it: set it right, or {INSTALL}"
            )
            raise LaboratoryError(text)
    else:
        found = shutil.which("java", path=variables.get("PATH", ""))
        if found is None:
            text = f"Spark needs Java, and none is found by JAVA_HOME or on PATH: {INSTALL}"
            raise LaboratoryError(text)
        program = Path(found)
    version = version_of(program)
    if major(version) < OLDEST:
        text = f"{program} is Java {version}, too old for Spark: {INSTALL}"
        raise LaboratoryError(text)
    return Java(program, version, Path(home) if home else None)


def version_of(program: Path) -> str:
    """Return what a Java calls its version, such as ``17.0.15``.

    Raises:
        LaboratoryError: It does not run, or does not say.
    """
    try:
        done = subprocess.run(
            [program, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        text = f"{program} does not run: {INSTALL}"
        raise LaboratoryError(text) from error
    found = re.search(r'version "([^"]+)"', done.stderr + done.stdout)
    if found is None:
        text = f"{program} does not run: {INSTALL}"
        raise LaboratoryError(text)
    return found.group(1)


def major(version: str) -> int:
    """Return the number by which a version of Java is known: 8 of ``1.8.0_292``, 17 of ``17.0.15``."""
    numbers = [int(part) for part in re.findall(r"\d+", version)[:2]]
    return numbers[-1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
