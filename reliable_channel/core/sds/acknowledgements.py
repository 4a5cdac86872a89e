"""What others' messages say about ours, and what follows: delivered, again, or given up.

A history that names an id is proof; an id in enough filters of one participant counts as much. It must not build
messages nor talk to the node: what is to go out again waits in the queue, how requests end is for ``Outcomes``.

Spec: LIP-109 (SDS), Review ACK status, Outgoing buffer sweep; RELIABLE-CHANNEL-API, acknowledgementTimeoutMs.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Final

from reliable_channel.core.dispatch import DispatchQueue
from reliable_channel.core.outcomes import Outcomes
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.requests import OutgoingSegment, Request, RequestBook
from reliable_channel.core.sds.bloom import BloomShape
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.types import MS, Nanoseconds, ParticipantId, RequestId

MAX_FILTER_RATIO: Final = 0.6
"""A filter with more of its bits set says yes too easily to be evidence."""

ROUND_SHARE: Final = 0.25
"""Part of an acknowledgement timeout in which segments that time out belong to one round of retransmissions.

As long is waited after news for more of it: of a large payload several syncs tell.
"""


class Acknowledgements:
    """Evidence about segments of ours, and the timers that run while there is none.

    Args:
        state: What both directions share.
        book: The requests that the evidence is about.
        queue: Where retransmissions wait.
        outcomes: Told what became of requests.
    """

    def __init__(
        self, state: ChannelState, book: RequestBook, queue: DispatchQueue, outcomes: Outcomes
    ) -> None:
        self.state = state
        self.book = book
        self.queue = queue
        self.outcomes = outcomes
        backoff = state.sds.retransmission_backoff
        self.backoff = backoff if backoff is not None else (2.0 if queue.budget.enabled else 1.0)
        self.shape = (
            BloomShape(state.sds.bloom_capacity, state.sds.bloom_error_rate)
            if state.sds.bloom_capacity
            else None
        )

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
        places = self.book.index
        for entry in entries if places else ():
            for request, index in places.get(entry.message_id, ()):
                if self.acknowledge(request, participant, index):
                    touched[request.request_id] = request
        if bloom_filter and (self.book.outstanding or self.book.watched):
            for segment in self.possible(participant, bloom_filter):
                if self.acknowledge(segment.request, participant, segment.index):
                    touched[segment.request.request_id] = segment.request
        for request in touched.values():
            if request.request_id in self.book.requests:  # the end of one may forget another
                self.acknowledged(request, participant, now)

    def acknowledge(self, request: Request, participant: ParticipantId, index: int) -> bool:
        """Note that a participant has a data segment, if there is room for it; say whether that is news."""
        if request.acknowledged.get(participant, 0) >> index & 1:
            return False
        if self.is_full(request.acknowledged, participant):
            return False
        return request.acknowledge(participant, index)

    def is_full(self, noted: dict[ParticipantId, int], participant: ParticipantId) -> bool:
        """Tell whether so many participants are noted that another one is not: sender ids are free."""
        if participant in noted or len(noted) < self.state.sds.max_participants:
            return False
        self.state.outbox.count("recipients_full")
        return True

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
        for segment in chain(self.book.outstanding.values(), self.book.watched.values()):
            # A look-up in the filter costs most: most often the participant has all that was sent.
            if segment.request.acknowledged.get(participant, 0) >> segment.index & 1:
                continue
            if not segment.transmissions or not shape.has_pair(data, segment.pair):
                continue
            if self.is_full(segment.possible, participant):
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
        request.heard_ns = now
        if request.is_final:
            self.outcomes.progress(request, now)
            return
        if request.leader_has_all():
            self.outcomes.delivered(request, now)
            return
        for segment in request.segments:
            if not segment.transmissions:
                continue
            if request.leader_has(segment.index):
                self.stop_repeating(segment, now)
            elif segment.spared:
                self.hasten(segment, now)
        self.outcomes.progress(request, now)

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
        self.outcomes.propagated(segment, now)
        self.start_timer(segment, now)

    def hasten(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Let the timer of a segment end soon that was not sent again for want of news: now there is some.

        The timeouts that it let pass for others come back to it: somebody is there to be sent to.
        """
        segment.passed = 0
        soon = now + int(self.wait_ns(segment) * ROUND_SHARE)
        if soon < segment.deadline_ns:
            self.end_timer_at(segment, soon)
            self.state.outbox.put(segment.record())

    def wait_ns(self, segment: OutgoingSegment) -> Nanoseconds:
        """Return how long a segment's acknowledgement is waited for, nanoseconds."""
        wait = self.state.sds.acknowledgement_timeout_ms * MS
        return int(wait * self.backoff**segment.timeouts)

    def start_timer(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Let the acknowledgement timer run: it starts when the node has reported, never before.

        Spec: RELIABLE-CHANNEL-API, acknowledgementTimeoutMs.
        """
        if segment.request.ephemeral:
            return
        self.end_timer_at(segment, now + self.wait_ns(segment))

    def end_timer_at(self, segment: OutgoingSegment, deadline_ns: Nanoseconds) -> None:
        """Let a segment's acknowledgement timer end at a time."""
        segment.deadline_ns = deadline_ns
        self.state.timers.set(("ack", segment.segment_id), deadline_ns)

    def restore_timer(self, segment: OutgoingSegment, now: Nanoseconds) -> None:
        """Let a kept timer run on until its wall time; one that is not known begins now, and its row says so."""
        if segment.request.ephemeral:
            return
        if segment.deadline_ns:
            # No wait is longer, unless the clock was set back.
            self.end_timer_at(segment, min(segment.deadline_ns, now + self.wait_ns(segment)))
        else:
            self.start_timer(segment, now)
            self.state.outbox.put(segment.record())

    def go_on(self, now: Nanoseconds) -> None:
        """Spread the timers that ended while we were down, once what was missed was taken in.

        The first request goes at once, so that who is restarted again and again gets on; the others within a timeout:
        the answer to the first is a sync, which names what else has arrived. Nobody could be heard while we were
        down, so what has no retransmission left is listened for once more.
        """
        overdue: dict[RequestId, list[OutgoingSegment]] = {}
        for segment in sorted(self.book.segments.values(), key=lambda item: item.deadline_ns):
            if ("ack", segment.segment_id) not in self.state.timers or segment.deadline_ns > now:
                continue
            if segment.request.leader_has(segment.index):
                self.start_timer(segment, now)
            elif segment.timeouts >= self.state.sds.max_retransmissions and not segment.spared:
                segment.spared = True
                self.start_timer(segment, now)
                self.state.outbox.put(segment.record())
            else:
                overdue.setdefault(segment.request.request_id, []).append(segment)
        spread = self.state.sds.acknowledgement_timeout_ms * MS
        for place, segments in enumerate(overdue.values()):
            for segment in segments:
                self.end_timer_at(segment, now + place * spread // len(overdue))

    def timed_out(self, segment_id: RequestId, now: Nanoseconds) -> None:
        """Act on an acknowledgement timer: retransmit, give up, or let it run on while the leader has it.

        Where a filter says that somebody may have it, the timer runs a second time before it is sent again. Where
        others of its request go first, the time counts as if it had been sent again, so that every request ends.

        Spec: LIP-109 (SDS), Periodic outgoing buffer sweep: distinct resend periods.
        """
        segment = self.book.segments.get(segment_id)
        if segment is None or segment.request.is_final:
            return
        wait = self.wait_ns(segment)
        started_ns, segment.deadline_ns = segment.deadline_ns - wait, 0
        if segment.request.leader_has(segment.index):
            self.start_timer(segment, now)
        elif segment.timeouts >= self.state.sds.max_retransmissions:
            if segment.request.sent:
                self.outcomes.delivery_error(segment, now)
            else:
                self.start_timer(segment, now)  # the others decide: sent, or a send-error
        elif segment.possible and not segment.spared:
            segment.spared = True
            self.start_timer(segment, now)
            self.state.outbox.put(segment.record())
        elif not self.goes_now(segment, started_ns, now):
            segment.spared = True
            segment.passed += 1
            self.start_timer(segment, now)
            self.state.outbox.put(segment.record())
            self.state.outbox.count("retransmissions_spared")
        else:
            self.queue.put_segment(TrafficClass.REPAIR, segment, now)

    def goes_now(self, segment: OutgoingSegment, started_ns: Nanoseconds, now: Nanoseconds) -> bool:
        """Tell whether a segment is one of those of its request that go out again together.

        Args:
            segment: Its timer has just ended.
            started_ns: When the timer began.
            now: Unix time, nanoseconds.
        """
        request = segment.request
        if now >= request.round.ends_ns:
            end = now + int(self.wait_ns(segment) * ROUND_SHARE)
            is_news = request.heard_ns >= started_ns
            request.round.begin(end, len(request.lacking()), request.parity_count, is_news=is_news)
        return request.round.take()
