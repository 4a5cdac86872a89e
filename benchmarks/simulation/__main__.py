"""``python -m benchmarks.simulation``: plays one scenario and says how it went.

::

    python -m benchmarks.simulation --seed 7 --scenario '{"faults": {"loss": 0.3}}'

It is the line that a failed check prints. It must not decide what is right; that is ``invariants``.

Spec: none; a tool of this project.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from benchmarks.simulation.invariants import InvariantError
from benchmarks.simulation.scenario import START_NS, Scenario
from benchmarks.simulation.workload import play
from reliable_channel.types import SECOND


def main(arguments: Sequence[str] | None = None) -> int:
    """Play one scenario, say how it went, and return 0 only when everything held.

    Args:
        arguments: Of the command line, without the program.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation", description="Play one scenario in virtual time."
    )
    parser.add_argument("--seed", type=int, default=0, help="makes every draw (default: 0)")
    parser.add_argument(
        "--scenario", default="{}", metavar="JSON", help="what differs from the default scenario"
    )
    parser.add_argument("--trace", metavar="FILE", help="write every input and effect to FILE")
    options = parser.parse_args(arguments)
    try:
        scenario = Scenario.from_json(options.scenario, seed=options.seed)
    except (TypeError, ValueError) as error:
        parser.error(f"--scenario: {error}")
    trace: list[bytes] | None = [] if options.trace else None
    simulation = play(scenario, trace=trace)
    if trace is not None:
        with open(options.trace, "wb") as file:
            file.writelines(line + b"\n" for line in trace)
    problems = simulation.problems()
    for status in simulation.statuses():
        counters = " ".join(f"{name}={value}" for name, value in status.counters.items())
        sys.stdout.write(f"{status.sender_id}: {counters}\n")
    seconds = (simulation.now - START_NS) / SECOND
    sys.stdout.write(f"{seconds:.1f} s, {simulation.transmissions} transmissions\n")
    if problems:
        sys.stdout.write(f"{InvariantError(scenario, problems)}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
