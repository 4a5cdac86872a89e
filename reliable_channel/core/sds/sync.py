"""When a sync message goes out, and what it names.

With acknowledgements owed it is due after a random back-off that keeps a group from answering all at once; in
silence an idle sync goes out at growing distances, because a lost last message is found only so. It must not decide
whether the rate limit allows it (``dispatch``).

Spec: LIP-109 (SDS), Periodic sync message; RFC 5401 §6 for the back-off. Deviation: see docs/wire.md, Sync.
"""

from __future__ import annotations

import math
from itertools import chain
from random import Random
from typing import Final

from reliable_channel.config import SdsConfig
from reliable_channel.core.sds.debt import AckDebt
from reliable_channel.core.sds.log import ENTRY_OVERHEAD, MessageLog
from reliable_channel.core.timers import Timers
from reliable_channel.types import MS, MessageId, Nanoseconds

SYNC_ENTRIES: Final = 64
"""Ids that one sync message names."""

URGENT_SHARE: Final = 0.1
"""With a whole sync's worth of ids owed, the back-off is drawn from this share of the usual time."""

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
        log: Ids that may be named.
        timers: Where the due times run.
        random: The channel's random stream.
    """

    def __init__(
        self, config: SdsConfig, debt: AckDebt, log: MessageLog, timers: Timers, random: Random
    ) -> None:
        self.config = config
        self.debt = debt
        self.log = log
        self.timers = timers
        self.random = random
        self.idle_interval_ns = config.sync_interval_ms * MS
        self.spread_ns = 0
        self.spread_for = (0, 0)
        self.last_activity_ns = 0
        self.urgent = False

    def owe(self, now: Nanoseconds, group: int) -> None:
        """Schedule a sync when ids are owed; draw anew, and short, when one sync is full."""
        if not self.debt:
            self.timers.cancel(SYNC_TIMER)
            self.urgent = False
            return
        longest = 0.5 * self.config.acknowledgement_timeout_ms * MS
        if SYNC_TIMER not in self.timers:
            self.timers.set(SYNC_TIMER, now + backoff_ns(longest, group, self.random))
        if len(self.debt) >= SYNC_ENTRIES and not self.urgent:
            self.urgent = True
            due = now + backoff_ns(URGENT_SHARE * longest, group, self.random)
            self.timers.set_earlier(SYNC_TIMER, due)

    def active(self, now: Nanoseconds, group: int) -> None:
        """Start the silence anew at its first length: a content message was sent or heard."""
        self.idle_interval_ns = self.config.sync_interval_ms * MS
        if self.spread_for == (self.idle_interval_ns, group):
            # The last draw was not used: this silence can have it, and a message costs no draw.
            self.begin_silence(now)
        else:
            self.put_off(now, group)

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
        for message_id in chain(self.debt, self.log.late_hints, self.log.newest_first()):
            if len(chosen) >= SYNC_ENTRIES:
                break
            if message_id in chosen:
                continue
            known = self.log.known.get(message_id)
            if known is not None:
                room -= len(message_id.encode()) + len(known.sender_id.encode()) + ENTRY_OVERHEAD
                if room < 0:
                    break
            chosen[message_id] = None
        return tuple(chosen)
