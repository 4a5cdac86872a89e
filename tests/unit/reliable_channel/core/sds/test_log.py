"""Known and logged ids: order, histories, filter, eviction."""

from __future__ import annotations

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.sds.log import (
    HELD_OVERHEAD,
    MAX_BRANCHES,
    MAX_FRONTIER,
    MAX_LATE_HINTS,
    MAX_PAYLOAD_PLACES,
    KnownMessage,
    MessageLog,
    history_octets,
)
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import LogRecord
from tests.support.builders import ALICE


def make_log(*, history: int = 2, capacity: int = 0, max_known_ids: int = 1000) -> MessageLog:
    config = SdsConfig(
        causal_history_size=history, bloom_capacity=capacity, max_known_ids=max_known_ids
    )
    return MessageLog(config, Outbox())


def known(
    message_id: str,
    lamport: int = 1,
    *,
    logged: bool = True,
    hint: bytes | None = None,
    index: int = 0,
) -> KnownMessage:
    return KnownMessage(
        message_id, lamport, ALICE, index=index, segment_count=3, hint=hint, logged=logged
    )


def nothing(message_id: str) -> bool:
    """Say of every id that it is not open."""
    return not message_id


def filled(*places: tuple[str, int], **settings: int) -> MessageLog:
    """Return a log of messages with Lamport times."""
    log = make_log(**settings)
    for message_id, lamport in places:
        log.add(known(message_id, lamport))
    return log


# --- Known and logged ----------------------------------------------------------------------------


def test_known_ids_are_not_named_before_they_are_logged() -> None:
    """WIRE: causal histories are taken from the log only."""
    log = make_log()
    log.add(known("a", logged=False))
    assert "a" in log
    assert len(log) == 1
    assert log.newest(5) == ()
    log.log("a")
    log.log("a")
    assert log.newest(5) == ("a",)
    assert len(log.order) == 1


def test_the_log_is_ordered_by_lamport_time_then_id() -> None:
    log = filled(("d", 5), ("a", 9), ("c", 5), ("b", 7), ("z", 1))
    assert log.newest(10) == ("z", "c", "d", "b", "a")
    assert list(log.newest_sent()) == ["a", "b", "d", "c", "z"]


def test_what_waits_for_its_first_turn_is_no_news_for_others() -> None:
    log = filled(("a", 1), ("b", 2), ("c", 3))
    log.unsent |= {"b", "c"}
    assert list(log.newest_sent()) == ["a"]
    assert log.newest(2) == ("b", "c"), "later messages of ours name them all the same"
    log.forget("b")
    log.withdraw("c", ())
    assert not log.unsent


@pytest.mark.parametrize(("count", "expected"), [(0, ()), (1, ("c",)), (2, ("b", "c"))])
def test_the_newest_are_given_oldest_first(count: int, expected: tuple[str, ...]) -> None:
    assert filled(("a", 1), ("b", 2), ("c", 3)).newest(count) == expected


def test_segments_of_a_payload_share_sender_and_first_lamport_time() -> None:
    assert known("a", 10).payload == known("b", 12, index=2).payload == (ALICE, 10)


def test_the_ids_of_a_payload_are_found_by_any_of_them() -> None:
    log = filled(("other", 9), ("between", 11), ("after", 13))
    for index, message_id in enumerate("abc"):
        log.add(known(message_id, 10 + index, index=index))
    log.add(known("not delivered", 11, index=1, logged=False))
    for message_id in "abc":
        assert log.payload_ids(log.known[message_id]) == ("a", "b", "c")
    log.forget("b")
    assert log.payload_ids(log.known["c"]) == ("a", "c")
    assert log.payload_ids(log.known["after"]) == ("after",)


def test_a_crowd_at_one_lamport_time_is_not_gone_through() -> None:
    log = filled(*((f"crowd {number:05}", 10) for number in range(MAX_PAYLOAD_PLACES)))
    log.add(known("z", 10))
    assert "z" not in log.payload_ids(log.known["z"])


def test_rows_follow() -> None:
    log = make_log()
    log.add(known("a", 7, logged=False))
    row = LogRecord(
        message_id="a",
        lamport_timestamp=7,
        sender_id=ALICE,
        retrieval_hint=None,
        logged=False,
        segment_index=0,
        segment_count=3,
        proven=True,
    )
    assert log.outbox.take().changes == {(LogRecord, ("a",)): row}
    log.log("a")
    changed = log.outbox.take().changes[LogRecord, ("a",)]
    assert isinstance(changed, LogRecord)
    assert changed.logged
    log.log("a")
    assert not log.outbox.take()
    log.withdraw("a", ())
    assert log.outbox.take().changes == {(LogRecord, ("a",)): None}


