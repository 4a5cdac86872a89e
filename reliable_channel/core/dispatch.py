"""What waits to be given to the node, in which order, and what the node has not reported yet.

Each class of traffic is first in, first out; between classes the epoch budget decides, or, where the rate is not
limited, the order of ``TrafficClass``. It must not build messages: whoever queued something does that when its turn
comes.

Spec: RELIABLE-CHANNEL-API, Rate limiting; 17/WAKU2-RLN-RELAY.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from reliable_channel.core.outbox import Outbox
from reliable_channel.core.rate_limit import Admission, ChannelBudget, TrafficClass
from reliable_channel.core.requests import OutgoingSegment, Request
from reliable_channel.core.sds.repair import RepairAnswer, RepairRequest
from reliable_channel.core.timers import Timers
from reliable_channel.types import MessageId, Nanoseconds, RequestId

QUEUE_TIMER: Final = ("queue", "")

UNCOUNTED: Final = Admission(0, 0)
"""Of what goes out where nothing limits the rate."""


@dataclass(slots=True, eq=False)
class SyncTurn:
    """A sync message that waits to be composed, or was."""

    idle: bool
    """It breaks a silence; nothing is owed."""
    named: tuple[MessageId, ...] = ()
    """Owed ids that it settled, to be owed again should it fail."""
    asked: tuple[RepairRequest, ...] = ()
    """Repair requests that it made, to be made again should it fail."""


@dataclass(slots=True, eq=False)
class ParityTurn:
    """A parity segment that waits."""

    request: Request
    message_id: MessageId
    segment_id: RequestId
    suffix: bytes
    """The encoded content field."""


@dataclass(slots=True, eq=False)
class AnswerTurn:
    """A message of anybody that waits to be sent again, because others asked for it."""

    answer: RepairAnswer


Turn: TypeAlias = OutgoingSegment | SyncTurn | ParityTurn | AnswerTurn


@dataclass(slots=True, eq=False)
class InFlight:
    """Something the node has and has not reported."""

    turn: Turn
    traffic: TrafficClass
    admission: Admission


class DispatchQueue:
    """Waiting traffic by class, within a window of messages in flight.

    Args:
        window: Messages that may be in flight.
        budget: The channel's share of the epoch budget.
        outbox: Where the ledger's rows go.
        timers: Where the next try is scheduled while the budget says no.
        random: The channel's random stream.
    """

    def __init__(
        self, window: int, budget: ChannelBudget, outbox: Outbox, timers: Timers, random: Random
    ) -> None:
        self.window = window
        self.budget = budget
        self.outbox = outbox
        self.timers = timers
        self.random = random
        self.queues: dict[TrafficClass, OrderedDict[RequestId, Turn]] = {
            traffic: OrderedDict() for traffic in TrafficClass
        }
        self.in_flight: dict[RequestId, InFlight] = {}

    def waiting(self) -> int:
        """Return how many messages wait."""
        return sum(map(len, self.queues.values()))

    def put(
        self, traffic: TrafficClass, segment_id: RequestId, turn: Turn, now: Nanoseconds
    ) -> None:
        """Let something wait; it waits at most once."""
        queue = self.queues[traffic]
        if not queue and self.budget.enabled:
            self.budget.set_waiting(traffic, now)
        queue.setdefault(segment_id, turn)

    def put_segment(
        self, traffic: TrafficClass, segment: OutgoingSegment, now: Nanoseconds
    ) -> None:
        """Let a data segment wait, unless it does so already in any class."""
        if not segment.queued:
            segment.queued = True
            self.put(traffic, segment.segment_id, segment, now)

    def discard(self, traffic: TrafficClass, segment_id: RequestId) -> bool:
        """Let something wait no longer; say whether it did."""
        queue = self.queues[traffic]
        found = queue.pop(segment_id, None) is not None
        if found and not queue and self.budget.enabled:
            self.budget.set_waiting(traffic, None)
        return found

    def next_turn(self, now: Nanoseconds) -> tuple[RequestId, InFlight] | None:
        """Return what may go out now and count it, or None; then a timer says when to ask again.

        The ledger's rows are written first: a transmission is durable before it is made.
        """
        if len(self.in_flight) >= self.window:
            return None
        for traffic, queue in self.queues.items():
            if queue:
                if self.budget.enabled:
                    return self.next_admitted(now)
                segment_id, turn = queue.popitem(last=False)
                flight = self.in_flight[segment_id] = InFlight(turn, traffic, UNCOUNTED)
                return segment_id, flight
        return None

    def next_admitted(self, now: Nanoseconds) -> tuple[RequestId, InFlight] | None:
        """Return what may go out now where the rate is limited: the same as ``next_turn``."""
        tries: list[Nanoseconds] = []
        for traffic, queue in self.queues.items():
            if not queue:
                continue
            admission = self.budget.admit(traffic, now)
            if admission is None:
                jitter = self.random.random()
                tries.append(self.budget.next_admission(traffic, now, jitter))
                continue
            segment_id, turn = queue.popitem(last=False)
            self.record_ledger()
            if not queue:
                self.budget.set_waiting(traffic, None)
            flight = self.in_flight[segment_id] = InFlight(turn, traffic, admission)
            self.timers.cancel(QUEUE_TIMER)
            return segment_id, flight
        if tries:
            self.timers.set(QUEUE_TIMER, min(tries))
        return None

    def expiry(self, now: Nanoseconds) -> Nanoseconds:
        """Return when a message that has its turn now may not go out any more; 0 is never."""
        return (self.budget.epoch_end(now) or 0) if self.budget.enabled else 0

    def landed(
        self, segment_id: RequestId, now: Nanoseconds, *, certain_failure: bool = False
    ) -> InFlight | None:
        """Take what the node has reported out of flight; None when it is not ours (any more).

        What is reported after an epoch boundary counts in both epochs, unless it was certainly not transmitted.
        """
        flight = self.in_flight.pop(segment_id, None)
        if flight is not None and self.budget.enabled:
            if certain_failure:
                self.budget.release(flight.admission)
            else:
                self.budget.confirm(flight.admission, now)
            self.record_ledger()
        return flight

    def settle(
        self, unmade: Collection[RequestId], in_doubt: RequestId | None, now: Nanoseconds
    ) -> bool:
        """Take everything out of flight at the end: nothing is reported any more.

        Args:
            unmade: What was certainly not transmitted.
            in_doubt: What may still be; it stays counted as open. All else counts as reported now.
            now: Unix time in nanoseconds.

        Returns:
            Whether the budget's records may have changed.
        """
        landed = [item for item in self.in_flight if item != in_doubt]
        for segment_id in landed:
            admission = self.in_flight.pop(segment_id).admission
            if segment_id in unmade:
                self.budget.release(admission)
            else:
                self.budget.confirm(admission, now)
        return bool(landed) and self.budget.enabled

    def record_ledger(self) -> None:
        """Write the ledger's rows."""
        for record in self.budget.records():
            self.outbox.put(record)
