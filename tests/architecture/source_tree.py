"""The project's source files, read as text and syntax trees, without importing them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGES = ("reliable_channel", "messaging_adapter", "persistence", "api", "benchmarks")
"""Everything that the wheel holds."""

LIBRARY = ("reliable_channel", "messaging_adapter", "persistence")
"""What applications import."""


@dataclass(frozen=True)
class Module:
    """One source file, real or made up for a test of a check.

    Args:
        name: Dotted, as it would be imported; a package's own file has the package's name.
        source: Its text.
        is_package: Whether it is an ``__init__.py``; relative imports count from here.
    """

    name: str
    source: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed text."""
        return ast.parse(self.source)

    @property
    def package(self) -> str:
        """The package that a single leading dot means here."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


def read_modules(*packages: str) -> dict[str, Module]:
    """Read all modules of the packages, generated ones left out.

    Args:
        packages: Top-level folders of the repository.

    Returns:
        Modules by dotted name.
    """
    found = {}
    for package in packages:
        for path in sorted((ROOT / package).rglob("*.py")):
            if path.name.endswith("_pb2.py"):
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = Module(name, path.read_text(encoding="utf-8"), is_package)
    return found


def lies_in(name: str, package: str) -> bool:
    """Say whether a dotted name is the package or something in it."""
    return name == package or name.startswith(package + ".")
