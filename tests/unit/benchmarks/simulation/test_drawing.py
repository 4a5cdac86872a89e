"""A seed gives one scenario, whose command plays it again whole."""

from __future__ import annotations

from benchmarks.simulation.drawing import crash_scenario
from benchmarks.simulation.scenario import Scenario


def test_a_seed_gives_one_scenario_and_another_seed_another() -> None:
    assert crash_scenario(7) == crash_scenario(7)
    drawn = {crash_scenario(seed).to_json() for seed in range(50)}
    assert len(drawn) == 50


def test_drawn_scenarios_survive_their_json() -> None:
    for seed in range(50):
        scenario = crash_scenario(seed)
        assert Scenario.from_json(scenario.to_json(), seed=seed) == scenario


def test_what_is_broken_changes_nothing_else() -> None:
    broken = crash_scenario(3, broken="forget_budget")
    assert broken.broken == "forget_budget"
    assert broken.crashes == crash_scenario(3).crashes
