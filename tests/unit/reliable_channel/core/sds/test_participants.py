"""Who was heard lately; bounded, the one heard longest ago goes first."""

from __future__ import annotations

from reliable_channel.core.sds.participants import HEARD_LATELY_NS, Participants
from reliable_channel.types import SECOND
from tests.support.builders import NOW


def test_nobody_was_heard_at_first() -> None:
    assert Participants(3).lately(NOW) == 0


def test_each_participant_counts_once() -> None:
    participants = Participants(10)
    for sender_id in ("a", "b", "a", "a"):
        participants.hear(sender_id, NOW)
    assert participants.lately(NOW) == 2


def test_lately_is_the_longest_distance_of_idle_syncs() -> None:
    assert HEARD_LATELY_NS == 600 * SECOND
    participants = Participants(10)
    participants.hear("a", NOW)
    participants.hear("b", NOW + SECOND)
    assert participants.lately(NOW + 600 * SECOND) == 2
    assert participants.lately(NOW + 600 * SECOND + 1) == 1
    assert participants.lately(NOW + 601 * SECOND) == 1
    assert participants.lately(NOW + 601 * SECOND + 1) == 0
    assert not participants.heard


def test_hearing_again_counts_from_then() -> None:
    participants = Participants(10)
    participants.hear("a", NOW)
    participants.hear("b", NOW)
    participants.hear("a", NOW + 500 * SECOND)
    assert participants.lately(NOW + 700 * SECOND) == 1
    assert list(participants.heard) == ["a"]


def test_above_the_bound_the_one_heard_longest_ago_goes() -> None:
    participants = Participants(2)
    for second, sender_id in enumerate(("a", "b", "a", "c", "c")):
        participants.hear(sender_id, NOW + second)
    assert list(participants.heard) == ["a", "c"]
