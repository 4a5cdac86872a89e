"""Who has been heard on the channel, and when.

Sender ids are not authenticated: the number kept is bounded, the one heard longest ago goes first. It must not keep
what they said; that is ``requests`` for acknowledgements and ``missing`` for what they named.

Spec: LIP-109 (SDS), Terminology, participant.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from reliable_channel.types import SECOND, Nanoseconds, ParticipantId

HEARD_LATELY_NS: Final = 600 * SECOND
"""Participants heard within this time count towards the group: one longest distance of idle syncs."""


class Participants:
    """Other participants, by when they were last heard.

    Args:
        limit: Participants that are remembered.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.heard: OrderedDict[ParticipantId, Nanoseconds] = OrderedDict()

    def hear(self, sender_id: ParticipantId, now: Nanoseconds) -> None:
        """Note a message of a participant."""
        self.heard[sender_id] = now
        self.heard.move_to_end(sender_id)
        if len(self.heard) > self.limit:
            self.heard.popitem(last=False)

    def lately(self, now: Nanoseconds) -> int:
        """Return how many were heard lately, and forget the others."""
        while self.heard:
            oldest = next(iter(self.heard))
            if self.heard[oldest] >= now - HEARD_LATELY_NS:
                break
            del self.heard[oldest]
        return len(self.heard)
