"""The wheel as users get it: its contents, and running it from an environment of its own.

The environment is empty but for what the wheel declares, so a forgotten dependency shows. Nothing
is downloaded: the declared distributions are taken, file by file, from the running environment.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source_tree import PACKAGES, ROOT, read_modules

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NEEDS_MORE: dict[str, str] = {"persistence.testing": "pytest"}
"""Modules that the core dependencies are not enough for, with what they need besides."""

LABORATORY = "benchmarks.laboratory"

EXTRA = ("matplotlib", "pandas", "pyarrow", "pyspark")
"""What only the loss laboratory may need besides: the extra ``spark``."""

WITHOUT_EXTRA = {f"{LABORATORY}.command", f"{LABORATORY}.grids", f"{LABORATORY}.parameters"}
"""What lists grids, and says what is not installed, must not need it."""

POISON = "raise RuntimeError('imported from the current folder')\n"


# --- Building and installing ---------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """What ``python -m build`` made: the wheel comes from the source distribution."""

    wheel: Path
    sdist: Path


@dataclass(frozen=True)
class Environment:
    """A virtual environment that holds the wheel and what it declares, nothing else."""

    folder: Path

    @property
    def scripts(self) -> Path:
        """The folder of the programs."""
        return self.folder / ("Scripts" if os.name == "nt" else "bin")

    @property
    def python(self) -> str:
        """The interpreter."""
        return str(self.scripts / "python")

    @property
    def command(self) -> str:
        """The installed console script."""
        return str(self.scripts / "reliable-channel")


def run(*command: str | Path, cwd: Path) -> str:
    """Run a program to its end, without the settings of the running Python.

    Args:
        command: Program and arguments.
        cwd: Where it runs.

    Returns:
        What it wrote to its standard output, stripped.
    """
    env = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV" and not k.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.strip()


def declared(requirements: list[str]) -> dict[str, metadata.Distribution]:
    """Find the installed distributions that requirements ask for, directly or through others."""
    found: dict[str, metadata.Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(Requirement(text), "") for text in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            found[name] = metadata.distribution(name)
            waiting += [(Requirement(text), wanted) for text in found[name].requires or ()]
    return found


def transplant(distribution: metadata.Distribution, target: Path) -> None:
    """Put the files of an installed distribution into another environment's package folder."""
    assert distribution.files, f"{distribution.name} does not say which files are its own"
    for file in distribution.files:
        source = Path(str(distribution.locate_file(file)))
        # Programs lie outside the package folder; compiled files are made again where needed.
        if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
            continue
        copy = target / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build both distributions once."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@pytest.fixture(scope="module")
