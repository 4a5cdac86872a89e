"""A pair of simulated participants, and what one of them was given; for tests of the simulation itself."""

from __future__ import annotations

from typing import Any

from benchmarks.simulation import Scenario, Simulation


def pair(**fields: Any) -> Simulation:
    """Return two started participants whose transmissions are kept.

    Args:
        fields: Of the scenario.
    """
    made = Simulation(Scenario(participants=2, **fields), wire=[])
    made.start()
    return made


def messages(simulation: Simulation, index: int) -> list[bytes]:
    """Return the payloads that a participant was given, in order."""
    return [step.payload for step in simulation.journals[index].delivered()]
