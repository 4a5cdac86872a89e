"""Rows and journal outlive the machine; a former machine is not asked again."""

from __future__ import annotations

from random import Random

from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.journal import Journal, Step
from benchmarks.simulation.participant import ArmedCrash, Participant
from benchmarks.simulation.scenario import Crash, Moment, Scenario
from reliable_channel.core.effects import Effects
from reliable_channel.events import MessageReceivedEvent, MessageSentEvent, event_to_record
from reliable_channel.records import ChannelRecord, EventRecord, LedgerRecord


def participant() -> Participant:
    return Participant(0, "p0", Journal("p0"), link=Random(1), node=Random(2))


def test_rows_are_written_whole_and_deleted_by_key() -> None:
    who = participant()
    ledger = LedgerRecord(scope="", epoch=7, used=1)
    who.keep_rows({(LedgerRecord, ("",)): ledger})
    assert who.found() == {LedgerRecord: [ledger]}
    assert list(who.channels()) == []
    who.keep_rows({(LedgerRecord, ("",)): None})
    assert who.found() == {}


def test_row_about_the_channel_is_kept_from_the_start() -> None:
    simulation = Simulation(Scenario(participants=1))
    simulation.start()
    (record,) = simulation.participants[0].channels()
    assert isinstance(record, ChannelRecord)


def test_deliveries_are_steps_of_the_journal() -> None:
    who = participant()
    sent = MessageSentEvent(channel_id="c", request_id="r")
    received = MessageReceivedEvent(
        channel_id="c", message_id="m", sender_id="p1", message=b"x", late=True
    )
    steps = who.deliveries(Effects(events=[sent, received]), 5)
    assert steps == [Step("m", "p1", b"x", 5, late=True)]


def test_an_application_reads_on_after_the_last_event_it_has_taken() -> None:
    who = participant()
    events = [
        MessageSentEvent(channel_id="c", request_id=f"r{sequence}", sequence=sequence)
        for sequence in (1, 2, 3)
    ]
    for event in events:
        key = (EventRecord, (event.sequence,))
        who.keep_rows({key: event_to_record(event)})
    who.journal.shown.append(events[0])
    who.read_on("c")
    assert who.journal.shown == events
    who.read_on("c")
    assert who.journal.shown == events


def test_a_crash_lets_as_many_of_its_moments_pass_as_it_says_and_strikes_once() -> None:
    who = participant()
    crash = Crash(participant=0, at_ms=0, moment="publish", passes=1)
    who.armed.append(ArmedCrash(crash, crash.passes))
    moments: list[Moment] = ["publish", "kept", "publish", "publish"]
    assert [who.fatal(moment) for moment in moments] == [None, None, crash, None]


def test_machine_of_another_start_is_not_there_any_more() -> None:
    simulation = Simulation(Scenario(participants=1))
    simulation.start()
    who = simulation.participants[0]
    assert who.machine_of(1) is simulation.machine(0)
    assert who.machine_of(0) is None
    simulation.crash(0)
    assert who.machine_of(1) is None
