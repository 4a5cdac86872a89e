"""What of a history is proven to be of our time."""

from __future__ import annotations

import pytest

from reliable_channel.core.sds.log import KnownMessage
from reliable_channel.core.sds.our_time import OurTime
from tests.support.builders import ALICE, BOB, CAROL, entries

START = 1_000


def our_time(known: dict[str, int] | None = None, max_senders: int = 9) -> OurTime:
    """Return what knows these ids at these Lamport times, all of them Carol's."""
    messages = {
        name: KnownMessage(name, lamport, CAROL, index=0, segment_count=1, hint=None, logged=True)
        for name, lamport in (known or {}).items()
    }
    return OurTime(START, messages, max_senders)


@pytest.mark.parametrize(
    ("known", "heard", "index", "proven"),
    [
        pytest.param({}, None, 0, "", id="nothing known"),
        pytest.param({"a": START}, None, 0, "bcd", id="what follows"),
        pytest.param({"c": START + 1}, None, 0, "d", id="not what goes before"),
        pytest.param({"d": START + 1}, None, 0, "", id="nothing follows"),
        pytest.param({"a": START - 1}, None, 0, "", id="known, but earlier"),
        pytest.param({"a": START - 1, "b": START}, None, 0, "cd", id="the first of our time"),
        pytest.param({}, START, 0, "d", id="the sender was heard"),
        pytest.param({}, START + 9, 0, "d", id="heard just before"),
        pytest.param({}, START + 10, 0, "", id="heard with this message"),
        pytest.param({}, START + 11, 0, "", id="heard later"),
        pytest.param({}, START - 1, 0, "", id="heard before our time"),
        pytest.param({}, None, 1, "d", id="the segment before"),
        pytest.param({"b": START}, START, 1, "cd", id="both"),
    ],
)
def test_what_a_history_proves(
    known: dict[str, int], heard: int | None, index: int, proven: str
) -> None:
    ours = our_time(known)
    if heard is not None:
        ours.hear(ALICE, heard)
    ours.hear(BOB, START)
    assert ours.proves(ALICE, START + 10, index, entries("a", "b", "c", "d")) == set(proven)


@pytest.mark.parametrize("index", [0, 1])
def test_an_empty_history_proves_nothing(index: int) -> None:
    ours = our_time()
    ours.hear(ALICE, START)
    assert ours.proves(ALICE, START + 10, index, ()) == set()


def test_the_earliest_message_counts_in_whatever_order_they_come() -> None:
    ours = our_time()
    for lamport in (START + 5, START + 3, START + 7):
        ours.hear(ALICE, lamport)
    assert ours.first == {ALICE: START + 3}


def test_who_was_heard_is_bounded() -> None:
    ours = our_time(max_senders=2)
    for sender_id in (ALICE, BOB, CAROL):
        ours.hear(sender_id, START + 3)
    ours.hear(BOB, START + 1)
    assert ours.first == {ALICE: START + 3, BOB: START + 1}
    ours.end()
    assert ours.is_over
    assert ours.first == {}


def test_what_is_known_tells_who_was_heard() -> None:
    ours = our_time({"old": START - 5, "b": START + 2, "a": START + 1})
    ours.restore()
    assert ours.first == {CAROL: START + 1}
