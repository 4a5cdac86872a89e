"""benchmarks.laboratory.theory: each form against all cases one by one, exact fractions, or its model played."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from random import Random
from typing import Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.laboratory import theory
from reliable_channel.core.rate_limit import LARGEST_SPREAD, SMALLEST_BUDGET_WITH_SPARE_SYNC
from reliable_channel.core.sds.bloom import BloomFilter, BloomShape
from reliable_channel.types import SECOND

LOSSES = st.floats(0.0, 1.0)
ROUNDS = st.integers(0, 12)
GROUPS = st.integers(1, 200)


def patterns(count: int, rate: float) -> Iterator[tuple[tuple[bool, ...], float]]:
    """Give all outcomes of so many independent events, with the probability of each."""
    for happened in product((False, True), repeat=count):
        yield happened, math.prod(rate if event else 1.0 - rate for event in happened)


def total(outcomes: Iterator[tuple[tuple[bool, ...], float]], counts: Callable[..., bool]) -> float:
    return sum(chance for happened, chance in outcomes if counts(happened))


# -- 1 to 3 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.0, 0.1, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_a_segment_is_lost_where_all_its_copies_are(loss: float, rounds: int) -> None:
    expected = total(patterns(rounds + 1, loss), all)
    assert theory.segment_loss(loss, rounds) == pytest.approx(expected)
    assert theory.segment_delivery(loss, rounds) == pytest.approx(1 - expected)


@pytest.mark.parametrize("group", [1, 2, 3])
def test_all_of_a_group_or_all_segments_of_a_payload(group: int) -> None:
    tries = 3
    expected = total(
        patterns(tries * group, 0.3),
        lambda lost: not any(all(lost[i * tries : (i + 1) * tries]) for i in range(group)),
    )
    assert theory.delivery_to_all(0.3, tries - 1, group) == pytest.approx(expected)
    assert theory.payload_delivery(0.3, tries - 1, group) == pytest.approx(expected)


def test_small_losses_keep_their_digits() -> None:
    assert theory.payload_loss(1e-4, 4, 100) == pytest.approx(1e-18, rel=1e-9)
    assert theory.loss_to_some(1e-3, 5, 200) == pytest.approx(2e-16, rel=1e-9)
    assert theory.parity_loss(1e-6, 0, 10, 3) == pytest.approx(math.comb(13, 4) * 1e-24, rel=1e-4)


@pytest.mark.parametrize(("loss", "ack_loss"), [(0.2, 0.2), (0.5, 0.0), (0.0, 0.7), (0.3, 1.0)])
def test_sends_to_one_receiver_one_by_one(loss: float, ack_loss: float) -> None:
    rounds = 3
    shares = [0.0] * (rounds + 1)
    answered = [(not lost) * (not silent) for lost in (0, 1) for silent in (0, 1)]
    chances = [
        (loss if lost else 1 - loss) * (ack_loss if silent else 1 - ack_loss)
        for lost in (0, 1)
        for silent in (0, 1)
    ]
    for tries in product(range(4), repeat=rounds):
        sends = next((place + 1 for place, item in enumerate(tries) if answered[item]), rounds + 1)
        shares[sends - 1] += math.prod(chances[item] for item in tries)
    assert theory.sends_shares(loss, ack_loss, rounds) == pytest.approx(shares)
    mean = sum((place + 1) * share for place, share in enumerate(shares))
    assert theory.expected_sends(loss, ack_loss, rounds) == pytest.approx(mean)


@given(LOSSES, LOSSES, ROUNDS)
def test_sends_are_between_one_and_all(loss: float, ack_loss: float, rounds: int) -> None:
    mean = theory.expected_sends(loss, ack_loss, rounds)
    assert mean * (1 + 1e-12) >= 1.0
    assert mean <= (rounds + 1) * (1 + 1e-12)
    assert sum(theory.sends_shares(loss, ack_loss, rounds)) == pytest.approx(1.0)


# -- 4 and 5 ----------------------------------------------------------------------------------------------------------


def play_group(
    random: np.random.Generator, loss: float, ack_loss: float, rounds: int, group: int, count: int
) -> tuple[float, float]:
    """Return delivery and mean sends of many messages to a group, until the first acknowledgement."""
    has = np.zeros((count, group), dtype=bool)
    is_open = np.ones(count, dtype=bool)
    sends = np.zeros(count)
    for _ in range(rounds + 1):
        arrived = (random.random((count, group)) >= loss) & is_open[:, None]
        heard = arrived & (random.random((count, group)) >= ack_loss)
        has |= arrived
        sends += is_open
        is_open &= ~heard.any(axis=1)
    return float(has.mean()), float(sends.mean())


@pytest.mark.parametrize(
    ("loss", "ack_loss", "rounds", "group"), [(0.4, 0.4, 2, 5), (0.7, 0.2, 5, 2), (0.3, 0.95, 3, 8)]
)
def test_a_group_that_stops_at_the_first_acknowledgement(
    loss: float, ack_loss: float, rounds: int, group: int
) -> None:
    random = np.random.default_rng(4)
    count = 40_000
    delivery, sends = play_group(random, loss, ack_loss, rounds, group, count)
    # Receivers of one message are not independent: at worst all of them are alike.
    assert theory.group_delivery(loss, ack_loss, rounds, group) == pytest.approx(
        delivery, abs=4 * 0.5 / math.sqrt(count)
    )
    assert theory.group_sends(loss, ack_loss, rounds, group) == pytest.approx(
        sends, abs=4 * rounds / math.sqrt(count)
    )


def test_retransmission_alone_does_not_serve_a_large_group() -> None:
    assert theory.group_delivery(0.3, 0.3, 5, 200) == pytest.approx(0.7)
    assert theory.group_delivery(0.3, 0.3, 5, 1) == pytest.approx(theory.segment_delivery(0.3, 5))
    assert theory.group_delivery(0.3, 1.0, 5, 9) == pytest.approx(theory.segment_delivery(0.3, 5))


@given(LOSSES, LOSSES, ROUNDS, GROUPS)
def test_group_forms_have_their_bounds(loss: float, silent: float, rounds: int, n: int) -> None:
    one = theory.group_delivery(loss, silent, rounds, n)
    assert -1e-12 <= one <= theory.segment_delivery(loss, rounds) + 1e-12
    first = theory.group_sends(loss, silent, rounds, n)
    last = theory.sends_until_all(loss, silent, rounds, n)
    assert 1 - 1e-9 <= first <= last + 1e-9 <= rounds + 1 + 1e-8


@pytest.mark.parametrize("group", [1, 2, 4])
def test_sends_until_all_have_acknowledged(group: int) -> None:
    rounds = 3
    shares = theory.sends_shares(0.3, 0.1, rounds)
    expected = sum(
        (max(numbers) + 1) * math.prod(shares[number] for number in numbers)
        for numbers in product(range(rounds + 1), repeat=group)
    )
    assert theory.sends_until_all(0.3, 0.1, rounds, group) == pytest.approx(expected)


# -- 6 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "parity"), [(1, 0), (2, 1), (4, 2), (3, 3)])
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_parity_by_all_patterns_of_loss(data: int, parity: int, rounds: int) -> None:
    loss = 0.35
    again = loss ** (rounds + 1)
    ours = every = 0.0
    for lost in product((False, True), repeat=data + parity):
        if sum(lost) > parity:
            continue
        rates = [again] * data + [loss] * parity
        ours += math.prod(
            rate if gone else 1 - rate for rate, gone in zip(rates, lost, strict=True)
        )
        every += math.prod(again if gone else 1 - again for gone in lost)
    assert theory.parity_delivery(loss, rounds, data, parity) == pytest.approx(ours)
    assert theory.resent_parity_delivery(loss, rounds, data, parity) == pytest.approx(every)


def test_parity_alone_without_parity_and_in_the_end() -> None:
    for loss in (0.0, 0.2, 1.0):
        alone = theory.resent_parity_delivery(loss, 0, 20, 5)
        assert theory.parity_delivery(loss, 0, 20, 5) == pytest.approx(alone)
        bare = theory.payload_delivery(loss, 3, 20)
        assert theory.parity_delivery(loss, 3, 20, 0) == pytest.approx(bare)
    assert theory.parity_latency(0.3, 9, 4, 20, 5) == theory.resent_parity_latency(0.3, 4, 4, 20, 5)
    assert theory.parity_latency(1.0, 0, 0, 20, 5) == 0.0


@pytest.mark.parametrize(("data", "parity"), [(254, 1), (170, 85), (128, 127), (255, 0)])
def test_large_codes_are_exact(data: int, parity: int) -> None:
    loss = Fraction(1, 4)
    again = loss**2

    def chance(count: int, rate: Fraction, found: int) -> Fraction:
        return math.comb(count, found) * rate**found * (1 - rate) ** (count - found)

    expected = sum(
        (
            chance(data, again, i) * chance(parity, loss, j)
            for i in range(parity + 1)
            for j in range(parity + 1 - i)
        ),
        Fraction(0),
    )
    lost = theory.parity_loss(0.25, 1, data, parity)
    assert lost == pytest.approx(float(1 - expected), rel=1e-9)


@given(LOSSES, ROUNDS, st.integers(1, 255), st.integers(0, 254))
def test_parity_forms_are_ordered(loss: float, rounds: int, data: int, parity: int) -> None:
    parity = min(parity, 255 - data)
    ours = theory.parity_delivery(loss, rounds, data, parity)
    assert -1e-12 <= ours <= theory.resent_parity_delivery(loss, rounds, data, parity) + 1e-9
    assert ours <= theory.parity_delivery(loss, rounds + 1, data, parity) + 1e-9
    assert 0 <= theory.parity_latency(loss, rounds, rounds + 2, data, parity) <= 1 + 1e-9


# -- 7 ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 1, 3, 7])
def test_bursts_in_steps_by_the_chain(steps: int) -> None:
    loss, burst, rounds = 0.2, 5.0, 3
    worse = loss / (burst * (1 - loss))
    chain = np.array([[1 - worse, worse], [1 / burst, 1 - 1 / burst]])  # from good, from bad
    stay = np.linalg.matrix_power(chain, steps)[1, 1]
    expected = loss * stay**rounds
    assert theory.burst_loss(loss, burst, rounds, steps) == pytest.approx(expected)


def test_bursts_in_time_by_playing_them() -> None:
    loss, burst_ms, distance_ms, count = 0.3, 40.0, 25.0, 20_000
    good_ms = burst_ms * (1 - loss) / loss
    random = Random(7)
    lost = 0
    for _ in range(count):
        is_bad, left, now = random.random() < loss, 0.0, 0.0
        all_lost = True
        left = random.expovariate(1 / (burst_ms if is_bad else good_ms))
        for number in range(3):
            while now + left < number * distance_ms:
                now += left
                is_bad = not is_bad
                left = random.expovariate(1 / (burst_ms if is_bad else good_ms))
            all_lost &= is_bad
        lost += all_lost
    expected = theory.burst_loss_in_time(loss, burst_ms, 2, distance_ms)
    error = math.sqrt(expected * (1 - expected) / count)
    assert lost / count == pytest.approx(expected, abs=4 * error)


def test_bursts_between_one_try_and_independent_ones() -> None:
    assert theory.burst_loss_in_time(0.2, 50.0, 3, 0.0) == pytest.approx(0.2)
    far = theory.burst_loss_in_time(0.2, 50.0, 3, 1e6)
    assert far == pytest.approx(theory.segment_loss(0.2, 3))
    # Small steps are continuous time.
    fine = theory.burst_loss(0.2, 50_000.0, 3, 20_000)
    assert fine == pytest.approx(theory.burst_loss_in_time(0.2, 50.0, 3, 20.0), rel=1e-3)


# -- 8 and 9 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [1, 3, 9, 10])
@pytest.mark.parametrize("segments", [1, 9, 10, 11, 40])
def test_the_last_segment_waits_for_its_epoch(budget: int, segments: int) -> None:
    epoch, left = 0, budget
    for _ in range(segments):
        if not left:
            epoch, left = epoch + 1, budget
        left -= 1
    assert theory.queue_wait(segments, budget, 600.0) == epoch * 600.0


def test_what_our_limiter_adds() -> None:
    assert theory.limiter_wait(9, 9, 600.0) == (0.0, 0.0)
    assert theory.limiter_wait(10, 10, 600.0) == (600.0, 630.0)  # one is kept for a sync
    assert theory.limiter_wait(10, 9, 50.0) == (50.0, 55.0)
    # Stated in the theory once more, so that a change of the limiter is seen.
    assert theory.SPARE_SYNC_FROM == SMALLEST_BUDGET_WITH_SPARE_SYNC
    assert theory.LONGEST_SPREAD_SEC * SECOND == LARGEST_SPREAD


@pytest.mark.parametrize("items", [0, 50, 100, 200])
def test_false_positives_of_the_real_filter(items: int) -> None:
    shape = BloomShape(100, 0.02)
    found = tried = 0
    for number in range(20):
        bloom = BloomFilter(100, 0.02)
        for item in range(items):
            bloom.add(f"{number}/{item}")
        asked = [f"{number}/other {item}" for item in range(500)]
        found += sum(item in bloom for item in asked)
        tried += len(asked)
    expected = theory.false_positives(shape.hash_count, items, shape.bit_count)
    # Two hashes give all places, and filters differ in how many bits they have set.
    assert found / tried == pytest.approx(expected, rel=0.1, abs=0.004)


def test_a_loss_that_nobody_sees() -> None:
    assert theory.unseen_loss(0.1, 3) == pytest.approx(total(patterns(3, 0.1), all))
    assert theory.unseen_loss(0.1, 0) == 1.0


@pytest.mark.parametrize("history", [1, 2, 9])
def test_losses_that_later_messages_name(history: int) -> None:
    expected = sum(
        chance * (lost[place] and not all(lost[place + 1 : place + 1 + history]))
        for lost, chance in patterns(5, 0.4)
        for place in range(5)
    )
    assert theory.seen_losses(0.4, 5, history) == pytest.approx(expected / 5)


# -- ranges -----------------------------------------------------------------------------------------------------------


REFUSED: Final[tuple[tuple[Callable[[], float], str], ...]] = (
    (lambda: theory.segment_loss(1.1, 0), "loss must be from 0 to 1, not 1.1"),
    (lambda: theory.segment_loss(math.nan, 0), "loss must be from 0 to 1, not nan"),
    (lambda: theory.segment_loss(0.1, -1), "retransmissions must be a whole number of 0"),
    (lambda: theory.segment_loss(0.1, True), "retransmissions must be a whole number of 0"),
    (lambda: theory.delivery_to_all(0.1, 1, 0), "receivers must be a whole number of 1"),
    (lambda: theory.payload_delivery(0.1, 1, 0), "segments must be a whole number of 1"),
    (lambda: theory.expected_sends(0.1, -0.1, 1), "ack_loss must be from 0 to 1"),
    (lambda: theory.group_delivery(0.1, 0.1, 1, 0), "receivers must be"),
    (lambda: theory.sends_until_all(0.1, 0.1, 1, 0), "receivers must be"),
    (lambda: theory.parity_delivery(0.1, 1, 0, 1), "data must be a whole number of 1"),
    (lambda: theory.parity_delivery(0.1, 1, 200, 56), "parity must be at most 55"),
    (lambda: theory.burst_loss(0.1, 0.5, 1, 1), "burst must be at least 1 step"),
    (lambda: theory.burst_loss(0.9, 2.0, 1, 1), "needs longer bursts than 2.0 steps"),
    (lambda: theory.burst_loss(1.0, 2.0, 1, 1), "needs longer bursts"),
    (lambda: theory.burst_loss_in_time(1.0, 5.0, 1, 1.0), "loss must be below 1"),
    (lambda: theory.burst_loss_in_time(0.1, 0.0, 1, 1.0), "burst_ms must be above 0"),
    (lambda: theory.burst_loss_in_time(0.1, 5.0, 1, -1.0), "distance_ms must be 0 or more"),
    (lambda: theory.queue_wait(0, 1, 1.0), "segments must be a whole number of 1"),
    (lambda: theory.queue_wait(1, 0, 1.0), "budget must be a whole number of 1"),
    (lambda: theory.queue_wait(1, 1, 0.0), "epoch must be above 0"),
    (lambda: theory.false_positives(0, 1, 8), "hashes must be a whole number of 1"),
    (lambda: theory.seen_losses(0.1, 0, 1), "messages must be a whole number of 1"),
    (lambda: theory.seen_losses(0.1, 1, 0), "history must be a whole number of 1"),
    (lambda: theory.unseen_loss(0.1, -1), "messages must be a whole number of 0"),
)


@pytest.mark.parametrize(("call", "said"), REFUSED, ids=map(str, range(len(REFUSED))))
def test_what_is_out_of_range_is_refused(call: Callable[[], float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
