"""Which messages the segments of a whole payload are: received, rebuilt from parity, or copies that are none of them.

A segment's bytes are deterministic, so keccak gives the id that its sender gave, also of one that never came. It must
not put payloads together (``assembly``) nor deliver them (``delivery``).

Spec: docs/wire.md, Segment; docs/adr/0007-parity-and-causal-order.md, docs/adr/0013-what-a-stranger-may-not-do.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from reliable_channel.core.acceptance import Acceptance
from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.sds.causal import CausalOrder, IdRing
from reliable_channel.core.sds.gaps import Gaps
from reliable_channel.core.sds.log import KnownMessage, history_octets
from reliable_channel.core.state import ChannelState, salted_id
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage
from reliable_channel.types import MessageId

MAX_REBUILT: Final = 1024
"""Ids of rebuilt segments that are remembered, so that their original bytes are kept should they come after all."""


class SegmentNames:
    """The ids of whole payloads' segments.

    Args:
        state: What both directions share.
        causal: Told which ids are nobody's.
        gaps: Told what rebuilt segments name.
        acceptance: Where rebuilt segments are entered and copies forgotten.
        give_way: Called with who claimed the id of a rebuilt segment without proof.

    Attributes:
        rebuilt: Ids of the latest rebuilt segments.
    """

    def __init__(
        self,
        state: ChannelState,
        causal: CausalOrder,
        gaps: Gaps,
        acceptance: Acceptance,
        give_way: Callable[[KnownMessage], None],
    ) -> None:
        self.state = state
        self.causal = causal
        self.gaps = gaps
        self.acceptance = acceptance
        self.give_way = give_way
        self.rebuilt = IdRing(MAX_REBUILT)

    def settle(self, payload: IncomingPayload) -> bool:
        """Give a whole payload the ids of its segments, rebuilt ones included; say whether it is new."""
        ids: Sequence[MessageId] = ()
        named: dict[int, tuple[HistoryEntry, ...]] = {}
        is_mixed = payload.has_odd or payload.rivals or len(payload.ids) < payload.data_count
        if not payload.ephemeral and is_mixed:
            ids = canonical_ids(payload)
            named = self.leave_out_strangers(payload, ids)
        if payload.rivals:
            rivals = [item for items in payload.rivals.values() for item in items]
            payload.octets -= sum(history_octets(item.history) for item in rivals)
            self.causal.release_waiters(self.acceptance.drop_rivals(payload))
        if len(payload.ids) == payload.data_count:
            return True
        # Not always with parity: what is no segment of its sender's may have the bytes of one.
        self.state.outbox.count("parity_recoveries")
        if not ids or self.infer(payload, ids, named):
            return True
        self.state.outbox.count("duplicates")
        self.acceptance.forget(payload)
        for message_id in payload.ids.values():
            # Eviction takes logged ids only.
            self.state.log.log(message_id)
        self.causal.release_waiters(tuple(payload.ids.values()))
        return False

    def leave_out_strangers(
        self, payload: IncomingPayload, ids: Sequence[MessageId]
    ) -> dict[int, tuple[HistoryEntry, ...]]:
        """Let no copy with bytes that are skipped pass for a segment: the id of such a copy is another one.

        Where any segment has the id of its bytes as they are written, its sender writes them so, and all others do.

        Args:
            payload: A whole payload.
            ids: What ``canonical_ids`` gives for it.

        Returns:
            What copies name, by index, where only a copy came: the segment itself named that, or who knows what.
        """
        named: dict[int, tuple[HistoryEntry, ...]] = {}
        held = {
            index: [item for item in payload.candidates(index) if item.message_id == ids[index]]
            for index in payload.ids
        }
        if not any(held.values()):
            return named
        for index, found in held.items():
            if found:
                payload.choose(index, found[0])
            else:
                named[index] = payload.histories[index]
                payload.expel(index)
        payload.gather()
        return named

    def infer(
        self,
        payload: IncomingPayload,
        ids: Sequence[MessageId],
        named: dict[int, tuple[HistoryEntry, ...]],
    ) -> bool:
        """Make the ids of rebuilt data segments known, as if received; say whether the payload is new.

        A segment's bytes are deterministic, so keccak gives the id that the sender gave. Nothing is inferred
        unless every received segment's own id comes out right.

        Args:
            payload: A whole payload.
            ids: What ``canonical_ids`` gives for it.
            named: What rebuilt segments name, where that is known.

        Spec: docs/wire.md, parity and causal order. Deviation: LIP-243 leaves rebuilt segments unacknowledged.
        """
        if not payload.ids or any(
            ids[index] != message_id for index, message_id in payload.ids.items()
        ):
            return True
        rebuilt = [index for index in range(payload.data_count) if index not in payload.ids]
        log = self.state.log
        holders = [log.known[ids[index]] for index in rebuilt if ids[index] in log]
        if any(item.proven for item in holders):
            return False
        for item in holders:
            self.give_way(item)
        base, lamport = next(iter(payload.lamports.items()))
        # What the parity names outlives a restart with the first of them: the parity itself goes now.
        named = {rebuilt[0]: payload.named_by_parity(), **named}
        payload.octets += sum(map(history_octets, named.values()))
        for index in rebuilt:
            rebuilt_message = SdsMessage(
                sender_id=payload.sender_id,
                message_id=ids[index],
                lamport_timestamp=lamport + index - base,
                causal_history=named.get(index, ()),
                content=encode_data_segment(payload, index),
            )
            known = self.acceptance.accept(
                rebuilt_message, index, payload.data_count, None, logged=False
            )
            self.acceptance.join(payload, rebuilt_message, index)
            self.state.debt.add(ids[index], known.payload, payload.data_count)
            self.acceptance.keep(rebuilt_message, payload)
            self.gaps.look_for(rebuilt_message, index)
            self.rebuilt.add(ids[index])
            self.state.outbox.count("segments_rebuilt")
        self.state.sync.owe(self.state.now, self.state.group(self.state.now))
        return True


def canonical_ids(payload: IncomingPayload) -> list[MessageId]:
    """Return the ids that the data segments of a whole payload have as they are written."""
    sender_id, wrap_ns = payload.sender_id, payload.key.wrap_time_ns
    contents = [encode_data_segment(payload, index) for index in range(payload.data_count)]
    return [salted_id(sender_id, wrap_ns, content) for content in contents]


def encode_data_segment(payload: IncomingPayload, index: int) -> bytes:
    """Return the exact bytes that the sender gave a data segment of a set."""
    _, digest, wrap_ns, count, parity_count, length, code, _ = payload.key
    return SegmentMessage(
        entire_message_hash=digest,
        data_segment_index=index,
        data_segment_count=count,
        payload=payload.data[index],
        parity_segment_count=parity_count,
        original_payload_length=length,
        parity_code=code,
        wrap_time_ns=wrap_ns,
    ).encode()
