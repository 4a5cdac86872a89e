"""The way in: check, acknowledge, and take what others sent to the place where it becomes a payload.

::

    bytes ─ decode ─ refuse? ─ SDS: clock, evidence, debt ─► reassembly ─ complete ─► delivery ─► received
                                        │ unknown ids                                    │ unmet
                                        ▼                                                ▼
                                       gaps ─ Fetch ─ found ─► the same way            parked

A segment goes to reassembly as soon as SDS has accepted it; order is kept between whole payloads. Remote bytes never
raise: what is refused is counted by reason. It must not put payloads together (``delivery``) nor decide how long
something is waited for (``sds.gaps``).

Spec: RELIABLE-CHANNEL-API, Incoming message processing; LIP-109 (SDS), Receive.
"""

from __future__ import annotations

from collections.abc import Sequence

from reliable_channel.core.acceptance import Acceptance, Arrival
from reliable_channel.core.delivery import Delivery
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.outgoing import OutgoingPipeline
from reliable_channel.core.reassembly import IncomingPayload, Reassembler, SetKey, set_digest
from reliable_channel.core.sds.causal import CausalOrder
from reliable_channel.core.sds.gaps import Gaps
from reliable_channel.core.sds.log import KnownMessage, history_octets
from reliable_channel.core.sds.responder import RepairResponder
from reliable_channel.core.sds.validation import refusal
from reliable_channel.core.segmentation import check_segment, is_segmented
from reliable_channel.core.state import ChannelState, salted_id
from reliable_channel.core.wire import SdsKind, SdsMessage, SegmentMessage
from reliable_channel.errors import DecodeError, InvalidSegmentError
from reliable_channel.events import SenderIdConflictEvent
from reliable_channel.types import MessageId


