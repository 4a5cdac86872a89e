"""What happened in a simulation, written down while it runs: for each participant, and for its budget.

It must not judge what it writes down; that is ``invariants``.

Spec: RELIABLE-CHANNEL-API, Events, for what an application is told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from reliable_channel.events import ChannelEvent
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId, RequestId

FROM_STORE: Final = -1
"""What brought a delivery that came with an answer of the store, or with what a restart found in it."""


class Step(NamedTuple):
    """One message at one participant: its own when sent, another's when delivered."""

    message_id: MessageId
    """Of its first data segment."""
    sender_id: ParticipantId
    payload: bytes
    time_ns: Nanoseconds
    ephemeral: bool = False
    late: bool = False
    """Delivered, but marked as later than what depends on it."""
    request_id: RequestId = ""
    """Of an own message; empty for one of another participant."""
    segments: tuple[MessageId, ...] = ()
    """Of an own message: the ids of its data segments."""
    wrap_ns: Nanoseconds = 0
    """Of an own message: its wrap time."""
    key: str = ""
    """Of an own message: its idempotency key, where it has one."""
    cause: int = 0
    """Of a delivery: the number of the transmission with whose arrival it came; `FROM_STORE`, or 0 for anything else,
    such as the end of a wait."""


@dataclass(slots=True)
class Journal:
    """What the application of one participant did and was told, in order, restarts included."""

    sender_id: ParticipantId
    joined_ns: Nanoseconds = 0
    """From then on it is to get every message."""
    is_live: bool = True
    """It is open at the end."""
    steps: list[Step] = field(default_factory=list)
    events: list[ChannelEvent] = field(default_factory=list)
    """All events that have a sequence, as they were kept."""
    events_ns: list[Nanoseconds] = field(default_factory=list)
    """When each of them came about, in virtual time: their own times are by a clock that may be set meanwhile."""
    shown: list[ChannelEvent] = field(default_factory=list)
    """Those of them that the application has taken: when they came, or, after a restart, read on from its last."""

    def delivered(self) -> list[Step]:
        """Return the messages of others that were delivered."""
        return [step for step in self.steps if not step.request_id]

    def sent(self) -> list[Step]:
        """Return its own messages."""
        return [step for step in self.steps if step.request_id]


class Charge(NamedTuple):
    """A transmission as an epoch budget sees it."""

    sender_id: ParticipantId
    taken_ns: Nanoseconds
    """When the node took it."""
    made_ns: Nanoseconds
    """When it was with the network."""
    reported_ns: Nanoseconds
    """When its outcome was reported, and that was kept; it counts in that epoch too."""
