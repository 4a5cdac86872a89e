"""The fifth schema: nothing is asked for yet, and what is kept has no deadlines."""

from __future__ import annotations

from typing import Final

from sqlalchemy import create_engine, text

from persistence.migrations import upgrade

KEPT: Final = (
    "INSERT INTO channels (channel_id) VALUES ('room')",
    "INSERT INTO channel_states VALUES ('room', 't', 'bob', 0, 0.1, 1, 2, 3, 4, 5, 6, 7, 0, '[]')",
    "INSERT INTO outgoing VALUES ('room', 'r', 0, 'm', 1, '[]', 1, 2, 1, 9)",
)


def test_kept_rows_have_no_deadlines_yet() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        upgrade(connection, "0004")
        for statement in KEPT:
            connection.execute(text(statement))
        upgrade(connection, "0005")
        for name in ("asked", "answers"):
            assert connection.execute(text(f"SELECT count(*) FROM {name}")).scalar() == 0
        columns = "sync_due_ns, idle_due_ns, resumed_ns, resumed_before_ns"
        states = connection.execute(text(f"SELECT {columns} FROM channel_states")).all()
        assert states == [(0, 0, 0, 0)]
        segments = text("SELECT deadline_ns, passed, spared, in_flight FROM outgoing")
        assert connection.execute(segments).all() == [(9, 0, 0, 0)]
    engine.dispose()
