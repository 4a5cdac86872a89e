"""Messages, segments and driven machines for tests, with short settings; nothing here judges.

What peers send is built from the wire formats alone, so that a mistake of the core cannot hide in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypedDict, TypeVar, Unpack

from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.effects import Effects, Fetch, Publish
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.machine import ChannelMachine, ChannelStatus, RequestStatus
from reliable_channel.core.payload import IncomingPayload
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter
from reliable_channel.core.reassembly import Reassembler
from reliable_channel.core.reed_solomon import encode_parity
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage
from reliable_channel.events import ChannelEvent, MessageLostEvent, MessageReceivedEvent
from reliable_channel.records import (
    EventRecord,
    LedgerRecord,
    Record,
    RecordKey,
    Snapshot,
)
from reliable_channel.types import (
    MS,
    SECOND,
    ChannelId,
    MessageId,
    Nanoseconds,
    ParticipantId,
    RequestId,
)

NOW: Final = 1_700_000_000 * SECOND
"""Unix time at which tests begin; 200 s of an epoch of 600 s are over."""

NOW_MS: Final = NOW // MS

EPOCH: Final = 600 * SECOND

NEXT_EPOCH: Final = NOW - NOW % EPOCH + EPOCH

CHANNEL: Final = "room"
TOPIC: Final = "/app/1/room/proto"
ALICE: Final = "alice"
BOB: Final = "bob"
CAROL: Final = "carol"

CHUNK: Final = 64
"""The smallest chunk."""

TIMEOUT: Final = 300 * SECOND
"""How long a payload waits for what it names, with the default settings."""

GRACE: Final = 10 * SECOND
"""How long a new channel waits for what may be from before its time."""

DAY: Final = 86_400 * SECOND

PAYLOAD: Final = bytes(range(150))
"""Three segments of the smallest chunk."""

SMALL: Final = SegmentationConfig(segment_size_bytes=CHUNK)
"""Cuts payloads into segments of 64 bytes."""

PARITY: Final = SegmentationConfig(
    segment_size_bytes=CHUNK, enable_reed_solomon=True, parity_rate=0.5
)
"""Cuts payloads into segments of 64 bytes and adds a parity segment for every two."""

NO_FILTER: Final = SdsConfig(bloom_capacity=0)
"""Default settings, no bloom filter: histories alone are evidence."""

Event = TypeVar("Event", bound=ChannelEvent)


# --- What others send ----------------------------------------------------------------------------


def hash_of(data: bytes) -> bytes:
    """Return 32 bytes that stand for a transport hash."""
    return hashlib.sha256(data).digest()


def salted(sender_id: ParticipantId, wrap_time_ns: Nanoseconds, content: bytes) -> MessageId:
    """Return the id of a segment as LIP-173 defines it."""
    return keccak256(sender_id.encode() + str(wrap_time_ns).encode() + content).hex()


def entry(
    message_id: MessageId, *, hint: bytes | None = None, sender_id: ParticipantId | None = None
) -> HistoryEntry:
    """Return a history entry."""
    return HistoryEntry(message_id, hint, sender_id)


def entries(*message_ids: MessageId) -> tuple[HistoryEntry, ...]:
    """Return history entries without hints."""
    return tuple(map(HistoryEntry, message_ids))


def cut(
    payload: bytes,
    *,
    chunk: int = CHUNK,
    parity_count: int = 0,
    code: str = "reedsolo",
    wrap_time_ns: Nanoseconds = NOW,
    with_length: bool = True,
) -> list[SegmentMessage]:
    """Return the data and parity segments of a payload as a peer would make them.

    Args:
        payload: Not empty.
        chunk: Bytes in each data segment but the last.
        parity_count: Parity segments behind the data segments.
        code: Which code makes them.
        wrap_time_ns: 0: the peer writes none.
        with_length: The peer writes the payload's length.
    """
    pieces = [payload[start : start + chunk] for start in range(0, len(payload), chunk)]
    common = SegmentMessage(
        entire_message_hash=keccak256(payload),
        data_segment_count=len(pieces),
        parity_segment_count=parity_count,
        original_payload_length=len(payload) if with_length else 0,
        parity_code=1 if parity_count and code == "reedsolo" else 0,
        wrap_time_ns=wrap_time_ns,
    )
    segments = [
        replace(common, data_segment_index=index, payload=piece)
        for index, piece in enumerate(pieces)
    ]
    shards = [piece.ljust(chunk, b"\0") for piece in pieces]
    parity = encode_parity(shards, parity_count, code) if parity_count else []
    return segments + [
        replace(common, is_parity=True, parity_segment_index=index, payload=shard)
        for index, shard in enumerate(parity)
    ]


def content_message(
    content: SegmentMessage | bytes,
    *,
    sender_id: ParticipantId = ALICE,
    message_id: MessageId = "",
    lamport: int = NOW_MS,
    history: Sequence[HistoryEntry] = (),
    bloom_filter: bytes | None = None,
    channel_id: ChannelId = CHANNEL,
) -> SdsMessage:
    """Return a content message; its id is salted where the segment has a wrap time, else a plain hash."""
    wrap_time_ns = 0
    if isinstance(content, SegmentMessage):
        wrap_time_ns, content = content.wrap_time_ns, content.encode()
    if not message_id:
        message_id = keccak256(content).hex()
        if wrap_time_ns:
            message_id = salted(sender_id, wrap_time_ns, content)
    return SdsMessage(
        sender_id=sender_id,
        message_id=message_id,
        channel_id=channel_id,
        lamport_timestamp=lamport,
        causal_history=tuple(history),
        bloom_filter=bloom_filter,
        content=content,
    )


def ephemeral_message(
    content: SegmentMessage | bytes,
    *,
    sender_id: ParticipantId = ALICE,
    message_id: MessageId = "",
    history: Sequence[HistoryEntry] = (),
) -> SdsMessage:
    """Return an ephemeral message: of an application, or one that carries parity."""
    message = content_message(content, sender_id=sender_id, message_id=message_id, history=history)
    return replace(message, lamport_timestamp=None)


def sync_message(
    *history: HistoryEntry,
    sender_id: ParticipantId = ALICE,
    message_id: MessageId = "",
    lamport: int = NOW_MS,
    bloom_filter: bytes | None = None,
) -> SdsMessage:
    """Return a sync message that names the entries."""
    named = "".join(item.message_id for item in history)
    message_id = message_id or keccak256(f"sync of {sender_id} {lamport} {named}".encode()).hex()
    return SdsMessage(
        sender_id=sender_id,
        message_id=message_id,
        channel_id=CHANNEL,
        lamport_timestamp=lamport,
        causal_history=history,
        bloom_filter=bloom_filter,
    )


def messages_of(
    payload: bytes,
    *,
    sender_id: ParticipantId = ALICE,
    lamport: int = NOW_MS,
    history: Sequence[HistoryEntry] = (),
    chunk: int = CHUNK,
    parity_count: int = 0,
    code: str = "reedsolo",
    wrap_time_ns: Nanoseconds = NOW,
    salt_ns: Nanoseconds = 0,
    with_length: bool = True,
) -> list[SdsMessage]:
    """Return all SDS messages of a payload as a peer sends them: data in order, then parity.

    Each data segment names its predecessor, the first one the given history; so does parity. Without wrap time ids are
    hashes of the content, or salted with a time that no segment says.
    """
    segments = cut(
        payload,
        chunk=chunk,
        parity_count=parity_count,
        code=code,
        wrap_time_ns=wrap_time_ns,
        with_length=with_length,
    )
    messages: list[SdsMessage] = []
    named = tuple(history)
    for index, segment in enumerate(segments):
        if segment.is_parity:
            messages.append(ephemeral_message(segment, sender_id=sender_id, history=history))
            continue
        message = content_message(
            segment,
            sender_id=sender_id,
            message_id=salted(sender_id, salt_ns, segment.encode()) if salt_ns else "",
            lamport=lamport + index,
            history=named,
        )
        messages.append(message)
        named = (entry(message.message_id, sender_id=sender_id),)
    return messages


def single(
    text: str,
    *needs: str,
    sender_id: str = ALICE,
    lamport: int = NOW_MS + 20_000,
    hint: bytes | None = None,
) -> SdsMessage:
    """Return a message of one segment under an id that is easy to name."""
    return content_message(
        text.encode(),
        sender_id=sender_id,
        message_id=text,
        lamport=lamport,
        history=[entry(item, hint=hint, sender_id=sender_id) for item in needs],
    )


HELLO: Final = content_message(cut(b"hello")[0])
"""A content message of one segment that names nothing."""


def concurrent(*names: str) -> list[SdsMessage]:
    """Return messages of several senders that do not name each other."""
    return [
        content_message(cut(name.encode())[0], sender_id=name, lamport=NOW_MS + number)
        for number, name in enumerate(names)
    ]


# --- Sets of segments ------------------------------------------------------------------------------


def collect_set(segments: list[SegmentMessage], *, sender_id: str = ALICE) -> IncomingPayload:
    """Return the set that segments make in a reassembler of their own."""
    reassembler = Reassembler(SegmentationConfig())
    payload = None
    for segment in segments:
        key = reassembler.key_of(sender_id, segment)
        assert reassembler.refusal(key, segment) is None
        payload = reassembler.add(key, segment)
    assert payload is not None
    assert reassembler.is_complete(payload)
    return payload


def offer(
    reassembler: Reassembler, segment: SegmentMessage, sender_id: str = ALICE
) -> str | IncomingPayload:
    """Offer a segment; return the reason of its refusal or its set."""
    key = reassembler.key_of(sender_id, segment)
    return reassembler.refusal(key, segment) or reassembler.add(key, segment)


# --- Machines ------------------------------------------------------------------------------------


class MachineSettings(TypedDict, total=False):
    """What a machine may be given beyond who it is."""

    channel_id: ChannelId
    content_topic: str
    sds: SdsConfig
    segmentation: SegmentationConfig
    budget: ChannelBudget
    max_message_bytes: int
    encryption_overhead: int | None


def limited(messages_per_epoch: int, *, epoch_period_sec: int = 600) -> ChannelBudget:
    """Return the budget of the only channel of a node."""
    config = RateLimitConfig(
        enabled=True, messages_per_epoch=messages_per_epoch, epoch_period_sec=epoch_period_sec
    )
    scope = f"node:{epoch_period_sec}"
    return ChannelBudget(EpochRateLimiter(config, scope=scope), None, CHANNEL)


@dataclass(frozen=True)
class Transmission:
    """Bytes that were given to the node, and when."""

    segment_id: RequestId
    message: SdsMessage
    data: bytes
    ephemeral: bool
    time_ns: Nanoseconds


class Participant:
    """A machine and what a driver does for it: rows are kept, outcomes reported, time passes.

    Args:
        sender_id: Who it is.
        now: When it begins.
        seed: Of the machine.
        snapshot: Kept rows.
        started: Whether the machine is started at once.
        settings: Everything else that the machine is made with.
    """

    def __init__(
        self,
        sender_id: ParticipantId = BOB,
        *,
        now: Nanoseconds = NOW,
        seed: int = 1,
        snapshot: Snapshot | None = None,
        started: bool = True,
        **settings: Unpack[MachineSettings],
    ) -> None:
        self.sender_id = sender_id
        self.now = now
        self.seed = seed
        self.settings = settings
        self.rows: dict[tuple[type[Record], RecordKey], Record] = {}
        self.events: list[ChannelEvent] = []
        self.transmissions: list[Transmission] = []
        self.fetches: list[Fetch] = []
        named: MachineSettings = {"channel_id": CHANNEL, "content_topic": TOPIC}
        named.update(settings)
        self.machine = ChannelMachine(
            sender_id=sender_id,
            now=now,
            seed=seed,
            snapshot=snapshot,
            **named,
        )
        for kind, kept in (snapshot or {}).items():
            for record in kept:
                key = tuple(getattr(record, name) for name in kind.key_fields)
                self.rows[kind, key] = record
        if started:
            self.start()

    # -- inputs -----------------------------------------------------------------------------------

    def start(self) -> Effects:
        """Start the machine."""
        return self.carry_out(self.machine.start(self.now))

    def send(self, payload: bytes, *, ephemeral: bool = False, key: str | None = None) -> RequestId:
        """Send a payload."""
        request_id, effects = self.machine.send(
            payload, self.now, ephemeral=ephemeral, idempotency_key=key
        )
        self.carry_out(effects)
        return request_id

    def receive(self, *messages: SdsMessage | bytes, hint: bytes | None = None) -> Effects:
        """Receive messages one after the other; return the effects of all."""
        effects = Effects()
        for message in messages:
            data = message if isinstance(message, bytes) else message.encode()
            effects.merge(self.carry_out(self.machine.receive(data, hint, self.now)))
        return effects

    def published(self, *segment_ids: RequestId) -> Effects:
        """Report transmissions as handed to the network; without ids all that are in flight."""
        effects = Effects()
        while pending := segment_ids or tuple(self.machine.queue.in_flight):
            for segment_id in pending:
                transport_hash = hash_of(self.last(segment_id).data)
                effects.merge(
                    self.carry_out(self.machine.published(segment_id, transport_hash, self.now))
                )
            if segment_ids:
                break
        return effects

    def failed(
        self, *segment_ids: RequestId, retryable: bool = True, error: str = "no peers"
    ) -> Effects:
        """Report transmissions as failed; without ids all that are in flight now."""
        effects = Effects()
        for segment_id in segment_ids or tuple(self.machine.queue.in_flight):
            effects.merge(
                self.carry_out(
                    self.machine.publish_failed(segment_id, error, self.now, retryable=retryable)
                )
            )
        return effects

    def fetched(self, *messages: SdsMessage) -> Effects:
        """Answer the outstanding query with messages, each under the hash that `hash_of` gives."""
        found = [(hash_of(data), data) for data in (item.encode() for item in messages)]
        return self.carry_out(self.machine.fetched(found, self.now))

    def advance(self, duration: Nanoseconds) -> Effects:
        """Let time pass; the machine is woken whenever it asked for it."""
        end = self.now + duration
        effects = Effects()
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            effects.merge(self.carry_out(self.machine.tick(self.now)))
        self.now = end
        return effects

    def carry_out(self, effects: Effects) -> Effects:
        """Do what effects ask for."""
        for key, record in effects.changes.items():
            if record is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = record
        self.events.extend(effects.events)
        self.fetches.extend(effects.fetches)
        self.transmissions.extend(map(self.transmission, effects.publishes))
        return effects

    def transmission(self, publish: Publish) -> Transmission:
        """Return what the node is given."""
        message = SdsMessage.decode(publish.data)
        return Transmission(publish.segment_id, message, publish.data, publish.ephemeral, self.now)

    # -- questions --------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the kept rows as a store would load them, for another machine."""
        rows: dict[type[Record], list[Record]] = {}
        for (kind, _), record in self.rows.items():
            if kind is not EventRecord and kind is not LedgerRecord:
                rows.setdefault(kind, []).append(record)
        return rows

    def reopened(self, *, started: bool = True) -> Participant:
        """Return a participant that goes on from the kept rows, with another random stream."""
        return Participant(
            self.sender_id,
            now=self.now,
            seed=self.seed + 1,
            snapshot=self.snapshot(),
            started=started,
            **self.settings,
        )

    def rows_of(self, kind: type[Record]) -> list[Record]:
        """Return the kept rows of one type."""
        return [record for (owner, _), record in self.rows.items() if owner is kind]

    def of(self, kind: type[Event]) -> list[Event]:
        """Return the events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def received(self) -> list[bytes]:
        """The payloads that were delivered, in order."""
        return [event.message for event in self.of(MessageReceivedEvent)]

    @property
    def lost(self) -> list[tuple[MessageId, str]]:
        """What was declared lost and why, in order."""
        return [(event.message_id, event.reason) for event in self.of(MessageLostEvent)]

    def last(self, segment_id: RequestId) -> Transmission:
        """Return the latest transmission of a segment."""
        return next(item for item in reversed(self.transmissions) if item.segment_id == segment_id)

    def copies(self, segment_id: RequestId) -> list[Transmission]:
        """Return all transmissions of a segment."""
        return [item for item in self.transmissions if item.segment_id == segment_id]

    def sent_since(self, count: int) -> list[RequestId]:
        """Return the segment ids of the transmissions after the first so many, syncs left out."""
        ids = [item.segment_id for item in self.transmissions[count:]]
        return [item for item in ids if not item.startswith("sync:")]

    @property
    def syncs(self) -> list[Transmission]:
        """The sync messages that were given to the node."""
        return [item for item in self.transmissions if item.segment_id.startswith("sync:")]

    def status(self) -> ChannelStatus:
        """Return the machine's sizes and counters."""
        return self.machine.status()

    def request(self, request_id: RequestId) -> RequestStatus:
        """Return how far a request is."""
        return self.machine.request_status(request_id)

    def dropped(self) -> dict[str, int]:
        """Return what was refused, by reason."""
        return self.machine.status().dropped

    def counted(self, name: str) -> int:
        """Return a counter."""
        return self.machine.status().counters.get(name, 0)


