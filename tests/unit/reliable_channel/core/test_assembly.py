"""What the segments of a complete set make, also where several claim one place."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Any

import pytest

from reliable_channel.config import SegmentationConfig
from reliable_channel.core.assembly import MAX_ASSEMBLIES, MAX_WORK, assemble, work_of
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.reassembly import Reassembler
from reliable_channel.core.wire import SdsMessage, SegmentMessage
from tests.support.builders import (
    CHUNK,
    NOW_MS,
    collect_set,
    content_message,
    cut,
    entries,
    ephemeral_message,
    messages_of,
    offer,
    settled,
)

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


def test_more_zeros_than_are_tried_wait_for_the_real_last_segment() -> None:
    """docs/wire.md: 1,024 lengths are tried where the sender gave none, and the whole chunk."""
    payload = b"x" * 8192 + b"y" + bytes(1100)
    segments = cut(payload, chunk=4096, parity_count=1, with_length=False)
    assert len(segments[2].payload) == 1101
    payload_set = collect_set([*segments[:2], segments[3]])
    assert assemble(payload_set) is None
    payload_set.data[2] = segments[2].payload
    assert assemble(payload_set, segments[2]) == payload


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


# --- Segments of other sizes ---------------------------------------------------------------------


@pytest.mark.parametrize("with_length", [True, False])
@pytest.mark.parametrize("lost", [(), (0,), (1,), (2,)], ids=str)
def test_segments_of_another_size_are_left_out(lost: tuple[int, ...], *, with_length: bool) -> None:
    """All data but the last, and all parity, of a payload have one size."""
    segments = cut(PAYLOAD, parity_count=1, with_length=with_length)
    odd = [
        replace(segment, payload=b"!" * size)
        for segment in (segments[0], segments[1], segments[3])
        for size in ((60, 70) if with_length else (1, 5000))
    ]
    odd.append(replace(segments[2], payload=b"!" * 20))
    honest = [
        item for item in segments[: 4 if lost else 3] if item not in [segments[i] for i in lost]
    ]
    payload = collect_set([*odd, *honest])
    assert assemble(payload) == PAYLOAD
    assert payload.data == {index: segments[index].payload for index in range(3)}


def test_segments_of_different_sizes_are_never_put_together() -> None:
    """A byte of data beside parity of 150 KiB costs its sender nothing, and us a hash of the whole."""
    data, _, parity = cut(bytes(128), parity_count=1, with_length=False)
    small = replace(data, payload=b"!")
    payload = collect_set([small, replace(parity, payload=bytes(150 * KIB))])
    assert assemble(payload) is None
    assert payload.failures == 0


def test_a_last_segment_belongs_to_any_size_that_is_no_smaller() -> None:
    segments = cut(PAYLOAD, with_length=False)
    forged = [replace(item, payload=b"!" * 200) for item in segments[:2]]
    small = [replace(item, payload=b"!" * 10) for item in segments[:2]]
    payload = collect_set([*forged, *small, segments[2], *segments[:2]])
    assert assemble(payload, segments[1]) == PAYLOAD
    assert payload.failures == 0
    payload = collect_set([*forged, *small, *segments])
    assert assemble(payload, segments[2]) == PAYLOAD
    assert payload.failures <= 2


def test_a_last_segment_is_no_longer_than_a_chunk() -> None:
    segments = cut(PAYLOAD, with_length=False)
    payload = collect_set([*segments[:2], replace(segments[2], payload=b"!" * 65)])
    assert assemble(payload) is None
    assert payload.failures == 0


@pytest.mark.parametrize("sizes", [(64, 63, 23), (63, 64, 23), (50, 50, 50), (40, 40, 70)])
def test_only_segments_of_one_size_make_the_payload_though_nothing_is_missing(
    sizes: tuple[int, int, int],
) -> None:
    """All but the last are one chunk; the parity of such a payload is made of them."""
    ends = [sum(sizes[: index + 1]) for index in range(3)]
    chunks = [PAYLOAD[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    segments = cut(PAYLOAD, with_length=False)
    payload = collect_set(
        [replace(item, payload=chunk) for item, chunk in zip(segments, chunks, strict=True)]
    )
    is_even = sizes[0] == sizes[1] >= sizes[2]
    assert assemble(payload) == (PAYLOAD if is_even else None)
    assert payload.failures == 0


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
    for _ in range(3):
        assert assemble(payload) is None
        assert payload.failures == 1


@pytest.mark.parametrize("place", range(10))
def test_the_more_parity_there_is_the_sooner_a_forged_one_is_left_out(place: int) -> None:
    """Windows of five among ten: two of them have no segment in common."""
    segments = cut(PAYLOAD * 8, parity_count=10)
    count = len(segments) - 10
    segments[count + place] = replace(segments[count + place], payload=b"!" * 64)
    payload = collect_set(segments[5:])
    assert assemble(payload) == PAYLOAD * 8
    assert payload.failures <= 2


def test_each_call_goes_on_where_the_last_one_ended() -> None:
    """Nothing is named here, so that all 64 patterns of four candidates each have to be gone through."""
    segments = cut(PAYLOAD)
    false = [
        replace(segment, payload=bytes([number]) * len(segment.payload))
        for segment in segments
        for number in range(3)
    ]
    payload = collect_set([*false, *segments])
    assert assemble(payload) is None
    assert payload.failures == MAX_ASSEMBLIES
    assert assemble(payload) == PAYLOAD
    assert payload.failures == 63


# --- What finds the honest payload, and what does not --------------------------------------------


def honest_messages(payload: bytes, parity_count: int, code: str, links: int) -> list[SdsMessage]:
    """Return messages whose data segments name so many segments before them."""
    messages = messages_of(payload, parity_count=parity_count, code=code, lamport=NOW_MS + 30_000)
    count = len(messages) - parity_count
    for index in range(count):
        before = messages[max(0, index - links) : index]
        messages[index] = replace(
            messages[index], causal_history=entries(*(item.message_id for item in before))
        )
    return messages


def further_needed(
    forged: list[SdsMessage], honest: list[SdsMessage], count: int, lost: int, rng: Random
) -> int:
    """Return how many more segments it takes once those that are enough without forged ones have come.

    Args:
        forged: Come first, in any order.
        honest: Data, then parity; some of the data is lost at first and just as much parity comes.
        count: Data segments.
        lost: Data segments that are lost at first.
        rng: Decides the order.
    """
    receiver = settled()
    rng.shuffle(forged)
    data, parity = honest[:count], honest[count:]
    rng.shuffle(data)
    rng.shuffle(parity)
    first, late = data[lost:] + parity[:lost], data[:lost]
    rng.shuffle(first)
    receiver.receive(*forged, *first)
    further = 0
    while not receiver.received:
        receiver.receive(late[further])
        further += 1
    assert len(receiver.received) == 1
    assert (
        keccak256(receiver.received[0])
        == SegmentMessage.decode(honest[0].content or b"").entire_message_hash
    )
    assert receiver.status().incomplete_payloads == 0
    return further


@pytest.mark.parametrize(
    ("count", "parity_count", "code", "lost", "most"),
    [
        (3, 2, "reedsolo", 1, 0),
        (20, 10, "reedsolo", 1, 0),
        (20, 10, "leopard", 5, 0),
        (20, 10, "reedsolo", 9, 0),
        (40, 20, "reedsolo", 4, 0),
        (40, 20, "leopard", 9, 0),
        (40, 20, "reedsolo", 19, 0),
        (100, 25, "reedsolo", 10, 0),
        (100, 25, "leopard", 10, 0),
        (200, 50, "leopard", 15, 0),
        # Where more windows have to be tried than one segment may cause, further ones go on.
        (100, 25, "reedsolo", 24, 0),
        (200, 50, "reedsolo", 25, 2),
        (200, 50, "reedsolo", 49, 2),
        (128, 127, "leopard", 126, 8),
    ],
)
def test_a_forged_parity_segment_is_left_out(
    count: int, parity_count: int, code: str, lost: int, most: int
) -> None:
    """Its true one is lost, and of the others there are just enough."""
    for seed in range(3):
        rng = Random(f"{count} {parity_count} {lost} {seed}")
        payload = rng.randbytes(CHUNK * count - rng.randrange(CHUNK))
        honest = honest_messages(payload, parity_count, code, 2)
        place = rng.randrange(parity_count)
        segment = cut(payload, parity_count=parity_count, code=code)[count + place]
        forged = [ephemeral_message(replace(segment, payload=rng.randbytes(CHUNK)))]
        del honest[count + place]
        assert further_needed(forged, honest, count, lost, rng) <= most


@pytest.mark.parametrize("links", [1, 2])
@pytest.mark.parametrize(
    ("count", "parity_count", "lost", "share", "most"),
    [
        # Nothing is lost: chains that are named from the end on are found at once.
        (10, 0, 0, 1.0, 0),
        (40, 0, 0, 1.0, 0),
        (40, 20, 0, 1.0, 0),
        # Few are forged.
        (10, 5, 2, 0.2, 0),
        (20, 10, 2, 0.2, 0),
        # Many are forged and many are lost, so that chains have many ends: parity may be of no use.
        (20, 10, 5, 0.5, 5),
        (20, 10, 9, 1.0, 9),
    ],
)
def test_forged_data_segments_are_left_out(
    count: int, parity_count: int, lost: int, share: float, most: int, links: int
) -> None:
    """Up to three for each of some indices, but not of all, that name true and forged segments as they like."""
    for seed in range(6):
        rng = Random(f"{count} {parity_count} {lost} {share} {links} {seed}")
        payload = rng.randbytes(CHUNK * count - rng.randrange(CHUNK))
        honest = honest_messages(payload, parity_count, "reedsolo", links)
        segments = cut(payload, parity_count=parity_count)
        forged: list[SdsMessage] = []
        last = ""
        for index in sorted(rng.sample(range(count), min(count - 1, int(count * share)))):
            for _ in range(rng.randint(1, 3)):
                named = [last, honest[index - 1].message_id if index else ""]
                false = replace(
                    segments[index], payload=rng.randbytes(len(segments[index].payload))
                )
                forged.append(
                    content_message(
                        false,
                        lamport=NOW_MS + 30_000 + index,
                        history=entries(*filter(None, rng.sample(named, rng.randint(0, 2)))),
                    )
                )
            last = forged[-1].message_id
        assert further_needed(forged, honest, count, lost, rng) <= most


@pytest.mark.parametrize(
    ("count", "missing", "size", "times"),
    [
        (2, 0, 64, MAX_ASSEMBLIES),
        (100, 10, 64, MAX_ASSEMBLIES),
        (200, 56, 64, 7),
        (129, 127, 64, 4),
        (226, 0, 102_400, 3),
        (226, 29, 102_400, 1),
    ],
)
def test_the_larger_the_payload_the_fewer_times_it_is_put_together(
    count: int, missing: int, size: int, times: int
) -> None:
    assert max(1, MAX_WORK // work_of(count, missing, size)) == times


def test_one_segment_causes_a_bounded_amount_of_work() -> None:
    """Sixteen chains of 24 MiB: three of them are hashed, and the next segment goes on."""
    size = 128 * KIB
    segments = [
        replace(cut(b"x" * 192)[0], data_segment_index=index, data_segment_count=192)
        for index in range(192)
    ]
    chunk = bytes(size)
    held = [replace(item, payload=chunk, original_payload_length=192 * size) for item in segments]
    rivals = [
        replace(held[index], payload=bytes([number]) * size)
        for index in (190, 191)
        for number in (1, 2, 3)
    ]
    payload = collect_set([*held, *rivals])
    for turn in (1, 2, 3, 4, 5):
        assert assemble(payload) is None
        assert payload.failures == 3 * turn
    assert assemble(payload) is None
    assert payload.failures == 16
