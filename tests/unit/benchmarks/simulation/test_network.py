"""Nodes, links and the store do what the scenario says, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.journal import Charge
from benchmarks.simulation.scenario import START_NS, NodeFaults, Partition, Scenario, StoreFaults
from benchmarks.simulation.workload import Workload
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig
from reliable_channel.core.wire import SdsKind, SdsMessage
from reliable_channel.types import MS
from tests.support.simulated import messages, pair

BUDGET = RateLimitConfig(enabled=True, epoch_period_sec=10, messages_per_epoch=2)

# --- Links ----------------------------------------------------------------------------------------


def test_copy_takes_the_time_of_its_link() -> None:
    simulation = pair(faults=LinkFaults(delay_ms=30))
    simulation.send(0, b"m")
    simulation.run(29.9)
    assert messages(simulation, 1) == []
    simulation.run(0.2)
    assert messages(simulation, 1) == [b"m"]


def test_each_receivers_copy_has_its_own_fate() -> None:
    simulation = Simulation(Scenario(participants=20, faults=LinkFaults(loss=0.5)), wire=[])
    simulation.start()
    simulation.send(0, b"m")
    simulation.run(0)
    assert 3 <= sum(messages(simulation, index) == [b"m"] for index in range(1, 20)) <= 16


def test_what_one_receiver_misses_does_not_depend_on_who_else_is_there() -> None:
    def arrivals(participants: int) -> list[bytes]:
        scenario = Scenario(participants=participants, faults=LinkFaults(loss=0.5))
        simulation = Simulation(
            replace(scenario, store=StoreFaults(enabled=False)),
            carries=lambda item, _: item.sender == 0,
        )
        simulation.start()
        for number in range(30):
            simulation.send(0, b"%d" % number, ephemeral=True)
        simulation.run(0)
        return messages(simulation, 1)

    assert arrivals(2) == arrivals(6)


def test_partition_cuts_both_ways_while_it_lasts() -> None:
    cut = Partition(from_ms=10, until_ms=20, side=(0,))
    simulation = pair(partitions=(cut,), faults=LinkFaults())
    for index in (0, 1):
        for delay in (0, 10, 19, 20):
            payload = b"%d at %d" % (index, delay)
            simulation.after(
                delay,
                lambda index=index, payload=payload: simulation.send(
                    index, payload, ephemeral=True
                ),
            )
    simulation.run(30)
    assert messages(simulation, 0) == [b"1 at 0", b"1 at 20"]
    assert messages(simulation, 1) == [b"0 at 0", b"0 at 20"]


def test_link_filter_decides_about_each_copy() -> None:
    simulation = Simulation(Scenario(), carries=lambda transmission, receiver: receiver == 2)
    simulation.start()
    simulation.send(0, b"m")
    simulation.run(1)
    assert [messages(simulation, index) for index in (1, 2)] == [[], [b"m"]]


def test_own_messages_come_back_only_from_nodes_that_echo() -> None:
    for rate, echoes in ((0.0, 0), (1.0, 1)):
        simulation = pair(node=NodeFaults(echo=rate))
        simulation.send(0, b"m")
        simulation.run(1)
        assert simulation.machine(0).status().counters.get("echoes", 0) == echoes


def test_transmissions_are_known_by_the_names_that_machines_give_them() -> None:
    scenario = Scenario(
        messages=20, warm_up=True, faults=LinkFaults(loss=0.4), store=StoreFaults(enabled=False)
    )
    simulation = Simulation(scenario, wire=[])
    Workload(simulation).play()
    kinds = {"segment": SdsKind.CONTENT, "repair": SdsKind.CONTENT, "sync": SdsKind.SYNC}
    assert simulation.wire is not None
    assert {item.kind for item in simulation.wire} == set(kinds)
    for item in simulation.wire:
        assert SdsMessage.decode(item.data).kind is kinds[item.kind]


def test_losses_of_syncs_befall_nothing_else() -> None:
    simulation = pair(sync_loss=1.0)
    arrived: list[str] = []
    simulation.network.arrive = lambda _, transmission: arrived.append(transmission.kind)
    simulation.send(0, b"m")
    simulation.run(20_000)
    assert {item.kind for item in simulation.wire or ()} >= {"segment", "sync"}
    assert set(arrived) == {"segment"}


# --- Nodes ----------------------------------------------------------------------------------------


def test_outcome_is_reported_after_its_time() -> None:
    simulation = pair(node=NodeFaults(report_ms=40))
    request = simulation.send(0, b"m")
    simulation.run(39.9)
    assert not simulation.machine(0).request_status(request).sent
    simulation.run(0.2)
    assert simulation.machine(0).request_status(request).sent


def test_node_transmits_one_message_after_the_other() -> None:
    simulation = pair(node=NodeFaults(transmit_ms=10))
    for payload in (b"1", b"2", b"3"):
        simulation.send(0, payload)
    simulation.run(35)
    times = [(item.time_ns - START_NS) / MS for item in simulation.wire or () if item.sender == 0]
    assert times == [10, 20, 30]


@pytest.mark.parametrize(
    ("faults", "reaches", "ends"),
    [
        (NodeFaults(failure=1.0), False, False),
        (NodeFaults(rejection=1.0), False, True),
        (NodeFaults(false_failure=1.0), True, False),
    ],
    ids=["failure", "rejection", "false failure"],
)
def test_node_fails_as_the_scenario_says(faults: NodeFaults, reaches: bool, ends: bool) -> None:
    simulation = pair(node=faults)
    request = simulation.send(0, b"m")
    simulation.run(20)
    assert messages(simulation, 1) == ([b"m"] if reaches else [])
    assert simulation.machine(0).request_status(request).is_final is ends


@pytest.mark.parametrize("retryable", [True, False])
def test_refusal_decides_about_each_publication(retryable: bool) -> None:
    simulation = pair()
    simulation.refusal = lambda publish, index: retryable if b"bad" in publish.data else None
    good, bad = simulation.send(0, b"good"), simulation.send(0, b"bad")
    simulation.run(20)
    assert simulation.machine(0).request_status(good).sent
    assert simulation.machine(0).request_status(bad).is_final is not retryable
    assert simulation.counters["publish_failures"] == 1


def test_only_what_reached_the_network_is_charged_to_the_budget() -> None:
    simulation = pair(rate_limit=BUDGET, node=NodeFaults(report_ms=5))
    simulation.refusal = lambda publish, index: False if b"bad" in publish.data else None
    simulation.send(0, b"bad")
    simulation.send(0, b"good")
    assert simulation.charges == [Charge("p0", START_NS, START_NS, START_NS)]
    simulation.run(5)
    assert simulation.charges == [Charge("p0", START_NS, START_NS, START_NS + 5 * MS)]


def test_a_report_that_nobody_was_there_to_take_is_not_charged_again() -> None:
    simulation = pair(rate_limit=BUDGET, node=NodeFaults(report_ms=5))
    simulation.send(0, b"m")
    simulation.crash(0)
    simulation.run(5)
    assert simulation.charges == [Charge("p0", START_NS, START_NS, START_NS)]


def test_what_the_node_has_taken_goes_out_late_and_whatever_becomes_of_the_process() -> None:
    simulation = pair(rate_limit=BUDGET, node=NodeFaults(late_ms=1_000))
    simulation.send(0, b"m")
    assert simulation.wire == simulation.charges == []
    simulation.crash(0)
    simulation.run(1_000)
    assert simulation.wire is not None
    assert len(simulation.wire) == 1
    [charge] = simulation.charges
    assert charge.taken_ns == START_NS < charge.made_ns == charge.reported_ns
    assert simulation.counters["made_after_death"] == 1


def test_what_goes_out_late_is_reported_after_that() -> None:
    simulation = pair(rate_limit=BUDGET, node=NodeFaults(late_ms=1_000, report_ms=5))
    simulation.send(0, b"m")
    simulation.run(1_005)
    charge = simulation.charges[0]
    assert charge.reported_ns == charge.made_ns + 5 * MS
    assert simulation.counters["made_after_death"] == 0


def test_what_is_handed_over_after_its_epoch_waits_for_the_next() -> None:
    simulation = pair(rate_limit=BUDGET, node=NodeFaults(transmit_ms=10_000))
    simulation.send(0, b"m")
    simulation.run(10_020)
    assert simulation.wire == []
    assert simulation.charges == []
    assert simulation.counted("expired_transmissions") == 1


# --- Store ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "answer"),
    [
        (StoreFaults(), True),
        (StoreFaults(enabled=False), False),
        (StoreFaults(loss=1.0), False),
        (StoreFaults(lag_ms=60_000), False),
        (StoreFaults(failure=1.0), False),
    ],
    ids=["there", "none", "lossy", "lagging", "failing"],
)
def test_store_answers_as_the_scenario_says(store: StoreFaults, answer: bool) -> None:
    """p2 misses the message and hears of it by a sync."""
    simulation = Simulation(
        Scenario(store=store),
        carries=lambda transmission, receiver: receiver != 2 or transmission.ephemeral,
    )
    simulation.start()
    simulation.send(0, b"m")
    simulation.run(2_000)
    assert simulation.counters["fetches"] >= 1
    assert messages(simulation, 2) == ([b"m"] if answer else [])


def test_store_answers_after_its_time() -> None:
    simulation = Simulation(
        Scenario(store=StoreFaults(answer_ms=5_000)),
        carries=lambda transmission, receiver: receiver != 2 or transmission.ephemeral,
    )
    simulation.start()
    simulation.send(0, b"m")
    simulation.run(4_900)
    assert messages(simulation, 2) == []
    simulation.run(400)
    assert messages(simulation, 2) == [b"m"]