def test_what_is_forgotten_leaves_order_and_frontier_too() -> None:
    log = filled(("a", 1), ("b", 2))
    log.extend_frontier("b", ["a"])
    log.forget("b")
    assert log.newest(2) == log.next_history() == ("a",)
    assert "b" not in log
    assert log.outbox.take().changes[LogRecord, ("b",)] is None


def test_whether_an_id_is_proven_is_kept() -> None:
    log = make_log()
    claimed = known("claimed")
    claimed.proven = False
    log.add(claimed)
    log.add(known("proven"))
    restored = make_log()
    restored.restore([item.record() for item in log.known.values()])
    assert {item.message_id: item.proven for item in restored.known.values()} == {
        "claimed": False,
        "proven": True,
    }


def test_kept_rows_come_back() -> None:
    log = filled(("b", 2), ("a", 1), capacity=10)
    log.add(known("c", 3, logged=False, hint=b"h" * 32, index=1))
    rows = [item.record() for item in log.known.values()]
    restored = make_log(capacity=10)
    restored.restore(rows)
    assert restored.order == log.order
    assert [item.record() for item in restored.known.values()] == rows
    assert restored.bloom_bytes() == log.bloom_bytes()
    assert not restored.outbox.take()


def test_an_id_of_ours_that_was_never_published_is_forgotten() -> None:
    log = filled(("a", 1), ("b", 1), ("c", 2))
    log.extend_frontier("b", ["a"])
    log.withdraw("b", ("a",))
    assert "b" not in log
    assert log.newest(5) == ("a", "c")
    assert "b" not in log.frontier
    assert log.entries(["a", "b", "c"]) == log.entries(["a", "c"])


def test_an_id_that_was_not_logged_can_be_withdrawn() -> None:
    log = filled(("a", 1))
    log.add(known("b", 1, logged=False))
    log.withdraw("b", ())
    assert log.newest(5) == ("a",)


def test_branches_that_a_withdrawn_id_named_are_named_again() -> None:
    log = filled(("a", 1), ("b", 2), ("c", 3), ("d", 4))
    for message_id in "abcd":
        log.extend_frontier(message_id, [])
    before = log.next_history()
    assert before == ("a", "b", "c", "d")
    log.add(known("x", 5))
    log.extend_frontier("x", before)
    assert log.next_history() == ("d", "x")
    log.withdraw("x", (*before, "gone"))
    assert log.next_history() == before


def test_what_withdrawn_ids_had_named_is_remembered_up_to_a_bound() -> None:
    log = filled(("a", 1))
    for number in range(MAX_FRONTIER + 1):
        log.add(known(f"x{number:03}", 2))
        log.withdraw(f"x{number:03}", ("a",))
    assert named_by(log, "x000") == []
    assert named_by(log, "x001") == [("a", None)]


def test_an_id_whose_payload_was_given_up_is_forgotten() -> None:
    log = make_log()
    log.add(known("a", logged=False))
    log.outbox.take()
    log.forget("a")
    log.forget("unknown")
    assert "a" not in log
    assert log.outbox.take().changes == {(LogRecord, ("a",)): None}


# --- Hints ---------------------------------------------------------------------------------------


def test_the_first_hint_stays() -> None:
    """WIRE: that of the first non-ephemeral copy received."""
    log = filled(("a", 1))
    log.outbox.take()
    log.set_hint("a", None)
    log.set_hint("a", b"")
    log.set_hint("unknown", b"1" * 32)
    assert not log.outbox.take()
    log.set_hint("a", b"1" * 32)
    log.set_hint("a", b"2" * 32)
    assert log.entries(["a"]) == (HistoryEntry("a", b"1" * 32, ALICE),)
    assert len(log.outbox.take().changes) == 1


def test_entries_name_id_hint_and_original_sender_of_what_is_known() -> None:
    log = make_log()
    log.add(known("a", hint=b"h" * 32))
    assert log.entries(["b"]) == ()
    assert log.entries(["b", "a", "c"]) == (HistoryEntry("a", b"h" * 32, ALICE),)


# --- Histories -----------------------------------------------------------------------------------


def test_a_history_is_the_last_ids_oldest_first() -> None:
    """WIRE: history = the last causal_history_size (2) ids of the log, oldest first."""
    log = filled(("a", 1), ("b", 2), ("c", 3))
    assert log.next_history() == ("b", "c")
    assert make_log().next_history() == ()


def test_concurrent_messages_that_nobody_names_are_named_too() -> None:
    log = filled(("a", 1), ("b", 2), ("c", 3), ("d", 4))
    for message_id in "bacd":
        log.extend_frontier(message_id, [])
    assert log.next_history() == ("a", "b", "c", "d")


