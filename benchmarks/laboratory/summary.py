"""The numbers of each cell in one line: for ``summary.csv``, and for the table of the report.

It must not draw anything, nor say what a number means for a choice of settings.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from benchmarks.laboratory.axes import Shown
from benchmarks.laboratory.intervals import ratio_interval
from benchmarks.laboratory.measures import Measures

Value: TypeAlias = str | int | float | None

PERCENTILES: Final = (50, 95, 99)

SHARE_DIGITS: Final = 9
"""Of ratios, after the point."""

COUNTED: Final = (
    "messages", "owed", "delivered", "late", "lost", "duplicated", "disordered", "send_errors",
    "delivery_errors", "put_off", "fetches", "transmissions", "others", "sent_bytes",
    "payload_bytes",
)  # fmt: skip
"""Sums that are in every line."""


MADE_OF: Final = {
    "transmissions_per_segment": "overhead",
    "bytes_per_payload_byte": "bytes",
    "retransmissions_per_segment": "retransmissions",
    "parity_per_segment": "parity",
    "others_per_segment": "others",
    "repairs_per_owed": "repairs",
}
"""Of which column or ratio numbers are, that have another name."""


def percentile(histogram: Mapping[int, int], share: float) -> int | None:
    """Return the smallest value that so large a share does not exceed; None where there is nothing.

    Args:
        histogram: How many there are of each value.
        share: Above 0, at most 1.
    """
    wanted = share * sum(histogram.values())
    passed = 0
    for value in sorted(histogram):
        passed += histogram[value]
        if passed >= wanted:
            return value
    return None


def all_latencies(measures: Measures) -> dict[int, int]:
    """Return how many deliveries there were by milliseconds, whatever brought them."""
    found: dict[int, int] = {}
    for histogram in measures.latency.values():
        for value, number in histogram.items():
            found[value] = found.get(value, 0) + number
    return found


def delivery(measures: Measures) -> tuple[float, float, float]:
    """Return the ratio of deliveries made to deliveries owed, and its 95 % interval."""
    ratio = measures.ratios["delivery"]
    low, high = ratio_interval(ratio)
    return ratio.value, low, high


def per_segment(measures: Measures, name: str) -> float:
    """Return a sum for each data segment; 0 where there was none."""
    segments = measures.sums["segments"]
    return measures.sums[name] / segments if segments else 0.0


def line(cell: Shown, measures: Measures) -> dict[str, Value]:
    """Return the numbers of a cell by name; None where nothing of the kind happened, or nobody knows."""
    is_empty = not measures.sums["owed"]
    value, low, high = (None, None, None) if is_empty else delivery(measures)
    latencies = all_latencies(measures)
    ratios = measures.ratios
    found: dict[str, Value] = {
        "name": cell.name,
        "key": cell.key,
        "channels": measures.channels,
        "problems": measures.problems,
        "delivery": value,
        "delivery_low": low,
        "delivery_high": high,
        "residual_loss": None if value is None else 1 - value,
        **_times("latency", latencies),
        "confirmation": ratios["confirmation"].value if measures.sums["messages"] else None,
        **_times("confirm", measures.confirm),
        "transmissions_per_segment": ratios["overhead"].value,
        "bytes_per_payload_byte": ratios["bytes"].value,
        "retransmissions_per_segment": per_segment(measures, "retransmissions"),
        "parity_per_segment": per_segment(measures, "parity"),
        "others_per_segment": per_segment(measures, "others"),
        "repairs_per_owed": ratios["repairs"].value,
        **_times("queue", measures.queue),
    }
    found |= {name: measures.sums[name] for name in COUNTED}
    found["digest"] = measures.digest
    rounded = {
        name: round(value, SHARE_DIGITS) if isinstance(value, float) else value
        for name, value in found.items()
    }
    unknown = {name for name in found if MADE_OF.get(name, name) in measures.unknown}
    return rounded | dict.fromkeys(unknown)


def _times(name: str, histogram: Mapping[int, int]) -> dict[str, Value]:
    return {f"{name}_{of}_ms": percentile(histogram, of / 100) for of in PERCENTILES}


def summary_csv(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> str:
    """Return one line a cell, its labels in columns of their own: ``label:<name>``."""
    names = list(dict.fromkeys(name for cell in cells for name, _ in cell.labels))
    lines = [
        line(cell, measures.get(cell.key) or Measures.empty(cell.key))
        | {f"label:{name}": value for name, value in cell.labels}
        for cell in cells
    ]
    numbers = list(lines[0]) if lines else []
    columns = [name for name in numbers if not name.startswith("label:")]
    columns[2:2] = [f"label:{name}" for name in names]
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
