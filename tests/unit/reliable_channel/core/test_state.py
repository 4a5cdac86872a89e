"""The clocks and ids that both directions share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.sds.sync import IDLE_TIMER, SYNC_TIMER
from reliable_channel.core.state import ChannelState, salted_id
from reliable_channel.records import ChannelRecord
from reliable_channel.types import MS, SECOND
from tests.support.builders import ALICE, BOB, CHANNEL, NOW, NOW_MS, TOPIC, salted

RECORD = ChannelRecord(
    content_topic=TOPIC,
    sender_id=ALICE,
    bloom_capacity=7,
    bloom_error_rate=0.25,
    created_ns=NOW - 5,
    lamport_clock=NOW_MS + 77,
    last_wrap_ns=NOW + 9,
    floor=NOW_MS - 3,
    settled_at_ns=NOW + 1,
    last_event_sequence=12,
    last_seen_ns=NOW - 2,
    conflict_seen=True,
    frontier=("a", "b"),
    resumed_ns=NOW - 4,
    resumed_before_ns=NOW - 5,
)


def make_state(record: ChannelRecord | None = None) -> ChannelState:
    """Return the state of a channel."""
    return ChannelState(
        channel_id=CHANNEL,
        sender_id=ALICE,
        content_topic=TOPIC,
        sds=SdsConfig(bloom_capacity=7, bloom_error_rate=0.25),
        segmentation=SegmentationConfig(),
        random=Random(1),
        record=record,
        now=NOW,
    )


# --- Lamport time --------------------------------------------------------------------------------


def test_a_new_channel_counts_milliseconds_from_now() -> None:
    """WIRE: lamport = max(now_ms, clock + 1)."""
    state = make_state()
    assert state.lamport == NOW_MS
    assert state.next_lamport(NOW) == NOW_MS + 1
    assert state.next_lamport(NOW + 10 * MS) == NOW_MS + 10


def test_lamport_times_of_one_payload_are_consecutive() -> None:
    state = make_state()
    assert state.next_lamport(NOW + SECOND, 3) == NOW_MS + 1000
    assert state.lamport == NOW_MS + 1002
    assert state.next_lamport(NOW + SECOND) == NOW_MS + 1003


def test_lamport_time_grows_although_the_clock_goes_back() -> None:
    state = make_state()
    first = state.next_lamport(NOW + SECOND)
    assert state.next_lamport(NOW - 3600 * SECOND) == first + 1


def test_a_received_lamport_time_advances_the_clock() -> None:
    state = make_state()
    assert state.see_lamport(NOW_MS + 50, NOW) == NOW_MS + 50
    assert state.next_lamport(NOW) == NOW_MS + 51


@pytest.mark.parametrize("lamport", [0, 1, 1_700_000_000, NOW_MS - 1])
def test_a_low_lamport_time_is_taken_and_moves_nothing(lamport: int) -> None:
    """WIRE: nothing is dropped for a low one (the Nim implementation counts seconds)."""
    state = make_state()
    assert state.see_lamport(lamport, NOW) == lamport
    assert state.lamport == NOW_MS


@pytest.mark.parametrize(
    ("ahead_ms", "taken_ms"),
    [(299_999, 299_999), (300_000, 300_000), (300_001, 300_000), (1 << 62, 300_000)],
)
def test_a_lamport_time_far_ahead_is_taken_as_five_minutes_ahead(
    ahead_ms: int, taken_ms: int
) -> None:
    """WIRE: a received Lamport time beyond now + 5 min is taken as now + 5 min."""
    state = make_state()
    assert state.see_lamport(NOW_MS + ahead_ms, NOW) == NOW_MS + taken_ms
    assert state.lamport == NOW_MS + taken_ms


# --- Wrap times ----------------------------------------------------------------------------------


def test_wrap_times_are_the_time_and_strictly_increasing() -> None:
    """WIRE: strictly increasing per sender also across restarts and clock steps: max(now, last+1)."""
    state = make_state()
    assert state.next_wrap_ns(NOW) == NOW
    assert state.next_wrap_ns(NOW) == NOW + 1
    assert state.next_wrap_ns(NOW - SECOND) == NOW + 2
    assert state.next_wrap_ns(NOW + SECOND) == NOW + SECOND
    restored = make_state(state.record(floor=0))
    assert restored.next_wrap_ns(NOW - 3600 * SECOND) == NOW + SECOND + 1


# --- The row -------------------------------------------------------------------------------------


def test_the_kept_row_comes_back_as_it_was() -> None:
    state = make_state(RECORD)
    assert state.record(floor=RECORD.floor) == RECORD
    assert state.written == RECORD
    assert state.outbox.last_sequence == 12


CHANGES: dict[str, Callable[[ChannelState], object]] = {
    "lamport_clock": lambda state: state.next_lamport(NOW),
    "last_seen_ns": lambda state: setattr(state, "last_seen_ns", NOW),
    "last_event_sequence": lambda state: setattr(state.outbox, "last_sequence", 13),
    "last_wrap_ns": lambda state: state.next_wrap_ns(NOW),
    "idle_due_ns": lambda state: state.timers.set(IDLE_TIMER, NOW + 1),
    "sync_due_ns": lambda state: state.timers.set(SYNC_TIMER, NOW + 1),
    "settled_at_ns": lambda state: setattr(state, "settled_at_ns", NOW),
    "conflict_seen": lambda state: setattr(state, "conflict_seen", False),
    "resumed_ns": lambda state: setattr(state, "resumed_ns", NOW),
    "resumed_before_ns": lambda state: setattr(state, "resumed_before_ns", NOW),
    "frontier": lambda state: state.log.frontier.pop("a"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_row_is_written_again_when_something_in_it_changes(name: str) -> None:
    state = make_state(RECORD)
    assert state.changed_record(RECORD.floor) is None
    CHANGES[name](state)
    changed = state.changed_record(RECORD.floor)
    assert changed == state.record(RECORD.floor) != RECORD
    assert replace(changed, **{name: getattr(RECORD, name)}) == RECORD
    assert state.changed_record(RECORD.floor) is None


def test_the_row_is_written_again_with_another_floor() -> None:
    state = make_state(RECORD)
    changed = state.changed_record(RECORD.floor + 1)
    assert changed == replace(RECORD, floor=RECORD.floor + 1)


def test_a_new_channel_writes_its_row() -> None:
    state = make_state()
    assert state.changed_record(3) == state.record(3)
    assert state.changed_record(3) is None


def test_a_new_channel_has_a_row_of_now() -> None:
    record = make_state().record(floor=3)
    assert record.created_ns == NOW
    assert record.lamport_clock == NOW_MS
    assert record.floor == 3
    assert (record.last_wrap_ns, record.settled_at_ns, record.last_seen_ns) == (0, 0, 0)
    assert not record.conflict_seen
    assert record.frontier == ()


def test_a_group_is_at_least_one() -> None:
    state = make_state()
    assert state.group(NOW) == 1
    state.participants.hear(BOB, NOW)
    assert state.group(NOW) == 1
    state.participants.hear("carol", NOW)
    assert state.group(NOW) == 2
    assert state.group(NOW + 601 * SECOND) == 1


# --- Message ids ---------------------------------------------------------------------------------


def test_an_id_without_salt_is_the_hash_of_the_content() -> None:
    """The example of the seed specification."""
    expected = "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"
    assert salted_id("whoever", 0, b"abc") == expected


def test_a_salted_id_is_the_hash_of_sender_decimal_wrap_time_and_content() -> None:
    """LIP-173: keccak-256 of sender id, wrap time and content."""
    assert salted_id("zoë", 1_700_000_000_000_000_001, b"abc") == salted(
        "zoë", 1_700_000_000_000_000_001, b"abc"
    )
    # One text however it is split into sender and time.
    assert salted_id("a1", 23, b"x") == salted_id("a", 123, b"x")


@pytest.mark.parametrize(
    ("sender_id", "wrap_time_ns", "content"),
    [("alicE", 5, b"abc"), ("alice", 6, b"abc"), ("alice", 5, b"abd"), ("alice", 0, b"abc")],
)
def test_every_part_changes_the_id(sender_id: str, wrap_time_ns: int, content: bytes) -> None:
    first, second = salted_id("alice", 5, b"abc"), salted_id(sender_id, wrap_time_ns, content)
    assert first != second
    assert len(first) == len(second) == 64
    assert set(first + second) <= set("0123456789abcdef")


# --- Deadlines after a restart ---------------------------------------------------------------------

WAIT = SdsConfig().dependency_timeout_ms * MS


@pytest.mark.parametrize(
    ("since", "resumed", "before", "until"),
    [
        (0, 0, 0, WAIT),  # nothing was ever restarted
        (-10 * WAIT, 0, -20 * WAIT, WAIT),  # overdue: the whole time once more
        (-10 * WAIT, 0, -5 * WAIT, -9 * WAIT),  # which it had already
        (-WAIT // 2, -WAIT // 4, -20 * WAIT, 3 * WAIT // 4),  # from the start that gave it
        (-WAIT // 8, -WAIT // 4, -20 * WAIT, 7 * WAIT // 8),  # it came since
        (WAIT, -WAIT // 4, -20 * WAIT, WAIT),  # by a clock that was set back
    ],
)
def test_what_was_waited_for_before_a_restart_is_given_more_time_once(
    since: int, resumed: int, before: int, until: int
) -> None:
    state = make_state(replace(RECORD, resumed_ns=NOW + resumed, resumed_before_ns=NOW + before))
    assert state.deadline_of(NOW + since, WAIT) == NOW + until


@pytest.mark.parametrize(
    ("ago", "is_renewed"), [(0, False), (WAIT - 1, False), (WAIT, True), (-1, True)]
)
def test_starts_that_follow_each_other_closely_give_time_together(
    ago: int, *, is_renewed: bool
) -> None:
    state = make_state(replace(RECORD, resumed_ns=NOW - ago, resumed_before_ns=1))
    expected = (NOW, NOW - ago) if is_renewed else (NOW - ago, 1)
    assert (state.resumed_ns, state.resumed_before_ns) == expected
    row = state.record(RECORD.floor)
    assert (row.resumed_ns, row.resumed_before_ns) == expected


def test_when_syncs_are_due_is_kept() -> None:
    state = make_state()
    assert (state.record(0).sync_due_ns, state.record(0).idle_due_ns) == (0, 0)
    state.timers.set(SYNC_TIMER, NOW + 1)
    state.timers.set(IDLE_TIMER, NOW + 2)
    row = state.record(0)
    assert (row.sync_due_ns, row.idle_due_ns) == (NOW + 1, NOW + 2)
    assert make_state(row).sync.kept_dues == {SYNC_TIMER: NOW + 1, IDLE_TIMER: NOW + 2}
