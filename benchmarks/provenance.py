"""Where figures come from: commit, versions, machine, and what else the machine did before and after.

It must not change anything, and needs neither git nor Node.js to be there.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from benchmarks import peer_speed
from reliable_channel.core.build import IS_COMPILED

ROOT: Final = Path(__file__).parents[1]

PACKAGES: Final = {
    "numpy": "numpy",
    "pycryptodome": "pycryptodome",
    "pysha3": "safe-pysha3",
    "protobuf": "protobuf",
    "mmh3": "mmh3",
    "zfec": "zfec",
    "reedsolo": "reedsolo",
    "sqlalchemy": "SQLAlchemy",
    "psycopg": "psycopg",
    "fastapi": "fastapi",
    "uvicorn": "uvicorn",
    "uvloop": "uvloop",
    "pyspark": "pyspark",
}
"""Distributions whose speed is in the figures, by the name they are shown under."""


def here() -> dict[str, Any]:
    """Return what is known of this run before it begins, as JSON values."""
    return {
        "commit": commit(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": machine(),
    }


def commit() -> dict[str, Any]:
    """Return the commit, and whether files differ from it; empty outside a repository."""
    name = output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    if not name:
        return {"id": "", "changed": False}
    changes = output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return {"id": name, "changed": bool(changes)}


def versions() -> dict[str, str]:
    """Return the version of each program and package whose speed is measured; what is not there is left out.

    Of the protocol core it is the build: compiled, or interpreted.
    """
    found = {
        "core": "compiled" if IS_COMPILED else "interpreted",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    for name, distribution in PACKAGES.items():
        try:
            found[name] = version(distribution)
        except PackageNotFoundError:
            continue
    found["node"] = output("node", "--version").removeprefix("v")
    manifest = peer_speed.PACKAGE / "package.json"
    if manifest.is_file():
        found["@waku/sds"] = json.loads(manifest.read_text())["version"]
    return {name: text for name, text in found.items() if text}


def machine() -> dict[str, Any]:
    """Return what this machine is."""
    return {
        "cpu": cpu_model(),
        "cores": os.cpu_count() or 1,
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
    }


def cpu_model(listing: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor as far as the system tells it."""
    if listing.is_file():
        for line in listing.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


def load() -> list[float]:
    """Return the load of the last 1, 5 and 15 minutes; empty where there is none."""
    return [round(value, 2) for value in os.getloadavg()] if hasattr(os, "getloadavg") else []


def output(program: str, *arguments: str) -> str:
    """Return what a program says; nothing where it is not there, fails or hangs."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
