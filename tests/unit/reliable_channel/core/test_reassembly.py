"""Sets of segments: which belong together, what is refused, what is remembered."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.payload import SEGMENT_OCTETS, HeldParity, IncomingPayload
from reliable_channel.core.reassembly import Reassembler, Usage, set_digest
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
        assert reassembler.octets == before + 4 * (64 + SEGMENT_OCTETS)


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
    bound = 64 * KIB + 2 * SEGMENT_OCTETS
    reassembler = Reassembler(SegmentationConfig(max_incomplete_bytes=bound))
    big = [cut(b"x" * 96 * KIB, chunk=32 * KIB, wrap_time_ns=number) for number in (1, 2)]
    assert isinstance(offer(reassembler, big[0][0], "a"), IncomingPayload)
    assert isinstance(offer(reassembler, big[0][1], "b"), IncomingPayload)
    assert reassembler.octets == bound  # the bound itself is allowed
    assert offer(reassembler, big[1][0], "c") == "incomplete_bytes_full"
    assert offer(reassembler, big[0][2], "a") == "incomplete_bytes_full"


def test_bytes_are_limited_per_sender_so_that_others_still_get_in() -> None:
    bound = 64 * KIB + 2 * SEGMENT_OCTETS
    reassembler = Reassembler(SegmentationConfig(max_incomplete_bytes_per_sender=bound))
    big = cut(b"x" * 96 * KIB, chunk=32 * KIB)
    assert isinstance(offer(reassembler, big[0]), IncomingPayload)
    assert isinstance(offer(reassembler, big[1]), IncomingPayload)
    assert offer(reassembler, big[2]) == "incomplete_bytes_of_sender_full"
    assert isinstance(offer(reassembler, big[2], BOB), IncomingPayload)


def test_what_a_set_took_is_given_back_when_it_goes() -> None:
    reassembler = Reassembler(SegmentationConfig())
    payloads = [offer(reassembler, cut(PAYLOAD, wrap_time_ns=number)[0]) for number in (1, 2)]
    offer(reassembler, cut(PAYLOAD, wrap_time_ns=1)[2])
    assert reassembler.octets == 64 + 22 + 64 + 3 * SEGMENT_OCTETS
    assert reassembler.segments == 3
    assert reassembler.senders == {ALICE: Usage(2, 3, reassembler.octets)}
    for payload in payloads:
        assert isinstance(payload, IncomingPayload)
        reassembler.remove(payload)
    assert reassembler.octets == 0
    assert not reassembler.sets
    assert reassembler.segments == 0
    assert not reassembler.senders


def test_segments_are_limited_in_all_and_per_sender() -> None:
    """Ids of incomplete payloads are not evicted: half of those that are known are left to the log."""
    reassembler = Reassembler(SegmentationConfig(max_total_segments=4), max_known_ids=16)
    assert (reassembler.max_segments, reassembler.max_segments_per_sender) == (8, 4)
    for sender in (ALICE, BOB):
        for number in range(4):
            segment = cut(PAYLOAD, wrap_time_ns=number + 1)[0]
            assert isinstance(offer(reassembler, segment, sender), IncomingPayload)
        if sender == ALICE:
            reason = "incomplete_segments_of_sender_full"
            assert offer(reassembler, cut(PAYLOAD)[0], sender) == reason
            assert offer(reassembler, cut(PAYLOAD, wrap_time_ns=1)[1], sender) == reason
    assert offer(reassembler, cut(PAYLOAD)[0], "carol") == "incomplete_segments_full"
    assert (
        offer(reassembler, cut(PAYLOAD, parity_count=1)[3], "carol") == "incomplete_segments_full"
    )


def test_there_is_always_room_for_the_segments_of_one_payload() -> None:
    reassembler = Reassembler(SegmentationConfig(), max_known_ids=64)
    assert (reassembler.max_segments, reassembler.max_segments_per_sender) == (256, 256)
    reassembler = Reassembler(SegmentationConfig())
    assert (reassembler.max_segments, reassembler.max_segments_per_sender) == (50_000, 25_000)


def test_a_segment_costs_more_than_its_payload() -> None:
    """Without it, tiny segments would take a hundred times the memory that is counted."""
    bound = 64 * KIB
    reassembler = Reassembler(SegmentationConfig(max_incomplete_bytes_per_sender=bound))
    taken = 0
    for number in range(256):
        segment = replace(cut(b"x" * 300)[0], data_segment_count=256, original_payload_length=0)
        segment = replace(segment, data_segment_index=number, payload=b"x")
        taken += isinstance(offer(reassembler, segment), IncomingPayload)
    assert taken == bound // (1 + SEGMENT_OCTETS)


def recounted(reassembler: Reassembler) -> tuple[int, int]:
    """Return how many segments are held and their bytes, histories left out."""
    chunks = [
        chunk
        for payload in reassembler.sets.values()
        for chunk in (
            *payload.data.values(),
            *payload.parity.values(),
            *(item.chunk for items in payload.rivals.values() for item in items),
            *(chunk for chunks in payload.parity_rivals.values() for chunk in chunks),
        )
    ]
    return len(chunks), sum(map(len, chunks)) + SEGMENT_OCTETS * len(chunks)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_counted_is_what_is_held(seed: int) -> None:
    rng = Random(seed)
    reassembler = Reassembler(SegmentationConfig())
    for step in range(200):
        payloads = list(reassembler.sets.values())
        choice = rng.random()
        if choice < 0.8 or not payloads:
            segment = rng.choice(cut(PAYLOAD, parity_count=2, wrap_time_ns=rng.randint(1, 3)))
            segment = replace(segment, payload=rng.randbytes(len(segment.payload)))
            payload = offer(reassembler, segment, rng.choice([ALICE, BOB]))
            if isinstance(payload, IncomingPayload) and not segment.is_parity:
                payload.enter(segment.data_segment_index, f"m{step}", step, ())
        elif choice < 0.9:
            payload = rng.choice(payloads)
            if payload.ids:
                reassembler.take_back(payload, rng.choice(list(payload.ids.values())))
        else:
            reassembler.remove(rng.choice(payloads))
        held = reassembler.sets.values()
        counted = (reassembler.segments, reassembler.octets)
        assert counted == recounted(reassembler)
        assert counted == (
            sum(item.segments for item in held),
            sum(item.octets for item in held),
        )
        assert reassembler.senders == {
            sender: Usage(
                len(own), sum(item.segments for item in own), sum(item.octets for item in own)
            )
            for sender in {item.sender_id for item in held}
            for own in [[item for item in held if item.sender_id == sender]]
        }


# --- Which set may lose its place ----------------------------------------------------------------


def test_the_smallest_of_those_without_progress_may_lose_its_place() -> None:
    reassembler = Reassembler(SegmentationConfig())
    made = {}
    for name, sender, count, progress in (
        ("small", ALICE, 1, 100),
        ("older", ALICE, 1, 90),
        ("larger", BOB, 2, 10),
        ("newer", BOB, 1, 101),
    ):
        for segment in cut(PAYLOAD, wrap_time_ns=progress)[:count]:
            payload = offer(reassembler, segment, sender)
            assert isinstance(payload, IncomingPayload)
            payload.progress_ns = progress
            made[name] = payload
    assert reassembler.stale(None, 100) is made["older"]
    assert reassembler.stale(None, 50) is made["larger"]
    assert reassembler.stale(None, 9) is None
    assert reassembler.stale(BOB, 100) is made["larger"]
    assert reassembler.stale("carol", 100) is None


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


def test_parity_belongs_to_the_set_with_content_or_waits_for_it() -> None:
    """Parity is ephemeral; what it helps is so or is not."""
    reassembler = Reassembler(SegmentationConfig())
    data = cut(PAYLOAD, parity_count=1)[0]
    key = reassembler.key_of(ALICE, data)
    assert not key.ephemeral
    assert reassembler.home(key) == reassembler.home(key.sibling) == key.sibling
    reassembler.add(key.sibling, data)
    assert reassembler.home(key) == reassembler.home(key.sibling) == key.sibling
    reassembler.add(key, data)
    assert reassembler.home(key) == reassembler.home(key.sibling) == key


def test_parity_that_was_given_away_is_not_counted_any_more() -> None:
    reassembler = Reassembler(SegmentationConfig())
    data, parity = cut(PAYLOAD, parity_count=1)[::3]
    rival = replace(parity, payload=b"!" * 64)
    for segment in (data, parity, rival):
        payload = offer(reassembler, segment)
        assert isinstance(payload, IncomingPayload)
        if segment.is_parity:
            payload.enter_parity(HeldParity(1, 0, segment.payload, (), 1))
    given = reassembler.give_parity(payload)
    assert [item.chunk for item in given] == [parity.payload, rival.payload]
    assert payload.parity == payload.parity_rivals == {}
    assert (payload.segments, payload.octets) == (1, 64 + SEGMENT_OCTETS)
    assert (reassembler.segments, reassembler.octets) == (1, 64 + SEGMENT_OCTETS)


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
