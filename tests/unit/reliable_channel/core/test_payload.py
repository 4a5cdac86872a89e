"""A payload on its way in: how it is named and placed, and which of its candidates come first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reliable_channel.core.payload import Candidate, IncomingPayload
from tests.support.builders import ALICE, collect_set, cut, entry

PAYLOAD = bytes(range(150))


def test_a_payload_is_named_and_placed_by_its_first_known_segment() -> None:
    payload = collect_set(cut(PAYLOAD))
    payload.ids.update({2: "c", 1: "b"})
    payload.lamports.update({2: 12, 1: 11})
    assert payload.message_id == "b"
    assert payload.position == (11, "b")
    assert payload.sender_id == ALICE
    assert payload.data_count == 3


def contested() -> IncomingPayload:
    """Return a payload for whose second place there are two candidates."""
    payload = collect_set(cut(PAYLOAD))
    for index in range(3):
        payload.enter(index, f"m{index}", 10 + index, (entry(f"before {index}"),))
    payload.rivals[1] = [Candidate(b"other", "rival", 11, (entry("elsewhere"),))]
    return payload


def test_the_first_candidate_of_an_index_is_that_which_came_first() -> None:
    payload = contested()
    assert [item.message_id for item in payload.candidates(1)] == ["m1", "rival"]


def test_a_chosen_candidate_takes_the_first_place_with_all_that_it_says() -> None:
    payload = contested()
    payload.choose(1, payload.candidates(1)[1])
    payload.gather()
    assert (payload.ids[1], payload.data[1]) == ("rival", b"other")
    assert [item.message_id for item in payload.candidates(1)] == ["rival", "m1"]
    assert set(payload.dependencies) == {"before 0", "elsewhere", "before 2"}


def test_choosing_the_first_candidate_changes_nothing() -> None:
    payload = contested()
    payload.choose(1, payload.candidates(1)[0])
    assert [item.message_id for item in payload.candidates(1)] == ["m1", "rival"]


def test_what_is_no_part_of_the_whole_becomes_a_rival() -> None:
    """The place of one that was left out is filled from parity, and its id is nobody's."""
    payload = contested()
    chosen = {0: payload.candidates(0)[0], 2: payload.candidates(2)[0]}
    whole = {0: payload.data[0], 1: b"rebuilt", 2: payload.data[2]}
    payload.settle(whole, chosen, {0: b"parity"}, 64)
    assert payload.parity == {0: b"parity"}
    assert payload.data == whole
    assert set(payload.ids) == set(payload.lamports) == set(payload.histories) == {0, 2}
    assert [item.message_id for item in payload.rivals[1]] == ["m1", "rival"]
    assert set(payload.dependencies) == {"before 0", "before 2"}


def test_what_was_left_out_and_has_the_right_bytes_keeps_its_place() -> None:
    payload = contested()
    chosen = {0: payload.candidates(0)[0], 2: payload.candidates(2)[0]}
    payload.settle({**payload.data, 1: b"other"}, chosen, {}, 64)
    assert payload.ids[1] == "rival"
    assert [item.message_id for item in payload.rivals[1]] == ["m1"]


@pytest.mark.parametrize(
    ("index", "payload", "is_part"),
    [
        (0, PAYLOAD[:64], True),
        (1, PAYLOAD[64:128], True),
        (2, PAYLOAD[128:], True),
        (0, b"!" * 64, False),
        (1, PAYLOAD[:64], False),
        (2, b"!" * 22, False),
        (2, PAYLOAD[-20:], False),
        (0, PAYLOAD[:32], False),
    ],
)
def test_a_part_has_the_bytes_of_the_whole_in_its_place(
    index: int, payload: bytes, is_part: bool
) -> None:
    whole = collect_set(cut(PAYLOAD))
    whole.message, whole.chunk_bytes = PAYLOAD, 64
    segment = replace(cut(PAYLOAD)[index], payload=payload)
    assert whole.is_part(segment) is is_part


def test_a_dropped_id_leaves_the_others() -> None:
    payload = contested()
    payload.drop_id("m0")
    assert payload.message_id == "m1"
