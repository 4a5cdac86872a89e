"""What the rows of a cell come to together: sums, sums of squares and histograms, computed where the rows are.

The same measures are made by Spark SQL, for any number of rows, and by Arrow where there is no Spark; both are exact.
Nothing here may hold all rows, nor judge what it sums up.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSums:
    """What a ratio of two counts, and its variance between channels, are computed from.

    Messages of one channel are not independent, so the channel is the unit.
    """

    channels: int = 0
    numerator: int = 0
    denominator: int = 0
    numerator_squares: int = 0
    products: int = 0
    denominator_squares: int = 0

    @property
    def value(self) -> float:
        """The ratio; 0 where nothing was counted."""
        return self.numerator / self.denominator if self.denominator else 0.0


RATIOS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "delivery": (("delivered",), "owed"),
    "completion": (("complete",), "messages"),
    "confirmation": (("confirmed",), "messages"),
    "data_sends": (("segments", "retransmissions"), "segments"),
    "overhead": (("transmissions",), "segments"),
    "bytes": (("sent_bytes",), "payload_bytes"),
    "repairs": (("repairs",), "owed"),
    "late": (("late",), "owed"),
}
"""By name: the columns whose sum is the numerator, and the denominator."""


@dataclass(slots=True, kw_only=True)
class Measures:
    """All that is known of a cell's rows."""

    key: str
    """Of the cell."""
    channels: int = 0
    """Rows without a problem."""
    problems: int = 0
    """Rows with one."""
    sums: dict[str, int] = field(default_factory=dict)
    """Of each column of counts, and of ``virtual_ms`` and ``cpu_us``."""
    ratios: dict[str, RatioSums] = field(default_factory=dict)
    """By the names of `RATIOS`."""
    latency: dict[int, dict[int, int]] = field(default_factory=dict)
    """By what brought the delivery (``round``): how many deliveries by milliseconds, three digits kept."""
    confirm: dict[int, int] = field(default_factory=dict)
    """How many confirmations by milliseconds, three digits kept."""
    queue: dict[int, int] = field(default_factory=dict)
    """How many messages by milliseconds until all of them was sent, three digits kept."""
    tries: dict[int, int] = field(default_factory=dict)
    """How many messages by the transmissions of their data segments."""
    digest_high: int = 0
    digest_low: int = 0
    """Exclusive or of the rows' digests."""


def three_digits(value: int) -> int:
    """Return a whole number of 0 or more with its first three digits kept and zeros for the rest."""
    unit = 1
    while value // unit >= 1000:
        unit *= 10
    return value // unit * unit
