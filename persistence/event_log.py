"""The durable events of a database's channels: counted as they are appended, removed as retention says, read in pages.

It works inside a transaction that somebody else has begun, and must not begin or end one. Who may write to a channel is
not its business either: whoever calls has made sure.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

from sqlalchemy import Connection, Dialect

from persistence.retention import SWEEP_PAGES, EventRetention, EventTotals, event_size
from persistence.statements import (
    DELETE_EVENTS,
    RECOUNT_EVENTS,
    SELECT_EVENT_SIZES,
    SELECT_EVENTS,
    SELECT_REMOVED_THROUGH,
    SELECT_TOTALS,
    SET_TOTALS,
    RecordStatements,
    count_events,
)
from reliable_channel.errors import EventsExpiredError
from reliable_channel.records import Changes, EventRecord
from reliable_channel.types import ChannelId, Nanoseconds


class EventLog:
    """Keeps each channel's events within their bounds.

    Args:
        dialect: Of the database.
        statements: Those of events.
        retention: The bounds.
    """

    def __init__(
        self, dialect: Dialect, statements: RecordStatements, retention: EventRetention
    ) -> None:
        self._count_events = count_events(dialect)
        self._record = statements.record
        self._retention = retention
        self._due_ns: dict[ChannelId, Nanoseconds] = {}

    def read(
        self, connection: Connection, channel_id: ChannelId, after: int, limit: int
    ) -> list[EventRecord]:
        """Return events with a larger sequence.

        Raises:
            EventsExpiredError: Some of them were removed.
        """
        removed = connection.scalar(SELECT_REMOVED_THROUGH, {"channel": channel_id})
        if removed is not None and after < removed:
            raise EventsExpiredError(after, removed + 1)
        page = {"channel": channel_id, "after": after, "limit": limit}
        rows = connection.execute(SELECT_EVENTS, page)
        return [cast("EventRecord", self._record(row)) for row in rows]

    def count_appended(
        self, cursor: Any, channel_id: ChannelId, changes: Changes
    ) -> EventTotals | None:
        """Bring the numbers of a log up to date after events were appended.

        Args:
            cursor: Of the driver itself, in the transaction that has written the events.
            channel_id: The channel.
            changes: What was written.

        Returns:
            The numbers; None where there is no event, or not all of them came after the newest.
        """
        sequences = [cast("int", key[0]) for kind, key in changes if kind is EventRecord]
        events = [record for record in changes.values() if isinstance(record, EventRecord)]
        if not events or len(events) < len(sequences):
            return None
        octets = sum(map(event_size, events))
        appended = (len(events), octets, max(sequences), channel_id, min(sequences))
        cursor.execute(self._count_events, appended)
        row = cursor.fetchone()
        return None if row is None else EventTotals(*row)

    def trim(self, writer: Connection, channel_id: ChannelId, totals: EventTotals | None) -> bool:
        """Remove what is beyond the bounds after events were written, as much as one transaction may.

        Args:
            writer: In the transaction that has written them.
            channel_id: The channel.
            totals: What ``count_appended`` returned.

        Returns:
            Whether more has to go, in another transaction.
        """
        if totals is None:  # some were replaced or deleted
            row = writer.execute(RECOUNT_EVENTS, {"channel": channel_id}).one()
            totals = EventTotals(*row)
        if self._retention.is_exceeded(totals) or self.is_due(channel_id):
            return self._remove_oldest(writer, channel_id, totals)
        return False

    def sweep(self, writer: Connection, channel_id: ChannelId) -> bool:
        """Remove what is beyond the bounds, whatever was written; as much as one transaction may.

        Returns:
            Whether more has to go, in another transaction.
        """
        totals = writer.execute(SELECT_TOTALS, {"channel": channel_id}).one_or_none()
        if totals is None:
            return False
        return self._remove_oldest(writer, channel_id, EventTotals(*totals))

    def is_due(self, channel_id: ChannelId) -> bool:
        """Say whether the channel's oldest event may be too old."""
        if self._retention.max_event_age_sec is None:
            return False
        return self._due_ns.get(channel_id, 0) <= time.time_ns()

    def forget(self, channel_id: ChannelId) -> None:
        """Know nothing of a channel any more: its rows are gone."""
        self._due_ns.pop(channel_id, None)

    def _remove_oldest(
        self, writer: Connection, channel_id: ChannelId, totals: EventTotals
    ) -> bool:
        oldest = _oldest_events(writer, channel_id)
        trimmed = self._retention.trim(totals, oldest, time.time_ns())
        self._due_ns[channel_id] = trimmed.due_ns
        if trimmed.totals != totals:
            kept = {
                "channel": channel_id,
                "count": trimmed.totals.count,
                "octets": trimmed.totals.octets,
                "through": trimmed.totals.removed_through,
            }
            writer.execute(DELETE_EVENTS, kept)
            writer.execute(SET_TOTALS, kept)
        return trimmed.has_more


def _oldest_events(
    connection: Connection, channel_id: ChannelId
) -> Iterator[tuple[int, int, Nanoseconds]]:
    """Give sequence, size and time of the oldest events, as many as one transaction may remove.

    Mostly one or two are asked for, and servers send all that was selected.
    """
    after = 0
    for limit in SWEEP_PAGES:
        page = {"channel": channel_id, "after": after, "limit": limit}
        for sequence, size, time_ns in connection.execute(SELECT_EVENT_SIZES, page).all():
            yield sequence, size, time_ns
            after = sequence
