"""The fuzz targets over the kept corpus and seeded mutations of it: what Atheris does at length, in a few seconds."""

from __future__ import annotations

import pytest

from tests.fuzz import fuzz_decode, fuzz_receive
from tests.fuzz.harness import CORPUS, kept, mutations

MAX_CORPUS_BYTES = 100_000


def test_kept_inputs_pass_the_decoders() -> None:
    inputs = kept("decode")
    assert inputs
    for data in inputs:
        fuzz_decode.one_input(data)


def test_kept_scripts_pass() -> None:
    inputs = kept("receive")
    assert inputs
    for data in inputs:
        fuzz_receive.one_input(data)


@pytest.mark.parametrize("seed", range(4))
def test_mutations_pass_the_decoders(seed: int) -> None:
    for data in mutations(kept("decode"), seed, 1_000):
        fuzz_decode.one_input(data)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_scripts_pass(seed: int) -> None:
    for data in mutations(kept("receive"), seed, 25):
        fuzz_receive.one_input(data)


def test_corpus_is_small() -> None:
    files = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_CORPUS_BYTES
