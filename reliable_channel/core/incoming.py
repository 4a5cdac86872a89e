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

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from reliable_channel.core.acceptance import Acceptance, Arrival
from reliable_channel.core.delivery import Delivery
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.passing import PassingMessages, whole_key
from reliable_channel.core.payload import IncomingPayload, SetKey
from reliable_channel.core.reassembly import Reassembler, digest_of, set_digest
from reliable_channel.core.sds.acknowledgements import Acknowledgements
from reliable_channel.core.sds.causal import CausalOrder
from reliable_channel.core.sds.debt import PayloadKey
from reliable_channel.core.sds.gaps import Gaps
from reliable_channel.core.sds.log import KnownMessage, history_octets
from reliable_channel.core.sds.responder import RepairResponder
from reliable_channel.core.sds.sync import SyncScheduler
from reliable_channel.core.sds.validation import refusal
from reliable_channel.core.segmentation import check_segment, is_segmented
from reliable_channel.core.state import ChannelState, salted_id
from reliable_channel.core.wire import SdsKind, SdsMessage, SegmentMessage
from reliable_channel.errors import DecodeError, InvalidSegmentError
from reliable_channel.events import SenderIdConflictEvent
from reliable_channel.types import MS, Nanoseconds

SEGMENT_START: Final = b"\n\x20"
"""First bytes of an encoded segment: the tag and length of its payload hash."""


MAX_TOLD: Final = 256
"""Payloads for which it is remembered when they were last acknowledged whole because of a duplicate."""


