"""Kept rows back to a working channel.

Requests that were open go on: what the node has not confirmed counts as not made (but stays counted in the epoch
budget), deadlines are in wall time and pass while the process is down. Payloads that were incomplete or parked are put
together again from their data and parity segments, each set by itself and in the order in which they came. It must not
publish anything.

Spec: RELIABLE-CHANNEL-API: causal history, outgoing buffers and partial reassembly survive restarts.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.delivery import Delivery
from reliable_channel.core.outgoing import OutgoingPipeline
from reliable_channel.core.payload import HeldParity, IncomingPayload, SetKey
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.requests import OutgoingSegment, Request, RequestState
from reliable_channel.core.sds.archive import ArchivedMessage
from reliable_channel.core.sds.bloom import hash_pair
from reliable_channel.core.sds.log import KnownMessage, history_octets
from reliable_channel.core.segmentation import is_segmented
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import SdsMessage, SegmentMessage
from reliable_channel.errors import ConfigurationError, DecodeError
from reliable_channel.records import (
    AcknowledgementRecord,
    BodyRecord,
    ChannelRecord,
    CompletedRecord,
    LostRecord,
    MissingRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    RequestRecord,
    Snapshot,
    rows_of,
)
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId, RequestId

FORGIVING: Final = 2
"""Transmissions of a segment that may go unconfirmed, as a multiple of those that it has; after that it may be out."""

BODY_PARTS: Final = ("message", "header", "content")
"""The rows of a full message in the order of their bytes: one as it came, or two of ours."""


def check_kept(
    record: ChannelRecord | None, content_topic: str, sender_id: ParticipantId, sds: SdsConfig
) -> None:
    """Refuse to go on with kept state under settings that it was not made with.

    Raises:
        ConfigurationError: Naming every difference.
    """
    if record is None:
        return
    pairs = (
        ("content_topic", record.content_topic, content_topic),
        ("sender_id", record.sender_id, sender_id),
        ("bloom_capacity", record.bloom_capacity, sds.bloom_capacity),
        ("bloom_error_rate", record.bloom_error_rate, sds.bloom_error_rate),
    )
    problems = [
        f"{name} is {kept!r} in the kept state and cannot become {given!r}; "
        "use it, or forget the channel with store.purge_channel"
        for name, kept, given in pairs
        if kept != given
    ]
    if problems:
        raise ConfigurationError(problems)


def restore_outgoing(outgoing: OutgoingPipeline, snapshot: Snapshot, now: Nanoseconds) -> None:
    """Take the request book, acknowledgements and the outgoing buffer back."""
    requests: dict[RequestId, Request] = {}
    rows = rows_of(snapshot, RequestRecord)
    # Requests of one moment go on in the order in which they were made: their Lamport times say it.
    for row in sorted(rows, key=lambda item: (item.created_ns, item.lamport_timestamp)):
        requests[row.request_id] = Request(
            request_id=row.request_id,
            created_ns=row.created_ns,
            payload_bytes=row.payload_bytes,
            segment_count=row.segment_count,
            ephemeral=row.ephemeral,
            parity_count=row.parity_count,
            state=RequestState(row.state),
            error=row.error,
            sent=row.sent,
            lamport=row.lamport_timestamp,
            idempotency_key=row.idempotency_key,
            payload_digest=row.payload_digest,
        )
    for evidence in sorted(
        rows_of(snapshot, AcknowledgementRecord), key=lambda item: item.position
    ):
        mask = int.from_bytes(evidence.segments, "little")
        request = requests[evidence.request_id]
        for index in range(request.segment_count):
            if mask >> index & 1:
                request.acknowledge(evidence.participant_id, index)
    for row in rows_of(snapshot, RequestRecord):
        if row.leader is not None:
            requests[row.request_id].leader = row.leader
    restore_segments(requests, snapshot, outgoing.state.sds.max_retransmissions)
    outgoing.state.log.unsent.update(
        segment.message_id
        for request in requests.values()
        for segment in request.segments
        if segment.header is None and not request.ephemeral
    )
    payloads = own_payloads(outgoing.state)
    for request in requests.values():
        if request.is_final:
            restore_final(outgoing, request, payloads.get(request.lamport, []))
        else:
            resume(outgoing, request, now)


def own_payloads(state: ChannelState) -> dict[int, list[KnownMessage]]:
    """Return our own known messages by the Lamport time of their payload's first segment, in order."""
    found: dict[int, list[KnownMessage]] = {}
    for known in state.log.known.values():
        if known.sender_id == state.sender_id:
            found.setdefault(known.payload[1], []).append(known)
    for segments in found.values():
        segments.sort(key=lambda item: item.index)
    return found


