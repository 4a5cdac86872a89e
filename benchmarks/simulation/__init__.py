"""Groups of real channel machines on a lossy network, in virtual time.

``scenario`` says what happens, ``workload`` plays it with the ``engine`` on a ``network``, in the time of a
``schedule``; ``participant`` and ``journal`` have what came of it, ``invariants`` judge it. It must not
hold anything but re-exports.

Spec: RELIABLE-CHANNEL-API; LIP-109 (SDS).
"""

from __future__ import annotations

from benchmarks.simulation.engine import CHANNEL_ID, Simulation
from benchmarks.simulation.invariants import (
    QUIET_FIELDS,
    InvariantError,
    budget_problems,
    delivery_problems,
    order_problems,
    quiet_problems,
    request_problems,
    sequence_problems,
)
from benchmarks.simulation.journal import Charge, Journal, Step
from benchmarks.simulation.network import Transmission
from benchmarks.simulation.scenario import (
    SCALED_SDS,
    START_NS,
    Join,
    NodeFaults,
    Partition,
    Restart,
    Scenario,
    StoreFaults,
)
from benchmarks.simulation.workload import play

__all__ = (
    "CHANNEL_ID",
    "QUIET_FIELDS",
    "SCALED_SDS",
    "START_NS",
    "Charge",
    "InvariantError",
    "Join",
    "Journal",
    "NodeFaults",
    "Partition",
    "Restart",
    "Scenario",
    "Simulation",
    "Step",
    "StoreFaults",
    "Transmission",
    "budget_problems",
    "delivery_problems",
    "order_problems",
    "play",
    "quiet_problems",
    "request_problems",
    "sequence_problems",
)
