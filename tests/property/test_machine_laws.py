"""Laws of the machine: whatever happens in whatever order, nothing raises, grows without bound or is kept wrongly.

Two machines with small bounds are fed by whoever may feed one: an application, a node, a store, honest peers, and a
stranger who alters, forges, replays and truncates what he hears.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.effects import Effects, Publish
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter
from reliable_channel.core.requests import RequestState
from reliable_channel.core.sds.bloom import BloomShape
from reliable_channel.core.sds.causal import MET_RING
from reliable_channel.core.sds.log import MAX_FRONTIER
from reliable_channel.core.state import salted_id
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage
from reliable_channel.errors import ChannelFullError, LocalProtocolError, MessageTooLargeError
from reliable_channel.events import (
    ChannelEvent,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageProgressEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
)
from reliable_channel.records import (
    AcknowledgementRecord,
    BodyRecord,
    CompletedRecord,
    DebtRecord,
    EventRecord,
    LedgerRecord,
    LogRecord,
    LostRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    Record,
    RecordKey,
    RequestRecord,
)
from reliable_channel.types import MS, SECOND, MessageId, Nanoseconds, RequestId
from tests.support.core_build import twin_of

START_NS = 1_700_000_000 * SECOND
CHANNEL = "laws"
TOPIC = "/laws/1/room/proto"
STRANGERS = ("s0", "s1", "s2", "s3", "s4")

SDS = SdsConfig(
    acknowledgement_timeout_ms=500,
    max_retransmissions=2,
    sync_interval_ms=3_000,
    repair_t_min_ms=200,
    repair_t_max_ms=1_000,
    dependency_timeout_ms=32_000,
    max_full_messages=6,
    max_full_bytes=4_000,
    max_repair_answers=3,
    dispatch_timeout_ms=5_000,
    bloom_capacity=16,
    max_outgoing_messages=4,
    max_outgoing_bytes=2_000,
    max_in_flight=2,
    max_known_ids=64,
    max_lost_ids=3,
    max_parked_messages=3,
    max_parked_messages_per_sender=2,
    max_parked_bytes=1 << 16,
    max_missing_ids=6,
    max_missing_ids_per_sender=4,
    max_participants=3,
    max_history_entries=70,
    max_finished_requests=3,
)
SEGMENTATION = SegmentationConfig(
    segment_size_bytes=64,
    enable_reed_solomon=True,
    parity_rate=0.5,
    max_incomplete_payloads=3,
    max_incomplete_payloads_per_sender=2,
    max_incomplete_bytes=1 << 16,
    max_incomplete_bytes_per_sender=1 << 16,
    incomplete_timeout_ms=10_000,
    max_completed_payloads=4,
)
RATE_LIMIT = RateLimitConfig(enabled=True, epoch_period_sec=2, messages_per_epoch=10)

PICK = st.integers(0, 1 << 16)
"""Chooses one of what there is."""

FILTER_BYTES = BloomShape(SDS.bloom_capacity, SDS.bloom_error_rate).byte_length
TEXTS = st.sampled_from(["", "x", "x" * 256, "x" * 257, "ä" * 128, "\0", "s0:1"])
HINTS = st.sampled_from([None, b"", b"short", bytes(32), b"\1" * 32])
LAMPORTS = st.sampled_from([None, 0, 1, 1_700_000_000_000, 1 << 62, 1 << 63, (1 << 64) - 1])
MESSAGE_CHANGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "sender_id": st.sampled_from(["", "a", "b", "\n", *STRANGERS]),
        "message_id": TEXTS,
        "channel_id": st.sampled_from([CHANNEL, "", "other"]),
        "lamport_timestamp": LAMPORTS,
        "bloom_filter": st.sampled_from([None, b"", b"\xff" * FILTER_BYTES, bytes(FILTER_BYTES)]),
        "content": st.one_of(st.none(), st.binary(max_size=40)),
    },
)
SEGMENT_CHANGES: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "entire_message_hash": st.sampled_from([b"", bytes(32)]),
        "data_segment_index": st.sampled_from([0, 1, 2, 255, 1 << 31]),
        "data_segment_count": st.sampled_from([0, 1, 2, 3, 256]),
        "payload": st.sampled_from([b"", b"x", bytes(64), bytes(200)]),
        "parity_segment_index": st.sampled_from([0, 1, 255]),
        "parity_segment_count": st.sampled_from([0, 1, 2, 300]),
        "is_parity": st.booleans(),
        "original_payload_length": st.sampled_from([0, 1, 65, 200, (1 << 64) - 1]),
        "parity_code": st.sampled_from([0, 1, 2]),
        "wrap_time_ns": st.sampled_from([0, 1, START_NS]),
    },
)
HISTORIES = st.none() | st.lists(st.tuples(PICK, TEXTS, HINTS), max_size=8)
STEPS_MS = st.sampled_from([0, 1, 20, 260, 510, 1_100, 3_000, 6_000, 31_000, 700_000, -1, -2_000])


@dataclass
class Peer:
    """One machine, its kept rows, and what its node and store owe it."""

    sender_id: str
    sds: SdsConfig
    rate_limit: RateLimitConfig = field(default_factory=RateLimitConfig)
    segmentation: SegmentationConfig = SEGMENTATION
    machine: ChannelMachine = field(init=False)
    rows: dict[type[Record], dict[RecordKey, Record]] = field(default_factory=dict)
    generation: int = 0
    publishes: list[Publish] = field(default_factory=list)
    hashes: list[bytes] = field(default_factory=list)
    events: list[ChannelEvent] = field(default_factory=list)
    received: Counter[MessageId] = field(default_factory=Counter)
    finals: Counter[RequestId] = field(default_factory=Counter)
    ephemeral: set[RequestId] = field(default_factory=set)
    last_sequence: int = 0

    def start(self, now: Nanoseconds) -> Effects:
        """Make a machine of the kept rows and start it."""
        ledgers = self.rows.get(LedgerRecord, {})
        ledger = next(iter(ledgers.values()), None)
        assert ledger is None or isinstance(ledger, LedgerRecord)
        limiter = EpochRateLimiter(self.rate_limit, restored=ledger)
        self.generation += 1
        self.publishes.clear()
        self.hashes.clear()
        self.machine = ChannelMachine(
            channel_id=CHANNEL,
            sender_id=self.sender_id,
            content_topic=TOPIC,
            now=now,
            seed=self.generation,
            sds=self.sds,
            segmentation=self.segmentation,
            budget=ChannelBudget(limiter, None, CHANNEL),
            snapshot=self.snapshot(),
        )
        return self.machine.start(now)

    def snapshot(self) -> dict[type[Record], list[Record]]:
        """Return the kept rows as a store gives them: without events."""
        return {
            kind: list(table.values())
            for kind, table in self.rows.items()
            if table and kind is not EventRecord
        }

    def carry_out(self, effects: Effects) -> list[Publish]:
        """Keep the changes, note the events, and return what is to be published."""
        for (kind, key), record in effects.changes.items():
            if record is None:
                self.rows.setdefault(kind, {}).pop(key, None)
            else:
                self.rows.setdefault(kind, {})[key] = record
        for event in effects.events:
            self.take(event)
        self.publishes.extend(effects.publishes)
        for fetch in effects.fetches:
            assert 0 < len(fetch.hashes) <= 100
            self.hashes.extend(fetch.hashes)
        return effects.publishes

    def take(self, event: ChannelEvent) -> None:
        """Note an event."""
        if isinstance(event, MessageProgressEvent):
            return
        self.last_sequence += 1
        assert event.sequence == self.last_sequence
        match event:
            case MessageReceivedEvent(ephemeral=False):
                self.received[event.message_id] += 1
            case MessageDeliveredEvent() | MessageSendErrorEvent() | MessageDeliveryErrorEvent():
                self.finals[event.request_id] += 1
            case MessageSentEvent() if event.request_id in self.ephemeral:
                self.finals[event.request_id] += 1


class GroupMachine(RuleBasedStateMachine):
    """Any sequence of inputs to two machines."""

    @initialize(
        message_id=st.sampled_from(["salted", "content"]),
        bloom_capacity=st.sampled_from([0, SDS.bloom_capacity]),
        limited=st.booleans(),
    )
    def begin(self, message_id: str, bloom_capacity: int, limited: bool) -> None:
        sds = replace(SDS, message_id=message_id, bloom_capacity=bloom_capacity)  # type: ignore[arg-type]
        self.now = START_NS
        self.wire: list[Publish] = []
        self.reported = self.flood = 0
        self.peers = [
            Peer(sender_id=name, sds=sds, rate_limit=RATE_LIMIT if limited else RateLimitConfig())
            for name in ("a", "b")
        ]
        self.evicted = False
        for peer in self.peers:
            self.publish(peer, peer.start(self.now))

    def publish(self, peer: Peer, effects: Effects) -> None:
        """Carry effects out; what is published lies ready for everybody."""
        self.wire.extend(peer.carry_out(effects))

    # -- an application -----------------------------------------------------------------------

    @rule(
        who=st.integers(0, 1),
        sizes=st.lists(st.sampled_from([1, 30, 64, 65, 150, 300, 900]), min_size=1, max_size=4),
        fill=st.sampled_from(b"01"),
        ephemeral=st.sampled_from([False, False, True]),
    )
    def send(self, who: int, sizes: list[int], fill: int, ephemeral: bool) -> None:
        for size in sizes:
            self.send_one(self.peers[who], size, fill, ephemeral=ephemeral)

    def send_one(self, peer: Peer, size: int, fill: int, *, ephemeral: bool) -> None:
        try:
            request_id, effects = peer.machine.send(
                bytes([fill]) * size, self.now, ephemeral=ephemeral
            )
        except ChannelFullError:
            assert not peer.machine.has_room(size)
            return
        if ephemeral:
            peer.ephemeral.add(request_id)
        self.publish(peer, effects)

    @rule(who=st.integers(0, 1), size=st.sampled_from([1, 65, 300]))
    def send_and_take_back(self, who: int, size: int) -> None:
        """The driver does this when a send could not be made durable: nothing of it was kept."""
        peer = self.peers[who]
        before = peer.machine.status()
        try:
            request_id, effects = peer.machine.send(bytes(size), self.now)
        except ChannelFullError:
            return
        effects.merge(peer.machine.withdraw(request_id, self.now))
        own = [item for item in effects.publishes if item.segment_id.startswith(request_id)]
        effects.publishes[:] = [item for item in effects.publishes if item not in own]
        self.publish(peer, effects)
        assert peer.machine.status().open_requests == before.open_requests
        assert peer.machine.status().open_bytes == before.open_bytes
        assert not peer.finals[request_id]

    @rule(who=st.integers(0, 1), payload=st.sampled_from([b"", "text", None, 7, bytes(100_000)]))
    def send_what_cannot_be_sent(self, who: int, payload: object) -> None:
        machine = self.peers[who].machine
        before, twin = machine.status(), twin_of(machine)
        with pytest.raises((LocalProtocolError, ChannelFullError)):
            machine.send(payload, self.now)
        assert machine.status() == before
        self.assert_same_effects(machine, twin)

    @precondition(lambda self: any(not peer.machine.has_room(900) for peer in self.peers))
    @rule(size=st.sampled_from([900, 1_900]))
    def send_to_a_full_channel(self, size: int) -> None:
        for peer in self.peers:
            if peer.machine.has_room(size):
                continue
            before, twin = peer.machine.status(), twin_of(peer.machine)
            with pytest.raises((ChannelFullError, MessageTooLargeError)):
                peer.machine.send(bytes(size), self.now)
            assert peer.machine.status() == before
            self.assert_same_effects(peer.machine, twin)

    def assert_same_effects(self, machine: ChannelMachine, twin: ChannelMachine | None) -> None:
        """Two machines do the same next, and have the same random numbers ahead."""
        later = self.now + SECOND
        # The machine itself goes on from here untouched.
        itself = twin_of(machine)
        if itself is not None and twin is not None:
            assert itself.tick(later) == twin.tick(later)
        assert machine.next_deadline() is None or machine.random.getstate()

    # -- a node -------------------------------------------------------------------------------

    @rule(who=st.integers(0, 1), pick=PICK, again=st.booleans())
    def node_published(self, who: int, pick: int, again: bool) -> None:
        peer = self.peers[who]
        if not peer.publishes:
            return
        place = pick % len(peer.publishes)
        publish = peer.publishes[place] if again else peer.publishes.pop(place)
        transport_hash = pick.to_bytes(32, "big")
        self.publish(peer, peer.machine.published(publish.segment_id, transport_hash, self.now))

    @rule(who=st.integers(0, 1), pick=PICK, retryable=st.booleans())
    def node_failed(self, who: int, pick: int, retryable: bool) -> None:
        peer = self.peers[who]
        if not peer.publishes:
            return
        publish = peer.publishes.pop(pick % len(peer.publishes))
        self.publish(
            peer,
            peer.machine.publish_failed(publish.segment_id, "no", self.now, retryable=retryable),
        )

    @rule(who=st.integers(0, 1))
    def node_takes_everything(self, who: int) -> None:
        peer = self.peers[who]
        while peer.publishes:
            publish = peer.publishes.pop(0)
            self.reported += 1
            transport_hash = self.reported.to_bytes(32, "big")
            self.publish(peer, peer.machine.published(publish.segment_id, transport_hash, self.now))

    @rule(who=st.integers(0, 1), segment_id=st.sampled_from(["", "sync:1", "nothing:1"]))
    def reports_come_for_nothing(self, who: int, segment_id: str) -> None:
        """A node reports what it was not given, a store fails that was not asked, something does not decrypt."""
        peer = self.peers[who]
        machine = peer.machine
        if all(item.segment_id != segment_id for item in peer.publishes):
            self.publish(peer, machine.published(segment_id, bytes(32), self.now))
            for retryable in (True, False):
                effects = machine.publish_failed(segment_id, "no", self.now, retryable=retryable)
                self.publish(peer, effects)
        self.publish(peer, machine.fetch_failed(self.now))
        self.publish(peer, machine.refuse("decrypt_failed", self.now))

    # -- a network ----------------------------------------------------------------------------

    @rule(
        who=st.integers(0, 1),
        picks=st.lists(PICK, min_size=1, max_size=8),
        has_hash=st.booleans(),
        stripped=st.sampled_from([False, False, True]),
    )
    def hear(self, who: int, picks: list[int], has_hash: bool, stripped: bool) -> None:
        """Hear any messages, of anybody, also again, also one's own, also as if they were ephemeral."""
        for pick in picks:
            if self.wire:
                data = self.wire[pick % len(self.wire)].data
                if stripped:
                    data = replace(SdsMessage.decode(data), lamport_timestamp=None).encode()
                self.receive(who, data, pick.to_bytes(32, "big") if has_hash else None)

    @rule(who=st.integers(0, 1), count=st.integers(1, 12))
    def hear_the_latest(self, who: int, count: int) -> None:
        for publish in self.wire[-count:]:
            self.receive(who, publish.data, bytes(32))

    @rule(
        who=st.integers(0, 1),
        pick=PICK,
        garbage=st.binary(max_size=20),
        cut=st.integers(0, 400),
        bit=st.none() | PICK,
    )
    def hear_damaged_bytes(
        self, who: int, pick: int, garbage: bytes, cut: int, bit: int | None
    ) -> None:
        """Hear a message that was cut off, had something appended, or has a wrong bit."""
        data = bytearray(self.wire[pick % len(self.wire)].data[:cut] if self.wire else b"")
        if bit is not None and data:
            data[bit // 8 % len(data)] ^= 1 << bit % 8
        self.receive(who, bytes(data) + garbage, None)

    @rule(
        who=st.integers(0, 1),
        pick=PICK,
        changes=MESSAGE_CHANGES,
        segment_changes=SEGMENT_CHANGES,
        history=HISTORIES,
        signed=st.booleans(),
    )
    def hear_an_altered_message(
        self,
        who: int,
        pick: int,
        changes: dict[str, Any],
        segment_changes: dict[str, Any],
        history: list[tuple[int, str, bytes | None]] | None,
        signed: bool,
    ) -> None:
        """Hear a message that a stranger changed; ``signed``: with the id that its content should have."""
        if not self.wire:
            return
        message = SdsMessage.decode(self.wire[pick % len(self.wire)].data)
        if segment_changes and message.content:
            try:
                segment = SegmentMessage.decode(message.content)
            except ValueError:  # already altered, or a whole message
                segment = SegmentMessage()
            segment = replace(segment, **segment_changes)
            message = replace(message, content=segment.encode())
        message = replace(message, **changes)
        if history is not None:
            message = replace(message, causal_history=self.made_up(history))
        if signed and message.content:
            try:
                wrap_ns = SegmentMessage.decode(message.content).wrap_time_ns
            except ValueError:
                wrap_ns = 0
            message_id = salted_id(message.sender_id, wrap_ns, message.content)
            message = replace(message, message_id=message_id)
        self.receive(who, message.encode(), None)

    def made_up(self, entries: list[tuple[int, str, bytes | None]]) -> tuple[HistoryEntry, ...]:
        """Return a history of ids that exist and ids that do not."""
        result = []
        for pick, text, hint in entries:
            known = SdsMessage.decode(self.wire[pick % len(self.wire)].data).message_id
            result.append(HistoryEntry(text or known, hint, f"s{pick % 9}"))
        return tuple(result)

    @rule(
        who=st.integers(0, 1),
        sender=st.sampled_from(["a", "b", *STRANGERS]),
        number=st.integers(0, 9),
        causes=st.lists(st.integers(0, 9), max_size=4),
        kind=st.sampled_from(["content", "sync", "ephemeral"]),
        lead_ms=st.sampled_from([-400_000, -1, 0, 1, 400_000]),
    )
    def hear_a_foreign_message(
        self, who: int, sender: str, number: int, causes: list[int], kind: str, lead_ms: int
    ) -> None:
        """Hear an implementation that does not segment; cycles and contradictions included."""
        lamport = None if kind == "ephemeral" else max(0, self.now // MS + lead_ms)
        message = SdsMessage(
            sender_id=sender,
            message_id=f"foreign {number}",
            channel_id=CHANNEL,
            lamport_timestamp=lamport,
            causal_history=tuple(HistoryEntry(f"foreign {cause}") for cause in causes),
            content=None if kind == "sync" else b"foreign",
        )
        self.receive(who, message.encode(), None)

    @rule(who=st.integers(0, 1), count=st.sampled_from([5, 40, 80]), chained=st.booleans())
    def hear_a_flood(self, who: int, count: int, chained: bool) -> None:
        """Hear more messages than anything here is made for."""
        for _ in range(count):
            self.flood += 1
            cause = HistoryEntry(f"flood {self.flood - (1 if chained else 10_000)}")
            message = SdsMessage(
                sender_id=f"s{self.flood % 5}",
                message_id=f"flood {self.flood}",
                channel_id=CHANNEL,
                lamport_timestamp=self.now // MS + self.flood,
                causal_history=(cause,),
                content=b"flood",
            )
            self.receive(who, message.encode(), None)

    def receive(self, who: int, data: bytes, message_hash: bytes | None) -> None:
        peer = self.peers[who]
        self.publish(peer, peer.machine.receive(data, message_hash, self.now))

    # -- a store ------------------------------------------------------------------------------

    @rule(who=st.integers(0, 1), picks=st.lists(PICK, max_size=3), asked=st.booleans())
    def store_answers(self, who: int, picks: list[int], asked: bool) -> None:
        """Give any messages under hashes that were asked for, or not."""
        peer = self.peers[who]
        found = []
        for pick in picks:
            known = peer.hashes if asked and peer.hashes else [bytes(32)]
            data = self.wire[pick % len(self.wire)].data if self.wire else b""
            found.append((known[pick % len(known)], data))
        peer.hashes.clear()
        self.publish(peer, peer.machine.fetched(found, self.now))

    # -- time ---------------------------------------------------------------------------------

    @rule(step_ms=STEPS_MS)
    def time_passes(self, step_ms: int) -> None:
        self.now += step_ms * MS
        for peer in self.peers:
            self.publish(peer, peer.machine.tick(self.now))

    @rule(who=st.integers(0, 1))
    def deadline_comes(self, who: int) -> None:
        peer = self.peers[who]
        deadline = peer.machine.next_deadline()
        if deadline is not None:
            self.now = max(self.now, deadline)
            self.publish(peer, peer.machine.tick(self.now))

    @rule(lost=st.lists(st.booleans(), max_size=20), turns=st.integers(1, 12))
    def talk(self, lost: list[bool], turns: int) -> None:
        """Let both go on for a while: nodes take everything, some copies get lost, deadlines come."""
        loss = iter(lost)
        for _ in range(turns):
            for who, peer in enumerate(self.peers):
                begin = len(self.wire)
                self.deadline_comes(who)
                self.node_takes_everything(who)
                for publish in self.wire[begin:]:
                    if not next(loss, False):
                        self.receive(1 - who, publish.data, bytes(32))
                assert not peer.publishes

    @rule(who=st.integers(0, 1))
    def restart(self, who: int) -> None:
        peer = self.peers[who]
        old = peer.machine
        self.publish(peer, peer.start(self.now))
        assert set(peer.machine.state.log.known) == set(old.state.log.known)
        requests = peer.machine.outgoing.book.requests
        for request_id, before in old.outgoing.book.requests.items():
            if not before.is_final and requests[request_id].is_final:
                # It went unconfirmed so often that it counts as made, and nobody acknowledges it.
                assert before.ephemeral
                assert requests[request_id].state is RequestState.SENT

    # -- laws ---------------------------------------------------------------------------------

    @invariant()
    def everything_is_bounded(self) -> None:
        for peer in self.peers:
            machine, sds = peer.machine, peer.sds
            causal, missing, reassembler = machine.causal, machine.gaps.missing, machine.reassembler
            outgoing, log = machine.outgoing, machine.state.log
            assert len(causal.parked) <= sds.max_parked_messages
            assert causal.parked_octets <= sds.max_parked_bytes
            for parking in causal.parked_of.values():
                assert 0 < len(parking.payloads) <= sds.max_parked_messages_per_sender
                assert parking.octets <= sds.max_parked_bytes_per_sender
            assert len(machine.state.archive) <= sds.max_full_messages
            assert machine.state.archive.octets <= sds.max_full_bytes
            assert set(machine.state.archive.messages) <= set(log.known)
            assert set(machine.state.repairs.requests) <= set(missing.messages)
            answers = outgoing.responder.answers
            assert len(answers.pending) + len(answers.answered) <= sds.max_repair_answers
            assert len(causal.lost.ids) <= sds.max_lost_ids
            assert len(causal.passing.ids) <= MET_RING
            assert len(missing) <= sds.max_missing_ids
            assert all(
                0 < count <= sds.max_missing_ids_per_sender for count in missing.named_by.values()
            )
            assert len(reassembler.sets) <= SEGMENTATION.max_incomplete_payloads
            assert all(
                0 < used.sets <= SEGMENTATION.max_incomplete_payloads_per_sender
                for used in reassembler.senders.values()
            )
            assert len(reassembler.completed) <= SEGMENTATION.max_completed_payloads
            assert len(machine.state.participants.heard) <= sds.max_participants
            assert outgoing.book.open_count <= sds.max_outgoing_messages
            assert outgoing.book.open_octets <= sds.max_outgoing_bytes
            assert len(outgoing.book.finished) <= sds.max_finished_requests
            assert len(machine.queue.in_flight) <= sds.max_in_flight
            held = sum(not item.logged for item in log.known.values())
            outstanding = len(outgoing.book.outstanding)
            # Those of open requests stay, and are not gone through for every message.
            own = outstanding + sds.max_known_ids // 16 if outstanding else 0
            assert (
                len(log.known) <= sds.max_known_ids + held + own + 30
            )  # the segments of one payload
            assert len(log.frontier) <= MAX_FRONTIER
            assert len(machine.state.debt) <= len(log.known)

    @invariant()
    def sizes_agree_with_what_they_count(self) -> None:
        for peer in self.peers:
            causal, reassembler = peer.machine.causal, peer.machine.reassembler
            assert causal.parked_octets == sum(item.octets for item in causal.parked.values())
            assert reassembler.octets == sum(item.octets for item in reassembler.sets.values())
            waiting = {
                message_id for payload in causal.parked.values() for message_id in payload.unmet
            }
            assert set(causal.waiting) == waiting
            assert all(payload.unmet for payload in causal.parked.values())
            book = peer.machine.outgoing.book
            opened = [item for item in book.requests.values() if not item.is_final]
            assert book.open_count == len(opened)
            assert book.open_octets == sum(item.payload_bytes for item in opened)

    @invariant()
    def kept_rows_are_what_the_machine_knows(self) -> None:
        for peer in self.peers:
            machine, rows = peer.machine, peer.rows

            def keys(kind: type[Record], rows: Any = rows) -> set[Any]:
                return {key[0] if len(key) == 1 else key for key in rows.get(kind, {})}

            book = machine.outgoing.book
            segments = [
                item
                for request in book.requests.values()
                if not request.is_final
                for item in request.segments
            ]
            assert keys(LogRecord) == set(machine.state.log.known)
            assert keys(DebtRecord) == set(machine.state.debt)
            assert keys(LostRecord) == set(machine.causal.lost.ids)
            assert keys(CompletedRecord) == set(machine.reassembler.completed)
            assert keys(PendingRecord) == set(machine.causal.holder)
            assert keys(ParityRecord) == {
                arrival
                for payload in machine.acceptance.payloads.values()
                for arrival in payload.parity_rows
            }
            assert keys(RequestRecord) == set(book.requests)
            assert keys(OutgoingRecord) == {
                (item.request.request_id, item.index) for item in segments
            }
            assert keys(BodyRecord) == {
                (item.message_id, part)
                for item in segments
                for part in (("content",) if item.header is None else ("content", "header"))
            } | {
                (message_id, part)
                for message_id, message in machine.state.archive.messages.items()
                for part in message.parts
            }
            assert keys(AcknowledgementRecord) == {
                (request.request_id, participant)
                for request in book.requests.values()
                for participant in request.acknowledged
            }

    @invariant()
    def every_request_ends_at_most_once(self) -> None:
        for peer in self.peers:
            assert all(count == 1 for count in peer.finals.values())

    @invariant()
    def nothing_is_delivered_twice(self) -> None:
        for peer in self.peers:
            self.evicted |= peer.machine.causal.floor > START_NS // MS
            if not self.evicted:
                assert all(count == 1 for count in peer.received.values())

    @invariant()
    def what_waits_has_a_deadline(self) -> None:
        for peer in self.peers:
            machine = peer.machine
            book = machine.outgoing.book
            idle = not machine.queue.in_flight
            if idle and (book.open_count or machine.causal.parked or machine.state.debt):
                assert machine.next_deadline() is not None

    def teardown(self) -> None:
        """In the end, when the node takes everything and nobody answers, every request ends."""
        if not hasattr(self, "peers"):
            return
        for peer in self.peers:
            for _ in range(2_000):
                if not peer.machine.outgoing.book.open_count:
                    break
                while peer.publishes:
                    publish = peer.publishes.pop(0)
                    effects = peer.machine.published(publish.segment_id, bytes(32), self.now)
                    peer.carry_out(effects)
                deadline = peer.machine.next_deadline()
                assert deadline is not None
                self.now = max(self.now, deadline)
                peer.carry_out(peer.machine.tick(self.now))
            assert not peer.machine.outgoing.book.open_count


GroupMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.timeout(120)
class TestGroup(GroupMachine.TestCase):  # type: ignore[misc]
    """Runs ``GroupMachine``."""


# --- Snapshot and restore ------------------------------------------------------------------------

SENDERS = ("x", "y")
ROOMY = SegmentationConfig(segment_size_bytes=64)


def conversation(turns: list[tuple[int, int]]) -> list[bytes]:
    """Let two senders send payloads of these sizes in turn, each hearing the other, and return the bytes.

    Args:
        turns: Who sends, and how many bytes.
    """
    now, wire = START_NS, []
    peers = [Peer(sender_id=name, sds=SdsConfig(), segmentation=ROOMY) for name in SENDERS]
    for peer in peers:
        peer.start(now)
    for number, (who, size) in enumerate(turns):
        now += MS
        payload = (b"%d:" % number).ljust(size, b".")
        _, effects = peers[who].machine.send(payload, now)
        queue = list(effects.publishes)
        while queue:
            publish = queue.pop(0)
            wire.append(publish.data)
            peers[1 - who].machine.receive(publish.data, bytes(32), now)
            queue += peers[who].machine.published(publish.segment_id, bytes(32), now).publishes
    return wire


def listener() -> Peer:
    """Return a third participant that has heard nothing yet."""
    sds = replace(SDS, max_parked_messages=1_000, max_missing_ids=1_000, max_known_ids=10_000)
    sds = replace(sds, max_missing_ids_per_sender=1_000)
    peer = Peer(sender_id="z", sds=sds, segmentation=ROOMY)
    peer.carry_out(peer.start(START_NS - SECOND))
    return peer


def knowledge(peer: Peer) -> dict[str, object]:
    """Return what can be observed about what a participant knows."""
    machine = peer.machine
    status = machine.status()
    return {
        "known": set(machine.state.log.known),
        "named next": machine.state.log.next_history(),
        "lamport": status.lamport_timestamp,
        "owed": set(machine.state.debt),
        "parked": status.parked_messages,
        "incomplete": status.incomplete_payloads,
        "lost": set(machine.causal.lost.ids),
        "open": status.open_requests,
        "filter": machine.state.log.bloom_bytes() if status.known_messages < 8 else None,
        "conflict": machine.state.conflict_seen,
        "requests": {
            request_id: machine.request_status(request_id).acknowledged
            for request_id in machine.outgoing.book.requests
        },
    }


TURNS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([8, 64, 100, 300])), max_size=8)


