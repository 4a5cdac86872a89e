"""The arithmetic of SDS-R, against values recorded from `@waku/sds` 0.0.8.

LIP-109 (SDS-R) leaves the hash open; the peer takes the first 8 bytes, big-endian, of SHA-256 over the texts joined
without a separator, and all participants must agree. Delays are relative to the time of asking.
"""

from __future__ import annotations

from typing import Any

import pytest

from reliable_channel.core.sds import repair
from tests.support.js_vectors import VECTORS, Record

REPAIR = VECTORS["repair"]


def records(section: str) -> list[Any]:
    """Return the records of a part of the section, those of the peer's own with their reason to skip."""
    found = []
    for number, record in enumerate(REPAIR[section]):
        flag = record.get("peer_defect") or record.get("peer_specific")
        marks = [pytest.mark.skip(reason=f"peculiar to the peer: {flag}")] if flag else []
        found.append(pytest.param(record, id=str(number), marks=marks))
    return found


def test_no_part_is_empty() -> None:
    """How many groups a number of participants makes is not compared: here that number is a setting."""
    sizes = {name: len(part) for name, part in REPAIR.items() if name != "defaults"}
    assert sizes == {
        "participant_hash": 13,
        "t_req": 32,
        "t_resp": 32,
        "response_group": 57,
        "group_count": 11,
    }


@pytest.mark.parametrize("record", records("participant_hash"))
def test_a_hash_is_the_first_eight_bytes_of_sha256(record: Record) -> None:
    assert repair.participant_hash(record["input"]) == int(record["hash_u64"])


@pytest.mark.parametrize("record", records("t_req"))
def test_texts_are_hashed_as_one(record: Record) -> None:
    participant_id, message_id = record["participant_id"], record["message_id"]
    expected = int(record["combined_hash_u64"])
    assert repair.participant_hash(participant_id, message_id) == expected
    assert repair.participant_hash(participant_id + message_id) == expected


@pytest.mark.parametrize("record", records("t_req"))
def test_a_request_is_made_when_the_peer_makes_it(record: Record) -> None:
    """LIP-109: T_req = now + hash(participant_id, message_id) % (T_max - T_min) + T_min."""
    delay = repair.request_delay_ms(
        record["participant_id"], record["message_id"], record["t_min_ms"], record["t_max_ms"]
    )
    assert record["now_ms"] + delay == record["t_req_ms"]


@pytest.mark.parametrize("record", records("t_resp"))
def test_an_answer_is_given_when_the_peer_gives_it(record: Record) -> None:
    """LIP-109: T_resp = now + (distance * hash(message_id)) % T_max; the original sender is at distance 0."""
    participant_id, sender_id = record["participant_id"], record["sender_id"]
    delay = repair.answer_delay_ms(
        participant_id, sender_id, record["message_id"], record["t_max_ms"]
    )
    assert record["now_ms"] + delay == record["t_resp_ms"]
    distance = repair.participant_hash(participant_id) ^ repair.participant_hash(sender_id)
    assert distance == int(record["distance_u64"])
    if participant_id == sender_id:
        assert delay == 0


@pytest.mark.parametrize("record", records("response_group"))
def test_a_participant_is_in_the_groups_in_which_the_peer_sees_it(record: Record) -> None:
    """LIP-109: in the response group when hash(participant_id, message_id) and hash(sender_id, message_id) agree.

    Who does not say who sent a message (an empty sender id here) gets no answer.
    """
    assert (
        repair.in_response_group(
            record["participant_id"],
            record["sender_id"],
            record["message_id"],
            record["num_response_groups"],
        )
        is record["in_group"]
    )
