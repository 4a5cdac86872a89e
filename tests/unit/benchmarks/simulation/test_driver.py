"""Effects are carried out in their order, up to the moment at which the process dies."""

from __future__ import annotations

import pytest

from benchmarks.simulation.driver import Batch
from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.scenario import Crash, Moment, NodeFaults, Scenario
from reliable_channel.config import RateLimitConfig
from reliable_channel.core.effects import Effects
from reliable_channel.events import MessageReceivedEvent
from reliable_channel.records import LedgerRecord, RequestRecord
from tests.support.simulated import SMALL_SEGMENTS, messages, pair

LIMITED = RateLimitConfig(enabled=True, epoch_period_sec=60, messages_per_epoch=50)


def doomed(moment: Moment, *, passes: int = 0, commit_ms: float = 0.0) -> Simulation:
    """Return a pair whose first participant dies at a moment; its node takes three messages of one ``send``."""
    simulation = Simulation(
        Scenario(
            participants=2,
            segmentation=SMALL_SEGMENTS,
            rate_limit=LIMITED,
            commit_ms=commit_ms,
            node=NodeFaults(report_ms=5),
        ),
        wire=[],
    )
    simulation.start()
    simulation.run(100)
    simulation.arm(Crash(participant=0, at_ms=0, moment=moment, passes=passes, down_ms=50))
    return simulation


@pytest.mark.parametrize(
    ("moment", "passes", "counted", "kept", "published"),
    [
        ("now", 0, False, False, 0),
        ("before", 0, False, False, 0),
        ("within", 0, True, False, 0),
        ("kept", 0, True, True, 0),
        ("publish", 0, True, True, 1),
        ("publish", 1, True, True, 2),
        ("fetched", 0, True, True, 3),
        ("end", 0, True, True, 3),
    ],
)
def test_a_process_dies_at_each_moment(
    moment: Moment, passes: int, counted: bool, kept: bool, published: int
) -> None:
    simulation = doomed(moment, passes=passes)
    who = simulation.participants[0]
    if who.machine is not None:
        simulation.send(0, bytes(150))
    assert who.machine is None
    assert bool(who.rows.get(LedgerRecord)) is counted
    assert bool(who.rows.get(RequestRecord)) is kept
    assert bool(who.journal.sent()) is kept
    assert len(simulation.wire or ()) == published
    simulation.run(60)
    assert who.machine is not None
    assert simulation.settle(60_000)
    assert messages(simulation, 1) == ([bytes(150)] if kept else [])
    simulation.check()


def test_events_that_were_kept_and_not_shown_are_read_on_after_a_restart() -> None:
    simulation = doomed("fetched", passes=1)
    simulation.send(0, b"m")
    simulation.run(5)  # the node's report makes it sent
    journal = simulation.journals[0]
    assert [len(journal.events), len(journal.shown)] == [1, 0]
    simulation.run(60)
    assert journal.shown == journal.events
    assert simulation.settle(60_000)
    simulation.check()


def test_inputs_share_the_transaction_that_follows_the_one_under_way() -> None:
    simulation = Simulation(Scenario(participants=1, commit_ms=10))
    simulation.start()
    simulation.run(10)
    first = simulation.send(0, b"1")
    assert first
    assert simulation.send(0, b"2") == simulation.send(0, b"3") == ""
    journal = simulation.journals[0]
    simulation.run(9)
    assert journal.sent() == []
    simulation.run(1)
    assert [step.payload for step in journal.sent()] == [b"1"]
    simulation.run(10)
    assert [step.payload for step in journal.sent()] == [b"1", b"2", b"3"]


def test_all_of_a_transaction_is_lost_or_none_of_it() -> None:
    simulation = doomed("before", passes=1, commit_ms=10)
    for payload in (b"1", b"2", b"3"):
        simulation.send(0, payload)
    simulation.run(30)  # the first is kept, the other two die together
    assert simulation.participants[0].machine is None
    assert [step.payload for step in simulation.journals[0].sent()] == [b"1"]
    assert simulation.settle(60_000)
    assert messages(simulation, 1) == [b"1"]
    simulation.check()


def test_a_crash_waits_for_its_moment_over_a_restart() -> None:
    simulation = doomed("kept", passes=0)
    simulation.crash(0)
    simulation.start(0)
    assert simulation.participants[0].machine is None
    assert simulation.counters["crashes_kept"] == 1


def test_each_input_of_a_transaction_has_its_own_cause() -> None:
    """What a tick delivers was not brought by the copy that came before it in the same transaction."""
    simulation = pair()
    who, batch = simulation.participants[0], Batch()
    received = MessageReceivedEvent(
        channel_id="c", message_id="m", sender_id="p1", message=b"m", ephemeral=False, late=False
    )

    def arrival(batch: Batch) -> Effects:
        batch.cause = 7
        return Effects(events=[received])

    simulation.driver.apply(who, arrival, batch)
    simulation.driver.apply(who, lambda _: Effects(events=[received]), batch)
    assert [step.cause for step in batch.steps] == [7, 0]
    assert len(batch.effects.events) == 2
