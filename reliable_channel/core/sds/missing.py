"""Messages that others named and we lack: which transport hashes to ask the node's store for, and when.

All due ids go into one query, one query is outstanding per channel, each id is asked for at 0, 3 and 10 s because
stores lag, and a hash that gave something else is never asked for again. Repair by other participants (SDS-R) has its
own file; ``causal`` decides when waiting ends.

Spec: LIP-109 (SDS), Receive: missing dependencies may be fetched by retrieval hint; 13/STORE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.timers import Timers
from reliable_channel.core.wire import HistoryEntry
from reliable_channel.records import MissingRecord
from reliable_channel.types import SECOND, MessageId, Nanoseconds, ParticipantId

QUERY_DELAYS_NS: Final = (0, 3 * SECOND, 10 * SECOND)
"""When a missing id is asked for, counted from when its first hint was known."""

RETRY_NS: Final = 3 * SECOND
"""First distance of queries while the store cannot be asked; it doubles up to ``LONGEST_RETRY_NS``."""

LONGEST_RETRY_NS: Final = 60 * SECOND

MAX_HINTS: Final = 3
"""Hints that are tried for one id: participants may have received different copies."""

MAX_QUERY_HASHES: Final = 100
"""Hashes in one query (13/STORE page limit)."""

HINT_BYTES: Final = 32

FETCH_TIMER: Final = ("fetch", "")


@dataclass(slots=True)
class MissingMessage:
    """One id that we lack.

    Attributes:
        message_id: The id.
        sender_id: Who sent it, where the entries say.
        named_by: The participant whose message named it first.
        since_ns: When that was.
        hints: Transport hashes to try; tried ones that were of no use are in ``useless``.
        useless: Hashes that gave something else.
        asked: Queries made.
        first_hint_ns: When the first hint was known; 0 before.
        next_query_ns: When it is asked for next; 0 when not at all.
        may_predate: It may be from before our time: it was named in the first moments of a new channel.
        claimed: A sync or ephemeral message of somebody's had this id before it was named.
        excused: Nobody waits for it any more, because it may be; it is looked for all the same.
        kept: The row that was written last; None before the first.
    """

    message_id: MessageId
    sender_id: ParticipantId | None
    named_by: ParticipantId
    since_ns: Nanoseconds
    hints: dict[bytes, None] = field(default_factory=dict)
    useless: set[bytes] = field(default_factory=set)
    asked: int = 0
    first_hint_ns: Nanoseconds = 0
    next_query_ns: Nanoseconds = 0
    may_predate: bool = False
    claimed: bool = False
    excused: bool = False
    kept: MissingRecord | None = None

    @property
    def may_be_nothing(self) -> bool:
        """Whether it is waited for only a short time: from before our time, or claimed and kept by no store."""
        return self.may_predate or (self.claimed and not self.hints and not self.useless)

    def record(self) -> MissingRecord:
        """Return its row."""
        return MissingRecord(
            message_id=self.message_id,
            sender_id=self.sender_id,
            named_by=self.named_by,
            since_ns=self.since_ns,
            hints=b"".join(self.hints),
            may_predate=self.may_predate,
            claimed=self.claimed,
            excused=self.excused,
        )


class MissingMessages:
    """All ids that are missing, bounded in all and per participant that named them.

    Args:
        config: Bounds.
        timers: Where the next query is scheduled.
    """

    def __init__(self, config: SdsConfig, timers: Timers) -> None:
        self.config = config
        self.timers = timers
        self.messages: dict[MessageId, MissingMessage] = {}
        self.named_by: dict[ParticipantId, int] = {}
        self.asking: dict[bytes, MessageId] = {}
        self.asked_for: list[MessageId] = []
        self.failures = 0

    def __contains__(self, message_id: MessageId) -> bool:
        return message_id in self.messages

    def __len__(self) -> int:
        return len(self.messages)

    def track(
        self,
        entry: HistoryEntry,
        named_by: ParticipantId,
        now: Nanoseconds,
        *,
        may_predate: bool = False,
        proven: bool = False,
    ) -> bool:
        """Begin to look for an id, or learn another hint for it.

        Args:
            entry: What names it.
            named_by: Whose message that was in.
            now: Unix time, nanoseconds.
            may_predate: The channel is so new that it may be from before our time.
            proven: It is from our time.

        Returns:
            False when it is not tracked because too many are.
        """
        missing = self.messages.get(entry.message_id)
        if missing is None:
            if (
                len(self.messages) >= self.config.max_missing_ids
                or self.named_by.get(named_by, 0) >= self.config.max_missing_ids_per_sender
            ):
                return False
            missing = MissingMessage(entry.message_id, entry.sender_id, named_by, now)
            missing.may_predate = may_predate
            self.messages[entry.message_id] = missing
            self.named_by[named_by] = self.named_by.get(named_by, 0) + 1
        missing.may_predate = missing.may_predate and not proven
        if entry.retrieval_hint and len(entry.retrieval_hint) == HINT_BYTES:
            self.learn_hint(missing, entry.retrieval_hint, now)
        return True

    def restore(self, record: MissingRecord, now: Nanoseconds) -> MissingMessage | None:
        """Take a kept row back, unless there is no room for it; its hints are tried anew."""
        if len(self.messages) >= self.config.max_missing_ids:
            return None
        missing = MissingMessage(
            record.message_id,
            record.sender_id,
            record.named_by,
            record.since_ns,
            may_predate=record.may_predate,
            claimed=record.claimed,
            excused=record.excused,
            kept=record,
        )
        self.messages[record.message_id] = missing
        self.named_by[record.named_by] = self.named_by.get(record.named_by, 0) + 1
        for start in range(0, len(record.hints), HINT_BYTES):
            self.learn_hint(missing, record.hints[start : start + HINT_BYTES], now)
        return missing

    def learn_hint(self, missing: MissingMessage, hint: bytes, now: Nanoseconds) -> None:
        """Add a transport hash under which a message may be found."""
        if hint in missing.hints or hint in missing.useless:
            return
        if len(missing.hints) + len(missing.useless) >= MAX_HINTS:
            return
        missing.hints[hint] = None
        if not missing.first_hint_ns:
            missing.first_hint_ns = now
        if not missing.next_query_ns:
            missing.next_query_ns = now
            missing.asked = 0
            missing.first_hint_ns = now
        self.timers.set_earlier(FETCH_TIMER, missing.next_query_ns)

    def remove(self, message_id: MessageId) -> MissingMessage | None:
        """Stop looking for an id: it arrived, or it is given up."""
        missing = self.messages.pop(message_id, None)
        if missing is not None:
            self.named_by[missing.named_by] -= 1
            if not self.named_by[missing.named_by]:
                del self.named_by[missing.named_by]
        return missing

    def next_query(self, now: Nanoseconds) -> tuple[bytes, ...]:
        """Return the hashes to ask for now; empty while a query is outstanding or nothing is due."""
        if self.asking:
            return ()
        for missing in self.messages.values():
            if not missing.next_query_ns or missing.next_query_ns > now:
                continue
            if len(self.asking) + len(missing.hints) > MAX_QUERY_HASHES:
                break
            missing.asked += 1
            self.asked_for.append(missing.message_id)
            self.asking.update(dict.fromkeys(missing.hints, missing.message_id))
            if missing.asked < len(QUERY_DELAYS_NS):
                missing.next_query_ns = max(
                    now + 1, missing.first_hint_ns + QUERY_DELAYS_NS[missing.asked]
                )
            else:
                missing.next_query_ns = 0
        self.schedule()
        return tuple(self.asking)

    def answered(self, found: Iterable[bytes]) -> None:
        """Take the store's answer, after the found messages were received.

        A hash that gave a message but not the one that was missing is of no use.

        Args:
            found: Hashes for which the store gave a message.
        """
        self.failures = 0
        for transport_hash in found:
            missing = self.messages.get(self.asking.get(transport_hash, ""))
            if missing is not None:
                missing.hints.pop(transport_hash, None)
                missing.useless.add(transport_hash)
                if not missing.hints:
                    missing.next_query_ns = 0
        self.asking.clear()
        self.asked_for.clear()
        self.schedule()

    def failed(self, now: Nanoseconds) -> None:
        """Take note that the store could not be asked; the same is asked again later, less and less often."""
        wait = min(RETRY_NS << min(self.failures, 10), LONGEST_RETRY_NS)
        self.failures += 1
        for message_id in self.asked_for:
            missing = self.messages.get(message_id)
            if missing is not None:
                missing.asked -= 1
                missing.next_query_ns = now + wait
        self.asking.clear()
        self.asked_for.clear()
        self.schedule()

    def schedule(self) -> None:
        """Set the timer to the earliest query that is due, unless one is outstanding."""
        due = [item.next_query_ns for item in self.messages.values() if item.next_query_ns]
        if due and not self.asking:
            self.timers.set(FETCH_TIMER, min(due))
        else:
            self.timers.cancel(FETCH_TIMER)
