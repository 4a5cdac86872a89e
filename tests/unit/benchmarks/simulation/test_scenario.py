"""A scenario is data: it survives its text, which says no more than needed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.simulation.scenario import (
    Crash,
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
