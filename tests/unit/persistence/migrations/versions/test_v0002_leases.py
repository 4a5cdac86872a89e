"""The second schema: nobody has taken a channel yet, and the old version is gone."""

from __future__ import annotations

from sqlalchemy import create_engine, inspect, text

from persistence.migrations import upgrade


def test_kept_channels_begin_with_no_lease() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        upgrade(connection, "0001")
        connection.execute(text("INSERT INTO channels (channel_id) VALUES ('room')"))
        upgrade(connection, "0002")
        assert connection.execute(text("SELECT lease FROM channels")).all() == [(0,)]
        assert "schema_version" not in inspect(connection).get_table_names()
    engine.dispose()
