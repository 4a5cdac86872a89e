"""Packs our packages into an archive that Spark gives to its workers, which need not have them installed.

The workers do need what our packages import from others, compiled for their Python: numpy, pyarrow and so on. The
archive holds compiled modules beside their sources: an archive's modules would be compiled anew in every worker.

Spec: none of its own; zipimport of Python's library.
"""

from __future__ import annotations

import importlib
import py_compile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

PACKAGES: Final = ("benchmarks", "messaging_adapter", "reliable_channel")
"""What a trial imports of our packages."""


def pack(folder: Path) -> Path:
    """Write the archive into a folder and return its path."""
    target = folder / "reliable_channel_laboratory.zip"
    with (
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive,
        TemporaryDirectory() as made,
    ):
        compiled = str(Path(made) / "module.pyc")
        for package in PACKAGES:
            root = home_of(package)
            for path in sorted(root.rglob("*")):
                name = path.relative_to(root.parent)
                if path.is_dir() or "__pycache__" in name.parts:
                    continue
                archive.write(path, name)
                if path.suffix == ".py":
                    py_compile.compile(
                        str(path),
                        compiled,
                        dfile=str(name),
                        doraise=True,
                        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                    )
                    archive.write(compiled, name.with_suffix(".pyc"))
    return target


def home_of(package: str) -> Path:
    """Return the folder of an imported package, in the source tree or where a wheel was installed."""
    (folder,) = importlib.import_module(package).__path__
    return Path(folder)