def test_what_a_logged_message_names_needs_no_naming() -> None:
    log = filled(("a", 1), ("b", 2), ("c", 3), ("d", 4))
    log.extend_frontier("a", [])
    log.extend_frontier("b", [])
    log.extend_frontier("c", ["a", "b", "unknown"])
    log.extend_frontier("d", ["c"], keep=False)
    assert log.next_history() == ("c", "d")
    assert not log.frontier


def test_branches_are_named_up_to_a_bound_the_newest_first() -> None:
    log = filled(*((f"m{number:03}", number) for number in range(100)))
    for number in range(100):
        log.extend_frontier(f"m{number:03}", [])
    history = log.next_history()
    assert len(history) == MAX_BRANCHES + 2
    newest = range(98 - MAX_BRANCHES, 98)
    assert history[:MAX_BRANCHES] == tuple(f"m{number:03}" for number in newest)
    assert history[-2:] == ("m098", "m099")


def test_the_memory_of_branches_is_bounded() -> None:
    log = make_log()
    for number in range(MAX_FRONTIER + 5):
        log.extend_frontier(f"m{number}", [])
    assert len(log.frontier) == MAX_FRONTIER
    assert "m4" not in log.frontier
    assert "m5" in log.frontier


def test_a_branch_that_is_not_known_any_more_is_left_out() -> None:
    log = filled(("b", 2), ("c", 3), ("d", 4))
    log.extend_frontier("gone", [])
    log.extend_frontier("b", [])
    assert log.next_history() == ("b", "c", "d")


# --- What a message of ours carries when it goes out ---------------------------------------------


def named_by(log: MessageLog, *fixed: str) -> list[tuple[str, bytes | None]]:
    """Return ids and hints of the history that a message of ours carries."""
    return [(item.message_id, item.retrieval_hint) for item in log.dispatch_history(fixed)]


def test_an_own_message_is_named_again_once_its_hint_is_known() -> None:
    log = filled(("a", 1), ("b", 2), ("c", 3))
    assert named_by(log, "a") == [("a", None)]
    log.confirm_own("a", b"1" * 32)
    assert named_by(log, "b") == [("a", b"1" * 32), ("b", None)]
    assert named_by(log, "b") == [("b", None)]


def test_naming_it_anyway_is_enough() -> None:
    log = filled(("a", 1), ("b", 2))
    log.confirm_own("a", b"1" * 32)
    assert named_by(log, "a") == [("a", b"1" * 32)]
    assert named_by(log, "b") == [("b", None)]


def test_of_many_hints_that_come_late_a_message_carries_some() -> None:
    log = filled(*((f"m{number:03}", number) for number in range(300)))
    for number in range(300):
        log.confirm_own(f"m{number:03}", bytes(32))
    first = [message_id for message_id, _ in named_by(log)]
    assert first == [f"m{number:03}" for number in range(44, 44 + MAX_LATE_HINTS)]
    assert len(named_by(log, "m299")) == MAX_LATE_HINTS + 1


def test_entries_stay_in_order_whatever_comes_late() -> None:
    log = filled(("a", 1), ("b", 5), ("c", 3))
    log.confirm_own("c", b"3" * 32)
    assert [message_id for message_id, _ in named_by(log, "a", "b")] == ["a", "c", "b"]


def test_ids_that_are_not_known_any_more_are_left_out() -> None:
    log = filled(("a", 1), ("b", 2))
    log.confirm_own("gone", bytes(32))
    assert named_by(log, "a", "gone too", "b") == [("a", None), ("b", None)]


# --- Eviction ------------------------------------------------------------------------------------


def test_up_to_the_bound_nothing_is_forgotten() -> None:
    log = filled(*((f"m{number:03}", number) for number in range(64)), max_known_ids=64)
    assert log.evict(nothing) == []
    assert len(log) == 64


def test_above_the_bound_the_lowest_are_forgotten_in_batches() -> None:
    log = filled(*((f"m{number:03}", number) for number in range(65)), max_known_ids=64)
    log.extend_frontier("m000", [])
    log.confirm_own("m001", bytes(32))
    log.outbox.take()
    # One too many, and a sixteenth of the bound.
    assert log.evict(nothing) == [(number, f"m{number:03}") for number in range(5)]
    assert len(log) == len(log.order) == 60
    assert "m004" not in log
    assert "m005" in log
    assert not log.frontier
    assert named_by(log, "m064") == [("m064", None)]
    changes = log.outbox.take().changes
    assert changes == {(LogRecord, (f"m{number:03}",)): None for number in range(5)}
    assert log.evict(nothing) == []


