"""Each invariant accepts a good log and finds what is wrong in a bad one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import pytest

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.invariants import (
    QUIET_FIELDS,
    InvariantError,
    acknowledgement_problems,
    budget_problems,
    delivery_problems,
    key_problems,
    order_problems,
    quiet_problems,
    request_problems,
    row_problems,
    sequence_problems,
    shown_problems,
    wrap_problems,
)
from benchmarks.simulation.journal import Charge, Journal, Step
from benchmarks.simulation.scenario import START_NS, Scenario
from reliable_channel.config import RateLimitConfig
from reliable_channel.core.machine import ChannelStatus
from reliable_channel.events import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import LogRecord, OutgoingRecord, ParityRecord
from reliable_channel.types import SECOND

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
    key_problems,
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


def test_two_messages_under_one_key_are_found() -> None:
    steps = [
        sent(name, "p0")._replace(key=key)
        for name, key in (("m1", "k"), ("m2", ""), ("m3", ""), ("m4", "other"))
    ]
    log = [journal("p0", *steps), journal("p1", sent("m5", "p1")._replace(key="k"))]
    assert key_problems(log) == []
    log[0].steps.append(sent("m6", "p0")._replace(key="k"))
    assert key_problems(log) == ["p0: 2 messages were sent under the key 'k'"]


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
    texts = dict.fromkeys(("channel_id", "sender_id", "content_topic"), "p0")
    counts: dict[str, dict[str, int]] = {"counters": {}, "dropped": {}}
    sizes = {item.name: 0 for item in fields(ChannelStatus)}
    return ChannelStatus(**{**sizes, **texts, **counts, **values})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", QUIET_FIELDS)
def test_what_is_still_going_on_at_the_end_is_found(name: str) -> None:
    assert quiet_problems([quiet_status()]) == []
    assert quiet_problems([quiet_status(**{name: 2})]) == [f"p0: {name} is 2"]


BUDGET = RateLimitConfig(enabled=True, epoch_period_sec=10, messages_per_epoch=2)


@pytest.mark.parametrize(
    ("charges", "problems"),
    [
        ([("p0", 0, 0, 1), ("p0", 2, 2, 3), ("p1", 4, 4, 5)], 0),
        ([("p0", 0, 0, 1), ("p0", 2, 2, 3), ("p0", 4, 4, 5)], 1),
        ([("p0", 8, 8, 9), ("p0", 9, 9, 9), ("p0", 10, 10, 11), ("p0", 12, 12, 13)], 0),
        ([("p0", 9, 9, 10), ("p0", 11, 11, 12), ("p0", 13, 13, 14)], 1),
        ([("p0", 9, 10, 10), ("p0", 11, 11, 12), ("p0", 13, 13, 14)], 1),
        ([("p0", 8, 10, 10), ("p0", 9, 9, 9), ("p0", 9, 9, 9)], 1),
    ],
    ids=["within", "exceeded", "next epoch", "reported late", "made late", "taken before"],
)
def test_exceeded_budget_is_found(charges: list[tuple[str, int, int, int]], problems: int) -> None:
    made = [Charge(who, *(second * SECOND for second in seconds)) for who, *seconds in charges]
    assert len(budget_problems(made, BUDGET)) == problems


def test_long_list_of_problems_is_cut() -> None:
    error = InvariantError(Scenario(), {"delivery": [f"problem {n}" for n in range(100)]})
    assert "problem 11" in str(error)
    assert "problem 12" not in str(error)
    assert "delivery: and 88 more" in str(error)


def test_rows_of_segments_that_nothing_holds_any_more_are_found() -> None:
    simulation = Simulation(Scenario(participants=2))
    simulation.start()
    row = ParityRecord(
        arrival=1, set_number=1, segment_index=0, received_ns=1, history=b"", chunk=b"x"
    )
    who = simulation.participants[1]
    assert row_problems(simulation.participants) == []
    who.rows[ParityRecord] = {(1,): row}
    assert row_problems(simulation.participants) == ["p1: 1 rows of ParityRecord are left"]
    assert "rows" in simulation.problems()
    simulation.crash(1)
    assert row_problems(simulation.participants) == []


def test_rows_of_what_was_let_go_and_holdings_without_rows_are_found() -> None:
    simulation = Simulation(Scenario(participants=2))
    simulation.start()
    request_id = simulation.send(0, b"m")
    simulation.run(5_000)
    who = simulation.participants[0]
    assert row_problems(simulation.participants) == []
    who.rows[OutgoingRecord][request_id, 0] = next(iter(who.rows[LogRecord].values()))
    who.rows[LogRecord].clear()
    assert row_problems(simulation.participants) == [
        "p0: 1 rows of LogRecord are lacking",
        "p0: 1 rows of OutgoingRecord are left",
    ]


# --- Crashes -------------------------------------------------------------------------------------


def lost(name: str) -> ChannelEvent:
    return MessageLostEvent(channel_id="c", message_id=name, reason="dependency_timeout")


def test_after_crashes_what_was_reported_as_lost_or_undelivered_need_not_arrive() -> None:
    error = MessageDeliveryErrorEvent(channel_id="c", request_id="m2-req", error="")
    made = [
        with_events(journal("p0", sent("m1", "p0"), sent("m2", "p0")), delivered("m1"), error),
        with_events(journal("p1"), lost("m1")),
    ]
    assert len(delivery_problems(made)) == 2
    assert delivery_problems(made, excused=True) == []
    made[1].events.clear()
    assert delivery_problems(made, excused=True) == ["p1 lacks m1 of p0"]


def test_any_lost_segment_excuses_its_message_and_any_id_of_it_names_it() -> None:
    step = sent("m1", "p0")._replace(segments=("m1", "m1b"))
    assert delivery_problems(
        [journal("p0", step), with_events(journal("p1"), lost("m1b"))], excused=True
    ) == []  # fmt: skip
    assert delivery_problems(
        [journal("p0", step), journal("p1", got("m1b", "p0")._replace(payload=b"m1"))]
    ) == []  # fmt: skip


def test_after_crashes_an_ephemeral_message_may_come_again_and_no_other() -> None:
    for ephemeral, count in ((True, 0), (False, 1)):
        made = [
            journal("p0", sent("m1", "p0", ephemeral=ephemeral)),
            journal("p1", *2 * [got("m1", "p0", ephemeral=ephemeral)]),
        ]
        assert len(delivery_problems(made, excused=True)) == count


def test_order_is_not_known_across_what_was_reported_as_lost() -> None:
    made = [
        journal("p0", sent("m1", "p0"), sent("m2", "p0"), sent("m3", "p0")),
        with_events(journal("p1", got("m3", "p0"), got("m1", "p0")), lost("m2")),
    ]
    assert len(order_problems(made)) == 1
    assert order_problems(made, excused=True) == []
    made[1].events.clear()
    assert len(order_problems(made, excused=True)) == 1


def test_an_equal_payload_sent_again_has_the_place_of_the_first() -> None:
    again = [sent("m1", "p0"), sent("m2", "p0"), sent("m1", "p0")]
    made = [journal("p0", *again), journal("p1", got("m1", "p0"), got("m2", "p0"))]
    assert order_problems(made) == []
    made[1].steps.reverse()
    assert len(order_problems(made)) == 1


def test_each_kept_event_is_shown_once_as_it_was_kept() -> None:
    made = with_events(journal("p0"), delivered("m1"), delivered("m2"))
    made.shown = list(made.events)
    assert shown_problems([made]) == []
    for shown in (made.events[:1], made.events[::-1], [*made.events, made.events[1]], []):
        made.shown = list(shown)
        assert len(shown_problems([made])) == 1


def test_one_that_is_down_may_not_have_read_all_but_nothing_else() -> None:
    made = with_events(journal("p0", live=False), delivered("m1"), delivered("m2"))
    made.shown = made.events[:1]
    assert shown_problems([made]) == []
    made.shown = made.events[1:]
    assert len(shown_problems([made])) == 1


@pytest.mark.parametrize(("wraps", "count"), [((1, 2, 3), 0), ((2, 2), 1), ((3, 1, 2), 2)])
def test_wrap_times_that_do_not_grow_are_found(wraps: tuple[int, ...], count: int) -> None:
    steps = [sent(f"m{place}", "p0")._replace(wrap_ns=at) for place, at in enumerate(wraps)]
    assert len(wrap_problems([journal("p0", *steps)])) == count


def test_what_was_acknowledged_has_to_be_in_the_log_of_who_did() -> None:
    simulation = Simulation(Scenario(participants=2))
    simulation.start()
    simulation.send(0, b"m")
    simulation.run(5_000)
    assert simulation.journals[0].events
    assert acknowledgement_problems(simulation.participants) == []
    simulation.participants[1].rows[LogRecord].clear()
    (problem,) = acknowledgement_problems(simulation.participants)
    assert problem.startswith("p1 acknowledged ")
    (step,) = simulation.journals[0].sent()
    simulation.journals[1].events.append(lost(step.message_id))
    assert acknowledgement_problems(simulation.participants) == []
