"""Participants join, crash and go on from what was kept; time, clocks and checks are those of the scenario."""

from __future__ import annotations

import pytest

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.journal import FROM_STORE
from benchmarks.simulation.scenario import (
    START_NS,
    Crash,
    Join,
    NodeFaults,
    Scenario,
    StoreFaults,
)
from benchmarks.simulation.workload import play
from messaging_adapter.faults import LinkFaults
from reliable_channel.events import ChannelEvent, MessageReceivedEvent
from reliable_channel.records import LogRecord, OutgoingRecord
from reliable_channel.types import MS, SECOND
from tests.support.simulated import messages, pair


def test_late_joiner_hears_nothing_before_it_joins() -> None:
    simulation = Simulation(Scenario(joins=(Join(participant=2, at_ms=50),)))
    simulation.start(0, 1)
    simulation.send(0, b"early", ephemeral=True)
    simulation.run(50)
    simulation.start(2)
    simulation.send(0, b"now", ephemeral=True)
    simulation.run(1)
    assert messages(simulation, 2) == [b"now"]
    assert simulation.journals[2].joined_ns == START_NS + 50 * MS


def test_crash_loses_what_the_node_had_not_transmitted_and_keeps_the_rows() -> None:
    simulation = pair(node=NodeFaults(transmit_ms=10))
    request = simulation.send(0, b"m")
    simulation.run(5)
    simulation.crash(0)
    simulation.run(100)
    assert simulation.wire == []
    assert not simulation.journals[0].is_live
    assert (request, 0) in simulation.participants[0].rows[OutgoingRecord]
    simulation.start(0)
    assert simulation.settle(5_000)
    assert messages(simulation, 1) == [b"m"]
    assert simulation.journals[0].is_live
    simulation.check()


def test_torn_crash_keeps_the_effects_and_carries_nothing_out() -> None:
    simulation = pair()
    simulation.tear(0)
    simulation.send(0, b"m")
    assert simulation.participants[0].machine is None
    assert simulation.wire == []
    assert simulation.participants[0].rows[LogRecord]
    simulation.start(0)
    assert simulation.settle(5_000)
    assert messages(simulation, 1) == [b"m"]


def test_restarted_participant_does_not_hear_reports_to_its_former_self() -> None:
    simulation = pair(node=NodeFaults(report_ms=100))
    request = simulation.send(0, b"m")
    simulation.run(50)
    simulation.crash(0)
    simulation.start(0)
    simulation.run(60)
    assert not simulation.machine(0).request_status(request).sent


@pytest.mark.parametrize("catch_up", [True, False])
def test_restarted_participant_asks_for_what_it_missed_where_the_scenario_says_so(
    catch_up: bool,
) -> None:
    simulation = pair(store=StoreFaults(catch_up=catch_up))
    simulation.send(0, b"before")
    simulation.run(1_000)
    simulation.crash(1)
    simulation.send(0, b"meanwhile")
    simulation.run(10)
    simulation.start(1)
    assert messages(simulation, 1) == [b"before", *([b"meanwhile"] if catch_up else [])]


def test_application_is_told_after_the_effects_were_carried_out() -> None:
    told: list[tuple[int, int]] = []

    def on_event(index: int, event: ChannelEvent) -> None:
        if isinstance(event, MessageReceivedEvent):
            told.append((index, len(simulation.participants[index].rows[LogRecord])))
            if len(event.message) < 4:
                simulation.send(index, event.message + b".")

    simulation = Simulation(Scenario(participants=2), on_event=on_event)
    simulation.start()
    simulation.send(0, b".")
    assert simulation.settle(10_000)
    assert told == [(1, 1), (0, 2), (1, 3), (0, 4)]
    simulation.check()


def test_clock_of_a_participant_is_off_by_what_the_scenario_allows() -> None:
    simulation = Simulation(Scenario(participants=50, clock_skew_ms=100))
    offsets = [item.offset_ns / MS for item in simulation.participants]
    assert all(-100 <= offset <= 100 for offset in offsets)
    assert min(offsets) < -50 < 50 < max(offsets)
    simulation.start()
    times = [status.lamport_timestamp - START_NS // MS for status in simulation.statuses()]
    assert times == [pytest.approx(offset, abs=1) for offset in offsets]


def test_settling_gives_up_at_its_limit() -> None:
    simulation = pair(faults=LinkFaults(loss=1.0))
    simulation.send(0, b"m")
    assert not simulation.settle(1_000)
    assert simulation.now == START_NS + SECOND


def test_settling_ends_at_the_same_time_as_with_small_steps() -> None:
    """Time in which nothing happens is left out; nothing that happens is."""
    times = []
    for step_ms in (0.0, 250.0):
        simulation = pair(faults=LinkFaults(loss=0.5, delay_ms=30))
        for number in range(4):
            simulation.send(0, b"%d" % number)
        if step_ms:
            while not simulation.is_settled():
                simulation.run(step_ms)
        else:
            assert simulation.settle()
        times.append((simulation.now, [item.steps for item in simulation.journals]))
    assert times[0] == times[1]
    assert times[0][0] > START_NS + SECOND


def test_what_brought_a_delivery_is_in_the_journal() -> None:
    """The second copy of a transmission brings nothing; the store's answer and the end of a wait are no arrivals."""
    simulation = pair(faults=LinkFaults(duplicate=1.0))
    simulation.send(0, b"0")
    simulation.run(100)
    simulation.carries = lambda item, _: item.kind == "sync"
    simulation.send(0, b"1")
    simulation.run(10_000)
    numbers = [item.number for item in simulation.wire or () if item.kind == "segment"]
    assert [step.cause for step in simulation.journals[1].delivered()] == [numbers[0], FROM_STORE]
    assert [step.cause for step in simulation.journals[0].sent()] == [0, 0]


def test_check_leaves_out_what_need_not_hold() -> None:
    scenario = Scenario(messages=3, settle_ms=1_000, faults=LinkFaults(loss=1.0))
    assert play(scenario).check(besides=["delivery", "requests", "quiet"])


def test_a_crash_starts_again_after_its_time_with_another_clock() -> None:
    simulation = pair()
    simulation.arm(Crash(participant=0, at_ms=0, moment="now", down_ms=100, clock_ms=-30))
    assert simulation.participants[0].machine is None
    simulation.arm(Crash(participant=0, at_ms=0, moment="now"))
    assert simulation.counters["crashes_now"] == 1
    simulation.run(99)
    assert not simulation.journals[0].is_live
    simulation.run(1)
    assert simulation.journals[0].is_live
    assert simulation.participants[0].offset_ns == -30 * MS
    assert simulation.machine(0).state.now == simulation.now - 30 * MS
