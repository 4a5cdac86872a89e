"""Groups of real channel machines on a lossy network, in virtual time.

``scenario`` says what happens, ``workload`` plays it with the ``engine`` on a ``network`` of ``links``, in the time of
a ``schedule``, until it is over (``settling``); a ``driver`` carries out what machines ask for, and dies on the way;
``participant`` and ``journal`` have what came of it, ``invariants`` judge it. ``drawing`` makes scenarios full of
crashes, ``torture`` plays them by the thousand, ``breakage`` shows that what is wrong is found. It must not hold
anything but re-exports.

Spec: RELIABLE-CHANNEL-API; LIP-109 (SDS).
"""

from __future__ import annotations

from benchmarks.simulation.breakage import BREAKAGES
from benchmarks.simulation.drawing import crash_scenario
from benchmarks.simulation.engine import CHANNEL_ID, Simulation
from benchmarks.simulation.invariants import (
    QUIET_FIELDS,
    InvariantError,
    acknowledgement_problems,
    budget_problems,
    delivery_problems,
    order_problems,
    quiet_problems,
    request_problems,
    row_problems,
    sequence_problems,
    shown_problems,
    wrap_problems,
)
from benchmarks.simulation.journal import Charge, Journal, Step
from benchmarks.simulation.network import Transmission
from benchmarks.simulation.scenario import (
    MOMENTS,
    SCALED_SDS,
    START_NS,
    Bursts,
    Churn,
    Crash,
    Delays,
    Join,
    NodeFaults,
    Partition,
    Restart,
    Scenario,
    StoreFaults,
)
from benchmarks.simulation.workload import play

__all__ = (
    "BREAKAGES",
    "CHANNEL_ID",
    "MOMENTS",
    "QUIET_FIELDS",
    "SCALED_SDS",
    "START_NS",
    "Bursts",
    "Charge",
    "Churn",
    "Crash",
    "Delays",
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
    "acknowledgement_problems",
    "budget_problems",
    "crash_scenario",
    "delivery_problems",
    "order_problems",
    "play",
    "quiet_problems",
    "request_problems",
    "row_problems",
    "sequence_problems",
    "shown_problems",
    "wrap_problems",
)
