"""House rules that linters do not know: docstrings, exports, the map from modules to unit tests."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import pytest

from tests.architecture.source_tree import LIBRARY, PACKAGES, ROOT, Module, read_modules

WITHOUT_UNIT_TEST: dict[str, str] = {}
"""Modules with code that other tests cover, and which: ``{"api.cli": "tests/api runs it"}``."""


# --- Text and syntax -----------------------------------------------------------------------------


def lacks_docstring(module: Module) -> bool:
    """Say whether a module does not say what it is for."""
    return not (ast.get_docstring(module.tree) or "").strip()


def prints(module: Module) -> list[int]:
    """List the lines that call `print`."""
    return [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def bare_excepts(module: Module) -> list[int]:
    """List the lines with an ``except:`` that would swallow even a cancellation."""
    return [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler) and node.type is None
    ]


LAZY: frozenset[str] = frozenset({"enumerate", "zip", "map", "filter", "iter", "chain", "islice"})
"""Calls that take from a generator only what is asked for."""


def lazy_generators(module: Module) -> list[int]:
    """List the lines with a generator expression that is not used up where it stands.

    Compiled code makes a list of it: what takes the first few of many would go through all of them. A function that
    yields stays lazy.
    """
    used_up = {id(node.value) for node in ast.walk(module.tree) if isinstance(node, ast.Starred)}
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in LAZY:
                pass
            case ast.Call(args=arguments):
                used_up |= set(map(id, arguments))
    return [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.GeneratorExp) and id(node) not in used_up
    ]


# --- Exports -------------------------------------------------------------------------------------


def exports(module: Module) -> list[str] | None:
    """Read the names in ``__all__``; None when the module has none."""
    for node in module.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case ast.AnnAssign(target=ast.Name(id="__all__"), value=ast.expr() as value):
                return list(ast.literal_eval(value))
    return None


def in_house_order(names: Iterable[str]) -> list[str]:
    """Sort as ruff's RUF022 does: CONSTANTS, Classes, the rest; numbers by their value."""

    def key(name: str) -> tuple[int, list[tuple[int, str]]]:
        kind = 0 if len(name) > 1 and name.isupper() else 1 if name[:1].isupper() else 2
        pieces = re.findall(r"\d+|\D+", name)
        return kind, [(int(p), "") if p.isdigit() else (-1, p) for p in pieces]

    return sorted(set(names), key=key)


def is_documented(name: str, module: Module, modules: Mapping[str, Module]) -> bool:
    """Say whether a name has a docstring where it is defined.

    Classes and functions have one of their own; a constant or an alias has a string below or a
    comment of its own, or is another name for something documented.

    Args:
        name: As written in ``__all__``.
        module: The module that exports it.
        modules: All modules in which the definition may be, by dotted name.
    """
    body = module.tree.body
    for position, node in enumerate(body):
        match node:
            case (
                ast.ClassDef(name=defined)
                | ast.FunctionDef(name=defined)
                | ast.AsyncFunctionDef(name=defined)
            ) if defined == name:
                return bool(ast.get_docstring(node))
            case ast.ImportFrom(names=aliases):
                for alias in aliases:
                    if name == (alias.asname or alias.name):
                        return _is_documented_elsewhere(node, alias.name, module, modules)
            case (
                ast.Assign(targets=[ast.Name(id=defined)], value=value)
                | ast.AnnAssign(target=ast.Name(id=defined), value=value)
            ) if defined == name:
                if _has_string_below(body, position) or _has_comment(module.source, node):
                    return True
                return isinstance(value, ast.Name) and is_documented(value.id, module, modules)
    return False


def _is_documented_elsewhere(
    node: ast.ImportFrom, name: str, module: Module, modules: Mapping[str, Module]
) -> bool:
    origin = node.module or ""
    if node.level:
        parts = module.package.split(".")
        origin = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
    if f"{origin}.{name}" in modules:  # a module as a name
        return not lacks_docstring(modules[f"{origin}.{name}"])
    return origin in modules and is_documented(name, modules[origin], modules)


def _has_string_below(body: list[ast.stmt], position: int) -> bool:
    following = body[position + 1 : position + 2]
    match following:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return bool(text.strip())
    return False


def _has_comment(source: str, node: ast.stmt) -> bool:
    lines = source.splitlines()
    above = lines[node.lineno - 2].strip() if node.lineno > 1 else ""
    return above.startswith("#") or "  # " in lines[node.lineno - 1]


def export_problems(module: Module, modules: Mapping[str, Module]) -> list[str]:
    """List what is wrong with a module's ``__all__``, one sentence each."""
    names = exports(module)
    if names is None:
        return []
    problems = []
    if names != in_house_order(names):
        problems.append(f"{module.name}.__all__ is not sorted, or names something twice")
    problems += [
        f"{module.name}.{name} is public and has no docstring"
        for name in names
        if name != "__version__" and not is_documented(name, module, modules)
    ]
    return problems


