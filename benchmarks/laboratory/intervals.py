"""Intervals and tests for what thousands of channels came to.

Messages of one channel are not independent, so the channel is the unit: variances are those of ratios of two sums over
channels. Nothing seen is not nothing there: where no channel differs from any other, the interval is that of as many
trials as there are channels. It must not know forms, cells or files, and needs nothing but Python.

Spec: none of its own; Wilson 1927, Holm 1979; Rao and Scott 1987 for proportions with a design effect.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.laboratory.measures import RatioSums

NORMAL: Final = NormalDist()

SMALLEST_EXPECTED: Final = 25.0
"""With fewer expected successes or failures, tails are those of the binomial distribution and not of the normal one."""


def quantile(confidence: float) -> float:
    """Return how many standard errors an interval reaches to either side.

    Raises:
        ValueError: The confidence is not between 0 and 1.
    """
    if not 0.0 < confidence < 1.0:
        text = f"confidence must be between 0 and 1, not {confidence!r}"
        raise ValueError(text)
    return NORMAL.inv_cdf(0.5 + confidence / 2)


def wilson(successes: float, trials: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a proportion; (0, 1) without trials.

    Args:
        successes: From 0 to ``trials``; need not be whole, as trials that count for less than one are not.
        trials: Independent ones.
        confidence: Between 0 and 1.

    Raises:
        ValueError: More successes than trials, or fewer than none.
    """
    if not 0 <= successes <= trials:
        text = f"successes must be from 0 to {trials!r}, not {successes!r}"
        raise ValueError(text)
    z = quantile(confidence)
    if not trials:
        return 0.0, 1.0
    share, squared = successes / trials, z * z / trials
    middle = (share + squared / 2) / (1 + squared)
    reach = z * math.sqrt(share * (1 - share) / trials + squared / (4 * trials)) / (1 + squared)
    low = 0.0 if not successes else max(0.0, middle - reach)
    high = 1.0 if successes == trials else min(1.0, middle + reach)
    return low, high


def zero_failures_bound(trials: int, confidence: float = 0.95) -> float:
    """Return the largest rate at which no failure in so many trials is still this likely, at 95 % about 3/n.

    It solves (1 − rate)^n = 1 − confidence.
    """
    quantile(confidence)
    return 1.0 if trials <= 0 else -math.expm1(math.log1p(-confidence) / trials)


def ratio_variance(sums: RatioSums) -> float:
    """Return the variance of a ratio: Σ(d_c − p̂e_c)² / (C(C−1)ē²), infinite with fewer than two channels."""
    if sums.channels < 2 or not sums.denominator:
        return math.inf
    # In whole numbers, times the squared denominator: differences of large sums lose nothing.
    d, e = sums.numerator, sums.denominator
    squares = e * e * sums.numerator_squares - 2 * d * e * sums.products
    squares += d * d * sums.denominator_squares
    return squares / e**4 * sums.channels / (sums.channels - 1)


def ratio_interval(
    sums: RatioSums, confidence: float = 0.95, *, proportion: bool | None = None
) -> tuple[float, float]:
    """Return an interval of a ratio whose unit is the channel.

    A proportion has Wilson's interval with as many trials as would have this variance, any other ratio the normal one.
    Where all channels are alike a proportion has that of one trial a channel; any other ratio reaches as far as the
    share of channels that may differ unseen, as if each differed by 1.

    Args:
        sums: Of the channels.
        confidence: Between 0 and 1.
        proportion: The numerator counts some of what the denominator counts; None: it does if it is not larger.
    """
    value, reach = sums.value, quantile(confidence)
    if proportion is None:
        proportion = sums.numerator <= sums.denominator
    if not sums.channels or not sums.denominator:
        return (0.0, 1.0) if proportion else (0.0, math.inf)
    if proportion:
        trials = effective_trials(sums)
        return wilson(min(value * trials, trials), trials, confidence)
    if variance := ratio_variance(sums):
        error = reach * math.sqrt(variance)
    else:
        error = zero_failures_bound(sums.channels, confidence)
    return max(0.0, value - error), value + error


