"""How requests end, and what the application is told about them on the way.

::

    all data segments propagated ─► sent        one participant has all of it ─► delivered
    the node refused for good    ─► send-error  nobody acknowledged in time   ─► delivery-error

A request that failed leaves nothing behind that others would wait for. It must not decide that a request has ended:
the evidence is for ``acknowledgements``, the reports of the node are for ``outgoing``.

Spec: RELIABLE-CHANNEL-API, MessageSentEvent, MessageDeliveredEvent, MessageSendErrorEvent, MessageDeliveryErrorEvent.
"""

from __future__ import annotations

from collections.abc import Iterable

from reliable_channel.core.dispatch import DispatchQueue
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.requests import OutgoingSegment, Request, RequestBook, RequestState
from reliable_channel.core.sds.causal import IdRing
from reliable_channel.core.segmentation import Segmenter
from reliable_channel.core.state import ChannelState
from reliable_channel.events import (
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageProgressEvent,
    MessageQueuedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import BodyRecord
from reliable_channel.types import MessageId, Nanoseconds, RequestId


class Outcomes:
    """Brings requests to their final event.

    Args:
        state: What both directions share.
        book: All requests.
        queue: Where what an ended request has waiting is taken out.
        passing: Ids that are remembered although they are not (any more) in the log.
        segmenter: Knows how many parity segments a request has.
    """

    def __init__(
        self,
        state: ChannelState,
        book: RequestBook,
        queue: DispatchQueue,
        passing: IdRing,
        segmenter: Segmenter,
    ) -> None:
        self.state = state
        self.book = book
        self.queue = queue
        self.passing = passing
        self.segmenter = segmenter

    # -- on the way -------------------------------------------------------------------------------

    def queued(self, request: Request, expected_ns: Nanoseconds, now: Nanoseconds) -> None:
        """Tell that a request has to wait for the rate limiter, and until when about."""
        self.state.outbox.count("requests_queued")
        self.state.outbox.emit(
            MessageQueuedEvent(
                channel_id=self.state.channel_id,
                time_ns=now,
                request_id=request.request_id,
                expected_at=expected_ns,
            )
        )

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
            self.state.outbox.put_at((request.request_id,), request.record())

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
                recipients=request.recipients,
                participants=self.state.participants.lately(now),
            )
        )

    # -- ends -------------------------------------------------------------------------------------

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

    def delivery_error(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """End a request whose segment nobody acknowledged although all retransmissions were used."""
        request = segment.request
        error = (
            f"segment {segment.index + 1} of {request.segment_count} was not acknowledged after "
            f"{segment.timeouts + 1} timeouts; it reached the network, so there may be "
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

    def finish(self, request: Request, state: RequestState, error: str = "") -> None:
        """End a request and let go of its timers, queue places and bytes."""
        self._stop(request, state)
        self.book.finish(request, state, error)
        self.state.outbox.count(f"requests_{state}")

    def _stop(self, request: Request, state: RequestState) -> None:
        for segment in request.segments:
            segment_id = segment.segment_id
            self.state.timers.cancel(("ack", segment_id))
            self.state.timers.cancel(("redo", segment_id))
            if segment.queued:
                segment.queued = False
                if not self.queue.discard(TrafficClass.REPAIR, segment_id):
                    self.queue.discard(TrafficClass.FRESH, segment_id)
            self.let_go(segment, state)
        # An ephemeral payload is never acknowledged, so its parity helps also after it was sent.
        needless = state is not RequestState.SENT
        parity_waiting = request.parity_count if needless else 0
        for index in range(parity_waiting):
            parity_id = f"{request.request_id}:{request.segment_count + index + 1}"
            self.queue.discard(TrafficClass.PARITY, parity_id)

    def let_go(self, segment: OutgoingSegment, state: RequestState) -> None:
        """Let go of a segment's bytes, unless others may ask for them or an equal one needs them."""
        header, suffix = segment.header, segment.suffix
        segment.header, segment.suffix = None, b""
        twins = self.twins(segment)
        kept = bool(twins)
        # What an equal message has made known went out, whatever became of this one.
        is_out = state is not RequestState.SEND_ERROR or not segment.made_known
        is_out = is_out and not segment.request.ephemeral
        if header and is_out:
            for twin in twins:
                twin.header = twin.header or header
        if not kept and header and is_out:
            kept = self.state.archive.keep_own(segment.message_id, header, suffix)
        if not kept:
            self.state.outbox.delete(BodyRecord, segment.message_id, "content")
        if not kept or (twins and not any(twin.header for twin in twins)):
            self.state.outbox.delete(BodyRecord, segment.message_id, "header")

    # -- what failed ------------------------------------------------------------------------------

    def withdraw(self, request_id: RequestId, now: Nanoseconds) -> None:
        """Undo a ``send`` none of which was given to the node, as if it had never been made."""
        request = self.book.requests[request_id]
        for segment in request.segments:
            segment.in_flight = False
        for segment_id in list(self.queue.in_flight):
            if segment_id.rpartition(":")[0] == request_id:
                self.queue.landed(segment_id, now, certain_failure=True)
        self.withdraw_ids(request, now)
        self._stop(request, RequestState.SEND_ERROR)
        self.book.withdraw(request)
        self.state.outbox.count("requests_withdrawn")

    def withdraw_ids(self, request: Request, now: Nanoseconds) -> None:
        """Take the ids of a failed request out of the log: nobody is to wait for what will never be whole."""
        for segment in reversed(request.segments):
            self.withdraw_id(segment, now)

    def withdraw_id(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Take one id out of the log; what its message acknowledged, if it never went out, is owed again.

        An id that did go out is remembered in passing, so that its echo is known.
        """
        twins = self.twins(segment)
        if twins:
            for twin in twins:
                twin.made_known = True
        elif segment.made_known and segment.message_id in self.state.log:
            self.state.log.withdraw(segment.message_id, segment.history)
        if segment.transmissions:
            self.passing.add(segment.message_id)
        if not segment.propagated and not segment.in_flight:
            self.owe_again(segment.settled)
            segment.settled = ()
            self.state.repairs.put_back(segment.asked)
            segment.asked = ()
            self.state.sync.owe(now, self.state.group(now))

    def owe_again(self, message_ids: Iterable[MessageId]) -> None:
        """Put acknowledgements back that a message named and did not carry to anybody."""
        for message_id in message_ids:
            known = self.state.log.known.get(message_id)
            if known is not None:
                self.state.debt.add(message_id, known.payload, known.segment_count)

    def twins(self, segment: OutgoingSegment) -> list[OutgoingSegment]:
        """Return the segments of the same id in other open requests (``message_id="content"``)."""
        places = self.book.index.get(segment.message_id, ())
        if len(places) == 1 and places[0][0] is segment.request:
            return []
        return [
            other.segments[index]
            for other, index in places
            if other is not segment.request and not other.is_final
        ]
