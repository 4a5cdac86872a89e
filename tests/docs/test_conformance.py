"""docs/conformance.md names modules, tests and records that exist, and leaves no claim without proof."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "conformance.md"

HEADER = ["where", "strength", "rule", "module", "test", "status"]
STRENGTHS = {
    "MUST", "MUST NOT", "SHALL", "SHOULD", "SHOULD NOT", "REQUIRED", "RECOMMENDED", "defines"
}  # fmt: skip
SPECIFICATIONS = [
    "Reliable Channel API, the seed",
    "Reliable Channel API, the later text",
    "SDS",
    "SDS-R",
    "Segmentation",
    "14/WAKU2-MESSAGE",
    "17/WAKU2-RLN-RELAY",
    "23/WAKU2-TOPICS",
    "13/WAKU2-STORE",
    "Messaging API and P2P reliability",
    "The service",
]

STATUS = re.compile(r"kept|kept, untested|departs(?: \[ADR \d+\])+|later: \S.*", re.DOTALL)
RECORD = re.compile(r"\[ADR (\d+)\]")
LINK = re.compile(r"^\[ADR (\d+)\]: (\S+)$", re.MULTILINE)
NAME = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Row:
    """One rule of a specification."""

    line: int
    section: str
    where: str
    strength: str
    rule: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]
    status: str


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def rows_of(text: str) -> list[Row]:
    """Return the rows of all tables of a page.

    Raises:
        ValueError: A table has other columns, or a row another number of them.
    """
    rows = []
    section = ""
    in_table = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            in_table = False
            continue
        cells = cells_of(line)
        if not in_table:
            if cells != HEADER:
                raise ValueError(f"line {number}: the columns are {cells}")
            in_table = True
        elif not set(line) <= set("|-"):
            if len(cells) != len(HEADER):
                raise ValueError(f"line {number}: {len(cells)} columns")
            where, strength, rule, modules, tests, status = cells
            names = tuple(NAME.findall(modules)), tuple(NAME.findall(tests))
            rows.append(Row(number, section, where, strength, rule, *names, status))
    return rows


@lru_cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of the functions in a file, also as ``Class::name`` of those in classes."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    names = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    for owner in ast.walk(tree):
        if isinstance(owner, ast.ClassDef):
            names |= {
                f"{owner.name}::{node.name}" for node in owner.body if isinstance(node, kinds)
            }
    return frozenset(names)


def problem_of_test(name: str, root: Path) -> str | None:
    """Return what is wrong with the name of a test, or None; what stands in brackets is ignored."""
    path, _, function = name.partition("::")
    if not (root / path).is_file():
        return f"no file {path}"
    function = function.partition("[")[0]
    if not function.rpartition("::")[2].startswith("test_"):
        return f"{name} is no test"
    if function not in functions_of(root / path):
        return f"no {function} in {path}"
    return None


def problems_of_row(row: Row, root: Path) -> list[str]:
    """Return what is wrong with a row of the page."""
    problems = []
    if not row.where or not row.rule:
        problems.append("says not what it is about")
    if row.strength not in STRENGTHS:
        problems.append(f"no strength {row.strength!r}")
    if STATUS.fullmatch(row.status) is None:
        problems.append(f"no status {row.status!r}")
    problems += [f"no module {name}" for name in row.modules if not (root / name).is_file()]
    problems += filter(None, (problem_of_test(name, root) for name in row.tests))
    problems += [
        f"no record {number}"
        for number in RECORD.findall(row.status)
        if not list((root / "docs" / "adr").glob(f"{int(number):04}-*.md"))
    ]
    is_later, is_untested = row.status.startswith("later"), row.status == "kept, untested"
    if not row.modules and not is_later:
        problems.append("names no module")
    if not row.tests and not is_later and not is_untested:
        problems.append("names no test")
    if row.tests and is_untested:
        problems.append("names a test and is untested")
    return problems


def problems_of(text: str, root: Path) -> list[str]:
    """Return what is wrong with a page."""
    rows = rows_of(text)
    problems = [
        f"line {row.line}: {problem}" for row in rows for problem in problems_of_row(row, root)
    ]
    rules = [(row.section, row.where, row.rule) for row in rows]
    problems += [
        f"twice: {rule}" for rule in sorted({item for item in rules if rules.count(item) > 1})
    ]
    links = dict(LINK.findall(text))
    for number in sorted(
        {number for row in rows for number in RECORD.findall(row.status)}, key=int
    ):
        target = links.get(number, "")
        if (
            not target.startswith(f"adr/{int(number):04}-")
            or not (root / "docs" / target).is_file()
        ):
            problems.append(f"[ADR {number}] leads nowhere")
    return problems


# --- The page ------------------------------------------------------------------------------------


def test_everything_that_the_page_names_exists_and_every_rule_has_its_proof() -> None:
    assert problems_of(PAGE.read_text(encoding="utf-8"), ROOT) == []


def test_every_specification_has_its_table() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert list(dict.fromkeys(row.section for row in rows)) == SPECIFICATIONS


def test_every_statement_of_the_page_is_read() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len(rows_of("\n".join(lines))) == len(tables) - 2 * len(SPECIFICATIONS)
    assert not [line for line in lines if "|" in line and not line.startswith("|")]


# --- The checker ---------------------------------------------------------------------------------

TABLE = "## Some text\n\n| where | strength | rule | module | test | status |\n|---|---|---|---|---|---|\n"
GOOD = "| Here | MUST | It is so | `code.py` | `tests/test_code.py::test_it` | kept |\n"
TESTS = """
def helper(): pass
def test_it(): pass
async def test_later(): pass
class TestAll:
    def test_inside(self): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Make a project with a module, some tests and one record."""
    (tmp_path / "code.py").touch()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_code.py").write_text(TESTS)
    (tmp_path / "docs" / "adr").mkdir(parents=True)
    (tmp_path / "docs" / "adr" / "0007-why.md").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("test_it`", "test_it[one-two]`"),
        ("test_it`", "test_later`"),
        ("test_it`", "test_inside`"),
        ("test_it`", "TestAll::test_inside`"),
        ("test_it`", "test_it`<br>`tests/test_code.py::test_later`"),
        ("`tests/test_code.py::test_it` | kept", " | kept, untested"),
        ("`code.py` | `tests/test_code.py::test_it` | kept", " | | later: a real node"),
        ("kept", "departs [ADR 7]"),
    ],
)
def test_a_sound_row_is_accepted(project: Path, old: str, new: str) -> None:
    page = TABLE + GOOD.replace(old, new) + "\n[ADR 7]: adr/0007-why.md\n"
    assert old in GOOD
    assert problems_of(page, project) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("code.py` |", "gone.py` |", "no module gone.py"),
        ("`code.py` |", "code.py |", "names no module"),
        ("tests/test_code.py", "tests/test_gone.py", "no file tests/test_gone.py"),
        ("test_it", "test_gone", "no test_gone in tests/test_code.py"),
        ("test_it", "TestAll::test_it", "no TestAll::test_it in tests/test_code.py"),
        ("test_it", "helper", "tests/test_code.py::helper is no test"),
        ("::test_it", "", "tests/test_code.py is no test"),
        ("`tests/test_code.py::test_it`", "", "names no test"),
        ("`tests/test_code.py::test_it` | kept", " | departs [ADR 7]", "names no test"),
        ("kept", "kept, untested", "names a test and is untested"),
        ("kept", "done", "no status 'done'"),
        ("kept", "kept, mostly", "no status 'kept, mostly'"),
        ("kept", "later", "no status 'later'"),
        ("kept", "departs", "no status 'departs'"),
        ("kept", "departs, unrecorded", "no status 'departs, unrecorded'"),
        ("kept", "departs [ADR 8]", "no record 8"),
        ("kept", "", "no status ''"),
        ("MUST", "MIGHT", "no strength 'MIGHT'"),
        ("It is so", "", "says not what it is about"),
    ],
)
def test_an_unsound_row_is_found(project: Path, old: str, new: str, problem: str) -> None:
    assert old in GOOD
    page = TABLE + GOOD.replace(old, new) + "\n[ADR 8]: adr/0008-gone.md\n"
    assert f"line 5: {problem}" in problems_of(page, project)


def test_a_rule_that_stands_twice_is_found(project: Path) -> None:
    assert problems_of(TABLE + GOOD + GOOD, project) == ["twice: ('Some text', 'Here', 'It is so')"]


@pytest.mark.parametrize("link", ["", "[ADR 7]: adr/0008-other.md", "[ADR 7]: adr/0007-gone.md"])
def test_a_record_without_its_link_is_found(project: Path, link: str) -> None:
    page = TABLE + GOOD.replace("kept", "departs [ADR 7]") + f"\n{link}\n"
    assert problems_of(page, project) == ["[ADR 7] leads nowhere"]


@pytest.mark.parametrize(
    "page",
    [
        TABLE.replace("| rule ", "") + GOOD,
        TABLE + GOOD.replace("| kept |", "|"),
        TABLE + GOOD.replace("so |", "so | or not |"),
        GOOD,
    ],
    ids=["header", "too few", "too many", "no header"],
)
def test_a_table_of_another_shape_is_found(page: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+: .*columns"):
        rows_of(page)


def test_lines_count_from_one_and_sections_are_kept() -> None:
    (row,) = rows_of(TABLE + GOOD)
    assert (row.line, row.section, row.strength) == (5, "Some text", "MUST")
    assert (row.modules, row.tests) == (("code.py",), ("tests/test_code.py::test_it",))