def restore_final(
    outgoing: OutgoingPipeline, request: Request, segments: list[KnownMessage]
) -> None:
    """Take a request back that has ended; who acknowledges it from now on is added to its recipients."""
    book = outgoing.book
    book.enter(request)
    book.finished[request.request_id] = None
    if [item.index for item in segments] != list(range(request.segment_count)):
        return
    for known in segments:
        segment = OutgoingSegment(
            request=request,
            index=known.index,
            message_id=known.message_id,
            lamport=known.lamport,
            history=(),
            suffix=b"",
            propagated=True,
        )
        request.segments.append(segment)
        book.index.setdefault(known.message_id, []).append((request, known.index))


def restore_segments(
    requests: dict[RequestId, Request], snapshot: Snapshot, max_retransmissions: int
) -> None:
    """Give open requests their segments back.

    A transmission that the node did not report counts as not made, but not for ever: who crashes whenever it sends
    would do so without end.
    """
    bodies: dict[tuple[MessageId, str], bytes] = {
        (row.message_id, row.part): row.data for row in rows_of(snapshot, BodyRecord)
    }
    for row in sorted(rows_of(snapshot, OutgoingRecord), key=lambda item: item.segment_index):
        request = requests[row.request_id]
        unconfirmed = row.in_flight or not row.deadline_ns
        not_made = unconfirmed and row.transmissions <= forgiven(max_retransmissions)
        request.segments.append(
            OutgoingSegment(
                request=request,
                index=row.segment_index,
                message_id=row.message_id,
                lamport=row.lamport_timestamp,
                history=row.history,
                suffix=bodies[row.message_id, "content"],
                header=bodies.get((row.message_id, "header")),
                pair=hash_pair(row.message_id),
                made_known=not request.ephemeral,
                propagated=row.propagated,
                transmissions=row.transmissions,
                retransmissions=max(0, row.retransmissions - not_made),
                passed=row.passed,
                spared=row.spared,
                deadline_ns=row.deadline_ns,
            )
        )
        request.propagated += row.propagated


def forgiven(max_retransmissions: int) -> int:
    """Return how many transmissions of a segment may go unconfirmed."""
    return FORGIVING * (max_retransmissions + 1)


def restore_archive(state: ChannelState, snapshot: Snapshot) -> None:
    """Take the full messages back that others may ask for; those of open requests are not among them."""
    is_open = {row.message_id for row in rows_of(snapshot, OutgoingRecord)}
    parts: dict[MessageId, dict[str, bytes]] = {}
    for row in rows_of(snapshot, BodyRecord):
        if row.message_id in is_open:
            continue
        if row.message_id not in state.log or not state.archive.has_room(len(row.data)):
            state.outbox.delete(BodyRecord, row.message_id, row.part)
        else:
            parts.setdefault(row.message_id, {})[row.part] = row.data
    for message_id in sorted(parts, key=lambda item: state.log.known[item].lamport):
        held = parts[message_id]
        names = sorted(held, key=BODY_PARTS.index)
        state.archive.add(message_id, ArchivedMessage({name: held[name] for name in names}))


