"""A scenario is played wholly and at its times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.scenario import (
    START_NS,
    Churn,
    Join,
    Partition,
    Restart,
    Scenario,
    StoreFaults,
)
from benchmarks.simulation.workload import WARM_UP_ROUND_MS, Workload, play
from messaging_adapter.faults import LinkFaults
from reliable_channel.errors import ConfigurationError
from reliable_channel.types import MS, SECOND, Nanoseconds


def test_scenario_is_played_to_quiet() -> None:
    simulation = play(Scenario(messages=20)).check()
    assert simulation.is_settled()
    assert sum(len(item.sent()) for item in simulation.journals) == 20
    assert simulation.now < START_NS + 30 * SECOND


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


@pytest.mark.parametrize(
    "changes",
    [
        {"sds": replace(Scenario().sds, max_outgoing_messages=1)},
        {"sds": replace(Scenario().sds, max_outgoing_messages=1), "retries": 2},
        {"participants": 1, "restarts": (Restart(participant=0, at_ms=0, down_ms=500),)},
    ],
    ids=["full", "full again", "nobody there"],
)
def test_time_passes_before_a_send_is_tried_again(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = LinkFaults(delay_ms=20)
    simulation = Simulation(Scenario(messages=8, interval_ms=0, faults=faults, **changes))
    at, left = simulation.schedule.at, iter(range(50_000))

    def counted(time_ns: Nanoseconds, action: Callable[[], None]) -> None:
        assert next(left, None) is not None, "time stands still"
        at(time_ns, action)

    monkeypatch.setattr(simulation.schedule, "at", counted)
    Workload(simulation).play()
    assert sum(len(item.sent()) for item in simulation.journals) == 8


def test_payloads_have_the_sizes_of_the_scenario_and_are_all_different() -> None:
    simulation = play(Scenario(messages=50, payload_bytes=(10, 20)))
    payloads = [step.payload for item in simulation.journals for step in item.sent()]
    assert {len(payload) for payload in payloads} <= set(range(10, 21))
    assert len(set(payloads)) == 50


def test_unusable_settings_are_refused_at_once() -> None:
    sds = replace(Scenario().sds, bloom_capacity=1 << 20, bloom_error_rate=1e-9)
    with pytest.raises(ConfigurationError):
        play(Scenario(sds=sds))


def test_after_the_warm_up_nobodys_channel_is_new_and_everything_is_owed() -> None:
    simulation = Simulation(Scenario(messages=0, warm_up=True, faults=LinkFaults(loss=0.3)))
    Workload(simulation).play()
    for index, journal in enumerate(simulation.journals):
        assert not simulation.machine(index).gaps.is_settling()
        assert journal.joined_ns >= START_NS + WARM_UP_ROUND_MS * MS
        assert len(journal.sent()) >= 1


def test_times_count_from_the_end_of_the_warm_up() -> None:
    scenario = Scenario(
        participants=4,
        messages=40,
        interval_ms=100,
        warm_up=True,
        partitions=(Partition(from_ms=0, until_ms=60_000, side=(0,)),),
        joins=(Join(participant=3, at_ms=1_000),),
        restarts=(Restart(participant=1, at_ms=2_000),),
        faults=LinkFaults(delay_ms=20),
        store=StoreFaults(enabled=False),
    )
    lines: list[bytes] = []
    simulation = Simulation(scenario, trace=lines)
    workload = Workload(simulation)
    workload.play()
    began_sec = (workload.began_ns - START_NS) / SECOND
    assert began_sec >= WARM_UP_ROUND_MS / 1_000
    found = [(int(line.split()[0]) / SECOND, *line.split()[1:3]) for line in lines]
    starts = {who: time for time, who, what in found if what == b"start" and time > 0}
    assert starts == {b"p3": began_sec + 1, b"p1": began_sec + 2.5}
    heard = [time for time, who, what in found if (who, what) == (b"p0", b"receive")]
    assert any(time < began_sec for time in heard)
    assert not any(began_sec + 0.1 < time < began_sec + 60 for time in heard)
    assert simulation.now >= workload.began_ns + 60 * SECOND


@pytest.mark.parametrize("senders", [1, 2, 5])
def test_few_senders_warm_everybody_up(senders: int) -> None:
    simulation = Simulation(Scenario(participants=6, senders=senders, messages=0, warm_up=True))
    workload = Workload(simulation)
    workload.play()
    assert not any(simulation.machine(index).gaps.is_settling() for index in range(6))
    warm = [bool(journal.sent()) for journal in simulation.journals]
    assert warm == [index < max(senders, 2) for index in range(6)]
    assert workload.began_ns == simulation.journals[0].joined_ns > START_NS


def test_repeats_are_payloads_that_their_sender_has_sent() -> None:
    journals = play(Scenario(messages=60, repeats=0.5)).check().journals
    repeated = 0
    for journal in journals:
        payloads = [step.payload for step in journal.sent()]
        repeated += len(payloads) - len(set(payloads))
    assert 15 < repeated < 45
    assert not set.intersection(*({step.payload for step in item.sent()} for item in journals))


def test_retries_come_under_the_keys_of_their_payloads_and_send_nothing() -> None:
    restarts = tuple(
        Restart(participant=index, at_ms=500 + 700 * index, down_ms=2_000) for index in range(3)
    )
    plain = play(Scenario(messages=60, restarts=restarts)).check()
    simulation = play(Scenario(messages=60, restarts=restarts, retries=3)).check()
    assert plain.counters["repeats"] == 0
    assert simulation.counters["repeats"] == 3 * 60
    keys = [step.key for journal in simulation.journals for step in journal.sent()]
    assert sorted(keys) == sorted(f"send {number}" for number in range(60))


@pytest.mark.parametrize("senders", [1, 2, None])
def test_only_the_first_participants_send(senders: int | None) -> None:
    journals = play(Scenario(messages=30, senders=senders)).check().journals
    assert [bool(item.sent()) for item in journals] == [True, senders != 1, senders is None]
    assert sum(len(item.sent()) for item in journals) == 30


CHURN = Scenario(
    messages=100, interval_ms=1_000, churn=Churn(every_ms=10_000, down_ms=2_000), settle_ms=300_000
)


def test_in_churn_everybody_goes_down_and_comes_back_while_messages_are_sent() -> None:
    lines: list[bytes] = []
    simulation = play(CHURN, trace=lines)
    simulation.check()
    fields = [line.split()[:3] for line in lines]
    for who in (b"p0", b"p1", b"p2"):
        marks = [(int(at), what) for at, one, what in fields if one == who and what in CAME_OR_WENT]
        assert [what for _, what in marks] == [b"start", b"crash"] * (len(marks) // 2) + [b"start"]
        assert 5 <= len(marks) // 2 <= 13
        assert marks[-1][0] <= 100 * SECOND
        down = [back - gone for (gone, _), (back, _) in zip(marks[1::2], marks[2::2], strict=True)]
        assert 0.5 * SECOND < sum(down) / len(down) < 4 * SECOND
    assert simulation.counters["churned"] == sum(what == b"crash" for _, _, what in fields)


CAME_OR_WENT = (b"start", b"crash")


def test_who_is_down_at_the_end_of_churn_comes_back_then() -> None:
    churn = Churn(every_ms=1, down_ms=1e9)
    simulation = play(replace(CHURN, messages=3, churn=churn))
    assert simulation.counters["churned"] == 3
    assert all(item.machine is not None for item in simulation.participants)
    assert [item.generation for item in simulation.participants] == [2, 2, 2]


def test_nobody_comes_up_by_churn_who_has_not_joined() -> None:
    joins = (Join(participant=2, at_ms=9_500),)
    scenario = replace(CHURN, messages=9, joins=joins, churn=Churn(every_ms=100, down_ms=100))
    simulation = Simulation(scenario)
    Workload(simulation).play()
    assert simulation.participants[2].generation == 1
    assert simulation.journals[2].joined_ns == START_NS + 9_500 * MS


def test_churn_leaves_the_network_as_it_is() -> None:
    """The draws are the workload's: the same faults befall the same copies until the first one goes down."""
    first: list[bytes] = []
    second: list[bytes] = []
    calm = replace(CHURN, churn=None, faults=LinkFaults(loss=0.3))
    play(calm, trace=first)
    play(replace(calm, churn=CHURN.churn), trace=second)
    until = next(place for place, line in enumerate(second) if b" crash " in line)
    assert until > 100
    assert first[:until] == second[:until]
