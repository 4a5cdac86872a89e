"""Which transport hashes the store is asked for, when, how often; bounds."""

from __future__ import annotations

from typing import Any

import pytest

from reliable_channel.config import SdsConfig
from reliable_channel.core.sds.missing import FETCH_TIMER, MissingMessages
from reliable_channel.core.timers import Timers
from reliable_channel.types import SECOND
from tests.support.builders import ALICE, BOB, CAROL, NOW, entry


def hint(number: int) -> bytes:
    return number.to_bytes(32, "big")


def make_missing(**settings: Any) -> MissingMessages:
    return MissingMessages(SdsConfig(**settings), Timers())


@pytest.fixture
def missing() -> MissingMessages:
    return make_missing()


def track(
    missing: MissingMessages,
    message_id: str = "a",
    *hints: bytes,
    by: str = BOB,
    now: int = NOW,
    may_predate: bool = False,
) -> bool:
    """Name an id once without hint, or once with each."""
    results = [
        missing.track(
            entry(message_id, hint=item, sender_id=ALICE), by, now, may_predate=may_predate
        )
        for item in hints or (None,)
    ]
    return all(results)


# --- Tracking ------------------------------------------------------------------------------------


def test_an_id_is_tracked_once_with_who_named_it_first(missing: MissingMessages) -> None:
    assert track(missing, "a", by=BOB)
    assert track(missing, "a", by=CAROL, now=NOW + 5)
    assert len(missing) == 1
    assert "a" in missing
    item = missing.messages["a"]
    assert (item.sender_id, item.named_by, item.since_ns) == (ALICE, BOB, NOW)
    assert missing.named_by == {BOB: 1}


def test_an_id_may_predate_us_until_something_proves_the_contrary(
    missing: MissingMessages,
) -> None:
    track(missing, "a", may_predate=True)
    track(missing, "a", may_predate=False)
    assert missing.messages["a"].may_predate
    missing.track(entry("a"), BOB, NOW, may_predate=True, proven=True)
    track(missing, "a", may_predate=True)
    assert not missing.messages["a"].may_predate
    track(missing, "b", may_predate=False)
    track(missing, "b", may_predate=True)
    assert not missing.messages["b"].may_predate


def test_ids_are_limited_in_all() -> None:
    missing = make_missing(max_missing_ids=2)
    assert track(missing, "a", by="p1")
    assert track(missing, "b", by="p2")
    assert not track(missing, "c", by="p3")
    assert track(missing, "a", hint(1), by="p3")  # known already: only a hint is learnt
    assert len(missing) == 2
    missing.remove("a")
    assert track(missing, "c", by="p3")


def test_ids_are_limited_by_participant_so_that_others_still_count() -> None:
    missing = make_missing(max_missing_ids_per_sender=2)
    assert track(missing, "a", by=BOB)
    assert track(missing, "b", by=BOB)
    assert not track(missing, "c", by=BOB)
    assert track(missing, "c", by=CAROL)
    missing.remove("a")
    assert track(missing, "d", by=BOB)
    assert not track(missing, "e", by=BOB)


def test_removing_says_what_was_known_of_it(missing: MissingMessages) -> None:
    track(missing, "a")
    removed = missing.remove("a")
    assert removed is not None
    assert removed.message_id == "a"
    assert missing.remove("a") is None
    assert not missing.named_by


# --- Queries -------------------------------------------------------------------------------------


def test_without_a_hint_nothing_is_asked(missing: MissingMessages) -> None:
    track(missing, "a")
    assert missing.next_query(NOW) == ()
    assert FETCH_TIMER not in missing.timers


@pytest.mark.parametrize("bad", [b"", b"x" * 31, b"x" * 33, b"x" * 1000])
def test_a_hint_that_is_no_transport_hash_is_none(missing: MissingMessages, bad: bytes) -> None:
    assert track(missing, "a", bad)
    assert missing.next_query(NOW) == ()


def test_all_due_ids_go_into_one_query_with_all_their_hints(missing: MissingMessages) -> None:
    """WIRE: up to 3 hints an id, all ids in one query."""
    track(missing, "a", hint(1), hint(2), hint(3), hint(4), hint(1))
    track(missing, "b", hint(5))
    assert missing.timers.deadline(FETCH_TIMER) == NOW
    assert missing.next_query(NOW) == (hint(1), hint(2), hint(3), hint(5))


