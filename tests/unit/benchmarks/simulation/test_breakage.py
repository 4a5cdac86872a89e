"""A breakage damages what it says and nothing else."""

from __future__ import annotations

from benchmarks.simulation.breakage import BREAKAGES, START_DAMAGE, WRITE_DAMAGE, Found
from benchmarks.simulation.engine import Simulation
from benchmarks.simulation.scenario import Scenario
from reliable_channel.records import (
    Changes,
    ChannelRecord,
    DebtRecord,
    LogRecord,
    OutgoingRecord,
    PendingRecord,
    RequestRecord,
    rows_of,
)


def log_row(name: str, sender: str) -> LogRecord:
    return LogRecord(
        message_id=name,
        lamport_timestamp=1,
        sender_id=sender,
        retrieval_hint=None,
        logged=True,
        segment_index=0,
        segment_count=1,
    )


def rows() -> Found:
    """Return what a participant finds that has sent one message."""
    simulation = Simulation(Scenario(participants=1))
    simulation.start()
    simulation.send(0, b"m")
    return simulation.participants[0].found()


def test_forgotten_rows_are_not_found_and_the_others_are() -> None:
    found = rows()
    left = START_DAMAGE["forget_requests"](found, "p0")
    assert left.keys() == found.keys() - {RequestRecord, OutgoingRecord}


def test_a_field_of_the_channel_is_changed() -> None:
    found = rows()
    (before,), (after,) = (
        rows_of(item, ChannelRecord)
        for item in (found, START_DAMAGE["forget_wrap_time"](found, "p0"))
    )
    assert before.last_wrap_ns > 0
    assert after.last_wrap_ns == 0
    assert after.lamport_clock == before.lamport_clock


def test_only_what_others_sent_and_was_delivered_passes_the_duplicate_check() -> None:
    own, other, waiting = log_row("m1", "p0"), log_row("m2", "p1"), log_row("m3", "p1")
    pending = PendingRecord(
        message_id="m3",
        sender_id="p1",
        lamport_timestamp=1,
        received_ns=1,
        history=b"",
        content=b"",
        set_number=1,
        arrival=1,
    )
    found: Found = {LogRecord: [own, other, waiting], PendingRecord: [pending]}
    assert START_DAMAGE["skip_duplicate_check"](found, "p0")[LogRecord] == [own, waiting]


def test_history_is_forgotten_with_its_last_ids() -> None:
    left = START_DAMAGE["forget_history"](rows(), "p0")
    assert [row.logged for row in rows_of(left, LogRecord)] == [False]
    assert [row.frontier for row in rows_of(left, ChannelRecord)] == [()]


def test_accepted_messages_of_others_are_not_kept() -> None:
    own, other = log_row("m1", "p0"), log_row("m2", "p1")
    changes: Changes = {(LogRecord, ("m1",)): own, (LogRecord, ("m2",)): other}
    assert list(WRITE_DAMAGE["forget_acknowledged"](changes, "p0").values()) == [own]


def test_what_is_owed_stays() -> None:
    debt = DebtRecord(message_id="m2")
    changes: Changes = {(DebtRecord, ("m1",)): None, (DebtRecord, ("m2",)): debt}
    assert WRITE_DAMAGE["leave_rows"](changes, "p0") == {(DebtRecord, ("m2",)): debt}


def test_every_damage_has_a_name_that_a_scenario_takes() -> None:
    for name in (*START_DAMAGE, *WRITE_DAMAGE):
        assert name in BREAKAGES
        assert Scenario(broken=name).broken == name
