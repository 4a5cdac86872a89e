"""When a sync message goes out, and what it names.

With acknowledgements owed it is due after a random back-off that keeps a group from answering all at once; in
silence an idle sync goes out at growing distances, because a lost last message is found only so. It must not build
the message (``composer``) nor decide whether the rate limit allows it (``dispatch``).

Spec: LIP-109 (SDS), Periodic sync message; RFC 5401 §6 for the back-off. Deviation: see docs/wire.md, Sync.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from random import Random
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.dispatch import DispatchQueue, SyncTurn
from reliable_channel.core.rate_limit import TrafficClass
from reliable_channel.core.sds.debt import AckDebt
from reliable_channel.core.sds.log import ENTRY_OVERHEAD, MessageLog
from reliable_channel.core.sds.repair import RepairRequests
from reliable_channel.core.timers import TimerKey, Timers
from reliable_channel.types import MS, SECOND, MessageId, Nanoseconds

SYNC_ENTRIES: Final = 64
"""Ids that one sync message names."""

URGENT_SHARE: Final = 0.1
"""With a whole sync's worth of ids owed, the back-off is drawn from this share of the usual time."""

RETRY_NS: Final = SECOND
"""Wait after a sync that did not go out."""

SYNC_TIMER: Final = ("sync", "")
IDLE_TIMER: Final = ("idle", "")


def backoff_ns(longest: float, group: int, random: Random) -> Nanoseconds:
    """Draw a back-off, nanoseconds, that lets few of a group answer before the first answer is heard.

    Truncated exponential: most draws are late, few early, the more so the larger the group.

    Args:
        longest: Largest back-off, nanoseconds.
        group: Participants that may answer; 1 or more.
        random: The channel's random stream.

    Spec: RFC 5401 §6.
    """
    rate = math.log(max(group, 1)) + 1
    draw = math.log1p(random.random() * math.expm1(rate))
    return int(longest / rate * draw)