@settings(max_examples=60)
@given(turns=TURNS, order=st.integers(0, 1 << 32), cut=PICK, own=st.integers(0, 2))
def test_restored_machine_knows_and_delivers_the_same(
    turns: list[tuple[int, int]], order: int, cut: int, own: int
) -> None:
    """Whatever arrives in whatever order, a restart in between changes nothing that anybody sees."""
    inputs = conversation(turns)
    random = Random(order)
    inputs += random.choices(inputs, k=len(inputs) // 4) if inputs else []
    random.shuffle(inputs)
    steady, restarted = listener(), listener()
    place = cut % (len(inputs) + 1)
    delivered: list[list[bytes]] = [[], []]
    for number in range(len(inputs) + 1):
        if number == place:
            for peer in (steady, restarted):
                for index in range(own):
                    _, effects = peer.machine.send(b"own %d" % index, START_NS)
                    peer.carry_out(effects)
            before = knowledge(restarted)
            restarted.carry_out(restarted.start(START_NS))
            assert knowledge(restarted) == before
        if number == len(inputs):
            break
        for peer, messages in zip((steady, restarted), delivered, strict=True):
            effects = peer.machine.receive(inputs[number], None, START_NS + number)
            messages += [
                event.message for event in effects.events if isinstance(event, MessageReceivedEvent)
            ]
            peer.carry_out(effects)
    assert delivered[0] == delivered[1]
    assert len(delivered[0]) == len(turns)
    first, second = knowledge(steady), knowledge(restarted)
    for name in ("known", "parked", "incomplete", "lost"):
        assert first[name] == second[name]


def test_an_ephemeral_message_that_nobody_confirms_ends_after_some_restarts() -> None:
    group: Any = GroupMachine()
    group.begin(message_id="salted", bloom_capacity=0, limited=False)
    group.send(ephemeral=True, fill=48, sizes=[1], who=0)
    states = []
    for _ in range(8):
        group.restart(who=0)
        (request,) = group.peers[0].machine.outgoing.book.requests.values()
        states.append(request.state)
    assert states == [RequestState.OPEN] * 6 + [RequestState.SENT] * 2
