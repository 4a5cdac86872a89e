"""Count every transmission in the current RLN epoch and say who may transmit, or when to ask again.

`EpochRateLimiter` is one ledger: that of the node's membership, shared by its channels and the
adapter's own republishing, or that of one channel's narrower share. `ChannelBudget` is what a
channel asks. Exceeding the membership's limit discloses its key, so what is in doubt counts.
Nothing here may wait, read a clock, draw random numbers or persist.

**Epochs.** epoch = floor(Unix time / period). The number never goes back: while the clock is behind
the ledger, the ledger's epoch goes on, budget and all. Nothing is admitted in the last second of an
epoch (for periods under 10 s: the last tenth), since a transmission needs time to leave. What had
to wait for the boundary is spread over the 30 s after it, at most a tenth of the period: all
members of the network share the boundary, so they would burst together, by clocks that differ;
spreading over more would only delay what has waited long enough.

**Late confirmations.** What the node reports after the boundary counts in the new epoch too. Lest
this exceed the limit, transmissions whose outcome is open at the boundary are held against the new
epoch until `confirm` or `release`, for that one epoch at most: a lost report must not cost budget
for ever. Only a confirmation that comes later still can overshoot, and leaves that much less.
The record says how many are open, since a node goes on with what it was given when the process
dies: those, which nobody will report, are held against the epoch right after theirs, and against no
later one. It is their number, not the largest that there can be, so that an end in good order costs
nothing. What this process has open may still be reported, so it is held after any silence.

**Shares.** A tenth (at least 1) is kept for syncs, a fifth (at least 1) for retransmissions and
repair answers, the rest for fresh data. A share is kept *while* its class has something waiting,
judged at each admission; otherwise anybody may use it. One exception: from 10 messages an epoch on,
one sync (of what is left of the syncs' share) is kept although none waits. Fresh data that used
everything just before an acknowledgement falls due would silence the receiver for the rest of the
epoch and cost its peers retransmissions. Where shares cannot all be met any more (one was lent out,
then its class began to wait), syncs go before retransmissions before fresh data. Repair answers
never use more than half of their share (at least 1), whatever is left: strangers ask for them.
Within that share, whichever kind has waited longer keeps one. Below 4 messages shares would be
fractions: there each class leaves one for every class that has waited longer, since it began to
wait or was last served. Parity uses the fresh share only while no fresh data waits, and nothing is
kept for it: it is the one class that others can starve.

**Clients** of a class take turns by start-time fair queueing: each has a level, the turns it has
had; one may run ahead of other waiting ones only as far as what is left lets them all catch up.
Within the spread after a boundary, while not all have come back, only what is left of the class's
own share counts for this where other classes wait: they may use the rest before the last ones ask.
The same holds for the one that retransmissions and repair answers keep for each other.
Levels outlive epochs, so a budget smaller than the number of clients goes round. For a client that
does not ask for 30 s (at most a tenth of the period), not counting the spread after a boundary,
nothing more is kept until it asks again: what it does not take up is not lost.

Spec: RELIABLE-CHANNEL-API, Rate limiting; 17/WAKU2-RLN-RELAY.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from reliable_channel.config import RateLimitConfig
from reliable_channel.core.turns import TurnLine, WaitingClient
from reliable_channel.records import LedgerRecord
from reliable_channel.types import MS, SECOND, Nanoseconds

LARGEST_GUARD: Final = SECOND
"""Nothing is dispatched so shortly before a boundary, ns; at most a tenth of the period."""

LARGEST_SPREAD: Final = 30 * SECOND
"""Waiting traffic resumes within this after a boundary, ns; at most a tenth of the period."""

LARGEST_CLAIM: Final = 30 * SECOND
"""How long something is kept for a silent client, ns; at most a tenth of the period."""

RECHECKS_PER_CLAIM: Final = 5
"""How often a client that others hold back asks again: 50 to 100 times in an epoch at most."""

SMALLEST_STEP: Final = MS
"""`EpochRateLimiter.next_admission` is never nearer than this, ns."""

SMALLEST_SHARED_BUDGET: Final = 4
"""Below this many messages an epoch there are no shares: the longest-waiting class goes first."""

SMALLEST_BUDGET_WITH_SPARE_SYNC: Final = 10
"""From this many messages an epoch on, one is kept for a sync that may still fall due."""


class TrafficClass(IntEnum):
    """What a transmission is for, most urgent first."""

    SYNC = 0
    REPAIR = 1
    """A retransmission, also the adapter's own republishing."""
    REPAIR_ANSWER = 2
    """An SDS-R repair: somebody else asked for it."""
    FRESH = 3
    """The first transmission of a data segment, or an ephemeral message."""
    PARITY = 4


