"""How many durable events a channel keeps.

Only counts, sizes and times are handled here: which rows exist, and removing them, is the store's part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from reliable_channel.config import Bounds, check_bounds
from reliable_channel.errors import ConfigurationError
from reliable_channel.records import EventRecord
from reliable_channel.types import SECOND, Nanoseconds
from reliable_channel.volatile import EVENT_OVERHEAD_BYTES, MAX_EVENT_BYTES, MAX_EVENTS

NEVER: Final[Nanoseconds] = 1 << 63
"""After every time."""

RETENTION_BOUNDS: Final[Bounds] = {
    "max_events": (1, 1 << 40),
    "max_event_bytes": (1, 1 << 40),
    "max_event_age_sec": (1, 1 << 31),
}
"""Smallest and largest accepted value of each field."""

SWEEP_PAGES: Final = (8, 64, 512)
"""How many of the oldest events are looked at, one after the other: all that one transaction may remove."""

SWEEP_BYTES: Final = 8 << 20
"""When so much was removed, the rest is for the next transaction, bytes."""


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


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What one transaction leaves of an event log."""

    totals: EventTotals
    """What is left after all through its ``removed_through`` went."""
    has_more: bool
    """More has to go, in another transaction."""
    due_ns: Nanoseconds
    """When the oldest that is left becomes too old, Unix time; 0 where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRetention:
    """Bounds of each channel's event log; beyond them the oldest events go.

    The newest event stays even where it alone is larger than ``max_event_bytes``, or too old.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.
    """

    max_events: int = MAX_EVENTS
    """Events of one channel."""
    max_event_bytes: int = MAX_EVENT_BYTES
    """Size of one channel's events, bytes."""
    max_event_age_sec: int | None = None
    """How long they are kept, seconds; None: as long as the other bounds allow."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, RETENTION_BOUNDS)
        if problems:
            raise ConfigurationError(problems)

    def is_exceeded(self, totals: EventTotals) -> bool:
        """Say whether some event has to go."""
        beyond = totals.count > self.max_events or totals.octets > self.max_event_bytes
        return beyond and totals.count > 1

    def expiry(self, time_ns: Nanoseconds) -> Nanoseconds:
        """Return when an event of a given time becomes too old, Unix time; `NEVER` without such a bound."""
        age = self.max_event_age_sec
        return NEVER if age is None else time_ns + age * SECOND

    def trim(
        self,
        totals: EventTotals,
        oldest_first: Iterable[tuple[int, int, Nanoseconds]],
        now: Nanoseconds,
    ) -> Trimmed:
        """Return what is left when as much was removed as has to go and as one transaction may.

        Args:
            totals: What is kept now.
            oldest_first: Sequence, size and time of the kept events, as many as one transaction may remove; read only
                as far as needed.
            now: Unix time.
        """
        room = SWEEP_BYTES
        for sequence, size, time_ns in oldest_first:
            due_ns = self.expiry(time_ns)
            if totals.count <= 1 or not (self.is_exceeded(totals) or due_ns <= now):
                return Trimmed(totals, has_more=False, due_ns=due_ns)
            if room <= 0:
                return Trimmed(totals, has_more=True, due_ns=0)
            room -= size
            totals = EventTotals(totals.count - 1, totals.octets - size, sequence)
        return Trimmed(totals, has_more=totals.count > 0, due_ns=0)
