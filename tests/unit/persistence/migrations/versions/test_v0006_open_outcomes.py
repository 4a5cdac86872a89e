"""The sixth schema: nothing is known to be open of what was counted."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from persistence.migrations import upgrade


def test_of_kept_ledgers_nothing_is_known_to_be_open() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        upgrade(connection, "0005")
        connection.execute(text("INSERT INTO ledger VALUES ('node:600', 7, 8)"))
        upgrade(connection, "0006")
        rows = connection.execute(text("SELECT epoch, used, in_flight, held FROM ledger")).all()
        assert rows == [(7, 8, 0, 0)]
    engine.dispose()
