"""The schema as it is now: a table for each record type, and one of the channels.

Columns are written out by hand and named as the record's fields, so that a change of a record is a
decided change of the schema; a test compares the two. Each change is a new version in ``persistence.migrations``;
another test compares what those make. No statement is built here.
"""

from __future__ import annotations

import json
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    ForeignKey,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    false,
)

from reliable_channel.records import (
    AcknowledgementRecord,
    AnswerRecord,
    AskedRecord,
    BodyRecord,
    ChannelRecord,
    CompletedRecord,
    DebtRecord,
    EventRecord,
    LedgerRecord,
    LogRecord,
    LostRecord,
    MissingRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    Record,
    RequestRecord,
)

_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class TextTuple(TypeDecorator[tuple[str, ...]]):
    """A tuple of strings, kept as a JSON array in text."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: tuple[str, ...] | None, dialect: Dialect) -> str | None:
        """Return what the column holds."""
        return None if value is None else _encode(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[str, ...] | None:
        """Return what the record holds."""
        return None if value is None else tuple(json.loads(value))


metadata: Final = MetaData()
"""All tables."""

channels: Final = Table(
    "channels",
    metadata,
    Column("channel_id", Text, primary_key=True),
    Column("event_count", BigInteger, nullable=False, server_default="0"),
    Column("event_bytes", BigInteger, nullable=False, server_default="0"),
    Column("newest_event", BigInteger, nullable=False, server_default="0"),
    Column("removed_through", BigInteger, nullable=False, server_default="0"),
    Column("lease", BigInteger, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)
"""Which channels there are, each with its event log in numbers; its rows go when it goes."""


registry: Final = Table(
    "registry",
    metadata,
    Column("channel_id", Text, primary_key=True),
    Column("position", BigInteger, nullable=False),
    Column("settings", Text, nullable=False),
)
"""The channels that a service has open, and how; it refers to no other table, and none to it."""


def _channel_id() -> Column[str]:
    owner = ForeignKey(channels.c.channel_id, ondelete="CASCADE")
    return Column("channel_id", Text, owner, primary_key=True)


# On SQLite the small rows live in their primary key's tree alone; those with bytes of a message
# would spill out of it at a quarter of a page, so they keep a row id.

TABLES: Final[dict[type[Record], Table]] = {
    ChannelRecord: Table(
        "channel_states",
        metadata,
        _channel_id(),
        Column("content_topic", Text, nullable=False),
        Column("sender_id", Text, nullable=False),
        Column("bloom_capacity", BigInteger, nullable=False),
        Column("bloom_error_rate", Double, nullable=False),
        Column("created_ns", BigInteger, nullable=False),
        Column("lamport_clock", BigInteger, nullable=False),
        Column("last_wrap_ns", BigInteger, nullable=False),
        Column("floor", BigInteger, nullable=False),
        Column("settled_at_ns", BigInteger, nullable=False),
        Column("last_event_sequence", BigInteger, nullable=False),
        Column("last_seen_ns", BigInteger, nullable=False),
        Column("conflict_seen", Boolean, nullable=False),
        Column("frontier", TextTuple, nullable=False),
        Column("sync_due_ns", BigInteger, nullable=False, server_default="0"),
        Column("idle_due_ns", BigInteger, nullable=False, server_default="0"),
        Column("resumed_ns", BigInteger, nullable=False, server_default="0"),
        Column("resumed_before_ns", BigInteger, nullable=False, server_default="0"),
        sqlite_with_rowid=False,
    ),
    LogRecord: Table(
        "log",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("lamport_timestamp", BigInteger, nullable=False),
        Column("sender_id", Text, nullable=False),
        Column("retrieval_hint", LargeBinary),
        Column("logged", Boolean, nullable=False),
        Column("segment_index", BigInteger, nullable=False),
        Column("segment_count", BigInteger, nullable=False),
        Column("proven", Boolean, nullable=False),
        sqlite_with_rowid=False,
    ),
    PendingRecord: Table(
        "pending",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("sender_id", Text, nullable=False),
        Column("lamport_timestamp", BigInteger, nullable=False),
        Column("received_ns", BigInteger, nullable=False),
        Column("history", LargeBinary, nullable=False),
        Column("content", LargeBinary, nullable=False),
        Column("set_number", BigInteger, nullable=False),
        Column("arrival", BigInteger, nullable=False),
    ),
    ParityRecord: Table(
        "parity",
        metadata,
        _channel_id(),
        Column("arrival", BigInteger, primary_key=True, autoincrement=False),
        Column("set_number", BigInteger, nullable=False),
        Column("segment_index", BigInteger, nullable=False),
        Column("received_ns", BigInteger, nullable=False),
        Column("history", LargeBinary, nullable=False),
        Column("chunk", LargeBinary, nullable=False),
    ),
    RequestRecord: Table(
        "requests",
        metadata,
        _channel_id(),
        Column("request_id", Text, primary_key=True),
        Column("created_ns", BigInteger, nullable=False),
        Column("payload_bytes", BigInteger, nullable=False),
        Column("segment_count", BigInteger, nullable=False),
        Column("ephemeral", Boolean, nullable=False),
        Column("sent", Boolean, nullable=False),
        Column("state", Text, nullable=False),
        Column("error", Text, nullable=False),
        Column("leader", Text),
        Column("lamport_timestamp", BigInteger, nullable=False),
        Column("parity_count", BigInteger, nullable=False),
        Column("idempotency_key", Text, nullable=False),
        Column("payload_digest", LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    ),
    OutgoingRecord: Table(
        "outgoing",
        metadata,
        _channel_id(),
        Column("request_id", Text, primary_key=True),
        Column("segment_index", BigInteger, primary_key=True, autoincrement=False),
        Column("message_id", Text, nullable=False),
        Column("lamport_timestamp", BigInteger, nullable=False),
        Column("history", TextTuple, nullable=False),
        Column("propagated", Boolean, nullable=False),
        Column("transmissions", BigInteger, nullable=False),
        Column("retransmissions", BigInteger, nullable=False),
        Column("deadline_ns", BigInteger, nullable=False),
        Column("passed", BigInteger, nullable=False, server_default="0"),
        Column("spared", Boolean, nullable=False, server_default=false()),
        Column("in_flight", Boolean, nullable=False, server_default=false()),
        sqlite_with_rowid=False,
    ),
    BodyRecord: Table(
        "bodies",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("part", Text, primary_key=True),
        Column("data", LargeBinary, nullable=False),
    ),
    AcknowledgementRecord: Table(
        "acknowledgements",
        metadata,
        _channel_id(),
        Column("request_id", Text, primary_key=True),
        Column("participant_id", Text, primary_key=True),
        Column("position", BigInteger, nullable=False),
        Column("segments", LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    ),
    DebtRecord: Table(
        "debts",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        sqlite_with_rowid=False,
    ),
    LostRecord: Table(
        "lost",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("lost_ns", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    ),
    MissingRecord: Table(
        "missing",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("sender_id", Text),
        Column("named_by", Text, nullable=False),
        Column("since_ns", BigInteger, nullable=False),
        Column("hints", LargeBinary, nullable=False),
        Column("may_predate", Boolean, nullable=False),
        Column("claimed", Boolean, nullable=False),
        Column("excused", Boolean, nullable=False),
        sqlite_with_rowid=False,
    ),
    AskedRecord: Table(
        "asked",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("next_ns", BigInteger, nullable=False),
        Column("asked", BigInteger, nullable=False),
        Column("deferred", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    ),
    AnswerRecord: Table(
        "answers",
        metadata,
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("asked_by", Text, nullable=False),
        Column("in_store", Boolean, nullable=False),
        Column("due_ns", BigInteger, nullable=False),
        Column("given_ns", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    ),
    CompletedRecord: Table(
        "completed",
        metadata,
        _channel_id(),
        Column("set_digest", LargeBinary, primary_key=True),
        Column("held", LargeBinary, nullable=False),
        Column("completed_ns", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    ),
    EventRecord: Table(
        "events",
        metadata,
        _channel_id(),
        Column("sequence", BigInteger, primary_key=True, autoincrement=False),
        Column("name", Text, nullable=False),
        Column("time_ns", BigInteger, nullable=False),
        Column("request_id", Text),
        Column("message_id", Text),
        Column("sender_id", Text),
        Column("payload", LargeBinary),
        Column("detail", Text, nullable=False),
    ),
    LedgerRecord: Table(
        "ledger",
        metadata,
        Column("scope", Text, primary_key=True),
        Column("epoch", BigInteger, nullable=False),
        Column("used", BigInteger, nullable=False),
        Column("in_flight", BigInteger, nullable=False, server_default="0"),
        Column("held", BigInteger, nullable=False, server_default="0"),
        sqlite_with_rowid=False,
    ),
}
"""The table of each record type; its key is the channel, where there is one, and the key fields."""
