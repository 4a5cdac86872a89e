"""A receiver that crashes amid the segments of a message goes on with what it held, parity included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.simulation import (
    NodeFaults,
    Restart,
    Scenario,
    Simulation,
    StoreFaults,
    Transmission,
    play,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.events import MessageDeliveredEvent
from reliable_channel.records import ParityRecord, PendingRecord
from tests.support.simulated import (
    NO_STORE,
    SMALL_SEGMENTS,
    TIMEOUT_MS,
    events_of,
    group,
    received,
    wire_of,
)

HALF_PARITY = replace(SMALL_SEGMENTS, enable_reed_solomon=True, parity_rate=0.5)

SEGMENT_MS = 40
"""Distance of the six segments of the message below: four of data, two of parity."""


def lossy_message(*, crash: bool, forget: bool = False) -> Simulation:
    """Return the end of a message of which the receiver never got the second and the third segment at first.

    Args:
        crash: The receiver crashes before the last parity segment comes, and is up again in time.
        forget: Its rows of parity are gone then.
    """

    def carries(transmission: Transmission, receiver: int) -> bool:
        first_round = len(wire_of(simulation, transmission.segment_id)) == 1
        return not (first_round and transmission.segment_id.endswith((":2", ":3")))

    simulation = group(
        store=NO_STORE,
        segmentation=HALF_PARITY,
        node=NodeFaults(transmit_ms=SEGMENT_MS),
        carries=carries,
    )
    simulation.send(0, bytes(250))
    simulation.run(5.5 * SEGMENT_MS)
    rows = simulation.participants[1].rows
    assert [len(rows[kind]) for kind in (PendingRecord, ParityRecord)] == [2, 1]
    if crash:
        simulation.crash(1)
        if forget:
            rows[ParityRecord].clear()
        simulation.start(1)
    simulation.run(SEGMENT_MS)
    return simulation


@pytest.mark.parametrize("crash", [False, True])
def test_a_restarted_receiver_that_holds_enough_asks_for_nothing_again(*, crash: bool) -> None:
    simulation = lossy_message(crash=crash)
    assert received(simulation, 1) == [bytes(250)]
    assert simulation.settle(3 * TIMEOUT_MS)
    segments = [item.segment_id for item in simulation.wire or () if item.sender == 0]
    assert len(segments) == len(set(segments)) == 6
    assert len(events_of(simulation, 0, MessageDeliveredEvent)) == 1
    simulation.check()


def test_without_the_rows_of_its_parity_it_would_have_to_wait() -> None:
    """What the test above compares with: it fails when parity is not kept."""
    simulation = lossy_message(crash=True, forget=True)
    assert received(simulation, 1) == []
    assert simulation.settle(5 * TIMEOUT_MS)
    assert received(simulation, 1) == [bytes(250)]
    assert len([item for item in simulation.wire or () if item.sender == 0]) > 6


@pytest.mark.parametrize("seed", range(5))
def test_many_restarts_amid_lossy_segments_keep_the_promise_and_leave_no_rows(seed: int) -> None:
    scenario = Scenario(
        seed=seed,
        messages=60,
        interval_ms=150,
        payload_bytes=(300, 1_200),
        segmentation=HALF_PARITY,
        faults=LinkFaults(loss=0.2, delay_ms=30, jitter_ms=60),
        node=NodeFaults(transmit_ms=5),
        store=StoreFaults(catch_up=False),
        restarts=tuple(
            Restart(participant=index % 3, at_ms=1_000 + 300 * index, down_ms=20)
            for index in range(24)
        ),
    )
    simulation = play(scenario).check()
    assert simulation.counted("parity_recoveries") > 10