def resume(outgoing: OutgoingPipeline, request: Request, now: Nanoseconds) -> None:
    """Let an open request go on: unconfirmed segments wait for their turn, timers of the others run on.

    They go at once, before anything new: later messages name them, and who lacks them has to hold those back. What went
    unconfirmed too often may be out: its acknowledgement is waited for, and that ends.

    Parity is made anew while not all data is propagated.
    """
    outgoing.book.open(request)
    if request.acknowledged:
        request.heard_ns = now
    often = forgiven(outgoing.state.sds.max_retransmissions)
    for segment in request.segments:
        if request.anybody_has(segment.index) or segment.transmissions > often:
            outgoing.outcomes.propagated(segment, now)
        if segment.propagated:
            if not request.is_final:
                outgoing.acknowledgements.restore_timer(segment, now)
            continue
        segment.deadline_ns = 0
        outgoing.queue.put_segment(TrafficClass.FRESH, segment, now)
    if request.parity_count and not request.sent:
        # It goes out after the data: little of it can have.
        contents = [
            SdsMessage.decode(segment.suffix).content or b"" for segment in request.segments
        ]
        wrap_ns = SegmentMessage.decode(contents[0]).wrap_time_ns
        outgoing.enqueue_parity(request, contents, wrap_ns, now)


def restore_incoming(delivery: Delivery, snapshot: Snapshot) -> None:
    """Take lost ids, the memory of rebuilt payloads, incomplete and parked payloads back."""
    for lost in sorted(rows_of(snapshot, LostRecord), key=lambda item: item.lost_ns):
        forgotten = delivery.causal.lost.add(lost.message_id)
        if forgotten is not None:
            delivery.state.outbox.delete(LostRecord, forgotten)
    for row in sorted(rows_of(snapshot, CompletedRecord), key=lambda item: item.completed_ns):
        dropped = delivery.reassembler.remember(row.set_digest, int.from_bytes(row.held, "little"))
        if dropped is not None:
            delivery.state.outbox.delete(CompletedRecord, dropped)
    restore_missing(delivery, snapshot)
    whole, stale = rejoin_all(delivery, snapshot)
    for payload, received_ns in whole:
        if payload.data:
            delivery.put_together(payload, received_ns)
        else:
            delivery.complete(payload, received_ns)
    for payload in stale:
        delivery.give_up(payload, "incomplete_timeout", "and it was sent again")


def restore_missing(delivery: Delivery, snapshot: Snapshot) -> None:
    """Go on looking for what others named, but for what has come or was given up."""
    lacking = []
    for row in sorted(rows_of(snapshot, MissingRecord), key=lambda item: item.since_ns):
        if delivery.causal.lacks(row.message_id):
            lacking.append(row)
        else:
            delivery.state.outbox.delete(MissingRecord, row.message_id)
    delivery.gaps.restore(lacking)


def rejoin_all(
    delivery: Delivery, snapshot: Snapshot
) -> tuple[list[tuple[IncomingPayload, Nanoseconds]], list[IncomingPayload]]:
    """Enter all kept segments in their sets, those of each in the order in which they came.

    Returns:
        Payloads that are whole, in the order in which they became so, with the time; and sets that cannot become so: of
        a parked payload that lost one of its ids, after which another set began under the same key.
    """
    kept: list[PendingRecord | ParityRecord] = [
        *rows_of(snapshot, PendingRecord),
        *rows_of(snapshot, ParityRecord),
    ]
    kept.sort(key=lambda row: row.arrival)
    sets: dict[int, list[PendingRecord | ParityRecord]] = {}
    for row in kept:
        sets.setdefault(row.set_number, []).append(row)
        # Numbers of rows that are still there are not given again.
        delivery.acceptance.arrivals = row.arrival
        delivery.reassembler.serial = max(delivery.reassembler.serial, row.set_number)
    whole: list[tuple[int, IncomingPayload, Nanoseconds]] = []
    stale = []
    # In the order in which they began: what came first may have given its segments to a set that began later.
    for _, rows in sorted(sets.items(), key=itemgetter(0)):
        first = next((row for row in rows if isinstance(row, PendingRecord)), None)
        if first is None:
            for row in rows:
                delivery.state.outbox.delete(ParityRecord, row.arrival)
            continue
        segment = segment_in(first)
        payload: IncomingPayload | None
        if segment is None:
            payload = rejoin_whole(delivery, first)
        else:
            key = delivery.reassembler.key_of(first.sender_id, segment)
            if key in delivery.reassembler.sets:
                stale.append(delivery.reassembler.sets[key])
                delivery.take_out(stale[-1])
            payload = rejoin(delivery, key, rows)
        if payload is not None:
            whole.append((rows[-1].arrival, payload, rows[-1].received_ns))
    whole.sort(key=itemgetter(0))
    return [(payload, received_ns) for _, payload, received_ns in whole], stale


