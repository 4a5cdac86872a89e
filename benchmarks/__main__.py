"""``python -m benchmarks [NAME ...] [--json FILE]``: measures and prints tables; nothing here asserts a speed.

Without a name it runs what takes seconds; what takes minutes is run by its name. ``python -m benchmarks compare A.json
B.json`` shows two runs side by side.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks import comparing, provenance
from benchmarks.figures import Table, rendered, to_json
from benchmarks.registry import BENCHMARKS

WIDTH: Final = 160
"""Columns of tables that go to a file."""


def parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    lines = (
        f"  {name:13} {item.about}{'' if item.is_quick else ' (only by its name)'}"
        for name, item in BENCHMARKS.items()
    )
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure, or compare two runs: compare A.json B.json",
        epilog="benchmarks:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "names", nargs="*", metavar="NAME", help="what to measure; default: quick ones"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="also write all figures there")
    return made


def main(arguments: list[str]) -> int:
    """Run the named measurements, the quick ones when none is named; or compare two runs."""
    given = parser().parse_args(arguments)
    if given.names[:1] == ["compare"]:
        return compare(given.names[1:])
    unknown = sorted(set(given.names) - BENCHMARKS.keys())
    if unknown:
        return fail(f"no benchmark {unknown[0]!r}; there is: {', '.join(BENCHMARKS)}")
    names = [
        name
        for name, item in BENCHMARKS.items()
        if name in given.names or (not given.names and item.is_quick)
    ]
    return measure(names, given.json)


def measure(names: list[str], target: Path | None) -> int:
    """Measure, print, and write the figures so far after each benchmark, so that one that fails takes none along."""
    run: dict[str, Any] = {
        **provenance.here(),
        "load": {"before": provenance.load(), "after": provenance.load()},
        "benchmarks": {},
    }
    console = wide_console()
    for name in names:
        kept = run["benchmarks"].setdefault(name, {"tables": [], "lines": []})
        for part in BENCHMARKS[name].parts():
            if isinstance(part, Table):
                console.print(rendered(part))
                kept["tables"].append(to_json(part))
            else:
                sys.stdout.write(f"{part}\n")
                sys.stdout.flush()
                kept["lines"].append(part)
        run["load"]["after"] = provenance.load()
        if target is not None:
            target.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", "utf-8")
    return 0


def compare(files: list[str]) -> int:
    """Show two runs side by side."""
    if len(files) != 2:
        return fail("compare needs two files that --json wrote")
    runs = []
    for file in files:
        try:
            run = json.loads(Path(file).read_text("utf-8"))
            comparing.figures_of(run)
        except OSError as error:
            return fail(f"{file} cannot be read: {error.strerror}")
        except (KeyError, TypeError, ValueError, AttributeError):
            return fail(f"{file} is not what --json writes")
        runs.append(run)
    first, second = runs
    console = wide_console()
    for name, run in (("A", first), ("B", second)):
        console.print(f"{name}: {comparing.described(run)}", soft_wrap=True, highlight=False)
    for line in comparing.differences(first, second):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    found = list(comparing.pairs(first, second))
    for table in comparing.rendered(found):
        console.print(table)
    left = comparing.only_in_one(first, second)
    if left:
        console.print(f"figures that only one of them has: {left}", soft_wrap=True)
    return 0


def wide_console() -> Console:
    """Return a console that is as wide as the terminal, or, in a file or a pipe, wide enough."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=WIDTH)


def fail(text: str) -> int:
    """Say what is wrong, in one line."""
    Console(stderr=True).print(text, soft_wrap=True, markup=False, highlight=False)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
