"""Who may import whom: the layers as a test.

Imports are read from the syntax tree, wherever they stand: at the top, inside functions, under
``TYPE_CHECKING``, or as a literal name given to ``import_module``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from tests.architecture.source_tree import PACKAGES, Module, lies_in, read_modules

CORE = "reliable_channel.core"
WIRE = "reliable_channel.core.wire"

NOT_IN_CORE = frozenset(
    {
        "asyncio",
        "datetime",
        "os",
        "pydantic",
        "secrets",
        "socket",
        "sqlalchemy",
        "time",
        "uuid",
    }
)
"""Clock, randomness, identifiers and I/O come into the core as arguments."""


@dataclass(frozen=True)
class Import:
    """One imported name.

    Args:
        target: Absolute dotted name; ``from a import b`` is ``a.b``.
        line: Where it stands.
        functions: The functions around it, outermost first; empty at the top of the module.
    """

    target: str
    line: int
    functions: tuple[str, ...] = ()


def imports_of(module: Module) -> list[Import]:
    """List every import of a module, nested ones included."""
    return list(_imports_in(module.tree, module, ()))


def _imports_in(node: ast.AST, module: Module, functions: tuple[str, ...]) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Import(names=names):
                yield from (Import(alias.name, child.lineno, functions) for alias in names)
            case ast.ImportFrom(names=names):
                base = _absolute("." * child.level + (child.module or ""), module)
                for alias in names:
                    yield Import(f"{base}.{alias.name}", child.lineno, functions)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module" | "__import__"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield Import(_absolute(name, module), child.lineno, functions)
        inner = functions
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (*functions, child.name)
        yield from _imports_in(child, module, inner)


def _absolute(name: str, module: Module) -> str:
    """Resolve leading dots: one is the module's own package, each further one a level up."""
    relative = name.lstrip(".")
    level = len(name) - len(relative)
    if not level:
        return name
    parts = module.package.split(".")
    base = ".".join(parts[: len(parts) - level + 1])
    return f"{base}.{relative}" if relative else base


def layer_violations(module: Module) -> list[str]:
    """List the imports of a module that its layer does not allow, one sentence each."""
    return [
        f"{module.name}:{found.line} imports {found.target}: {reason}"
        for found in imports_of(module)
        if (reason := _objection(module.name, found))
    ]


def _objection(importer: str, found: Import) -> str | None:
    own, other = importer.partition(".")[0], found.target.partition(".")[0]
    if lies_in(importer, CORE) and other in NOT_IN_CORE:
        return "the core gets clock, randomness, identifiers and I/O as arguments"
    if other == "tests":
        return "nothing imports the tests"
    if other == own or other not in PACKAGES:
        return None
    match own:
        case "reliable_channel":
            return "the library imports none of the other packages"
        case "messaging_adapter" | "persistence":
            if other != "reliable_channel":
                return f"{own} imports the library only"
            return None if _is_public(found.target) else "public modules and core.wire only"
        case "api":
            if other == "benchmarks" and not _is_lazy_simulate(importer, found):
                return "only the simulate command imports the benchmarks, and lazily"
            return None
        case _:  # benchmarks may import everything
            return None


def _is_public(target: str) -> bool:
    """Public are the library's modules without underscore outside the core, and the wire codecs."""
    private = any(part.startswith("_") and part != "__version__" for part in target.split("."))
    return not private and (not lies_in(target, CORE) or lies_in(target, WIRE))


def _is_lazy_simulate(importer: str, found: Import) -> bool:
    """Inside a function that is, or whose module is, named for the simulate command."""
    places = (importer.rpartition(".")[2], *found.functions)
    return bool(found.functions) and any("simulate" in place for place in places)


