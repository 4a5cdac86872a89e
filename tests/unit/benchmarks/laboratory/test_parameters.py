"""Scenarios from plain values: what they become, what is refused and in which words."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.parameters import (
    BASE,
    PARITY,
    largest_payload,
    names,
    scenario_of,
    scenario_with,
    tables,
    unknown,
)
from benchmarks.laboratory.trial import run_trial
from benchmarks.simulation.scenario import Bursts, Churn, Delays, Partition, Scenario
from reliable_channel.config import SdsConfig
from reliable_channel.errors import ConfigurationError

FULL: dict[str, Any] = {
    "participants": 4,
    "senders": 2,
    "payload_bytes": [10, 2_000],
    "faults.loss": 0.1,
    "parity": 0.25,
    "store.enabled": False,
    "rate_limit.enabled": True,
    "sync_loss": 0.2,
    "sds.retransmission_backoff": 2,
    "delays": "none",
    "bursts.loss": 0.1,
    "bursts.burst_ms": 500,
    "churn.every_ms": 1_000,
    "churn.down_ms": 100,
    "partitions": [{"from_ms": 1, "until_ms": 2, "side": [0, 1]}],
    "crashes": [{"participant": 3, "at_ms": 5, "moment": "publish", "clock_ms": -5}],
}


def test_base_is_the_library_with_a_small_filter() -> None:
    assert BASE.sds == SdsConfig(bloom_capacity=500)
    assert BASE.payload_bytes == (1_024, 1_024)
    assert BASE.segmentation.segment_size_bytes * 4 == 1_024
    assert BASE.settle_ms > 2 * BASE.sds.dependency_timeout_ms


def test_names_are_all_that_a_grid_may_set() -> None:
    assert {"participants", "faults.loss", "sds.bloom_capacity", "bursts.burst_ms"} <= {*names()}
    assert {"seed", "broken", "sds.persistence", "faults"} & {*names()} == set()
    assert {"faults", "bursts", "sds"} <= {*tables()}


def test_values_become_what_they_are_for() -> None:
    scenario = scenario_with(FULL)
    assert scenario.participants == 4
    assert scenario.payload_bytes == (10, 2_000)
    assert scenario.segmentation.enable_reed_solomon
    assert scenario.segmentation.parity_rate == 0.25
    assert scenario.segmentation.segment_size_bytes == BASE.segmentation.segment_size_bytes
    assert scenario.delays is None
    assert scenario.bursts == Bursts(loss=0.1, burst_ms=500.0)
    assert scenario.churn == Churn(every_ms=1_000.0, down_ms=100.0)
    assert scenario.partitions == (Partition(from_ms=1.0, until_ms=2.0, side=(0, 1)),)
    assert scenario.crashes[0].clock_ms == -5.0
    assert isinstance(scenario.sds.retransmission_backoff, float)


def test_nothing_changes_nothing() -> None:
    assert scenario_with({}) == BASE


def test_later_values_count() -> None:
    off = scenario_with({PARITY: 0.5, "segmentation.enable_reed_solomon": False})
    assert not off.segmentation.enable_reed_solomon
    assert not scenario_with({PARITY: 0}).segmentation.enable_reed_solomon
    bursts = scenario_with({"bursts.loss": 0.1, "bursts.burst_ms": 5})
    assert scenario_with({"bursts": "none"}, bursts).bursts is None
    again = scenario_with({"bursts": "none", "bursts.loss": 0.2, "bursts.burst_ms": 5}, bursts)
    assert again.bursts == Bursts(loss=0.2, burst_ms=5.0)


@pytest.mark.parametrize("changes", [{}, FULL], ids=["base", "full"])
def test_a_cell_s_parameters_are_its_scenario_again(changes: dict[str, Any]) -> None:
    cell = Cell(name="a", scenario=scenario_with(changes))
    again = scenario_of(json.loads(json.dumps(cell.parameters)))
    assert again == cell.scenario
    assert Cell(name="b", scenario=again).key == cell.key


def test_a_whole_number_is_the_same_time() -> None:
    assert asdict(scenario_with({"interval_ms": 5})) == asdict(scenario_with({"interval_ms": 5.0}))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"loss": 0.1}, "there is no 'loss'; did you mean 'faults.loss' or "),
        ({"faults.los": 0.1}, "there is no 'faults.los'; did you mean 'faults.loss'?"),
        ({"faults.wrong": 0.1}, "known are faults.loss, faults.duplicate, faults.reorder"),
        ({"wrong": 0.1}, "known are parity, participants, messages"),
        ({"seed": 1}, "there is no 'seed'"),
        ({"broken": "x"}, "there is no 'broken'"),
        ({"sds.persistence": "x"}, "there is no 'sds.persistence'"),
        ({"faults.loss": 1.5}, "faults.loss must be from 0.0 to 1.0, not 1.5"),
        ({"faults.loss": "much"}, "faults.loss must be a number, not 'much'"),
        ({"faults.loss": True}, "faults.loss must be a number, not True"),
        ({"faults.loss": float("nan")}, "faults.loss must be a number, not nan"),
        ({"parity": "much"}, "parity must be a number, not 'much'"),
        ({"parity": 2}, "segmentation.parity_rate must be from 0.0 to 1.0, not 2.0"),
        ({"faults": 3}, "faults must be a table, not 3"),
        ({"faults": "none"}, "faults must be a table, not 'none'"),
        ({"participants": 1}, "participants must be from 2 to 1000, not 1"),
        ({"participants": 2.0}, "participants must be a whole number, not 2.0"),
        ({"participants": True}, "participants must be a whole number, not True"),
        ({"messages": -1}, "messages must be from 0 to 100000, not -1"),
        ({"interval_ms": -1}, "interval_ms must be from 0 to"),
        ({"settle_ms": float("inf")}, "settle_ms must be from 0 to"),
        ({"ephemeral": 2}, "ephemeral must be from 0 to 1, not 2"),
        ({"warm_up": 1}, "warm_up must be true or false, not 1"),
        ({"payload_bytes": [5]}, "payload_bytes must be a whole number or [smallest, largest]"),
        ({"payload_bytes": [5, 2]}, "payload_bytes: the smallest, 5, is above 2"),
        ({"payload_bytes": 0}, "payload_bytes must be from 1 to"),
        ({"payload_bytes": [1.5, 2]}, "payload_bytes must be a whole number, not 1.5"),
        ({"faults.loss": 10**400}, "faults.loss must be a number of fewer digits, not 1000"),
        ({"delays.mean_ms": 3e9}, "delays.mean_ms must be from 0 to 2.14748e+09, not 3000000000.0"),
        (
            {"payload_bytes": [1, 65_281]},
            "payload_bytes: 65281 is above what a channel with these settings takes, 65280",
        ),
        (
            {"payload_bytes": 2, "sds.max_outgoing_bytes": 7},
            "payload_bytes: 8 is above what a channel with these settings takes, 7",
        ),
        (
            {"sds.bloom_capacity": 1 << 20, "sds.bloom_error_rate": 1e-9},
            "leave no room for payload",
        ),
        ({"sds.bloom_capacity": -1}, "sds.bloom_capacity must be from 0 to 1048576, not -1"),
        ({"sds.message_id": "x"}, "sds.message_id must be one of salted, content, not 'x'"),
        ({"sds.repair_t_max_ms": 1}, "sds.repair_t_max_ms must be above repair_t_min_ms"),
        ({"senders": 3}, "senders must be from 1 to the 2 participants, not 3"),
        ({"bursts.loss": 0.1}, "bursts needs burst_ms"),
        ({"bursts.loss": 0.1, "bursts.burst_ms": 0}, "bursts.burst_ms must be above 0, not 0.0"),
        ({"partitions": 1}, "partitions must be a list, not 1"),
        ({"partitions": [1]}, "partitions[0] must be a table, not 1"),
        ({"partitions": [{"from_ms": 1}]}, "partitions[0] needs until_ms, side"),
        (
            {"partitions": [{"from_ms": 2, "until_ms": 1, "side": [0]}]},
            "partitions: until_ms 1 is before from_ms 2",
        ),
        (
            {"joins": [{"participant": 2, "at_ms": 1}]},
            "there is no participant 2: the 2 are numbered from 0",
        ),
        (
            {"joins": [{"participant": 1, "at": 1}]},
            "there is no 'joins[0].at'; did you mean 'joins[0].at_ms'?",
        ),
    ],
)
def test_a_mistake_is_a_sentence_that_names_the_parameter(
    changes: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        scenario_with(changes)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"payload_bytes": 65_280},
        {"payload_bytes": 160, "parity": 0.5, "segmentation.max_total_segments": 5},
        {"payload_bytes": 2, "sds.max_outgoing_bytes": 8},
    ],
)
def test_the_largest_payload_can_be_sent(changes: dict[str, Any]) -> None:
    plain = {"messages": 1, "segmentation.segment_size_bytes": 256, "settle_ms": 0}
    scenario = scenario_with(plain | changes)
    trial = run_trial(Cell(name="largest", scenario=scenario), 0, 0)
    assert (trial.problem, trial.messages) == ("", 1)
    above = max(scenario.payload_bytes[1], 8) * 100
    bare = replace(scenario, payload_bytes=(above, above))
    assert largest_payload(scenario) < above
    assert run_trial(Cell(name="larger", scenario=bare), 0, 0).problem


def test_delays_are_a_table_of_their_own() -> None:
    delays = scenario_with({"delays.kind": "lognormal", "delays.mean_ms": 5}).delays
    assert delays == Delays(kind="lognormal", mean_ms=5.0)


def test_parameters_of_another_version_are_refused() -> None:
    parameters = Cell(name="a", scenario=Scenario()).parameters
    with pytest.raises(ConfigurationError, match="there is no 'colour'"):
        scenario_of({**parameters, "colour": 3})


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("smok", ["smoke", "bloom"], "there is no 'smok'; did you mean 'smoke'?"),
        ("xyz", ["smoke", "bloom"], "there is no 'xyz'; known are smoke, bloom"),
    ],
)
def test_unknown_names_are_told_with_what_is_known(name: str, known: list[str], text: str) -> None:
    assert unknown(name, known) == text
