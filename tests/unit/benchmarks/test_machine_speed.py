"""The measurement runs real machines, and tells when they do not deliver."""

from __future__ import annotations

import pytest

from benchmarks import machine_speed
from benchmarks.figures import Table
from benchmarks.machine_speed import Exchange, Floor, Turn
from reliable_channel.core.effects import Effects


def test_every_message_is_delivered_and_in_time_acknowledged() -> None:
    exchange = Exchange(payload_bytes=64)
    turns = [exchange.turn(100), exchange.turn(100)]
    assert [(item.messages, item.receptions) for item in turns] == [(100, 100)] * 2
    assert exchange.delivered == 200
    assert sum(item.acknowledged for item in turns) > 100, "acknowledgements keep up"
    assert all(min(item.send, item.receive, item.acknowledge) > 0 for item in turns)


@pytest.mark.parametrize(("is_group", "receptions"), [(False, 12), (True, 36)])
def test_senders_are_heard_by_one_or_by_all(is_group: bool, receptions: int) -> None:
    exchange = Exchange(4, is_group=is_group, payload_bytes=64)
    assert exchange.turn(12).receptions == receptions
    assert len(exchange.machines) == (4 if is_group else 5)


@pytest.mark.interpreted
def test_what_is_not_delivered_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Exchange(payload_bytes=64)
    monkeypatch.setattr(exchange.receivers[0], "receive", lambda *_: Effects())
    with pytest.raises(RuntimeError, match="0 of 3"):
        exchange.turn(3)


def test_the_floor_is_measured_with_messages_that_decode() -> None:
    floor = Floor(payload_bytes=64)
    found = floor.turn(20)
    assert (found.messages, found.receptions, floor.sent) == (20, 20, 20)
    assert min(found.send, found.receive) > 0


def test_ours_and_the_floor_take_turns() -> None:
    found = machine_speed.measure(25, turn_messages=10)
    assert [turn.messages for turn in found.ours] == [10, 10, 5]
    assert [turn.messages for turn in found.floor] == [10, 10, 5]
    assert found.peak_bytes > 1 << 20


def test_rates_are_by_the_turn_and_acknowledgements_over_all() -> None:
    turns = [Turn(10, 20, 0, 1.0, 4.0, 1.0), Turn(10, 20, 30, 2.0, 5.0, 2.0)]
    assert machine_speed.sends(turns) == [10, 5]
    assert machine_speed.receptions(turns) == [5, 4]
    assert machine_speed.acknowledgements(turns) == [10]


def test_the_tables_have_all_sizes_and_all_participants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_speed, "SIZES", (5,))
    monkeypatch.setattr(machine_speed, "PARTICIPANTS", (1, 3))
    monkeypatch.setattr(machine_speed, "GROUP_MESSAGES", 6)
    sizes, groups = machine_speed.tables()
    assert isinstance(sizes, Table)
    assert isinstance(groups, Table)
    assert [item.peer for item in sizes.figures] == ["floor", "floor", "", ""]
    names = [item.name.split(":")[0] for item in groups.figures]
    assert list(dict.fromkeys(names)) == [
        "1 heard by one",
        "3 heard by one",
        "3 who all hear each other",
    ]
