"""Faults of a link: rates, bounds, independence, determinism."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from messaging_adapter.faults import MIN_HOLD_MS, LinkFaults
from reliable_channel.errors import ConfigurationError
from reliable_channel.types import MS

DRAWS = 20_000


def draw(faults: LinkFaults, seed: int = 1, count: int = DRAWS) -> list[list[int]]:
    rng = random.Random(seed)
    return [faults.copies(rng) for _ in range(count)]


def test_a_faultless_link_delivers_once_at_once_and_draws_nothing() -> None:
    rng = random.Random(1)
    before = rng.getstate()
    assert LinkFaults().copies(rng) == [0]
    assert rng.getstate() == before


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.2, 0.5, 1.0])
def test_loss_has_its_rate(rate: float) -> None:
    lost = mean(not copies for copies in draw(LinkFaults(loss=rate)))
    assert lost == pytest.approx(rate, abs=0.01)


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.3, 1.0])
def test_duplicates_have_their_rate_among_what_arrives(rate: float) -> None:
    arrived = [copies for copies in draw(LinkFaults(loss=0.4, duplicate=rate)) if copies]
    assert {len(copies) for copies in arrived} <= {1, 2}
    assert mean(len(copies) == 2 for copies in arrived) == pytest.approx(rate, abs=0.015)


@pytest.mark.parametrize("delay_ms", [0.0, 50.0])
def test_reordered_copies_are_held_back_long_enough(delay_ms: float) -> None:
    faults = LinkFaults(reorder=0.25, delay_ms=delay_ms, jitter_ms=delay_ms / 2)
    longest = int((delay_ms * 1.5) * MS)
    delays = [copies[0] for copies in draw(faults)]
    held = [delay for delay in delays if delay > longest]
    assert len(held) / len(delays) == pytest.approx(0.25, abs=0.01)
    hold = max(MIN_HOLD_MS * MS, longest)
    assert min(held) >= delay_ms * MS + hold
    assert max(held) <= longest + 2 * hold


def test_a_held_copy_is_overtaken_by_the_next_one() -> None:
    """Messages 1 ms apart on a link without delay arrive in another order."""
    delays = [copies[0] for copies in draw(LinkFaults(reorder=0.2), count=100)]
    arrivals = [number * MS + delay for number, delay in enumerate(delays)]
    assert arrivals != sorted(arrivals)


def test_delays_lie_between_delay_and_delay_plus_jitter() -> None:
    delays = [copies[0] for copies in draw(LinkFaults(delay_ms=300, jitter_ms=50))]
    assert min(delays) >= 300 * MS
    assert max(delays) <= 350 * MS
    assert mean(delays) == pytest.approx(325 * MS, rel=0.01)


def test_a_delay_without_jitter_is_exact() -> None:
    assert draw(LinkFaults(delay_ms=1.5), count=3) == [[1_500_000]] * 3


def test_the_copies_of_a_duplicate_travel_apart() -> None:
    copies = draw(LinkFaults(duplicate=1, delay_ms=10, jitter_ms=10), count=50)
    assert all(first != second for first, second in copies)


def test_the_same_seed_gives_the_same_faults() -> None:
    faults = LinkFaults(loss=0.2, duplicate=0.1, reorder=0.1, delay_ms=5, jitter_ms=5)
    assert draw(faults, seed=3) == draw(faults, seed=3)
    assert draw(faults, seed=3) != draw(faults, seed=4)


@pytest.mark.parametrize("name", ["loss", "duplicate", "reorder", "delay_ms", "jitter_ms"])
@pytest.mark.parametrize("value", [-0.1, 3_600_001.0, float("nan"), float("inf"), "0.1", True])
def test_values_out_of_bounds_are_refused(name: str, value: object) -> None:
    with pytest.raises(ConfigurationError, match=name):
        LinkFaults(**{name: value})


def test_all_problems_are_named() -> None:
    with pytest.raises(ConfigurationError) as caught:
        LinkFaults(loss=2, duplicate=-1, delay_ms=-1)
    assert len(caught.value.problems) == 3
