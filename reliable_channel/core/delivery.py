"""From a complete set to the received event: put together, named (``naming``), delivered in causal order.

A set that does not become whole in time ends here too; one whose hash does not match waits on. It must not read
messages from the network (``incoming``) nor decide what waits for what (``sds.causal``).

Spec: RELIABLE-CHANNEL-API, Incoming message processing; LIP-109 (SDS), Deliver; LIP-243 (Segmentation), Reassembly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reliable_channel.core.acceptance import Acceptance
from reliable_channel.core.assembly import assemble
from reliable_channel.core.naming import SegmentNames
from reliable_channel.core.payload import SEGMENT_OCTETS, Candidate, IncomingPayload, SetKey
from reliable_channel.core.rate_limit import ChannelBudget
from reliable_channel.core.reassembly import Reassembler, digest_of
from reliable_channel.core.sds.causal import CausalOrder
from reliable_channel.core.sds.gaps import Gaps
from reliable_channel.core.sds.log import KnownMessage, history_octets
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import SdsMessage, SegmentMessage
from reliable_channel.events import MessageReceivedEvent
from reliable_channel.records import CompletedRecord, PendingRecord
from reliable_channel.types import MS, SECOND, MessageId, Nanoseconds

INCOMPLETE_EPOCHS: Final = 3
"""Epochs that an incomplete payload is kept at least: its sender may have to wait for the next one."""

TABLE_FULL: Final = ("incomplete_payloads_full", "incomplete_payloads_of_sender_full")
"""Reasons to refuse a segment that end when another payload is dropped."""

STALE_NS: Final = 60 * SECOND
"""No progress for so long, and an incomplete payload may lose its place where all are taken: longer than the pauses of
retransmission, and short enough that who fills the places has to do it again and again."""


class Delivery:
    """Payloads from their last segment to the application.

    Args:
        state: What both directions share.
        budget: How long an epoch is, which a sender may have to wait for.
        reassembler: Incomplete payloads.
        causal: Says when a payload's turn has come, by calling ``deliver``.
        gaps: What payloads wait for.
        acceptance: Where rebuilt segments are entered, and what is forgotten once delivered.

    Attributes:
        rest_wait_ns: How long an incomplete payload may go without progress, nanoseconds.
    """

    def __init__(
        self,
        state: ChannelState,
        budget: ChannelBudget,
        reassembler: Reassembler,
        causal: CausalOrder,
        gaps: Gaps,
        acceptance: Acceptance,
    ) -> None:
        self.state = state
        self.reassembler = reassembler
        self.causal = causal
        self.gaps = gaps
        self.acceptance = acceptance
        self.names = SegmentNames(state, causal, gaps, acceptance, self.give_way)
        timeout_ns = state.segmentation.incomplete_timeout_ms * MS
        self.rest_wait_ns = max(timeout_ns, INCOMPLETE_EPOCHS * budget.period)

    # -- incomplete payloads ----------------------------------------------------------------------

    def wait_for_rest(self, payload: IncomingPayload) -> None:
        """Let the time run that an incomplete payload may go without progress."""
        payload.progress_ns = self.state.now
        self.state.timers.set(("set", payload.serial), self.state.now + self.rest_wait_ns)

    def wait_on(self, payload: IncomingPayload, received_ns: Nanoseconds) -> None:
        """Let the same time run on after a restart, from when a kept segment came.

        Who is restarted often must not keep for ever what never becomes whole; who was down for long still gives the
        store and other participants the dependency timeout to bring the rest.
        """
        payload.progress_ns = min(received_ns, self.state.now)
        deadline = self.state.deadline_of(received_ns, self.rest_wait_ns)
        self.state.timers.set(("set", payload.serial), deadline)

    def set_timed_out(self, serial: int) -> None:
        """Drop an incomplete payload that made no progress."""
        payload = self.acceptance.payloads.get(serial)
        if payload is not None and self.reassembler.sets.get(payload.key) is payload:
            seconds = self.rest_wait_ns / SECOND
            self.drop(payload, "incomplete_timeout", f"no progress for {seconds:.10g} s")

    def drop(self, payload: IncomingPayload, reason: str, explanation: str) -> None:
        """Drop an incomplete payload.

        Args:
            payload: It is taken out of the reassembler.
            reason: Why, as a word.
            explanation: The same for people.
        """
        self.take_out(payload)
        self.state.outbox.count("incomplete_dropped")
        self.give_up(payload, reason, explanation)

    def refusal(
        self, key: SetKey, segment: SegmentMessage, extra: int, message_id: MessageId = ""
    ) -> str | None:
        """Return why a segment is not taken, as ``Reassembler.refusal`` does, or None when it is.

        Where only the table of payloads is full, one that makes no progress loses its place.
        """
        reason = self.reassembler.refusal(key, segment, extra, message_id)
        if reason not in TABLE_FULL:
            return reason
        waiting = self.reassembler.sets.get(key.sibling)
        if waiting is not None and not waiting.data and not key.ephemeral:
            return None  # it takes the place of its own parity, which came first
        whose = key.sender_id if reason == "incomplete_payloads_of_sender_full" else None
        stale = self.reassembler.stale(whose, self.state.now - STALE_NS)
        if stale is None:
            return reason
        seconds = (self.state.now - stale.progress_ns) / SECOND
        explanation = f"no progress for {seconds:.0f} s while others needed its place"
        self.drop(stale, "incomplete_payloads_full", explanation)
        return None

    # -- whole payloads ---------------------------------------------------------------------------

    def finish_set(self, payload: IncomingPayload, latest: SegmentMessage | None = None) -> None:
        """Put a complete set together and hand it to causal order, if that can be done.

        Args:
            payload: The set.
            latest: The segment that was added last; None when it was not tried yet at all.
        """
        if self.assemble(payload, latest):
            self.put_together(payload)

    def assemble(self, payload: IncomingPayload, latest: SegmentMessage | None) -> bool:
        """End the reassembly of a complete set; say whether its segments make the payload.

        Where they do not, some are forged and the true ones are still to come: the set waits for them.

        Args:
            payload: The set.
            latest: The segment that was added last; None when it was not tried yet at all.
        """
        failures = payload.failures
        held = [*payload.data.values(), *payload.parity.values()]
        if payload.rivals or payload.parity_rivals:
            held += [item.chunk for items in payload.rivals.values() for item in items]
            held += [chunk for chunks in payload.parity_rivals.values() for chunk in chunks]
        message = assemble(payload, latest)
        if payload.failures > failures:
            self.state.outbox.count("assemblies_failed", payload.failures - failures)
        if message is None:
            return False
        self.take_out(payload)
        self.drop_unused_parity(payload)
        payload.message = message
        payload.octets += len(message) - sum(map(len, held)) - SEGMENT_OCTETS * len(held)
        return True

    def drop_unused_parity(self, payload: IncomingPayload) -> None:
        """Let go of parity that a payload was not put together with: what it names is nobody's word."""
        if not payload.held_parity:
            return
        unused = [
            item
            for item in payload.held_parity
            if payload.parity.get(item.segment_index) is not item.chunk
        ]
        payload.octets -= sum(history_octets(item.history) for item in unused)
        gone = {item.arrival for item in unused}
        self.acceptance.drop_parity_rows(payload, gone)
        payload.held_parity = [item for item in payload.held_parity if item.arrival not in gone]
        payload.dependencies.clear()
        payload.gather()

    def take(self, key: SetKey, segment: SegmentMessage, extra: int) -> IncomingPayload:
        """Take a segment for which ``refusal`` said None and return its set.

        The first content segment of a payload brings the parity over that came before it.
        """
        sets = self.reassembler.sets
        is_new = bool(sets) and not key.ephemeral and key not in sets
        waiting = sets.get(key.sibling) if is_new else None
        given = [] if waiting is None else self.reassembler.give_parity(waiting)
        if waiting is not None and not waiting.data:
            self.take_out(waiting)
            self.acceptance.payloads.pop(waiting.serial, None)
        payload = self.reassembler.add(key, segment, extra=extra)
        for item in given:
            parity = replace(
                segment,
                is_parity=True,
                data_segment_index=0,
                parity_segment_index=item.segment_index,
                payload=item.chunk,
            )
            octets = history_octets(item.history)
            reason = self.reassembler.refusal(key, parity, octets)
            if reason is None:
                self.reassembler.add(key, parity, extra=octets)
                payload.enter_parity(item)
            else:
                self.state.outbox.drop(reason)
        return payload

    def progress(self, payload: IncomingPayload, segment: SegmentMessage) -> None:
        """Let the time begin anew that an incomplete payload may go without progress, if a segment is any.

        Another one for an index that one is held for is none: who sends them would keep a dead set for ever.
        """
        if segment.is_parity:
            first = payload.parity[segment.parity_segment_index]
        else:
            first = payload.data[segment.data_segment_index]
        if first is segment.payload:
            self.wait_for_rest(payload)

    def take_out(self, payload: IncomingPayload) -> None:
        """End the reassembly of a set."""
        self.reassembler.remove(payload)
        self.state.timers.cancel(("set", payload.serial))

    def put_together(
        self, payload: IncomingPayload, restored_ns: Nanoseconds | None = None
    ) -> None:
        """Let the rest of a whole payload's set go, give it the ids of its rebuilt segments, and hand it on.

        Args:
            payload: The payload.
            restored_ns: When its last segment came, before a restart; what is remembered of its set knows of late
                segments too. None where it has just become whole.
        """
        if not self.names.settle(payload):
            return
        if payload.held_parity:
            self.end_parity(payload)
        payload.data.clear()
        payload.parity.clear()
        payload.parity_rivals.clear()
        held = sum(1 << index for index in payload.ids)
        digest = digest_of(payload)
        if restored_ns is None or digest not in self.reassembler.completed:
            self.remember(digest, held, payload.data_count)
        if payload.ephemeral:
            self.deliver(payload)
        else:
            self.complete(payload, restored_ns)

    def end_parity(self, payload: IncomingPayload) -> None:
        """Let the parity of a whole payload go; its rows stay where data segments have none: they stand in for those.

        Where every data segment has its own history, nothing depends on what the parity names.
        """
        payload.octets -= sum(history_octets(item.history) for item in payload.held_parity)
        if payload.ephemeral or len(payload.ids) == payload.data_count:
            self.acceptance.drop_parity_rows(payload, payload.parity_rows)
            payload.dependencies.clear()
            payload.gather()
        else:
            self.acceptance.keep_parity(payload)
        payload.held_parity.clear()

    def join_late(self, payload: IncomingPayload, message: SdsMessage, index: int) -> None:
        """Give a parked payload that was rebuilt without one of its ids the segment that has it."""
        self.causal.unpark(payload)
        payload.data = payload.pieces()
        if index in payload.ids:
            payload.rivals[index] = [Candidate(payload.data[index], "", 0, ())]
        self.acceptance.join(payload, message, index)
        self.acceptance.keep(message, payload)
        payload.octets += history_octets(message.causal_history)
        payload.has_odd = True
        is_new = self.names.settle(payload)
        payload.data.clear()
        if not is_new:
            self.state.timers.cancel(("dependency", payload.serial))
            return
        if 0 in payload.ids:
            payload.dependencies.clear()
            payload.gather()
        missing = payload.data_count - len(payload.ids)
        self.acceptance.drop_parity_rows(payload, payload.parity_rows[missing:])
        if not self.causal.complete(payload):
            self.keep_bounds(payload)

    def remember(self, digest: bytes, held: int, data_count: int) -> None:
        """Remember a rebuilt payload, so that a late segment delivers nothing twice."""
        forgotten = self.reassembler.remember(digest, held)
        if forgotten is not None:
            self.state.outbox.delete(CompletedRecord, forgotten)
        self.state.outbox.put(
            CompletedRecord(
                set_digest=digest,
                held=held.to_bytes((data_count + 7) // 8, "little"),
                completed_ns=self.state.now,
            )
        )

    def complete(self, payload: IncomingPayload, since_ns: Nanoseconds | None = None) -> None:
        """Hand a whole payload to causal order; parked, it waits no longer than the dependency timeout.

        Args:
            payload: The payload.
            since_ns: When its last segment came, before a restart; None for now.
        """
        if not self.causal.complete(payload):
            self.state.outbox.count("parked")
            wait = self.state.sds.dependency_timeout_ms * MS
            since_ns = self.state.now if since_ns is None else since_ns
            deadline = self.state.deadline_of(since_ns, wait)
            self.state.timers.set(("dependency", payload.serial), deadline)
            self.keep_bounds(payload)

    def keep_bounds(self, payload: IncomingPayload) -> None:
        """Deliver the oldest payloads while more are parked than may be, after this one was."""
        while (oldest := self.causal.overflow(payload.sender_id)) is not None:
            self.gaps.deliver_anyway(oldest, "parking_full")

    def deliver(self, payload: IncomingPayload) -> None:
        """Give a payload to the application: its turn has come."""
        state, ephemeral = self.state, payload.key.ephemeral
        late = not ephemeral and self.causal.was_given_up(payload.ids.values())
        self.acceptance.forget(payload)
        state.timers.cancel(("dependency", payload.serial))
        state.outbox.count("messages_received")
        state.outbox.emit(
            MessageReceivedEvent(
                channel_id=state.channel_id,
                time_ns=state.now,
                message=payload.message,
                sender_id=payload.key.sender_id,
                message_id=payload.message_id,
                ephemeral=ephemeral,
                late=late,
            )
        )

    def give_way(self, known: KnownMessage) -> None:
        """Forget who claimed an id without proof: the message that proves it has come.

        What was delivered under it stays delivered; a payload that waits and has no other id goes without a word.
        """
        message_id = known.message_id
        self.state.outbox.count("ids_reclaimed")
        self.state.log.forget(message_id)
        self.state.archive.forget((message_id,))
        self.state.debt.settle((message_id,))
        payload = self.causal.holder.pop(message_id, None)
        if payload is None:
            return
        self.state.outbox.replace(PendingRecord, message_id)
        if self.reassembler.sets.get(payload.key) is payload:
            self.reassembler.take_back(payload, message_id)
            if not payload.data:
                self.acceptance.unkeep_parity(payload)
            if payload.data or payload.parity:
                return
            self.take_out(payload)
        else:
            payload.drop_id(message_id)
            if payload.ids:
                return
            self.causal.unpark(payload)
            self.state.timers.cancel(("dependency", payload.serial))
        self.acceptance.forget(payload)

    def give_up(self, payload: IncomingPayload, reason: str, explanation: str) -> None:
        """Drop a payload that cannot become whole; what was acknowledged of it is an event.

        Args:
            payload: No set of the reassembler any longer.
            reason: Why, as a word.
            explanation: The same for people, who are told what was missing, too.
        """
        explanation = f"{shortfall(payload)}, {explanation}"
        self.causal.release_waiters(self.acceptance.drop_rivals(payload))
        self.acceptance.forget(payload)
        if payload.ephemeral or not payload.ids:
            return
        self.gaps.report_lost(payload.message_id, payload.sender_id, reason, explanation)
        for message_id in payload.ids.values():
            self.state.log.forget(message_id)
            self.state.archive.forget((message_id,))
            self.causal.lose(message_id, self.state.now)
        self.state.debt.settle(payload.ids.values())


def shortfall(payload: IncomingPayload) -> str:
    """Return what an incomplete payload lacks, for people."""
    count, held = payload.data_count, len(payload.data)
    if held == count:
        return (
            f"{count} of {count} segments came, but not all of them are its own: the hash differs"
        )
    parity = f" and {len(payload.parity)} of parity came" if payload.parity else ""
    return f"{count - held} of {count} segments missing{parity}"