# --- Modules and their unit tests ----------------------------------------------------------------


def has_code(module: Module) -> bool:
    """Say whether a module defines a function that does something.

    Plain data, re-exports and Protocols are only declarations.
    """
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_declaration(node)
        for node in ast.walk(module.tree)
    )


def _is_declaration(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Say whether the body is nothing but a docstring and ``...``."""
    return all(
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for node in function.body
    )


def unit_test_of(module: Module) -> str:
    """Give the path, below ``tests/unit``, where the tests of a module belong."""
    *folders, last = module.name.split(".")
    if module.is_package:
        return "/".join([*folders, last, "test_init.py"])
    return "/".join([*folders, f"test_{last.strip('_')}.py"])


def mirror_problems(
    modules: Iterable[Module], test_files: Iterable[str], excused: Mapping[str, str]
) -> list[str]:
    """Compare modules with unit test files, in both directions.

    Args:
        modules: All modules that the wheel holds.
        test_files: Paths below ``tests/unit``, with ``/``.
        excused: Modules that need no unit test file, with the reason.

    Returns:
        One sentence for each module without tests, test file without module, needless excuse.
    """
    expected = {unit_test_of(module): module for module in modules}
    present = {path for path in test_files if PurePosixPath(path).name.startswith("test_")}
    missing = {
        module.name: path
        for path, module in expected.items()
        if has_code(module) and path not in present
    }
    return [
        *(f"tests/unit/{path} names no module" for path in sorted(present - expected.keys())),
        *(
            f"{name} has no tests/unit/{path}"
            for name, path in sorted(missing.items())
            if name not in excused
        ),
        *(
            f"{name} needs no excuse"
            for name, reason in sorted(excused.items())
            if name not in missing or not reason.strip()
        ),
    ]


# --- The project ---------------------------------------------------------------------------------


def test_every_module_says_what_it_is_for() -> None:
    modules = read_modules(*PACKAGES)
    assert modules
    assert [name for name, module in modules.items() if lacks_docstring(module)] == []


def test_the_library_does_not_print() -> None:
    lines = {name: prints(module) for name, module in read_modules(*LIBRARY).items()}
    assert {name: found for name, found in lines.items() if found} == {}


def test_nothing_is_swallowed_by_a_bare_except() -> None:
    lines = {name: bare_excepts(module) for name, module in read_modules(*PACKAGES).items()}
    assert {name: found for name, found in lines.items() if found} == {}


def test_the_core_does_the_same_when_it_is_compiled() -> None:
    core = {
        name: module
        for name, module in read_modules("reliable_channel").items()
        if name.startswith("reliable_channel.core.")
    }
    lines = {name: lazy_generators(module) for name, module in core.items()}
    assert core
    assert {name: found for name, found in lines.items() if found} == {}


def test_exports_are_sorted_and_documented() -> None:
    modules = read_modules(*PACKAGES)
    assert [line for module in modules.values() for line in export_problems(module, modules)] == []


@pytest.mark.parametrize("package", LIBRARY)
def test_exports_of_the_library_resolve(package: str) -> None:
    names = exports(read_modules(package)[package])
    assert names, f"{package} says in __all__ what is public"
    imported = importlib.import_module(package)
    assert [name for name in names if not hasattr(imported, name)] == []


def test_unit_tests_mirror_the_modules() -> None:
    unit = ROOT / "tests" / "unit"
    files = [path.relative_to(unit).as_posix() for path in unit.rglob("*.py")]
    modules = read_modules(*PACKAGES).values()
    assert mirror_problems(modules, files, WITHOUT_UNIT_TEST) == []


# --- The checks themselves -----------------------------------------------------------------------


@pytest.mark.parametrize("source", ["", "import a", "'  '", "# a comment\nx = 1\n'late'"])
def test_missing_docstring_is_found(source: str) -> None:
    assert lacks_docstring(Module("pack.mod", source))


def test_docstring_is_accepted() -> None:
    assert not lacks_docstring(Module("pack.mod", '# !\n"""What it is for."""\nimport a'))


def test_print_is_found() -> None:
    source = "def f():\n    print(1)\n    log.print(2)\n    'print(3)'"
    assert prints(Module("pack.mod", source)) == [2]


def test_lazy_generator_is_found() -> None:
    source = "\n".join(
        (
            "def f(items):",
            "    for number, item in enumerate(i for i in items): pass",
            "    first = next(i for i in items)",
            "    g(*(i for i in items))",
            "    h = (i for i in items)",
            "    j = [*(i for i in items)]",
            "    return (i for i in items)",
        )
    )
    assert sorted(lazy_generators(Module("pack.mod", source))) == [2, 5, 7]


def test_bare_except_is_found() -> None:
    source = "try:\n    f()\nexcept ValueError:\n    pass\nexcept:\n    pass"
    assert bare_excepts(Module("pack.mod", source)) == [5]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("__all__ = ('a', 'b')", ["a", "b"]),
        ("__all__ = ['a']", ["a"]),
        ("__all__: tuple[str, ...] = ('a',)", ["a"]),
        ("a = 1", None),
    ],
)
def test_exports_are_read(source: str, names: list[str] | None) -> None:
    assert exports(Module("pack", source)) == names


def test_house_order() -> None:
    names = ["open_store", "Store", "X2", "X10", "createNode", "create_node", "MAX_SIZE", "AB"]
    expected = ["AB", "MAX_SIZE", "X2", "X10", "Store", "createNode", "create_node", "open_store"]
    assert in_house_order(names) == expected


@pytest.mark.parametrize("names", ["('b', 'a')", "('a', 'B')", "('a', 'a')", "('x10', 'x2')"])
def test_unsorted_exports_are_found(names: str) -> None:
    source = "\n".join([f"__all__ = {names}", *(f"{n} = 1  # said" for n in ("a", "b", "B"))])
    source += "\nx2 = x10 = 1"
    module = Module("pack", source, is_package=True)
    assert any("not sorted" in line for line in export_problems(module, {"pack": module}))


UNDOCUMENTED = [
    "def x(): ...",
    "class x:\n    a: int",
    "x = 1",
    "x: int = 1\ny = 2\n'''Of y.'''",
    "def y(): ...\nx = y",
    "from pack.other import bare as x",
    "from .other import bare as x",
    "from elsewhere import x",
    "y = 1  # said",
]

DOCUMENTED = [
    "def x():\n    'Doc.'",
    "async def x():\n    'Doc.'",
    "class x:\n    'Doc.'",
    "x = 1\n'''Doc.'''",
    "x: int = 1\n'''Doc.'''",
    "# Doc.\nx = 1",
    "x = 1  # Doc.",
    "def y():\n    'Doc.'\nx = y",
    "from pack.other import said as x",
    "from .other import said as x",
    "from . import other as x",
    "from pack.other import said\nx = said",
]


def _export_x(body: str) -> list[str]:
    module = Module("pack", f"__all__ = ('x',)\n{body}", is_package=True)
    other = Module("pack.other", "'Doc.'\ndef bare(): ...\ndef said():\n    'Doc.'")
    return export_problems(module, {"pack": module, "pack.other": other})


@pytest.mark.parametrize("body", UNDOCUMENTED)
def test_undocumented_export_is_found(body: str) -> None:
    assert _export_x(body) == ["pack.x is public and has no docstring"]


@pytest.mark.parametrize("body", DOCUMENTED)
def test_documented_export_is_accepted(body: str) -> None:
    assert _export_x(body) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f():\n    return 1", True),
        ("class C:\n    async def m(self):\n        await x", True),
        ("if x:\n    def f():\n        pass", True),
        ("'Doc.'\nfrom a import b\n__all__ = ('b',)", False),
        ("class C:\n    'Doc.'\n    a: int = 1", False),
        ("class P(Protocol):\n    def m(self):\n        'Doc.'\n    def n(self): ...", False),
    ],
)
def test_code_is_told_from_declarations(source: str, *, expected: bool) -> None:
    assert has_code(Module("pack.mod", source)) is expected


CODE = "def f():\n    return 1"


@pytest.mark.parametrize(
    ("module", "path"),
    [
        (Module("a.b.c", CODE), "a/b/test_c.py"),
        (Module("a.b", CODE, is_package=True), "a/b/test_init.py"),
        (Module("a._c", CODE), "a/test_c.py"),
        (Module("a.__main__", CODE), "a/test_main.py"),
    ],
)
def test_place_of_unit_tests(module: Module, path: str) -> None:
    assert unit_test_of(module) == path
    assert mirror_problems([module], [path], {}) == []
    assert mirror_problems([module], [], {}) == [f"{module.name} has no tests/unit/{path}"]
    assert mirror_problems([module], [], {module.name: "covered elsewhere"}) == []


def test_unit_test_without_module_is_found() -> None:
    modules = [Module("a.c", "x = 1")]
    files = ["a/test_b.py", "a/test_c.py", "conftest.py", "a/helpers.py"]
    assert mirror_problems(modules, files, {}) == ["tests/unit/a/test_b.py names no module"]


@pytest.mark.parametrize(
    ("source", "files", "excused"),
    [
        (CODE, ["a/test_c.py"], {"a.c": "has a test after all"}),
        (CODE, ["a/test_c.py"], {"a.gone": "no longer there"}),
        ("x = 1", [], {"a.c": "has no code"}),
        (CODE, [], {"a.c": " "}),
    ],
)
def test_needless_excuse_is_found(source: str, files: list[str], excused: dict[str, str]) -> None:
    name = next(iter(excused))
    assert mirror_problems([Module("a.c", source)], files, excused) == [f"{name} needs no excuse"]
