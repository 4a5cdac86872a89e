"""When we ask others for what we lack, and when we answer what they ask for.

Spec: LIP-109 (SDS), SDS Repair.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.repair import (
    MAX_DEFERRALS,
    REPAIR_ENTRIES,
    RepairAnswer,
    RepairAnswers,
    RepairRequest,
    RepairRequests,
    answer_delay_ms,
    in_response_group,
    participant_hash,
    request_delay_ms,
)
from reliable_channel.core.timers import Timers
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import AskedRecord, RecordKey
from reliable_channel.types import MS, Nanoseconds
from tests.support.builders import ALICE, BOB, CAROL, DAY, NOW

CONFIG = SdsConfig()
T_MIN, T_MAX = CONFIG.repair_t_min_ms, CONFIG.repair_t_max_ms
names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)


def delay(message_id: str, participant_id: str = ALICE) -> Nanoseconds:
    return request_delay_ms(participant_id, message_id, T_MIN, T_MAX) * MS


def answer(message_id: str = "m1") -> RepairAnswer:
    return RepairAnswer(message_id, BOB, b"bytes", in_store=False)


def ripen(requests: RepairRequests, now: Nanoseconds) -> None:
    """Let the times come, as the machine does."""
    while (key := requests.timers.pop_due(now)) is not None:
        requests.ripen(str(key[1]))


def take(requests: RepairRequests, now: Nanoseconds) -> tuple[RepairRequest, ...]:
    """Return what a message asks for that goes out at a time."""
    ripen(requests, now)
    return requests.take(now)


def plan(answers: RepairAnswers, wanted: RepairAnswer, sender_id: str, now: Nanoseconds) -> bool:
    """Plan an answer if it is wanted, as the responder does."""
    if not answers.wants(wanted.message_id, wanted.asked_by, sender_id, now):
        return False
    answers.plan(wanted, sender_id, now)
    return True


@pytest.fixture
def timers() -> Timers:
    return Timers()


@pytest.fixture
def requests(timers: Timers) -> RepairRequests:
    return RepairRequests(CONFIG, ALICE, timers, Outbox())


def make_answers(timers: Timers, **settings: int) -> RepairAnswers:
    return RepairAnswers(SdsConfig(**settings), ALICE, timers, Outbox())  # type: ignore[arg-type]


# --- The published functions -----------------------------------------------------------------------


def test_the_hash_is_the_first_8_bytes_of_sha256_over_the_texts_in_a_row() -> None:
    digest = sha256("Zoëm1".encode()).digest()
    assert participant_hash("Zoë", "m1") == int.from_bytes(digest[:8], "big")


@given(names, names)
def test_t_req_is_between_t_min_and_t_max(participant_id: str, message_id: str) -> None:
    assert T_MIN <= request_delay_ms(participant_id, message_id, T_MIN, T_MAX) < T_MAX


@given(names, names, names)
def test_t_resp_is_at_once_for_the_original_sender_and_below_t_max_for_others(
    participant_id: str, sender_id: str, message_id: str
) -> None:
    assert answer_delay_ms(sender_id, sender_id, message_id, T_MAX) == 0
    assert 0 <= answer_delay_ms(participant_id, sender_id, message_id, T_MAX) < T_MAX


@given(names, names, st.integers(1, 50))
def test_the_original_sender_is_always_in_the_response_group(
    sender_id: str, message_id: str, groups: int
) -> None:
    assert in_response_group(sender_id, sender_id, message_id, groups)


def test_with_groups_only_a_share_of_the_participants_answers() -> None:
    inside = sum(in_response_group(f"p{number}", BOB, "m1", 4) for number in range(400))
    assert 70 <= inside <= 130


# --- Asking ------------------------------------------------------------------------------------------


def test_an_id_is_asked_for_from_t_req_on(requests: RepairRequests, timers: Timers) -> None:
    requests.want("m1", BOB, NOW)
    due = NOW + delay("m1")
    assert timers.next_deadline() == due
    assert take(requests, due - 1) == ()
    assert [request.entry for request in take(requests, due)] == [HistoryEntry("m1", None, BOB)]


def test_a_message_asks_for_at_most_3_ids_those_with_the_earliest_t_req(
    requests: RepairRequests,
) -> None:
    ids = [f"m{number}" for number in range(8)]
    for message_id in ids:
        requests.want(message_id, None, NOW)
    late = NOW + T_MAX * MS
    asked = [request.entry.message_id for request in take(requests, late)]
    assert len(asked) == REPAIR_ENTRIES
    assert asked == sorted(ids, key=delay)[:REPAIR_ENTRIES]
    assert requests.is_due


def test_wanting_an_id_again_changes_nothing(requests: RepairRequests, timers: Timers) -> None:
    requests.want("m1", BOB, NOW)
    due = timers.next_deadline()
    requests.want("m1", BOB, NOW + 5)
    assert timers.next_deadline() == due


@pytest.mark.parametrize("message_id", ["m1", "m2", "m3", "m4"])
def test_a_request_is_repeated_at_doubling_distances(
    requests: RepairRequests, timers: Timers, message_id: str
) -> None:
    requests.want(message_id, BOB, NOW)
    times = []
    for _ in range(4):
        times.append(timers.next_deadline() or 0)
        assert take(requests, times[-1])
    first = min(2 * delay(message_id), T_MAX * MS)
    assert times[0] == NOW + delay(message_id)
    assert [later - sooner for sooner, later in pairwise(times)] == [first, 2 * first, 4 * first]


@given(names)
def test_with_the_default_times_an_id_is_asked_for_2_or_3_times_before_it_is_lost(
    message_id: str,
) -> None:
    """WIRE: each id asked up to 3 times."""
    requests = RepairRequests(CONFIG, ALICE, Timers(), Outbox())
    requests.want(message_id, BOB, NOW)
    asked = 0
    while (due := requests.timers.next_deadline() or 0) < NOW + 300_000 * MS:
        asked += len(take(requests, due))
    assert 2 <= asked <= 3


def test_what_arrived_is_not_asked_for(requests: RepairRequests, timers: Timers) -> None:
    requests.want("m1", BOB, NOW)
    requests.want("m2", BOB, NOW)
    ripen(requests, NOW + T_MAX * MS)
    requests.forget("m1")
    requests.forget("m1")
    assert [item.entry.message_id for item in take(requests, NOW + T_MAX * MS)] == ["m2"]
    requests.forget("m2")
    assert len(requests) == 0
    assert timers.next_deadline() is None


def test_anothers_request_puts_ours_off_and_does_not_remove_it(
    requests: RepairRequests, timers: Timers
) -> None:
    requests.want("m1", BOB, NOW)
    due = NOW + delay("m1")
    ripen(requests, due)
    requests.defer("m1", due)
    assert not requests.is_due
    assert timers.next_deadline() == due + delay("m1")
    requests.defer("m1", due)
    longer = min(2 * delay("m1"), T_MAX * MS)
    assert timers.next_deadline() == due + longer


def test_anothers_request_never_brings_ours_forward(
    requests: RepairRequests, timers: Timers
) -> None:
    requests.want("m1", BOB, NOW)
    take(requests, NOW + delay("m1"))
    take(requests, timers.next_deadline() or 0)
    later = timers.next_deadline() or 0
    requests.defer("m1", NOW + 2 * delay("m1") + 1)
    assert timers.next_deadline() == later


def test_nobody_can_put_our_request_off_for_ever(requests: RepairRequests, timers: Timers) -> None:
    requests.want("m1", BOB, NOW)
    now = NOW
    for _ in range(MAX_DEFERRALS + 1):
        now = timers.next_deadline() or 0
        requests.defer("m1", now - 1)
    requests.defer("m1", now)
    ripen(requests, timers.next_deadline() or 0)
    assert requests.is_due


def test_anothers_request_for_what_we_do_not_lack_means_nothing(
    requests: RepairRequests, timers: Timers
) -> None:
    requests.defer("m1", NOW)
    assert timers.next_deadline() is None


def test_a_message_that_did_not_go_out_has_not_asked(requests: RepairRequests) -> None:
    requests.want("m1", BOB, NOW)
    late = NOW + T_MAX * MS
    for _ in range(6):
        requests.put_back(take(requests, late))
        assert requests.is_due
    taken = take(requests, late)
    requests.forget("m1")
    requests.put_back(taken)
    assert not requests.is_due


def test_what_did_not_go_out_says_nothing_of_a_later_request_for_the_same_id(
    requests: RepairRequests, timers: Timers
) -> None:
    """The node is slow: meanwhile it came, was dropped, and is named again."""
    requests.want("m1", BOB, NOW)
    taken = take(requests, NOW + delay("m1"))
    requests.forget("m1")
    requests.want("m1", BOB, NOW + DAY)
    requests.put_back(taken)
    assert not requests.is_due
    assert timers.next_deadline() == NOW + DAY + delay("m1")
    taken = take(requests, NOW + DAY + delay("m1"))
    requests.put_back(taken)
    assert requests.requests["m1"].asked == 0


def test_without_repair_nothing_is_asked_for(timers: Timers) -> None:
    requests = RepairRequests(SdsConfig(enable_repair=False), ALICE, timers, Outbox())
    requests.want("m1", BOB, NOW)
    assert len(requests) == 0
    assert timers.next_deadline() is None


# --- Answering ---------------------------------------------------------------------------------------


def test_a_request_is_answered_at_t_resp(timers: Timers) -> None:
    answers = make_answers(timers)
    assert plan(answers, answer(), CAROL, NOW)
    wait = answer_delay_ms(ALICE, CAROL, "m1", T_MAX) * MS
    assert timers.deadline(("answer", "m1")) == NOW + wait


def test_the_original_sender_answers_at_once(timers: Timers) -> None:
    answers = make_answers(timers)
    assert plan(answers, answer(), ALICE, NOW)
    assert timers.deadline(("answer", "m1")) == NOW


def test_a_second_request_does_not_move_the_answer(timers: Timers) -> None:
    answers = make_answers(timers)
    plan(answers, answer(), CAROL, NOW)
    due = timers.deadline(("answer", "m1"))
    assert not plan(answers, answer(), CAROL, NOW + 5)
    assert timers.deadline(("answer", "m1")) == due


def test_an_id_is_answered_once_within_t_max(timers: Timers) -> None:
    answers = make_answers(timers)
    plan(answers, answer(), ALICE, NOW)
    answers.note_sent(answer(), NOW)
    assert not plan(answers, answer(), ALICE, NOW + T_MAX * MS - 1)
    assert plan(answers, answer(), ALICE, NOW + T_MAX * MS)


def test_an_answer_that_did_not_go_out_is_no_answer(timers: Timers) -> None:
    answers = make_answers(timers)
    plan(answers, answer(), ALICE, NOW)
    answers.note_sent(answer(), NOW)
    answers.note_failed("m1")
    assert plan(answers, answer(), ALICE, NOW)


def test_an_answer_heard_from_another_is_needless(timers: Timers) -> None:
    answers = make_answers(timers)
    plan(answers, answer(), CAROL, NOW)
    assert answers.cancel("m1") is not None
    assert answers.cancel("m1") is None
    assert timers.next_deadline() is None


def test_another_response_group_answers(timers: Timers) -> None:
    answers = make_answers(timers, num_response_groups=1000)
    outside = next(
        f"m{number}"
        for number in range(100)
        if not in_response_group(ALICE, CAROL, f"m{number}", 1000)
    )
    assert not plan(answers, answer(outside), CAROL, NOW)
    assert len(answers) == 0


def test_one_asking_participant_gets_a_quarter_of_the_answers(timers: Timers) -> None:
    """WIRE: sender ids are not authenticated: per-sender limits stand under global ones."""
    answers = make_answers(timers, max_repair_answers=8)
    assert [plan(answers, answer(f"m{number}"), CAROL, NOW) for number in range(3)] == [
        True,
        True,
        False,
    ]
    assert answers.outbox.dropped["repair_answers_of_sender_full"] == 1
    assert plan(answers, RepairAnswer("m2", CAROL, b"bytes", in_store=False), ALICE, NOW)


def test_what_was_answered_is_forgotten_after_t_max_in_any_order(timers: Timers) -> None:
    answers = make_answers(timers)
    for message_id, when in (("m1", 0), ("m2", 10), ("m1", 60_000)):
        answers.note_sent(answer(message_id), NOW + when * MS)
    assert not answers.was_answered("m2", NOW + (T_MAX + 10) * MS)
    assert answers.was_answered("m1", NOW + (T_MAX + 10) * MS)


def test_an_answer_that_waits_again_is_pending_and_not_given(timers: Timers) -> None:
    answers = make_answers(timers)
    again = answer()
    plan(answers, again, ALICE, NOW)
    answers.note_sent(answer(), NOW)
    answers.note_waiting(again)
    assert not answers.was_answered("m1", NOW)
    assert answers.cancel("m1") is again


def test_answers_planned_and_given_within_t_max_are_bounded(timers: Timers) -> None:
    answers = make_answers(timers, max_repair_answers=2)
    assert plan(answers, answer("m1"), ALICE, NOW)
    answers.note_sent(answer(), NOW)
    assert plan(answers, answer("m2"), ALICE, NOW)
    assert not plan(answers, RepairAnswer("m3", CAROL, b"bytes", in_store=False), ALICE, NOW)
    assert answers.outbox.dropped["repair_answers_full"] == 1
    assert plan(
        answers, RepairAnswer("m3", CAROL, b"bytes", in_store=False), ALICE, NOW + T_MAX * MS
    )


# --- After a restart -------------------------------------------------------------------------------


def restored(requests: RepairRequests, *wanted: str, now: int) -> RepairRequests:
    """Return what goes on from the rows of another, with ids that are missing since the beginning."""
    rows: dict[RecordKey, AskedRecord | None] = {}
    for (_, key), row in requests.outbox.effects.changes.items():
        rows[key] = row  # type: ignore[assignment]
    again = RepairRequests(CONFIG, ALICE, Timers(), Outbox())
    for message_id in wanted:
        again.want(message_id, BOB, NOW)
    again.restore((row for row in rows.values() if row is not None), now)
    return again


def test_what_was_not_asked_for_yet_has_no_row(requests: RepairRequests) -> None:
    """It is asked for at T_req, which the id and the time of being named give: no message pays for a row."""
    requests.want("m1", BOB, NOW)
    requests.forget("m1")
    assert requests.outbox.effects.changes == {}


def test_the_distances_of_requests_go_on_growing(requests: RepairRequests, timers: Timers) -> None:
    requests.want("m1", BOB, NOW)
    for _ in range(3):
        now = timers.next_deadline() or 0
        take(requests, now)
        again = restored(requests, "m1", now=now)
        assert again.timers.next_deadline() == timers.next_deadline()
        assert again.requests["m1"].asked == requests.requests["m1"].asked


def test_a_request_that_others_put_off_stays_so(requests: RepairRequests, timers: Timers) -> None:
    requests.want("m1", BOB, NOW)
    now = NOW + delay("m1") - 1
    for _ in range(MAX_DEFERRALS):
        requests.defer("m1", now)
    again = restored(requests, "m1", now=now)
    assert again.timers.next_deadline() == timers.next_deadline()
    again.defer("m1", NOW + 2 * delay("m1"))
    assert again.timers.next_deadline() == timers.next_deadline()


def test_what_did_not_go_out_is_asked_for_at_once(requests: RepairRequests) -> None:
    requests.want("m1", BOB, NOW)
    now = NOW + delay("m1")
    requests.put_back(take(requests, now))
    again = restored(requests, "m1", now=now)
    assert [item.entry.message_id for item in take(again, now)] == ["m1"]
    assert again.requests["m1"].asked == 1


def test_rows_of_what_is_not_missing_any_more_go(requests: RepairRequests) -> None:
    requests.want("m1", BOB, NOW)
    take(requests, NOW + delay("m1"))
    again = restored(requests, now=NOW)
    assert again.outbox.effects.changes == {(AskedRecord, ("m1",)): None}
    requests.forget("m1")
    assert requests.outbox.effects.changes == {(AskedRecord, ("m1",)): None}


def test_a_clock_that_was_set_back_puts_no_request_off_for_long(requests: RepairRequests) -> None:
    requests.want("m1", BOB, NOW)
    take(requests, NOW + delay("m1"))
    long_ago = NOW - 1_000 * T_MAX * MS
    again = restored(requests, "m1", now=long_ago)
    longest = max(T_MAX * MS, 4 * delay("m1"))
    assert (again.timers.next_deadline() or 0) <= long_ago + longest
