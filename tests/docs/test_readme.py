"""The examples of the README run as they stand and print what it says they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def example() -> str:
    found = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_example_has_fifteen_lines() -> None:
    assert len([line for line in example().splitlines() if line.strip()]) == 15


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text(example(), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", str(script)],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    # That a step took more than 0.1 s, as asyncio says in this mode, tells how busy the machine is.
    said = re.sub(r"^Executing <.*> took [0-9.]+ seconds\n", "", done.stderr, flags=re.MULTILINE)
    assert said == ""
    promised = re.search(r"It prints `(.*?)`:", README)
    assert promised is not None
    assert done.stdout == f"{promised[1]}\n"


def test_every_local_link_of_the_documents_leads_somewhere() -> None:
    pages = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []
