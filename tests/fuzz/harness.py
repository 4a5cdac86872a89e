"""Runs a fuzz target: under Atheris where it is installed, else over the kept corpus.

Atheris is an extra (``pip install 'reliable-channel[fuzz]'``); the tests need it not: ``test_corpus`` runs every kept
file and seeded mutations of them.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

CORPUS: Final = Path(__file__).parent / "corpus"
"""One folder of inputs for each target."""


def kept(name: str) -> list[bytes]:
    """Return the inputs kept for a target."""
    return [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]


def mutations(inputs: list[bytes], seed: int, count: int) -> Iterator[bytes]:
    """Yield inputs with a few bytes changed, cut, repeated or taken from another input."""
    random = Random(seed)
    for _ in range(count):
        data = bytearray(random.choice(inputs))
        for _ in range(random.randint(1, 6)):
            place = random.randint(0, len(data))
            end = min(len(data), place + random.randint(1, 16))
            other = random.choice(inputs)
            begin = random.randint(0, len(other))
            match random.randrange(5):
                case 0:
                    data[place:end] = random.randbytes(end - place)
                case 1:
                    del data[place:end]
                case 2:
                    data[place:place] = data[place:end]
                case 3:
                    data[place:end] = other[begin : begin + random.randint(1, 64)]
                case _:
                    if place < len(data):
                        data[place] ^= 1 << random.randrange(8)
        yield bytes(data)


def main(name: str) -> None:
    """Run the target ``tests.fuzz.fuzz_<name>`` by hand; arguments go to libFuzzer.

    What is found new goes to ``out/fuzz/<name>`` below the working directory; the kept corpus is only read.

    Args:
        name: Of the target and of the folder of its corpus.
    """
    module = f"tests.fuzz.fuzz_{name}"
    try:
        atheris: Any = importlib.import_module("atheris")
    except ImportError:
        target = importlib.import_module(module).one_input
        inputs = kept(name)
        for data in inputs:
            target(data)
        sys.stdout.write(f"atheris is not installed; {len(inputs)} kept inputs pass\n")
        return
    # Imported anew, so that Atheris sees every branch taken.
    old = ("reliable_channel", "tests.support")
    for loaded in [item for item in sys.modules if item.startswith(old)]:
        del sys.modules[loaded]
    with atheris.instrument_imports(include=["reliable_channel"]):
        target = importlib.import_module(module).one_input
    found = Path("out", "fuzz", name)
    found.mkdir(parents=True, exist_ok=True)
    atheris.Setup([*sys.argv, str(found), str(CORPUS / name)], target)
    atheris.Fuzz()