def core_detours(modules: Mapping[str, Module]) -> list[str]:
    """List the ways on which the core reaches a forbidden module through the rest of the library.

    The library's ``__init__`` counts only where it is imported by name; Python loads it anyway.
    """
    detours: list[str] = []
    for start in (name for name in modules if lies_in(name, CORE)):
        paths: list[tuple[str, ...]] = [(start,)]
        seen = {start}
        while paths:
            path = paths.pop()
            for found in imports_of(modules[path[-1]]):
                if len(path) > 1 and found.target.partition(".")[0] in NOT_IN_CORE:
                    detours.append(" -> ".join((*path, found.target)))
                step = _module_of(found.target, modules)
                # What lies in the core is a start of its own.
                if step and step not in seen and not lies_in(step, CORE):
                    seen.add(step)
                    paths.append((*path, step))
    return detours


def _module_of(target: str, modules: Mapping[str, Module]) -> str | None:
    """Give the module that an imported name is, or lies in; None when it is not one of ours."""
    return next((name for name in (target, target.rpartition(".")[0]) if name in modules), None)


def hidden_randomness(module: Module) -> list[str]:
    """List the uses of `random` that are not the class of a generator with a seed."""
    problems = []
    bound = {
        alias.asname or alias.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "random"
    }
    for node in ast.walk(module.tree):
        match node:
            case ast.Attribute(value=ast.Name(id=of), attr=name) if (
                of in bound and name != "Random"
            ):
                problems.append(f"{module.name}:{node.lineno} uses random.{name}")
            case ast.ImportFrom(module="random", names=names) if {n.name for n in names} != {
                "Random"
            }:
                problems.append(f"{module.name}:{node.lineno} imports more than random.Random")
            case ast.Call(
                func=ast.Name(id="Random") | ast.Attribute(attr="Random"), args=[], keywords=[]
            ):
                problems.append(f"{module.name}:{node.lineno} makes a generator without a seed")
    return problems


# --- The project ---------------------------------------------------------------------------------


def test_every_package_is_looked_at() -> None:
    """Without this the tests below would pass on an empty folder."""
    modules = read_modules(*PACKAGES)
    assert set(PACKAGES) <= modules.keys()
    assert any(lies_in(name, WIRE) for name in modules)


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    modules = read_modules(package)
    assert [line for module in modules.values() for line in layer_violations(module)] == []


def test_core_reaches_nothing_forbidden_through_the_library() -> None:
    assert core_detours(read_modules("reliable_channel")) == []


def test_core_draws_no_randomness_of_its_own() -> None:
    modules = [m for m in read_modules("reliable_channel").values() if lies_in(m.name, CORE)]
    assert [line for module in modules for line in hidden_randomness(module)] == []


# --- The checks themselves -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("import a.b, c", ["a.b", "c"]),
        ("import a.b as x", ["a.b"]),
        ("from a import b, c", ["a.b", "a.c"]),
        ("from . import b", ["pack.sub.b"]),
        ("from .m import b", ["pack.sub.m.b"]),
        ("from ..m import b", ["pack.m.b"]),
        ("from .. import b", ["pack.b"]),
        ("if x:\n    try:\n        import a\n    finally:\n        pass", ["a"]),
        ("class C:\n    def m(self):\n        import a", ["a"]),
        ("importlib.import_module('a.b')", ["a.b"]),
        ("import_module('.b', __package__)", ["pack.sub.b"]),
        ("__import__('a')", ["a"]),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, targets: list[str]) -> None:
    assert [found.target for found in imports_of(Module("pack.sub.mod", source))] == targets


def test_relative_imports_of_a_package_count_from_itself() -> None:
    module = Module("pack.sub", "from . import b\nfrom .. import c", is_package=True)
    assert [found.target for found in imports_of(module)] == ["pack.sub.b", "pack.c"]


