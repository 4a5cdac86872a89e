"""Acknowledgements owed: ids that a message of ours should name soon.

Accepting or rebuilding a data segment adds its id, and so does every duplicate of it, because then our
acknowledgement was lost. An id leaves when a message of ours that names it is dispatched, or when another participant
has named at least as many segments of the same payload as we hold: then the sender has better evidence than ours.

Spec: LIP-109 (SDS), Sync messages. Deviation: the specification leaves open who acknowledges when (docs/wire.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from reliable_channel.core.outbox import Outbox
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import DebtRecord
from reliable_channel.types import MessageId, ParticipantId

PayloadKey: TypeAlias = tuple[ParticipantId, int]
"""Sender and Lamport time of the first segment: what the segments of one payload share."""

MAX_NAMED: Final = 16
"""Other participants whose naming is followed for one payload."""


@dataclass(slots=True)
class PayloadDebt:
    """What is owed of one payload.

    Attributes:
        held: Data segments of it that we hold.
        owed: Ids to name.
        named: Ids of it that another participant named, by participant.
    """

    held: int = 0
    owed: dict[MessageId, None] = field(default_factory=dict)
    named: dict[ParticipantId, set[MessageId]] = field(default_factory=dict)


class AckDebt:
    """Ids owed, by payload.

    Args:
        outbox: Where row changes go.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.payloads: dict[PayloadKey, PayloadDebt] = {}
        self.payload_of: dict[MessageId, PayloadKey] = {}

    def __len__(self) -> int:
        return len(self.payload_of)

    def __iter__(self) -> Iterator[MessageId]:
        return iter(self.payload_of)

    def add(self, message_id: MessageId, payload: PayloadKey, held: int) -> None:
        """Owe an id.

        Args:
            message_id: Accepted, rebuilt or received again.
            payload: What it belongs to.
            held: Data segments of the payload that we hold now.
        """
        debt = self.payloads.get(payload)
        if debt is None:
            debt = self.payloads[payload] = PayloadDebt(0, {}, {})
        debt.held = held
        if message_id not in debt.owed:
            debt.owed[message_id] = None
            self.payload_of[message_id] = payload
            self.outbox.put_at((message_id,), DebtRecord(message_id=message_id))

    def settle(self, message_ids: Iterable[MessageId]) -> list[MessageId]:
        """Take off ids that a message of ours names; return those that were owed."""
        settled = []
        for message_id in message_ids:
            key = self.payload_of.pop(message_id, None)
            if key is None:
                continue
            debt = self.payloads[key]
            del debt.owed[message_id]
            if not debt.owed:
                del self.payloads[key]
            self.outbox.delete(DebtRecord, message_id)
            settled.append(message_id)
        return settled

    def hear(self, participant_id: ParticipantId, entries: Iterable[HistoryEntry]) -> None:
        """Note what another participant named; drop what it acknowledges at least as well as we could."""
        touched: dict[PayloadKey, PayloadDebt] = {}
        payload_of = self.payload_of
        for entry in entries if payload_of else ():
            key = payload_of.get(entry.message_id)
            if key is None or key[0] == participant_id:
                continue
            debt = touched[key] = self.payloads[key]
            if participant_id in debt.named or len(debt.named) < MAX_NAMED:
                debt.named.setdefault(participant_id, set()).add(entry.message_id)
        for debt in touched.values():
            if len(debt.named.get(participant_id, ())) >= debt.held:
                self.settle(tuple(debt.owed))
