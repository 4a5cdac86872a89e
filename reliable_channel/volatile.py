"""A complete channel store in memory: what a node uses when it was given none.

It promises what any store promises, but for durability: it lives and dies with the object. It must
not import ``persistence``, do I/O, or know the protocol.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence (where a configuration has none).
"""

from __future__ import annotations

import time
from typing import Final, TypeAlias, cast

from reliable_channel.errors import (
    BudgetInUseError,
    ChannelExistsError,
    EventsExpiredError,
    StoreClosedError,
)
from reliable_channel.records import (
    Changes,
    EventRecord,
    LedgerRecord,
    Record,
    RecordKey,
    Snapshot,
)
from reliable_channel.store import lease_of
from reliable_channel.types import SECOND, ChannelId, Nanoseconds

MAX_EVENTS: Final = 100_000
"""Events kept of each channel unless said otherwise."""

MAX_EVENT_BYTES: Final = 64 << 20
"""Bytes of events kept of each channel unless said otherwise: two of the largest payloads."""

EVENT_OVERHEAD_BYTES: Final = 256
"""What an event without a payload counts, so that many small ones are bounded in bytes too."""

_Rows: TypeAlias = dict[type[Record], dict[RecordKey, Record]]


class VolatileStore:
    """Keeps the state of channels in dictionaries; implements ``ChannelStore``.

    Rows stay when the store is closed and opened again, as they would on a disk; they are gone with
    the object. A snapshot gives rows in the order in which they were first written. An object
    belongs to one event loop.

    Args:
        max_events: Events kept of each channel; older ones expire. At least 1.
        max_event_bytes: Bytes of events kept of each channel; the newest event always is, whatever
            its size.
        max_event_age_sec: How long events are kept, seconds; the newest event always is. None: as
            long as the other bounds allow.
    """

    def __init__(
        self,
        *,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_event_age_sec: int | None = None,
    ) -> None:
        self._max_events = max_events
        self._max_event_bytes = max_event_bytes
        self._max_event_age_sec = max_event_age_sec
        self._is_open = False
        self._held: set[ChannelId] = set()
        self._counted_in: set[str] = set()
        self._rows: dict[ChannelId, _Rows] = {}
        self._events: dict[ChannelId, _EventLog] = {}
        self._ledgers: dict[str, LedgerRecord] = {}

    async def open(self) -> None:
        """Make it ready; harmless when repeated."""
        self._is_open = True

    async def close(self) -> None:
        """Refuse further use and give all channels back; harmless when repeated."""
        self._is_open = False
        self._held.clear()
        self._counted_in.clear()

    async def acquire_channel(self, channel_id: ChannelId) -> Snapshot:
        """Take the channel and return its rows, but for the events.

        Raises:
            ChannelExistsError: It is taken already.
            StoreClosedError: The store is not open.
        """
        self._check_open()
        if channel_id in self._held:
            raise ChannelExistsError(channel_id, "on this store")
        self._held.add(channel_id)
        rows = self._rows.get(channel_id, {})
        return {kind: list(table.values()) for kind, table in rows.items() if table}

    async def release_channel(self, channel_id: ChannelId) -> None:
        """Give the channel back; harmless when it is not held."""
        self._held.discard(channel_id)

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Apply all changes.

        A ledger row belongs to no channel and is never deleted: the newer one stays.

        Raises:
            StoreClosedError: The store is not open; nothing was applied.
        """
        self._check_open()
        for (kind, key), record in changes.items():
            if kind is LedgerRecord:
                self._raise_ledger(cast("LedgerRecord | None", record))
            elif kind is EventRecord:
                log = self._event_log(channel_id)
                log.write(cast("int", key[0]), cast("EventRecord | None", record))
            else:
                table = self._rows.setdefault(channel_id, {}).setdefault(kind, {})
                if record is None:
                    table.pop(key, None)
                else:
                    table[key] = record
        if self._max_event_age_sec is not None and channel_id in self._events:
            self._events[channel_id].expire(time.time_ns() - self._max_event_age_sec * SECOND)

    async def read_events(
        self, channel_id: ChannelId, *, after: int, limit: int
    ) -> list[EventRecord]:
        """Return events with a larger sequence, ascending, at most ``limit``.

        Raises:
            EventsExpiredError: Some of them are no longer kept.
            StoreClosedError: The store is not open.
        """
        self._check_open()
        log = self._events.get(channel_id)
        return log.read(after, limit) if log else []

    async def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Return the ledger row of a scope, or None.

        Raises:
            StoreClosedError: The store is not open.
        """
        self._check_open()
        return self._ledgers.get(scope)

    async def acquire_ledger(self, scope: str) -> None:
        """Take a ledger, and those that go with it, for one node.

        Raises:
            BudgetInUseError: They are taken already.
            StoreClosedError: The store is not open.
        """
        self._check_open()
        lease = lease_of(scope)
        if lease in self._counted_in:
            raise BudgetInUseError(scope)
        self._counted_in.add(lease)

    async def release_ledger(self, scope: str) -> None:
        """Give the ledger back; harmless when it is not held."""
        self._counted_in.discard(lease_of(scope))

    async def purge_channel(self, channel_id: ChannelId) -> None:
        """Forget everything about a channel but its ledger: what was transmitted stays transmitted.

        Raises:
            StoreClosedError: The store is not open.
        """
        self._check_open()
        self._rows.pop(channel_id, None)
        self._events.pop(channel_id, None)

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreClosedError

    def _raise_ledger(self, record: LedgerRecord | None) -> None:
        if record is None:
            return
        known = self._ledgers.get(record.scope)
        if known is None or _age(known) < _age(record):
            self._ledgers[record.scope] = record

    def _event_log(self, channel_id: ChannelId) -> _EventLog:
        if channel_id not in self._events:
            self._events[channel_id] = _EventLog(self._max_events, self._max_event_bytes)
        return self._events[channel_id]


