"""The virtual-time network itself: invariants fail on bad logs, faults are what the scenario says, seeds decide all."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import simulation as harness
from benchmarks.simulation import (
    QUIET_FIELDS,
    START_NS,
    Charge,
    InvariantError,
    Join,
    Journal,
    NodeFaults,
    Partition,
    Restart,
    Scenario,
    Simulation,
    Step,
    StoreFaults,
    budget_problems,
    delivery_problems,
    order_problems,
    play,
    quiet_problems,
    request_problems,
    sequence_problems,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.machine import ChannelStatus
from reliable_channel.errors import ConfigurationError
from reliable_channel.events import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import LogRecord, OutgoingRecord
from reliable_channel.types import MS, SECOND

# --- Made-up logs --------------------------------------------------------------------------------


def sent(name: str, sender: str, *, at: int = 0, ephemeral: bool = False) -> Step:
    return Step(name, sender, name.encode(), START_NS + at, ephemeral, request_id=f"{name}-req")


def got(
    name: str, sender: str, *, at: int = 0, ephemeral: bool = False, late: bool = False
) -> Step:
    return Step(name, sender, name.encode(), START_NS + at, ephemeral, late=late)


def journal(sender: str, *steps: Step, joined: int = 0, live: bool = True) -> Journal:
    return Journal(sender_id=sender, joined_ns=START_NS + joined, is_live=live, steps=list(steps))


def with_events(made: Journal, *events: ChannelEvent) -> Journal:
    made.events = [event.with_sequence(place) for place, event in enumerate(events, start=1)]
    return made


def delivered(name: str) -> ChannelEvent:
    return MessageDeliveredEvent(channel_id="c", request_id=f"{name}-req")


def good_log() -> list[Journal]:
    """Return a log of three participants with nothing wrong in it."""
    return [
        with_events(
            journal("p0", sent("m1", "p0"), got("m2", "p1", at=2)),
            delivered("m1"),
        ),
        with_events(
            journal("p1", got("m1", "p0", at=1), sent("m2", "p1", at=1)),
            delivered("m2"),
        ),
        journal("p2", got("m1", "p0", at=3), got("m2", "p1", at=3)),
    ]


ALL: list[Callable[[list[Journal]], list[str]]] = [
    delivery_problems,
    order_problems,
    request_problems,
    sequence_problems,
]


@pytest.mark.parametrize("invariant", ALL)
def test_good_log_has_no_problems(invariant: Callable[[list[Journal]], list[str]]) -> None:
    assert invariant(good_log()) == []


# --- Delivered exactly once ----------------------------------------------------------------------


def test_missing_delivery_is_found() -> None:
    log = good_log()
    log[2].steps.pop()
    assert delivery_problems(log) == ["p2 lacks m2 of p1"]


def test_second_delivery_is_found() -> None:
    log = good_log()
    log[2].steps.append(got("m1", "p0"))
    log[2].steps.append(got("m1", "p0"))
    assert delivery_problems(log) == ["p2 delivered m1 again"]


def test_second_delivery_of_an_ephemeral_message_is_found() -> None:
    log = good_log()
    log[0].steps.append(sent("e", "p0", ephemeral=True))
    log[1].steps += [got("e", "p0", ephemeral=True)] * 2
    assert delivery_problems(log) == ["p1 delivered e again"]


@pytest.mark.parametrize(
    "step",
    [
        got("m2", "p1")._replace(payload=b"other"),
        got("m2", "p0"),
        got("m2", "p1", ephemeral=True),
    ],
    ids=["payload", "sender", "ephemeral"],
)
def test_changed_delivery_is_found(step: Step) -> None:
    log = good_log()
    log[2].steps[1] = step
    assert delivery_problems(log) == ["p2 delivered m2 changed"]


def test_delivery_that_nobody_sent_is_found() -> None:
    log = good_log()
    log[2].steps.append(got("m3", "p1"))
    assert delivery_problems(log) == ["p2 delivered m3, which nobody sent"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda log: setattr(log[2], "is_live", False), "it is down at the end"),
        (lambda log: setattr(log[2], "joined_ns", START_NS + 2), "it joined later"),
        (
            lambda log: log[1].events.append(
                MessageSendErrorEvent(channel_id="c", request_id="m2-req", error="no")
            ),
            "it was never sent",
        ),
        (
            lambda log: log[1].steps.__setitem__(1, sent("m2", "p1", ephemeral=True)),
            "it is ephemeral",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nobody_has_to_have_what_is_not_owed(
    change: Callable[[list[Journal]], None], reason: str
) -> None:
    log = good_log()
    log[2].steps.pop()
    log[0].steps.pop()
    change(log)
    assert not [text for text in delivery_problems(log) if text.startswith("p2")], reason


# --- Causal order --------------------------------------------------------------------------------


def test_effect_before_its_cause_is_found() -> None:
    log = good_log()
    log[2].steps.reverse()
    (problem,) = order_problems(log)
    assert problem == "p2 delivered m2 of p1 before m1, which comes before it"


def test_second_message_of_a_sender_before_its_first_is_found() -> None:
    log = [
        journal("p0", sent("m1", "p0"), sent("m2", "p0")),
        journal("p1", got("m2", "p0"), got("m1", "p0")),
    ]
    assert len(order_problems(log)) == 1


def test_effect_of_a_distant_cause_is_found() -> None:
    """Every later message of the sender comes after the cause, not only the next one."""
    log = good_log()
    log[1].steps.append(sent("m3", "p1"))
    log[2].steps = [got("m2", "p1"), got("m3", "p1"), got("m1", "p0")]
    assert len(order_problems(log)) == 2


@pytest.mark.parametrize("step", [got("m1", "p0", late=True), got("m1", "p0", ephemeral=True)])
def test_late_and_ephemeral_messages_have_no_place_in_the_order(step: Step) -> None:
    log = good_log()
    log[2].steps = [got("m2", "p1"), step]
    assert order_problems(log) == []


def test_messages_from_before_it_joined_have_no_order_for_a_participant() -> None:
    log = good_log()
    log[2].steps.reverse()
    log[2].joined_ns = START_NS + 1
    assert order_problems(log) == []


def test_concurrent_messages_may_come_in_any_order() -> None:
    log = [
        journal("p0", sent("m1", "p0"), got("m2", "p1")),
        journal("p1", sent("m2", "p1"), got("m1", "p0")),
        journal("p2", got("m1", "p0"), got("m2", "p1")),
        journal("p3", got("m2", "p1"), got("m1", "p0")),
    ]
    assert order_problems(log) == []


# --- Requests ------------------------------------------------------------------------------------


def test_request_that_does_not_end_is_found() -> None:
    log = good_log()
    log[0].events.clear()
    assert request_problems(log) == ["p0: request m1-req ended 0 times"]


def test_request_of_a_participant_that_is_down_may_be_open() -> None:
    log = good_log()
    log[0].events.clear()
    log[0].is_live = False
    assert request_problems(log) == []


@pytest.mark.parametrize(
    "event",
    [
        delivered("m1"),
        MessageSendErrorEvent(channel_id="c", request_id="m1-req", error="no"),
        MessageDeliveryErrorEvent(channel_id="c", request_id="m1-req", error="no"),
    ],
    ids=["delivered", "send-error", "delivery-error"],
)
def test_request_that_ends_twice_is_found(event: ChannelEvent) -> None:
    log = good_log()
    log[0].events.append(event)
    assert request_problems(log) == ["p0: request m1-req ended 2 times"]


def test_end_of_no_request_is_found() -> None:
    log = good_log()
    log[0].events.append(delivered("m9"))
    assert request_problems(log) == ["p0: m9-req, which is no request, ended"]


def test_sent_ends_an_ephemeral_request_and_no_other() -> None:
    event = MessageSentEvent(channel_id="c", request_id="m1-req")
    ephemeral = [with_events(journal("p0", sent("m1", "p0", ephemeral=True)), event)]
    assert request_problems(ephemeral) == []
    ordinary = [with_events(journal("p0", sent("m1", "p0")), event)]
    assert request_problems(ordinary) == ["p0: request m1-req ended 0 times"]


# --- Events, quiet, budget -----------------------------------------------------------------------


@pytest.mark.parametrize("sequences", [[2], [1, 3], [1, 1], [0]])
def test_events_that_are_not_numbered_from_1_without_gaps_are_found(sequences: list[int]) -> None:
    log = [journal("p0")]
    log[0].events = [delivered("m1").with_sequence(number) for number in sequences]
    assert len(sequence_problems(log)) == 1


def quiet_status(**values: int) -> ChannelStatus:
    numbers = dict.fromkeys((*QUIET_FIELDS, "lamport_timestamp", "known_messages"), 0)
    numbers.update({"open_bytes": 0, "participants": 0, **values})
    return ChannelStatus(
        channel_id="c", sender_id="p0", content_topic="t", counters={}, dropped={}, **numbers
    )


@pytest.mark.parametrize("name", QUIET_FIELDS)
def test_what_is_still_going_on_at_the_end_is_found(name: str) -> None:
    assert quiet_problems([quiet_status()]) == []
    assert quiet_problems([quiet_status(**{name: 2})]) == [f"p0: {name} is 2"]


BUDGET = RateLimitConfig(enabled=True, epoch_period_sec=10, messages_per_epoch=2)


@pytest.mark.parametrize(
    ("charges", "problems"),
    [
        ([("p0", 0, 1), ("p0", 2, 3), ("p1", 4, 5)], 0),
        ([("p0", 0, 1), ("p0", 2, 3), ("p0", 4, 5)], 1),
        ([("p0", 8, 9), ("p0", 9, 9), ("p0", 10, 11), ("p0", 12, 13)], 0),
        ([("p0", 9, 10), ("p0", 11, 12), ("p0", 13, 14)], 1),
    ],
    ids=["within", "exceeded", "next epoch", "reported after the boundary"],
)
def test_exceeded_budget_is_found(charges: list[tuple[str, int, int]], problems: int) -> None:
    made = [Charge(who, made * SECOND, told * SECOND) for who, made, told in charges]
    assert len(budget_problems(made, BUDGET)) == problems


def test_failed_check_says_seed_problems_and_a_command_that_plays_it_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenario = Scenario(seed=42, messages=3, settle_ms=1_000, faults=LinkFaults(loss=1.0))
    simulation = play(scenario)
    with pytest.raises(InvariantError) as failure:
        simulation.check()
    assert set(failure.value.problems) == {"delivery", "requests", "quiet"}
    text = str(failure.value)
    assert text.startswith("seed 42; ")
    assert " lacks " in text
    command = text.splitlines()[0].partition(": ")[2]
    assert command == scenario.command
    assert shlex.split(command)[:5] == ["python", "-m", "benchmarks.simulation", "--seed", "42"]
    assert harness.main(shlex.split(command)[3:]) == 1
    assert text in capsys.readouterr().out


def test_check_leaves_out_what_need_not_hold() -> None:
    scenario = Scenario(messages=3, settle_ms=1_000, faults=LinkFaults(loss=1.0))
    assert play(scenario).check(besides=["delivery", "requests", "quiet"])


def test_long_list_of_problems_is_cut() -> None:
    error = InvariantError(Scenario(), {"delivery": [f"problem {n}" for n in range(100)]})
    assert "problem 11" in str(error)
    assert "problem 12" not in str(error)
    assert "delivery: and 88 more" in str(error)


# --- Scenarios as data ---------------------------------------------------------------------------

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
        "dependency_timeout_ms",
    ):
        assert getattr(scaled, name) * 10 == getattr(default, name)
    assert scaled.max_retransmissions == default.max_retransmissions
    assert scaled.causal_history_size == default.causal_history_size


@pytest.mark.parametrize(
    "text", ["{", '{"nonsense": 1}', '{"faults": {"loss": 2}}', '{"sds": {"loss": 1}}']
)
def test_unusable_scenario_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        harness.main(["--scenario", text])
    assert end.value.code == 2
    assert "--scenario:" in capsys.readouterr().err


def test_command_plays_a_scenario_and_writes_its_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace"
    arguments = ["--seed", "1", "--scenario", '{"messages": 5}', "--trace", str(path)]
    assert harness.main(arguments) == 0
    lines: list[bytes] = []
    play(Scenario(seed=1, messages=5), trace=lines)
    assert path.read_bytes().splitlines() == lines
    assert "p0: " in capsys.readouterr().out


# --- The network ---------------------------------------------------------------------------------


def pair(**fields: object) -> Simulation:
    made = Simulation(Scenario(participants=2, **fields), wire=[])  # type: ignore[arg-type]
    made.start()
    return made


def messages(simulation: Simulation, index: int) -> list[bytes]:
    return [step.payload for step in simulation.journals[index].delivered()]


def test_actions_happen_in_the_order_of_their_times_then_of_their_setting() -> None:
    simulation, done = pair(), list[str]()
    simulation.after(20, lambda: done.append("second"))
    simulation.after(10, lambda: done.append("first"))
    simulation.after(20, lambda: done.append("third"))
    simulation.run(19.9)
    assert done == ["first"]
    simulation.run(0.1)
    assert done == ["first", "second", "third"]
    assert simulation.now == START_NS + 20 * MS


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


# --- Node and store ------------------------------------------------------------------------------


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


# --- Participants --------------------------------------------------------------------------------


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


def test_only_what_reached_the_network_is_charged_to_the_budget() -> None:
    simulation = pair(rate_limit=BUDGET, node=NodeFaults(report_ms=5))
    simulation.refusal = lambda publish, index: False if b"bad" in publish.data else None
    simulation.send(0, b"bad")
    simulation.send(0, b"good")
    assert simulation.charges == [Charge("p0", START_NS, START_NS + 5 * MS)]


# --- Whole scenarios -----------------------------------------------------------------------------


def test_scenario_is_played_to_quiet() -> None:
    simulation = play(Scenario(messages=20)).check()
    assert simulation.is_settled()
    assert sum(len(item.sent()) for item in simulation.journals) == 20
    assert simulation.now < START_NS + 30 * SECOND


def test_settling_gives_up_at_its_limit() -> None:
    simulation = pair(faults=LinkFaults(loss=1.0))
    simulation.send(0, b"m")
    assert not simulation.settle(1_000)
    assert simulation.now == START_NS + SECOND


def test_everything_in_a_scenario_happens_at_its_time() -> None:
    scenario = Scenario(
        messages=40,
        interval_ms=100,
        joins=(Join(participant=2, at_ms=1_000),),
        restarts=(
            Restart(participant=0, at_ms=2_000, down_ms=300),
            Restart(participant=1, at_ms=3_000, torn=True),
        ),
    )
    lines: list[bytes] = []
    simulation = play(scenario, trace=lines)
    marks = [
        (int(fields[0]) / SECOND, fields[1], fields[2])
        for fields in (line.split() for line in lines)
        if fields[2] in (b"start", b"crash")
    ]
    assert marks[:3] == [(0, b"p0", b"start"), (0, b"p1", b"start"), (1, b"p2", b"start")]
    assert marks[3:5] == [(2, b"p0", b"crash"), (2.3, b"p0", b"start")]
    assert [mark[1:] for mark in marks[5:]] == [(b"p1", b"crash"), (b"p1", b"start")]
    assert 3 <= marks[5][0] <= marks[6][0] == 3.5
    assert [item.generation for item in simulation.participants] == [2, 2, 1]


def test_sends_wait_while_a_channel_is_full() -> None:
    sds = replace(Scenario().sds, max_outgoing_messages=1)
    simulation = play(Scenario(messages=30, interval_ms=1, sds=sds, settle_ms=60_000)).check()
    assert simulation.counters["sends_put_off"] > 0
    assert sum(len(item.sent()) for item in simulation.journals) == 30


def test_sends_wait_while_nobody_is_there() -> None:
    restarts = (Restart(participant=0, at_ms=100, down_ms=1_000),)
    simulation = play(Scenario(participants=1, messages=10, restarts=restarts))
    assert len(simulation.journals[0].sent()) == 10


def test_payloads_have_the_sizes_of_the_scenario_and_are_all_different() -> None:
    simulation = play(Scenario(messages=50, payload_bytes=(10, 20)))
    payloads = [step.payload for item in simulation.journals for step in item.sent()]
    assert {len(payload) for payload in payloads} <= set(range(10, 21))
    assert len(set(payloads)) == 50


def test_unusable_settings_are_refused_at_once() -> None:
    sds = replace(Scenario().sds, bloom_capacity=1 << 20, bloom_error_rate=1e-9)
    with pytest.raises(ConfigurationError):
        play(Scenario(sds=sds))
