"""A simulation is over when nothing is left to do, whatever was looked at before."""

from __future__ import annotations

import pytest

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.invariants import delivery_problems, quiet_problems
from benchmarks.simulation.scenario import Churn, Scenario, StoreFaults
from messaging_adapter.faults import LinkFaults
from tests.support.simulated import pair


@pytest.mark.parametrize("seed", range(4))
def test_what_is_looked_at_only_when_it_may_have_changed_is_what_it_would_be(seed: int) -> None:
    """Settled is: nothing under way, no channel with anything open, and everybody has everything."""
    scenario = Scenario(
        seed=seed,
        participants=4,
        messages=6,
        faults=LinkFaults(loss=0.4, delay_ms=20),
        store=StoreFaults(enabled=seed % 2 == 0),
        churn=Churn(every_ms=500, down_ms=100),
    )
    simulation = Simulation(scenario)
    simulation.start()
    found = []
    for number in range(6):
        simulation.send(number % 4, b"%d" % number)
        for _ in range(20):
            simulation.run(100)
            expected = (
                not simulation.schedule.under_way
                and not quiet_problems(simulation.statuses())
                and not delivery_problems(simulation.journals, excused=True)
            )
            assert simulation.is_settled() is simulation.is_settled() is expected
            found.append(expected)
        if number == 3:
            simulation.crash(0)
            simulation.start(0)
    assert False in found
    settled = simulation.settle(600_000)
    assert settled is not bool(delivery_problems(simulation.journals, excused=True))


def test_each_reason_alone_keeps_a_simulation_going() -> None:
    simulation = pair()
    settling = simulation.settling
    assert settling.is_over()
    simulation.after(10, lambda: None)
    assert settling.is_quiet()
    assert not settling.is_over()
    simulation.run(10)
    assert settling.is_over()
    simulation.carries = lambda item, _: item.kind == "sync"
    simulation.send(0, b"m")
    assert not settling.is_quiet()
    assert settling.is_lacking()
    simulation.carries = None
    assert simulation.settle()
    simulation.journals[1].steps.clear()
    assert settling.is_quiet()
    assert not settling.is_over()


def test_who_is_down_owes_nothing_and_is_owed_nothing() -> None:
    simulation = pair(store=StoreFaults(enabled=False))
    simulation.crash(1)
    simulation.send(0, b"m")
    simulation.run(10)
    assert not simulation.settling.is_lacking()
    simulation.start(1)
    assert simulation.settling.is_lacking()


def test_who_has_something_open_is_looked_at_first() -> None:
    simulation = pair()
    simulation.send(1, b"m")
    assert not simulation.settling.is_quiet()
    assert [who.index for who in simulation.settling.restless] == [1, 0]
