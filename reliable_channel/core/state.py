"""What both directions of a channel share: who we are, the clocks, and the parts that both use.

It must not know the pipelines (``outgoing``, ``incoming``) that work on it.

Spec: LIP-109 (SDS), Participant state.
"""

from __future__ import annotations

from random import Random

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.hashing import LARGE_BYTES, keccak256, keccak256_parts
from reliable_channel.core.outbox import Outbox
from reliable_channel.core.sds.archive import MessageArchive
from reliable_channel.core.sds.debt import AckDebt
from reliable_channel.core.sds.log import MessageLog
from reliable_channel.core.sds.participants import Participants
from reliable_channel.core.sds.repair import RepairRequests
from reliable_channel.core.sds.sync import IDLE_TIMER, SYNC_TIMER, SyncPolicy
from reliable_channel.core.timers import Timers
from reliable_channel.records import ChannelRecord
from reliable_channel.types import MS, ChannelId, MessageId, Nanoseconds, ParticipantId


class ChannelState:
    """The common ground of one channel's machine.

    ``now`` is when the current input happened; the machine sets it and the way in reads it.

    Args:
        channel_id: The channel.
        sender_id: Ours.
        content_topic: The channel's.
        sds: Timers and bounds.
        segmentation: Segment sizes and bounds.
        random: The channel's random stream.
        record: The kept row, or None for a channel without state.
        now: Unix time, nanoseconds.
    """

    def __init__(
        self,
        *,
        channel_id: ChannelId,
        sender_id: ParticipantId,
        content_topic: str,
        sds: SdsConfig,
        segmentation: SegmentationConfig,
        random: Random,
        record: ChannelRecord | None,
        now: Nanoseconds,
    ) -> None:
        self.channel_id = channel_id
        self.sender_id = sender_id
        self.content_topic = content_topic
        self.sds = sds
        self.segmentation = segmentation
        self.random = random
        self.now = now
        self.created_ns = record.created_ns if record else now
        self.lamport = record.lamport_clock if record else now // MS
        self.last_wrap_ns = record.last_wrap_ns if record else 0
        self.settled_at_ns = record.settled_at_ns if record else 0
        self.last_seen_ns = record.last_seen_ns if record else 0
        self.conflict_seen = record.conflict_seen if record else False
        self.resumed_ns = record.resumed_ns if record else now
        self.resumed_before_ns = record.resumed_before_ns if record else now
        if not self.resumed_ns <= now < self.resumed_ns + sds.dependency_timeout_ms * MS:
            self.resumed_before_ns, self.resumed_ns = self.resumed_ns, now
        self.written: ChannelRecord | None = record
        self.outbox = Outbox(record.last_event_sequence if record else 0)
        self.timers = Timers()
        self.participants = Participants(sds.max_participants)
        self.log = MessageLog(sds, self.outbox)
        self.log.frontier = dict.fromkeys(record.frontier if record else ())
        self.debt = AckDebt(self.outbox)
        self.archive = MessageArchive(sds, self.outbox)
        self.repairs = RepairRequests(sds, sender_id, self.timers, self.outbox)
        self.sync = SyncPolicy(sds, self.debt, self.repairs, self.log, self.timers, random)
        if record:
            self.sync.kept_dues = {
                SYNC_TIMER: record.sync_due_ns,
                IDLE_TIMER: record.idle_due_ns,
            }

    def group(self, now: Nanoseconds) -> int:
        """Return how many others may answer a message; at least 1."""
        return max(1, self.participants.lately(now))

    def deadline_of(self, since_ns: Nanoseconds, wait: Nanoseconds) -> Nanoseconds:
        """Return until when something is waited for that is waited for since a time, also before a restart.

        A restart gives the store and others the dependency timeout to bring what they could not while we were down;
        once, or who is restarted all the time would wait for ever.

        Args:
            since_ns: When the wait began; a time to come, by a clock that was set back, is now.
            wait: How long it is, nanoseconds.
        """
        since_ns = min(since_ns, self.now)
        if not self.resumed_before_ns < since_ns < self.resumed_ns:
            return since_ns + wait
        grace = min(wait, self.sds.dependency_timeout_ms * MS)
        return max(since_ns + wait, self.resumed_ns + grace)

    def next_lamport(self, now: Nanoseconds, count: int = 1) -> int:
        """Advance the Lamport clock for ``count`` messages of ours; return the time of the first."""
        first = max(now // MS, self.lamport + 1)
        self.lamport = first + count - 1
        return first

    def see_lamport(self, lamport: int, now: Nanoseconds) -> int:
        """Advance the Lamport clock to a received time; return that time as it is taken."""
        taken = min(lamport, now // MS + self.sds.max_clock_lead_ms)
        self.lamport = max(self.lamport, taken)
        return taken

    def next_wrap_ns(self, now: Nanoseconds) -> Nanoseconds:
        """Return a wrap time that this sender has never used, also across restarts and clock steps."""
        self.last_wrap_ns = max(now, self.last_wrap_ns + 1)
        return self.last_wrap_ns

    def changed_record(self, floor: int) -> ChannelRecord | None:
        """Return the channel's row where it is not as it was written last; None where it is.

        Every input asks: a row is made only then. What changes most often is compared first.
        """
        written, deadline = self.written, self.timers.deadline
        if (
            written is not None
            and self.lamport == written.lamport_clock
            and self.last_seen_ns == written.last_seen_ns
            and self.outbox.last_sequence == written.last_event_sequence
            and self.last_wrap_ns == written.last_wrap_ns
            and (deadline(IDLE_TIMER) or 0) == written.idle_due_ns
            and (deadline(SYNC_TIMER) or 0) == written.sync_due_ns
            and floor == written.floor
            and self.settled_at_ns == written.settled_at_ns
            and self.conflict_seen == written.conflict_seen
            and self.resumed_ns == written.resumed_ns
            and self.resumed_before_ns == written.resumed_before_ns
            and tuple(self.log.frontier) == written.frontier
        ):
            return None
        self.written = self.record(floor)
        return self.written

    def record(self, floor: int) -> ChannelRecord:
        """Return the channel's row."""
        sync_due, idle_due = map(self.timers.deadlines.get, (SYNC_TIMER, IDLE_TIMER))
        return ChannelRecord(
            content_topic=self.content_topic,
            sender_id=self.sender_id,
            bloom_capacity=self.sds.bloom_capacity,
            bloom_error_rate=self.sds.bloom_error_rate,
            created_ns=self.created_ns,
            lamport_clock=self.lamport,
            last_wrap_ns=self.last_wrap_ns,
            floor=floor,
            settled_at_ns=self.settled_at_ns,
            last_event_sequence=self.outbox.last_sequence,
            last_seen_ns=self.last_seen_ns,
            conflict_seen=self.conflict_seen,
            frontier=tuple(self.log.frontier),
            sync_due_ns=sync_due[0] if sync_due else 0,
            idle_due_ns=idle_due[0] if idle_due else 0,
            resumed_ns=self.resumed_ns,
            resumed_before_ns=self.resumed_before_ns,
        )


def salted_id(sender_id: ParticipantId, wrap_time_ns: Nanoseconds, content: bytes) -> MessageId:
    """Return the message id of a segment: lower-case hex keccak-256 of sender, wrap time and content.

    Args:
        sender_id: Who sends it.
        wrap_time_ns: Written as decimal digits; 0 leaves sender and time out (``message_id="content"``).
        content: The encoded segment.

    Spec: LIP-173, MessageId; the seed specification for the form without salt.
    """
    if not wrap_time_ns:
        return keccak256(content).hex()
    salt = f"{sender_id}{wrap_time_ns}".encode()
    if len(content) < LARGE_BYTES:
        return keccak256(salt + content).hex()
    return keccak256_parts(salt, content).hex()
