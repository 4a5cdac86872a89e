"""The third schema: there is a place for what is looked for, and nothing in it yet."""

from __future__ import annotations

from sqlalchemy import create_engine, text

from persistence.migrations import upgrade


def test_kept_channels_look_for_nothing_yet() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        upgrade(connection, "0002")
        connection.execute(text("INSERT INTO channels (channel_id) VALUES ('room')"))
        upgrade(connection, "0003")
        assert connection.execute(text("SELECT count(*) FROM missing")).scalar() == 0
        assert connection.execute(text("SELECT channel_id FROM channels")).all() == [("room",)]
    engine.dispose()