def test_one_query_is_outstanding_at_a_time(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    assert missing.next_query(NOW)
    track(missing, "b", hint(2))
    assert missing.next_query(NOW + 100 * SECOND) == ()
    missing.answered([])
    assert hint(2) in missing.next_query(NOW + 100 * SECOND)


def test_while_a_query_is_outstanding_no_timer_asks_for_another(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    missing.next_query(NOW)
    assert FETCH_TIMER not in missing.timers
    missing.answered([])
    assert missing.timers.deadline(FETCH_TIMER) == NOW + 3 * SECOND


@pytest.mark.parametrize("answer_after", [0, SECOND])
def test_an_id_is_asked_for_at_0_3_and_10_seconds(
    missing: MissingMessages, answer_after: int
) -> None:
    """WIRE: at 0, 3 and 10 s (stores lag)."""
    track(missing, "a", hint(1))
    asked = []
    for millisecond in range(0, 60_000, 100):
        now = NOW + millisecond * 1_000_000
        if missing.next_query(now):
            asked.append(millisecond / 1000)
            missing.answered([])
    assert asked == [0, 3, 10]
    assert FETCH_TIMER not in missing.timers


def test_a_late_answer_does_not_make_two_queries_of_one(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    missing.next_query(NOW)
    missing.answered([])
    assert missing.next_query(NOW + 20 * SECOND)
    missing.answered([])
    assert missing.next_query(NOW + 20 * SECOND) == ()
    assert missing.next_query(NOW + 20 * SECOND + 1)
    missing.answered([])
    assert missing.next_query(NOW + 99 * SECOND) == ()


def test_a_query_holds_at_most_100_hashes_and_the_rest_goes_next(missing: MissingMessages) -> None:
    """WIRE: at most 100 hashes, one query outstanding per channel."""
    for number in range(50):
        track(missing, f"m{number}", *(hint(3 * number + part) for part in range(3)))
    first = missing.next_query(NOW)
    assert len(first) == 99
    missing.answered([])
    assert missing.timers.deadline(FETCH_TIMER) == NOW
    second = missing.next_query(NOW)
    assert len(second) == 51
    assert len({*first, *second}) == 150


def test_a_hash_that_gave_something_else_is_never_asked_for_again(
    missing: MissingMessages,
) -> None:
    """WIRE: a hash that answered uselessly never again."""
    track(missing, "a", hint(1), hint(2))
    missing.next_query(NOW)
    missing.answered([hint(1)])
    track(missing, "a", hint(1))
    assert missing.next_query(NOW + 3 * SECOND) == (hint(2),)
    missing.answered([hint(2)])
    assert FETCH_TIMER not in missing.timers
    track(missing, "a", hint(1), hint(2))
    assert missing.next_query(NOW + 10 * SECOND) == ()


def test_useless_hashes_count_among_the_three(missing: MissingMessages) -> None:
    """Or a stranger could have any number of hashes asked for."""
    track(missing, "a", hint(1), hint(2), hint(3))
    missing.next_query(NOW)
    missing.answered([hint(1), hint(2), hint(3)])
    track(missing, "a", hint(4))
    assert missing.next_query(NOW + SECOND) == ()


def test_a_new_hint_begins_the_three_queries_anew(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    for second in (0, 3, 10):
        assert missing.next_query(NOW + second * SECOND)
        missing.answered([])
    later = NOW + 100 * SECOND
    track(missing, "a", hint(2), now=later)
    for second in (0, 3, 10):
        assert missing.next_query(later + second * SECOND) == (hint(1), hint(2))
        missing.answered([])
    assert missing.next_query(later + 99 * SECOND) == ()


def test_a_second_hint_joins_the_running_queries(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    missing.next_query(NOW)
    missing.answered([])
    track(missing, "a", hint(2), now=NOW + SECOND)
    assert missing.timers.deadline(FETCH_TIMER) == NOW + 3 * SECOND
    assert missing.next_query(NOW + 3 * SECOND) == (hint(1), hint(2))


def test_what_arrived_is_not_asked_for_again(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    track(missing, "b", hint(2))
    missing.next_query(NOW)
    missing.remove("a")
    missing.answered([hint(1)])
    assert missing.next_query(NOW + 3 * SECOND) == (hint(2),)


def test_answers_that_nobody_asked_for_do_nothing(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    missing.answered([hint(1), hint(9)])
    assert missing.next_query(NOW) == (hint(1),)


def test_a_failed_query_is_repeated_and_not_counted(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    now = NOW
    for wait in (3, 6, 12, 24, 48, 60, 60):
        assert missing.next_query(now) == (hint(1),)
        missing.failed(now)
        now += wait * SECOND
        assert missing.timers.deadline(FETCH_TIMER) == now
        assert missing.next_query(now - 1) == ()
    for _ in range(3):
        assert missing.next_query(now) == (hint(1),)
        missing.answered([])
        now += 20 * SECOND
    assert missing.next_query(now) == ()


def test_a_store_that_answers_again_is_asked_as_often_as_before(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    for number in range(3):
        missing.next_query(NOW + number * 60 * SECOND)
        missing.failed(NOW + number * 60 * SECOND)
    now = NOW + 600 * SECOND
    missing.next_query(now)
    missing.answered([])
    track(missing, "b", hint(2))
    missing.next_query(now)
    missing.failed(now)
    assert missing.messages["b"].next_query_ns == now + 3 * SECOND


def test_a_failed_query_for_what_arrived_meanwhile_is_not_repeated(
    missing: MissingMessages,
) -> None:
    track(missing, "a", hint(1))
    missing.next_query(NOW)
    missing.remove("a")
    missing.failed(NOW)
    assert FETCH_TIMER not in missing.timers
    assert missing.next_query(NOW + 3 * SECOND) == ()


def test_a_failed_query_counts_for_no_id_that_shares_a_hint(missing: MissingMessages) -> None:
    track(missing, "a", hint(1))
    track(missing, "b", hint(1))
    for number in range(6):
        assert missing.next_query(NOW + number * 60 * SECOND) == (hint(1),)
        missing.failed(NOW + number * 60 * SECOND)
    missing.remove("b")
    assert missing.next_query(NOW + 600 * SECOND) == (hint(1),)
