"""``python -m benchmarks [machine] [sync]``: measures and prints tables; nothing here asserts a speed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import machine_speed, sync_cost

SIZES = (2_000, 10_000, 100_000)
FLOOR = 10_000


def show_machine() -> None:
    """Print how fast one machine is, and how much memory it takes."""
    table = Table(
        title="1 KiB messages a CPU second, one core, default bloom filter, history 2",
        caption="floor: hashing, encoding and filter alone",
    )
    for title in ("messages", "sent", "received with delivery", "peak memory, MB"):
        table.add_column(title, justify="right")
    rows = [(f"{size:,}", machine_speed.measure_afresh(size)) for size in SIZES]
    rows.append(("floor", machine_speed.measure_floor(FLOOR)))
    for title, speed in rows:
        table.add_row(
            title,
            f"{speed.sent_per_second:,.0f}",
            f"{speed.received_per_second:,.0f}",
            f"{speed.peak_bytes / 1e6:,.0f}",
        )
    Console().print(table)


def show_sync() -> None:
    """Print, as Markdown for the documentation, how many syncs groups answer with."""
    for line in sync_cost.lines():
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


BENCHMARKS: Final[dict[str, Callable[[], None]]] = {"machine": show_machine, "sync": show_sync}
"""What there is, by the name on the command line."""


def main(names: list[str]) -> int:
    """Run the named measurements, all of them when none is named."""
    unknown = sorted(set(names) - BENCHMARKS.keys())
    if unknown:
        known = ", ".join(BENCHMARKS)
        Console(stderr=True).print(f"no benchmark {unknown[0]!r}; there is: {known}")
        return 2
    for name, show in BENCHMARKS.items():
        if not names or name in names:
            show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
