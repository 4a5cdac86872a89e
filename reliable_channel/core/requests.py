"""The request book: what became of every ``send``, segment by segment, participant by participant.

It decides which request is delivered and when a segment must be sent again; it must not build messages
(``machine``) nor hold timers of its own. Acknowledgements are evidence kept per participant. The *leader* of a
request is the participant that holds most of its data segments, ties going to the earliest: a segment is
retransmitted while the leader lacks it, whoever else has it.

Spec: RELIABLE-CHANNEL-API, RequestId, MessageDeliveredEvent; LIP-109 (SDS), Send, acknowledgements.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.bloom import HashPair
from reliable_channel.core.sds.repair import RepairRequest
from reliable_channel.core.sds.rounds import RetransmissionRound
from reliable_channel.records import AcknowledgementRecord, OutgoingRecord, RequestRecord
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId, RequestId

MAX_WATCHED: Final = 16
"""Delivered segments that are still looked for in filters; each costs every received filter a look-up."""


class RequestState(StrEnum):
    """How far a request is; all but OPEN are final."""

    OPEN = "open"
    SENT = "sent"
    """Final for an ephemeral request only."""
    DELIVERED = "delivered"
    SEND_ERROR = "send-error"
    DELIVERY_ERROR = "delivery-error"


class SegmentState(StrEnum):
    """How far a segment is."""

    QUEUED = "queued"
    IN_FLIGHT = "in-flight"
    SENT = "sent"
    POSSIBLY_ACKNOWLEDGED = "possibly-acknowledged"
    ACKNOWLEDGED = "acknowledged"


@dataclass(slots=True, eq=False)
class OutgoingSegment:
    """One data segment of a request.

    Attributes:
        request: What it belongs to.
        index: From 0.
        message_id: Its SDS message id.
        lamport: Its Lamport time.
        history: Ids fixed at ``send``.
        suffix: The encoded content field.
        header: All other fields, encoded at the first dispatch and unchanged since; None before.
        pair: The hashes of its id, for bloom filters.
        made_known: It put its id in the log; with ``message_id="content"`` an equal one may have.
        settled: Acknowledgements owed that its first dispatch paid.
        asked: Repair requests that its first dispatch made.
        in_flight: The node has it and has not reported.
        queued: It waits to be given to the node.
        propagated: The node has reported it at least once.
        transmissions: Times it was given to the node.
        retransmissions: Transmissions after the first that was reported.
        passed: Timeouts after which others of its request were sent in its place, without news since.
        first_failure_ns: When the node first failed to take it, 0 when it did not.
        deadline_ns: When its acknowledgement timer ends; 0 when none runs.
        possible: Messages of each participant whose filter held its id.
        spared: Its timer ended and it was not sent again: it is possibly acknowledged, or others go first.
        segment_id: ``Req:k``, k from 1.
    """

    request: Request
    index: int
    message_id: MessageId
    lamport: int
    history: tuple[MessageId, ...]
    suffix: bytes
    header: bytes | None = None
    pair: HashPair = (0, 0)
    made_known: bool = False
    settled: tuple[MessageId, ...] = ()
    asked: tuple[RepairRequest, ...] = ()
    in_flight: bool = False
    queued: bool = False
    propagated: bool = False
    transmissions: int = 0
    retransmissions: int = 0
    passed: int = 0
    failures: int = 0
    first_failure_ns: Nanoseconds = 0
    deadline_ns: Nanoseconds = 0
    possible: dict[ParticipantId, int] = field(default_factory=dict)
    spared: bool = False
    segment_id: RequestId = field(init=False)

    def __post_init__(self) -> None:
        """Make its name once: every step asks for it."""
        self.segment_id = f"{self.request.request_id}:{self.index + 1}"

    @property
    def timeouts(self) -> int:
        """Acknowledgement timeouts that it has used up, of those that it has."""
        return self.retransmissions + self.passed

    def state(self) -> SegmentState:
        """Return how far it is, by the best evidence of anybody."""
        if self.request.anybody_has(self.index):
            return SegmentState.ACKNOWLEDGED
        if self.possible:
            return SegmentState.POSSIBLY_ACKNOWLEDGED
        if self.propagated:
            return SegmentState.SENT
        return SegmentState.IN_FLIGHT if self.in_flight else SegmentState.QUEUED

    def record(self, deadline_ns: Nanoseconds | None = None) -> OutgoingRecord:
        """Return its row; it counts no transmissions that the node has just refused.

        Args:
            deadline_ns: When its timer would end if the node reported at once; None where that is known.
        """
        return OutgoingRecord(
            request_id=self.request.request_id,
            segment_index=self.index,
            message_id=self.message_id,
            lamport_timestamp=self.lamport,
            history=self.history,
            propagated=self.propagated,
            transmissions=self.transmissions - self.failures,
            retransmissions=self.retransmissions,
            deadline_ns=self.deadline_ns if deadline_ns is None else deadline_ns,
            passed=self.passed,
            spared=self.spared,
            in_flight=self.in_flight,
        )


@dataclass(slots=True, eq=False)
class Request:
    """One ``send``.

    Attributes:
        request_id: Its id.
        created_ns: When it was made.
        payload_bytes: Size of the payload.
        segment_count: Data segments.
        ephemeral: Outside causal order, not acknowledged.
        state: How far it is.
        error: Why it failed, when it did.
        sent: All data segments were propagated.
        segments: Its data segments by index; their bytes are let go when it is final.
        acknowledged: For each participant a bit mask of the data segments it has, in order of first evidence.
        positions: The place of each of them in that order.
        leader: Who holds most.
        lamport: Lamport time of its first segment; 0 when ephemeral.
        propagated: Data segments propagated so far.
        parity_count: Parity segments that go with them.
        heard_ns: When somebody last acknowledged anything of it that was news.
        round: What of it goes out again together.
        idempotency_key: What the application calls it; empty when it does not.
        payload_digest: Tells what was sent under that key; empty without one.
    """

    request_id: RequestId
    created_ns: Nanoseconds
    payload_bytes: int
    segment_count: int
    ephemeral: bool
    parity_count: int = 0
    state: RequestState = RequestState.OPEN
    error: str = ""
    sent: bool = False
    segments: list[OutgoingSegment] = field(default_factory=list)
    acknowledged: dict[ParticipantId, int] = field(default_factory=dict)
    positions: dict[ParticipantId, int] = field(default_factory=dict)
    leader: ParticipantId | None = None
    lamport: int = 0
    propagated: int = 0
    heard_ns: Nanoseconds = 0
    round: RetransmissionRound = field(default_factory=RetransmissionRound)
    idempotency_key: str = ""
    payload_digest: bytes = b""

    @property
    def is_final(self) -> bool:
        """Whether it has ended."""
        return self.state is not RequestState.OPEN

    @property
    def recipients(self) -> tuple[ParticipantId, ...]:
        """Participants known to have all of it, in order of first evidence."""
        if not self.acknowledged:
            return ()
        whole = (1 << self.segment_count) - 1
        return tuple(who for who, mask in self.acknowledged.items() if mask == whole)

    def anybody_has(self, index: int) -> bool:
        """Tell whether any participant is known to have a data segment."""
        return any(mask >> index & 1 for mask in self.acknowledged.values())

    def leader_has(self, index: int) -> bool:
        """Tell whether the leader is known to have a data segment."""
        return self.leader is not None and bool(self.acknowledged[self.leader] >> index & 1)

    def leader_has_all(self) -> bool:
        """Tell whether at least one participant has all of it."""
        return (
            self.leader is not None
            and self.acknowledged[self.leader] == (1 << self.segment_count) - 1
        )

    def acknowledge(self, participant: ParticipantId, index: int) -> bool:
        """Note that a participant has a data segment; say whether that is news."""
        mask = self.acknowledged.get(participant, 0)
        if mask >> index & 1:
            return False
        if not mask:
            self.positions[participant] = len(self.positions)
        mask |= 1 << index
        self.acknowledged[participant] = mask
        if self.leader is None or mask.bit_count() > self.acknowledged[self.leader].bit_count():
            self.leader = participant
        return True

    def lacking(self) -> list[OutgoingSegment]:
        """Return the segments that were given to the node and that the leader is not known to have."""
        return [
            item for item in self.segments if item.transmissions and not self.leader_has(item.index)
        ]

    def counts(self) -> tuple[tuple[ParticipantId, int], ...]:
        """Return how many data segments each participant has."""
        return tuple((who, mask.bit_count()) for who, mask in self.acknowledged.items())

    def record(self) -> RequestRecord:
        """Return its row."""
        return RequestRecord(
            request_id=self.request_id,
            created_ns=self.created_ns,
            payload_bytes=self.payload_bytes,
            segment_count=self.segment_count,
            ephemeral=self.ephemeral,
            parity_count=self.parity_count,
            sent=self.sent,
            state=str(self.state),
            error=self.error,
            leader=self.leader,
            lamport_timestamp=self.lamport,
            idempotency_key=self.idempotency_key,
            payload_digest=self.payload_digest,
        )

    def acknowledgement_record(self, participant: ParticipantId) -> AcknowledgementRecord:
        """Return the row of one participant's evidence."""
        return AcknowledgementRecord(
            request_id=self.request_id,
            participant_id=participant,
            position=self.positions[participant],
            segments=self.acknowledged[participant].to_bytes(
                (self.segment_count + 7) // 8, "little"
            ),
        )