class IncomingPipeline:
    """Messages of others, from their bytes to a payload's last segment.

    Args:
        state: What both directions share.
        acknowledgements: Told what others' messages say about ours.
        syncs: Told to look whether a sync that waits is still needed.
        responder: Told what others ask for, and what somebody has just sent again.
        reassembler: Incomplete payloads.
        causal: Told what is outside the order.
        gaps: Told what a message names.
        acceptance: Where accepted messages are entered.
        delivery: Given payloads that are whole.
        max_message_bytes: Largest encoded WakuMessage, bytes.
    """

    def __init__(
        self,
        state: ChannelState,
        acknowledgements: Acknowledgements,
        syncs: SyncScheduler,
        responder: RepairResponder,
        reassembler: Reassembler,
        causal: CausalOrder,
        gaps: Gaps,
        acceptance: Acceptance,
        delivery: Delivery,
        max_message_bytes: int,
    ) -> None:
        self.state = state
        self.acknowledgements = acknowledgements
        self.syncs = syncs
        self.responder = responder
        self.reassembler = reassembler
        self.causal = causal
        self.gaps = gaps
        self.acceptance = acceptance
        self.delivery = delivery
        self.max_message_bytes = max_message_bytes
        self.told: OrderedDict[PayloadKey, Nanoseconds] = OrderedDict()
        self.passing = PassingMessages(state, reassembler, causal, gaps, acceptance, delivery)

    # -- receive ----------------------------------------------------------------------------------

    def receive(self, arrival: Arrival) -> None:
        """Take decrypted bytes from the network, which should be an encoded SDS message."""
        outbox = self.state.outbox
        most = self.state.sds.max_history_entries
        try:
            message = SdsMessage.decode(arrival.data, max_entries=most)
        except DecodeError:
            outbox.drop("malformed")
            return
        reason = refusal(message, self.state.channel_id, most)
        if reason is not None:
            outbox.drop(reason)
            return
        self.state.last_seen_ns = max(self.state.last_seen_ns, self.state.now)
        self.responder.overheard(message.message_id, arrival.data)
        if message.sender_id == self.state.sender_id and self.is_echo(message):
            outbox.count("echoes")
        elif message.lamport_timestamp is None:
            self.receive_ephemeral(message)
        elif message.content:
            self.receive_content(message, arrival)
        else:
            self.receive_sync(message, arrival)

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
        if message.kind is SdsKind.SYNC or self.is_old(message):
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

    def is_old(self, message: SdsMessage) -> bool:
        """Tell whether a message may be an old one of ours whose id is not kept: by its wrap time, which we had.

        Ephemeral ones are those from before a restart. Content is below the floor, where ids are evicted; nobody
        waits for it any longer, least of all here.
        """
        try:
            segment = SegmentMessage.decode(message.content or b"")
        except DecodeError:
            return False
        wrap_ns = segment.wrap_time_ns
        if not 0 < wrap_ns <= self.state.last_wrap_ns:
            return False
        if message.kind is SdsKind.EPHEMERAL:
            return True
        expected = salted_id(message.sender_id, wrap_ns, message.content or b"")
        if (message.lamport_timestamp or 0) > self.causal.floor or message.message_id != expected:
            return False
        self.gaps.stop_looking(message.message_id)
        self.causal.excuse((message.message_id,))
        return True

    def receive_content(self, message: SdsMessage, arrival: Arrival) -> None:
        """Take a content message: a duplicate, a segment, or a whole message without segmentation.

        What proves its id is no duplicate of what only claimed it.
        """
        known = self.state.log.known.get(message.message_id)
        if known is not None and known.proven:
            self.receive_duplicate(message, known, arrival)
            return
        try:
            segment = self.segment_of(message)
        except InvalidSegmentError as error:
            self.state.outbox.drop(error.reason)
            return
        proven = proves_id(message, segment)
        if known is not None and not proven:
            self.receive_duplicate(message, known, arrival)
        elif segment is None:
            self.take_message(message, arrival)
        elif segment.is_parity:
            self.state.outbox.drop("parity_not_ephemeral")
        else:
            if known is not None:
                self.delivery.give_way(known)
            self.take_segment(message, segment, arrival, proven=proven)

    def receive_duplicate(self, message: SdsMessage, known: KnownMessage, arrival: Arrival) -> None:
        """Take a message that is known: our acknowledgement was lost, so it is owed again."""
        self.state.outbox.count("duplicates")
        self.state.log.set_hint(known.message_id, arrival.transport_hash)
        if known.sender_id != self.state.sender_id:
            self.owe_again(known)
            self.archive_rebuilt(message, arrival)
        group = self.listen(message, arrival, fresh=False)
        self.state.sync.owe(self.state.now, group)

    def owe_again(self, known: KnownMessage) -> None:
        """Owe all that we have of a payload: its sender may have sent one segment to ask for all.

        Only once within half an acknowledgement timeout: a sender asks no faster.

        Spec: docs/adr/0014-one-segment-asks-first.md.
        """
        wait = self.state.sds.acknowledgement_timeout_ms * MS // 2
        told_ns = self.told.get(known.payload)
        if told_ns is not None and self.state.now < told_ns + wait:
            self.state.debt.add(known.message_id, known.payload, known.segment_count)
            return
        self.told[known.payload] = self.state.now
        self.told.move_to_end(known.payload)
        if len(self.told) > MAX_TOLD:
            self.told.popitem(last=False)
        holder = self.causal.holder.get(known.message_id)
        if holder is None:
            ours, held = self.state.log.payload_ids(known), known.segment_count
        else:
            ours, held = tuple(holder.ids.values()), len(holder.ids)
        for message_id in dict.fromkeys((known.message_id, *ours)):
            self.state.debt.add(message_id, known.payload, held)

    def archive_rebuilt(self, message: SdsMessage, arrival: Arrival) -> None:
        """Keep the original bytes of a segment that was rebuilt before they came: now others can be given them."""
        if (
            message.message_id not in self.delivery.names.rebuilt
            or message.message_id in self.state.archive
        ):
            return
        try:
            proven = proves_id(message, self.segment_of(message))
        except InvalidSegmentError:
            return
        if proven:
            self.acceptance.archive(message, arrival)

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

    def listen(self, message: SdsMessage, arrival: Arrival, *, fresh: bool) -> int:
        """Take everything that a message says besides its content; return how many others may answer it.

        Args:
            message: Of the kinds content and sync.
            arrival: How it came.
            fresh: It was not heard before, so its filter is new evidence, and what it asks for is not answered yet.
        """
        state, now, sender_id = self.state, self.state.now, message.sender_id
        lamport, history = message.lamport_timestamp or 0, message.causal_history
        if lamport > state.lamport:
            state.see_lamport(lamport, now)
        if sender_id != state.sender_id:
            state.participants.hear(sender_id, now)
            bloom_filter = message.bloom_filter if fresh else None
            self.acknowledgements.hear(sender_id, history, bloom_filter, now)
            state.debt.hear(sender_id, history)
            if fresh and message.repair_request and self.is_live(message, arrival):
                self.responder.requested(message)
            self.syncs.drop_needless()
        group = state.group(now)
        if message.content:
            state.sync.active(now, group)
        else:
            # Somebody who lacks what we have must not keep us from saying so.
            newest = state.log.newest(1)
            if not newest or newest[0] in [entry.message_id for entry in history]:
                state.sync.heard_sync(now, group)
        return group

    def is_live(self, message: SdsMessage, arrival: Arrival) -> bool:
        """Tell whether what a message asks for is still wanted: its bytes say the same for ever.

        A copy from a store, or one that was sent long ago, asks for what has been answered since.
        """
        age_ms = self.state.now // MS - (message.lamport_timestamp or 0)
        return not arrival.from_store and age_ms < self.state.sds.repair_t_max_ms

    # -- content ----------------------------------------------------------------------------------

    def take_message(self, message: SdsMessage, arrival: Arrival) -> None:
        """Take a whole message of an implementation that does not segment."""
        content = message.content or b""
        self.take_whole(message, whole_key(message), content, arrival, proven=False)

    def take_segment(
        self, message: SdsMessage, segment: SegmentMessage, arrival: Arrival, *, proven: bool
    ) -> None:
        """Take a data segment, unless there is no room for it; then it is not acknowledged either."""
        key = self.reassembler.key_of(message.sender_id, segment)
        if segment.data_segment_count == 1:
            if keccak256(segment.payload) != segment.entire_message_hash:
                self.state.outbox.drop("hash_mismatch")
            else:
                self.take_whole(message, key, segment.payload, arrival, proven=proven)
            return
        index = segment.data_segment_index
        waiting = self.reassembler.sets.get(key)
        digest = set_digest(key) if waiting is None else digest_of(waiting)
        held = self.reassembler.completed.get(digest)
        if held is not None and (
            segment.wrap_time_ns or not held >> index & 1 or is_canonical(message, segment)
        ):
            self.take_late(message, segment, key, held, arrival, proven=proven)
            return
        extra = history_octets(message.causal_history)
        reason = self.delivery.refusal(key, segment, extra, message.message_id)
        if reason is not None:
            self.state.outbox.drop(reason)
            return
        known = self.acceptance.accept(
            message, index, segment.data_segment_count, arrival, logged=False, proven=proven
        )
        payload = self.delivery.take(key, segment, extra)
        payload.digest = digest
        payload.has_odd = payload.has_odd or not segment.is_plain
        self.acceptance.join(payload, message, index)
        self.state.debt.add(message.message_id, known.payload, len(payload.ids))
        self.state.outbox.count("segments_received")
        self.delivery.progress(payload, segment)
        self.acceptance.keep(message, payload)
        self.after_accept(message, arrival, index)
        if self.reassembler.is_complete(payload):
            self.delivery.finish_set(payload, segment)
        if payload.held_parity:
            self.acceptance.keep_parity(payload)

    def take_whole(
        self, message: SdsMessage, key: SetKey, content: bytes, arrival: Arrival, *, proven: bool
    ) -> None:
        """Take a message that is a whole payload."""
        known = self.acceptance.accept(
            message, 0, 1, arrival, logged=False, proven=proven, has_row=False
        )
        self.reassembler.serial += 1
        payload = IncomingPayload(serial=self.reassembler.serial, key=key)
        payload.message = content
        payload.octets = len(content) + history_octets(message.causal_history)
        self.acceptance.join(payload, message, 0)
        self.state.debt.add(message.message_id, known.payload, 1)
        self.state.outbox.count("segments_received")
        self.after_accept(message, arrival)
        self.delivery.complete(payload)
        # Most are delivered at once, which writes the id's row: only one that is parked has to outlive a restart.
        if payload.serial in self.causal.parked:
            self.state.log.keep(known)
            self.acceptance.keep(message, payload)

    def take_late(
        self,
        message: SdsMessage,
        segment: SegmentMessage,
        key: SetKey,
        held: int,
        arrival: Arrival,
        *,
        proven: bool,
    ) -> None:
        """Take a data segment of a payload that was rebuilt without it: acknowledged, never delivered again.

        While the payload waits for its turn, what names the segment waits for it too.
        """
        index = segment.data_segment_index
        parked = self.causal.parked_as(key)
        if parked is not None and not (
            parked.is_part(segment) and (index not in parked.ids or is_canonical(message, segment))
        ):
            self.state.outbox.drop("conflicting_segment")
            return
        known = self.acceptance.accept(
            message,
            index,
            segment.data_segment_count,
            arrival,
            logged=parked is None,
            proven=proven,
        )
        self.delivery.remember(set_digest(key), held | 1 << index, segment.data_segment_count)
        if parked is not None:
            self.delivery.join_late(parked, message, index)
        self.state.debt.add(message.message_id, known.payload, known.segment_count)
        self.state.outbox.count("late_segments")
        self.after_accept(message, arrival)
        if parked is None:
            self.causal.release_waiters((message.message_id,))

    def after_accept(self, message: SdsMessage, arrival: Arrival, index: int = 0) -> None:
        """Listen to an accepted message and look for what it names."""
        group = self.listen(message, arrival, fresh=True)
        self.gaps.look_for(message, index)
        self.state.sync.owe(self.state.now, group)

    # -- syncs and ephemerals ---------------------------------------------------------------------

    def receive_sync(self, message: SdsMessage, arrival: Arrival) -> None:
        """Take a sync message: evidence about ours, and names of what we may lack."""
        if not self.passing.pass_by(message.message_id, proven=False):
            return
        self.state.outbox.count("syncs_received")
        group = self.listen(message, arrival, fresh=True)
        self.gaps.look_for(message)
        self.state.sync.owe(self.state.now, group)

    def receive_ephemeral(self, message: SdsMessage) -> None:
        """Take an ephemeral message: delivered at once, or parity that may complete a payload."""
        try:
            segment = self.segment_of(message)
        except InvalidSegmentError as error:
            self.state.outbox.drop(error.reason)
            return
        if self.passing.pass_by(message.message_id, proven=proves_id(message, segment)):
            self.passing.receive(message, segment)


def is_canonical(message: SdsMessage, segment: SegmentMessage) -> bool:
    """Tell whether the id of a segment is that of its bytes as they are written, without any that are skipped."""
    expected = salted_id(message.sender_id, segment.wrap_time_ns, segment.encode())
    return message.message_id == expected


def proves_id(message: SdsMessage, segment: SegmentMessage | None) -> bool:
    """Tell whether the content of a message gives its id, so that nobody can have given it to other content.

    An id with wrap time was checked before (``forged_id``). Without one it is the hash of a segment's bytes as they are
    written, payload hash first: a sender id cannot begin so, and what an id with wrap time is the hash of is no content
    that proves the same id.

    Args:
        message: A valid content or ephemeral message.
        segment: What ``segment_of`` found in it.
    """
    if segment is None:
        return False
    if segment.wrap_time_ns:
        return True
    content = message.content or b""
    return content.startswith(SEGMENT_START) and message.message_id == salted_id("", 0, content)
