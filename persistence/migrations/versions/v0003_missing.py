"""Keep what is looked for."""

from __future__ import annotations

from typing import Final

from alembic.operations import Operations
from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, LargeBinary, Text

revision: Final = "0003"
down_revision: Final = "0002"


def upgrade(operations: Operations) -> None:
    """Make the table of ids that others named and that are missing."""
    owner = ForeignKey("channels.channel_id", ondelete="CASCADE")
    operations.create_table(
        "missing",
        Column("channel_id", Text, owner, primary_key=True),
        Column("message_id", Text, primary_key=True),
        Column("sender_id", Text),
        Column("named_by", Text, nullable=False),
        Column("since_ns", BigInteger, nullable=False),
        Column("hints", LargeBinary, nullable=False),
        Column("may_predate", Boolean, nullable=False),
        Column("claimed", Boolean, nullable=False),
        Column("excused", Boolean, nullable=False),
        sqlite_with_rowid=False,
    )
