"""The way in: check, acknowledge, find gaps, reassemble, deliver in causal order.

::

    bytes ─ decode ─ refuse? ─ SDS: clock, evidence, debt ─► reassembly ─ complete ─► causal order ─► received
                                        │ unknown ids                                  │ unmet
                                        ▼                                              ▼
                                     missing ─ Fetch ─ found ─► the same way        parked ─ met, lost or timed out

A segment goes to reassembly as soon as SDS has accepted it; order is kept between whole payloads. Remote bytes never
raise: what is refused is counted by reason.

Spec: RELIABLE-CHANNEL-API, Incoming message processing; LIP-109 (SDS), Receive, Deliver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reliable_channel.core.hashing import keccak256
from reliable_channel.core.outgoing import OutgoingPipeline
from reliable_channel.core.reassembly import IncomingPayload, Reassembler, assemble, set_digest
from reliable_channel.core.sds.causal import CausalOrder, IdRing
from reliable_channel.core.sds.log import ENTRY_OVERHEAD, KnownMessage
from reliable_channel.core.sds.missing import (
    FETCH_TIMER,
    QUERY_DELAYS_NS,
    MissingMessage,
    MissingMessages,
)
from reliable_channel.core.segmentation import MAX_MESSAGE_ID_BYTES, check_segment, is_segmented
from reliable_channel.core.state import ChannelState, salted_id
from reliable_channel.core.wire import HistoryEntry, SdsKind, SdsMessage, SegmentMessage
from reliable_channel.errors import DecodeError, InvalidSegmentError
from reliable_channel.events import (
    MessageLostEvent,
    MessageReceivedEvent,
    SenderIdConflictEvent,
)
from reliable_channel.identifiers import CONTROL, is_identifier
from reliable_channel.records import CompletedRecord, PendingRecord
from reliable_channel.types import MS, MessageId, Nanoseconds, ParticipantId

MAX_LAMPORT: Final = 1 << 63
"""Lamport times from here on are malformed: signed 64-bit readers would see them negative."""

INCOMPLETE_EPOCHS: Final = 3
"""Epochs that an incomplete payload is kept at least: its sender may have to wait for the next one."""

MAX_CLOCK_SKEW_MS: Final = 20_000
"""How far other clocks may be behind ours: relays refuse timestamps further off (14/WAKU2-MESSAGE)."""

SETTLE_TIMER: Final = ("settle", "")
MISSING_TIMER: Final = ("missing", "")


class IncomingPipeline:
    """Messages of others, from their bytes to the received event.

    Args:
        state: What both directions share.
        outgoing: Told what others' messages say about ours.
        reassembler: Incomplete payloads.
        passing: Ids of syncs and ephemerals seen or sent.
        max_message_bytes: Largest encoded WakuMessage, bytes.
    """

    def __init__(
        self,
        state: ChannelState,
        outgoing: OutgoingPipeline,
        reassembler: Reassembler,
        passing: IdRing,
        max_message_bytes: int,
    ) -> None:
        self.state = state
        self.outgoing = outgoing
        self.reassembler = reassembler
        self.max_message_bytes = max_message_bytes
        self.causal = CausalOrder(state.sds, state.log, state.outbox, passing, self.deliver)
        self.missing = MissingMessages(state.sds, state.timers)
        self.payloads: dict[int, IncomingPayload] = {}
        self.now: Nanoseconds = 0

    # -- receive ----------------------------------------------------------------------------------

    def receive(
        self,
        data: bytes,
        transport_hash: bytes | None,
        now: Nanoseconds,
        *,
        fetched: bool = False,
    ) -> bool:
        """Take decrypted bytes from the network; say whether they were a message of this channel.

        Args:
            data: What should be an encoded SDS message.
            transport_hash: Under which a store has it; None when no store keeps it.
            now: Unix time, nanoseconds.
            fetched: It comes from a store, so it may be from long ago.
        """
        self.now = now
        outbox = self.state.outbox
        try:
            message = SdsMessage.decode(data)
        except DecodeError:
            outbox.drop("malformed")
            return False
        reason = self.refusal(message)
        if reason is not None:
            outbox.drop(reason)
            return False
        self.state.last_seen_ns = max(self.state.last_seen_ns, now)
        if message.sender_id == self.state.sender_id and self.is_echo(message):
            outbox.count("echoes")
            return True
        if message.kind is SdsKind.CONTENT:
            if not fetched:
                self.lower_floor(message.lamport_timestamp or 0)
            self.receive_content(message, transport_hash)
        elif message.kind is SdsKind.SYNC:
            self.receive_sync(message)
        else:
            self.receive_ephemeral(message)
        return True

    def refusal(self, message: SdsMessage) -> str | None:
        """Return why a message is no valid message of this channel, as a word, or None.

        Spec: LIP-109 (SDS), Message; docs/wire.md for the limits.
        """
        if message.channel_id != self.state.channel_id:
            return "foreign_channel"
        if message.kind is None:
            return "malformed_kind"
        if not is_identifier(message.sender_id):
            return "invalid_sender_id"
        if not is_message_id(message.message_id):
            return "invalid_message_id"
        if message.lamport_timestamp is not None and message.lamport_timestamp >= MAX_LAMPORT:
            return "invalid_lamport_timestamp"
        limit = self.state.sds.max_history_entries
        if len(message.causal_history) > limit or len(message.repair_request) > limit:
            return "history_too_long"
        for entry in message.causal_history:
            if not is_message_id(entry.message_id):
                return "invalid_history_entry"
        return None

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
                    time_ns=self.now,
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

    def lower_floor(self, lamport: int) -> None:
        """Take messages of a sender whose clock is behind ours as of our time, from our start on.

        How far it is behind shows in a message that arrives by itself, and not from a store.
        """
        start = self.state.created_ns // MS
        behind = self.now // MS - lamport
        if self.causal.floor <= start and 0 < behind <= MAX_CLOCK_SKEW_MS:
            self.causal.floor = min(self.causal.floor, start - behind)

    def receive_content(self, message: SdsMessage, transport_hash: bytes | None) -> None:
        """Take a content message: a duplicate, a segment, or a whole message without segmentation."""
        known = self.state.log.known.get(message.message_id)
        if known is not None:
            self.receive_duplicate(message, known, transport_hash)
            return
        try:
            segment = self.segment_of(message)
        except InvalidSegmentError as error:
            self.state.outbox.drop(error.reason)
            return
        if segment is None:
            self.take_message(message, transport_hash)
        elif segment.is_parity:
            self.state.outbox.drop("parity_not_ephemeral")
        else:
            self.take_segment(message, segment, transport_hash)

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
        self.state.sync.owe(self.now, self.state.group(self.now))

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
            fresh: It was not heard before, so its filter is new evidence.
        """
        state, now = self.state, self.now
        state.see_lamport(message.lamport_timestamp or 0, now)
        if message.sender_id != state.sender_id:
            state.participants.hear(message.sender_id, now)
            bloom_filter = message.bloom_filter if fresh else None
            self.outgoing.hear(message.sender_id, message.causal_history, bloom_filter, now)
            state.debt.hear(message.sender_id, message.causal_history)
            self.outgoing.drop_needless_sync()
        group = state.group(now)
        if message.kind is SdsKind.SYNC:
            # Somebody who lacks what we have must not keep us from saying so.
            newest = state.log.newest(1)
            if not newest or any(entry.message_id == newest[0] for entry in message.causal_history):
                state.sync.heard_sync(now, group)
        else:
            state.sync.active(now, group)

    def look_for(self, message: SdsMessage) -> None:
        """Begin to look for ids that a message names and we lack; those below the floor are let be."""
        lamport = message.lamport_timestamp
        if lamport is not None and lamport < self.causal.floor:
            return
        proven = False
        for entry in message.causal_history:
            known = self.state.log.known.get(entry.message_id)
            if known is not None:
                # What follows a message of our time in a content message's history is of our time too.
                in_order = message.kind is SdsKind.CONTENT
                proven = proven or (in_order and known.lamport >= self.state.created_ns // MS)
            elif entry.message_id in self.missing or self.causal.lacks(entry.message_id):
                self.look_for_one(entry, message.sender_id, proven=proven)

    def look_for_one(self, entry: HistoryEntry, named_by: ParticipantId, *, proven: bool) -> None:
        """Begin to look for an id that a participant named."""
        may_predate = self.is_settling() and not proven
        if not self.missing.track(
            entry, named_by, self.now, may_predate=may_predate, proven=proven
        ):
            self.state.outbox.drop("missing_ids_full")
            return
        self.watch_missing()
        if may_predate:
            self.state.timers.set_earlier(SETTLE_TIMER, self.now + self.grace_ns)

    @property
    def grace_ns(self) -> Nanoseconds:
        """How long a new channel waits for what may be from before its time, nanoseconds."""
        return 2 * self.state.sds.acknowledgement_timeout_ms * MS

    def is_settling(self) -> bool:
        """Tell whether the channel is so new that others may name what was never meant for it."""
        return not self.state.settled_at_ns or self.state.settled_at_ns > self.now

    # -- content ----------------------------------------------------------------------------------

    def take_message(self, message: SdsMessage, transport_hash: bytes | None) -> None:
        """Take a whole message of an implementation that does not segment."""
        content = message.content or b""
        key = (message.sender_id, message.message_id.encode(), 0, 1, 0, len(content), 0)
        self.take_whole(message, key, content, transport_hash)

    def take_segment(
        self, message: SdsMessage, segment: SegmentMessage, transport_hash: bytes | None
    ) -> None:
        """Take a data segment, unless there is no room for it; then it is not acknowledged either."""
        key = self.reassembler.key_of(message.sender_id, segment)
        if segment.data_segment_count == 1:
            if keccak256(segment.payload) != segment.entire_message_hash:
                self.state.outbox.drop("hash_mismatch")
            else:
                self.take_whole(message, key, segment.payload, transport_hash)
            return
        index = segment.data_segment_index
        digest = set_digest(key)
        held = self.reassembler.completed.get(digest)
        if held is not None and (segment.wrap_time_ns or not held >> index & 1):
            self.take_late(message, segment, digest, held, transport_hash)
            return
        rival = self.reassembler.sets.get(key)
        if rival is not None and rival.ephemeral:
            # Data that somebody sent as ephemeral under the same key: content is what gets acknowledged.
            self.reassembler.drop_data(rival)
        extra = history_octets(message)
        reason = self.reassembler.refusal(key, segment, extra)
        if reason is not None:
            self.state.outbox.drop(reason)
            return
        self.accept(message, index, segment.data_segment_count, transport_hash, logged=False)
        payload = self.reassembler.add(key, segment, ephemeral=False, extra=extra)
        self.join(payload, message, index)
        self.state.debt.add(
            message.message_id, self.state.log.known[message.message_id].payload, len(payload.ids)
        )
        self.state.outbox.count("segments_received")
        self.wait_for_rest(payload)
        self.keep(message, payload)
        self.after_accept(message)
        if self.reassembler.is_complete(payload):
            self.finish_set(payload)

    def take_whole(
        self,
        message: SdsMessage,
        key: tuple[ParticipantId, bytes, int, int, int, int, int],
        content: bytes,
        transport_hash: bytes | None,
    ) -> None:
        """Take a message that is a whole payload."""
        known = self.accept(message, 0, 1, transport_hash, logged=False)
        self.reassembler.serial += 1
        payload = IncomingPayload(serial=self.reassembler.serial, key=key, ephemeral=False)
        payload.message = content
        payload.octets = len(content) + history_octets(message)
        self.join(payload, message, 0)
        self.state.debt.add(message.message_id, known.payload, 1)
        self.state.outbox.count("segments_received")
        self.keep(message, payload)
        self.after_accept(message)
        self.complete(payload)

    def take_late(
        self,
        message: SdsMessage,
        segment: SegmentMessage,
        digest: bytes,
        held: int,
        transport_hash: bytes | None,
    ) -> None:
        """Take a data segment of a payload that was rebuilt without it: acknowledged, never delivered again."""
        index = segment.data_segment_index
        known = self.accept(message, index, segment.data_segment_count, transport_hash, logged=True)
        self.remember(digest, held | 1 << index, segment.data_segment_count)
        self.state.debt.add(message.message_id, known.payload, known.segment_count)
        self.state.outbox.count("late_segments")
        self.after_accept(message)
        self.causal.release_waiters((message.message_id,))

    def accept(
        self,
        message: SdsMessage,
        index: int,
        segment_count: int,
        transport_hash: bytes | None,
        *,
        logged: bool,
    ) -> KnownMessage:
        """Make a message known: from now on it deduplicates, is acknowledged and is not looked for."""
        state = self.state
        known = KnownMessage(
            message.message_id,
            state.see_lamport(message.lamport_timestamp or 0, self.now),
            message.sender_id,
            index=index,
            segment_count=segment_count,
            hint=transport_hash,
            logged=logged,
        )
        state.log.add(known)
        self.missing.remove(message.message_id)
        if not state.settled_at_ns:
            state.settled_at_ns = self.now + self.grace_ns
        return known

    def join(self, payload: IncomingPayload, message: SdsMessage, index: int) -> None:
        """Enter an accepted message in its payload."""
        payload.ids[index] = message.message_id
        payload.lamports[index] = self.state.log.known[message.message_id].lamport
        for entry in message.causal_history:
            payload.dependencies.setdefault(entry.message_id, entry)
        self.causal.hold(message.message_id, payload)

    def keep(self, message: SdsMessage, payload: IncomingPayload) -> None:
        """Write the row from which a restart goes on; delivery takes it away again."""
        self.state.outbox.put_at(
            (message.message_id,),
            PendingRecord(
                message_id=message.message_id,
                sender_id=message.sender_id,
                lamport_timestamp=self.state.log.known[message.message_id].lamport,
                received_ns=self.now,
                history=SdsMessage(causal_history=message.causal_history).encode(),
                content=message.content or b"",
            ),
        )
        self.payloads[payload.serial] = payload

    def after_accept(self, message: SdsMessage) -> None:
        """Listen to an accepted message and look for what it names."""
        self.listen(message, fresh=True)
        self.look_for(message)
        self.state.sync.owe(self.now, self.state.group(self.now))

    def evict(self) -> None:
        """Forget the oldest known ids above the bound; what names them is not waited for from now on."""
        evicted = self.state.log.evict()
        if evicted:
            self.causal.floor = max(self.causal.floor, evicted[-1][0])
            self.state.debt.settle(message_id for _, message_id in evicted)

    def wait_for_rest(self, payload: IncomingPayload) -> None:
        """Let the time run that an incomplete payload may go without progress."""
        wait = max(
            self.state.segmentation.incomplete_timeout_ms * MS,
            INCOMPLETE_EPOCHS * self.outgoing.queue.budget.period,
        )
        self.state.timers.set(("set", payload.serial), self.now + wait)

    # -- whole payloads ---------------------------------------------------------------------------

    def finish_set(self, payload: IncomingPayload) -> None:
        """Put a complete set together and hand it to causal order."""
        self.take_out(payload)
        self.put_together(payload)

    def take_out(self, payload: IncomingPayload) -> None:
        """End the reassembly of a set."""
        self.reassembler.remove(payload)
        self.state.timers.cancel(("set", payload.serial))

    def put_together(self, payload: IncomingPayload) -> None:
        """Make the payload of a complete set, ids of rebuilt segments included, and hand it on."""
        received = len(payload.data)
        received_octets = sum(map(len, (*payload.data.values(), *payload.parity.values())))
        message = assemble(payload)
        if message is None:
            self.state.outbox.drop("hash_mismatch")
            self.give_up(payload, "hash_mismatch")
            return
        if received < payload.data_count:
            self.state.outbox.count("parity_recoveries")
            if not self.infer(payload):
                self.state.outbox.count("duplicates")
                self.forget(payload)
                self.causal.release_waiters(tuple(payload.ids.values()))
                return
        payload.message = message
        payload.data.clear()
        payload.parity.clear()
        payload.octets += len(message) - received_octets
        held = sum(1 << index for index in payload.ids)
        digest = set_digest(payload.key, ephemeral=payload.ephemeral)
        self.remember(digest, held, payload.data_count)
        if payload.ephemeral:
            self.deliver(payload)
        else:
            self.complete(payload)

    def remember(self, digest: bytes, held: int, data_count: int) -> None:
        """Remember a rebuilt payload, so that a late segment delivers nothing twice."""
        forgotten = self.reassembler.remember(digest, held)
        if forgotten is not None:
            self.state.outbox.delete(CompletedRecord, forgotten)
        self.state.outbox.put(
            CompletedRecord(
                set_digest=digest,
                held=held.to_bytes((data_count + 7) // 8, "little"),
                completed_ns=self.now,
            )
        )

    def infer(self, payload: IncomingPayload) -> bool:
        """Make the ids of rebuilt data segments known, as if received; say whether the payload is new.

        A segment's bytes are deterministic, so keccak gives the id that the sender gave. Nothing is inferred
        unless every received segment's own id comes out right.

        Spec: docs/wire.md, parity and causal order. Deviation: LIP-243 leaves rebuilt segments unacknowledged.
        """
        wrap_ns = payload.key[2]
        if payload.ephemeral or not wrap_ns or not payload.ids:
            return True
        contents = [encode_data_segment(payload, index) for index in range(payload.data_count)]
        ids = [salted_id(payload.sender_id, wrap_ns, content) for content in contents]
        if any(ids[index] != message_id for index, message_id in payload.ids.items()):
            return True
        rebuilt = [index for index in range(payload.data_count) if index not in payload.ids]
        if any(ids[index] in self.state.log for index in rebuilt):
            return False
        base, lamport = next(iter(payload.lamports.items()))
        for index in rebuilt:
            rebuilt_message = SdsMessage(
                sender_id=payload.sender_id,
                message_id=ids[index],
                lamport_timestamp=lamport + index - base,
                content=contents[index],
            )
            known = self.accept(rebuilt_message, index, payload.data_count, None, logged=False)
            self.join(payload, rebuilt_message, index)
            self.state.debt.add(ids[index], known.payload, payload.data_count)
            self.keep(rebuilt_message, payload)
            self.state.outbox.count("segments_rebuilt")
        self.state.sync.owe(self.now, self.state.group(self.now))
        return True

    def complete(self, payload: IncomingPayload) -> None:
        """Hand a whole payload to causal order; parked, it waits no longer than the dependency timeout."""
        payload.completed_ns = self.now
        if not self.causal.complete(payload):
            self.state.outbox.count("parked")
            wait = self.state.sds.dependency_timeout_ms * MS
            self.state.timers.set(("dependency", payload.serial), self.now + wait)
            while (oldest := self.causal.overflow(payload.sender_id)) is not None:
                self.deliver_anyway(oldest, "parking_full")

    def deliver(self, payload: IncomingPayload) -> None:
        """Give a payload to the application: its turn has come."""
        ids = payload.ids.values()
        late = not payload.ephemeral and self.causal.was_given_up(ids)
        self.forget(payload)
        self.state.timers.cancel(("dependency", payload.serial))
        self.state.outbox.count("messages_received")
        self.state.outbox.emit(
            MessageReceivedEvent(
                channel_id=self.state.channel_id,
                time_ns=self.now,
                message=payload.message,
                sender_id=payload.sender_id,
                message_id=payload.message_id,
                ephemeral=payload.ephemeral,
                late=late,
            )
        )

    def forget(self, payload: IncomingPayload) -> None:
        """Let go of the rows that a restart would need."""
        self.payloads.pop(payload.serial, None)
        if not payload.ephemeral:
            for message_id in payload.ids.values():
                self.causal.holder.pop(message_id, None)
                self.state.outbox.discard(PendingRecord, message_id)

    def give_up(self, payload: IncomingPayload, reason: str) -> None:
        """Drop a payload that cannot become whole; what was acknowledged of it is an event."""
        self.forget(payload)
        if payload.ephemeral or not payload.ids:
            return
        self.lost(payload.message_id, payload.sender_id, reason)
        for message_id in payload.ids.values():
            self.state.log.forget(message_id)
            self.causal.lose(message_id, self.now)
        self.state.debt.settle(payload.ids.values())

    def lost(self, message_id: MessageId, sender_id: ParticipantId | None, reason: str) -> None:
        """Tell the application that a message will not be waited for."""
        if not is_identifier(sender_id or ""):
            sender_id = None
        self.state.outbox.count("messages_lost")
        self.state.outbox.emit(
            MessageLostEvent(
                channel_id=self.state.channel_id,
                time_ns=self.now,
                message_id=message_id,
                sender_id=sender_id,
                reason=reason,
            )
        )

    # -- syncs and ephemerals ---------------------------------------------------------------------

    def receive_sync(self, message: SdsMessage) -> None:
        """Take a sync message: evidence about ours, and names of what we may lack."""
        if not self.pass_by(message.message_id):
            return
        self.state.outbox.count("syncs_received")
        self.listen(message, fresh=True)
        self.look_for(message)
        self.state.sync.owe(self.now, self.state.group(self.now))

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
            self.deliver(self.passing_payload(message, message.content or b""))
        elif segment.data_segment_count == 1 and segment.is_parity:
            self.state.outbox.drop("parity_of_one_segment")
        elif segment.data_segment_count == 1:
            if keccak256(segment.payload) != segment.entire_message_hash:
                self.state.outbox.drop("hash_mismatch")
            else:
                self.deliver(self.passing_payload(message, segment.payload))
        else:
            self.take_passing_segment(message, segment)

    def pass_by(self, message_id: MessageId) -> bool:
        """Note the id of a sync or ephemeral message; say whether it was not seen before."""
        if message_id in self.causal.passing or message_id in self.state.log:
            self.state.outbox.count("duplicates")
            return False
        self.missing.remove(message_id)
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
        extra = history_octets(message)
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
            self.look_for(message)
        else:
            self.state.outbox.count("segments_received")
            payload.ids[segment.data_segment_index] = message.message_id
        self.wait_for_rest(payload)
        self.payloads[payload.serial] = payload
        if self.reassembler.is_complete(payload):
            self.finish_set(payload)

    # -- gaps -------------------------------------------------------------------------------------

    def ask_when_due(self) -> None:
        """Ask the node's store when something is due, without waiting for the next tick."""
        due = self.state.timers.deadline(FETCH_TIMER)
        if due is not None and due <= self.now:
            self.state.timers.cancel(FETCH_TIMER)
            self.ask()

    def ask(self) -> None:
        """Ask the node's store for what is due."""
        hashes = self.missing.next_query(self.now)
        if hashes:
            self.state.outbox.count("store_queries")
            self.state.outbox.fetch(hashes)

    def fetched(self, found: Sequence[tuple[bytes, bytes | None]], now: Nanoseconds) -> None:
        """Take the answer of the store to a Fetch.

        Args:
            found: Transport hash and decrypted bytes of each message that it had; None where it does not decrypt.
            now: Unix time, nanoseconds.
        """
        self.now = now
        for transport_hash, data in found:
            if data is None:
                self.state.outbox.drop("decrypt_failed")
            else:
                self.receive(data, transport_hash, now, fetched=True)
        self.missing.answered([transport_hash for transport_hash, _ in found])

    def watch_missing(self) -> None:
        """Let the time run after which the oldest missing id is given up."""
        oldest = next(iter(self.missing.messages.values()), None)
        if oldest is not None:
            wait = self.state.sds.dependency_timeout_ms * MS
            self.state.timers.set(MISSING_TIMER, oldest.since_ns + wait)

    def expire_missing(self) -> None:
        """Give up ids that nobody could bring; those that a parked payload waits for end with it."""
        oldest_kept = self.now - self.state.sds.dependency_timeout_ms * MS
        messages = self.missing.messages
        while messages:
            missing = next(iter(messages.values()))
            if missing.since_ns > oldest_kept:
                break
            if self.causal.is_awaited(missing.message_id):
                missing.since_ns = self.now
                messages[missing.message_id] = messages.pop(missing.message_id)
                continue
            self.missing.remove(missing.message_id)
            if not missing.excused:
                self.lost(missing.message_id, missing.sender_id, "dependency_timeout")
                self.causal.lose(missing.message_id, self.now)
        self.watch_missing()

    def settle(self) -> None:
        """Let nobody wait any longer for what may be from before our time; it is looked for all the same.

        A late joiner neither waits for nor reports as lost what was never meant for it.
        """
        before = [item for item in self.missing.messages.values() if item.may_predate]
        ripe = [item for item in before if self.waits_until(item) <= self.now]
        for missing in ripe:
            missing.may_predate = False
            missing.excused = True
        self.state.outbox.count("before_our_time", len(ripe))
        self.causal.excuse([missing.message_id for missing in ripe])
        ends = [self.waits_until(item) for item in before if item.may_predate]
        if ends:
            self.state.timers.set(SETTLE_TIMER, min(ends))

    def waits_until(self, missing: MissingMessage) -> Nanoseconds:
        """Return how long something that may be from before our time is waited for: until the store was asked."""
        wait = self.grace_ns
        if missing.next_query_ns:
            wait = max(wait, QUERY_DELAYS_NS[-1])
        return missing.since_ns + wait

    def dependency_timed_out(self, serial: int) -> None:
        """Deliver a payload that has waited long enough, whatever is still missing."""
        payload = self.causal.parked.get(serial)
        if payload is not None:
            self.deliver_anyway(payload, "dependency_timeout")

    def deliver_anyway(self, payload: IncomingPayload, reason: str) -> None:
        """Declare lost what a parked payload, or one it waits for, still misses; that delivers it."""
        for message_id in self.causal.closure(payload)[1]:
            missing = self.missing.remove(message_id)
            entry = payload.dependencies.get(message_id)
            sender_id = missing.sender_id if missing else entry.sender_id if entry else None
            self.lost(message_id, sender_id, reason)
            self.causal.lose(message_id, self.now)
        if payload.serial in self.causal.parked:
            self.causal.force(payload)

    def set_timed_out(self, serial: int) -> None:
        """Drop an incomplete payload that made no progress."""
        payload = self.payloads.get(serial)
        if payload is not None and payload.key in self.reassembler.sets:
            self.reassembler.remove(payload)
            self.state.outbox.count("incomplete_dropped")
            self.give_up(payload, "incomplete_timeout")


def history_octets(message: SdsMessage) -> int:
    """Return about how many bytes the causal history of a message takes while its payload waits."""
    return sum(
        len(entry.message_id) + len(entry.sender_id or "") + ENTRY_OVERHEAD
        for entry in message.causal_history
    )


def is_message_id(text: str) -> bool:
    """Tell whether a text may be a message id: 1 to 256 bytes of UTF-8 without control characters."""
    if text.isascii() and text.isalnum():
        return len(text) <= MAX_MESSAGE_ID_BYTES
    return 0 < len(text.encode()) <= MAX_MESSAGE_ID_BYTES and not CONTROL.search(text)


def encode_data_segment(payload: IncomingPayload, index: int) -> bytes:
    """Return the exact bytes that the sender gave a data segment of a set."""
    _, digest, wrap_ns, count, parity_count, length, code = payload.key
    return SegmentMessage(
        entire_message_hash=digest,
        data_segment_index=index,
        data_segment_count=count,
        payload=payload.data[index],
        parity_segment_count=parity_count,
        original_payload_length=length,
        parity_code=code,
        wrap_time_ns=wrap_ns,
    ).encode()
