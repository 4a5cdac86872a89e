"""What the segments of a complete set make, also where several claim one place."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.assembly import assemble
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.reassembly import Reassembler
from tests.support.builders import collect_set, cut, offer

PAYLOAD = bytes(range(150))
KIB = 1024


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
        assert assemble(collect_set(list(chosen))) == payload


@pytest.mark.parametrize("code", ["reedsolo", "leopard"])
def test_rebuilt_segments_are_the_bytes_that_the_sender_cut(code: str) -> None:
    segments = cut(PAYLOAD, parity_count=2, code=code)
    payload = collect_set([segments[1], *segments[3:]])
    assert assemble(payload) == PAYLOAD
    assert payload.data == {index: segments[index].payload for index in range(3)}


def test_a_set_without_losses_needs_no_parity_and_no_code() -> None:
    segments = [replace(item, parity_code=7) for item in cut(PAYLOAD, parity_count=1)]
    assert assemble(collect_set(segments[:3])) == PAYLOAD


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
    is_whole = assemble(collect_set([*segments[:2], segments[3]])) == payload
    assert is_whole


def test_a_short_last_segment_is_found_where_the_sender_gave_no_length() -> None:
    payload = b"x" * 2048 + b"y\0\0"
    segments = cut(payload, chunk=1024, parity_count=1, with_length=False)
    assert assemble(collect_set([*segments[:2], segments[3]])) == payload


def test_a_last_segment_of_nothing_but_zeros_is_found_without_length() -> None:
    payload = b"x" * 128 + bytes(5)
    segments = cut(payload, parity_count=1, with_length=False)
    assert assemble(collect_set([*segments[:2], segments[3]])) == payload


@pytest.mark.parametrize("kept", [(0, 1, 2), (0, 1, 3), (1, 2, 3)])
@pytest.mark.parametrize("with_length", [True, False])
def test_a_hash_that_does_not_match_is_always_noticed(
    kept: tuple[int, ...], *, with_length: bool
) -> None:
    """WIRE: the hash is always checked."""
    segments = cut(PAYLOAD, parity_count=1, with_length=with_length)
    chosen = [segments[index] for index in kept]
    chosen[0] = replace(chosen[0], payload=b"!" * 64)
    assert assemble(collect_set(chosen)) is None


def test_a_wrong_hash_is_noticed() -> None:
    segments = [replace(item, entire_message_hash=keccak256(b"")) for item in cut(PAYLOAD)]
    assert assemble(collect_set(segments)) is None


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
    assert assemble(collect_set([segments[1], segments[3], segments[4]])) is None


def test_parity_of_another_size_makes_nothing() -> None:
    segments = cut(PAYLOAD, parity_count=1, with_length=False)
    for size in (1, 63, 65, 128):
        odd = replace(segments[3], payload=bytes(size))
        assert assemble(collect_set([*segments[:2], odd])) is None


# --- Forged segments -----------------------------------------------------------------------------


def test_a_bad_segment_in_a_set_of_its_own_poisons_nothing() -> None:
    segments = cut(PAYLOAD)
    reassembler = Reassembler(SegmentationConfig())
    liar = replace(segments[0], payload=b"!" * 64, original_payload_length=140)
    for segment in (liar, *segments):
        payload = offer(reassembler, segment)
    assert isinstance(payload, IncomingPayload)
    assert reassembler.is_complete(payload)
    assert assemble(payload) == PAYLOAD


def test_forged_parity_is_left_out_where_other_parity_does() -> None:
    segments = cut(PAYLOAD, parity_count=3)
    bad = [replace(item, payload=b"!" * 64) for item in segments[3:5]]
    payload = collect_set([segments[0], *bad, bad[0]][:3])
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
    payload = collect_set([replace(segments[0], payload=b"!" * 64), *segments[1:]])
    assert assemble(payload) is None
    parity = replace(segments[0], is_parity=True, parity_segment_index=0)
    assert assemble(payload, parity) is None
    assert payload.failures == 1
