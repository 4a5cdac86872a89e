"""Sets of segments: which belong together, what is refused, what is remembered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.reassembly import Reassembler, set_digest
from tests.support.builders import ALICE, BOB, cut, offer

PAYLOAD = bytes(range(150))
KIB = 1024


# --- What belongs together -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"entire_message_hash": b"x" * 32},
        {"wrap_time_ns": 1},
        {"data_segment_count": 4},
        {"parity_segment_count": 1},
        {"original_payload_length": 151},
        {"parity_code": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_segments_that_disagree_are_of_different_sets(changes: dict[str, Any]) -> None:
    """WIRE: a set is (sender, hash, wrap time, counts, length, code)."""
    reassembler = Reassembler(SegmentationConfig())
    first = cut(PAYLOAD)[0]
    other = replace(first, **changes)
    assert reassembler.key_of(ALICE, first) != reassembler.key_of(ALICE, other)
    assert offer(reassembler, first) is not offer(reassembler, other)
    assert len(reassembler.sets) == 2


def test_segments_of_two_senders_are_of_different_sets() -> None:
    reassembler = Reassembler(SegmentationConfig())
    first = cut(PAYLOAD)[0]
    assert offer(reassembler, first, ALICE) is not offer(reassembler, first, BOB)


def test_segments_of_a_payload_are_of_one_set() -> None:
    reassembler = Reassembler(SegmentationConfig())
    sets = {id(offer(reassembler, segment)) for segment in cut(PAYLOAD, parity_count=2)}
    assert len(sets) == 1


# --- What is refused -----------------------------------------------------------------------------


def test_four_different_segments_are_held_for_one_index() -> None:
    reassembler = Reassembler(SegmentationConfig())
    for segment in cut(PAYLOAD, parity_count=1)[::3]:
        before = reassembler.octets
        for mark in (b"1", b"2", b"3", b"4"):
            assert isinstance(
                offer(reassembler, replace(segment, payload=mark * 64)), IncomingPayload
            )
        assert offer(reassembler, replace(segment, payload=b"5" * 64)) == "conflicting_segment"
        assert reassembler.octets == before + 4 * 64


def test_the_same_parity_is_held_once() -> None:
    reassembler = Reassembler(SegmentationConfig())
    parity = cut(PAYLOAD, parity_count=1)[3]
    for segment in (parity, replace(parity, payload=b"!" * 64)):
        assert isinstance(offer(reassembler, segment), IncomingPayload)
        assert offer(reassembler, segment) == "duplicate_parity"


def test_sets_are_limited_in_all() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_payloads=3))
    senders = ["a", "b", "c", "d"]
    results = [offer(reassembler, cut(PAYLOAD)[0], sender) for sender in senders]
    assert all(isinstance(result, IncomingPayload) for result in results[:3])
    assert results[3] == "incomplete_payloads_full"
    assert isinstance(offer(reassembler, cut(PAYLOAD)[1], "a"), IncomingPayload)


def test_sets_are_limited_per_sender_so_that_others_still_get_in() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_payloads_per_sender=2))
    results = [offer(reassembler, cut(PAYLOAD, wrap_time_ns=number)[0]) for number in (1, 2, 3)]
    assert results[2] == "incomplete_payloads_of_sender_full"
    assert isinstance(offer(reassembler, cut(PAYLOAD)[0], BOB), IncomingPayload)
    assert isinstance(offer(reassembler, cut(PAYLOAD, wrap_time_ns=1)[1]), IncomingPayload)


def test_bytes_are_limited_in_all() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_bytes=64 * KIB))
    big = [cut(b"x" * 96 * KIB, chunk=32 * KIB, wrap_time_ns=number) for number in (1, 2)]
    assert isinstance(offer(reassembler, big[0][0], "a"), IncomingPayload)
    assert isinstance(offer(reassembler, big[0][1], "b"), IncomingPayload)
    assert reassembler.octets == 64 * KIB  # the bound itself is allowed
    assert offer(reassembler, big[1][0], "c") == "incomplete_bytes_full"
    assert offer(reassembler, big[0][2], "a") == "incomplete_bytes_full"


def test_bytes_are_limited_per_sender_so_that_others_still_get_in() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_bytes_per_sender=64 * KIB))
    big = cut(b"x" * 96 * KIB, chunk=32 * KIB)
    assert isinstance(offer(reassembler, big[0]), IncomingPayload)
    assert isinstance(offer(reassembler, big[1]), IncomingPayload)
    assert offer(reassembler, big[2]) == "incomplete_bytes_of_sender_full"
    assert isinstance(offer(reassembler, big[2], BOB), IncomingPayload)


def test_what_a_set_took_is_given_back_when_it_goes() -> None:
    reassembler = Reassembler(SegmentationConfig())
    payloads = [offer(reassembler, cut(PAYLOAD, wrap_time_ns=number)[0]) for number in (1, 2)]
    offer(reassembler, cut(PAYLOAD, wrap_time_ns=1)[2])
    assert reassembler.octets == 64 + 22 + 64
    assert reassembler.sender_octets == {ALICE: 150}
    assert reassembler.sender_sets == {ALICE: 2}
    for payload in payloads:
        assert isinstance(payload, IncomingPayload)
        reassembler.remove(payload)
    assert reassembler.octets == 0
    assert not reassembler.sets
    assert not reassembler.sender_octets
    assert not reassembler.sender_sets


# --- When a set is complete ----------------------------------------------------------------------


def test_a_set_needs_as_many_segments_as_there_is_data_and_one_of_data() -> None:
    segments = cut(PAYLOAD, parity_count=3)
    reassembler = Reassembler(SegmentationConfig())
    payload = None
    for segment in segments[3:]:
        payload = offer(reassembler, segment)
        assert isinstance(payload, IncomingPayload)
        assert not reassembler.is_complete(payload)
    payload = offer(reassembler, segments[2])
    assert isinstance(payload, IncomingPayload)
    assert reassembler.is_complete(payload)


def test_a_set_that_begins_ephemeral_ends_with_the_first_segment_in_causal_order() -> None:
    """Parity is ephemeral; what it helps is not."""
    reassembler = Reassembler(SegmentationConfig())
    data, parity = cut(PAYLOAD, parity_count=1)[::3]
    key = reassembler.key_of(ALICE, parity)
    assert reassembler.add(key, parity, ephemeral=True).ephemeral
    assert not reassembler.add(key, data, ephemeral=False).ephemeral


# --- What is remembered --------------------------------------------------------------------------


def test_rebuilt_payloads_are_remembered_up_to_a_bound_the_oldest_forgotten_first() -> None:
    reassembler = Reassembler(SegmentationConfig(max_completed_payloads=2))
    assert reassembler.remember(b"a", 0b1) is None
    assert reassembler.remember(b"b", 0b1) is None
    assert reassembler.remember(b"a", 0b11) is None
    assert reassembler.remember(b"c", 0b1) == b"b"
    assert dict(reassembler.completed) == {b"a": 0b11, b"c": 0b1}


def test_a_set_is_remembered_by_everything_that_identifies_it() -> None:
    reassembler = Reassembler(SegmentationConfig())
    first = cut(PAYLOAD)[0]
    variants = [
        first,
        *(
            replace(first, **{name: value})
            for name, value in (
                ("wrap_time_ns", 1),
                ("data_segment_count", 4),
                ("original_payload_length", 151),
            )
        ),
    ]
    digests = {set_digest(reassembler.key_of(ALICE, segment)) for segment in variants}
    digests.add(set_digest(reassembler.key_of(BOB, first)))
    assert len(digests) == 5
    assert {len(digest) for digest in digests} == {16}