def environment(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install the wheel into an environment of its own, once."""
    environment = Environment(tmp_path_factory.mktemp("environment") / "venv")
    venv.create(environment.folder, symlinks=os.name != "nt")
    here = environment.folder
    find_packages = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(environment.python, "-c", find_packages, cwd=here))
    pip = [sys.executable, "-m", "pip", "--python", environment.python, "--quiet"]
    run(*pip, "install", "--no-deps", "--no-index", built.wheel, cwd=here)
    with zipfile.ZipFile(built.wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        headers = HeaderParser().parsestr(archive.read(path).decode())
    for distribution in declared(headers.get_all("Requires-Dist", [])).values():
        transplant(distribution, packages)
    return environment


@pytest.fixture
def poisoned(tmp_path: Path) -> Iterator[Path]:
    """Make a folder whose own packages have our names, and fail when they are imported."""
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(POISON)
        (tmp_path / package / "__main__.py").write_text(POISON)
    yield tmp_path
    assert not list(tmp_path.rglob("__pycache__")), "something here was imported"


# --- Contents ------------------------------------------------------------------------------------


def test_wheel_holds_the_packages_and_nothing_else(built: Built) -> None:
    names = zipfile.ZipFile(built.wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    (info,) = tops - set(PACKAGES)
    assert info.endswith(".dist-info")
    assert set(PACKAGES) <= tops
    for module in read_modules(*PACKAGES).values():
        path = module.name.replace(".", "/") + ("/__init__.py" if module.is_package else ".py")
        assert path in names
    # Data files count, too: definitions, pages, grids.
    for package in PACKAGES:
        for file in (path.relative_to(ROOT) for path in (ROOT / package).rglob("*.*")):
            if "__pycache__" not in file.parts and not file.name.startswith("."):
                assert file.as_posix() in names


def test_wheel_is_typed_and_licensed(built: Built) -> None:
    archive = zipfile.ZipFile(built.wheel)
    names = archive.namelist()
    for package in ("reliable_channel", "messaging_adapter", "persistence", "api"):
        assert f"{package}/py.typed" in names
    for licence in ("LICENSE", "LICENSE-MIT", "LICENSE-APACHE"):
        (path,) = [name for name in names if name.endswith(f".dist-info/licenses/{licence}")]
        assert archive.read(path) == (ROOT / licence).read_bytes()


def test_source_distribution_holds_tests_and_documents(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "Makefile", "pyproject.toml", "LICENSE-MIT", "CHANGELOG.md"} <= names
    assert "tests/architecture/test_wheel.py" in names
    assert "tests/interop/js/package-lock.json" in names
    assert not [name for name in names if name.startswith((".venv", ".git/", "dist/"))]
    assert not [name for name in names if "node_modules" in name]


# --- Running -------------------------------------------------------------------------------------


def test_command_wins_over_packages_in_the_current_folder(
    built: Built, environment: Environment, poisoned: Path
) -> None:
    version = built.wheel.name.split("-")[1]
    assert version in run(environment.command, "--version", cwd=poisoned)
    assert "demo" in run(environment.command, "--help", cwd=poisoned)


def test_module_runs_like_the_command(
    built: Built, environment: Environment, poisoned: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """``python -m`` puts the current folder first, as Python documents; ``-P`` keeps it out."""
    version = built.wheel.name.split("-")[1]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert version in run(environment.python, "-m", "api", "--version", cwd=elsewhere)
    assert version in run(environment.python, "-P", "-m", "api", "--version", cwd=poisoned)


def test_child_processes_import_the_installed_packages(
    environment: Environment, poisoned: Path
) -> None:
    """A program beside the console script starts children as that one would."""
    script = environment.scripts / "children.py"
    script.write_text(
        "import importlib, multiprocessing\n"
        "def where(name):\n"
        "    return importlib.import_module(name).__file__\n"
        "if __name__ == '__main__':\n"
        "    for method in multiprocessing.get_all_start_methods():\n"
        "        with multiprocessing.get_context(method).Pool(1) as pool:\n"
        f"            print('\\n'.join(pool.map(where, {PACKAGES!r})))\n"
    )
    for options in ([], ["-P"]):
        files = run(environment.python, *options, script, cwd=poisoned).splitlines()
        assert files
        assert [file for file in files if not Path(file).is_relative_to(environment.folder)] == []


def test_declared_dependencies_are_enough(environment: Environment, tmp_path: Path) -> None:
    names = [name for name in read_modules(*PACKAGES) if not name.endswith("__main__")]
    script = tmp_path / "import_all.py"
    script.write_text(
        "import importlib, sys\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except ImportError as error:\n"
        "        print(f'{name}: {error}')\n"
    )
    failed = dict(
        line.split(": ", 1)
        for line in run(environment.python, "-P", script, *names, cwd=tmp_path).splitlines()
    )
    assert {*names} >= WITHOUT_EXTRA
    missing = {f"No module named '{name}'" for name in EXTRA}
    without_extra = {
        name
        for name, why in failed.items()
        if name.startswith(LABORATORY) and name not in WITHOUT_EXTRA and why in missing
    }
    excused = without_extra | NEEDS_MORE.keys()
    assert {name: why for name, why in failed.items() if name not in excused} == {}
    assert NEEDS_MORE.keys() <= failed.keys()


# --- The checks themselves -----------------------------------------------------------------------


def test_poison_works(poisoned: Path) -> None:
    code = "import sys; sys.path.insert(0, ''); import api"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=poisoned, capture_output=True, check=False
    )
    assert b"imported from the current folder" in done.stderr


def test_declared_distributions_are_followed() -> None:
    found = declared(["pytest", "eth-hash[pycryptodome]", "nowhere; python_version < '3'"])
    assert {"pytest", "pluggy", "eth-hash", "pycryptodome"} <= found.keys()
    assert "ruff" not in found
    assert "pycryptodome" not in declared(["eth-hash"])
