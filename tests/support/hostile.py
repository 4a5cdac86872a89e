"""What a hostile party sends, and what must hold of a machine that hears it: shared by property and fuzz tests.

``sizes`` is the one place that looks inside a machine; ``problems`` judges what it finds against the settings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.assembly import MAX_TRIED
from reliable_channel.core.effects import Effects
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.reassembly import Reassembler
from reliable_channel.core.requests import RequestBook
from reliable_channel.core.sds.archive import MessageArchive
from reliable_channel.core.sds.causal import MET_RING, CausalOrder
from reliable_channel.core.sds.log import MAX_FRONTIER, MessageLog
from reliable_channel.core.sds.missing import MissingMessages
from reliable_channel.core.sds.repair import RepairAnswers, RepairRequests
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage
from reliable_channel.errors import DecodeError
from reliable_channel.events import MessageReceivedEvent
from tests.support.builders import salted
from tests.support.core_build import attributes

Part = TypeVar("Part")

MOST_MACHINES: Final = 16

PARTS: Final[dict[int, tuple[ChannelMachine, list[object]]]] = {}
"""The newest machines by their identity, and the parts of each, found once."""

SEGMENTS: Final = 12
"""Most segments of one payload under these settings."""

SEGMENTATION: Final = SegmentationConfig(
    segment_size_bytes=64,
    enable_reed_solomon=True,
    parity_rate=0.5,
    max_total_segments=SEGMENTS,
    max_incomplete_payloads=4,
    max_incomplete_payloads_per_sender=2,
    max_incomplete_bytes=1 << 16,
    max_incomplete_bytes_per_sender=1 << 16,
    incomplete_timeout_ms=10_000,
    max_completed_payloads=4,
)


SDS: Final = SdsConfig(
    acknowledgement_timeout_ms=500,
    max_retransmissions=3,
    sync_interval_ms=3_000,
    dependency_timeout_ms=40_000,
    repair_t_min_ms=200,
    repair_t_max_ms=1_000,
    dispatch_timeout_ms=5_000,
    bloom_capacity=16,
    max_outgoing_messages=8,
    max_outgoing_bytes=4_000,
    max_in_flight=4,
    max_known_ids=64,
    max_lost_ids=5,
    max_parked_messages=4,
    max_parked_bytes=1 << 16,
    max_parked_messages_per_sender=3,
    max_missing_ids=8,
    max_missing_ids_per_sender=5,
    max_participants=4,
    max_history_entries=80,
    max_finished_requests=4,
    max_full_messages=4,
    max_full_bytes=2_000,
    max_repair_answers=3,
)

MAX_EVENTS: Final = 2 * SEGMENTS * (SDS.max_parked_messages + 1) + SDS.max_missing_ids
"""Events of one input: all that is parked, and an id lost for everything that it or the channel misses."""

MAX_CHANGES: Final = 400
"""Rows of one input: what is delivered, lost and evicted with it."""

REASON: Final = re.compile("[a-z_:-]{1,40}")
"""What a counter may be called: no digit, no blank, nothing that anybody sent."""

MAX_REASONS: Final = 60
"""More names than the code has."""


@dataclass(frozen=True)
class Size:
    """How large something is, and how large it may be."""

    value: int
    limit: int


def parts(machine: ChannelMachine, kind: type[Part]) -> list[Part]:
    """Return the parts of a class that a machine is made of, wherever they hang."""
    if id(machine) not in PARTS:
        if len(PARTS) >= MOST_MACHINES:
            PARTS.clear()
        PARTS[id(machine)] = machine, all_parts(machine)
    return [item for item in PARTS[id(machine)][1] if isinstance(item, kind)]


def all_parts(machine: ChannelMachine) -> list[object]:
    """Return the objects of the core that hang below a machine; they stay the same while it lives."""
    found: dict[int, object] = {}
    stack: list[object] = list(attributes(machine).values())
    while stack:
        item = stack.pop()
        if id(item) not in found and type(item).__module__.startswith("reliable_channel.core"):
            found[id(item)] = item
            stack.extend(attributes(item).values())
    return list(found.values())


def sizes(machine: ChannelMachine) -> dict[str, Size]:
    """Return everything that a stranger can make larger, with its bound: the only place that looks inside."""
    sds, segmentation = machine.state.sds, machine.state.segmentation
    (causal,) = parts(machine, CausalOrder)
    (reassembler,) = parts(machine, Reassembler)
    (missing,) = parts(machine, MissingMessages)
    (log,) = parts(machine, MessageLog)
    (book,) = parts(machine, RequestBook)
    timers = machine.state.timers
    status = machine.status()
    held = [*reassembler.sets.values(), *causal.parked.values()]
    held_ids = {message_id for payload in held for message_id in payload.ids.values()}
    held_ids |= {
        item.message_id for payload in held for items in payload.rivals.values() for item in items
    }
    unlogged = [item for item in log.known.values() if not item.logged]
    # Those of open requests stay, and are not gone through for every message when they are all that there is.
    open_ids = len(book.outstanding) and len(book.outstanding) + sds.max_known_ids // 16
    by_sender = Counter(key[0] for key in reassembler.sets)
    named_by = Counter(item.named_by for item in missing.messages.values())
    running = (
        len(held) + 2 * SEGMENTS * len(book.requests) + len(missing) + sds.max_repair_answers + 16
    )
    found = {
        "incomplete": (len(reassembler.sets), segmentation.max_incomplete_payloads),
        "incomplete of one": (
            max(by_sender.values(), default=0),
            segmentation.max_incomplete_payloads_per_sender,
        ),
        "incomplete bytes": (octets(reassembler.sets.values()), segmentation.max_incomplete_bytes),
        "incomplete segments": (reassembler.segments, reassembler.max_segments),
        "incomplete segments of one": (
            max((used.segments for used in reassembler.senders.values()), default=0),
            reassembler.max_segments_per_sender,
        ),
        "incomplete bytes counted": (reassembler.octets, segmentation.max_incomplete_bytes),
        "segments that are not counted": (
            abs(reassembler.segments - sum(map(held_segments, reassembler.sets.values()))),
            0,
        ),
        "patterns remembered": (
            max((len(item.tried) for item in reassembler.sets.values()), default=0),
            MAX_TRIED,
        ),
        "completed": (len(reassembler.completed), segmentation.max_completed_payloads),
        "reassembly of senders": (len(reassembler.senders), len(reassembler.sets)),
        "parked": (len(causal.parked), sds.max_parked_messages),
        "parked of one": (
            max(Counter(item.sender_id for item in causal.parked.values()).values(), default=0),
            sds.max_parked_messages_per_sender,
        ),
        "parked bytes": (octets(causal.parked.values()), sds.max_parked_bytes),
        "waiting": (len(causal.waiting), sum(len(item.unmet) for item in held)),
        "held ids": (len(causal.holder), len(held_ids)),
        "known ids that nobody holds": (
            sum(item.message_id not in held_ids for item in unlogged),
            0,
        ),
        "known": (len(log.known), sds.max_known_ids + len(held_ids) + open_ids),
        "ordered": (len(log.order), len(log.known)),
        "frontier": (len(log.frontier), MAX_FRONTIER),
        "late hints": (len(log.late_hints), MAX_FRONTIER),
        "withdrawn": (len(log.withdrawn), MAX_FRONTIER),
        "lost": (len(causal.lost.ids), sds.max_lost_ids),
        "passing": (len(causal.passing.ids), MET_RING),
        "claimed": (len(causal.claimed.ids), MET_RING),
        "missing": (len(missing), sds.max_missing_ids),
        "missing of one": (max(named_by.values(), default=0), sds.max_missing_ids_per_sender),
        "missing bytes": (
            sum(
                len(item.message_id) + len(item.sender_id or "") + 32 * len(item.hints)
                for item in missing.messages.values()
            ),
            700 * sds.max_missing_ids,
        ),
        "acknowledging": (
            max((len(item.acknowledged) for item in book.requests.values()), default=0),
            sds.max_participants,
        ),
        "possibly acknowledging": (
            max((len(item.possible) for item in book.outstanding.values()), default=0),
            sds.max_participants,
        ),
        "asking": (len(missing.asking), 100),
        "participants": (status.participants, sds.max_participants),
        "debt": (status.owed_acknowledgements, len(log.known)),
        "finished": (len(book.finished), sds.max_finished_requests),
        "open": (status.open_requests, sds.max_outgoing_messages),
        "open bytes": (status.open_bytes, sds.max_outgoing_bytes),
        "in flight": (status.in_flight, sds.max_in_flight),
        "timers": (len(timers), running),
        "timer heap": (len(timers.heap), 2 * running + 64),
        "counters": (len(status.counters) + len(status.dropped), MAX_REASONS),
    }
    for archive in parts(machine, MessageArchive):
        found["full messages"] = (len(archive.messages), sds.max_full_messages)
        found["full bytes"] = (archive.octets, sds.max_full_bytes)
    for answers in parts(machine, RepairAnswers):
        planned = len(answers.pending) + len(answers.answered)
        found["repair answers"] = (planned, sds.max_repair_answers)
    for requests in parts(machine, RepairRequests):
        found["repair requests"] = (len(requests), len(missing))
    return {name: Size(*pair) for name, pair in found.items()}


def held_segments(payload: IncomingPayload) -> int:
    """Return how many segments an incomplete payload holds."""
    rivals = sum(map(len, payload.rivals.values()))
    parity_rivals = sum(map(len, payload.parity_rivals.values()))
    return len(payload.data) + len(payload.parity) + rivals + parity_rivals


def octets(payloads: Iterable[Any]) -> int:
    """Return the bytes that payloads on their way in really hold: content, and texts and hints of entries."""
    return sum(
        len(payload.message)
        + sum(map(len, payload.data.values()))
        + sum(map(len, payload.parity.values()))
        + sum(len(item.chunk) for items in payload.rivals.values() for item in items)
        + sum(len(chunk) for chunks in payload.parity_rivals.values() for chunk in chunks)
        + sum(
            len(entry.message_id) + len(entry.sender_id or "") + len(entry.retrieval_hint or b"")
            for entry in payload.dependencies.values()
        )
        for payload in payloads
    )


def problems(machine: ChannelMachine) -> list[str]:
    """Say which bounds are passed, and which counters have a name that a stranger may have chosen."""
    found = [
        f"{name}: {size.value} above {size.limit}"
        for name, size in sizes(machine).items()
        if size.value > size.limit
    ]
    status = machine.status()
    names = (*status.counters, *status.dropped)
    return found + [f"counter {name!r}" for name in names if not REASON.fullmatch(name)]


def excess(effects: Effects) -> list[str]:
    """Say what one hostile input made too much of."""
    found = []
    changes = sum(record is None or bool(record) for record in effects.changes.values())
    if changes > MAX_CHANGES:
        found.append(f"{changes} changes")
    if len(effects.events) > MAX_EVENTS:
        found.append(f"{len(effects.events)} events")
    if len(effects.publishes) > SDS.max_in_flight + 1:
        found.append(f"{len(effects.publishes)} publishes")
    if len(effects.fetches) > 1 or any(len(item.hashes) > 100 for item in effects.fetches):
        found.append(f"{len(effects.fetches)} fetches")
    received = sum(isinstance(event, MessageReceivedEvent) for event in effects.events)
    if received > SDS.max_parked_messages + 2:
        found.append(f"{received} messages from one")
    return found


# --- What a hostile party makes ------------------------------------------------------------------


def flip(data: bytes, bits: Iterable[int]) -> bytes:
    """Return the bytes with some bits turned over, counted around the end."""
    result = bytearray(data)
    for bit in bits:
        if result:
            result[bit // 8 % len(result)] ^= 1 << bit % 8
    return bytes(result)


def signed(message: SdsMessage) -> SdsMessage:
    """Return the message under the id that its sender, wrap time and content ask for: anybody can compute it."""
    segment = segment_in(message)
    if segment is None or not segment.wrap_time_ns:
        return replace(message, message_id=keccak256(message.content or b"").hex())
    message_id = salted(message.sender_id, segment.wrap_time_ns, message.content or b"")
    return replace(message, message_id=message_id)


def segment_in(message: SdsMessage) -> SegmentMessage | None:
    """Return the segment in a message, or None."""
    try:
        segment = SegmentMessage.decode(message.content or b"")
    except DecodeError:
        return None
    known = len(segment.entire_message_hash) == 32 and segment.data_segment_count > 0
    return segment if known else None


def history(ids: Iterable[str], hint: bytes | None = None) -> tuple[HistoryEntry, ...]:
    """Return entries for ids, each with the hint and a sender."""
    return tuple(HistoryEntry(message_id, hint, "mallory") for message_id in ids)
