"""``python -m benchmarks [machine]``: measures and prints a table; nothing here asserts a speed."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from benchmarks import machine_speed

SIZES = (2_000, 10_000, 100_000)
FLOOR = 10_000


def main(names: list[str]) -> int:
    """Run the named measurements, all of them when none is named."""
    unknown = sorted(set(names) - {"machine"})
    if unknown:
        Console(stderr=True).print(f"no benchmark {unknown[0]!r}; there is: machine")
        return 2
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
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
