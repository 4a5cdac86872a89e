"""Effects of several inputs become those of one."""

from __future__ import annotations

import pytest

from reliable_channel.core.effects import Effects, Fetch, Publish
from reliable_channel.events import MessageSentEvent
from reliable_channel.records import DebtRecord, LostRecord

SENT = MessageSentEvent(channel_id="room", request_id="r")


def test_nothing_to_do_is_false() -> None:
    assert not Effects()


@pytest.mark.parametrize(
    "effects",
    [
        pytest.param(Effects(changes={(DebtRecord, ("a",)): None}), id="changes"),
        pytest.param(Effects(publishes=[Publish("r:1", b"x")]), id="publishes"),
        pytest.param(Effects(fetches=[Fetch((b"h",))]), id="fetches"),
        pytest.param(Effects(events=[SENT]), id="events"),
    ],
)
def test_anything_to_do_is_true(effects: Effects) -> None:
    assert effects


def test_merging_keeps_the_order_of_inputs() -> None:
    first = Effects(
        publishes=[Publish("r:1", b"x")], fetches=[Fetch((b"1",))], events=[SENT.with_sequence(1)]
    )
    first.merge(
        Effects(
            publishes=[Publish("r:2", b"y", ephemeral=True)],
            fetches=[Fetch((b"2",))],
            events=[SENT.with_sequence(2)],
        )
    )
    assert [publish.segment_id for publish in first.publishes] == ["r:1", "r:2"]
    assert [fetch.hashes for fetch in first.fetches] == [(b"1",), (b"2",)]
    assert [event.sequence for event in first.events] == [1, 2]


def test_later_changes_of_a_row_replace_earlier_ones() -> None:
    old, new = LostRecord(message_id="a", lost_ns=1), LostRecord(message_id="a", lost_ns=2)
    debt = DebtRecord(message_id="a")
    effects = Effects(changes={(LostRecord, ("a",)): old, (DebtRecord, ("a",)): debt})
    effects.merge(Effects(changes={(LostRecord, ("a",)): new, (DebtRecord, ("b",)): None}))
    assert effects.changes == {
        (LostRecord, ("a",)): new,
        (DebtRecord, ("a",)): debt,
        (DebtRecord, ("b",)): None,
    }


def test_merging_leaves_the_later_effects_as_they_are() -> None:
    later = Effects(publishes=[Publish("r:2", b"y")])
    Effects(publishes=[Publish("r:1", b"x")]).merge(later)
    assert [publish.segment_id for publish in later.publishes] == ["r:2"]


def test_bytes_do_not_show_in_logs() -> None:
    assert "secret" not in repr(Publish("r:1", b"secret"))
