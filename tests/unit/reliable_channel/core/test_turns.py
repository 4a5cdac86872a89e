"""Whose turn it is among clients that wait with one class of traffic."""

from __future__ import annotations

import pytest

from reliable_channel.core.turns import TurnLine


@pytest.fixture
def line() -> TurnLine:
    made = TurnLine()
    for name in ("a", "b", "c"):
        made.join(name, 0, 0)
    return made


def test_who_had_fewer_turns_is_waited_for(line: TurnLine) -> None:
    assert line.kept_from("a") == 0
    line.take("a", 1)
    assert line.kept_from("a") == 2
    assert line.kept_from("b") == 0
    line.take("b", 2)
    assert line.kept_from("a") == 1
    line.take("c", 3)
    assert [line.kept_from(name) for name in "abc"] == [0, 0, 0]


def test_joining_again_gains_nothing(line: TurnLine) -> None:
    line.take("a", 1)
    line.leave("a")
    line.join("a", 2, 2)
    assert line.kept_from("a") == 2


def test_a_newcomer_has_one_turn_first_and_none_for_the_time_before(line: TurnLine) -> None:
    for _ in range(5):
        for name in "abc":
            line.take(name, 1)
    line.join("new", 2, 2)
    assert line.kept_from("a") == 1
    line.take("new", 3)
    assert line.kept_from("a") == line.kept_from("new") == 0


def test_nothing_is_kept_for_who_does_not_ask_any_more(line: TurnLine) -> None:
    line.take("a", 1)
    line.ask("a", 10)
    line.ask("b", 10)
    line.lapse(asked_before=5)
    assert len(line) == 2
    assert line.kept_from("a") == 1
    line.ask("c", 11)
    assert len(line) == 3


def test_who_was_told_to_come_back_has_a_place_in_the_next_epoch(line: TurnLine) -> None:
    waiting = line.find("c")
    assert waiting is not None
    waiting.resume_epoch = 8
    line.lapse(asked_before=5)
    assert len(line) == 0
    line.begin_epoch(previous=7, clock=20)
    assert len(line) == 1
    assert line.find("c") is waiting


def test_a_forgotten_client_leaves_nothing(line: TurnLine) -> None:
    line.take("a", 1)
    line.forget("a")
    assert line.find("a") is None
    assert len(line) == 2
    assert line.kept_from("b") == 0
