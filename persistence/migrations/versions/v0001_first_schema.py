"""The first schema: the channels, a table for each record type, and a version of its own making.

It says what was, so it must not use ``persistence.tables``, which says what is.
"""

from __future__ import annotations

from typing import Final

from alembic.operations import Operations
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Integer,
    LargeBinary,
    Text,
)

revision: Final = "0001"
down_revision: Final = None


def _channel_id() -> Column[str]:
    owner = ForeignKey("channels.channel_id", ondelete="CASCADE")
    return Column("channel_id", Text, owner, primary_key=True)


def upgrade(operations: Operations) -> None:
    """Make the tables."""
    version = operations.create_table(
        "schema_version",
        Column("version", Integer, primary_key=True, autoincrement=False),
    )
    operations.bulk_insert(version, [{"version": 1}])
    operations.create_table(
        "channels",
        Column("channel_id", Text, primary_key=True),
        Column("event_count", BigInteger, nullable=False, server_default="0"),
        Column("event_bytes", BigInteger, nullable=False, server_default="0"),
        Column("newest_event", BigInteger, nullable=False, server_default="0"),
        Column("removed_through", BigInteger, nullable=False, server_default="0"),
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "channel_states",
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
        Column("frontier", Text, nullable=False),
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "log",
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
    )
    operations.create_table(
        "pending",
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("sender_id", Text, nullable=False),
        Column("lamport_timestamp", BigInteger, nullable=False),
        Column("received_ns", BigInteger, nullable=False),
        Column("history", LargeBinary, nullable=False),
        Column("content", LargeBinary, nullable=False),
        Column("set_number", BigInteger, nullable=False),
        Column("arrival", BigInteger, nullable=False),
    )
    operations.create_table(
        "parity",
        _channel_id(),
        Column("arrival", BigInteger, primary_key=True, autoincrement=False),
        Column("set_number", BigInteger, nullable=False),
        Column("segment_index", BigInteger, nullable=False),
        Column("received_ns", BigInteger, nullable=False),
        Column("history", LargeBinary, nullable=False),
        Column("chunk", LargeBinary, nullable=False),
    )
    operations.create_table(
        "requests",
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
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "outgoing",
        _channel_id(),
        Column("request_id", Text, primary_key=True),
        Column("segment_index", BigInteger, primary_key=True, autoincrement=False),
        Column("message_id", Text, nullable=False),
        Column("lamport_timestamp", BigInteger, nullable=False),
        Column("history", Text, nullable=False),
        Column("propagated", Boolean, nullable=False),
        Column("transmissions", BigInteger, nullable=False),
        Column("retransmissions", BigInteger, nullable=False),
        Column("deadline_ns", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "bodies",
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("part", Text, primary_key=True),
        Column("data", LargeBinary, nullable=False),
    )
    operations.create_table(
        "acknowledgements",
        _channel_id(),
        Column("request_id", Text, primary_key=True),
        Column("participant_id", Text, primary_key=True),
        Column("position", BigInteger, nullable=False),
        Column("segments", LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "debts",
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "lost",
        _channel_id(),
        Column("message_id", Text, primary_key=True),
        Column("lost_ns", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "completed",
        _channel_id(),
        Column("set_digest", LargeBinary, primary_key=True),
        Column("held", LargeBinary, nullable=False),
        Column("completed_ns", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    operations.create_table(
        "events",
        _channel_id(),
        Column("sequence", BigInteger, primary_key=True, autoincrement=False),
        Column("name", Text, nullable=False),
        Column("time_ns", BigInteger, nullable=False),
        Column("request_id", Text),
        Column("message_id", Text),
        Column("sender_id", Text),
        Column("payload", LargeBinary),
        Column("detail", Text, nullable=False),
    )
    operations.create_table(
        "ledger",
        Column("scope", Text, primary_key=True),
        Column("epoch", BigInteger, nullable=False),
        Column("used", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
