"""The fourth schema: kept requests have no key, and bytes are bytes; no channel is registered."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from persistence.migrations import upgrade


def test_kept_requests_have_no_key_and_nothing_is_registered() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        upgrade(connection, "0003")
        connection.execute(text("INSERT INTO channels (channel_id) VALUES ('room')"))
        connection.execute(
            text("INSERT INTO requests VALUES ('room', 'r', 1, 2, 3, 0, 1, 'open', '', NULL, 4, 5)")
        )
        upgrade(connection, "0004")
        found = connection.execute(text("SELECT * FROM requests")).all()
        assert found == [("room", "r", 1, 2, 3, 0, 1, "open", "", None, 4, 5, "", b"")]
        assert connection.execute(text("SELECT count(*) FROM registry")).scalar() == 0
        connection.execute(text("DELETE FROM channels"))
        connection.execute(
            text("INSERT INTO registry VALUES ('room', 1, '{}')")  # whether or not it has state
        )
    engine.dispose()
