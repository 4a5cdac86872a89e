"""Sets of segments: which belong together, what is refused, what they make, what is remembered."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.reassembly import IncomingPayload, Reassembler, assemble, set_digest
from reliable_channel.core.wire import SegmentMessage
from tests.support.builders import ALICE, BOB, cut

PAYLOAD = bytes(range(150))
KIB = 1024


def collect(segments: list[SegmentMessage], *, sender_id: str = ALICE) -> IncomingPayload:
    """Return the set that segments make in a reassembler of their own."""
    reassembler = Reassembler(SegmentationConfig())
    payload = None
    for segment in segments:
        key = reassembler.key_of(sender_id, segment)
        assert reassembler.refusal(key, segment) is None
        payload = reassembler.add(key, segment, ephemeral=False)
    assert payload is not None
    assert reassembler.is_complete(payload)
    return payload


def add(
    reassembler: Reassembler, segment: SegmentMessage, sender_id: str = ALICE
) -> str | IncomingPayload:
    """Offer a segment; return the reason of its refusal or its set."""
    key = reassembler.key_of(sender_id, segment)
    return reassembler.refusal(key, segment) or reassembler.add(key, segment, ephemeral=False)


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
    assert add(reassembler, first) is not add(reassembler, other)
    assert len(reassembler.sets) == 2


def test_segments_of_two_senders_are_of_different_sets() -> None:
    reassembler = Reassembler(SegmentationConfig())
    first = cut(PAYLOAD)[0]
    assert add(reassembler, first, ALICE) is not add(reassembler, first, BOB)


def test_segments_of_a_payload_are_of_one_set() -> None:
    reassembler = Reassembler(SegmentationConfig())
    sets = {id(add(reassembler, segment)) for segment in cut(PAYLOAD, parity_count=2)}
    assert len(sets) == 1


def test_a_bad_segment_in_a_set_of_its_own_poisons_nothing() -> None:
    segments = cut(PAYLOAD)
    reassembler = Reassembler(SegmentationConfig())
    liar = replace(segments[0], payload=b"!" * 64, original_payload_length=140)
    for segment in (liar, *segments):
        payload = add(reassembler, segment)
    assert isinstance(payload, IncomingPayload)
    assert reassembler.is_complete(payload)
    assert assemble(payload) == PAYLOAD


def test_forged_parity_is_left_out_where_other_parity_does() -> None:
    segments = cut(PAYLOAD, parity_count=3)
    bad = [replace(item, payload=b"!" * 64) for item in segments[3:5]]
    payload = collect([segments[0], *bad, bad[0]][:3])
    assert assemble(payload) is None
    assert (payload.data, payload.failures) == ({0: segments[0].payload}, 1)
    for segment in (segments[3], segments[5]):
        payload.parity_rivals.setdefault(0, []).append(segment.payload)
        if segment is segments[5]:
            payload.parity_rivals[0].pop()
            payload.parity[2] = segment.payload
    assert assemble(payload, segments[5]) == PAYLOAD


def test_what_was_tried_before_is_not_tried_again() -> None:
    segments = cut(PAYLOAD)
    payload = collect([replace(segments[0], payload=b"!" * 64), *segments[1:]])
    assert assemble(payload) is None
    parity = replace(segments[0], is_parity=True, parity_segment_index=0)
    assert assemble(payload, parity) is None
    assert payload.failures == 1


# --- What is refused -----------------------------------------------------------------------------


def test_four_different_segments_are_held_for_one_index() -> None:
    reassembler = Reassembler(SegmentationConfig())
    for segment in cut(PAYLOAD, parity_count=1)[::3]:
        before = reassembler.octets
        for mark in (b"1", b"2", b"3", b"4"):
            assert isinstance(
                add(reassembler, replace(segment, payload=mark * 64)), IncomingPayload
            )
        assert add(reassembler, replace(segment, payload=b"5" * 64)) == "conflicting_segment"
        assert reassembler.octets == before + 4 * 64


def test_the_same_parity_is_held_once() -> None:
    reassembler = Reassembler(SegmentationConfig())
    parity = cut(PAYLOAD, parity_count=1)[3]
    for segment in (parity, replace(parity, payload=b"!" * 64)):
        assert isinstance(add(reassembler, segment), IncomingPayload)
        assert add(reassembler, segment) == "duplicate_parity"


def test_sets_are_limited_in_all() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_payloads=3))
    senders = ["a", "b", "c", "d"]
    results = [add(reassembler, cut(PAYLOAD)[0], sender) for sender in senders]
    assert all(isinstance(result, IncomingPayload) for result in results[:3])
    assert results[3] == "incomplete_payloads_full"
    assert isinstance(add(reassembler, cut(PAYLOAD)[1], "a"), IncomingPayload)


def test_sets_are_limited_per_sender_so_that_others_still_get_in() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_payloads_per_sender=2))
    results = [add(reassembler, cut(PAYLOAD, wrap_time_ns=number)[0]) for number in (1, 2, 3)]
    assert results[2] == "incomplete_payloads_of_sender_full"
    assert isinstance(add(reassembler, cut(PAYLOAD)[0], BOB), IncomingPayload)
    assert isinstance(add(reassembler, cut(PAYLOAD, wrap_time_ns=1)[1]), IncomingPayload)


def test_bytes_are_limited_in_all() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_bytes=64 * KIB))
    big = [cut(b"x" * 96 * KIB, chunk=32 * KIB, wrap_time_ns=number) for number in (1, 2)]
    assert isinstance(add(reassembler, big[0][0], "a"), IncomingPayload)
    assert isinstance(add(reassembler, big[0][1], "b"), IncomingPayload)
    assert reassembler.octets == 64 * KIB  # the bound itself is allowed
    assert add(reassembler, big[1][0], "c") == "incomplete_bytes_full"
    assert add(reassembler, big[0][2], "a") == "incomplete_bytes_full"


def test_bytes_are_limited_per_sender_so_that_others_still_get_in() -> None:
    reassembler = Reassembler(SegmentationConfig(max_incomplete_bytes_per_sender=64 * KIB))
    big = cut(b"x" * 96 * KIB, chunk=32 * KIB)
    assert isinstance(add(reassembler, big[0]), IncomingPayload)
    assert isinstance(add(reassembler, big[1]), IncomingPayload)
    assert add(reassembler, big[2]) == "incomplete_bytes_of_sender_full"
    assert isinstance(add(reassembler, big[2], BOB), IncomingPayload)


def test_what_a_set_took_is_given_back_when_it_goes() -> None:
    reassembler = Reassembler(SegmentationConfig())
    payloads = [add(reassembler, cut(PAYLOAD, wrap_time_ns=number)[0]) for number in (1, 2)]
    add(reassembler, cut(PAYLOAD, wrap_time_ns=1)[2])
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
        payload = add(reassembler, segment)
        assert isinstance(payload, IncomingPayload)
        assert not reassembler.is_complete(payload)
    payload = add(reassembler, segments[2])
    assert isinstance(payload, IncomingPayload)
    assert reassembler.is_complete(payload)


def test_a_set_that_begins_ephemeral_ends_with_the_first_segment_in_causal_order() -> None:
    """Parity is ephemeral; what it helps is not."""
    reassembler = Reassembler(SegmentationConfig())
    data, parity = cut(PAYLOAD, parity_count=1)[::3]
    key = reassembler.key_of(ALICE, parity)
    assert reassembler.add(key, parity, ephemeral=True).ephemeral
    assert not reassembler.add(key, data, ephemeral=False).ephemeral


def test_a_payload_is_named_and_placed_by_its_first_known_segment() -> None:
    payload = collect(cut(PAYLOAD))
    payload.ids.update({2: "c", 1: "b"})
    payload.lamports.update({2: 12, 1: 11})
    assert payload.message_id == "b"
    assert payload.position == (11, "b")
    assert payload.sender_id == ALICE
    assert payload.data_count == 3


# --- What a complete set makes -------------------------------------------------------------------


@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
@pytest.mark.parametrize("size", [129, 150, 191, 192])
@pytest.mark.parametrize("with_length", [True, False])
def test_any_k_of_k_and_m_segments_make_the_payload(
    code: str, size: int, *, with_length: bool
) -> None:
    payload = bytes((index * 37 + 11) % 256 or 1 for index in range(size))
    segments = cut(payload, parity_count=2, code=code, with_length=with_length)
    for chosen in combinations(segments, 3):
        assert assemble(collect(list(chosen))) == payload


@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
def test_rebuilt_segments_are_the_bytes_that_the_sender_cut(code: str) -> None:
    segments = cut(PAYLOAD, parity_count=2, code=code)
    payload = collect([segments[1], *segments[3:]])
    assert assemble(payload) == PAYLOAD
    assert payload.data == {index: segments[index].payload for index in range(3)}


def test_a_set_without_losses_needs_no_parity_and_no_code() -> None:
    segments = [replace(item, parity_code=7) for item in cut(PAYLOAD, parity_count=1)]
    assert assemble(collect(segments[:3])) == PAYLOAD


@pytest.mark.parametrize(
    "zeros",
    [
        pytest.param(0, id="none"),
        pytest.param(1, id="one"),
        pytest.param(255, id="255"),
        pytest.param(256, id="256"),
        pytest.param(257, id="257"),
        pytest.param(1000, id="1000"),
        pytest.param(1024, id="the whole last chunk"),
    ],
)
def test_zeros_at_the_end_survive_where_the_sender_gave_no_length(zeros: int) -> None:
    """WIRE: where a sender gave none, cut trailing zero bytes until the hash matches."""
    payload = b"x" * 2048 + b"y" * (1024 - zeros) + bytes(zeros)
    segments = cut(payload, chunk=1024, parity_count=1, with_length=False)
    is_whole = assemble(collect([*segments[:2], segments[3]])) == payload
    assert is_whole


def test_a_short_last_segment_is_found_where_the_sender_gave_no_length() -> None:
    payload = b"x" * 2048 + b"y\0\0"
    segments = cut(payload, chunk=1024, parity_count=1, with_length=False)
    assert assemble(collect([*segments[:2], segments[3]])) == payload


def test_a_last_segment_of_nothing_but_zeros_is_found_without_length() -> None:
    payload = b"x" * 128 + bytes(5)
    segments = cut(payload, parity_count=1, with_length=False)
    assert assemble(collect([*segments[:2], segments[3]])) == payload


@pytest.mark.parametrize("kept", [(0, 1, 2), (0, 1, 3), (1, 2, 3)])
@pytest.mark.parametrize("with_length", [True, False])
def test_a_hash_that_does_not_match_is_always_noticed(
    kept: tuple[int, ...], *, with_length: bool
) -> None:
    """WIRE: the hash is always checked."""
    segments = cut(PAYLOAD, parity_count=1, with_length=with_length)
    chosen = [segments[index] for index in kept]
    chosen[0] = replace(chosen[0], payload=b"!" * 64)
    assert assemble(collect(chosen)) is None


def test_a_wrong_hash_is_noticed() -> None:
    segments = [replace(item, entire_message_hash=keccak256(b"")) for item in cut(PAYLOAD)]
    assert assemble(collect(segments)) is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"parity_code": 2}, id="unknown code"),
        pytest.param({"parity_code": (1 << 32) - 1}, id="absurd code"),
        pytest.param({"parity_code": 0}, id="another code"),
        pytest.param({"parity_segment_count": 4, "parity_code": 0}, id="more parity than data"),
        pytest.param({"original_payload_length": 129}, id="another length"),
    ],
)
def test_what_no_code_can_rebuild_makes_nothing(changes: dict[str, Any]) -> None:
    """Whatever a sender lies about, it is no more than a payload that does not come out."""
    segments = [replace(item, **changes) for item in cut(PAYLOAD, parity_count=2)]
    assert assemble(collect([segments[1], segments[3], segments[4]])) is None


def test_parity_of_another_size_makes_nothing() -> None:
    segments = cut(PAYLOAD, parity_count=1, with_length=False)
    for size in (1, 63, 65, 128):
        odd = replace(segments[3], payload=bytes(size))
        assert assemble(collect([*segments[:2], odd])) is None


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
