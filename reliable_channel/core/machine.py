"""One channel as a deterministic machine: inputs say what happened, effects say what to do.

::

    application                                                            network
      send ──► segment ─► SDS ─► [encrypt: driver] ─► epoch budget ─► Publish ──►
      events ◄── causal order ◄─ reassemble ◄─ SDS ◄─ [decrypt: driver] ◄── receive

The same state, input, ``now`` and seed give the same effects. An input applies wholly or raises and changes nothing.
The machine must not read a clock, make identifiers from outside randomness, do I/O or call the application: the
driver carries effects out in the order persist, publish, fetch, emit, and reports back.

Spec: RELIABLE-CHANNEL-API, Procedures; LIP-109 (SDS); docs/design.md for the contract.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.acceptance import Acceptance, Arrival
from reliable_channel.core.delivery import Delivery
from reliable_channel.core.dispatch import QUEUE_TIMER, DispatchQueue
from reliable_channel.core.effects import Effects
from reliable_channel.core.incoming import IncomingPipeline
from reliable_channel.core.outgoing import OutgoingPipeline
from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter
from reliable_channel.core.reassembly import Reassembler
from reliable_channel.core.requests import RequestState, SegmentState
from reliable_channel.core.restore import (
    check_kept,
    restore_archive,
    restore_incoming,
    restore_outgoing,
)
from reliable_channel.core.sds.causal import CYCLE_TIMER, MET_RING, CausalOrder, IdRing
from reliable_channel.core.sds.gaps import MISSING_TIMER, SETTLE_TIMER, Gaps
from reliable_channel.core.sds.missing import FETCH_TIMER
from reliable_channel.core.sds.sync import IDLE_TIMER, SYNC_TIMER
from reliable_channel.core.segmentation import DEFAULT_ENCRYPTION_OVERHEAD, Segmenter
from reliable_channel.core.state import ChannelState
from reliable_channel.core.timers import TimerKey
from reliable_channel.errors import RequestNotFoundError
from reliable_channel.records import (
    AnswerRecord,
    AskedRecord,
    ChannelRecord,
    DebtRecord,
    LogRecord,
    Snapshot,
    rows_of,
)
from reliable_channel.types import MS, ChannelId, MessageId, Nanoseconds, ParticipantId, RequestId

DEFAULT_MAX_MESSAGE_BYTES: Final = 150 * 1024
"""Largest encoded WakuMessage of the network (14/WAKU2-MESSAGE)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStatus:
    """How far one data segment of a request is."""

    segment_id: RequestId
    message_id: MessageId
    state: SegmentState
    transmissions: int
    """Times it was given to the node; 0 where its request had ended before the channel was opened: that is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """How far a request is."""

    request_id: RequestId
    state: RequestState
    is_final: bool
    sent: bool
    ephemeral: bool
    error: str
    recipients: tuple[ParticipantId, ...]
    """Who has acknowledged all of it."""
    acknowledged: tuple[tuple[ParticipantId, int], ...]
    """How many data segments each participant has acknowledged."""
    segments: tuple[SegmentStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    """Sizes and counters of a channel; all counters are since it was opened."""

    channel_id: ChannelId
    sender_id: ParticipantId
    content_topic: str
    lamport_timestamp: int
    known_messages: int
    open_requests: int
    open_bytes: int
    waiting: int
    in_flight: int
    incomplete_payloads: int
    parked_messages: int
    missing_messages: int
    repair_requests: int
    """Missing messages that other participants are or will be asked for (SDS-R)."""
    repair_answers: int
    """Others' requests that will be answered unless somebody else does."""
    full_messages: int
    """Messages kept whole to answer such requests."""
    owed_acknowledgements: int
    participants: int
    counters: dict[str, int]
    dropped: dict[str, int]
    """What the network sent and was refused, by reason."""