def test_functions_around_an_import_are_known() -> None:
    module = Module("pack.mod", "async def f():\n    def g():\n        import a")
    assert imports_of(module) == [Import("a", 3, ("f", "g"))]


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("reliable_channel.channel", "import messaging_adapter"),
        ("reliable_channel.channel", "from persistence.memory import MemoryStore"),
        ("reliable_channel.channel", "def f():\n    import api"),
        ("reliable_channel.channel", "from tests.support import clock"),
        ("reliable_channel.core.machine", "import time"),
        ("reliable_channel.core.machine", "from os.path import join"),
        ("reliable_channel.core.machine", "import asyncio.events"),
        ("reliable_channel.core.wire.sds", "def f():\n    from datetime import datetime"),
        ("messaging_adapter.memory", "from persistence import open_store"),
        ("messaging_adapter.memory", "import reliable_channel.core"),
        ("messaging_adapter.memory", "from reliable_channel import core"),
        ("messaging_adapter.memory", "from reliable_channel.core import machine"),
        ("messaging_adapter.memory", "from reliable_channel.core.machine import ChannelMachine"),
        ("messaging_adapter.memory", "from reliable_channel._private import thing"),
        ("messaging_adapter.memory", "from reliable_channel.ports import _thing"),
        ("persistence.sql", "import messaging_adapter"),
        ("persistence.sql", "from api import settings"),
        ("persistence.sql", "importlib.import_module('benchmarks.trial')"),
        ("api.cli", "import benchmarks"),
        ("api.cli", "def serve():\n    import benchmarks"),
        ("api.simulate", "from benchmarks import trial"),
        ("benchmarks.trial", "import tests.support"),
    ],
)
def test_check_refuses(importer: str, source: str) -> None:
    assert len(layer_violations(Module(importer, source))) == 1


@pytest.mark.parametrize(
    ("importer", "source"),
    [
        ("reliable_channel.channel", "import asyncio, time\nfrom reliable_channel.core import x"),
        ("reliable_channel.core.machine", "import hashlib\nfrom . import effects"),
        ("reliable_channel.core.machine", "from .timekeeping import time"),
        ("messaging_adapter.memory", "from reliable_channel import ConfigurationError, ports"),
        ("messaging_adapter.memory", "from reliable_channel.ports import MessagingNode"),
        ("messaging_adapter.memory", "from reliable_channel.core.wire import WakuMessage"),
        ("messaging_adapter.memory", "from reliable_channel.core import wire"),
        ("persistence.sql", "import sqlalchemy, os\nfrom reliable_channel.core.wire.sds import x"),
        ("api.app", "import messaging_adapter, persistence, reliable_channel.core.machine"),
        ("api.cli", "def simulate_run():\n    from benchmarks import trial"),
        ("api.simulate", "def run():\n    import benchmarks"),
        ("benchmarks.trial", "import api, messaging_adapter, persistence, reliable_channel.core"),
    ],
)
def test_check_allows(importer: str, source: str) -> None:
    assert layer_violations(Module(importer, source)) == []


def test_detour_of_the_core_is_found() -> None:
    sources = {
        "reliable_channel": "import asyncio",
        "reliable_channel.core": "",
        "reliable_channel.core.machine": "from reliable_channel.helpers import stamp",
        "reliable_channel.core.other": "from reliable_channel.core import machine",
        "reliable_channel.helpers": "from reliable_channel import deeper",
        "reliable_channel.deeper": "def now():\n    from time import time_ns",
        "reliable_channel.channel": "import asyncio",
    }
    modules = {name: Module(name, source) for name, source in sources.items()}
    assert core_detours(modules) == [
        "reliable_channel.core.machine -> reliable_channel.helpers -> reliable_channel.deeper"
        " -> time.time_ns"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "import random\nx = random.random()",
        "import random\nrandom.seed(1)",
        "import random\nx = random.Random()",
        "import random as r\nx = r.SystemRandom()",
        "from random import choice",
        "from random import Random\nx = Random()",
    ],
)
def test_hidden_randomness_is_found(source: str) -> None:
    assert len(hidden_randomness(Module("reliable_channel.core.machine", source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import random\ndef f(rng: random.Random) -> float:\n    return rng.random()",
        "from random import Random\ndef f(random: Random) -> float:\n    return random.random()",
        "from random import Random\nx = Random(7)",
        "import random\nx = random.Random(f'{seed}')",
    ],
)
def test_injected_randomness_is_allowed(source: str) -> None:
    assert hidden_randomness(Module("reliable_channel.core.machine", source)) == []
