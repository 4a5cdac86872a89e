"""Links lose, delay and double copies as the scenario says, each for its own reason and from its own stream."""

from __future__ import annotations

from itertools import pairwise
from math import exp, sqrt
from random import Random

import pytest

from benchmarks.simulation.links import DelayDraws, Link, Weather
from benchmarks.simulation.scenario import START_NS, Bursts, DelayKind, Delays, Scenario
from messaging_adapter.faults import LinkFaults
from reliable_channel.types import MS, SECOND

COPIES = 20_000


def link(scenario: Scenario, seed: int = 1) -> Link:
    return Link(scenario, 0, lambda purpose: Random(f"{seed}/{purpose}"))


def fates(scenario: Scenario, *, seed: int = 1, syncs: bool = False) -> list[list[int]]:
    """What becomes of copies 10 ms apart."""
    subject = link(scenario, seed)
    return [subject.copies(START_NS + number * 10 * MS, is_sync=syncs) for number in range(COPIES)]


def loss_of(arrivals: list[list[int]]) -> float:
    return sum(not item for item in arrivals) / len(arrivals)


# --- Independent losses ---------------------------------------------------------------------------


def test_without_anything_new_a_link_draws_what_its_faults_draw() -> None:
    faults = LinkFaults(loss=0.3, duplicate=0.1, reorder=0.1, delay_ms=5, jitter_ms=20)
    draws = Random("1/link/0")
    expected = [faults.copies(draws) for _ in range(COPIES)]
    assert fates(Scenario(faults=faults)) == expected
    assert fates(Scenario(faults=faults), syncs=True) == expected


@pytest.mark.parametrize(
    ("loss", "sync_loss", "is_sync", "expected"),
    [
        (0.3, 0.0, False, 0.3),
        (0.3, 0.0, True, 0.0),
        (0.0, 0.4, False, 0.0),
        (0.0, 0.4, True, 0.4),
        (1.0, 0.1, True, 0.1),
        (0.1, 1.0, True, 1.0),
        (1.0, 0.0, False, 1.0),
    ],
)
def test_syncs_have_a_loss_of_their_own(
    loss: float, sync_loss: float, is_sync: bool, expected: float
) -> None:
    scenario = Scenario(faults=LinkFaults(loss=loss), sync_loss=sync_loss)
    assert loss_of(fates(scenario, syncs=is_sync)) == pytest.approx(expected, abs=0.015)


def test_losses_of_syncs_and_delays_leave_those_of_messages_as_they_are() -> None:
    faults = LinkFaults(loss=0.3)
    plain = link(Scenario(faults=faults))
    subject = link(
        Scenario(faults=faults, sync_loss=0.5, delays=Delays(kind="lognormal", mean_ms=9))
    )
    for number in range(500):
        now = START_NS + number * MS
        subject.copies(now, is_sync=True)
        lost = not plain.copies(now, is_sync=False)
        assert (subject.copies(now, is_sync=False) == []) is lost


@pytest.mark.parametrize("sync_loss", [None, 0.0])
def test_faults_of_a_link_may_change(sync_loss: float | None) -> None:
    subject = link(Scenario(faults=LinkFaults(loss=1.0, delay_ms=5), sync_loss=sync_loss))
    assert subject.copies(START_NS, is_sync=False) == []
    subject.change(LinkFaults(delay_ms=9))
    assert subject.copies(START_NS, is_sync=False) == [9 * MS]
    assert subject.copies(START_NS, is_sync=True) == [9 * MS]


# --- Bursts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bursts",
    [
        Bursts(loss=0.2, burst_ms=50),
        Bursts(loss=0.5, burst_ms=5),
        Bursts(loss=0.3, burst_ms=40, bad_loss=0.8, good_loss=0.1),
    ],
    ids=["long", "short", "neither whole"],
)
@pytest.mark.parametrize("seed", range(3))
def test_bursts_have_the_mean_loss(bursts: Bursts, seed: int) -> None:
    scenario = Scenario(faults=LinkFaults(loss=0.9), bursts=bursts)
    assert loss_of(fates(scenario, seed=seed)) == pytest.approx(bursts.loss, abs=0.025)


@pytest.mark.parametrize(
    ("bursts", "expected"),
    [
        (Bursts(loss=0.0, burst_ms=50), 0.0),
        (Bursts(loss=1.0, burst_ms=50), 1.0),
        (Bursts(loss=0.25, burst_ms=50, bad_loss=0.5, good_loss=0.25), 0.25),
        (Bursts(loss=0.5, burst_ms=50, bad_loss=0.5, good_loss=0.25), 0.5),
    ],
    ids=["none", "all", "always good", "always bad"],
)
def test_a_link_that_is_always_good_or_bad_never_changes(bursts: Bursts, expected: float) -> None:
    tolerance = 0.0 if expected in (0.0, 1.0) else 0.015
    found = loss_of(fates(Scenario(bursts=bursts)))
    assert found == pytest.approx(expected, abs=tolerance)
    weather = Weather(bursts, Random(1))
    assert len({weather.look(START_NS + number * SECOND) for number in range(200)}) == 1


