"""Repair by other participants (SDS-R): when we ask for what we lack, and when we answer what others ask for.

::

    missing id ─ T_req ─► ripe ─► repair_request of our next message ─ not answered ─► again, ever later
    repair_request of others ─ have it, our group ─ T_resp ─► original bytes once more; heard from another: not needed

Both delays are pseudorandom functions of the ids, so that of many participants few ask, and the original sender
answers before everybody else. It must not keep messages (``archive``) nor decide when waiting ends (``gaps``).

Spec: LIP-109 (SDS), SDS Repair.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.timers import Timers
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import AnswerRecord, AskedRecord
from reliable_channel.types import MS, MessageId, Nanoseconds, ParticipantId

REPAIR_ENTRIES: Final = 3
"""Repair requests that one message carries (LIP-109, SDS-R send message)."""

MAX_DEFERRALS: Final = 2
"""Times that others' requests put ours off before it goes out all the same: nobody can silence us."""

MAX_ENTRIES_READ: Final = 16
"""Repair requests of one message of others that are read: more than any peer sends, fewer than would flood us."""

ASKER_SHARE: Final = 4
"""One asking participant may take up this part of the answers that we plan: a quarter."""


def participant_hash(*texts: str) -> int:
    """Return the 64-bit hash of SDS-R: the first 8 bytes, big-endian, of SHA-256 over the texts in a row.

    Spec: LIP-109 leaves the hash open; this is the published JavaScript implementation's (docs/wire.md).
    """
    return int.from_bytes(sha256("".join(texts).encode()).digest()[:8], "big")


def request_delay_ms(
    participant_id: ParticipantId, message_id: MessageId, t_min_ms: int, t_max_ms: int
) -> int:
    """Return how long after it was found missing a participant asks for a message, milliseconds.

    Spec: LIP-109 (SDS), Determine T_req.
    """
    return participant_hash(participant_id, message_id) % (t_max_ms - t_min_ms) + t_min_ms


def answer_delay_ms(
    participant_id: ParticipantId, sender_id: ParticipantId, message_id: MessageId, t_max_ms: int
) -> int:
    """Return how long after a request a participant answers it, milliseconds; 0 for the original sender.

    Spec: LIP-109 (SDS), Determine T_resp.
    """
    distance = participant_hash(participant_id) ^ participant_hash(sender_id)
    return distance * participant_hash(message_id) % t_max_ms


def in_response_group(
    participant_id: ParticipantId, sender_id: ParticipantId, message_id: MessageId, groups: int
) -> bool:
    """Tell whether a participant is among those who answer requests for a message.

    Spec: LIP-109 (SDS), Determine response group.
    """
    if groups == 1 or not sender_id:
        return bool(sender_id)  # without the original sender there is no group
    own = participant_hash(participant_id, message_id)
    return own % groups == participant_hash(sender_id, message_id) % groups


@dataclass(slots=True, eq=False)
class RepairRequest:
    """One id that others are asked for.

    Attributes:
        entry: What a message of ours says to ask for it.
        delay_ns: T_req after it was found missing.
        repeat_ns: From our first request to the second; it doubles with each.
        asked: Messages of ours that asked for it.
        deferred: Times that others' requests put it off since we last asked.
        is_kept: It has a row; without one it was neither asked for nor put off.
    """

    entry: HistoryEntry
    delay_ns: Nanoseconds
    repeat_ns: Nanoseconds
    asked: int = 0
    deferred: int = 0
    is_kept: bool = False


