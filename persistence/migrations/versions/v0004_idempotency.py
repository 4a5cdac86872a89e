"""Keep idempotency keys with the requests that have one, and what a service has open."""

from __future__ import annotations

from typing import Final

from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, LargeBinary, Text, text

revision: Final = "0004"
down_revision: Final = "0003"


def upgrade(operations: Operations) -> None:
    """Add key and digest of requests, which those that are kept do not have; make the registry."""
    is_sqlite = operations.get_bind().dialect.name == "sqlite"
    no_bytes = text("X''" if is_sqlite else "''")
    key: Column[str] = Column("idempotency_key", Text, nullable=False, server_default="")
    digest: Column[bytes] = Column(
        "payload_digest", LargeBinary, nullable=False, server_default=no_bytes
    )
    operations.add_column("requests", key)
    operations.add_column("requests", digest)
    operations.create_table(
        "registry",
        Column("channel_id", Text, primary_key=True),
        Column("position", BigInteger, nullable=False),
        Column("settings", Text, nullable=False),
    )
