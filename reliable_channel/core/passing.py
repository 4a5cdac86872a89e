"""Messages outside causal order on their way in: ephemeral payloads, and parity, which helps either kind.

They are delivered at once, and never known, logged, parked or acknowledged. It must not decide which of them are valid
(``incoming``), and takes no id of theirs as met: nothing proves that it is one of theirs.

Spec: LIP-109 (SDS), Ephemeral messages; docs/adr/0013-what-a-stranger-may-not-do.md.
"""

from __future__ import annotations

from reliable_channel.core.acceptance import Acceptance
from reliable_channel.core.delivery import Delivery
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.payload import IncomingPayload, SetKey
from reliable_channel.core.reassembly import Reassembler, set_digest
from reliable_channel.core.sds.causal import MET_RING, CausalOrder, IdRing
from reliable_channel.core.sds.gaps import Gaps
from reliable_channel.core.sds.log import history_octets
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import SdsMessage, SegmentMessage
from reliable_channel.types import MessageId


class PassingMessages:
    """Ephemeral messages of others, from their segment to delivery or a set.

    Args:
        state: What both directions share.
        reassembler: Incomplete payloads.
        causal: Which ids were claimed.
        gaps: Told what parity names.
        acceptance: Where parity is kept.
        delivery: Given payloads that are whole.
    """

    def __init__(
        self,
        state: ChannelState,
        reassembler: Reassembler,
        causal: CausalOrder,
        gaps: Gaps,
        acceptance: Acceptance,
        delivery: Delivery,
    ) -> None:
        self.state = state
        self.reassembler = reassembler
        self.causal = causal
        self.gaps = gaps
        self.acceptance = acceptance
        self.delivery = delivery
        self.proven = IdRing(MET_RING)

    def pass_by(self, message_id: MessageId, *, proven: bool) -> bool:
        """Note the id of a sync or ephemeral message; say whether it was not seen before.

        It is only claimed: nobody takes it as met, and what is looked for under it is looked for all the same. Also
        where the content proves the id: a copy of a content message without its Lamport time would do that.

        Args:
            message_id: The id.
            proven: The content gives it, so that no other message is this one.
        """
        known = self.state.log.known.get(message_id)
        if proven:
            is_seen = message_id in self.proven or (known is not None and known.proven)
        else:
            is_seen = known is not None or message_id in self.causal.claimed
        if is_seen or message_id in self.causal.passing:
            self.state.outbox.count("duplicates")
            return False
        self.causal.claimed.add(message_id)
        if proven:
            self.proven.add(message_id)
        return True

    def receive(self, message: SdsMessage, segment: SegmentMessage | None) -> None:
        """Take an ephemeral message that was not seen before.

        Args:
            message: It.
            segment: What is in it; None where it is a whole message.
        """
        if segment is None:
            self.delivery.deliver(passing_payload(message, message.content or b""))
        elif segment.data_segment_count == 1 and segment.is_parity:
            self.state.outbox.drop("parity_of_one_segment")
        elif segment.data_segment_count == 1:
            if keccak256(segment.payload) != segment.entire_message_hash:
                self.state.outbox.drop("hash_mismatch")
            else:
                self.delivery.deliver(passing_payload(message, segment.payload))
        elif segment.is_parity:
            self.take_parity(message, segment)
        else:
            self.take_segment(message, segment)

    def take_segment(self, message: SdsMessage, segment: SegmentMessage) -> None:
        """Take a data segment of an ephemeral payload."""
        key = self.reassembler.key_of(message.sender_id, segment, ephemeral=True)
        if set_digest(key) in self.reassembler.completed:
            self.state.outbox.count("late_segments")
            return
        reason = self.delivery.refusal(key, segment, 0)
        if reason is not None:
            self.state.outbox.drop(reason)
            return
        payload = self.delivery.take(key, segment, 0)
        self.state.outbox.count("segments_received")
        payload.enter(segment.data_segment_index, message.message_id, 0, ())
        self.taken(payload, segment)

    def take_parity(self, message: SdsMessage, segment: SegmentMessage) -> None:
        """Take a parity segment, which may be of a content payload or of an ephemeral one."""
        key = self.reassembler.key_of(message.sender_id, segment)
        completed, home = self.reassembler.completed, self.reassembler.home(key)
        is_late = set_digest(key) in completed or set_digest(key.sibling) in completed
        if is_late and home not in self.reassembler.sets:
            self.state.outbox.count("late_segments")
            return
        extra = history_octets(message.causal_history)
        reason = self.delivery.refusal(home, segment, extra)
        if reason is not None:
            self.state.outbox.drop(reason)
            return
        payload = self.delivery.take(home, segment, extra)
        self.state.outbox.count("parity_received")
        self.acceptance.hold_parity(payload, segment.parity_segment_index, segment.payload, message)
        if payload.ephemeral or 0 not in payload.ids:
            self.gaps.look_for(message)
        self.taken(payload, segment)

    def taken(self, payload: IncomingPayload, segment: SegmentMessage) -> None:
        """Go on with a set that was given a segment of an ephemeral message."""
        self.delivery.progress(payload, segment)
        self.acceptance.payloads[payload.serial] = payload
        if self.reassembler.is_complete(payload):
            self.delivery.finish_set(payload, segment)
        self.acceptance.keep_parity(payload)


def passing_payload(message: SdsMessage, content: bytes) -> IncomingPayload:
    """Return the payload of an ephemeral message that is whole."""
    payload = IncomingPayload(serial=0, key=whole_key(message)._replace(ephemeral=True))
    payload.ids[0] = message.message_id
    payload.message = content
    return payload


def whole_key(message: SdsMessage) -> SetKey:
    """Return what identifies a payload that is no segment."""
    content = message.content or b""
    return SetKey(message.sender_id, message.message_id.encode(), 0, 1, 0, len(content), 0)