class RepairRequests:
    """What we are going to ask for: the outgoing repair request buffer, earliest T_req first.

    It holds ids that ``gaps`` looks for, so its size is bounded by theirs.

    Args:
        config: T_min, T_max, and whether repair is on.
        participant_id: Ours.
        timers: Where each T_req runs, under the key ("request", message id).
        outbox: Where row changes go.
    """

    def __init__(
        self, config: SdsConfig, participant_id: ParticipantId, timers: Timers, outbox: Outbox
    ) -> None:
        self.config = config
        self.participant_id = participant_id
        self.timers = timers
        self.outbox = outbox
        self.requests: dict[MessageId, RepairRequest] = {}
        self.ripe: dict[MessageId, None] = {}

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def is_due(self) -> bool:
        """Whether there is something to ask for now."""
        return bool(self.ripe)

    def want(
        self, message_id: MessageId, sender_id: ParticipantId | None, now: Nanoseconds
    ) -> None:
        """Ask for an id from T_req on, unless it is found before; harmless when repeated."""
        if not self.config.enable_repair or message_id in self.requests:
            return
        delay_ms = request_delay_ms(
            self.participant_id,
            message_id,
            self.config.repair_t_min_ms,
            self.config.repair_t_max_ms,
        )
        # By T_max an answer has come, if there is one; after that the distance doubles each time.
        repeat_ms = min(2 * delay_ms, self.config.repair_t_max_ms)
        entry = HistoryEntry(message_id, None, sender_id)
        self.requests[message_id] = RepairRequest(entry, delay_ms * MS, repeat_ms * MS)
        self.timers.set(("request", message_id), now + delay_ms * MS)

    def restore(self, records: Iterable[AskedRecord], now: Nanoseconds) -> None:
        """Go on asking for ids where it was, once what is missing was taken back.

        Args:
            records: Rows of ids, also of those that are not missing any more.
            now: Unix time, nanoseconds.
        """
        for record in records:
            request = self.requests.get(record.message_id)
            if request is None:
                self.outbox.delete(AskedRecord, record.message_id)
                continue
            request.asked, request.deferred = record.asked, record.deferred
            request.is_kept = True
            # No wait is longer, unless the clock was set back.
            longest = max(request.repeat_ns << request.asked, self.config.repair_t_max_ms * MS)
            self.timers.set(("request", record.message_id), min(record.next_ns, now + longest))

    def keep(self, request: RepairRequest) -> None:
        """Write the row of a request; one that is ripe is due at any time."""
        request.is_kept = True
        message_id = request.entry.message_id
        self.outbox.put(
            AskedRecord(
                message_id=message_id,
                next_ns=self.timers.deadline(("request", message_id)) or 0,
                asked=request.asked,
                deferred=request.deferred,
            )
        )

    def forget(self, message_id: MessageId) -> None:
        """Ask for an id no more: it arrived, or it is given up."""
        request = self.requests.pop(message_id, None)
        if request is None:
            return
        self.ripe.pop(message_id, None)
        self.timers.cancel(("request", message_id))
        if request.is_kept:
            self.outbox.delete(AskedRecord, message_id)

    def defer(self, message_id: MessageId, now: Nanoseconds) -> None:
        """Put our request off, because another participant has just made it; only arrival removes it.

        Each time by longer, so that of many who lack a message not one after the other asks while nobody answers.

        Spec: LIP-109 (SDS), SDS-R receive message. Deviation: it removes ours, and an answer that got lost would
        never be asked for again.
        """
        request = self.requests.get(message_id)
        if request is None or request.deferred >= MAX_DEFERRALS:
            return
        wait = min(request.delay_ns << request.deferred, self.config.repair_t_max_ms * MS)
        request.deferred += 1
        self.ripe.pop(message_id, None)
        key = ("request", message_id)
        self.timers.set(key, max(now + wait, self.timers.deadline(key) or 0))
        self.keep(request)

    def ripen(self, message_id: MessageId) -> None:
        """Let an id be asked for: its T_req has come."""
        self.ripe[message_id] = None

    def take(self, now: Nanoseconds) -> tuple[RepairRequest, ...]:
        """Return what a message that goes out now asks for, earliest T_req first; it is asked for again later."""
        if not self.ripe:
            return ()
        taken = []
        for message_id in list(self.ripe)[:REPAIR_ENTRIES]:
            del self.ripe[message_id]
            request = self.requests[message_id]
            request.deferred = 0
            due_ns = now + (request.repeat_ns << request.asked)
            self.timers.set(("request", message_id), due_ns)
            request.asked += 1
            self.keep(request)
            taken.append(request)
        return tuple(taken)

    def put_back(self, taken: Iterable[RepairRequest]) -> None:
        """Take note that the message which made these requests did not go out.

        An id may have been forgotten meanwhile, and be missing again: that is another request, not made yet.
        """
        for request in taken:
            message_id = request.entry.message_id
            if self.requests.get(message_id) is request and message_id not in self.ripe:
                request.asked -= 1
                self.timers.cancel(("request", message_id))
                self.ripe[message_id] = None
                self.keep(request)


@dataclass(frozen=True, slots=True, eq=False)
class RepairAnswer:
    """A message that others asked for and we are going to send once more.

    Attributes:
        message_id: Its id.
        asked_by: Whose request it was.
        data: Its original bytes.
        in_store: The node's store is known to have it.
        due_ns: T_resp, once it is planned.
    """

    message_id: MessageId
    asked_by: ParticipantId
    data: bytes
    in_store: bool
    due_ns: Nanoseconds = 0

    def record(self, given_ns: Nanoseconds = 0) -> AnswerRecord:
        """Return its row; it holds no bytes, which are kept anyway."""
        return AnswerRecord(
            message_id=self.message_id,
            asked_by=self.asked_by,
            in_store=self.in_store,
            due_ns=self.due_ns,
            given_ns=given_ns,
        )


