"""Keep what others ask for, and when things are due."""

from __future__ import annotations

from typing import Final

from alembic.operations import Operations
from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Text, false

revision: Final = "0005"
down_revision: Final = "0004"


def upgrade(operations: Operations) -> None:
    """Make the tables of repairs, and columns for deadlines; what is kept has none yet."""
    owner = ForeignKey("channels.channel_id", ondelete="CASCADE")
    operations.create_table(
        "asked",
        Column("channel_id", Text, owner, primary_key=True),
        Column("message_id", Text, primary_key=True),
        Column("next_ns", BigInteger, nullable=False),
        Column("asked", BigInteger, nullable=False),
        Column("deferred", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    owner = ForeignKey("channels.channel_id", ondelete="CASCADE")
    operations.create_table(
        "answers",
        Column("channel_id", Text, owner, primary_key=True),
        Column("message_id", Text, primary_key=True),
        Column("asked_by", Text, nullable=False),
        Column("in_store", Boolean, nullable=False),
        Column("due_ns", BigInteger, nullable=False),
        Column("given_ns", BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    for name in ("sync_due_ns", "idle_due_ns", "resumed_ns", "resumed_before_ns"):
        column = Column(name, BigInteger, nullable=False, server_default="0")
        operations.add_column("channel_states", column)
    passed = Column("passed", BigInteger, nullable=False, server_default="0")
    operations.add_column("outgoing", passed)
    for name in ("spared", "in_flight"):
        flag = Column(name, Boolean, nullable=False, server_default=false())
        operations.add_column("outgoing", flag)