class IncomingPipeline:
    """Messages of others, from their bytes to a payload's last segment.

    Args:
        state: What both directions share.
        outgoing: Told what others' messages say about ours.
        reassembler: Incomplete payloads.
        causal: Told what is outside the order.
        gaps: Told what a message names.
        acceptance: Where accepted messages are entered.
        delivery: Given payloads that are whole.
        responder: Told what others ask for, and what somebody has just sent again.
        max_message_bytes: Largest encoded WakuMessage, bytes.
    """

    def __init__(
        self,
        state: ChannelState,
        outgoing: OutgoingPipeline,
        reassembler: Reassembler,
        causal: CausalOrder,
        gaps: Gaps,
        acceptance: Acceptance,
        delivery: Delivery,
        responder: RepairResponder,
        max_message_bytes: int,
    ) -> None:
        self.state = state
        self.outgoing = outgoing
        self.reassembler = reassembler
        self.causal = causal
        self.gaps = gaps
        self.acceptance = acceptance
        self.delivery = delivery
        self.responder = responder
        self.max_message_bytes = max_message_bytes

    # -- receive ----------------------------------------------------------------------------------

    def receive(self, arrival: Arrival) -> None:
        """Take decrypted bytes from the network, which should be an encoded SDS message."""
        outbox = self.state.outbox
        try:
            message = SdsMessage.decode(arrival.data)
        except DecodeError:
            outbox.drop("malformed")
            return
        reason = refusal(message, self.state.channel_id, self.state.sds.max_history_entries)
        if reason is not None:
            outbox.drop(reason)
            return
        self.state.last_seen_ns = max(self.state.last_seen_ns, self.state.now)
        self.responder.overheard(message)
        if message.sender_id == self.state.sender_id and self.is_echo(message):
            outbox.count("echoes")
        elif message.kind is SdsKind.CONTENT:
            self.receive_content(message, arrival)
        elif message.kind is SdsKind.SYNC:
            self.receive_sync(message)
        else:
            self.receive_ephemeral(message)

    def fetched(self, found: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Take the answer of the store to a Fetch.

        Args:
            found: Transport hash and decrypted bytes of each message that it had; None where it does not decrypt.
        """
        for transport_hash, data in found:
            if data is None:
                self.state.outbox.drop("decrypt_failed")
            else:
                self.receive(Arrival(data, transport_hash, from_store=True))
        self.gaps.answered([transport_hash for transport_hash, _ in found])

    def is_echo(self, message: SdsMessage) -> bool:
        """Tell whether a message under our sender id is ours; raise the conflict event when not, once."""
        if message.message_id in self.state.log or message.message_id in self.causal.passing:
            return True
        if message.kind is SdsKind.SYNC or self.is_old_ephemeral(message):
            return True
        if not self.state.conflict_seen:
            self.state.conflict_seen = True
            self.state.outbox.emit(
                SenderIdConflictEvent(
                    channel_id=self.state.channel_id,
                    time_ns=self.state.now,
                    sender_id=message.sender_id,
                    message_id=message.message_id,
                )
            )
        return False

    def is_old_ephemeral(self, message: SdsMessage) -> bool:
        """Tell whether an ephemeral message may be ours from before a restart: their ids are not kept."""
        try:
            segment = SegmentMessage.decode(message.content or b"")
        except DecodeError:
            return False
        is_ours = 0 < segment.wrap_time_ns <= self.state.last_wrap_ns
        return message.kind is SdsKind.EPHEMERAL and is_ours

    def receive_content(self, message: SdsMessage, arrival: Arrival) -> None:
        """Take a content message: a duplicate, a segment, or a whole message without segmentation."""
        known = self.state.log.known.get(message.message_id)
        if known is not None:
            self.receive_duplicate(message, known, arrival.transport_hash)
            return
        try:
            segment = self.segment_of(message)
        except InvalidSegmentError as error:
            self.state.outbox.drop(error.reason)
            return
        if segment is None:
            self.take_message(message, arrival)
        elif segment.is_parity:
            self.state.outbox.drop("parity_not_ephemeral")
        else:
            self.take_segment(message, segment, arrival)

    def receive_duplicate(
        self, message: SdsMessage, known: KnownMessage, transport_hash: bytes | None
    ) -> None:
        """Take a message that is known: our acknowledgement was lost, so it is owed again."""
        self.state.outbox.count("duplicates")
        self.state.log.set_hint(known.message_id, transport_hash)
        if known.sender_id != self.state.sender_id:
            holder = self.causal.holder.get(known.message_id)
            held = known.segment_count if holder is None else len(holder.ids)
            self.state.debt.add(known.message_id, known.payload, held)
        self.listen(message, fresh=False)
        self.state.sync.owe(self.state.now, self.state.group(self.state.now))

    def segment_of(self, message: SdsMessage) -> SegmentMessage | None:
        """Return the segment in a content or ephemeral message; None when it is a whole message.

        Raises:
            InvalidSegmentError: It is neither.
        """
        content = message.content or b""
        try:
            segment = SegmentMessage.decode(content)
        except DecodeError:
            segment = None
        if segment is None or not is_segmented(segment):
            if not self.state.segmentation.accept_unsegmented:
                raise InvalidSegmentError("unsegmented")
            return None
        check_segment(segment, self.state.segmentation.max_total_segments, self.max_message_bytes)
        if segment.wrap_time_ns:
            expected = salted_id(message.sender_id, segment.wrap_time_ns, content)
            if message.message_id != expected:
                raise InvalidSegmentError("forged_id")
        return segment

    def listen(self, message: SdsMessage, *, fresh: bool) -> None:
        """Take everything that a message says besides its content.

        Args:
            message: Of the kinds content and sync.
            fresh: It was not heard before, so its filter is new evidence, and what it asks for is not answered yet.
        """
        state, now = self.state, self.state.now
        state.see_lamport(message.lamport_timestamp or 0, now)
        if message.sender_id != state.sender_id:
            state.participants.hear(message.sender_id, now)
            bloom_filter = message.bloom_filter if fresh else None
            self.outgoing.hear(message.sender_id, message.causal_history, bloom_filter, now)
            state.debt.hear(message.sender_id, message.causal_history)
            if fresh and message.repair_request:
                self.responder.requested(message)
            self.outgoing.drop_needless_sync()
        group = state.group(now)
        if message.kind is SdsKind.SYNC:
            # Somebody who lacks what we have must not keep us from saying so.
            newest = state.log.newest(1)
            if not newest or any(entry.message_id == newest[0] for entry in message.causal_history):
                state.sync.heard_sync(now, group)
        else:
            state.sync.active(now, group)

    # -- content ----------------------------------------------------------------------------------

    def take_message(self, message: SdsMessage, arrival: Arrival) -> None:
        """Take a whole message of an implementation that does not segment."""
        content = message.content or b""
        key = (message.sender_id, message.message_id.encode(), 0, 1, 0, len(content), 0)
        self.take_whole(message, key, content, arrival)

    def take_segment(self, message: SdsMessage, segment: SegmentMessage, arrival: Arrival) -> None:
        """Take a data segment, unless there is no room for it; then it is not acknowledged either."""
        key = self.reassembler.key_of(message.sender_id, segment)
        if segment.data_segment_count == 1:
            if keccak256(segment.payload) != segment.entire_message_hash:
                self.state.outbox.drop("hash_mismatch")
            else:
                self.take_whole(message, key, segment.payload, arrival)
            return
        index = segment.data_segment_index
        digest = set_digest(key)
        held = self.reassembler.completed.get(digest)
        if held is not None and (segment.wrap_time_ns or not held >> index & 1):
            self.take_late(message, segment, digest, held, arrival)
            return
        rival = self.reassembler.sets.get(key)
        if rival is not None and rival.ephemeral:
            # Data that somebody sent as ephemeral under the same key: content is what gets acknowledged.
            self.reassembler.drop_data(rival)
        extra = history_octets(message.causal_history)
        reason = self.reassembler.refusal(key, segment, extra)
        if reason is not None:
            self.state.outbox.drop(reason)
            return
        self.acceptance.accept(message, index, segment.data_segment_count, arrival, logged=False)
        payload = self.reassembler.add(key, segment, ephemeral=False, extra=extra)
        self.acceptance.join(payload, message, index)
        self.state.debt.add(
            message.message_id, self.state.log.known[message.message_id].payload, len(payload.ids)
        )
        self.state.outbox.count("segments_received")
        self.delivery.wait_for_rest(payload)
        self.acceptance.keep(message, payload)
        self.after_accept(message)
        if self.reassembler.is_complete(payload):
            self.delivery.finish_set(payload)

    def take_whole(
        self, message: SdsMessage, key: SetKey, content: bytes, arrival: Arrival
    ) -> None:
        """Take a message that is a whole payload."""
        known = self.acceptance.accept(message, 0, 1, arrival, logged=False)
        self.reassembler.serial += 1
        payload = IncomingPayload(serial=self.reassembler.serial, key=key, ephemeral=False)
        payload.message = content
        payload.octets = len(content) + history_octets(message.causal_history)
        self.acceptance.join(payload, message, 0)
        self.state.debt.add(message.message_id, known.payload, 1)
        self.state.outbox.count("segments_received")
        self.after_accept(message)
        self.delivery.complete(payload)
        # Most are delivered at once: only one that is parked has to outlive a restart.
        if payload.serial in self.causal.parked:
            self.acceptance.keep(message, payload)

    def take_late(
        self,
        message: SdsMessage,
        segment: SegmentMessage,
        digest: bytes,
        held: int,
        arrival: Arrival,
    ) -> None:
        """Take a data segment of a payload that was rebuilt without it: acknowledged, never delivered again."""
        index = segment.data_segment_index
        known = self.acceptance.accept(
            message, index, segment.data_segment_count, arrival, logged=True
        )
        self.delivery.remember(digest, held | 1 << index, segment.data_segment_count)
        self.state.debt.add(message.message_id, known.payload, known.segment_count)
        self.state.outbox.count("late_segments")
        self.after_accept(message)
        self.causal.release_waiters((message.message_id,))

    def after_accept(self, message: SdsMessage) -> None:
        """Listen to an accepted message and look for what it names."""
        self.listen(message, fresh=True)
        self.gaps.look_for(message)
        self.state.sync.owe(self.state.now, self.state.group(self.state.now))

    # -- syncs and ephemerals ---------------------------------------------------------------------

    def receive_sync(self, message: SdsMessage) -> None:
        """Take a sync message: evidence about ours, and names of what we may lack."""
        if not self.pass_by(message.message_id):
            return
        self.state.outbox.count("syncs_received")
        self.listen(message, fresh=True)
        self.gaps.look_for(message)
        self.state.sync.owe(self.state.now, self.state.group(self.state.now))

    def receive_ephemeral(self, message: SdsMessage) -> None:
        """Take an ephemeral message: delivered at once, or parity that may complete a payload."""
        try:
            segment = self.segment_of(message)
        except InvalidSegmentError as error:
            self.state.outbox.drop(error.reason)
            return
        if not self.pass_by(message.message_id):
            return
        if segment is None:
            self.delivery.deliver(self.passing_payload(message, message.content or b""))
        elif segment.data_segment_count == 1 and segment.is_parity:
            self.state.outbox.drop("parity_of_one_segment")
        elif segment.data_segment_count == 1:
            if keccak256(segment.payload) != segment.entire_message_hash:
                self.state.outbox.drop("hash_mismatch")
            else:
                self.delivery.deliver(self.passing_payload(message, segment.payload))
        else:
            self.take_passing_segment(message, segment)

    def pass_by(self, message_id: MessageId) -> bool:
        """Note the id of a sync or ephemeral message; say whether it was not seen before.

        What is looked for in the store is none: a forged copy must not excuse a message that is still to come.
        """
        if message_id in self.causal.passing or message_id in self.state.log:
            self.state.outbox.count("duplicates")
            return False
        if self.gaps.is_stored(message_id):
            self.state.outbox.drop("id_of_a_stored_message")
            return False
        self.gaps.found(message_id)
        self.causal.excuse((message_id,))
        return True

    def passing_payload(self, message: SdsMessage, content: bytes) -> IncomingPayload:
        """Return the payload of an ephemeral message that is whole."""
        key = (message.sender_id, message.message_id.encode(), 0, 1, 0, len(content), 0)
        payload = IncomingPayload(serial=0, key=key, ephemeral=True)
        payload.ids[0] = message.message_id
        payload.message = content
        return payload

    def take_passing_segment(self, message: SdsMessage, segment: SegmentMessage) -> None:
        """Take a parity segment, or a data segment of an ephemeral payload."""
        key = self.reassembler.key_of(message.sender_id, segment)
        completed = self.reassembler.completed
        if set_digest(key) in completed or set_digest(key, ephemeral=True) in completed:
            self.state.outbox.count("late_segments")
            return
        extra = history_octets(message.causal_history)
        reason = self.reassembler.refusal(key, segment, extra)
        if reason is not None:
            self.state.outbox.drop(reason)
            return
        held = self.reassembler.sets.get(key)
        if held is not None and not held.ephemeral and not segment.is_parity:
            self.state.outbox.drop("conflicting_segment")
            return
        payload = self.reassembler.add(key, segment, ephemeral=True, extra=extra)
        if segment.is_parity:
            self.state.outbox.count("parity_received")
            for entry in message.causal_history:
                payload.dependencies.setdefault(entry.message_id, entry)
            self.gaps.look_for(message)
        else:
            self.state.outbox.count("segments_received")
            payload.ids[segment.data_segment_index] = message.message_id
        self.delivery.wait_for_rest(payload)
        self.acceptance.payloads[payload.serial] = payload
        if self.reassembler.is_complete(payload):
            self.delivery.finish_set(payload)
