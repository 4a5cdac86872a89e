"""What parity is for: a payload that lost segments is whole at once, acknowledged, and nothing is sent again."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from benchmarks.parity_saving import Case, measure
from benchmarks.simulation import Transmission
from reliable_channel.config import SegmentationConfig
from reliable_channel.core.requests import RequestState
from tests.support.simulated import NO_STORE, SMALL_SEGMENTS, TIMEOUT_MS, decode, group

PARITY = replace(SMALL_SEGMENTS, enable_reed_solomon=True, parity_rate=0.5)
SEEDS = 8


def place_of(transmission: Transmission) -> int:
    """Return which segment of its request a transmission is, from 0; -1 for others."""
    number = transmission.segment_id.rpartition(":")[2]
    return int(number) - 1 if not transmission.segment_id.startswith("sync:") else -1


@pytest.mark.parametrize(
    ("code", "message_id"),
    [("reedsolo", "salted"), ("leopard", "salted"), ("leopard", "content")],
)
@pytest.mark.parametrize("lost", list(combinations(range(6), 2)), ids=str)
def test_what_parity_repaired_is_acknowledged_and_never_sent_again(
    lost: tuple[int, ...], code: str, message_id: str
) -> None:
    """WIRE: any k of the k+m segments rebuild the payload; the sender gets its acknowledgement."""
    segmentation = replace(PARITY, parity_code=code)
    simulation = group(
        store=NO_STORE,
        segmentation=segmentation,
        message_id=message_id,
        carries=lambda transmission, receiver: place_of(transmission) not in lost,
    )
    payload = Random(str(lost)).randbytes(4 * 64 - 7)
    request_id = simulation.send(0, payload)
    simulation.run(20)
    assert [step.payload for step in simulation.journals[1].delivered()] == [payload]
    simulation.run(10 * TIMEOUT_MS)
    assert simulation.machine(0).request_status(request_id).state is RequestState.DELIVERED
    assert simulation.counted("retransmissions") == 0
    assert simulation.counted("repairs_requested") == 0
    sent = [place_of(item) for item in simulation.wire or () if item.sender == 0]
    assert sorted(sent) == [0, 1, 2, 3, 4, 5]


def test_what_follows_does_not_wait_for_what_was_repaired() -> None:
    """WIRE: dependencies on rebuilt segments are met."""
    simulation = group(
        store=NO_STORE,
        segmentation=PARITY,
        carries=lambda transmission, receiver: place_of(transmission) not in (2, 3),
    )
    first, second = bytes(range(256)), b"it follows"
    request_id = simulation.send(0, first)
    simulation.run(20)
    lost = simulation.machine(0).request_status(request_id).segments[2:]
    simulation.send(0, second)
    named = decode((simulation.wire or [])[-1]).causal_history
    assert {segment.message_id for segment in lost} <= {entry.message_id for entry in named}
    simulation.run(20)
    assert [step.payload for step in simulation.journals[1].delivered()] == [first, second]


@pytest.mark.parametrize("participants", [2, 3])
def test_parity_saves_four_fifths_of_the_retransmissions(participants: int) -> None:
    """10 % loss, a quarter of parity, 40 segments: `python -m benchmarks saving` plays 200 seeds of it."""
    case = Case(participants, 0.1, 0.25)
    without = sum(measure(replace(case, rate=0.0), seed).retransmissions for seed in range(SEEDS))
    with_parity = sum(measure(case, seed).retransmissions for seed in range(SEEDS))
    assert without > 100
    assert with_parity <= 0.2 * without


def test_where_a_store_gives_what_is_missing_parity_makes_nothing_worse() -> None:
    case = Case(3, 0.1, 0.25, store=True)
    runs = [measure(case, seed) for seed in range(SEEDS)]
    assert sum(run.undelivered for run in runs) == 0
    assert sum(run.retransmissions for run in runs) <= SEEDS


def test_a_payload_that_lost_more_than_its_parity_needs_only_the_difference() -> None:
    """docs/adr/0014: every segment that comes again fills one gap."""
    lost_once = set(range(7))

    def carries(transmission: Transmission, receiver: int) -> bool:
        place = place_of(transmission)
        if transmission.sender == 0 and place in lost_once:
            lost_once.discard(place)
            return False
        return True

    simulation = group(
        store=NO_STORE,
        segmentation=SegmentationConfig(
            segment_size_bytes=64, enable_reed_solomon=True, parity_rate=0.25
        ),
        carries=carries,
    )
    payload = Random(1).randbytes(20 * 64)
    request_id = simulation.send(0, payload)
    simulation.settle()
    assert simulation.machine(0).request_status(request_id).state is RequestState.DELIVERED
    assert [step.payload for step in simulation.journals[1].delivered()] == [payload]
    assert simulation.counted("retransmissions") == 2
