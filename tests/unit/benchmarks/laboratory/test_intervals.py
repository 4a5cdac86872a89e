"""benchmarks.laboratory.intervals: published values, sums made by hand, and coverage of what is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.laboratory.intervals import (
    binomial_p_value,
    detectable,
    effective_trials,
    holm,
    mean_p_value,
    proportion_p_value,
    ratio_interval,
    ratio_p_value,
    ratio_variance,
    two_sided,
    wilson,
    zero_failures_bound,
)
from benchmarks.laboratory.measures import RatioSums


def sums_of(found: Sequence[int], counted: Sequence[int]) -> RatioSums:
    return RatioSums(
        channels=len(found),
        numerator=sum(found),
        denominator=sum(counted),
        numerator_squares=sum(d * d for d in found),
        products=sum(d * e for d, e in zip(found, counted, strict=True)),
        denominator_squares=sum(e * e for e in counted),
    )


# -- Wilson -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # Newcombe 1998, Statistics in Medicine 17, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_as_published(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert found == pytest.approx((low, high), abs=5e-5)
    turned = wilson(trials - successes, trials)
    assert turned == pytest.approx((1 - high, 1 - low), abs=5e-5)


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0.5, 0.999))
def test_ends_of_wilson_are_a_whole_quantile_away(trials: int, share: float, sure: float) -> None:
    successes = round(share * trials)
    low, high = wilson(successes, trials, sure)
    value = successes / trials
    assert 0 <= low <= value <= high <= 1
    for end in (low, high):
        if 0 < end < 1:
            z = (value - end) / math.sqrt(end * (1 - end) / trials)
            assert two_sided(z) == pytest.approx(1 - sure, rel=1e-6)


def test_wilson_knows_nothing_without_trials() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    with pytest.raises(ValueError, match="successes must be from 0 to 3, not 4"):
        wilson(4, 3)
    with pytest.raises(ValueError, match="confidence must be between 0 and 1, not 1"):
        wilson(1, 3, 1)


def test_no_failure_bounds_the_rate_by_three_in_n() -> None:
    assert zero_failures_bound(1000) == pytest.approx(3 / 1000, rel=0.01)
    assert (1 - zero_failures_bound(50, 0.99)) ** 50 == pytest.approx(0.01)
    assert zero_failures_bound(0) == 1.0


# -- ratios of sums over channels -------------------------------------------------------------------------------------


def test_the_variance_is_that_of_the_formula() -> None:
    found, counted = [3, 5, 4, 9], [4, 5, 6, 10]
    ratio, mean = sum(found) / sum(counted), sum(counted) / 4
    squares = sum((d - ratio * e) ** 2 for d, e in zip(found, counted, strict=True))
    expected = squares / (4 * 3 * mean**2)
    assert ratio_variance(sums_of(found, counted)) == pytest.approx(expected)


def test_large_sums_lose_nothing() -> None:
    """Differences of sums of squares of bytes, whose digits a float does not have."""
    counted = [10**12 + i for i in range(100)]
    found = [2 * e + (i % 2) for i, e in enumerate(counted)]
    ratio = Fraction(sum(found), sum(counted))
    squares = sum((d - ratio * e) ** 2 for d, e in zip(found, counted, strict=True))
    expected = float(squares * 100 / (99 * Fraction(sum(counted)) ** 2))
    assert ratio_variance(sums_of(found, counted)) == pytest.approx(expected, rel=1e-9)


def test_equal_channels_have_as_many_trials_as_there_are_channels() -> None:
    sums = sums_of([20] * 50, [20] * 50)
    assert ratio_interval(sums) == wilson(50, 50)
    assert ratio_interval(sums_of([0] * 50, [20] * 50)) == wilson(0, 50)
    assert ratio_interval(sums_of([10] * 50, [20] * 50)) == wilson(25, 50)
    assert ratio_interval(sums, proportion=False) == pytest.approx(
        (1 - zero_failures_bound(50), 1 + zero_failures_bound(50))
    )


def test_one_channel_or_none_says_little() -> None:
    assert ratio_interval(sums_of([7], [10])) == wilson(0.7, 1)
    assert ratio_interval(RatioSums()) == (0.0, 1.0)
    assert ratio_interval(RatioSums(), proportion=False) == (0.0, math.inf)
    assert ratio_interval(sums_of([30], [10])) == (0.0, math.inf)
    assert ratio_p_value(RatioSums(), 0.5, proportion=True) == 1.0


def draw(random: np.random.Generator, channels: int, share: float, cluster: float) -> RatioSums:
    """Draw channels of 20 messages whose rates differ: the smaller ``cluster``, the more."""
    rates = random.beta(share * cluster, (1 - share) * cluster, channels)
    return sums_of([int(n) for n in random.binomial(20, rates)], [20] * channels)


@pytest.mark.parametrize(("share", "cluster"), [(0.7, 2.0), (0.9, 5.0), (0.5, 1000.0)])
def test_intervals_cover_the_rate_where_channels_differ(share: float, cluster: float) -> None:
    random = np.random.default_rng(11)
    covered = covered_by_messages = rejected = 0
    for _ in range(1_000):
        sums = draw(random, 100, share, cluster)
        low, high = ratio_interval(sums)
        covered += low <= share <= high
        low, high = wilson(sums.numerator, sums.denominator)
        covered_by_messages += low <= share <= high
        rejected += ratio_p_value(sums, share, proportion=True) < 0.05
    assert 930 <= covered <= 975
    assert 25 <= rejected <= 70
    if cluster < 10:  # as if messages were independent: far too narrow
        assert covered_by_messages < 800


def test_intervals_of_other_ratios_cover_them() -> None:
    random = np.random.default_rng(12)
    covered = rejected = 0
    for _ in range(1_000):
        counted = random.integers(10, 30, 100)
        rates = random.gamma(4.0, 0.5, 100)
        found = random.poisson(rates * counted)
        sums = sums_of([int(d) for d in found], [int(e) for e in counted])
        low, high = ratio_interval(sums, proportion=False)
        covered += low <= 2.0 <= high
        rejected += ratio_p_value(sums, 2.0, proportion=False) < 0.05
    assert 930 <= covered <= 970
    assert rejected == 1_000 - covered


# -- tests ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("z", "p_value"), [(0.0, 1.0), (1.959964, 0.05), (-2.575829, 0.01), (3.290527, 0.001)]
)
def test_normal_tails_as_in_tables(z: float, p_value: float) -> None:
    assert two_sided(z) == pytest.approx(p_value, rel=1e-5)


@pytest.mark.parametrize("trials", [1, 7, 30])
@pytest.mark.parametrize("rate", [Fraction(1, 100), Fraction(1, 3), Fraction(9, 10)])
def test_binomial_tails_in_fractions(trials: int, rate: Fraction) -> None:
    chances = [
        math.comb(trials, i) * rate**i * (1 - rate) ** (trials - i) for i in range(trials + 1)
    ]
    for found in range(trials + 1):
        tails = min(sum(chances[: found + 1]), sum(chances[found:]))
        expected = float(min(Fraction(1), 2 * tails))
        assert binomial_p_value(found, trials, float(rate)) == pytest.approx(expected, rel=1e-6)


def test_few_failures_are_counted_and_not_rounded_away() -> None:
    # Of 10,000 messages 1 should be lost: none is no wonder, eight are.
    assert proportion_p_value(1.0, 10_000, 0.9999) == pytest.approx(2 * 0.9999**10_000)
    assert proportion_p_value(0.9992, 10_000, 0.9999) < 1e-4
    assert proportion_p_value(0.5, 100, 1.0) == 0.0
    assert proportion_p_value(1.0, 100, 1.0) == 1.0
    # Between the exact test and the normal one there is no step.
    few = proportion_p_value(0.01, 2_400, 0.0104)
    many = proportion_p_value(0.01, 2_600, 0.0104)
    assert few == pytest.approx(many, abs=0.15)


def test_a_mean_without_spread_is_right_or_wrong() -> None:
    assert mean_p_value(2.0, 2.0, 0.0) == 1.0
    assert mean_p_value(2.0, 2.1, 0.0) == 0.0
    assert mean_p_value(2.0, 9.0, math.inf) == 1.0
    assert mean_p_value(1.0, 1.0 + 1.959964e-3, 1e-6) == pytest.approx(0.05, rel=1e-4)


def test_channels_that_differ_less_than_chance_count_no_more_than_their_messages() -> None:
    assert effective_trials(sums_of([10, 10, 10, 11], [20] * 4)) == 80
    assert effective_trials(sums_of([20, 0, 20, 0], [20] * 4)) == pytest.approx(3)


def test_holm_as_in_the_textbook() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.7, 0.9]) == [1.0, 1.0]
    with pytest.raises(ValueError, match="a p-value must be from 0 to 1, not nan"):
        holm([0.1, math.nan])


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_keeps_the_order_and_is_never_below(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= a <= 1 for p, a in zip(p_values, adjusted, strict=True))
    pairs = sorted(zip(p_values, adjusted, strict=True))
    assert [a for _, a in pairs] == sorted(adjusted)


def test_holm_is_rarely_wrong_anywhere() -> None:
    random = np.random.default_rng(13)
    wrong = sum(min(holm(list(random.random(40)))) < 0.05 for _ in range(2_000))
    assert 60 <= wrong <= 140


def test_the_deviation_that_is_found_nine_times_in_ten() -> None:
    random = np.random.default_rng(14)
    deviation = detectable(1.0, 0.001)
    found = sum(two_sided(z) < 0.001 for z in random.normal(deviation, 1.0, 5_000))
    assert found / 5_000 == pytest.approx(0.9, abs=0.015)
