"""Kept rows back to a working channel.

Requests that were open go on: what the node has not confirmed counts as not made (but stays counted in the epoch
budget), acknowledgement timers start anew. Payloads that were incomplete or parked are put together again from their
segments; parked ones wait their whole time again. It must not publish anything.

Spec: RELIABLE-CHANNEL-API: causal history, outgoing buffers and partial reassembly survive restarts.
"""

from __future__ import annotations

from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.delivery import Delivery
from reliable_channel.core.outgoing import OutgoingPipeline
from reliable_channel.core.payload import IncomingPayload
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
    OutgoingRecord,
    PendingRecord,
    RequestRecord,
    Snapshot,
    rows_of,
)
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId, RequestId

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
    for row in sorted(rows_of(snapshot, RequestRecord), key=lambda item: item.created_ns):
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
    restore_segments(requests, snapshot)
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
    book.requests[request.request_id] = request
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


def restore_segments(requests: dict[RequestId, Request], snapshot: Snapshot) -> None:
    """Give open requests their segments back."""
    bodies: dict[tuple[MessageId, str], bytes] = {
        (row.message_id, row.part): row.data for row in rows_of(snapshot, BodyRecord)
    }
    for row in sorted(rows_of(snapshot, OutgoingRecord), key=lambda item: item.segment_index):
        request = requests[row.request_id]
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
                # Without a running timer the last one was not confirmed: it counts as not made.
                retransmissions=max(0, row.retransmissions - (not row.deadline_ns)),
            )
        )
        request.propagated += row.propagated


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
    """Let an open request go on: unconfirmed segments wait for their turn, timers of the others run."""
    outgoing.book.open(request)
    if request.acknowledged:
        request.heard_ns = now
    for segment in request.segments:
        if request.anybody_has(segment.index):
            outgoing.outcomes.propagated(segment, now)
        if segment.propagated:
            if not request.is_final:
                outgoing.acknowledgements.start_timer(segment, now)
        else:
            outgoing.queue.put_segment(TrafficClass.FRESH, segment, now)


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
    whole = []
    pending = rows_of(snapshot, PendingRecord)
    for part in sorted(pending, key=lambda item: (item.received_ns, item.lamport_timestamp)):
        payload = rejoin(delivery, part)
        if payload is not None:
            whole.append(payload)
    for payload in whole:
        if payload.data:
            delivery.put_together(payload)
        else:
            delivery.complete(payload)


def rejoin(delivery: Delivery, row: PendingRecord) -> IncomingPayload | None:
    """Enter a kept segment in its payload; return the payload when that makes it whole."""
    message = SdsMessage(
        sender_id=row.sender_id,
        message_id=row.message_id,
        lamport_timestamp=row.lamport_timestamp,
        causal_history=SdsMessage.decode(row.history).causal_history,
        content=row.content,
    )
    try:
        segment = SegmentMessage.decode(row.content)
    except DecodeError:
        segment = SegmentMessage()
    delivery.gaps.look_for(message)
    if not is_segmented(segment) or segment.data_segment_count == 1:
        return rejoin_whole(delivery, message, segment)
    key = delivery.reassembler.key_of(row.sender_id, segment)
    extra = history_octets(message.causal_history)
    payload = delivery.reassembler.add(key, segment, ephemeral=False, extra=extra)
    delivery.acceptance.join(payload, message, segment.data_segment_index)
    delivery.acceptance.payloads[payload.serial] = payload
    delivery.wait_for_rest(payload)
    if delivery.reassembler.is_complete(payload) and delivery.assemble(payload, segment):
        return payload
    return None


def rejoin_whole(
    delivery: Delivery, message: SdsMessage, segment: SegmentMessage
) -> IncomingPayload:
    """Make the payload of a kept message that is a whole payload."""
    content = segment.payload if is_segmented(segment) else message.content or b""
    key = (message.sender_id, message.message_id.encode(), 0, 1, 0, len(content), 0)
    delivery.reassembler.serial += 1
    payload = IncomingPayload(serial=delivery.reassembler.serial, key=key, ephemeral=False)
    payload.message = content
    payload.octets = len(content) + history_octets(message.causal_history)
    delivery.acceptance.join(payload, message, 0)
    delivery.acceptance.payloads[payload.serial] = payload
    return payload
