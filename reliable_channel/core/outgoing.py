"""The way out: segment, give ids, wait for the budget, hand to the node, take note of what it reports.

::

    send ─ split ─ ids, Lamport times, histories ─► FRESH ─┐
                              acknowledgement timer ─► REPAIR ─┤  epoch   SDS bytes
                                       ack debt, idle ─► SYNC ─┼► budget ─► composer ─► Publish
                                       parity segments ─► PARITY ─┘
    published ─► sent, timer runs      publish_failed ─► again later, or send-error

It must not judge what others say about our messages (``acknowledgements``), nor end a request itself (``outcomes``).

Spec: RELIABLE-CHANNEL-API, Outgoing message processing; LIP-109 (SDS), Send.
"""

from __future__ import annotations

from typing import Final

from reliable_channel.core.dispatch import AnswerTurn, DispatchQueue, InFlight, ParityTurn, SyncTurn
from reliable_channel.core.effects import Publish
from reliable_channel.core.idempotency import earlier_request, payload_digest
from reliable_channel.core.outcomes import Outcomes
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.requests import OutgoingSegment, Request, RequestBook, RequestState
from reliable_channel.core.sds.acknowledgements import Acknowledgements
from reliable_channel.core.sds.bloom import hash_pair
from reliable_channel.core.sds.causal import IdRing
from reliable_channel.core.sds.composer import MessageComposer
from reliable_channel.core.sds.log import KnownMessage
from reliable_channel.core.sds.repair import RepairAnswer
from reliable_channel.core.sds.responder import RepairResponder
from reliable_channel.core.sds.sync import SyncScheduler
from reliable_channel.core.segmentation import Segmenter
from reliable_channel.core.state import ChannelState, salted_id
from reliable_channel.core.wire import content_suffix
from reliable_channel.errors import (
    ChannelFullError,
    EmptyPayloadError,
    InvalidPayloadError,
    MessageTooLargeError,
)
from reliable_channel.records import BodyRecord, OutgoingRecord
from reliable_channel.types import MS, SECOND, MessageId, Nanoseconds, RequestId

REDO_FIRST_NS: Final = SECOND
"""First wait after the node failed to take a message; it doubles up to ``REDO_LONGEST_NS``."""

REDO_LONGEST_NS: Final = 16 * SECOND


