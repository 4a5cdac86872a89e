"""The way out: segment, make SDS messages, wait for the budget, hand to the node, watch acknowledgements.

::

    send ─ split ─ ids, Lamport times, histories ─► FRESH ─┐
                              acknowledgement timer ─► REPAIR ─┤  epoch   freeze SDS
                                       ack debt, idle ─► SYNC ─┼► budget ─► header ─► Publish
                                       parity segments ─► PARITY ─┘
    published ─► sent, timer runs      publish_failed ─► again later, or send-error
    history, filter of others ─► evidence ─► delivered       timer ─► again, or delivery-error

It must not deliver anything to the application but what became of its own requests.

Spec: RELIABLE-CHANNEL-API, Outgoing message processing; LIP-109 (SDS), Send.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reliable_channel.core import reed_solomon
from reliable_channel.core.dispatch import DispatchQueue, InFlight, ParityTurn, SyncTurn
from reliable_channel.core.effects import Publish
from reliable_channel.core.hashing import keccak256_parts
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.requests import OutgoingSegment, Request, RequestBook, RequestState
from reliable_channel.core.sds.bloom import BloomShape, hash_pair
from reliable_channel.core.sds.causal import IdRing
from reliable_channel.core.sds.log import KnownMessage
from reliable_channel.core.sds.sync import IDLE_TIMER, SYNC_TIMER
from reliable_channel.core.segmentation import Segmenter
from reliable_channel.core.state import ChannelState, salted_id
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage, content_suffix
from reliable_channel.errors import (
    ChannelFullError,
    EmptyPayloadError,
    InvalidPayloadError,
    MessageTooLargeError,
)
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageProgressEvent,
    MessageQueuedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import BodyRecord
from reliable_channel.types import MS, SECOND, MessageId, Nanoseconds, ParticipantId, RequestId

MAX_FILTER_RATIO: Final = 0.6
"""A filter with more of its bits set says yes too easily to be evidence."""

REDO_FIRST_NS: Final = SECOND
"""First wait after the node failed to take a message; it doubles up to ``REDO_LONGEST_NS``."""

REDO_LONGEST_NS: Final = 16 * SECOND


class OutgoingPipeline:
    """Requests of ours, from ``send`` to their final event.

    Args:
        state: What both directions share.
        segmenter: Cuts payloads.
        queue: What waits for its turn.
        passing: Ids of syncs and ephemerals; ours go there too, so that echoes are known.
    """

    def __init__(
        self, state: ChannelState, segmenter: Segmenter, queue: DispatchQueue, passing: IdRing
    ) -> None:
        self.state = state
        self.segmenter = segmenter
        self.queue = queue
        self.passing = passing
        self.book = RequestBook(state.sds.max_finished_requests, state.outbox)
        self.segments: dict[RequestId, OutgoingSegment] = {}
        self.unannounced: list[Request] = []
        self.last_sync_ns = 0
        self.sync_count = 0
        backoff = state.sds.retransmission_backoff
        self.backoff = backoff if backoff is not None else (2.0 if queue.budget.enabled else 1.0)
        self.shape = (
            BloomShape(state.sds.bloom_capacity, state.sds.bloom_error_rate)
            if state.sds.bloom_capacity
            else None
        )

    # -- send -------------------------------------------------------------------------------------

    def check_payload(self, payload: object) -> bytes:
        """Return the payload as bytes.

        Raises:
            InvalidPayloadError: It is not bytes.
            EmptyPayloadError: It is empty.
            MessageTooLargeError: It would not fit, whatever is acknowledged meanwhile.
        """
        if not isinstance(payload, (bytes, bytearray, memoryview)):
            raise InvalidPayloadError(payload)
        data = bytes(payload)
        if not data:
            raise EmptyPayloadError
        self.segmenter.plan(len(data))
        if len(data) > self.state.sds.max_outgoing_bytes:
            raise MessageTooLargeError(len(data), self.state.sds.max_outgoing_bytes)
        return data

    def has_room(self, payload_bytes: int) -> bool:
        """Tell whether a payload of so many bytes can be taken now."""
        return (
            self.book.open_count < self.state.sds.max_outgoing_messages
            and self.book.open_octets + payload_bytes <= self.state.sds.max_outgoing_bytes
        )

    def send(self, payload: object, now: Nanoseconds, *, ephemeral: bool) -> RequestId:
        """Take a payload: ids, Lamport times and histories of all its segments are fixed in this step.

        Raises:
            ChannelFullError: Too much is not acknowledged yet; see also ``check_payload``.
        """
        data = self.check_payload(payload)
        if not self.has_room(len(data)):
            raise ChannelFullError(
                self.state.channel_id, self.book.open_count, self.book.open_octets
            )
        wrap_ns = self.state.next_wrap_ns(now)
        contents = self.segmenter.split(
            data, wrap_ns if ephemeral or self.state.sds.message_id == "salted" else 0
        )
        request = Request(
            request_id=f"{self.state.random.getrandbits(96):024x}",
            created_ns=now,
            payload_bytes=len(data),
            segment_count=len(contents),
            ephemeral=ephemeral,
        )
        self.make_segments(request, contents, wrap_ns, now)
        self.book.open(request)
        self.state.outbox.put(request.record())
        for segment in request.segments:
            self.segments[segment.segment_id] = segment
            self.enqueue(TrafficClass.FRESH, segment, now)
        self.enqueue_parity(request, contents, wrap_ns, now)
        self.unannounced.append(request)
        self.state.outbox.count("requests")
        return request.request_id

    def make_segments(
        self, request: Request, contents: list[bytes], wrap_ns: Nanoseconds, now: Nanoseconds
    ) -> None:
        """Give each content its id, Lamport time and history, and enter it in the log."""
        state = self.state
        salt = wrap_ns if request.ephemeral or state.sds.message_id == "salted" else 0
        lamport = 0 if request.ephemeral else state.next_lamport(now, len(contents))
        for index, content in enumerate(contents):
            message_id = salted_id(state.sender_id, salt, content)
            segment = OutgoingSegment(
                request=request,
                index=index,
                message_id=message_id,
                lamport=lamport + index if lamport else 0,
                history=() if request.ephemeral else self.history(message_id),
                suffix=content_suffix(content),
            )
            request.segments.append(segment)
            state.outbox.put(BodyRecord(message_id=message_id, part="content", data=segment.suffix))
            state.outbox.put(segment.record())
            if not request.ephemeral:
                self.enter(segment)

    def history(self, message_id: MessageId) -> tuple[MessageId, ...]:
        """Return the ids that a message names, without its own (``message_id="content"``)."""
        return tuple([item for item in self.state.log.next_history() if item != message_id])

    def enter(self, segment: OutgoingSegment) -> None:
        """Make a segment of ours known and logged; with ``message_id="content"`` it may be already."""
        segment.pair = hash_pair(segment.message_id)
        segment.made_known = segment.message_id not in self.state.log
        if segment.made_known:
            self.state.log.add(
                KnownMessage(
                    segment.message_id,
                    segment.lamport,
                    self.state.sender_id,
                    index=segment.index,
                    segment_count=segment.request.segment_count,
                    hint=None,
                    logged=True,
                )
            )
        self.state.log.extend_frontier(segment.message_id, segment.history)

    def enqueue_parity(
        self, request: Request, contents: list[bytes], wrap_ns: Nanoseconds, now: Nanoseconds
    ) -> None:
        """Let the parity segments of a payload wait: ephemeral SDS messages that nobody waits for.

        Spec: LIP-243, Reed-Solomon; docs/wire.md, parity and causal order.
        """
        first = SegmentMessage.decode(contents[0])
        if not first.parity_segment_count:
            return
        chunk = len(first.payload)
        shards = [SegmentMessage.decode(item).payload.ljust(chunk, b"\0") for item in contents]
        code = self.state.segmentation.parity_code
        parity = reed_solomon.encode_parity(shards, first.parity_segment_count, code)
        for index, shard in enumerate(parity):
            content = SegmentMessage(
                entire_message_hash=first.entire_message_hash,
                data_segment_count=first.data_segment_count,
                payload=shard,
                parity_segment_index=index,
                parity_segment_count=first.parity_segment_count,
                is_parity=True,
                original_payload_length=first.original_payload_length,
                parity_code=first.parity_code,
                wrap_time_ns=first.wrap_time_ns,
            ).encode()
            turn = ParityTurn(
                request=request,
                message_id=salted_id(self.state.sender_id, wrap_ns, content),
                segment_id=f"{request.request_id}:{len(contents) + index + 1}",
                suffix=content_suffix(content),
            )
            self.queue.put(TrafficClass.PARITY, turn.segment_id, turn, now)

    def enqueue(self, traffic: TrafficClass, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Let a segment wait for its turn; it is queued at most once."""
        if not segment.queued:
            segment.queued = True
            self.queue.put(traffic, segment.segment_id, segment, now)

    # -- dispatch ---------------------------------------------------------------------------------

    def pump(self, now: Nanoseconds) -> None:
        """Give the node what may go out now."""
        while (turn := self.queue.next_turn(now)) is not None:
            segment_id, flight = turn
            self.dispatch(segment_id, flight, now)
        if self.unannounced:
            self.announce(now)

    def dispatch(self, segment_id: RequestId, flight: InFlight, now: Nanoseconds) -> None:
        """Make the bytes of what has its turn and publish them."""
        turn = flight.turn
        if isinstance(turn, OutgoingSegment):
            self.dispatch_segment(segment_id, turn, now)
        elif isinstance(turn, ParityTurn):
            self.dispatch_parity(turn, now)
        else:
            self.dispatch_sync(segment_id, turn, now)

    def dispatch_segment(
        self, segment_id: RequestId, segment: OutgoingSegment, now: Nanoseconds
    ) -> None:
        """Publish a data segment; retransmissions send the frozen bytes unchanged."""
        segment.queued = False
        segment.in_flight = True
        segment.transmissions += 1
        if segment.propagated:
            segment.retransmissions += 1
            self.state.outbox.count("retransmissions")
        if segment.header is None:
            segment.header = self.freeze(segment, now)
        self.state.outbox.put(segment.record())
        self.state.outbox.count("transmissions")
        self.state.outbox.publish(
            Publish(
                segment_id,
                segment.header + segment.suffix,
                segment.request.ephemeral,
                self.queue.expiry(now),
            )
        )

    def freeze(self, segment: OutgoingSegment, now: Nanoseconds) -> bytes:
        """Encode all fields of a segment's SDS message but its content, and keep them.

        Bloom filter and retrieval hints are those of now. Ids that were never published are left out.
        """
        state = self.state
        if segment.request.ephemeral:
            message = self.plain_message(segment.message_id)
            self.passing.add(segment.message_id)
        else:
            history = state.log.dispatch_history(segment.history)
            message = SdsMessage(
                sender_id=state.sender_id,
                message_id=segment.message_id,
                channel_id=state.channel_id,
                lamport_timestamp=segment.lamport,
                causal_history=history,
                bloom_filter=state.log.bloom_bytes(),
            )
            segment.settled = tuple(state.debt.settle(entry.message_id for entry in history))
            group = state.group(now)
            state.sync.owe(now, group)
            state.sync.active(now, group)
        header = message.encode()
        state.outbox.put(BodyRecord(message_id=segment.message_id, part="header", data=header))
        return header

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

    def dispatch_parity(self, turn: ParityTurn, now: Nanoseconds) -> None:
        """Publish a parity segment; it carries the history of the payload's first segment."""
        history: tuple[HistoryEntry, ...] = ()
        if not turn.request.ephemeral and turn.request.segments:
            history = self.state.log.entries(turn.request.segments[0].history)
        self.passing.add(turn.message_id)
        self.state.outbox.count("transmissions")
        self.state.outbox.count("parity_transmissions")
        header = self.plain_message(turn.message_id, history).encode()
        self.state.outbox.publish(
            Publish(
                turn.segment_id,
                header + turn.suffix,
                ephemeral=True,
                expires_ns=self.queue.expiry(now),
            )
        )

    def dispatch_sync(self, segment_id: RequestId, turn: SyncTurn, now: Nanoseconds) -> None:
        """Compose and publish a sync message."""
        state = self.state
        self.last_sync_ns = max(now, self.last_sync_ns + 1)
        named = state.sync.compose(self.segmenter.sync_entry_room)
        message_id = keccak256_parts(
            state.sender_id.encode(), str(self.last_sync_ns).encode()
        ).hex()
        message = SdsMessage(
            sender_id=state.sender_id,
            message_id=message_id,
            channel_id=state.channel_id,
            lamport_timestamp=state.next_lamport(now),
            causal_history=state.log.entries(named),
            bloom_filter=state.log.bloom_bytes(),
        )
        turn.named = tuple(state.debt.settle(named))
        self.passing.add(message_id)
        group = state.group(now)
        state.timers.cancel(SYNC_TIMER)
        state.sync.urgent = False
        state.sync.owe(now, group)
        if turn.idle:
            state.sync.sent_idle(now, group)
        else:
            state.sync.put_off(now, group)
        state.outbox.count("transmissions")
        state.outbox.count("syncs_sent")
        state.outbox.publish(
            Publish(segment_id, message.encode(), ephemeral=True, expires_ns=self.queue.expiry(now))
        )

    def announce(self, now: Nanoseconds) -> None:
        """Tell the application which requests have to wait for the rate limiter, once each."""
        waiting, self.unannounced = self.unannounced, []
        fresh = self.queue.queues[TrafficClass.FRESH]
        if not fresh or not self.queue.budget.enabled:
            return
        if len(self.queue.in_flight) >= self.queue.window:
            self.unannounced = waiting
            return
        places = {segment_id: place for place, segment_id in enumerate(fresh)}
        for request in waiting:
            queued = [item.segment_id for item in request.segments if item.queued]
            if request.is_final or not queued:
                continue
            expected = self.queue.budget.expected_admission(
                TrafficClass.FRESH, now, places.get(queued[0], 0)
            )
            self.state.outbox.count("requests_queued")
            self.state.outbox.emit(
                MessageQueuedEvent(
                    channel_id=self.state.channel_id,
                    time_ns=now,
                    request_id=request.request_id,
                    expected_at=expected,
                )
            )

    def sync_due(self, now: Nanoseconds, *, idle: bool) -> None:
        """Let a sync message wait for its turn, unless there is nothing to say or one waits already."""
        state = self.state
        if idle:
            if not state.log.order:
                state.sync.put_off(now, state.group(now))
                return
        else:
            if not state.debt:
                return
            spaced = self.last_sync_ns + self.queue.budget.sync_spacing(now)
            if spaced > now:
                state.timers.set(SYNC_TIMER, spaced)
                return
        if not self.queue.queues[TrafficClass.SYNC]:
            self.sync_count += 1
            turn = SyncTurn(idle=idle)
            self.queue.put(TrafficClass.SYNC, f"sync:{self.sync_count}", turn, now)

    def drop_needless_sync(self) -> None:
        """Let a waiting sync go when nothing is owed any more: somebody else has acknowledged."""
        if self.state.debt:
            return
        for segment_id, turn in list(self.queue.queues[TrafficClass.SYNC].items()):
            if isinstance(turn, SyncTurn) and not turn.idle:
                self.queue.discard(TrafficClass.SYNC, segment_id)

    def idle_due(self, now: Nanoseconds) -> None:
        """Break a silence."""
        self.sync_due(now, idle=True)
        if IDLE_TIMER not in self.state.timers:
            self.state.sync.put_off(now, self.state.group(now))

    # -- what the node reports --------------------------------------------------------------------

    def published(self, segment_id: RequestId, transport_hash: bytes, now: Nanoseconds) -> None:
        """Take note that the node handed a message to the network."""
        flight = self.queue.landed(segment_id, now)
        if flight is None or not isinstance(flight.turn, OutgoingSegment):
            return
        segment = flight.turn
        segment.in_flight = False
        segment.failures = 0
        segment.first_failure_ns = 0
        if not segment.request.ephemeral:
            self.state.log.confirm_own(segment.message_id, transport_hash)
        if segment.request.is_final:
            return
        self.propagated(segment, now)
        if not segment.request.is_final:
            self.start_timer(segment, now)
            self.state.outbox.put(segment.record())

    def propagated(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Count a segment as handed to the network; the last one makes the request sent."""
        request = segment.request
        if segment.propagated:
            return
        segment.propagated = True
        request.propagated += 1
        if request.propagated == request.segment_count:
            self.sent(request, now)
        self.progress(request, now)

    def sent(self, request: Request, now: Nanoseconds) -> None:
        """Raise the sent event, once; it ends an ephemeral request."""
        if request.sent:
            return
        request.sent = True
        self.state.outbox.emit(
            MessageSentEvent(
                channel_id=self.state.channel_id, time_ns=now, request_id=request.request_id
            )
        )
        if request.ephemeral:
            self.finish(request, RequestState.SENT)
        else:
            self.state.outbox.put(request.record())

    def progress(self, request: Request, now: Nanoseconds) -> None:
        """Show how far a request is."""
        self.state.outbox.emit(
            MessageProgressEvent(
                channel_id=self.state.channel_id,
                time_ns=now,
                request_id=request.request_id,
                sent=request.propagated,
                acknowledged=request.counts(),
                total=request.segment_count,
            )
        )

    def start_timer(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Let the acknowledgement timer run: it starts when the node has reported, never before.

        Spec: RELIABLE-CHANNEL-API, acknowledgementTimeoutMs.
        """
        if segment.request.ephemeral:
            return
        wait = self.state.sds.acknowledgement_timeout_ms * MS
        segment.deadline_ns = now + int(wait * self.backoff**segment.retransmissions)
        self.state.timers.set(("ack", segment.segment_id), segment.deadline_ns)

    def publish_failed(
        self, segment_id: RequestId, error: str, now: Nanoseconds, *, retryable: bool
    ) -> None:
        """Take note that the node did not take a message: again later, or the end of its request."""
        flight = self.queue.landed(segment_id, now, certain_failure=not retryable)
        if flight is None:
            return
        self.state.outbox.count("publish_failures")
        if isinstance(flight.turn, SyncTurn):
            self.sync_failed(flight.turn, now)
        elif isinstance(flight.turn, OutgoingSegment):
            segment = flight.turn
            segment.in_flight = False
            if segment.request.is_final:
                self.failed_late(segment, now)
            elif segment.request.anybody_has(segment.index):
                self.propagated(segment, now)
                self.start_timer(segment, now)
            else:
                self.segment_failed(segment, error, now, retryable=retryable)

    def expired(self, segment_id: RequestId, now: Nanoseconds, *, held_ns: int) -> None:
        """Let a message wait for another turn whose epoch ended before it could be handed over.

        Spec: 17/WAKU2-RLN-RELAY: it would count in an epoch whose budget is spoken for.
        """
        flight = self.queue.landed(segment_id, now, certain_failure=True)
        if flight is None:
            return
        self.state.outbox.count("expired_transmissions")
        if isinstance(flight.turn, SyncTurn):
            self.sync_failed(flight.turn, now)
        elif isinstance(flight.turn, OutgoingSegment):
            segment = flight.turn
            segment.in_flight = False
            self.retry_expired(segment, now, held_ns)

    def retry_expired(self, segment: OutgoingSegment, now: Nanoseconds, held_ns: int) -> None:
        """Let a segment wait for another turn, unless its encryption takes longer than any epoch lasts."""
        if segment.request.is_final:
            self.failed_late(segment, now)
        elif held_ns == 0 or held_ns < self.queue.budget.period:
            self.not_repeated(segment)
            self.redo(segment.segment_id, now)
        else:
            error = "its encryption takes longer than an epoch lasts"
            self.segment_failed(segment, error, now, retryable=True)

    def not_repeated(self, segment: OutgoingSegment) -> None:
        """Take a retransmission back that did not reach the network."""
        if segment.propagated and segment.retransmissions:
            segment.retransmissions -= 1

    def failed_late(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Take an id out of the log that was in flight when its request ended, and never went out."""
        if segment.request.state is RequestState.SEND_ERROR and not segment.propagated:
            self.withdraw_id(segment, now)

    def sync_failed(self, turn: SyncTurn, now: Nanoseconds) -> None:
        """Owe again what a sync that did not go out had named."""
        self.owe_again(turn.named)
        if self.state.debt:
            self.state.timers.set_earlier(SYNC_TIMER, now + REDO_FIRST_NS)

    def owe_again(self, message_ids: Iterable[MessageId]) -> None:
        """Put acknowledgements back that a message named and did not carry to anybody."""
        for message_id in message_ids:
            known = self.state.log.known.get(message_id)
            if known is not None:
                self.state.debt.add(message_id, known.payload, known.segment_count)

    def segment_failed(
        self, segment: OutgoingSegment, error: str, now: Nanoseconds, *, retryable: bool
    ) -> None:
        """Try a data segment again later, or give up."""
        segment.failures += 1
        segment.first_failure_ns = segment.first_failure_ns or now
        patience = self.state.sds.dispatch_timeout_ms * MS
        if retryable and now - segment.first_failure_ns < patience:
            self.not_repeated(segment)
            wait = min(REDO_FIRST_NS << min(segment.failures - 1, 10), REDO_LONGEST_NS)
            self.state.timers.set(("redo", segment.segment_id), now + wait)
        elif segment.propagated:
            segment.first_failure_ns = 0
            self.start_timer(segment, now)
        else:
            self.send_error(segment.request, error, now)

    def redo(self, segment_id: RequestId, now: Nanoseconds) -> None:
        """Queue again what did not go out, unless the leader has it meanwhile."""
        segment = self.segments.get(segment_id)
        if segment is None or segment.request.is_final:
            return
        if not segment.propagated:
            self.enqueue(TrafficClass.FRESH, segment, now)
        elif segment.request.leader_has(segment.index):
            self.start_timer(segment, now)
        else:
            self.enqueue(TrafficClass.REPAIR, segment, now)

    # -- acknowledgements -------------------------------------------------------------------------

    def hear(
        self,
        participant: ParticipantId,
        entries: Iterable[HistoryEntry],
        bloom_filter: bytes | None,
        now: Nanoseconds,
    ) -> None:
        """Take what a participant's message says about segments of ours.

        Args:
            participant: Who sent the message.
            entries: Its causal history: exact acknowledgements.
            bloom_filter: Its filter, weak evidence; None when it has none, or the message was heard before.
            now: Unix time, nanoseconds.

        Spec: LIP-109 (SDS), Receive: review acknowledgement status.
        """
        touched: dict[RequestId, Request] = {}
        for entry in entries:
            for request, index in self.book.index.get(entry.message_id, ()):
                if request.acknowledge(participant, index):
                    touched[request.request_id] = request
        if bloom_filter and self.book.outstanding:
            for segment in self.possible(participant, bloom_filter):
                if segment.request.acknowledge(participant, segment.index):
                    touched[segment.request.request_id] = segment.request
        for request in touched.values():
            if request.request_id in self.book.requests:  # the end of one may forget another
                self.acknowledged(request, participant, now)

    def possible(self, participant: ParticipantId, data: bytes) -> list[OutgoingSegment]:
        """Count what a filter holds; return what it has held in enough messages of the participant."""
        shape = self.shape
        if shape is None or len(data) != shape.byte_length:
            self.state.outbox.count("foreign_filters")
            return []
        if shape.bits_set_ratio(data) > MAX_FILTER_RATIO:
            self.state.outbox.count("full_filters")
            return []
        enough = []
        for segment in self.book.outstanding.values():
            if not segment.transmissions or not shape.has_pair(data, segment.pair):
                continue
            if segment.request.acknowledged.get(participant, 0) >> segment.index & 1:
                continue
            count = segment.possible.get(participant, 0) + 1
            segment.possible[participant] = count
            if count >= self.state.sds.possible_ack_threshold:
                enough.append(segment)
        return enough

    def acknowledged(self, request: Request, participant: ParticipantId, now: Nanoseconds) -> None:
        """Act on news about a request: delivered, or retransmissions that are needless now."""
        self.state.outbox.put(request.acknowledgement_record(participant))
        self.state.outbox.put(request.record())
        self.state.outbox.count("acknowledgements")
        if request.is_final:
            self.progress(request, now)
            return
        if request.leader_has_all():
            self.delivered(request, now)
            return
        for segment in request.segments:
            if segment.transmissions and request.leader_has(segment.index):
                self.stop_repeating(segment, now)
        self.progress(request, now)

    def stop_repeating(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Take an acknowledged segment out of the queue; its timer runs on, for another leader may come.

        An acknowledgement also proves that it was propagated, whatever the node said.
        """
        repeating = segment.queued or ("redo", segment.segment_id) in self.state.timers
        if not repeating:
            return
        traffic = TrafficClass.REPAIR if segment.propagated else TrafficClass.FRESH
        self.queue.discard(traffic, segment.segment_id)
        self.state.timers.cancel(("redo", segment.segment_id))
        segment.queued = False
        self.propagated(segment, now)
        self.start_timer(segment, now)

    def delivered(self, request: Request, now: Nanoseconds) -> None:
        """End a request: one participant has all of it, which also proves that it was sent."""
        request.propagated = request.segment_count
        self.sent(request, now)
        self.finish(request, RequestState.DELIVERED)
        self.progress(request, now)
        self.state.outbox.emit(
            MessageDeliveredEvent(
                channel_id=self.state.channel_id,
                time_ns=now,
                request_id=request.request_id,
                recipients=request.recipients,
            )
        )

    def timed_out(self, segment_id: RequestId, now: Nanoseconds) -> None:
        """Act on an acknowledgement timer: retransmit, give up, or let it run on while the leader has it."""
        segment = self.segments.get(segment_id)
        if segment is None or segment.request.is_final:
            return
        segment.deadline_ns = 0
        if segment.request.leader_has(segment.index):
            self.start_timer(segment, now)
        elif segment.retransmissions >= self.state.sds.max_retransmissions:
            if segment.request.sent:
                self.delivery_error(segment, now)
            else:
                self.start_timer(segment, now)  # the others decide: sent, or a send-error
        else:
            self.enqueue(TrafficClass.REPAIR, segment, now)

    # -- ends -------------------------------------------------------------------------------------

    def delivery_error(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """End a request whose segment nobody acknowledged although all retransmissions were used."""
        request = segment.request
        error = (
            f"segment {segment.index + 1} of {request.segment_count} was not acknowledged after "
            f"{segment.retransmissions} retransmissions; it reached the network, so there may be "
            "no need to send again"
        )
        self.finish(request, RequestState.DELIVERY_ERROR, error)
        self.state.outbox.emit(
            MessageDeliveryErrorEvent(
                channel_id=self.state.channel_id,
                time_ns=now,
                request_id=request.request_id,
                error=error,
            )
        )

    def send_error(self, request: Request, error: str, now: Nanoseconds) -> None:
        """End a request that could not be handed to the network whole."""
        self.withdraw_ids(request, now)
        self.finish(request, RequestState.SEND_ERROR, error)
        self.state.outbox.emit(
            MessageSendErrorEvent(
                channel_id=self.state.channel_id,
                time_ns=now,
                request_id=request.request_id,
                error=error,
            )
        )

    def withdraw_ids(self, request: Request, now: Nanoseconds) -> None:
        """Take the ids of a failed request out of the log: nobody is to wait for what will never be whole."""
        for segment in reversed(request.segments):
            self.withdraw_id(segment, now)

    def withdraw_id(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Take one id out of the log; what its message acknowledged, if it never went out, is owed again.

        An id that did go out is remembered in passing, so that its echo is known.
        """
        if self.is_shared(segment):
            for other, index in self.book.index[segment.message_id]:
                other.segments[index].made_known = True
        elif segment.made_known and segment.message_id in self.state.log:
            self.state.log.withdraw(segment.message_id, segment.history)
        if segment.transmissions:
            self.passing.add(segment.message_id)
        if segment.settled and not segment.propagated and not segment.in_flight:
            self.owe_again(segment.settled)
            segment.settled = ()
            self.state.sync.owe(now, self.state.group(now))

    def withdraw(self, request_id: RequestId, now: Nanoseconds) -> None:
        """Undo a ``send`` none of which was given to the node, as if it had never been made."""
        request = self.book.requests[request_id]
        for segment in request.segments:
            segment.in_flight = False
        for segment_id in list(self.queue.in_flight):
            if segment_id.rpartition(":")[0] == request_id:
                self.queue.landed(segment_id, now, certain_failure=True)
        self.withdraw_ids(request, now)
        self.finish(request, RequestState.SEND_ERROR, "withdrawn")
        self.book.forget(request_id)

    def is_shared(self, segment: OutgoingSegment) -> bool:
        """Tell whether another open request has a segment of the same id (``message_id="content"``)."""
        places = self.book.index.get(segment.message_id, ())
        return any(other is not segment.request and not other.is_final for other, _ in places)

    def finish(self, request: Request, state: RequestState, error: str = "") -> None:
        """End a request and let go of its timers, queue places and bytes."""
        for segment in request.segments:
            segment_id = segment.segment_id
            self.segments.pop(segment_id, None)
            self.state.timers.cancel(("ack", segment_id))
            self.state.timers.cancel(("redo", segment_id))
            if segment.queued:
                segment.queued = False
                if not self.queue.discard(TrafficClass.REPAIR, segment_id):
                    self.queue.discard(TrafficClass.FRESH, segment_id)
            segment.suffix = b""
            segment.header = None
            if not self.is_shared(segment):
                self.state.outbox.delete(BodyRecord, segment.message_id, "content")
                self.state.outbox.delete(BodyRecord, segment.message_id, "header")
        # An ephemeral payload is never acknowledged, so its parity helps also after it was sent.
        needless = state is not RequestState.SENT
        parity_waiting = self.segmenter.parity_count(request.segment_count) if needless else 0
        for index in range(parity_waiting):
            parity_id = f"{request.request_id}:{request.segment_count + index + 1}"
            self.queue.discard(TrafficClass.PARITY, parity_id)
        self.book.finish(request, state, error)
        self.state.outbox.count(f"requests_{state}")
