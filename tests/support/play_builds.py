"""Plays channels of the laboratory and says what came out, byte for byte; with ``sources``, never with extensions.

Run as a program by ``tests/simulation/test_builds.py``.
"""

from __future__ import annotations

import hashlib
import sys
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from typing import Final

CORE: Final = Path(__file__).parents[2] / "reliable_channel" / "core"
GRIDS: Final = ("smoke", "parity", "ratelimit", "bloom", "groups")
CELLS: Final = 6
CHANNELS: Final = 6


def take_sources() -> None:
    """Let the modules of the core be loaded from their sources, whatever lies beside them."""

    def finder(path: str) -> FileFinder:
        if not Path(path).is_relative_to(CORE):
            raise ImportError(path)
        return FileFinder(path, (SourceFileLoader, [".py"]))

    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.clear()


def main() -> None:
    """Play the first cells of some grids, and print which build it was, how many steps there were, and their hash."""
    if sys.argv[1:] == ["sources"]:
        take_sources()
    from benchmarks.laboratory.grids import load_grid
    from benchmarks.laboratory.trial import run_trial
    from reliable_channel.core.build import IS_COMPILED

    steps, digest = 0, hashlib.sha256()
    for name in GRIDS:
        for cell in load_grid(name).cells[:CELLS]:
            for channel in range(CHANNELS):
                trace: list[bytes] = []
                trial = run_trial(cell, 0, channel, trace=trace)
                steps += len(trace)
                for step in trace:
                    digest.update(step)
                digest.update(f"{trial.digest_high} {trial.digest_low}".encode())
    build = "compiled" if IS_COMPILED else "interpreted"
    sys.stdout.write(f"{build} {steps} {digest.hexdigest()}\n")


if __name__ == "__main__":
    main()