class Admission(NamedTuple):
    """Where a `ChannelBudget` counted a transmission; to be given back with its outcome."""

    node_epoch: int
    """0 where the node does not limit."""
    own_epoch: int
    """0 where the channel does not narrow."""


SHARE_OF: Final = (0, 1, 1, 2, 2)
"""Which share each class draws from: that of syncs, of repairs in the wide sense, or the rest."""

SIBLING: Final = {
    TrafficClass.REPAIR: TrafficClass.REPAIR_ANSWER,
    TrafficClass.REPAIR_ANSWER: TrafficClass.REPAIR,
}
"""The other class of the same share, where both are kept something."""


class EpochRateLimiter:
    """One ledger of transmissions per epoch, shared fairly by clients and classes of traffic.

    The clock that ``now`` is read from may step back and forth. A question costs the same whatever
    happened before; only the first one in an epoch visits all clients.

    Args:
        config: Length of an epoch and messages in it. Not enabled: all is admitted, none counted.
        scope: Whose ledger it is; the key of its record. Epoch numbers of different periods cannot
            be compared: where the period can change under a store, the scope should name it.
        restored: What was persisted; what it counts is used up, what was open may still go out.
            None starts an empty ledger.

    Raises:
        ValueError: ``restored`` is of another scope.
    """

    def __init__(
        self,
        config: RateLimitConfig,
        *,
        scope: str = "node",
        restored: LedgerRecord | None = None,
    ) -> None:
        if restored is not None and restored.scope != scope:
            message = f"ledger of {restored.scope!r} given for {scope!r}"
            raise ValueError(message)
        self._enabled = config.enabled
        self._scope = scope
        self._epoch = restored.epoch if restored else 0
        self._used = restored.used if restored else 0
        self._used_by = [0] * len(TrafficClass)
        self._in_flight = restored.in_flight if restored else 0  # of this epoch, outcome open
        self._left_open = self._in_flight  # of those, by a process that reports nothing any more
        self._held = restored.held if restored else 0  # of the one before, outcome open
        self._held_epoch = -1

        self._messages = config.messages_per_epoch
        self._sync_share = max(1, self._messages // 10)
        self._repair_share = max(1, self._messages // 5)
        self._answer_limit = max(1, self._repair_share // 2)
        self._lines = [TurnLine() for _ in TrafficClass]

        self._period = config.epoch_period_sec * SECOND
        self._guard = min(LARGEST_GUARD, self._period // 10)
        self._spread = min(LARGEST_SPREAD, self._period // 10)
        self._claim = min(LARGEST_CLAIM, self._period // 10)
        self._now: Nanoseconds | None = None
        self._clock = 0  # follows ``now`` forward, stays when it steps back
        self._opened = 0  # on that clock, when the epoch began

    @property
    def enabled(self) -> bool:
        """Whether anything is counted and limited."""
        return self._enabled

    @property
    def epoch(self) -> int:
        """The epoch as of the last question, 0 before any; it never goes back."""
        return self._epoch

    @property
    def used(self) -> int:
        """Transmissions counted in `epoch`; above the limit only by late confirmations."""
        return self._used

    @property
    def scope(self) -> str:
        """Whose ledger it is; the key of its record."""
        return self._scope

    @property
    def period(self) -> Nanoseconds:
        """Length of an epoch, nanoseconds."""
        return self._period

    def remaining(self, now: Nanoseconds) -> int:
        """Return how many transmissions are left in all, without those held for open outcomes."""
        self._advance(now)
        return max(0, self._free())

    def epoch_end(self, now: Nanoseconds) -> Nanoseconds:
        """Return when the budget is full again, Unix nanoseconds."""
        self._advance(now)
        return (self._epoch + 1) * self._period

    def set_waiting(self, client: str, traffic: TrafficClass, since_ns: Nanoseconds | None) -> None:
        """Say that a client would transmit now if it were admitted, or that it has no more to.

        Repeating it changes nothing: asking `admit` is what keeps a client's turn.

        Args:
            client: Who waits; any text that tells clients apart.
            traffic: What waits.
            since_ns: Since when, Unix nanoseconds; None when nothing waits any more.
        """
        if not self._enabled:
            return
        line = self._lines[traffic]
        if since_ns is None:
            line.leave(client)
        else:
            if self._now is None:
                self._now = since_ns
            line.join(client, self._clock + since_ns - self._now, self._clock)

    def drop_client(self, client: str) -> None:
        """Forget a client that is gone; harmless when unknown. What it used stays counted."""
        for line in self._lines:
            line.forget(client)

    def would_admit(self, client: str, traffic: TrafficClass, now: Nanoseconds) -> bool:
        """Return whether `admit` would admit; this keeps the client's turn as well."""
        if not self._enabled:
            return True
        self._advance(now)
        self._lines[traffic].ask(client, self._clock)
        return self._is_admissible(client, traffic, now)

    def admit(self, client: str, traffic: TrafficClass, now: Nanoseconds) -> int | None:
        """Count a transmission and allow it, or do neither.

        Persist `record` before transmitting, then report the outcome: `confirm` or `release`.

        Args:
            client: Who asks, whether or not it was said to wait.
            traffic: What it would transmit.
            now: Unix time in nanoseconds.

        Returns:
            The epoch that it is counted in (0 where nothing is limited), or None: not now.
        """
        if not self._enabled:
            return 0
        if not self.would_admit(client, traffic, now):
            return None
        self._used += 1
        self._used_by[traffic] += 1
        self._in_flight += 1
        self._clock += 1  # who was served has waited less than everybody else
        self._lines[traffic].take(client, self._clock)
        return self._epoch

    def next_admission(
        self, client: str, traffic: TrafficClass, now: Nanoseconds, jitter: float
    ) -> Nanoseconds:
        """Return when asking `admit` again makes sense, to be called after it refused.

        Every outcome that is reported is a reason to ask sooner.

        Args:
            client: Who was refused.
            traffic: What waits.
            now: Unix time in nanoseconds.
            jitter: In [0, 1): where in the spread after a boundary to come back. The first one
                given for a boundary stays, and `admit` refuses this waiting traffic until then.

        Returns:
            Unix time in nanoseconds, at least `SMALLEST_STEP` after ``now``.
        """
        earliest = now + SMALLEST_STEP
        if not self._enabled:
            return earliest
        self._advance(now)
        waiting = self._lines[traffic].find(client)
        if waiting and (pause := self._pause(waiting)):
            return max(earliest, now + pause)
        if self._is_admissible(client, traffic, now):
            return earliest
        resume = (self._epoch + 1) * self._period
        if self._may_clear(traffic):
            recheck = now + max(SMALLEST_STEP, self._claim // RECHECKS_PER_CLAIM)
            if not self._is_guarded(now) and not self._is_guarded(recheck):
                return recheck
            resume = (now // self._period + 1) * self._period
        return max(earliest, resume + self._resume_offset(waiting, resume, jitter))

    def expected_admission(
        self, traffic: TrafficClass, now: Nanoseconds, ahead: int
    ) -> Nanoseconds:
        """Estimate when a transmission can go that has others of its client and class ahead of it.

        This takes the shares as if all classes went on waiting, and what is left as divided evenly
        by the clients that wait now. Nothing is remembered, and no spread is added.

        Args:
            traffic: What waits.
            now: Unix time in nanoseconds.
            ahead: Transmissions that have to go first.

        Returns:
            Unix time in nanoseconds, ``now`` or the start of a later epoch.
        """
        if not self._enabled:
            return now
        self._advance(now)
        clients = max(1, len(self._lines[traffic]))
        left = 0 if self._is_guarded(now) else self._allowance(traffic) // clients
        if ahead < left:
            return now
        if traffic is TrafficClass.REPAIR_ANSWER:
            share = self._answer_limit
        else:
            fresh = self._messages - self._sync_share - self._repair_share
            share = (self._sync_share, self._repair_share, fresh)[SHARE_OF[traffic]]
        later = (ahead - left) // max(1, share // clients)
        return (self._epoch + 1 + later) * self._period

    def confirm(self, admitted_epoch: int, now: Nanoseconds) -> bool:
        """Note that the node reported a transmission as made; once for each.

        Args:
            admitted_epoch: What `admit` returned.
            now: Unix time in nanoseconds.

        Returns:
            Whether it counts again since an epoch boundary lies between: then persist `record`.
        """
        if not self._enabled:
            return False
        self._advance(now)
        self.release(admitted_epoch)
        if admitted_epoch >= self._epoch:
            return False
        self._used += 1
        return True

    def release(self, admitted_epoch: int) -> None:
        """Note that a transmission was certainly not made; it stays counted, but only once.

        Args:
            admitted_epoch: What `admit` returned. Where the outcome is in doubt, `confirm` it.
        """
        if admitted_epoch == self._epoch:
            self._in_flight = max(0, self._in_flight - 1)
        elif admitted_epoch == self._held_epoch:
            self._held = max(0, self._held - 1)

    def sync_spacing(self, now: Nanoseconds) -> Nanoseconds:
        """Return the distance that a client should keep from its own previous sync, nanoseconds.

        0 while more than half of the budget is left. Then it is the time left in the epoch divided
        by the syncs that it still allows, for each client that has one waiting.
        """
        if not self._enabled:
            return 0
        self._advance(now)
        if 2 * self._free() > self._messages:
            return 0
        left = (self._epoch + 1) * self._period - now
        allowed = max(1, self._allowance(TrafficClass.SYNC))
        return min(left, left * max(1, len(self._lines[TrafficClass.SYNC])) // allowed)

    def absorb(self, record: LedgerRecord | None) -> None:
        """Count what another store has kept of this ledger; the larger (epoch, used) stands.

        Where that is the record, what it says is open adds to what is open here; else it says nothing.
        """
        if record is None or (record.epoch, record.used) <= (self._epoch, self._used):
            return
        if record.epoch > self._epoch:
            self._hold_open(record.epoch)
        self._epoch, self._used = record.epoch, record.used
        self._in_flight += record.in_flight
        self._left_open += record.in_flight
        self._held += record.held

    def record(self) -> LedgerRecord:
        """Return what has to be durable before an admitted transmission is made."""
        return LedgerRecord(
            scope=self._scope,
            epoch=self._epoch,
            used=self._used,
            in_flight=self._in_flight,
            held=self._held,
        )

    # --- Time ------------------------------------------------------------------------------------

    def _advance(self, now: Nanoseconds) -> None:
        """Take note of the time: of a new epoch, and of clients that fell silent."""
        if self._now is not None:
            self._clock += max(0, now - self._now)
        self._now = now
        if now // self._period > self._epoch:
            self._begin_epoch(now)
        asked_before = self._clock - self._claim
        for line in self._lines:
            # A line cannot wait since a time to come; the clock was set back after it was told so.
            line.waits_since = min(line.waits_since, self._clock)
            if asked_before > self._opened + self._spread:
                line.lapse(asked_before)

    def _begin_epoch(self, now: Nanoseconds) -> None:
        self._hold_open(now // self._period)
        self._epoch = now // self._period
        self._opened = self._clock - now % self._period
        self._used = 0
        self._used_by = [0] * len(TrafficClass)
        for line in self._lines:
            line.begin_epoch(self._held_epoch, self._clock)

    def _hold_open(self, epoch: int) -> None:
        """Hold what is open against a new epoch, but for what was left so before the previous one."""
        is_next = epoch == self._epoch + 1
        self._held = self._in_flight if is_next else max(0, self._in_flight - self._left_open)
        self._held_epoch = self._epoch
        self._in_flight = self._left_open = 0

    def _is_guarded(self, now: Nanoseconds) -> bool:
        """Return whether a boundary is too near, by the clock: also while it is behind."""
        return now % self._period >= self._period - self._guard

    def _pause(self, waiting: WaitingClient) -> Nanoseconds:
        """Return how long it should still wait in the epoch for which it was told to come back."""
        if waiting.resume_epoch != self._epoch:
            return 0
        return max(0, self._opened + waiting.resume_offset - self._clock)

    def _resume_offset(
        self, waiting: WaitingClient | None, resume: Nanoseconds, jitter: float
    ) -> Nanoseconds:
        """Return how long after a boundary it should come back; the next epoch's is remembered."""
        following = self._epoch + 1
        offset = int(jitter * self._spread)
        if waiting is None or resume != following * self._period:
            return offset
        if waiting.resume_epoch != following:
            waiting.resume_epoch = following
            waiting.resume_offset = offset
        return waiting.resume_offset

    # --- Budget ----------------------------------------------------------------------------------

    def _free(self) -> int:
        return self._messages - self._used - self._held

    def _is_admissible(self, client: str, traffic: TrafficClass, now: Nanoseconds) -> bool:
        line = self._lines[traffic]
        waiting = line.find(client)
        if self._is_guarded(now) or (waiting and self._pause(waiting)):
            return False
        kept = line.kept_from(client)
        return self._allowance(traffic, leaves_some=kept > 0) > kept

    def _may_clear(self, traffic: TrafficClass) -> bool:
        """Return whether the class could go in this epoch if nothing else waited or were open."""
        if not self._answers_left() and traffic is TrafficClass.REPAIR_ANSWER:
            return False
        spare = 0 if traffic is TrafficClass.SYNC else self._spare_sync()
        return self._messages - self._used > spare

    def _allowance(self, traffic: TrafficClass, *, leaves_some: bool = False) -> int:
        """Return how many transmissions the class could make if no other made any from now on.

        ``leaves_some``: others of the class have to find enough of it when they come.
        """
        free = self._free()
        if free <= 0 or (traffic is TrafficClass.PARITY and self._lines[TrafficClass.FRESH]):
            return 0
        if self._messages < SMALLEST_SHARED_BUDGET:
            allowed = free - sum(self._is_before(other, traffic) for other in TrafficClass)
        else:
            allowed = self._allowance_by_share(traffic, free, leaves_some)
        if traffic is TrafficClass.REPAIR_ANSWER:
            allowed = min(allowed, self._answers_left())
        return max(0, allowed)

    def _allowance_by_share(self, traffic: TrafficClass, free: int, leaves_some: bool) -> int:
        share = SHARE_OF[traffic]
        rests = self._rests()
        kept = self._kept(rests)
        allowed = min(rests[share], free - sum(kept[:share]))
        sibling = SIBLING.get(traffic)
        leaves_one = sibling is not None and self._is_before(sibling, traffic)
        if not ((leaves_some or leaves_one) and self._may_be_overtaken(traffic)):
            allowed = max(allowed, free - sum(kept) + kept[share])
        return allowed - leaves_one

    def _may_be_overtaken(self, traffic: TrafficClass) -> bool:
        """Return whether other classes may use what is beyond shares before all of this one ask."""
        if self._clock >= self._opened + self._spread:
            return False
        return any(line for other, line in enumerate(self._lines) if other != traffic)

    def _rests(self) -> tuple[int, int, int]:
        """Return what is left of each share."""
        sync, repair, answer, fresh, parity = self._used_by
        # What no class accounts for (restored, confirmed late, held) comes out of fresh data's.
        unattributed = self._used + self._held - sum(self._used_by)
        rest = self._messages - self._sync_share - self._repair_share - unattributed
        return (
            max(0, self._sync_share - sync),
            max(0, self._repair_share - repair - answer),
            max(0, rest - fresh - parity),
        )

    def _kept(self, rests: tuple[int, int, int]) -> tuple[int, int, int]:
        """Return what is kept of each share from the others."""
        lines = self._lines
        if lines[TrafficClass.REPAIR]:
            repair = rests[1]
        else:
            repair = min(rests[1], self._answers_left()) if lines[TrafficClass.REPAIR_ANSWER] else 0
        return (
            rests[0] if lines[TrafficClass.SYNC] else self._spare_sync(),
            repair,
            rests[2] if lines[TrafficClass.FRESH] else 0,
        )

    def _spare_sync(self) -> int:
        """Return what is kept for syncs also when none waits."""
        if self._messages < SMALLEST_BUDGET_WITH_SPARE_SYNC:
            return 0
        return int(self._used_by[TrafficClass.SYNC] < self._sync_share)

    def _answers_left(self) -> int:
        return self._answer_limit - self._used_by[TrafficClass.REPAIR_ANSWER]

    def _is_before(self, other: TrafficClass, traffic: TrafficClass) -> bool:
        """Return whether another class waits, has for longer than this one, and could go."""
        line, theirs = self._lines[traffic], self._lines[other]
        if other is traffic or not theirs:
            return False
        if other is TrafficClass.REPAIR_ANSWER and not self._answers_left():
            return False
        if other is TrafficClass.PARITY and self._lines[TrafficClass.FRESH]:
            return False
        since = line.waits_since if line else self._clock
        return (theirs.waits_since, other) < (since, traffic)


class ChannelBudget:
    """What one channel asks: the node's ledger, and its own where it has one; both must agree.

    Args:
        node: The ledger that all channels of the node share.
        own: The channel's own, of a scope of its own. It is asked as well as the node's, never
            instead, so it can only narrow. None, or one that is not enabled, narrows nothing.
        client: Tells the channel from the other clients of the node.

    Attributes:
        enabled: Whether anything limits this channel.
    """

    def __init__(self, node: EpochRateLimiter, own: EpochRateLimiter | None, client: str) -> None:
        self._node = node
        self._own = own if own is not None and own.enabled else None
        self._ledgers = (node,) if self._own is None else (node, self._own)
        self._client = client
        self.enabled = any(ledger.enabled for ledger in self._ledgers)

    @property
    def period(self) -> Nanoseconds:
        """Length of the longest epoch that limits this channel, nanoseconds; 0 where nothing limits."""
        return max((ledger.period for ledger in self._ledgers if ledger.enabled), default=0)

    def remaining(self, now: Nanoseconds) -> int | None:
        """Return how many transmissions are left to it now; None where nothing limits."""
        limits = [ledger.remaining(now) for ledger in self._ledgers if ledger.enabled]
        return min(limits, default=None)

    def epoch_end(self, now: Nanoseconds) -> Nanoseconds | None:
        """Return when the first epoch ends that a transmission of now counts in; None where nothing limits."""
        if not self.enabled:
            return None
        ends = [ledger.epoch_end(now) for ledger in self._ledgers if ledger.enabled]
        return min(ends, default=None)

    def set_waiting(self, traffic: TrafficClass, since_ns: Nanoseconds | None) -> None:
        """Say since when such traffic could go, Unix nanoseconds, or None: nothing waits."""
        for ledger in self._ledgers:
            ledger.set_waiting(self._client, traffic, since_ns)

    def close(self) -> None:
        """Leave the turns to other channels; what was used stays counted."""
        for ledger in self._ledgers:
            ledger.drop_client(self._client)

    def admit(self, traffic: TrafficClass, now: Nanoseconds) -> Admission | None:
        """Count a transmission in all ledgers and allow it, or do neither.

        Persist `records` before transmitting, then report the outcome: `confirm` or `release`.

        Returns:
            What to give back with the outcome, or None: not now.
        """
        own, own_epoch = self._own, 0
        if own is not None and not own.would_admit(self._client, traffic, now):
            return None
        node_epoch = self._node.admit(self._client, traffic, now)
        if node_epoch is None:
            return None
        if own is not None:
            own_epoch = own.admit(self._client, traffic, now) or 0
        return Admission(node_epoch, own_epoch)

    def next_admission(self, traffic: TrafficClass, now: Nanoseconds, jitter: float) -> Nanoseconds:
        """Return when asking `admit` again makes sense; see `EpochRateLimiter.next_admission`."""
        return max(
            ledger.next_admission(self._client, traffic, now, jitter) for ledger in self._ledgers
        )

    def expected_admission(
        self, traffic: TrafficClass, now: Nanoseconds, ahead: int
    ) -> Nanoseconds:
        """Estimate when this channel can make the transmission behind so many others of its own."""
        return max(ledger.expected_admission(traffic, now, ahead) for ledger in self._ledgers)

    def confirm(self, admission: Admission, now: Nanoseconds) -> bool:
        """Note that the node reported a transmission as made; True when `records` changed."""
        changed = False
        for ledger, epoch in zip(self._ledgers, admission, strict=False):
            changed |= ledger.confirm(epoch, now)
        return changed

    def release(self, admission: Admission) -> None:
        """Note that a transmission was certainly not made; it stays counted, but only once."""
        for ledger, epoch in zip(self._ledgers, admission, strict=False):
            ledger.release(epoch)

    def sync_spacing(self, now: Nanoseconds) -> Nanoseconds:
        """Return the distance to keep from this channel's previous sync, nanoseconds."""
        return max(ledger.sync_spacing(now) for ledger in self._ledgers)

    def records(self) -> tuple[LedgerRecord, ...]:
        """Return what has to be durable before an admitted transmission is made."""
        return tuple(ledger.record() for ledger in self._ledgers if ledger.enabled)
