"""Gaps in the history: ids that others named and we lack, from being named to found or given up.

::

    named ─ look_for ─► look_for_one ─► missing ─ stop_looking ─► it arrived
                                           │ ask ─► Fetch, from the node's store
                                           │ repairs ─► repair_request, to everybody
                                           └ lose ─► lost; not when it may be from before our time, or a sync's

It must not receive messages nor put payloads together; what is delivered once waiting ends is up to ``causal``.

Spec: LIP-109 (SDS), Receive, Deliver: unmet dependencies.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.sds.causal import CausalOrder
from reliable_channel.core.sds.missing import (
    FETCH_TIMER,
    QUERY_DELAYS_NS,
    MissingMessage,
    MissingMessages,
)
from reliable_channel.core.sds.our_time import OurTime
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import HistoryEntry, SdsMessage
from reliable_channel.events import MessageLostEvent
from reliable_channel.identifiers import is_identifier
from reliable_channel.records import MissingRecord
from reliable_channel.types import MS, MessageId, Nanoseconds, ParticipantId

MAX_CLOCK_SKEW_MS: Final = 20_000
"""How far other clocks may be behind ours: relays refuse timestamps further off (14/WAKU2-MESSAGE)."""

SETTLE_TIMER: Final = ("settle", "")
MISSING_TIMER: Final = ("missing", "")


class Gaps:
    """What is looked for and waited for, and how long.

    Args:
        state: What both directions share.
        causal: Who waits for what; told when waiting ends.
    """

    def __init__(self, state: ChannelState, causal: CausalOrder) -> None:
        self.state = state
        self.causal = causal
        self.missing = MissingMessages(state.sds, state.timers)
        self.our_time = OurTime(state.created_ns // MS, state.log.known, state.sds.max_participants)

    # -- looking ----------------------------------------------------------------------------------

    def look_for(self, message: SdsMessage, index: int = 0) -> None:
        """Begin to look for ids that a message names and we lack; those below the floor are let be.

        Args:
            message: What names them.
            index: Its place among the data segments of its payload.
        """
        lamport = message.lamport_timestamp
        if lamport is not None and lamport < self.causal.floor:
            return
        if not self.our_time.is_over:
            self.listen(message)
        log = self.state.log.known
        proven: set[MessageId] | None = None
        for entry in message.causal_history:
            if entry.message_id in log:
                continue
            if entry.message_id in self.missing or self.causal.lacks(entry.message_id):
                if proven is None:
                    proven = self.proven_by(message, index)
                self.look_for_one(entry, message.sender_id, proven=entry.message_id in proven)

    def listen(self, message: SdsMessage) -> None:
        """Take note of who sent what in our time, while something may be from before it or was taken to be."""
        if not self.is_settling() and not self.missing.messages:
            self.our_time.end()
        elif message.lamport_timestamp is not None and message.content:
            self.our_time.hear(message.sender_id, message.lamport_timestamp)

    def proven_by(self, message: SdsMessage, index: int) -> set[MessageId]:
        """Return what a message proves to be of our time; the names in a sync are in no order."""
        lamport, history = message.lamport_timestamp, message.causal_history
        if lamport is None or not message.content:
            return set()
        return self.our_time.proves(message.sender_id, lamport, index, history)

    def look_for_one(self, entry: HistoryEntry, named_by: ParticipantId, *, proven: bool) -> None:
        """Begin to look for an id that a participant named."""
        may_predate = self.is_settling() and not proven
        is_new = entry.message_id not in self.missing
        if not self.missing.track(
            entry, named_by, self.state.now, may_predate=may_predate, proven=proven
        ):
            self.state.outbox.drop("missing_ids_full")
            return
        self.watch_missing()
        missing = self.missing.messages[entry.message_id]
        if proven and missing.excused and not missing.may_be_nothing:
            self.await_again(missing)
        # A claim that comes while the id is looked for changes nothing.
        missing.claimed = missing.claimed or (is_new and entry.message_id in self.causal.claimed)
        self.keep(missing)
        self.wait_for(missing)

    def await_again(self, missing: MissingMessage) -> None:
        """Wait for an excused id after all, as long as for one that was named only now."""
        missing.excused = False
        missing.since_ns = self.state.now
        self.missing.messages[missing.message_id] = self.missing.messages.pop(missing.message_id)
        self.causal.await_again(missing.message_id)

    def wait_for(self, missing: MissingMessage, since_ns: Nanoseconds | None = None) -> None:
        """Let others be asked for a missing id, and let it be nobody's fault where it may be nothing.

        Args:
            missing: What is looked for.
            since_ns: When it was named, before a restart; None for now.
        """
        if missing.may_be_nothing and not missing.excused:
            self.state.timers.set_earlier(SETTLE_TIMER, self.state.now + self.grace_ns)
        if not missing.may_predate and not missing.excused:
            since_ns = self.state.now if since_ns is None else min(since_ns, self.state.now)
            self.state.repairs.want(missing.message_id, missing.sender_id, since_ns)

    def keep(self, missing: MissingMessage) -> None:
        """Write the row of a missing id, where it is not as it was."""
        record = missing.record()
        if record != missing.kept:
            missing.kept = record
            self.state.outbox.put_at((missing.message_id,), record)

    def restore(self, records: Iterable[MissingRecord]) -> None:
        """Go on looking for kept ids; what was excused stays so, and time goes on where it was.

        Args:
            records: Of ids that are neither known nor lost.
        """
        for record in records:
            missing = self.missing.restore(record, self.state.now)
            if missing is None:
                self.state.outbox.delete(MissingRecord, record.message_id)
                self.state.outbox.drop("missing_ids_full")
                continue
            if missing.excused:
                self.causal.passing.add(missing.message_id)
            # Its row keeps when it was named; how long it is waited for is up to the latest restarts.
            wait = self.state.sds.dependency_timeout_ms * MS
            missing.since_ns = self.state.deadline_of(record.since_ns, wait) - wait
            self.wait_for(missing, record.since_ns)
        if self.is_settling() or self.missing.messages:
            self.our_time.restore()
        self.watch_missing()

    def lower_floor(self, lamport: int) -> None:
        """Take messages of a sender whose clock is behind ours as of our time, from our start on.

        How far it is behind shows in a message that arrives by itself, and not from a store.
        """
        behind = self.state.now // MS - lamport
        if 0 < behind <= MAX_CLOCK_SKEW_MS:
            start = self.state.created_ns // MS
            if start - behind < self.causal.floor <= start:
                self.causal.floor = start - behind

    @property
    def grace_ns(self) -> Nanoseconds:
        """How long a new channel waits for what may be from before its time, nanoseconds."""
        return 2 * self.state.sds.acknowledgement_timeout_ms * MS

    def is_settling(self) -> bool:
        """Tell whether the channel is so new that others may name what was never meant for it."""
        return not self.state.settled_at_ns or self.state.settled_at_ns > self.state.now

    def stop_looking(self, message_id: MessageId) -> None:
        """Look for an id no longer: it arrived, was rebuilt, or nobody could bring it."""
        if self.missing.messages and self.missing.remove(message_id) is not None:
            self.state.outbox.delete(MissingRecord, message_id)
        if self.state.repairs.requests:
            self.state.repairs.forget(message_id)

    # -- the node's store -------------------------------------------------------------------------

    def ask_when_due(self) -> None:
        """Ask the node's store when something is due, without waiting for the next tick."""
        due = self.state.timers.deadline(FETCH_TIMER)
        if due is not None and due <= self.state.now:
            self.state.timers.cancel(FETCH_TIMER)
            self.ask()

    def ask(self) -> None:
        """Ask the node's store for what is due."""
        hashes = self.missing.next_query(self.state.now)
        if hashes:
            self.state.outbox.count("store_queries")
            self.state.outbox.fetch(hashes)

    def answered(self, found: Iterable[bytes]) -> None:
        """Take note of the hashes for which the store gave a message, after these were received."""
        self.missing.answered(found)

    def failed(self) -> None:
        """Take note that the store could not be asked; the same is asked again later."""
        self.missing.failed(self.state.now)

    # -- waiting and giving up --------------------------------------------------------------------

    def watch_missing(self) -> None:
        """Let the time run after which the oldest missing id is given up."""
        oldest = next(iter(self.missing.messages.values()), None)
        if oldest is not None:
            wait = self.state.sds.dependency_timeout_ms * MS
            self.state.timers.set(MISSING_TIMER, oldest.since_ns + wait)

    def expire_missing(self) -> None:
        """Give up ids that nobody could bring; those that a parked payload waits for end with it."""
        oldest_kept = self.state.now - self.state.sds.dependency_timeout_ms * MS
        messages = self.missing.messages
        while messages:
            missing = next(iter(messages.values()))
            if missing.since_ns > oldest_kept:
                break
            if self.causal.is_awaited(missing.message_id):
                missing.since_ns = self.state.now
                self.keep(missing)
                messages[missing.message_id] = messages.pop(missing.message_id)
                continue
            if missing.excused:
                self.stop_looking(missing.message_id)
            else:
                self.lose(missing.message_id, missing.sender_id, "dependency_timeout")
        self.watch_missing()

    def settle(self) -> None:
        """Let nobody wait any longer for what may be from before our time; it is looked for all the same.

        A late joiner neither waits for nor reports as lost what was never meant for it. So it is with what may be
        somebody's sync: foreign implementations name these.
        """
        short = [
            item
            for item in self.missing.messages.values()
            if item.may_be_nothing and not item.excused
        ]
        ripe = [item for item in short if self.waits_until(item) <= self.state.now]
        self.state.outbox.count("before_our_time", sum(item.may_predate for item in ripe))
        self.state.outbox.count("claims_excused", sum(not item.may_predate for item in ripe))
        for missing in ripe:
            missing.may_predate = False
            missing.excused = True
            self.keep(missing)
        self.causal.excuse([missing.message_id for missing in ripe])
        ends = [self.waits_until(item) for item in short if not item.excused]
        if ends:
            self.state.timers.set(SETTLE_TIMER, min(ends))

    def waits_until(self, missing: MissingMessage) -> Nanoseconds:
        """Return how long something that may be from before our time is waited for: until the store was asked."""
        wait = self.grace_ns
        if missing.next_query_ns:
            wait = max(wait, QUERY_DELAYS_NS[-1])
        return missing.since_ns + wait

    def dependency_timed_out(self, serial: int) -> None:
        """Deliver a payload that has waited long enough, whatever is still missing."""
        payload = self.causal.parked.get(serial)
        if payload is not None:
            self.deliver_anyway(payload, "dependency_timeout")

    def deliver_anyway(self, payload: IncomingPayload, reason: str) -> None:
        """Declare lost what a parked payload, or one it waits for, still misses; that delivers it."""
        for message_id, entry in self.causal.closure(payload)[1].items():
            self.lose(message_id, entry.sender_id, reason)
        if payload.serial in self.causal.parked:
            self.causal.force(payload)

    def lose(self, message_id: MessageId, sender_id: ParticipantId | None, reason: str) -> None:
        """Give up an id that somebody waits for: the application is told, and what waited is delivered."""
        self.stop_looking(message_id)
        self.report_lost(message_id, sender_id, reason, self.explanation(reason))
        self.causal.lose(message_id, self.state.now)

    def explanation(self, reason: str) -> str:
        """Return in words why a message that others depend on is given up."""
        if reason == "parking_full":
            return "too many messages wait for others; the oldest was delivered without this one"
        seconds = self.state.sds.dependency_timeout_ms / 1000
        return f"neither the store nor another participant brought it within {seconds:.10g} s"

    def report_lost(
        self,
        message_id: MessageId,
        sender_id: ParticipantId | None,
        reason: str,
        explanation: str,
    ) -> None:
        """Tell the application that a message will not be waited for."""
        if not is_identifier(sender_id or ""):
            sender_id = None
        self.state.outbox.count("messages_lost")
        self.state.outbox.emit(
            MessageLostEvent(
                channel_id=self.state.channel_id,
                time_ns=self.state.now,
                message_id=message_id,
                sender_id=sender_id,
                reason=reason,
                explanation=explanation,
            )
        )