def _age(record: LedgerRecord) -> tuple[int, int, int]:
    """Return what grows with each state of a ledger."""
    return record.epoch, record.used, -record.in_flight - record.held


class _EventLog:
    """Events of one channel. Sequences grow without gaps; the oldest go first, the newest never."""

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: dict[int, EventRecord] = {}
        self._oldest = 0
        self._newest = 0
        self._bytes = 0

    def write(self, sequence: int, record: EventRecord | None) -> None:
        """Add, replace or delete the event at a position."""
        self._remove(sequence)
        if record is not None:
            self._events[sequence] = record
            self._bytes += _size(record)
            self._oldest = min(self._oldest, sequence) or sequence
            self._newest = max(self._newest, sequence)
        while self._is_over() and self._oldest < self._newest:
            self._remove_oldest()

    def expire(self, through_ns: Nanoseconds) -> None:
        """Remove the oldest events up to a time, Unix nanoseconds."""
        while self._oldest < self._newest:
            oldest = self._events.get(self._oldest)
            if oldest is not None and oldest.time_ns > through_ns:
                return
            self._remove_oldest()

    def read(self, after: int, limit: int) -> list[EventRecord]:
        """Return up to ``limit`` events that follow ``after``; raise when some of them are gone."""
        if after + 1 < self._oldest:
            raise EventsExpiredError(after, self._oldest)
        found: list[EventRecord] = []
        for sequence in range(after + 1, self._newest + 1):
            if len(found) >= limit:
                break
            if (record := self._events.get(sequence)) is not None:
                found.append(record)
        return found

    def _is_over(self) -> bool:
        return len(self._events) > self._max_events or self._bytes > self._max_bytes

    def _remove_oldest(self) -> None:
        self._remove(self._oldest)
        self._oldest += 1

    def _remove(self, sequence: int) -> None:
        if (record := self._events.pop(sequence, None)) is not None:
            self._bytes -= _size(record)


def _size(record: EventRecord) -> int:
    """Return what an event counts towards the bound in bytes."""
    return EVENT_OVERHEAD_BYTES + len(record.detail) + len(record.payload or b"")