def test_ids_of_open_requests_are_never_forgotten() -> None:
    """Who forgot one would take its echo for another's message."""
    log = make_log(max_known_ids=64)
    for number in range(65):
        log.add(known(f"m{number:03}", number))
    assert log.evict({"m000", "m002"}.__contains__) == [
        (number, f"m{number:03}") for number in (1, 3, 4, 5, 6)
    ]
    assert {"m000", "m002"} <= set(log.known)
    assert log.order[:3] == [(0, "m000"), (2, "m002"), (7, "m007")]


def test_ids_that_may_not_be_forgotten_are_not_gone_through_for_every_message() -> None:
    log = make_log(max_known_ids=64)
    asked: list[str] = []

    def is_open(message_id: str) -> bool:
        asked.append(message_id)
        return True

    for number in range(80):
        log.add(known(f"m{number:03}", number))
        assert log.evict(is_open) == []
    assert len(log) == 80
    assert len(asked) < 4 * 2 * 80  # every fourth time
    for number in range(80, 85):
        assert log.evict(nothing) == []
        log.add(known(f"m{number:03}", number))
    assert len(log.evict(nothing)) == 85 - 64 + 4


def test_ids_that_are_not_logged_yet_are_never_forgotten() -> None:
    """Their payload is still held."""
    log = make_log(max_known_ids=64)
    for number in range(70):
        log.add(known(f"m{number:03}", number, logged=False))
    assert log.evict(nothing) == []
    assert len(log) == 70
    log.log("m069")
    assert log.evict(nothing) == [(69, "m069")]
    assert len(log) == 69


# --- The bloom filter ----------------------------------------------------------------------------


def test_without_capacity_there_is_no_filter() -> None:
    log = filled(("a", 1))
    log.rebuild_bloom(5)
    assert log.bloom_bytes() is None


def test_known_ids_are_in_the_filter_logged_or_not() -> None:
    log = filled(("a", 1), capacity=10)
    log.add(known("b", 2, logged=False))
    expected = BloomFilter(10, 0.001)
    expected.add("a")
    expected.add("b")
    assert log.bloom_bytes() == expected.to_bytes()


def test_at_capacity_the_filter_is_made_anew_from_the_newest_half() -> None:
    """WIRE: at capacity it is rebuilt from the newest half of the known ids."""
    log = filled(*((f"m{number}", number) for number in range(8)), capacity=8)
    assert log.bloom is not None
    assert log.bloom.count == 8
    log.add(known("m8", 8))
    expected = BloomFilter(8, 0.001)
    for number in range(5, 9):
        expected.add(f"m{number}")
    assert "m8" in log.bloom
    assert "m0" not in log.bloom
    assert all(f"m{number}" in log.bloom for number in range(5, 9))
    assert log.bloom.count <= 5


def test_the_newest_half_includes_what_is_known_and_not_logged_yet() -> None:
    log = filled(*((f"m{number}", number) for number in range(6)), capacity=8)
    log.add(known("w1", 100, logged=False))
    log.add(known("w2", 101, logged=False))
    log.add(known("w3", 102, logged=False))
    assert log.bloom is not None
    assert {"w1", "w2", "w3"} <= {item for item in log.known if item in log.bloom}


@pytest.mark.interpreted
def test_however_much_is_not_logged_half_of_the_filter_is_free_again() -> None:
    """Or every message would make it anew."""
    log = make_log(capacity=8)
    made = []
    rebuild = log.rebuild_bloom
    log.rebuild_bloom = lambda count: (made.append(count), rebuild(count))[1]  # type: ignore[method-assign]
    for number in range(48):
        log.add(known(f"w{number:02}", number, logged=number == 40))
    assert made == [4] * 10
    assert log.bloom is not None
    assert all(f"w{number}" in log.bloom for number in range(44, 48))
    log.rebuild_bloom(8)
    assert log.bloom.count == 8
    assert all(f"w{number}" in log.bloom for number in range(40, 48))


def test_the_smallest_filter_keeps_the_newest() -> None:
    log = filled(("a", 1), ("b", 2), ("c", 3), capacity=1)
    assert log.bloom is not None
    assert "c" in log.bloom


def test_the_size_of_a_history_counts_its_ids_and_what_goes_with_them() -> None:
    named = [HistoryEntry("abc"), HistoryEntry("de", None, "alice")]
    assert history_octets([]) == 0
    assert history_octets(named) == 3 + 2 + 5 + 2 * HELD_OVERHEAD
    long = [HistoryEntry("abc", bytes(200), "€" * 10)]
    assert history_octets(long) == 3 + 200 + 30 + HELD_OVERHEAD
