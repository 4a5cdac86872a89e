"""What the core asks its driver to do: data, carried out in the order persist, publish, fetch, emit.

Nothing is published or shown to the application before what it rests on is durable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reliable_channel import values
from reliable_channel.events import ChannelEvent
from reliable_channel.records import Changes
from reliable_channel.types import Nanoseconds, RequestId


@values.dataclass(frozen=True, slots=True)
class Publish:
    """Encrypt these bytes, hand them to the node and report the outcome under ``segment_id``."""

    segment_id: RequestId
    """``Req:k`` for segments, ``sync:<n>`` for sync messages."""
    data: bytes = field(repr=False)
    """An encoded SDS message."""
    ephemeral: bool = False
    """The transport's store need not keep it."""
    expires_ns: Nanoseconds = 0
    """End of the epoch it was counted in: from then on it must not be handed over; 0 is never."""


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask the node's store for these transport hashes and report what it has."""

    hashes: tuple[bytes, ...]
    """At most 100."""


@dataclass(slots=True)
class Effects:
    """What one input, or several merged ones, asks for."""

    changes: Changes = field(default_factory=dict)
    publishes: list[Publish] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    events: list[ChannelEvent] = field(default_factory=list)

    def merge(self, later: Effects) -> None:
        """Append the effects of a later input; later changes of a row replace earlier ones."""
        self.changes.update(later.changes)
        self.publishes.extend(later.publishes)
        self.fetches.extend(later.fetches)
        self.events.extend(later.events)

    def __bool__(self) -> bool:
        return bool(self.changes or self.publishes or self.fetches or self.events)