class OutgoingPipeline:
    """Requests of ours, from ``send`` to the node and back.

    Args:
        state: What both directions share.
        segmenter: Cuts payloads.
        queue: What waits for its turn.
        passing: Ids of syncs and ephemerals; ours go there too, so that echoes are known.

    Attributes:
        book: All requests.
        outcomes: How they end.
        acknowledgements: What others say about them.
        composer: Makes the bytes.
        syncs: Lets sync messages wait for their turn.
        responder: Answers others' repair requests.
    """

    def __init__(
        self, state: ChannelState, segmenter: Segmenter, queue: DispatchQueue, passing: IdRing
    ) -> None:
        self.state = state
        self.segmenter = segmenter
        self.queue = queue
        self.book = RequestBook(state.sds.max_finished_requests, state.outbox)
        self.outcomes = Outcomes(state, self.book, queue, passing, segmenter)
        self.acknowledgements = Acknowledgements(state, self.book, queue, self.outcomes)
        self.composer = MessageComposer(state, passing, segmenter.sync_entry_room)
        self.syncs = SyncScheduler(state.sync, queue, state.group)
        self.responder = RepairResponder(state, self.book, queue)
        self.unannounced: list[Request] = []
        self.rowless: list[OutgoingSegment] = []

    # -- send -------------------------------------------------------------------------------------

    def check_payload(self, payload: object) -> bytes:
        """Return the payload as bytes.

        Raises:
            InvalidPayloadError: It is not bytes.
            EmptyPayloadError: It is empty.
            MessageTooLargeError: It would not fit, whatever is acknowledged meanwhile.
        """
        data = some_bytes(payload)
        self.segmenter.check_size(len(data))
        if len(data) > self.state.sds.max_outgoing_bytes:
            raise MessageTooLargeError(len(data), self.state.sds.max_outgoing_bytes)
        return data

    def has_room(self, payload_bytes: int) -> bool:
        """Tell whether a payload of so many bytes can be taken now."""
        return (
            self.book.open_count < self.state.sds.max_outgoing_messages
            and self.book.open_octets + payload_bytes <= self.state.sds.max_outgoing_bytes
        )

    def sent_before(self, payload: object, key: object, *, ephemeral: bool) -> RequestId | None:
        """Return the request that has this key and is of this message; None where the key is new.

        Raises:
            ConfigurationError: It cannot be a key.
            IdempotencyConflictError: It belongs to another message.
            InvalidPayloadError: The payload is not bytes.
            EmptyPayloadError: It is empty.
        """
        data, state = some_bytes(payload), self.state
        request = earlier_request(self.book, state.channel_id, key, data, ephemeral=ephemeral)
        return None if request is None else request.request_id

    def send(
        self, payload: object, now: Nanoseconds, *, ephemeral: bool, idempotency_key: str = ""
    ) -> RequestId:
        """Take a payload: ids, Lamport times and histories of all its segments are fixed in this step.

        A key must be new, or empty.

        Raises:
            ChannelFullError: Too much is not acknowledged yet; see also ``check_payload``.
        """
        data = self.check_payload(payload)
        if not self.has_room(len(data)):
            raise ChannelFullError(
                self.state.channel_id, self.book.open_count, self.book.open_octets
            )
        state = self.state
        wrap_ns = state.next_wrap_ns(now)
        contents = self.segmenter.split(
            data, wrap_ns if ephemeral or state.sds.message_id == "salted" else 0
        )
        request = Request(
            request_id=f"{state.random.getrandbits(96):024x}",
            created_ns=now,
            payload_bytes=len(data),
            segment_count=len(contents),
            ephemeral=ephemeral,
            parity_count=self.segmenter.parity_count(len(contents)),
            idempotency_key=idempotency_key,
            payload_digest=payload_digest(data, ephemeral=ephemeral) if idempotency_key else b"",
        )
        self.make_segments(request, contents, wrap_ns, now)
        self.book.open(request)
        state.outbox.put_at((request.request_id,), request.record())
        for segment in request.segments:
            self.queue.put_segment(TrafficClass.FRESH, segment, now)
        if request.parity_count:
            self.enqueue_parity(request, contents, wrap_ns, now)
        self.unannounced.append(request)
        state.outbox.count("requests")
        return request.request_id

    def make_segments(
        self, request: Request, contents: list[bytes], wrap_ns: Nanoseconds, now: Nanoseconds
    ) -> None:
        """Give each content its id, Lamport time and history, and enter it in the log."""
        state, outbox, kept = self.state, self.state.outbox, self.state.archive.messages
        salt = wrap_ns if request.ephemeral or state.sds.message_id == "salted" else 0
        lamport = 0 if request.ephemeral else state.next_lamport(now, len(contents))
        request.lamport = lamport
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
            if message_id in kept:
                # With `message_id="content"` an equal one is kept for repairs: this is the same message again.
                segment.header = state.archive.take_out_own(message_id)
            body = BodyRecord(message_id=message_id, part="content", data=segment.suffix)
            outbox.put_at((message_id, "content"), body)
            outbox.reserve(OutgoingRecord, request.request_id, index)
            if not request.ephemeral:
                self.enter(segment)
        self.rowless += request.segments

    def history(self, message_id: MessageId) -> tuple[MessageId, ...]:
        """Return the ids that a message names, without its own (``message_id="content"``)."""
        named = self.state.log.next_history()
        if message_id in named:
            return tuple([item for item in named if item != message_id])
        return named

    def enter(self, segment: OutgoingSegment) -> None:
        """Make a segment of ours known and logged; with ``message_id="content"`` it may be already.

        Then it has its place: others have bytes that name what came before the first of the equal ones, and what came
        between still has to be named.
        """
        log, message_id = self.state.log, segment.message_id
        segment.pair = hash_pair(message_id)
        segment.made_known = message_id not in log.known
        if not segment.made_known:
            return
        log.add(
            KnownMessage(
                message_id,
                segment.lamport,
                self.state.sender_id,
                index=segment.index,
                segment_count=segment.request.segment_count,
                hint=None,
                logged=True,
            ),
            segment.pair,
        )
        log.extend_frontier(message_id, segment.history)
        if segment.header is None:
            log.unsent.add(message_id)

    def enqueue_parity(
        self, request: Request, contents: list[bytes], wrap_ns: Nanoseconds, now: Nanoseconds
    ) -> None:
        """Let the parity segments of a payload wait: ephemeral SDS messages that nobody waits for.

        Spec: LIP-243, Reed-Solomon; docs/wire.md, parity and causal order.
        """
        if not request.parity_count:
            return
        for index, content in enumerate(self.segmenter.add_parity(contents)):
            turn = ParityTurn(
                request=request,
                message_id=salted_id(self.state.sender_id, wrap_ns, content),
                segment_id=f"{request.request_id}:{len(contents) + index + 1}",
                suffix=content_suffix(content),
            )
            self.queue.put(TrafficClass.PARITY, turn.segment_id, turn, now)

    # -- dispatch ---------------------------------------------------------------------------------

    def pump(self, now: Nanoseconds) -> None:
        """Give the node what may go out now."""
        while (turn := self.queue.next_turn(now)) is not None:
            segment_id, flight = turn
            self.dispatch(segment_id, flight, now)
        if self.unannounced:
            self.announce(now)

    def write_rows(self) -> None:
        """Write the rows of segments that this input made, but for those that went out with it: they have theirs."""
        for segment in self.rowless:
            if not segment.transmissions:
                key = segment.request.request_id, segment.index
                self.state.outbox.put_at(key, segment.record())
        self.rowless.clear()

    def dispatch(self, segment_id: RequestId, flight: InFlight, now: Nanoseconds) -> None:
        """Make the bytes of what has its turn and publish them."""
        turn = flight.turn
        if isinstance(turn, OutgoingSegment):
            self.dispatch_segment(segment_id, turn, now)
        elif isinstance(turn, ParityTurn):
            self.dispatch_parity(turn, now)
        elif isinstance(turn, SyncTurn):
            self.dispatch_sync(segment_id, turn, now)
        else:
            self.dispatch_answer(segment_id, turn.answer, now)

    def dispatch_segment(
        self, segment_id: RequestId, segment: OutgoingSegment, now: Nanoseconds
    ) -> None:
        """Publish a data segment; retransmissions send the frozen bytes unchanged."""
        state, request = self.state, segment.request
        segment.queued = False
        segment.in_flight = True
        segment.spared = False
        segment.transmissions += 1
        if segment.propagated:
            segment.retransmissions += 1
            state.outbox.count("retransmissions")
        if segment.header is None:
            segment.header = self.first_header(segment, now)
            state.log.unsent.discard(segment.message_id)
        until_ns = now + self.acknowledgements.wait_ns(segment)
        state.outbox.put_at((request.request_id, segment.index), segment.record(until_ns))
        data = segment.header + segment.suffix
        self.publish(segment_id, data, now, ephemeral=request.ephemeral)

    def first_header(self, segment: OutgoingSegment, now: Nanoseconds) -> bytes:
        """Return all of a segment's SDS message but its content, as it stays from now on.

        With ``message_id="content"`` an equal segment of an open request may have gone out: it is the same message.
        """
        for twin in self.outcomes.twins(segment):
            if twin.header is not None:
                return twin.header
        header = self.composer.freeze(segment)
        if not segment.request.ephemeral:
            group = self.state.group(now)
            self.state.sync.owe(now, group)
            self.state.sync.active(now, group)
        return header

    def dispatch_parity(self, turn: ParityTurn, now: Nanoseconds) -> None:
        """Publish a parity segment."""
        self.state.outbox.count("parity_transmissions")
        data = self.composer.compose_parity(turn)
        self.publish(turn.segment_id, data, now, ephemeral=True)

    def dispatch_sync(self, segment_id: RequestId, turn: SyncTurn, now: Nanoseconds) -> None:
        """Publish a sync message."""
        self.state.outbox.count("syncs_sent")
        data = self.composer.compose_sync(turn, now)
        self.syncs.gone_out(turn, now)
        self.publish(segment_id, data, now, ephemeral=True)

    def dispatch_answer(
        self, segment_id: RequestId, answer: RepairAnswer, now: Nanoseconds
    ) -> None:
        """Publish what others asked for, as its sender encoded it."""
        self.state.outbox.count("repairs_answered")
        self.responder.gone_out(answer, now)
        self.publish(segment_id, answer.data, now, ephemeral=answer.in_store)

    def publish(
        self, segment_id: RequestId, data: bytes, now: Nanoseconds, *, ephemeral: bool
    ) -> None:
        """Give bytes to the node."""
        outbox = self.state.outbox
        outbox.count("transmissions")
        outbox.publish(Publish(segment_id, data, ephemeral, self.queue.expiry(now)))

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
            self.outcomes.queued(request, expected, now)

    # -- what the node reports --------------------------------------------------------------------

    def published(self, segment_id: RequestId, transport_hash: bytes, now: Nanoseconds) -> None:
        """Take note that the node handed a message to the network."""
        flight = self.queue.landed(segment_id, now)
        if flight is None or not isinstance(flight.turn, OutgoingSegment):
            return
        segment = flight.turn
        request = segment.request
        segment.in_flight = False
        segment.failures = 0
        segment.first_failure_ns = 0
        if not request.ephemeral:
            self.state.log.confirm_own(segment.message_id, transport_hash)
        if request.is_final:
            return
        self.outcomes.propagated(segment, now)
        if not request.is_final:
            self.acknowledgements.start_timer(segment, now)
            self.state.outbox.put_at((request.request_id, segment.index), segment.record())

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
        elif isinstance(flight.turn, AnswerTurn):
            self.responder.failed(flight.turn.answer)
        elif isinstance(flight.turn, OutgoingSegment):
            segment = flight.turn
            segment.in_flight = False
            if segment.request.is_final:
                self.failed_late(segment, now)
            elif segment.request.anybody_has(segment.index):
                self.outcomes.propagated(segment, now)
                self.acknowledgements.start_timer(segment, now)
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
        elif isinstance(flight.turn, AnswerTurn):
            self.responder.expired(flight.turn.answer, now)
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
            self.outcomes.withdraw_id(segment, now)

    def sync_failed(self, turn: SyncTurn, now: Nanoseconds) -> None:
        """Owe again what a sync that did not go out had named, and ask again for what it had asked for."""
        self.outcomes.owe_again(turn.named)
        self.state.repairs.put_back(turn.asked)
        self.syncs.failed(now)

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
            self.acknowledgements.start_timer(segment, now)
        else:
            self.outcomes.send_error(segment.request, error, now)

    def redo(self, segment_id: RequestId, now: Nanoseconds) -> None:
        """Queue again what did not go out, unless the leader has it meanwhile."""
        segment = self.book.segments.get(segment_id)
        if segment is None or segment.request.is_final:
            return
        if not segment.propagated:
            self.queue.put_segment(TrafficClass.FRESH, segment, now)
        elif segment.request.leader_has(segment.index):
            self.acknowledgements.start_timer(segment, now)
        else:
            self.queue.put_segment(TrafficClass.REPAIR, segment, now)


def some_bytes(payload: object) -> bytes:
    """Return the payload as bytes.

    Raises:
        InvalidPayloadError: It is not bytes.
        EmptyPayloadError: It is empty.
    """
    if not isinstance(payload, (bytes, bytearray, memoryview)):
        raise InvalidPayloadError(payload)
    data = bytes(payload)
    if not data:
        raise EmptyPayloadError
    return data
