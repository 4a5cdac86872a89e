"""What of a history is of our time: what a new channel waits for, however new it is.

A history is in order of Lamport times and ends in the newest that its sender had, its own included. So what comes
after a message of our time is of our time, and so is its end where the sender had sent anything in our time before. It
must not look for anything (``gaps``).

Spec: LIP-109 (SDS), Send: causal history. ADR 6.
"""

from __future__ import annotations

from collections.abc import Sequence

from reliable_channel.core.sds.log import KnownMessage
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.types import MessageId, ParticipantId


class OurTime:
    """When our time began, and what each participant sent first in it.

    Args:
        start: Lamport time from which on messages are of our time, milliseconds.
        known: Known messages by id.
        max_senders: Participants that are remembered.

    Attributes:
        first: Lamport time of the earliest message of each participant.
        is_over: Nothing can be from before our time any longer.
    """

    def __init__(self, start: int, known: dict[MessageId, KnownMessage], max_senders: int) -> None:
        self.start = start
        self.known = known
        self.max_senders = max_senders
        self.first: dict[ParticipantId, int] = {}
        self.is_over = False

    def hear(self, sender_id: ParticipantId, lamport: int) -> None:
        """Remember that a participant sent a content message then."""
        first = self.first.get(sender_id)
        if lamport < self.start or (first is None and len(self.first) >= self.max_senders):
            return
        if first is None or lamport < first:
            self.first[sender_id] = lamport

    def restore(self) -> None:
        """Remember what the known messages tell."""
        for message in self.known.values():
            self.hear(message.sender_id, message.lamport)

    def end(self) -> None:
        """Forget the participants, and remember no more."""
        self.first.clear()
        self.is_over = True

    def proves(
        self, sender_id: ParticipantId, lamport: int, index: int, history: Sequence[HistoryEntry]
    ) -> set[MessageId]:
        """Return the ids in the history of a content message that are of our time.

        Args:
            sender_id: Of the message.
            lamport: Of the message.
            index: Its place among the data segments of its payload. What a later one names last is the one before it,
                and so of our time: we have a part of that payload.
            history: Its entries.
        """
        found = set[MessageId]()
        is_proven = False
        for entry in history:
            known = self.known.get(entry.message_id)
            if is_proven:
                found.add(entry.message_id)
            is_proven = is_proven or (known is not None and known.lamport >= self.start)
        if history and (index > 0 or self.first.get(sender_id, lamport) < lamport):
            found.add(history[-1].message_id)
        return found