class RepairAnswers:
    """What others asked for: the incoming repair request buffer, and what was answered within T_max.

    Args:
        config: T_max, response groups, bounds.
        participant_id: Ours.
        timers: Where each T_resp runs, under the key ("answer", message id).
        outbox: Where row changes go, and where is counted what there is no room for.
    """

    def __init__(
        self, config: SdsConfig, participant_id: ParticipantId, timers: Timers, outbox: Outbox
    ) -> None:
        self.config = config
        self.participant_id = participant_id
        self.timers = timers
        self.outbox = outbox
        self.pending: dict[MessageId, RepairAnswer] = {}
        self.answered: OrderedDict[MessageId, Nanoseconds] = OrderedDict()

    def __len__(self) -> int:
        return len(self.pending)

    def wants(
        self,
        message_id: MessageId,
        asked_by: ParticipantId,
        sender_id: ParticipantId,
        now: Nanoseconds,
    ) -> bool:
        """Tell whether we are to answer a request.

        Not where another response group answers, where we answered within T_max, or where too much is asked of us.

        Args:
            message_id: What is asked for.
            asked_by: Who asks.
            sender_id: Who sent it first.
            now: Unix time, nanoseconds.

        Spec: LIP-109 (SDS), SDS-R receive message.
        """
        if message_id in self.pending or self.was_answered(message_id, now):
            return False
        groups = self.config.num_response_groups
        if not in_response_group(self.participant_id, sender_id, message_id, groups):
            return False
        # Together they bound how much others can make us send within T_max.
        limit = self.config.max_repair_answers
        if len(self.pending) + len(self.answered) >= limit:
            self.outbox.drop("repair_answers_full")
            return False
        asked = sum(answer.asked_by == asked_by for answer in self.pending.values())
        if asked >= max(1, limit // ASKER_SHARE):
            self.outbox.drop("repair_answers_of_sender_full")
            return False
        return True

    def plan(self, answer: RepairAnswer, sender_id: ParticipantId, now: Nanoseconds) -> None:
        """Give an answer at T_resp, unless somebody else is heard giving it."""
        message_id = answer.message_id
        delay_ms = answer_delay_ms(
            self.participant_id, sender_id, message_id, self.config.repair_t_max_ms
        )
        self.wait_for(replace(answer, due_ns=now + delay_ms * MS))

    def wait_for(self, answer: RepairAnswer) -> None:
        """Give an answer when it is due; its row is part of what planned it."""
        self.pending[answer.message_id] = answer
        self.timers.set(("answer", answer.message_id), answer.due_ns)
        self.outbox.put(answer.record())

    def restore(self, record: AnswerRecord, answer: RepairAnswer | None, now: Nanoseconds) -> None:
        """Go on with a kept row: planned when it was, or given within T_max.

        What was due more than T_max ago is let go: who still lacks it has asked again.

        Args:
            record: The row; those that were given come in the order in which they were.
            answer: What it is about; None where its bytes are not kept any more.
            now: Unix time, nanoseconds.
        """
        t_max_ns = self.config.repair_t_max_ms * MS
        is_old = max(record.due_ns, record.given_ns) <= now - t_max_ns
        is_full = len(self.pending) + len(self.answered) >= self.config.max_repair_answers
        if not self.config.enable_repair or is_old or is_full:
            self.outbox.delete(AnswerRecord, record.message_id)
        elif record.given_ns:
            self.answered[record.message_id] = min(record.given_ns, now)
        elif answer is None:
            self.outbox.delete(AnswerRecord, record.message_id)
        else:
            due_ns = min(record.due_ns, now + t_max_ns)
            restored = replace(answer, in_store=record.in_store, due_ns=due_ns)
            self.pending[record.message_id] = restored
            self.timers.set(("answer", record.message_id), due_ns)

    def was_answered(self, message_id: MessageId, now: Nanoseconds) -> bool:
        """Tell whether we answered a request for an id within T_max; what is older is forgotten."""
        oldest_kept = now - self.config.repair_t_max_ms * MS
        while self.answered and next(iter(self.answered.values())) <= oldest_kept:
            forgotten, _ = self.answered.popitem(last=False)
            self.outbox.delete(AnswerRecord, forgotten)
        return message_id in self.answered

    def note_sent(self, answer: RepairAnswer, now: Nanoseconds) -> None:
        """Take note that an answer goes out; from here on a crash changes nothing: it was given once."""
        message_id = answer.message_id
        self.cancel(message_id)
        self.answered[message_id] = now
        self.answered.move_to_end(message_id)
        self.outbox.put(answer.record(now))

    def note_failed(self, message_id: MessageId) -> None:
        """Take note that an answer did not go out: whoever asks again is answered."""
        if self.answered.pop(message_id, None) is not None:
            self.outbox.delete(AnswerRecord, message_id)

    def note_waiting(self, answer: RepairAnswer) -> None:
        """Take note that an answer did not go out and waits for its turn again."""
        self.note_failed(answer.message_id)
        self.pending[answer.message_id] = answer
        self.outbox.put(answer.record())

    def cancel(self, message_id: MessageId) -> RepairAnswer | None:
        """Answer a request no more; return the answer that is needless now, or None."""
        answer = self.pending.pop(message_id, None)
        if answer is not None:
            self.timers.cancel(("answer", message_id))
            self.outbox.delete(AnswerRecord, message_id)
        return answer