class RequestBook:
    """All requests that are open, and the latest final ones.

    Args:
        max_finished: Final requests whose state is kept.
        outbox: Where row changes go.

    Attributes:
        requests: All of them by id.
        by_key: Those of them that have an idempotency key.
        finished: Ids of the final ones, the earliest end first.
        segments: Data segments of open requests.
        outstanding: Those of them that can be acknowledged: not the ephemeral ones.
        index: Where an id occurs, in open and final requests.
    """

    def __init__(self, max_finished: int, outbox: Outbox) -> None:
        self.max_finished = max_finished
        self.outbox = outbox
        self.requests: dict[RequestId, Request] = {}
        self.by_key: dict[str, Request] = {}
        self.open_octets = 0
        self.open_count = 0
        self.finished: OrderedDict[RequestId, None] = OrderedDict()
        self.index: dict[MessageId, list[tuple[Request, int]]] = {}
        self.segments: dict[RequestId, OutgoingSegment] = {}
        self.outstanding: dict[RequestId, OutgoingSegment] = {}
        self.watched: OrderedDict[RequestId, OutgoingSegment] = OrderedDict()

    def open(self, request: Request) -> None:
        """Enter a request with its segments."""
        self.enter(request)
        self.open_octets += request.payload_bytes
        self.open_count += 1
        for segment in request.segments:
            segment_id = segment.segment_id
            self.segments[segment_id] = segment
            if not request.ephemeral:
                # With ids of the content, equal contents in several requests share one id.
                self.index.setdefault(segment.message_id, []).append((request, segment.index))
                self.outstanding[segment_id] = segment

    def enter(self, request: Request) -> None:
        """Let a request be found by its id and its key."""
        self.requests[request.request_id] = request
        if request.idempotency_key:
            self.by_key[request.idempotency_key] = request

    def is_open(self, message_id: MessageId) -> bool:
        """Tell whether an id is that of a segment whose request has not ended."""
        return any(not request.is_final for request, _ in self.index.get(message_id, ()))

    def finish(self, request: Request, state: RequestState, error: str = "") -> None:
        """End a request; its segments are let go, its state can still be asked for a while."""
        self._end(request, state, error)
        self.finished[request.request_id] = None
        self.outbox.put(request.record())
        self.forget_oldest()

    def withdraw(self, request: Request) -> None:
        """Let go of an open request as if it had never been made: no final one has to make room for it."""
        self._end(request, RequestState.SEND_ERROR, "withdrawn")
        self._drop(request)

    def _end(self, request: Request, state: RequestState, error: str) -> None:
        request.state = state
        request.error = error
        self.open_octets -= request.payload_bytes
        self.open_count -= 1
        for segment in request.segments:
            segment_id = segment.segment_id
            self.segments.pop(segment_id, None)
            if self.outstanding.pop(segment_id, None) and state is RequestState.DELIVERED:
                self.watch(segment)
            self.outbox.delete(OutgoingRecord, request.request_id, segment.index)

    def watch(self, segment: OutgoingSegment) -> None:
        """Go on looking for a delivered segment in others' filters for a while: it may have more recipients."""
        self.watched[segment.segment_id] = segment
        if len(self.watched) > MAX_WATCHED:
            self.watched.popitem(last=False)

    def forget_oldest(self) -> None:
        """Let go of final requests above the bound."""
        while len(self.finished) > self.max_finished:
            self.forget(next(iter(self.finished)))

    def forget(self, request_id: RequestId) -> None:
        """Let go of a final request and its key: later acknowledgements of it are not even counted."""
        del self.finished[request_id]
        self._drop(self.requests[request_id])

    def _drop(self, request: Request) -> None:
        request_id = request.request_id
        del self.requests[request_id]
        if request.idempotency_key:
            del self.by_key[request.idempotency_key]
        for segment in request.segments:
            self.watched.pop(segment.segment_id, None)
            found = self.index.get(segment.message_id, [])
            found[:] = [place for place in found if place[0] is not request]
            if not found:
                self.index.pop(segment.message_id, None)
        # They name the request in turn: such a ring would be left for the garbage collector, which visits everything.
        request.segments.clear()
        self.outbox.delete(RequestRecord, request_id)
        for participant in request.acknowledged:
            self.outbox.delete(AcknowledgementRecord, request_id, participant)
