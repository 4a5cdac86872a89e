"""Repair by other participants (SDS-R): when we ask for what we lack, and when we answer what others ask for.

::

    missing id ─ T_req ─► ripe ─► repair_request of our next message ─ not answered ─► again later, at most 3 times
    repair_request of others ─ have it, our group ─ T_resp ─► original bytes once more; heard from another: not needed

Both delays are pseudorandom functions of the ids, so that of many participants few ask, and the original sender
answers before everybody else. It must not keep messages (``archive``) nor decide when waiting ends (``gaps``).

Spec: LIP-109 (SDS), SDS Repair.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.timers import Timers
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.types import MS, MessageId, Nanoseconds, ParticipantId

REPAIR_ENTRIES: Final = 3
"""Repair requests that one message carries (LIP-109, SDS-R send message)."""

MAX_ASKS: Final = 3
"""Messages of ours in which one id is asked for: a request or its answer may get lost."""

ASK_BACKOFF: Final = 1.5
"""Each repeated request waits this factor longer."""

MAX_DEFERRALS: Final = 3
"""Times that others' requests put ours off before it goes out all the same: nobody can silence us."""

REPAIR_TIMER: Final = ("repair", "")


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
        asked: Messages of ours that asked for it.
        deferred: Times that others' requests put it off since we last asked.
    """

    entry: HistoryEntry
    delay_ns: Nanoseconds
    asked: int = 0
    deferred: int = 0


class RepairRequests:
    """What we are going to ask for: the outgoing repair request buffer, earliest T_req first.

    It holds ids that ``gaps`` looks for, so its size is bounded by theirs.

    Args:
        config: T_min, T_max, and whether repair is on.
        participant_id: Ours.
        timers: Where the next T_req runs.
    """

    def __init__(self, config: SdsConfig, participant_id: ParticipantId, timers: Timers) -> None:
        self.config = config
        self.participant_id = participant_id
        self.timers = timers
        self.requests: dict[MessageId, RepairRequest] = {}
        self.waiting = Timers()
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
        entry = HistoryEntry(message_id, None, sender_id)
        self.requests[message_id] = RepairRequest(entry, delay_ms * MS)
        self.wait(message_id, now + delay_ms * MS)

    def forget(self, message_id: MessageId) -> None:
        """Ask for an id no more: it arrived, or it is given up."""
        if self.requests.pop(message_id, None) is not None:
            self.ripe.pop(message_id, None)
            self.waiting.cancel(("request", message_id))
            self.schedule()

    def defer(self, message_id: MessageId, now: Nanoseconds) -> None:
        """Put our request off, because another participant has just made it; only arrival removes it.

        Spec: LIP-109 (SDS), SDS-R receive message. Deviation: it removes ours, and an answer that got lost would
        never be asked for again.
        """
        request = self.requests.get(message_id)
        if request is None or request.deferred >= MAX_DEFERRALS or request.asked >= MAX_ASKS:
            return
        request.deferred += 1
        self.ripe.pop(message_id, None)
        self.wait(message_id, now + request.delay_ns)

    def ripen(self, now: Nanoseconds) -> None:
        """Let everything be asked for whose T_req has come."""
        while (key := self.waiting.pop_due(now)) is not None:
            self.ripe[str(key[1])] = None
        self.schedule()

    def take(self, now: Nanoseconds) -> tuple[HistoryEntry, ...]:
        """Return what a message that goes out now asks for, earliest T_req first; it is asked for again later."""
        if not self.requests:
            return ()
        self.ripen(now)
        taken = []
        for message_id in list(self.ripe)[:REPAIR_ENTRIES]:
            del self.ripe[message_id]
            request = self.requests[message_id]
            request.asked += 1
            request.deferred = 0
            if request.asked < MAX_ASKS:
                self.wait(
                    message_id, now + int(request.delay_ns * ASK_BACKOFF ** (request.asked - 1))
                )
            taken.append(request.entry)
        return tuple(taken)

    def put_back(self, entries: Iterable[HistoryEntry]) -> None:
        """Take note that the message which asked for these did not go out."""
        for entry in entries:
            request = self.requests.get(entry.message_id)
            if request is not None and request.asked and entry.message_id not in self.ripe:
                request.asked -= 1
                self.waiting.cancel(("request", entry.message_id))
                self.ripe[entry.message_id] = None
        self.schedule()

    def wait(self, message_id: MessageId, due_ns: Nanoseconds) -> None:
        """Let an id ripen at a time."""
        self.waiting.set(("request", message_id), due_ns)
        self.schedule()

    def schedule(self) -> None:
        """Set the timer to the earliest T_req."""
        due = self.waiting.next_deadline()
        if due is None:
            self.timers.cancel(REPAIR_TIMER)
        else:
            self.timers.set(REPAIR_TIMER, due)


@dataclass(frozen=True, slots=True, eq=False)
class RepairAnswer:
    """A message that others asked for and we are going to send once more.

    Attributes:
        message_id: Its id.
        data: Its original bytes.
        in_store: The node's store is known to have it.
    """

    message_id: MessageId
    data: bytes
    in_store: bool


class RepairAnswers:
    """What others asked for: the incoming repair request buffer, and what was answered within T_max.

    Args:
        config: T_max, response groups, bounds.
        participant_id: Ours.
        timers: Where each T_resp runs, under the key ("answer", message id).
        outbox: Where is counted what there is no room for.
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

    def plan(self, answer: RepairAnswer, sender_id: ParticipantId, now: Nanoseconds) -> bool:
        """Answer a request at T_resp; say whether that is so.

        Not where another response group answers, where we answered within T_max, or where too much is asked of us.

        Args:
            answer: What would be sent.
            sender_id: Who sent it first.
            now: Unix time, nanoseconds.

        Spec: LIP-109 (SDS), SDS-R receive message.
        """
        message_id = answer.message_id
        if message_id in self.pending or self.was_answered(message_id, now):
            return False
        groups = self.config.num_response_groups
        if not in_response_group(self.participant_id, sender_id, message_id, groups):
            return False
        # Together they bound how much others can make us send within T_max.
        if len(self.pending) + len(self.answered) >= self.config.max_repair_answers:
            self.outbox.drop("repair_answers_full")
            return False
        self.pending[message_id] = answer
        delay_ms = answer_delay_ms(
            self.participant_id, sender_id, message_id, self.config.repair_t_max_ms
        )
        self.timers.set(("answer", message_id), now + delay_ms * MS)
        return True

    def was_answered(self, message_id: MessageId, now: Nanoseconds) -> bool:
        """Tell whether we answered a request for an id within T_max; what is older is forgotten."""
        oldest_kept = now - self.config.repair_t_max_ms * MS
        while self.answered and next(iter(self.answered.values())) <= oldest_kept:
            self.answered.popitem(last=False)
        return message_id in self.answered

    def note_sent(self, message_id: MessageId, now: Nanoseconds) -> None:
        """Take note that an answer goes out."""
        self.cancel(message_id)
        self.answered[message_id] = now

    def note_failed(self, message_id: MessageId) -> None:
        """Take note that an answer did not go out: whoever asks again is answered."""
        self.answered.pop(message_id, None)

    def cancel(self, message_id: MessageId) -> RepairAnswer | None:
        """Answer a request no more; return the answer that is needless now, or None."""
        answer = self.pending.pop(message_id, None)
        if answer is not None:
            self.timers.cancel(("answer", message_id))
        return answer
