"""``python -m benchmarks [NAME ...]``: measures and prints tables; nothing here asserts a speed.

Without a name it runs what takes seconds; what takes minutes is run by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import machine_speed, parity_saving, sync_cost

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
    show_lines(sync_cost.lines())


def show_parity() -> None:
    """Print, as Markdown for the documentation, how many retransmissions parity saves."""
    show_lines(parity_saving.lines())


def show_lines(lines: Iterable[str]) -> None:
    """Print lines as they come."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


BENCHMARKS: Final[dict[str, Callable[[], None]]] = {
    "machine": show_machine,
    "sync": show_sync,
    "parity": show_parity,
}
"""What there is, by the name on the command line."""

QUICK: Final = ("machine",)
"""What takes seconds."""


def main(names: list[str]) -> int:
    """Run the named measurements, the quick ones when none is named."""
    unknown = sorted(set(names) - BENCHMARKS.keys())
    if unknown:
        known = ", ".join(BENCHMARKS)
        Console(stderr=True).print(f"no benchmark {unknown[0]!r}; there is: {known}")
        return 2
    for name, show in BENCHMARKS.items():
        if name in (names or QUICK):
            show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