@pytest.mark.parametrize("step_ms", [1, 10, 40, 400])
def test_states_are_alike_as_the_exponential_law_says(step_ms: int) -> None:
    """Autocorrelation e^{-(λ+μ)τ}, at whatever distance anybody looks."""
    bursts = Bursts(loss=0.4, burst_ms=25)
    weather = Weather(bursts, Random(7))
    states = [weather.look(START_NS + number * step_ms * MS) for number in range(60_000)]
    mean = sum(states) / len(states)
    pairs = sum((one - mean) * (other - mean) for one, other in pairwise(states))
    correlation = pairs / len(states) / (mean * (1 - mean))
    changes = 1 / 25 / (1 - 0.4)
    # Where neighbours are alike, there are fewer samples than looks.
    alike = exp(-changes * step_ms)
    tolerance = 4 / sqrt(60_000 * (1 - alike) / (1 + alike))
    assert mean == pytest.approx(0.4, abs=tolerance * 0.5)
    assert correlation == pytest.approx(alike, abs=tolerance)


def test_bad_times_have_their_mean_length() -> None:
    weather = Weather(Bursts(loss=0.3, burst_ms=200), Random(3))
    states = [weather.look(START_NS + number * MS) for number in range(400_000)]
    bursts = sum(not one and other for one, other in pairwise(states))
    assert sum(states) / bursts == pytest.approx(200, rel=0.1)


def test_a_burst_longer_than_the_run_takes_all_or_nothing() -> None:
    scenario = Scenario(bursts=Bursts(loss=0.5, burst_ms=1e12))
    losses = {loss_of(fates(scenario, seed=seed)) for seed in range(20)}
    assert losses == {0.0, 1.0}


def test_two_looks_at_one_time_see_one_state() -> None:
    weather = Weather(Bursts(loss=0.5, burst_ms=0.001), Random(1))
    for number in range(50):
        now = START_NS + number * SECOND
        assert len({weather.look(now) for _ in range(20)}) == 1


# --- Delays ---------------------------------------------------------------------------------------

DELAYS: list[tuple[Delays, float, float]] = [
    (Delays(mean_ms=40), 40, 0),
    (Delays(kind="uniform", mean_ms=40, spread_ms=30), 10, 30 / sqrt(3)),
    (Delays(kind="uniform", mean_ms=40), 0, 40 / sqrt(3)),
    (Delays(kind="exponential", mean_ms=40), 0, 40),
    (Delays(kind="exponential", mean_ms=40, spread_ms=15), 25, 15),
    (Delays(kind="lognormal", mean_ms=40, spread_ms=20), 0, 20),
    (Delays(kind="lognormal", mean_ms=40), 0, 40),
]


@pytest.mark.parametrize(("delays", "shortest", "deviation"), DELAYS)
def test_delays_have_their_mean_shortest_and_deviation(
    delays: Delays, shortest: float, deviation: float
) -> None:
    draws = DelayDraws(delays, Random(5))
    found = [draws.draw() for _ in range(COPIES)]
    mean = sum(found) / COPIES
    variance = sum((item - mean) ** 2 for item in found) / COPIES
    assert mean == pytest.approx(40, rel=0.03)
    assert sqrt(variance) == pytest.approx(deviation, rel=0.08, abs=1e-9)
    assert shortest <= min(found) <= shortest + 8


def test_copies_take_drawn_times_instead_of_those_of_the_faults() -> None:
    faults = LinkFaults(loss=0.2, delay_ms=1_000, jitter_ms=1_000)
    scenario = Scenario(faults=faults, delays=Delays(kind="uniform", mean_ms=20, spread_ms=10))
    arrivals = fates(scenario)
    assert loss_of(arrivals) == pytest.approx(0.2, abs=0.015)
    assert all(10 * MS <= delay <= 30 * MS for item in arrivals for delay in item)


def test_drawn_times_leave_doubles_and_overtaking() -> None:
    faults = LinkFaults(duplicate=0.2, reorder=0.1)
    arrivals = fates(Scenario(faults=faults, delays=Delays(mean_ms=100)))
    assert sum(len(item) == 2 for item in arrivals) == pytest.approx(0.2 * COPIES, rel=0.1)
    delays = [delay for item in arrivals for delay in item]
    held = [delay for delay in delays if delay != 100 * MS]
    assert len(held) == pytest.approx(0.1 * len(delays), rel=0.1)
    assert all(200 * MS <= delay <= 300 * MS for delay in held)


@pytest.mark.parametrize("kind", ["uniform", "exponential", "lognormal"])
def test_each_copy_has_its_own_time(kind: DelayKind) -> None:
    arrivals = fates(Scenario(delays=Delays(kind=kind, mean_ms=20)))
    assert len({item[0] for item in arrivals}) > COPIES * 0.99
