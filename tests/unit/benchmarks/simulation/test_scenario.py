"""A scenario is data: it survives its text, which says no more than needed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.simulation.scenario import (
    Bursts,
    Churn,
    Crash,
    Delays,
    Join,
    NodeFaults,
    Partition,
    Restart,
    Scenario,
    StoreFaults,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig

FULL = Scenario(
    seed=3,
    participants=4,
    payload_bytes=(1, 2),
    senders=2,
    delays=Delays(kind="uniform", mean_ms=50, spread_ms=10),
    bursts=Bursts(loss=0.1, burst_ms=500, bad_loss=0.9),
    sync_loss=0.0,
    churn=Churn(every_ms=60_000, down_ms=5_000),
    faults=LinkFaults(loss=0.1),
    node=NodeFaults(failure=0.5),
    store=StoreFaults(enabled=False),
    partitions=(Partition(from_ms=1, until_ms=2, side=(0, 1)),),
    joins=(Join(participant=3, at_ms=5),),
    restarts=(Restart(participant=0, at_ms=5, torn=True),),
    crashes=(Crash(participant=1, at_ms=5, moment="publish", passes=2, clock_ms=-5),),
    broken="forget_budget",
    sds=replace(Scenario().sds, max_retransmissions=7),
    segmentation=SegmentationConfig(enable_reed_solomon=True),
    rate_limit=RateLimitConfig(enabled=True),
)


@pytest.mark.parametrize("scenario", [Scenario(), Scenario(seed=9), FULL])
def test_scenario_survives_its_json(scenario: Scenario) -> None:
    text = scenario.to_json()
    assert "\n" not in text
    assert Scenario.from_json(text, seed=scenario.seed) == scenario


def test_json_says_only_what_differs_from_the_default() -> None:
    assert json.loads(Scenario(seed=5).to_json()) == {}
    assert json.loads(Scenario(faults=LinkFaults(loss=0.3)).to_json()) == {"faults": {"loss": 0.3}}
    assert json.loads(FULL.to_json())["sds"] == {"max_retransmissions": 7}


def test_default_settings_are_those_of_the_library_with_times_a_tenth_as_long() -> None:
    scaled, default = Scenario().sds, SdsConfig()
    for name in (
        "acknowledgement_timeout_ms",
        "sync_interval_ms",
        "max_sync_interval_ms",
        "repair_t_min_ms",
        "repair_t_max_ms",
    ):
        assert getattr(scaled, name) * 10 == getattr(default, name)
    assert scaled.enable_repair
    assert scaled.max_retransmissions == default.max_retransmissions
    assert scaled.causal_history_size == default.causal_history_size


@pytest.mark.parametrize(
    "text",
    [
        '{"crashes": [{"participant": 0, "at_ms": 1, "moment": "tomorrow"}]}',
        '{"broken": "everything"}',
    ],
)
def test_moments_and_breakages_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be one of"):
        Scenario.from_json(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"senders": 0}', "senders must be from 1 to the 3 participants, not 0"),
        ('{"senders": 4}', "senders must be from 1 to the 3 participants, not 4"),
        ('{"sync_loss": 1.5}', "scenario.sync_loss must be from 0 to 1, not 1.5"),
        ('{"delays": {"kind": "normal"}}', "delays.kind must be one of constant, uniform,"),
        ('{"delays": {"mean_ms": -1}}', "delays.mean_ms must be 0 or more, not -1"),
        ('{"delays": {"mean_ms": Infinity}}', "delays.mean_ms must be 0 or more, not inf"),
        ('{"delays": {"mean_ms": 5, "spread_ms": 5}}', "delays.spread_ms must be 0 where"),
        (
            '{"delays": {"kind": "exponential"}}',
            "delays.mean_ms must be above 0, not 0.0",
        ),
        (
            '{"delays": {"kind": "lognormal", "mean_ms": 5, "spread_ms": 0}}',
            "delays.spread must be above 0, not 0",
        ),
        (
            '{"delays": {"kind": "uniform", "mean_ms": 5, "spread_ms": 6}}',
            "delays.spread_ms must not be above delays.mean_ms where it is 'uniform'",
        ),
        ('{"bursts": {"loss": 2, "burst_ms": 5}}', "bursts.loss must be from 0 to 1, not 2"),
        ('{"bursts": {"loss": 0.5, "burst_ms": 0}}', "bursts.burst_ms must be above 0, not 0"),
        (
            '{"bursts": {"loss": 0.5, "burst_ms": 5, "bad_loss": 0.4}}',
            "bursts.loss must be from 0 to 0.4, not 0.5",
        ),
        (
            '{"bursts": {"loss": 0, "burst_ms": 5, "bad_loss": 0.4, "good_loss": 0.4}}',
            "bursts.good_loss must be below bursts.bad_loss",
        ),
        ('{"churn": {"every_ms": 0, "down_ms": 1}}', "churn.every_ms must be above 0, not 0"),
        ('{"churn": {"every_ms": 1, "down_ms": -1}}', "churn.down_ms must be 0 or more, not -1"),
    ],
)
def test_values_out_of_bounds_are_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        Scenario.from_json(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_null_is_the_same_as_nothing_said() -> None:
    text = '{"delays": null, "bursts": null, "churn": null, "sync_loss": null, "senders": null}'
    assert Scenario.from_json(text) == Scenario()


@pytest.mark.parametrize(
    ("delays", "spread"),
    [
        (Delays(mean_ms=5), 0),
        (Delays(kind="exponential", mean_ms=5), 5),
        (Delays(kind="lognormal", mean_ms=5, spread_ms=2), 2),
    ],
)
def test_spread_that_is_not_given_is_that_of_the_kind(delays: Delays, spread: float) -> None:
    assert delays.spread == spread


def test_share_of_bad_time_gives_the_mean_loss() -> None:
    bursts = Bursts(loss=0.25, burst_ms=5, bad_loss=0.75, good_loss=0.125)
    share = bursts.bad_share
    assert share * 0.75 + (1 - share) * 0.125 == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("scenario", "excused"),
    [
        (Scenario(), False),
        (Scenario(restarts=(Restart(participant=0, at_ms=5),)), False),
        (Scenario(crashes=(Crash(participant=0, at_ms=5, moment="now"),)), True),
        (Scenario(churn=Churn(every_ms=5, down_ms=5)), True),
    ],
)
def test_only_crashes_and_churn_excuse_what_does_not_arrive(
    scenario: Scenario, excused: bool
) -> None:
    assert scenario.is_excused is excused
