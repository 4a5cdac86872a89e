"""A cell's key says what is played, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.laboratory.cell import Cell
from benchmarks.simulation.scenario import Bursts, Churn, Delays, Scenario
from messaging_adapter.faults import LinkFaults

CELL = Cell(name="one", labels=(("faults.loss", 0.1),), scenario=Scenario())


def test_name_labels_and_seed_are_not_in_the_key() -> None:
    other = Cell(name="two", scenario=Scenario(seed=5), max_channels=7)
    assert other.key == CELL.key == CELL.hash.hex()
    assert len(CELL.key) == 16


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(faults=LinkFaults(loss=0.1)),
        Scenario(senders=1),
        Scenario(sync_loss=0.0),
        Scenario(bursts=Bursts(loss=0.1, burst_ms=5)),
        Scenario(delays=Delays(mean_ms=5)),
        Scenario(churn=Churn(every_ms=5, down_ms=5)),
        Scenario(sds=replace(Scenario().sds, max_retransmissions=1)),
    ],
)
def test_every_parameter_is_in_the_key(scenario: Scenario) -> None:
    assert replace(CELL, scenario=scenario).key != CELL.key


def test_labels_are_found_by_name() -> None:
    assert CELL.label("faults.loss") == 0.1
    assert CELL.label("theory") is None
    assert CELL.label("theory", "3") == "3"


def test_large_groups_have_fewer_channels() -> None:
    assert CELL.channels(5_000) == 5_000
    assert replace(CELL, max_channels=200).channels(5_000) == 200
    assert replace(CELL, max_channels=200).channels(50) == 50