def bob(**settings: Unpack[MachineSettings]) -> Participant:
    """Return a receiver without filter, unless the settings say otherwise."""
    settings.setdefault("sds", NO_FILTER)
    return Participant(BOB, **settings)


def settled(**settings: Unpack[MachineSettings]) -> Participant:
    """Return a receiver whose first moments are over: what it lacks is not from before its time."""
    receiver = bob(**settings)
    receiver.receive(HELLO)
    receiver.advance(GRACE)
    receiver.published()
    receiver.events.clear()
    receiver.transmissions.clear()
    return receiver


def deliver(receivers: Iterable[Participant], transmissions: Iterable[Transmission]) -> None:
    """Let each receiver have each transmission, with its transport hash unless nobody stores it."""
    for transmission in transmissions:
        for receiver in receivers:
            hint = None if transmission.ephemeral else hash_of(transmission.data)
            receiver.receive(transmission.data, hint=hint)


# --- Senders ---------------------------------------------------------------------------------------


def alice(**settings: Any) -> Participant:
    """Return a sender with segments of 64 bytes and no filter, unless the settings say otherwise."""
    return Participant(ALICE, **{"segmentation": SMALL, "sds": NO_FILTER, **settings})


def ids_of(sender: Participant, request_id: str) -> list[str]:
    """Return the message ids of a request's segments."""
    return [segment.message_id for segment in sender.request(request_id).segments]


def history_of(transmission: Transmission) -> list[str]:
    """Return the ids that a transmission names."""
    return [item.message_id for item in transmission.message.causal_history]


def acknowledge(
    sender: Participant, request_id: str, *places: int, by: str = BOB, lamport: int = NOW_MS
) -> None:
    """Let a participant name segments of a request, counted from 0, all without places."""
    named = ids_of(sender, request_id)
    chosen = [named[place] for place in places] if places else named
    sender.receive(sync_message(*entries(*chosen), sender_id=by, lamport=lamport))


def expire(sender: Participant, *segment_ids: str) -> None:
    """Report transmissions whose epoch had ended before they could be handed over."""
    for segment_id in segment_ids or tuple(sender.machine.queue.in_flight):
        sender.carry_out(sender.machine.expired(segment_id, sender.now))
