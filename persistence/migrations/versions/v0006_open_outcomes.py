"""Count what the node has not reported, as part of the epoch budget."""

from __future__ import annotations

from typing import Final

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column

revision: Final = "0006"
down_revision: Final = "0005"


def upgrade(operations: Operations) -> None:
    """Make the columns; of what is kept nothing was known to be open."""
    for name in ("in_flight", "held"):
        column = Column(name, BigInteger, nullable=False, server_default="0")
        operations.add_column("ledger", column)
