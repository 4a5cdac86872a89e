"""Simulated groups for tests, what their participants were given, and what they transmitted.

In `group`, 5 ms lie between any two participants, times are a tenth of the defaults, and nothing fails but what a test
makes fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from benchmarks.simulation import (
    SCALED_SDS,
    START_NS,
    NodeFaults,
    Scenario,
    Simulation,
    StoreFaults,
    Transmission,
)
from messaging_adapter.faults import LinkFaults
from reliable_channel.config import RateLimitConfig, SegmentationConfig
from reliable_channel.core.wire import SdsKind, SdsMessage
from reliable_channel.events import ChannelEvent, MessageReceivedEvent
from reliable_channel.types import MS, Nanoseconds, RequestId

TIMEOUT_MS = SCALED_SDS.acknowledgement_timeout_ms
REPORT_MS = 10.0
"""The node's report of a transmission, after it."""

SMALL_SEGMENTS = SegmentationConfig(segment_size_bytes=64)
NO_STORE = StoreFaults(enabled=False)

E = TypeVar("E", bound=ChannelEvent)
Carries = Callable[[Transmission, int], bool]


def group(
    participants: int = 2,
    *,
    carries: Carries | None = None,
    node: NodeFaults | None = None,
    store: StoreFaults | None = None,
    segmentation: SegmentationConfig | None = None,
    rate_limit: RateLimitConfig | None = None,
    seed: int = 0,
    **sds: object,
) -> Simulation:
    """Return a group that is up."""
    scenario = Scenario(
        seed=seed,
        participants=participants,
        faults=LinkFaults(delay_ms=5),
        node=node or NodeFaults(report_ms=REPORT_MS),
        store=store or StoreFaults(),
        segmentation=segmentation or SegmentationConfig(),
        rate_limit=rate_limit or RateLimitConfig(),
        sds=replace(SCALED_SDS, **sds),  # type: ignore[arg-type]
    )
    simulation = Simulation(scenario, wire=[], carries=carries)
    simulation.start()
    return simulation


def decode(transmission: Transmission) -> SdsMessage:
    """Return the SDS message in a transmission."""
    return SdsMessage.decode(transmission.data)


def kind_of(transmission: Transmission) -> SdsKind | None:
    """Return the kind of the SDS message in a transmission."""
    return decode(transmission).kind


def wire_of(simulation: Simulation, segment_id: RequestId) -> list[Transmission]:
    """Return the transmissions of one segment."""
    return [item for item in simulation.wire or () if item.segment_id == segment_id]


def syncs_of(simulation: Simulation, sender: int) -> list[Transmission]:
    """Return the sync messages that a participant transmitted."""
    return [
        item
        for item in simulation.wire or ()
        if item.sender == sender and kind_of(item) is SdsKind.SYNC
    ]


def events_of(simulation: Simulation, index: int, kind: type[E]) -> list[E]:
    """Return the durable events of one kind that a participant was given."""
    return [item for item in simulation.journals[index].events if isinstance(item, kind)]


def received(simulation: Simulation, index: int) -> list[bytes]:
    """Return the payloads that a participant was given, in order."""
    return [event.message for event in events_of(simulation, index, MessageReceivedEvent)]


def names(transmission: Transmission) -> list[str]:
    """Return the ids in the causal history of a transmission."""
    return [entry.message_id for entry in decode(transmission).causal_history]


def ms(time_ns: Nanoseconds) -> float:
    """Return milliseconds since the beginning."""
    return (time_ns - START_NS) / MS


def first_id(simulation: Simulation, index: int, request_id: RequestId) -> str:
    """Return the message id of a request's first segment."""
    return simulation.machine(index).request_status(request_id).segments[0].message_id


def settled(**fields: object) -> Simulation:
    """Return a pair that has been talking for a second: nothing counts as before its time any more."""
    simulation = group(store=NO_STORE, max_retransmissions=0, **fields)  # type: ignore[arg-type]
    simulation.send(0, b"hello")
    simulation.send(1, b"hello")
    simulation.run(1_000)
    return simulation


def pair(**fields: Any) -> Simulation:
    """Return two started participants whose transmissions are kept.

    Args:
        fields: Of the scenario.
    """
    made = Simulation(Scenario(participants=2, **fields), wire=[])
    made.start()
    return made


def messages(simulation: Simulation, index: int) -> list[bytes]:
    """Return the payloads that a participant was given, in order."""
    return [step.payload for step in simulation.journals[index].delivered()]
