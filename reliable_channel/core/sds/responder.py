"""Answers others' repair requests with the original bytes, unless somebody else was heard doing so.

It must not ask for anything itself (``repair``) nor decide whether the epoch budget allows an answer (``dispatch``).

Spec: LIP-109 (SDS), SDS-R receive message, incoming repair request buffer sweep.
"""

from __future__ import annotations

from reliable_channel.core.dispatch import AnswerTurn, DispatchQueue
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.requests import RequestBook
from reliable_channel.core.sds.repair import RepairAnswer, RepairAnswers
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import SdsMessage
from reliable_channel.types import MessageId, Nanoseconds


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
        """Take what another participant's message asks for.

        Who answers first depends on the original sender as we know it, whatever the request says.
        """
        state = self.state
        if not state.sds.enable_repair:
            return
        for entry in message.repair_request:
            state.outbox.count("repairs_requested")
            state.repairs.defer(entry.message_id, state.now)
            answer = self.find(entry.message_id)
            if answer is not None:
                sender_id = state.log.known[entry.message_id].sender_id
                self.answers.plan(answer, sender_id, state.now)

    def find(self, message_id: MessageId) -> RepairAnswer | None:
        """Return the answer to a request for a message, or None when we do not have its original bytes."""
        if message_id not in self.state.log:
            return None
        archived = self.state.archive.find(message_id)
        if archived is not None:
            return RepairAnswer(message_id, archived.data, archived.in_store)
        for request, index in self.book.index.get(message_id, ()):
            segment = request.segments[index]
            if segment.header is not None:
                return RepairAnswer(message_id, segment.header + segment.suffix, in_store=False)
        return None

    def overheard(self, message: SdsMessage) -> None:
        """Let an answer be that somebody else has just given.

        The same id with other content is no answer: a forged copy must not keep the true one away.
        """
        answer = self.answers.pending.get(message.message_id)
        if answer is None or SdsMessage.decode(answer.data).content != message.content:
            return
        self.answers.cancel(message.message_id)
        self.state.outbox.count("repairs_overheard")
        waiting = self.queue.queues[TrafficClass.REPAIR_ANSWER]
        for segment_id, turn in list(waiting.items()):
            if isinstance(turn, AnswerTurn) and turn.answer is answer:
                self.queue.discard(TrafficClass.REPAIR_ANSWER, segment_id)

    def answer_due(self, message_id: MessageId, now: Nanoseconds) -> None:
        """Let an answer wait for its turn: its T_resp has come."""
        answer = self.answers.pending.get(message_id)
        if answer is not None:
            self.due(answer, now)

    def due(self, answer: RepairAnswer, now: Nanoseconds) -> None:
        """Let an answer wait for its turn."""
        self.count += 1
        self.queue.put(TrafficClass.REPAIR_ANSWER, f"repair:{self.count}", AnswerTurn(answer), now)

    def gone_out(self, answer: RepairAnswer, now: Nanoseconds) -> None:
        """Take note that an answer is given to the node."""
        self.answers.note_sent(answer.message_id, now)

    def failed(self, answer: RepairAnswer) -> None:
        """Take note that the node did not take an answer."""
        self.answers.note_failed(answer.message_id)