def segment_in(row: PendingRecord) -> SegmentMessage | None:
    """Return the kept segment of a payload that has several; None where the row is a whole payload."""
    try:
        segment = SegmentMessage.decode(row.content)
    except DecodeError:
        return None
    return segment if is_segmented(segment) and segment.data_segment_count > 1 else None


def message_in(row: PendingRecord | ParityRecord, sender_id: ParticipantId) -> SdsMessage:
    """Return as much of the message that a row was kept of as reassembly needs."""
    history = SdsMessage.decode(row.history).causal_history
    if isinstance(row, ParityRecord):
        return SdsMessage(sender_id=sender_id, causal_history=history, content=row.chunk)
    return SdsMessage(
        sender_id=sender_id,
        message_id=row.message_id,
        lamport_timestamp=row.lamport_timestamp,
        causal_history=history,
        content=row.content,
    )


def rejoin(
    delivery: Delivery, key: SetKey, rows: Sequence[PendingRecord | ParityRecord]
) -> IncomingPayload | None:
    """Make a set of its kept segments; return the payload when it is whole.

    Args:
        delivery: Where it goes on.
        key: What identifies the set.
        rows: Its segments in the order in which they came.
    """
    reassembler = delivery.reassembler
    payload = reassembler.open_set(key, serial=rows[0].set_number)
    delivery.acceptance.payloads[payload.serial] = payload
    segment = SegmentMessage()
    for row in rows:
        message = message_in(row, payload.sender_id)
        extra = history_octets(message.causal_history)
        if isinstance(row, ParityRecord):
            segment = SegmentMessage(
                is_parity=True, parity_segment_index=row.segment_index, payload=row.chunk
            )
            reassembler.add(key, segment, extra=extra)
            history = message.causal_history
            payload.enter_parity(
                HeldParity(row.arrival, row.segment_index, row.chunk, history, row.received_ns)
            )
            payload.parity_rows.append(row.arrival)
        else:
            segment = SegmentMessage.decode(row.content)
            payload.has_odd = payload.has_odd or segment.encode() != row.content
            reassembler.add(key, segment, extra=extra)
            delivery.acceptance.join(payload, message, segment.data_segment_index)
        if not segment.is_parity or 0 not in payload.ids:
            delivery.gaps.look_for(message, segment.data_segment_index)
    delivery.wait_on(payload, rows[-1].received_ns)
    if reassembler.is_complete(payload) and delivery.assemble(payload, segment):
        return payload
    return None


def rejoin_whole(delivery: Delivery, row: PendingRecord) -> IncomingPayload:
    """Make the payload of a kept message that is a whole payload."""
    message = message_in(row, row.sender_id)
    delivery.gaps.look_for(message)
    try:
        segment = SegmentMessage.decode(row.content)
    except DecodeError:
        segment = SegmentMessage()
    content = segment.payload if is_segmented(segment) else row.content
    key = SetKey(message.sender_id, message.message_id.encode(), 0, 1, 0, len(content), 0)
    payload = IncomingPayload(serial=row.set_number, key=key)
    payload.message = content
    payload.octets = len(content) + history_octets(message.causal_history)
    delivery.acceptance.join(payload, message, 0)
    delivery.acceptance.payloads[payload.serial] = payload
    return payload
