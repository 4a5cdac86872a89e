"""How many durable events a channel keeps.

Only counts and sizes are handled here: which rows exist, and removing them, is the store's part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reliable_channel.config import Bounds, check_bounds
from reliable_channel.errors import ConfigurationError
from reliable_channel.records import EventRecord
from reliable_channel.volatile import EVENT_OVERHEAD_BYTES, MAX_EVENT_BYTES, MAX_EVENTS

RETENTION_BOUNDS: Final[Bounds] = {
    "max_events": (1, 1 << 40),
    "max_event_bytes": (1, 1 << 40),
}
"""Smallest and largest accepted value of each field."""


def event_size(event: EventRecord) -> int:
    """Return what an event counts for: its payload, its detail and a share for the rest, bytes."""
    return EVENT_OVERHEAD_BYTES + len(event.detail) + len(event.payload or b"")


@dataclass(frozen=True, slots=True)
class EventTotals:
    """The event log of one channel in numbers."""

    count: int = 0
    """Events that are kept."""
    octets: int = 0
    """Their sizes, added up."""
    removed_through: int = 0
    """Sequence of the newest event that retention removed; 0 before the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRetention:
    """Bounds of each channel's event log; beyond them the oldest events go.

    The newest event stays even where it alone is larger than ``max_event_bytes``.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.
    """

    max_events: int = MAX_EVENTS
    """Events of one channel."""
    max_event_bytes: int = MAX_EVENT_BYTES
    """Size of one channel's events, bytes."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, RETENTION_BOUNDS)
        if problems:
            raise ConfigurationError(problems)

    def is_exceeded(self, totals: EventTotals) -> bool:
        """Say whether some event has to go."""
        beyond = totals.count > self.max_events or totals.octets > self.max_event_bytes
        return beyond and totals.count > 1

    def trim(self, totals: EventTotals, oldest_first: Iterable[tuple[int, int]]) -> EventTotals:
        """Return what is left, within the bounds, after all through its ``removed_through`` went.

        Args:
            totals: What is kept now.
            oldest_first: Sequence and size of the kept events; read only as far as needed.
        """
        for sequence, size in oldest_first:
            if not self.is_exceeded(totals):
                break
            totals = EventTotals(totals.count - 1, totals.octets - size, sequence)
        return totals
