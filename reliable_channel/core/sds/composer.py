"""The SDS bytes of what has its turn: content messages, ephemeral ones, parity, syncs.

It must not decide what goes out when (``outgoing``, ``sync``) nor hand anything to the node.

Spec: LIP-109 (SDS), Message, Send, Periodic sync message, Ephemeral messages.
"""

from __future__ import annotations

from collections.abc import Iterable

from reliable_channel.core.dispatch import ParityTurn, SyncTurn
from reliable_channel.core.hashing import keccak256_parts
from reliable_channel.core.requests import OutgoingSegment
from reliable_channel.core.sds.causal import IdRing
from reliable_channel.core.sds.repair import RepairRequest
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import HistoryEntry, SdsMessage
from reliable_channel.records import BodyRecord
from reliable_channel.types import MessageId, Nanoseconds


class MessageComposer:
    """Makes SDS messages of ours, and settles what they acknowledge.

    Args:
        state: What both directions share.
        passing: Ids of syncs and ephemerals; ours go there too, so that echoes are known.
        sync_entry_room: Bytes that the history of a sync message may take.
    """

    def __init__(self, state: ChannelState, passing: IdRing, sync_entry_room: int) -> None:
        self.state = state
        self.passing = passing
        self.sync_entry_room = sync_entry_room

    # -- what has its turn ------------------------------------------------------------------------

    def freeze(self, segment: OutgoingSegment) -> bytes:
        """Encode all fields of a segment's SDS message but its content, and keep them.

        Bloom filter and retrieval hints are those of now. Ids that were never published are left out.
        """
        if segment.request.ephemeral:
            message = self.plain_message(segment.message_id)
            self.passing.add(segment.message_id)
        else:
            history = self.state.log.dispatch_history(segment.history)
            segment.asked = self.state.repairs.take(self.state.now)
            message = self.causal_message(
                segment.message_id, segment.lamport, history, segment.asked
            )
            segment.settled = self.settle(entry.message_id for entry in history)
        header = message.encode()
        self.state.outbox.put(BodyRecord(message_id=segment.message_id, part="header", data=header))
        return header

    def compose_parity(self, turn: ParityTurn) -> bytes:
        """Encode a parity segment's message; it carries the history of the payload's first segment."""
        history: tuple[HistoryEntry, ...] = ()
        if not turn.request.ephemeral and turn.request.segments:
            history = self.state.log.entries(turn.request.segments[0].history)
        self.passing.add(turn.message_id)
        return self.plain_message(turn.message_id, history).encode() + turn.suffix

    def compose_sync(self, turn: SyncTurn, now: Nanoseconds) -> bytes:
        """Encode a sync message that names what is owed now; the turn remembers what it settled."""
        state = self.state
        named = state.sync.compose(self.sync_entry_room)
        sync_ns = state.sync.next_sync_ns(now)
        message_id = keccak256_parts(state.sender_id.encode(), str(sync_ns).encode()).hex()
        history = state.log.entries(named)
        turn.asked = state.repairs.take(state.now)
        message = self.causal_message(message_id, state.next_lamport(now), history, turn.asked)
        turn.named = self.settle(named)
        self.passing.add(message_id)
        return message.encode()

    def settle(self, message_ids: Iterable[MessageId]) -> tuple[MessageId, ...]:
        """Take off what a message acknowledges; return those of the ids that were owed."""
        return tuple(self.state.debt.settle(message_ids))

    # -- messages ---------------------------------------------------------------------------------

    def causal_message(
        self,
        message_id: MessageId,
        lamport: int,
        history: tuple[HistoryEntry, ...],
        asked: Iterable[RepairRequest],
    ) -> SdsMessage:
        """Return an SDS message without content, but with all that content messages and syncs say.

        Both pass here when they go out first, and nothing else does: they ask for what is due then.
        """
        return SdsMessage(
            sender_id=self.state.sender_id,
            message_id=message_id,
            channel_id=self.state.channel_id,
            lamport_timestamp=lamport,
            causal_history=history,
            bloom_filter=self.state.log.bloom_bytes(),
            repair_request=tuple(request.entry for request in asked),
        )

    def plain_message(
        self, message_id: MessageId, history: tuple[HistoryEntry, ...] = ()
    ) -> SdsMessage:
        """Return an ephemeral SDS message without content."""
        return SdsMessage(
            sender_id=self.state.sender_id,
            message_id=message_id,
            channel_id=self.state.channel_id,
            causal_history=history,
        )
