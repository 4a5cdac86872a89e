"""What has to be done to a database that was restored from a backup, before a node uses it again.

A backup does not know what its owner did after it was made: which transmissions were counted, and which wrap times were
given. So all budgets are marked as used up for their epoch, and the wrap times of all channels go on from now. Budgets
that were counted by a clock that was ahead can be brought back to now. Nothing here may take a channel, or a budget,
from a process that uses it.

Spec: RELIABLE-CHANNEL-API, Rate limiting; 17/WAKU2-RLN-RELAY.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection

from persistence.inspection import (
    LedgerReport,
    StoreReport,
    database_of,
    inspect_store,
    ledger_period,
    read_only,
    revision_in,
)
from persistence.sql import SqlStore
from persistence.statements import SET_LEDGER
from reliable_channel.config import RATE_LIMIT_BOUNDS
from reliable_channel.records import (
    Changes,
    ChannelRecord,
    LedgerRecord,
    Snapshot,
    key_of,
    rows_of,
)
from reliable_channel.store import lease_of
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
    ahead: dict[str, Nanoseconds] = field(default_factory=dict)
    """By scope, when the epoch begins, after now, that the budget was counted in; it was left or forgotten."""


async def mark_restored(
    url: str, *, epoch_periods: Iterable[int] = (), forget_future: bool = False
) -> Restoration:
    """Mark all budgets as used up for their epoch, and have wrap times go on from now; tables are brought up to date.

    Running it again is harmless: it marks the epoch of that time.

    Args:
        url: As for ``open_store``.
        epoch_periods: Lengths of epochs, seconds, of node budgets that the backup need not know yet.
        forget_future: Budgets that were counted in an epoch that begins after now are set back to the epoch of now,
            used up. It is for a clock that was ahead and is right now.

    Raises:
        BudgetInUseError: A node counts in a budget; nothing was done.
        ConfigurationError: The URL is unusable, there is no such database, or its tables are not ours.
        ChannelExistsError: A process drives a channel; all that is done by then is harmless.
        StoreUnavailableError: The database cannot be read or written.
    """
    await asyncio.to_thread(_check, url)
    async with SqlStore(url) as store:
        report = await asyncio.to_thread(inspect_store, url)
        scopes = [item.scope for item in report.ledgers] + [*map(_scope, epoch_periods)]
        for scope in {lease_of(scope): scope for scope in scopes}.values():
            await store.acquire_ledger(scope)
        taken = {
            channel.channel_id: await store.acquire_channel(channel.channel_id)
            for channel in report.channels
        }
        now = time.time_ns()
        if forget_future:
            await _set_back(store, report, now)
        marked = _used_up(report, epoch_periods, now, forget_future=forget_future)
        await store.commit("", {(LedgerRecord, key_of(record)): record for record in marked})
        for channel_id, snapshot in taken.items():
            await store.commit(channel_id, _moved_on(snapshot, now))
    done = {record.scope for record in marked}
    return Restoration(
        channels=tuple(taken),
        budgets={record.scope: _end(record) for record in marked},
        unmarked=tuple(ledger.scope for ledger in report.ledgers if ledger.scope not in done),
        ahead={ledger.scope: begin for ledger, begin, _ in _ahead(report, now)},
    )


def _check(url: str) -> None:
    """Do nothing if the database is ours: opening a store would make what is not there."""
    backend = database_of(url)
    read_only(backend, lambda connection: revision_in(backend, connection))


def _scope(period: int) -> str:
    return f"node:{period}"


def _ahead(
    report: StoreReport, now: Nanoseconds
) -> Iterator[tuple[LedgerReport, Nanoseconds, int]]:
    """Give ledgers of epochs that begin after now, when those begin, and the epoch of now."""
    for ledger in report.ledgers:
        period = (ledger.period_sec or 0) * SECOND
        if period and ledger.epoch * period > now:
            yield ledger, ledger.epoch * period, now // period


async def _set_back(store: SqlStore, report: StoreReport, now: Nanoseconds) -> None:
    """Set what is ahead back to the epoch of now, used up; a commit would keep the later one."""
    rows = [
        {"of": ledger.scope, "now_in": epoch, "now_used": USED_UP}
        for ledger, _, epoch in _ahead(report, now)
    ]
    if rows:
        database = store.opened()

        def set_back(writer: Connection) -> None:
            writer.execute(SET_LEDGER, rows)

        await database.run(database.write, set_back)


def _used_up(
    report: StoreReport,
    epoch_periods: Iterable[int],
    now: Nanoseconds,
    *,
    forget_future: bool,
) -> list[LedgerRecord]:
    """Return ledgers whose epoch, this one or a later one that was counted already, has nothing left."""
    known = {
        _scope(period): LedgerRecord(scope=_scope(period), epoch=0, used=0)
        for period in epoch_periods
    }
    known |= {
        ledger.scope: LedgerRecord(
            scope=ledger.scope,
            epoch=ledger.epoch,
            used=ledger.used,
            in_flight=ledger.in_flight,
            held=ledger.held,
        )
        for ledger in report.ledgers
    }
    marked = []
    for record in known.values():
        period = ledger_period(record.scope)
        if period is None:
            continue
        present = now // (period * SECOND)
        if (
            record.epoch < present
        ):  # what was open then counts in this epoch at most, and nothing is left of it
            record = LedgerRecord(scope=record.scope, epoch=present, used=USED_UP)
        epoch = present if forget_future else record.epoch
        marked.append(replace(record, epoch=epoch, used=USED_UP))
    return marked


def _end(record: LedgerRecord) -> Nanoseconds:
    return (record.epoch + 1) * (ledger_period(record.scope) or 0) * SECOND


def _moved_on(snapshot: Snapshot, now: Nanoseconds) -> Changes:
    """Return the change after which no wrap time before now is given."""
    changes: Changes = {}
    for record in rows_of(snapshot, ChannelRecord):
        moved = replace(record, last_wrap_ns=max(now, record.last_wrap_ns))
        changes[ChannelRecord, key_of(record)] = moved
    return changes
