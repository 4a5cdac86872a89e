"""Rows and journal outlive the machine; a former machine is not asked again."""

from __future__ import annotations

from random import Random

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.journal import Journal, Step
from benchmarks.simulation.participant import Participant
from benchmarks.simulation.scenario import Scenario
from reliable_channel.core.effects import Effects
from reliable_channel.events import MessageReceivedEvent, MessageSentEvent
from reliable_channel.records import ChannelRecord, LedgerRecord


def participant() -> Participant:
    return Participant(0, "p0", Journal("p0"), link=Random(1), node=Random(2))


def test_rows_are_written_whole_and_deleted_by_key() -> None:
    who = participant()
    ledger = LedgerRecord(scope="", epoch=7, used=1)
    key = (LedgerRecord, "")
    who.keep_rows(Effects(changes={key: ledger}))
    assert who.ledger() == ledger
    assert list(who.channels()) == []
    who.keep_rows(Effects(changes={key: None}))
    assert who.ledger() is None


def test_row_about_the_channel_is_kept_from_the_start() -> None:
    simulation = Simulation(Scenario(participants=1))
    simulation.start()
    (record,) = simulation.participants[0].channels()
    assert isinstance(record, ChannelRecord)


def test_durable_events_and_deliveries_are_written_down() -> None:
    who = participant()
    sent = MessageSentEvent(channel_id="c", request_id="r")
    received = MessageReceivedEvent(
        channel_id="c", message_id="m", sender_id="p1", message=b"x", late=True
    )
    who.keep_events(Effects(events=[sent, received.with_sequence(1)]), 5)
    assert who.journal.events == [received.with_sequence(1)]
    assert who.journal.steps == [Step("m", "p1", b"x", 5, late=True)]


def test_machine_of_another_start_is_not_there_any_more() -> None:
    simulation = Simulation(Scenario(participants=1))
    simulation.start()
    who = simulation.participants[0]
    assert who.machine_of(1) is simulation.machine(0)
    assert who.machine_of(0) is None
    simulation.crash(0)
    assert who.machine_of(1) is None
