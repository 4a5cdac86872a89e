"""The rows in which a channel's state is kept: what the core writes and any store can hold.

A store needs no knowledge of the protocol: a row is identified by its type and ``key``, written whole, deleted by
key. The core sends changes, never snapshots, so the cost of an operation does not grow with the history.
Nothing here may compute protocol rules.

Spec: RELIABLE-CHANNEL-API, Scalable Data Sync, and LIP-109: what state must be persisted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeAlias, TypeVar, cast

from reliable_channel import values
from reliable_channel.types import MessageId, Nanoseconds, ParticipantId, RequestId

RecordKey: TypeAlias = tuple[str | int | bytes, ...]
"""Identifies a row within its type and channel."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRecord:
    """What a channel is and the clocks that must not go back; one row per channel."""

    key_fields: ClassVar[tuple[str, ...]] = ()
    content_topic: str
    sender_id: ParticipantId
    bloom_capacity: int
    bloom_error_rate: float
    created_ns: Nanoseconds
    lamport_clock: int
    last_wrap_ns: Nanoseconds
    """Largest wrap time ever given to a payload of ours; the next one is larger."""
    floor: int
    """Dependencies of messages with a lower Lamport time count as met."""
    settled_at_ns: Nanoseconds
    """Until then unmet dependencies may be from before our time; 0 before the first content message."""
    last_event_sequence: int
    last_seen_ns: Nanoseconds
    """When a message was last taken in; missed messages are asked for from here."""
    conflict_seen: bool
    """The sender-id-conflict event was raised."""
    frontier: tuple[MessageId, ...]
    """Logged ids that no logged message names: the next message of ours names them."""
    sync_due_ns: Nanoseconds = 0
    """When a sync message is due because something is owed or asked for; 0 when none is."""
    idle_due_ns: Nanoseconds = 0
    """When a sync message breaks the silence; 0 before the first start."""
    resumed_ns: Nanoseconds = 0
    """The latest start that gave what was waited for more time."""
    resumed_before_ns: Nanoseconds = 0
    """The one before it: what is older had that time already."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class LogRecord:
    """One known message id: ours, or accepted, or rebuilt."""

    key_fields: ClassVar[tuple[str, ...]] = ("message_id",)
    message_id: MessageId
    lamport_timestamp: int
    sender_id: ParticipantId
    retrieval_hint: bytes | None
    """Transport hash under which a store node has it."""
    logged: bool
    """Ours or delivered: causal histories may name it."""
    segment_index: int
    """Its place in the payload that it belongs to, from 0."""
    segment_count: int
    """Data segments of that payload."""
    proven: bool = True
    """The content gives the id, or it is ours or rebuilt: nobody else can claim it."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class PendingRecord:
    """An accepted data segment whose payload is not delivered yet: incomplete, or parked."""

    key_fields: ClassVar[tuple[str, ...]] = ("message_id",)
    message_id: MessageId
    sender_id: ParticipantId
    lamport_timestamp: int
    received_ns: Nanoseconds
    history: bytes
    """An encoded SdsMessage that has only the causal history."""
    content: bytes
    """The SDS content: an encoded segment."""
    set_number: int
    """The set it was entered in; without wrap time nothing else tells apart a payload and the same one sent again."""
    arrival: int
    """Its place in the order in which segments were taken in, parity included."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class ParityRecord:
    """A parity segment of an incomplete payload of which data segments are kept: those say the rest of it.

    It has a row type of its own, and the arrival as its key, because nothing proves the id of an ephemeral message: one
    could be that of a data segment, whose row it would replace. Rival candidates of one index have a row each.
    """

    key_fields: ClassVar[tuple[str, ...]] = ("arrival",)
    arrival: int
    """Its place in the order in which segments were taken in, data included."""
    set_number: int
    """The set it was entered in."""
    segment_index: int
    """Its parity index, from 0."""
    received_ns: Nanoseconds
    history: bytes
    """An encoded SdsMessage that has only the causal history."""
    chunk: bytes
    """The parity itself."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One ``send``."""

    key_fields: ClassVar[tuple[str, ...]] = ("request_id",)
    request_id: RequestId
    created_ns: Nanoseconds
    payload_bytes: int
    segment_count: int
    """Data segments."""
    ephemeral: bool
    sent: bool
    state: str
    """``open``, ``delivered``, ``sent`` (ephemeral only), ``send-error`` or ``delivery-error``."""
    error: str
    leader: ParticipantId | None
    """Who has acknowledged most of it; whoever came first to as many keeps that place."""
    lamport_timestamp: int = 0
    """Of its first segment, which with the log's rows gives the ids of a request that is final; 0 when ephemeral."""
    parity_count: int = 0
    """Parity segments."""
    idempotency_key: str = ""
    """What the application calls it, so that it may send it again without harm; empty when it does not."""
    payload_digest: bytes = b""
    """Tells what was sent under that key; empty without one."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """One data segment of a request that is not final: the outgoing buffer and the send queue."""

    key_fields: ClassVar[tuple[str, ...]] = ("request_id", "segment_index")
    request_id: RequestId
    segment_index: int
    """From 0."""
    message_id: MessageId
    lamport_timestamp: int
    history: tuple[MessageId, ...]
    """Ids fixed at ``send``."""
    propagated: bool
    """The node has reported it handed to the network at least once."""
    transmissions: int
    """Times it was given to the node."""
    retransmissions: int
    deadline_ns: Nanoseconds
    """When the running acknowledgement timer ends, or would if the node reported at once; 0 when none runs."""
    passed: int = 0
    """Acknowledgement timeouts after which others of its request were sent in its place."""
    spared: bool = False
    """Its timer ended and it was not sent again."""
    in_flight: bool = False
    """The node has not reported the latest transmission."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class BodyRecord:
    """Bytes of a message, written once.

    Of ours ``content`` at send, and ``header`` when its SDS bytes are frozen; of others ``message``, as it came. They
    stay while the message is kept for repairs.
    """

    key_fields: ClassVar[tuple[str, ...]] = ("message_id", "part")
    message_id: MessageId
    part: str
    data: bytes


