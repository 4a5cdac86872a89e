"""What has to be done to a database that was restored from a backup, before a node uses it again.

A backup does not know what its owner did after it was made: which transmissions were counted, and which wrap times were
given. So all budgets are marked as used up for their epoch, and the wrap times of all channels go on from now. Nothing
here may take a channel from a process that drives it.

Spec: RELIABLE-CHANNEL-API, Rate limiting; 17/WAKU2-RLN-RELAY.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from persistence.inspection import (
    StoreReport,
    database_of,
    inspect_store,
    ledger_period,
    read_only,
    revision_in,
)
from persistence.sql import SqlStore
from reliable_channel.config import RATE_LIMIT_BOUNDS
from reliable_channel.records import (
    Changes,
    ChannelRecord,
    LedgerRecord,
    Snapshot,
    key_of,
    rows_of,
)
from reliable_channel.types import SECOND, ChannelId, Nanoseconds

USED_UP: Final = int(RATE_LIMIT_BOUNDS["messages_per_epoch"][1])
"""As many transmissions as any epoch may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoration:
    """What was marked."""

    channels: tuple[ChannelId, ...]
    """Their wrap times go on from now."""
    budgets: dict[str, Nanoseconds]
    """By scope, when the budget is there again, Unix time."""
    unmarked: tuple[str, ...]
    """Scopes that do not name the length of an epoch; this release has none."""


async def mark_restored(url: str, *, epoch_periods: Iterable[int] = ()) -> Restoration:
    """Mark all budgets as used up for their epoch, and have wrap times go on from now; tables are brought up to date.

    Running it again is harmless: it marks the epoch of that time.

    Args:
        url: As for ``open_store``.
        epoch_periods: Lengths of epochs, seconds, of node budgets that the backup need not know yet.

    Raises:
        ConfigurationError: The URL is unusable, there is no such database, or its tables are not ours.
        ChannelExistsError: A process drives a channel; all that is done by then is harmless.
        StoreUnavailableError: The database cannot be read or written.
    """
    await asyncio.to_thread(_check, url)
    async with SqlStore(url) as store:
        report = await asyncio.to_thread(inspect_store, url)
        taken = {
            channel.channel_id: await store.acquire_channel(channel.channel_id)
            for channel in report.channels
        }
        now = time.time_ns()
        marked = _used_up(report, epoch_periods, now)
        await store.commit("", {(LedgerRecord, key_of(record)): record for record in marked})
        for channel_id, snapshot in taken.items():
            await store.commit(channel_id, _moved_on(snapshot, now))
    scopes = {record.scope for record in marked}
    return Restoration(
        channels=tuple(taken),
        budgets={record.scope: _end(record) for record in marked},
        unmarked=tuple(ledger.scope for ledger in report.ledgers if ledger.scope not in scopes),
    )


def _check(url: str) -> None:
    """Do nothing if the database is ours: opening a store would make what is not there."""
    backend = database_of(url)
    read_only(backend, lambda connection: revision_in(backend, connection))


def _used_up(
    report: StoreReport, epoch_periods: Iterable[int], now: Nanoseconds
) -> list[LedgerRecord]:
    """Return ledgers whose epoch, this one or a later one that was counted already, has nothing left."""
    epochs = {f"node:{period}": 0 for period in epoch_periods}
    epochs |= {ledger.scope: ledger.epoch for ledger in report.ledgers}
    return [
        LedgerRecord(scope=scope, epoch=max(epoch, now // (period * SECOND)), used=USED_UP)
        for scope, epoch in epochs.items()
        if (period := ledger_period(scope)) is not None
    ]


def _end(record: LedgerRecord) -> Nanoseconds:
    return (record.epoch + 1) * (ledger_period(record.scope) or 0) * SECOND


def _moved_on(snapshot: Snapshot, now: Nanoseconds) -> Changes:
    """Return the change after which no wrap time before now is given."""
    changes: Changes = {}
    for record in rows_of(snapshot, ChannelRecord):
        moved = replace(record, last_wrap_ns=max(now, record.last_wrap_ns))
        changes[ChannelRecord, key_of(record)] = moved
    return changes
