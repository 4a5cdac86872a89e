"""What SDS has accepted: known from then on, held in its payload until that is delivered, and kept for a restart.

It must not judge messages (``incoming``) nor deliver payloads (``delivery``); both enter here what they accept, the
one as received, the other as rebuilt.

Spec: LIP-109 (SDS), Receive; RELIABLE-CHANNEL-API: partial reassembly survives restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from reliable_channel.core.payload import HeldParity, IncomingPayload
from reliable_channel.core.sds.causal import CausalOrder
from reliable_channel.core.sds.gaps import Gaps
from reliable_channel.core.sds.log import KnownMessage
from reliable_channel.core.sds.repair import in_response_group
from reliable_channel.core.state import ChannelState
from reliable_channel.core.wire import SdsMessage, history_field
from reliable_channel.records import ParityRecord, PendingRecord
from reliable_channel.types import MessageId


class Arrival(NamedTuple):
    """One copy of a message, as it came."""

    data: bytes
    """The encoded SDS message."""
    transport_hash: bytes | None
    """Under which a store has it; None when no store keeps it."""
    from_store: bool = False
    """A store gave it, so it may be from long ago."""


class Acceptance:
    """Accepted messages and the payloads they belong to, until delivery.

    Args:
        state: What both directions share.
        causal: Told which payload holds which id.
        gaps: Told what is no longer missing.
    """

    def __init__(self, state: ChannelState, causal: CausalOrder, gaps: Gaps) -> None:
        self.state = state
        self.causal = causal
        self.gaps = gaps
        self.payloads: dict[int, IncomingPayload] = {}
        self.arrivals = 0

    def accept(
        self,
        message: SdsMessage,
        index: int,
        segment_count: int,
        arrival: Arrival | None,
        *,
        logged: bool,
        proven: bool = True,
        has_row: bool = True,
    ) -> KnownMessage:
        """Make a message known: from now on it deduplicates, is acknowledged and is not looked for.

        Args:
            message: A valid content message.
            index: Its place in its payload.
            segment_count: Data segments of that payload.
            arrival: Its bytes; None when it was rebuilt.
            logged: It may be named from now on.
            proven: Its content gives its id.
            has_row: Its row is written; else it is up to the caller, once it is known whether it was delivered.
        """
        state, lamport = self.state, message.lamport_timestamp or 0
        known = KnownMessage(
            message.message_id,
            state.see_lamport(lamport, state.now),
            message.sender_id,
            index=index,
            segment_count=segment_count,
            hint=arrival.transport_hash if arrival else None,
            logged=logged,
            proven=proven,
        )
        state.log.add(known, has_row=has_row)
        self.gaps.stop_looking(message.message_id)
        if arrival:
            self.archive(message, arrival)
            if not arrival.from_store:
                self.gaps.lower_floor(lamport)
        if not state.settled_at_ns:
            state.settled_at_ns = state.now + self.gaps.grace_ns
        return known

    def archive(self, message: SdsMessage, arrival: Arrival) -> None:
        """Keep a message whole when we may be asked for it.

        Spec: LIP-109 (SDS), SDS-R participant state.
        """
        state = self.state
        groups = state.sds.num_response_groups
        if in_response_group(state.sender_id, message.sender_id, message.message_id, groups):
            state.archive.keep_received(
                message.message_id, arrival.data, in_store=arrival.from_store
            )

    def join(self, payload: IncomingPayload, message: SdsMessage, index: int) -> None:
        """Enter an accepted message in its payload."""
        lamport = self.state.log.known[message.message_id].lamport
        payload.enter(index, message.message_id, lamport, message.causal_history)
        self.causal.hold(message.message_id, payload)

    def keep(self, message: SdsMessage, payload: IncomingPayload) -> None:
        """Write the row from which a restart goes on; delivery takes it away again."""
        self.arrivals += 1
        self.state.outbox.put_at(
            (message.message_id,),
            PendingRecord(
                message_id=message.message_id,
                sender_id=message.sender_id,
                lamport_timestamp=self.state.log.known[message.message_id].lamport,
                received_ns=self.state.now,
                history=history_field(message.causal_history),
                content=message.content or b"",
                set_number=payload.serial,
                arrival=self.arrivals,
            ),
        )
        self.payloads[payload.serial] = payload

    # -- parity -----------------------------------------------------------------------------------
    #
    # A set that has only parity may turn out to be an application's ephemeral message, of which nothing is kept: its
    # rows are written with those of its first data segment, from which a restart knows what the parity belongs to.

    def hold_parity(
        self, payload: IncomingPayload, index: int, chunk: bytes, message: SdsMessage
    ) -> None:
        """Enter a parity segment in its payload, after the reassembler took it."""
        self.arrivals += 1
        history, now = message.causal_history, self.state.now
        payload.enter_parity(HeldParity(self.arrivals, index, chunk, history, now))

    def keep_parity(self, payload: IncomingPayload) -> None:
        """Write the rows of parity that has none yet, where the payload is known to be no ephemeral one."""
        if payload.ephemeral or not payload.ids:
            return
        for item in payload.held_parity[len(payload.parity_rows) :]:
            payload.parity_rows.append(item.arrival)
            self.state.outbox.put_at(
                (item.arrival,),
                ParityRecord(
                    arrival=item.arrival,
                    set_number=payload.serial,
                    segment_index=item.segment_index,
                    received_ns=item.received_ns,
                    history=history_field(item.history),
                    chunk=item.chunk,
                ),
            )

    def unkeep_parity(self, payload: IncomingPayload) -> None:
        """Take the rows of parity back from a set whose last data segment went; the next one brings them again."""
        for arrival in payload.parity_rows:
            self.state.outbox.replace(ParityRecord, arrival)
        payload.parity_rows.clear()

    def drop_parity_rows(self, payload: IncomingPayload, arrivals: Collection[int]) -> None:
        """Let go of the rows of parity that a payload needs no longer, where it has any."""
        gone = set(arrivals)
        for arrival in payload.parity_rows:
            if arrival in gone:
                self.state.outbox.discard(ParityRecord, arrival)
        payload.parity_rows = [item for item in payload.parity_rows if item not in gone]

    # -- the end ----------------------------------------------------------------------------------

    def forget(self, payload: IncomingPayload) -> None:
        """Let go of the rows that a restart would need."""
        has_rows = self.payloads.pop(payload.serial, None) is not None
        payload.held_parity.clear()
        if payload.parity_rows:
            self.drop_parity_rows(payload, payload.parity_rows)
        if not payload.key.ephemeral:
            holder = self.causal.holder
            for message_id in payload.ids.values():
                holder.pop(message_id, None)
                if has_rows:
                    self.state.outbox.discard(PendingRecord, message_id)

    def drop_rivals(self, payload: IncomingPayload) -> list[MessageId]:
        """Forget the candidates that are no part of a payload; return their ids.

        Known, they would have to be logged to be evicted ever; logged, histories of ours would name what somebody made
        up. A copy that comes again is one of a completed payload.
        """
        dropped = [item.message_id for items in payload.rivals.values() for item in items]
        payload.rivals.clear()
        payload.parity_rivals.clear()
        if not payload.ephemeral:
            for message_id in dropped:
                self.causal.holder.pop(message_id, None)
                self.state.outbox.discard(PendingRecord, message_id)
                self.state.log.forget(message_id)
            self.state.archive.forget(dropped)
            self.state.debt.settle(dropped)
        return dropped

    def evict(self, is_open: Callable[[MessageId], bool]) -> None:
        """Forget the oldest known ids above the bound; what names them is not waited for from now on.

        Args:
            is_open: Tells whether an id is one of ours that we still wait to be acknowledged: those stay.
        """
        evicted = self.state.log.evict(is_open)
        if evicted:
            self.causal.floor = max(self.causal.floor, evicted[-1][0])
            self.state.debt.settle(message_id for _, message_id in evicted)
            self.state.archive.forget(message_id for _, message_id in evicted)
