"""Streams depend on root, scenario, channel and purpose, and on nothing else."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.laboratory.seeds import streams

HASH = bytes(range(8))
PURPOSES = ("link/0", "link/1", "link/0/bursts", "node/0", "store", "workload", "protocol/0/1")

KNOWN = [395444076, 2741516468, 2340445340, 1313443945, 742110978, 2520619730, 4183532932]
"""The first 32 bits of each, for root 1, `HASH` and channel 2."""


def draws(stream: Random) -> list[float]:
    return [stream.random() for _ in range(4)]


def test_the_same_stream_comes_again_whatever_was_asked_for_before() -> None:
    alone = {purpose: draws(streams(1, HASH, 2)(purpose)) for purpose in PURPOSES}
    together = streams(1, HASH, 2)
    assert {purpose: draws(together(purpose)) for purpose in reversed(PURPOSES)} == alone
    assert draws(together("store")) == alone["store"]


def test_every_purpose_has_a_stream_of_its_own() -> None:
    stream = streams(1, HASH, 2)
    assert len({tuple(draws(stream(purpose))) for purpose in PURPOSES}) == len(PURPOSES)


@pytest.mark.parametrize(
    ("root", "scenario", "channel"),
    [(2, HASH, 2), (1, bytes(8), 2), (1, HASH[::-1], 2), (1, HASH, 3), (1 << 80, HASH, 2)],
)
@pytest.mark.parametrize("purpose", PURPOSES)
def test_other_keys_give_other_streams(
    root: int, scenario: bytes, channel: int, purpose: str
) -> None:
    assert draws(streams(root, scenario, channel)(purpose)) != draws(streams(1, HASH, 2)(purpose))


def test_streams_are_these() -> None:
    """Results of one version can be played again by another: whoever changes this says so."""
    stream = streams(1, HASH, 2)
    assert [stream(purpose).getrandbits(32) for purpose in PURPOSES] == KNOWN


def test_first_draws_of_neighbouring_channels_are_even() -> None:
    found = [streams(1, HASH, channel)("link/0").random() for channel in range(4_000)]
    assert sum(found) / 4_000 == pytest.approx(0.5, abs=0.02)
    for tenth in range(10):
        share = sum(tenth <= item * 10 < tenth + 1 for item in found) / 4_000
        assert share == pytest.approx(0.1, abs=0.02)