class SyncPolicy:
    """Decides when the next sync message is due.

    Args:
        config: Timeouts.
        debt: Ids owed.
        repairs: What others are asked for.
        log: Ids that may be named.
        timers: Where the due times run.
        random: The channel's random stream.

    Attributes:
        kept_dues: When the timers ended that ran before a restart; 0 for those that did not.
    """

    def __init__(
        self,
        config: SdsConfig,
        debt: AckDebt,
        repairs: RepairRequests,
        log: MessageLog,
        timers: Timers,
        random: Random,
    ) -> None:
        self.config = config
        self.debt = debt
        self.repairs = repairs
        self.log = log
        self.timers = timers
        self.random = random
        self.idle_interval_ns = config.sync_interval_ms * MS
        self.spread_ns = 0
        self.spread_for = (0, 0)
        self.last_activity_ns = 0
        self.last_sync_ns = 0
        self.urgent = False
        self.kept_dues: dict[TimerKey, Nanoseconds] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether there is reason for a sync: acknowledgements owed, or repairs to ask for."""
        return bool(self.debt.payload_of or self.repairs.ripe)

    def owe(self, now: Nanoseconds, group: int) -> None:
        """Schedule a sync when there is reason for one; draw anew, and short, when one sync is full."""
        if not self.is_wanted:
            self.timers.cancel(SYNC_TIMER)
            self.urgent = False
            return
        if SYNC_TIMER not in self.timers:
            longest = 0.5 * self.config.acknowledgement_timeout_ms * MS
            self.timers.set(SYNC_TIMER, now + backoff_ns(longest, group, self.random))
        if not self.urgent and len(self.debt) >= SYNC_ENTRIES:
            self.urgent = True
            longest = 0.5 * self.config.acknowledgement_timeout_ms * MS
            due = now + backoff_ns(URGENT_SHARE * longest, group, self.random)
            self.timers.set_earlier(SYNC_TIMER, due)

    def go_on(self, now: Nanoseconds, group: int) -> None:
        """Let syncs be due no later than they were before a restart; who is restarted all the time sends them too.

        What was due meanwhile is due soon, and not at once: others may have been started at the same time.
        """
        longest = URGENT_SHARE * 0.5 * self.config.acknowledgement_timeout_ms * MS
        for key, due in self.kept_dues.items():
            if due and key in self.timers:
                if due <= now:
                    due = now + backoff_ns(longest, group, self.random)
                self.timers.set_earlier(key, due)

    def active(self, now: Nanoseconds, group: int) -> None:
        """Start the silence anew at its first length: a content message was sent or heard."""
        self.idle_interval_ns = self.config.sync_interval_ms * MS
        if self.spread_for == (self.idle_interval_ns, group):
            # The last draw was not used: this silence can have it, and a message costs no draw.
            self.begin_silence(now)
        else:
            self.put_off(now, group)

    def next_sync_ns(self, now: Nanoseconds) -> Nanoseconds:
        """Return the time of a sync that goes out now; no other one of ours since the start has it."""
        self.last_sync_ns = max(now, self.last_sync_ns + 1)
        return self.last_sync_ns

    def heard_sync(self, now: Nanoseconds, group: int) -> None:
        """Put the idle sync off; when the message ended a silence, the next one is longer."""
        if now - self.last_activity_ns >= self.idle_interval_ns // 2:
            self.lengthen()
        self.put_off(now, group)

    def sent_idle(self, now: Nanoseconds, group: int) -> None:
        """Make the next silence longer: our idle sync went out."""
        self.lengthen()
        self.put_off(now, group)

    def lengthen(self) -> None:
        """Double the silence, up to its longest."""
        self.idle_interval_ns = min(
            2 * self.idle_interval_ns, self.config.max_sync_interval_ms * MS
        )

    def put_off(self, now: Nanoseconds, group: int) -> None:
        """Let the silence begin now, and draw how long it may last."""
        self.spread_for = (self.idle_interval_ns, group)
        self.spread_ns = backoff_ns(0.5 * self.idle_interval_ns, group, self.random)
        self.begin_silence(now)

    def begin_silence(self, now: Nanoseconds) -> None:
        """Let the silence that was drawn begin now."""
        self.last_activity_ns = now
        self.timers.set(IDLE_TIMER, now + self.idle_interval_ns + self.spread_ns)

    def compose(self, room: int = 1 << 30) -> tuple[MessageId, ...]:
        """Return the ids that a sync sent now names: the owed, own ones with new hints, then the newest known.

        Args:
            room: Bytes that all entries may take together.
        """
        chosen: dict[MessageId, None] = {}
        known_of = self.log.known.get
        for message_id in chain(self.debt, self.log.late_hints, self.log.newest_sent()):
            if len(chosen) >= SYNC_ENTRIES:
                break
            if message_id in chosen:
                continue
            known = known_of(message_id)
            if known is not None:
                text = message_id + known.sender_id
                # Almost always ASCII: then its length is known without encoding it.
                room -= ENTRY_OVERHEAD + (len(text) if text.isascii() else len(text.encode()))
                if room < 0:
                    break
            chosen[message_id] = None
        return tuple(chosen)


class SyncScheduler:
    """Lets a sync message wait for its turn when one is due; never two of them.

    Args:
        policy: When one is due.
        queue: Where it waits.
        group: How many others may answer a message, at a time.
    """

    def __init__(
        self, policy: SyncPolicy, queue: DispatchQueue, group: Callable[[Nanoseconds], int]
    ) -> None:
        self.policy = policy
        self.queue = queue
        self.group = group
        self.count = 0

    def sync_due(self, now: Nanoseconds) -> None:
        """Say what is owed and ask for repairs, if there still is reason to, and not too soon after the last time."""
        if not self.policy.is_wanted:
            return
        spaced = self.policy.last_sync_ns + self.queue.budget.sync_spacing(now)
        if spaced > now:
            self.policy.timers.set(SYNC_TIMER, spaced)
        else:
            self.enqueue(now, idle=False)

    def idle_due(self, now: Nanoseconds) -> None:
        """Break a silence, unless there is nothing to name."""
        if self.policy.log.order:
            self.enqueue(now, idle=True)
        self.policy.put_off(now, self.group(now))

    def enqueue(self, now: Nanoseconds, *, idle: bool) -> None:
        """Let a sync message wait for its turn, unless one waits already."""
        if not self.queue.queues[TrafficClass.SYNC]:
            self.count += 1
            turn = SyncTurn(idle=idle)
            self.queue.put(TrafficClass.SYNC, f"sync:{self.count}", turn, now)

    def drop_needless(self) -> None:
        """Let a waiting sync go when nothing is owed any more, since others acknowledged, and nothing asked for."""
        waiting = self.queue.queues[TrafficClass.SYNC]
        if not waiting or self.policy.is_wanted:
            return
        for segment_id, turn in list(waiting.items()):
            if isinstance(turn, SyncTurn) and not turn.idle:
                self.queue.discard(TrafficClass.SYNC, segment_id)

    def gone_out(self, turn: SyncTurn, now: Nanoseconds) -> None:
        """Schedule the next one after one was given to the node."""
        policy, group = self.policy, self.group(now)
        policy.timers.cancel(SYNC_TIMER)
        policy.urgent = False
        policy.owe(now, group)
        if turn.idle:
            policy.sent_idle(now, group)
        else:
            policy.put_off(now, group)

    def failed(self, now: Nanoseconds) -> None:
        """Try again soon what did not go out, if there is anything to say."""
        if self.policy.is_wanted:
            self.policy.timers.set_earlier(SYNC_TIMER, now + RETRY_NS)
