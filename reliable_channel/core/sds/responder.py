"""Answers others' repair requests with the original bytes, unless somebody else was heard doing so.

It must not ask for anything itself (``repair``) nor decide whether the epoch budget allows an answer (``dispatch``).

Spec: LIP-109 (SDS), SDS-R receive message, incoming repair request buffer sweep.
"""

from __future__ import annotations

from collections.abc import Iterable

from reliable_channel.core.dispatch import AnswerTurn, DispatchQueue
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.requests import RequestBook
from reliable_channel.core.sds.repair import MAX_ENTRIES_READ, RepairAnswer, RepairAnswers
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import SdsMessage
from reliable_channel.records import AnswerRecord
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId


class RepairResponder:
    """Requests of others, from being heard to the answer given to the node.

    Args:
        state: What both directions share.
        book: Messages of ours that are still open, bytes included.
        queue: Where answers wait for their turn.
    """

    def __init__(self, state: ChannelState, book: RequestBook, queue: DispatchQueue) -> None:
        self.state = state
        self.book = book
        self.queue = queue
        self.answers = RepairAnswers(state.sds, state.sender_id, state.timers, state.outbox)
        self.count = 0

    def requested(self, message: SdsMessage) -> None:
        """Take what another participant's message asks for, just now.

        Who answers first depends on the original sender as we know it, whatever the request says.
        """
        state = self.state
        if not state.sds.enable_repair:
            return
        for entry in message.repair_request[:MAX_ENTRIES_READ]:
            state.outbox.count("repairs_requested")
            state.repairs.defer(entry.message_id, state.now)
            known = state.log.known.get(entry.message_id)
            if known is not None and self.answers.wants(
                known.message_id, message.sender_id, known.sender_id, state.now
            ):
                answer = self.find(known.message_id, message.sender_id)
                if answer is not None:
                    self.answers.plan(answer, known.sender_id, state.now)

    def find(self, message_id: MessageId, asked_by: ParticipantId) -> RepairAnswer | None:
        """Return the answer to a request for a message, or None when we do not have its original bytes."""
        archived = self.state.archive.find(message_id)
        if archived is not None:
            return RepairAnswer(message_id, asked_by, archived.data, archived.in_store)
        for request, index in self.book.index.get(message_id, ()):
            segment = request.segments[index]
            if segment.header is not None:
                data = segment.header + segment.suffix
                return RepairAnswer(message_id, asked_by, data, in_store=False)
        return None

    def restore(self, records: Iterable[AnswerRecord], now: Nanoseconds) -> None:
        """Go on with what was planned and what was given; of those others may have answered, catching up tells."""
        for record in sorted(records, key=lambda item: item.given_ns or item.due_ns):
            answer = self.find(record.message_id, record.asked_by)
            self.answers.restore(record, answer, now)

    def overheard(self, message_id: MessageId, data: bytes) -> None:
        """Let an answer be that somebody else has just given.

        Answers are original bytes; others under the same id are none, and must not keep the true ones away.
        """
        answer = self.answers.pending.get(message_id)
        if answer is not None and answer.data == data:
            self.state.outbox.count("repairs_overheard")
            self.cancel(answer)

    def cancel(self, answer: RepairAnswer) -> None:
        """Give an answer no more, also where it waits for its turn."""
        self.answers.cancel(answer.message_id)
        for segment_id, turn in list(self.queue.queues[TrafficClass.REPAIR_ANSWER].items()):
            if isinstance(turn, AnswerTurn) and turn.answer is answer:
                self.queue.discard(TrafficClass.REPAIR_ANSWER, segment_id)

    def answer_due(self, message_id: MessageId, now: Nanoseconds) -> None:
        """Let an answer wait for its turn: its T_resp has come. What was withdrawn meanwhile is nobody's business."""
        answer = self.answers.pending.get(message_id)
        if answer is None:
            return
        if message_id in self.state.log:
            self.due(answer, now)
        else:
            self.answers.cancel(message_id)

    def expired(self, answer: RepairAnswer, now: Nanoseconds) -> None:
        """Let an answer wait for another turn whose epoch ended before it could be handed over."""
        self.answers.note_waiting(answer)
        self.due(answer, now)

    def due(self, answer: RepairAnswer, now: Nanoseconds) -> None:
        """Let an answer wait for its turn."""
        self.count += 1
        self.queue.put(TrafficClass.REPAIR_ANSWER, f"repair:{self.count}", AnswerTurn(answer), now)

    def gone_out(self, answer: RepairAnswer, now: Nanoseconds) -> None:
        """Take note that an answer is given to the node."""
        self.answers.note_sent(answer, now)

    def failed(self, answer: RepairAnswer) -> None:
        """Take note that the node did not take an answer."""
        self.answers.note_failed(answer.message_id)