class ChannelMachine:
    """The protocol of one channel without I/O.

    Args:
        channel_id: The channel.
        sender_id: Ours.
        content_topic: The channel's; part of the size of each message.
        now: Unix time, nanoseconds, as in every input.
        seed: Of the channel's random stream: back-offs, request ids.
        sds: Timers and bounds.
        segmentation: Segment sizes and bounds.
        budget: The channel's share of the epoch budget; None is unlimited.
        max_message_bytes: Largest encoded WakuMessage, bytes.
        encryption_overhead: Bytes that encryption adds at most; None where it does not say.
        snapshot: The kept rows; empty for a channel without state.

    Raises:
        ConfigurationError: The headers leave no room for payload, or kept state was made with another content
            topic, sender id or bloom filter.
    """

    def __init__(
        self,
        *,
        channel_id: ChannelId,
        sender_id: ParticipantId,
        content_topic: str,
        now: Nanoseconds,
        seed: int,
        sds: SdsConfig | None = None,
        segmentation: SegmentationConfig | None = None,
        budget: ChannelBudget | None = None,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        encryption_overhead: int | None = 0,
        snapshot: Snapshot | None = None,
    ) -> None:
        sds = sds or SdsConfig()
        segmentation = segmentation or SegmentationConfig()
        snapshot = snapshot or {}
        record = next(iter(rows_of(snapshot, ChannelRecord)), None)
        check_kept(record, content_topic, sender_id, sds)
        # A seed used again for kept state must not mint the same request ids again.
        self.random = Random(seed if record is None else f"{seed} {record.last_wrap_ns}")
        self.state = ChannelState(
            channel_id=channel_id,
            sender_id=sender_id,
            content_topic=content_topic,
            sds=sds,
            segmentation=segmentation,
            random=self.random,
            record=record,
            now=now,
        )
        self.budget = budget or ChannelBudget(EpochRateLimiter(RateLimitConfig()), None, channel_id)
        self.queue = DispatchQueue(
            sds.max_in_flight, self.budget, self.state.outbox, self.state.timers, self.random
        )
        segmenter = Segmenter(
            channel_id=channel_id,
            sender_id=sender_id,
            content_topic=content_topic,
            segmentation=segmentation,
            sds=sds,
            max_message_bytes=max_message_bytes,
            encryption_overhead=(
                DEFAULT_ENCRYPTION_OVERHEAD if encryption_overhead is None else encryption_overhead
            ),
        )
        passing = IdRing(MET_RING)
        self.outgoing = OutgoingPipeline(self.state, segmenter, self.queue, passing)
        self.reassembler = Reassembler(segmentation, sds.max_known_ids)
        self.causal = CausalOrder(sds, self.state.log, self.state.outbox, passing, self.deliver)
        self.causal.floor = record.floor if record else now // MS
        self.gaps = Gaps(self.state, self.causal)
        self.acceptance = Acceptance(self.state, self.causal, self.gaps)
        self.delivery = Delivery(
            self.state, self.budget, self.reassembler, self.causal, self.gaps, self.acceptance
        )
        self.incoming = IncomingPipeline(
            self.state,
            self.outgoing.acknowledgements,
            self.outgoing.syncs,
            self.outgoing.responder,
            self.reassembler,
            self.causal,
            self.gaps,
            self.acceptance,
            self.delivery,
            max_message_bytes,
        )
        self.started = False
        self.take_back(snapshot, now)

    # -- inputs -----------------------------------------------------------------------------------

    def start(self, now: Nanoseconds) -> Effects:
        """Begin to publish; what was missed while the channel was closed has been received before."""
        group = self.state.group(now)
        self.state.sync.owe(now, group)
        self.state.sync.active(now, group)
        self.state.sync.go_on(now, group)
        self.outgoing.acknowledgements.go_on(now)
        self.started = True
        return self.conclude(now)

    def take_back(self, snapshot: Snapshot, now: Nanoseconds) -> None:
        """Take the kept rows back; what that asks for is among the effects of the next input."""
        self.state.now = now
        self.state.log.restore(rows_of(snapshot, LogRecord))
        owed = rows_of(snapshot, DebtRecord)
        self.outgoing.outcomes.owe_again(row.message_id for row in owed)
        restore_archive(self.state, snapshot)
        restore_outgoing(self.outgoing, snapshot, now)
        self.outgoing.responder.restore(rows_of(snapshot, AnswerRecord), now)
        restore_incoming(self.delivery, snapshot)
        self.state.repairs.restore(rows_of(snapshot, AskedRecord), now)

    def send(
        self,
        payload: object,
        now: Nanoseconds,
        *,
        ephemeral: bool = False,
        idempotency_key: str | None = None,
    ) -> tuple[RequestId, Effects]:
        """Take a payload from the application.

        Args:
            payload: Bytes, at least one.
            now: Unix time, nanoseconds.
            ephemeral: Outside causal order: not acknowledged, not repeated, delivered at once.
            idempotency_key: With the same key, the same message is sent once, as long as its request is known.

        Returns:
            The request's id, minted before anything is dispatched, and the effects; none for a repeat.

        Raises:
            ConfigurationError: It cannot be a key.
            IdempotencyConflictError: The key belongs to another message.
            InvalidPayloadError: Not bytes.
            EmptyPayloadError: No bytes.
            MessageTooLargeError: More than fits in 255 segments.
            ChannelFullError: Too much is unacknowledged.
        """
        if idempotency_key is not None:
            earlier = self.outgoing.sent_before(payload, idempotency_key, ephemeral=ephemeral)
            if earlier is not None:
                return earlier, Effects()
        request_id = self.outgoing.send(
            payload, now, ephemeral=ephemeral, idempotency_key=idempotency_key or ""
        )
        return request_id, self.conclude(now)

    def withdraw(self, request_id: RequestId, now: Nanoseconds) -> Effects:
        """Undo a ``send`` whose effects could not be made durable, as if it had never been made."""
        self.outgoing.outcomes.withdraw(request_id, now)
        return self.conclude(now)

    def receive(
        self,
        data: bytes,
        transport_hash: bytes | None,
        now: Nanoseconds,
        *,
        from_store: bool = False,
    ) -> Effects:
        """Take decrypted bytes from the network; they never raise.

        Args:
            data: What should be an encoded SDS message.
            transport_hash: Under which a store has it; None when no store keeps it.
            now: Unix time, nanoseconds.
            from_store: The node's store gave it, as what was missed: it may be from long ago.
        """
        self.state.now = now
        self.incoming.receive(Arrival(data, transport_hash, from_store))
        return self.conclude(now)

    def refuse(self, reason: str, now: Nanoseconds) -> Effects:
        """Count a message that the driver could not even decrypt."""
        self.state.outbox.drop(reason)
        return self.conclude(now)

    def published(self, segment_id: RequestId, transport_hash: bytes, now: Nanoseconds) -> Effects:
        """Take note that the node handed a message to the network."""
        self.outgoing.published(segment_id, transport_hash, now)
        return self.conclude(now)

    def publish_failed(
        self, segment_id: RequestId, error: str, now: Nanoseconds, *, retryable: bool
    ) -> Effects:
        """Take note that a message was not handed to the network.

        Args:
            segment_id: What the ``Publish`` said.
            error: Why, for people.
            now: Unix time, nanoseconds.
            retryable: The same may work later.
        """
        self.outgoing.publish_failed(segment_id, error, now, retryable=retryable)
        return self.conclude(now)

    def expired(self, segment_id: RequestId, now: Nanoseconds, *, held_ns: int = 0) -> Effects:
        """Take note that a message was not handed over because its epoch had ended.

        Args:
            segment_id: What the ``Publish`` said.
            now: Unix time, nanoseconds.
            held_ns: How long its own encryption took, nanoseconds; 0 when it waited behind others.
        """
        self.outgoing.expired(segment_id, now, held_ns=held_ns)
        return self.conclude(now)

    def fetched(self, found: Sequence[tuple[bytes, bytes | None]], now: Nanoseconds) -> Effects:
        """Take the store's answer to a ``Fetch``.

        Args:
            found: Transport hash and decrypted bytes of each message it had; None where it does not decrypt.
            now: Unix time, nanoseconds.
        """
        self.state.now = now
        self.incoming.fetched(found)
        return self.conclude(now)

    def fetch_failed(self, now: Nanoseconds) -> Effects:
        """Take note that the store could not be asked."""
        self.state.now = now
        self.gaps.failed()
        return self.conclude(now)

    def tick(self, now: Nanoseconds) -> Effects:
        """Let everything happen whose time has come."""
        self.state.now = now
        while (key := self.state.timers.pop_due(now)) is not None:
            self.fire(key, now)
        return self.conclude(now)

    def next_deadline(self) -> Nanoseconds | None:
        """Return when ``tick`` has something to do, or None."""
        return self.state.timers.next_deadline()

    # -- questions --------------------------------------------------------------------------------

    def has_room(self, payload_bytes: int) -> bool:
        """Tell whether a payload of so many bytes can be taken now."""
        return self.outgoing.has_room(payload_bytes)

    def knows_key(self, idempotency_key: str | None) -> bool:
        """Tell whether a request has this key: to send it again takes no room."""
        return idempotency_key in self.outgoing.book.by_key

    def request_status(self, request_id: RequestId) -> RequestStatus:
        """Return how far a request is.

        Raises:
            RequestNotFoundError: Never made here, or final and forgotten.
        """
        request = self.outgoing.book.requests.get(request_id)
        if request is None:
            raise RequestNotFoundError(request_id)
        return RequestStatus(
            request_id=request_id,
            state=request.state,
            is_final=request.is_final,
            sent=request.sent,
            ephemeral=request.ephemeral,
            error=request.error,
            recipients=request.recipients,
            acknowledged=request.counts(),
            segments=tuple(
                SegmentStatus(
                    segment_id=segment.segment_id,
                    message_id=segment.message_id,
                    state=segment.state(),
                    transmissions=segment.transmissions,
                )
                for segment in request.segments
            ),
        )

    def status(self) -> ChannelStatus:
        """Return sizes and counters."""
        state, book = self.state, self.outgoing.book
        return ChannelStatus(
            channel_id=state.channel_id,
            sender_id=state.sender_id,
            content_topic=state.content_topic,
            lamport_timestamp=state.lamport,
            known_messages=len(state.log),
            open_requests=book.open_count,
            open_bytes=book.open_octets,
            waiting=self.queue.waiting(),
            in_flight=len(self.queue.in_flight),
            incomplete_payloads=len(self.reassembler.sets),
            parked_messages=len(self.causal.parked),
            missing_messages=len(self.gaps.missing),
            repair_requests=len(state.repairs),
            repair_answers=len(self.outgoing.responder.answers),
            full_messages=len(state.archive),
            owed_acknowledgements=len(state.debt),
            participants=len(state.participants.heard),
            counters=dict(sorted(state.outbox.counters.items())),
            dropped=dict(sorted(state.outbox.dropped.items())),
        )

    # -- inside -----------------------------------------------------------------------------------

    def deliver(self, payload: IncomingPayload) -> None:
        """Hand on a payload whose turn has come; causal order is made before what delivers."""
        self.delivery.deliver(payload)

    def fire(self, key: TimerKey, now: Nanoseconds) -> None:
        """Act on one timer that has ended."""
        match key:
            case ("ack", str(segment_id)):
                self.outgoing.acknowledgements.timed_out(segment_id, now)
            case ("redo", str(segment_id)):
                self.outgoing.redo(segment_id, now)
            case ("set", int(serial)):
                self.delivery.set_timed_out(serial)
            case ("request", str(message_id)):
                self.state.repairs.ripen(message_id)
                self.state.sync.owe(now, self.state.group(now))
            case ("answer", str(message_id)):
                self.outgoing.responder.answer_due(message_id, now)
            case ("dependency", int(serial)):
                self.gaps.dependency_timed_out(serial)
            case _ if key == SYNC_TIMER:
                self.outgoing.syncs.sync_due(now)
            case _ if key == IDLE_TIMER:
                self.outgoing.syncs.idle_due(now)
            case _ if key == MISSING_TIMER:
                self.gaps.expire_missing()
            case _ if key == SETTLE_TIMER:
                self.gaps.settle()
            case _ if key == CYCLE_TIMER:
                self.causal.break_cycles()
            case _ if key == FETCH_TIMER:
                self.gaps.ask()
            case _:
                # Nothing to do but what `conclude` does at the end of every input.
                assert key == QUEUE_TIMER, key

    def conclude(self, now: Nanoseconds) -> Effects:
        """End an input: publish and fetch what may be, write the channel's row, hand out the effects."""
        state = self.state
        state.now = now
        if self.started:
            self.outgoing.pump(now)
            self.gaps.ask_when_due()
        if self.outgoing.rowless:
            self.outgoing.write_rows()
        wait = self.causal.next_search()
        if wait is not None and CYCLE_TIMER not in state.timers:
            state.timers.set(CYCLE_TIMER, now + wait)
        if state.log.is_full:
            self.acceptance.evict(self.outgoing.book.is_open)
        record = state.changed_record(self.causal.floor)
        if record is not None:
            state.outbox.put_at((), record)
        return state.outbox.take()
