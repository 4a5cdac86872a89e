"""Acknowledgements owed: what adds an id, what takes it off, and when another's word is enough."""

from __future__ import annotations

import pytest

from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.debt import MAX_NAMED, AckDebt
from reliable_channel.records import DebtRecord
from tests.support.builders import ALICE, BOB, CAROL, entries

P: tuple[str, int] = (ALICE, 100)
Q: tuple[str, int] = (ALICE, 200)


@pytest.fixture
def debt() -> AckDebt:
    return AckDebt(Outbox())


def owe(debt: AckDebt, *message_ids: str, payload: tuple[str, int] = P) -> None:
    """Owe ids of one payload, held one after the other."""
    for held, message_id in enumerate(message_ids, 1):
        debt.add(message_id, payload, held)


def test_nothing_is_owed_at_first(debt: AckDebt) -> None:
    assert len(debt) == 0
    assert not debt
    assert debt.settle(["a"]) == []


def test_ids_are_owed_once_in_the_order_in_which_they_came(debt: AckDebt) -> None:
    owe(debt, "a", "b", "a")
    owe(debt, "c", payload=Q)
    assert list(debt) == ["a", "b", "c"]
    assert len(debt) == 3


def test_naming_settles_what_was_owed_and_says_what(debt: AckDebt) -> None:
    """WIRE: an id leaves when a message of ours that names it is dispatched."""
    owe(debt, "a", "b")
    assert debt.settle(["x", "b", "b"]) == ["b"]
    assert list(debt) == ["a"]
    assert debt.settle(["a"]) == ["a"]
    assert not debt
    assert not debt.payloads


def test_a_duplicate_is_owed_again(debt: AckDebt) -> None:
    """WIRE: so does every duplicate of it (our acknowledgement was lost)."""
    owe(debt, "a")
    debt.settle(["a"])
    owe(debt, "a")
    assert list(debt) == ["a"]


def test_rows_follow(debt: AckDebt) -> None:
    owe(debt, "a", "b")
    assert debt.outbox.take().changes == {
        (DebtRecord, ("a",)): DebtRecord(message_id="a"),
        (DebtRecord, ("b",)): DebtRecord(message_id="b"),
    }
    owe(debt, "a")
    assert not debt.outbox.take()
    debt.settle(["b"])
    assert debt.outbox.take().changes == {(DebtRecord, ("b",)): None}


def test_another_that_names_as_many_as_we_hold_settles_all(debt: AckDebt) -> None:
    """WIRE: dropped when another participant has just named at least as many segments."""
    owe(debt, "a", "b", "c")
    debt.hear(BOB, entries("a", "b"))
    assert len(debt) == 3
    debt.hear(BOB, entries("b"))
    assert len(debt) == 3
    debt.hear(BOB, entries("c", "unknown"))
    assert not debt
    assert not debt.payloads


def test_what_two_others_name_does_not_add_up(debt: AckDebt) -> None:
    """Requests must not hang when one has segment 1 and another segment 2."""
    owe(debt, "a", "b")
    debt.hear(BOB, entries("a"))
    debt.hear(CAROL, entries("b"))
    assert list(debt) == ["a", "b"]


def test_what_the_sender_itself_names_settles_nothing(debt: AckDebt) -> None:
    owe(debt, "a")
    debt.hear(ALICE, entries("a"))
    assert list(debt) == ["a"]


def test_only_the_payload_that_was_named_is_settled(debt: AckDebt) -> None:
    owe(debt, "a")
    owe(debt, "b", payload=Q)
    debt.hear(BOB, entries("a"))
    assert list(debt) == ["b"]


def test_with_more_segments_held_the_same_naming_is_not_enough(debt: AckDebt) -> None:
    owe(debt, "a")
    debt.add("b", P, 2)
    debt.hear(BOB, entries("a"))
    assert len(debt) == 2
    debt.add("b", P, 1)
    debt.hear(BOB, entries("a"))
    assert not debt


def test_the_number_of_participants_that_are_followed_is_bounded(debt: AckDebt) -> None:
    owe(debt, "a", "b")
    for number in range(100):
        debt.hear(f"p{number}", entries("a"))
    assert len(debt.payloads[P].named) == MAX_NAMED
    debt.hear("p99", entries("a", "b"))
    assert len(debt) == 2
    debt.hear("p0", entries("b"))
    assert not debt
