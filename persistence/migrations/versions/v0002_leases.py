"""Count who takes a channel; leave the version to Alembic alone."""

from __future__ import annotations

from typing import Final

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column

revision: Final = "0002"
down_revision: Final = "0001"


def upgrade(operations: Operations) -> None:
    """Add the number of a channel's lease, drop the old table of the version."""
    lease: Column[int] = Column("lease", BigInteger, nullable=False, server_default="0")
    operations.add_column("channels", lease)
    operations.drop_table("schema_version")
