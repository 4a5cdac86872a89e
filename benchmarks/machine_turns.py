"""Our machines as a program that does turns: it reads how many messages, and writes what they took, line by line.

`benchmarks.peer_speed` runs it beside the program of the peer, which speaks the same, so that each side has a
process of its own with nothing else in it. It must not measure anything itself.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks.machine_speed import Exchange


def answers(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Send and receive as many messages as each line says.

    Args:
        lines: Whole numbers.

    Yields:
        CPU seconds of the sends and the receptions of a turn, and how many messages were delivered in all.
    """
    exchange = Exchange()
    for line in lines:
        turn = exchange.turn(int(line))
        yield {"send": turn.send, "receive": turn.receive, "delivered": exchange.delivered}


def main() -> None:
    """Answer what comes in until it ends."""
    for answer in answers(sys.stdin):
        sys.stdout.write(f"{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