def effective_trials(sums: RatioSums) -> float:
    """Return how many independent trials have the variance of a proportion; one a channel where it says nothing."""
    variance, spread = ratio_variance(sums), sums.value * (1.0 - sums.value)
    if spread <= 0.0 or not 0.0 < variance < math.inf:
        return float(sums.channels)
    return min(spread / variance, float(sums.denominator))


def two_sided(z: float) -> float:
    """Return the p-value of a standard normal deviation."""
    return math.erfc(abs(z) / math.sqrt(2))


def mean_p_value(measured: float, expected: float, variance: float) -> float:
    """Return the p-value of a deviation of a mean from what it should be.

    Args:
        measured: The mean.
        expected: What it should be.
        variance: Of the mean; 0 is no error at all, infinity is no knowledge.
    """
    if variance > 0:
        return two_sided((measured - expected) / math.sqrt(variance))
    return 1.0 if math.isclose(measured, expected, rel_tol=1e-12, abs_tol=1e-12) else 0.0


def binomial_p_value(successes: int, trials: int, expected: float) -> float:
    """Return the two-sided p-value of so many successes: twice the smaller tail, at most 1."""
    if expected in (0.0, 1.0):
        return float(successes == trials * expected)
    logs = math.log(expected), math.log1p(-expected)
    whole = math.lgamma(trials + 1)

    def chance(found: int) -> float:
        ways = whole - math.lgamma(found + 1) - math.lgamma(trials - found + 1)
        return math.exp(ways + found * logs[0] + (trials - found) * logs[1])

    # The shorter side is summed: with few expected successes or failures it has few terms.
    if 2 * successes <= trials:
        below = math.fsum(chance(found) for found in range(successes + 1))
        above = 1.0 - below + chance(successes)
    else:
        above = math.fsum(chance(found) for found in range(successes, trials + 1))
        below = 1.0 - above + chance(successes)
    return max(0.0, min(1.0, 2 * min(below, above)))


def proportion_p_value(value: float, trials: float, expected: float) -> float:
    """Return the two-sided p-value of a proportion of so many independent trials; the variance is the expected one."""
    if expected in (0.0, 1.0):
        return float(value == expected)
    if trials * min(expected, 1.0 - expected) < SMALLEST_EXPECTED:
        whole = max(1, int(trials))
        # Failures, where there are few of them, must not be rounded away.
        if value > 0.5:
            return binomial_p_value(round((1.0 - value) * whole), whole, 1.0 - expected)
        return binomial_p_value(round(value * whole), whole, expected)
    return two_sided((value - expected) / math.sqrt(expected * (1.0 - expected) / trials))


def ratio_p_value(sums: RatioSums, expected: float, *, proportion: bool) -> float:
    """Return the two-sided p-value of a ratio against an expectation.

    Args:
        sums: Of the channels.
        expected: What the ratio should be.
        proportion: The numerator counts some of what the denominator counts: then the variance is that of the
            expectation, times how much more channels differ than independent messages would.
    """
    if not sums.channels or not sums.denominator:
        return 1.0
    if proportion:
        return proportion_p_value(sums.value, effective_trials(sums), expected)
    return mean_p_value(sums.value, expected, ratio_variance(sums))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for their number: all below a level are wrong together no more often than that.

    Each is the largest of (n − rank) times those up to it, in order of size, at most 1.

    Raises:
        ValueError: A p-value is not from 0 to 1.
    """
    for value in p_values:
        if not 0.0 <= value <= 1.0:
            text = f"a p-value must be from 0 to 1, not {value!r}"
            raise ValueError(text)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def detectable(error: float, level: float, power: float = 0.9) -> float:
    """Return the deviation that a two-sided test finds with this probability.

    Args:
        error: Standard error.
        level: Of the test; divided by the number of tests where there are several.
        power: How often it is found.
    """
    return (NORMAL.inv_cdf(1.0 - level / 2) + NORMAL.inv_cdf(power)) * error