@values.dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementRecord:
    """Which data segments of a request one participant has."""

    key_fields: ClassVar[tuple[str, ...]] = ("request_id", "participant_id")
    request_id: RequestId
    participant_id: ParticipantId
    position: int
    """Order in which participants first acknowledged anything of the request, from 0."""
    segments: bytes
    """Bit i, counted from the least significant of the first byte, is segment i."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class DebtRecord:
    """An id that this participant still owes an acknowledgement for."""

    key_fields: ClassVar[tuple[str, ...]] = ("message_id",)
    message_id: MessageId


@values.dataclass(frozen=True, slots=True, kw_only=True)
class LostRecord:
    """An id that was declared lost: it counts as met, and comes late if it still comes."""

    key_fields: ClassVar[tuple[str, ...]] = ("message_id",)
    message_id: MessageId
    lost_ns: Nanoseconds


@values.dataclass(frozen=True, slots=True, kw_only=True)
class MissingRecord:
    """An id that others named and this participant lacks: what the store and other participants are asked for."""

    key_fields: ClassVar[tuple[str, ...]] = ("message_id",)
    message_id: MessageId
    sender_id: ParticipantId | None
    """Who sent it, where that was said."""
    named_by: ParticipantId
    """Whose message named it first."""
    since_ns: Nanoseconds
    hints: bytes
    """Transport hashes under which the store may have it, 32 bytes each."""
    may_predate: bool
    """It may be from before this participant's time."""
    claimed: bool
    """Somebody's sync or ephemeral message had this id before it was named."""
    excused: bool
    """Nobody waits for it any more."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class AskedRecord:
    """A missing id that others were asked for already, by us or by somebody else."""

    key_fields: ClassVar[tuple[str, ...]] = ("message_id",)
    message_id: MessageId
    next_ns: Nanoseconds
    """When we ask for it next."""
    asked: int
    """Messages of ours that asked for it."""
    deferred: int
    """Times that others' requests put ours off since."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """A message that somebody asked for: it is going to be sent once more, or was a short while ago."""

    key_fields: ClassVar[tuple[str, ...]] = ("message_id",)
    message_id: MessageId
    asked_by: ParticipantId
    in_store: bool
    """The node's store is known to have it."""
    due_ns: Nanoseconds
    """When it is to be sent, unless somebody else is heard doing so."""
    given_ns: Nanoseconds
    """When it was given to the node; 0 before."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class CompletedRecord:
    """A payload that was rebuilt: a late segment of it never delivers again."""

    key_fields: ClassVar[tuple[str, ...]] = ("set_digest",)
    set_digest: bytes
    """Hash of everything that identifies the set."""
    held: bytes
    """Bit i, counted from the least significant of the first byte: the id of data segment i is known."""
    completed_ns: Nanoseconds


@values.dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One durable event."""

    key_fields: ClassVar[tuple[str, ...]] = ("sequence",)
    sequence: int
    name: str
    time_ns: Nanoseconds
    request_id: RequestId | None
    message_id: MessageId | None
    sender_id: ParticipantId | None
    payload: bytes | None
    detail: str
    """JSON object of the event's other fields; empty when there are none."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRecord:
    """Transmissions counted in an epoch. It belongs to no channel and never goes back.

    A store keeps the larger of what it has and what it is given, compared as (epoch, used); of two that are equal in
    this, the one with fewer open outcomes, ``in_flight`` and ``held`` together: it is the newer.
    """

    key_fields: ClassVar[tuple[str, ...]] = ("scope",)
    scope: str
    """``node:<period>`` for the membership's ledger, ``channel:<id>:<period>`` for a channel's narrower share: epoch
    numbers of different periods cannot be compared."""
    epoch: int
    used: int
    in_flight: int = 0
    """Of those, how many the node has not reported: they may go out in the next epoch."""
    held: int = 0
    """Transmissions counted in the epoch before that the node has not reported: they may go out in this one."""


Record: TypeAlias = (
    ChannelRecord
    | LogRecord
    | PendingRecord
    | ParityRecord
    | RequestRecord
    | OutgoingRecord
    | BodyRecord
    | AcknowledgementRecord
    | DebtRecord
    | LostRecord
    | MissingRecord
    | AskedRecord
    | AnswerRecord
    | CompletedRecord
    | EventRecord
    | LedgerRecord
)

R = TypeVar("R", bound=Record)

RECORD_TYPES: tuple[type[Record], ...] = (
    ChannelRecord,
    LogRecord,
    PendingRecord,
    ParityRecord,
    RequestRecord,
    OutgoingRecord,
    BodyRecord,
    AcknowledgementRecord,
    DebtRecord,
    LostRecord,
    MissingRecord,
    AskedRecord,
    AnswerRecord,
    CompletedRecord,
    EventRecord,
    LedgerRecord,
)
"""Every type that a store must hold."""

Changes: TypeAlias = dict[tuple[type[Record], RecordKey], Record | None]
"""Rows to write (whole) or, where None, to delete; later changes of a row replace earlier ones."""

Snapshot: TypeAlias = Mapping[type[Record], Sequence[Record]]
"""All rows of a channel by type, but for its events; absent types have no rows."""


def rows_of(snapshot: Snapshot, kind: type[R]) -> list[R]:
    """Return the rows of one type; empty when there are none."""
    return cast("list[R]", list(snapshot.get(cast("type[Record]", kind), ())))


def key_reader(kind: type[Record]) -> Callable[[Record], RecordKey]:
    """Return what reads the key of rows of one type; made once, so that reading takes one call."""
    if not kind.key_fields:
        return lambda _: ()
    read: Callable[[Record], Any] = attrgetter(*kind.key_fields)
    return read if len(kind.key_fields) > 1 else lambda record: (read(record),)


KEY_READERS: Final = {kind: key_reader(kind) for kind in RECORD_TYPES}


def key_of(record: Record) -> RecordKey:
    """Return what identifies the row within its type and channel."""
    return KEY_READERS[type(record)](record)
