"""What can be broken on purpose in a simulation, to see that each check finds what it is for.

A breakage damages what a participant keeps, or what it finds when it starts again, or the order in which its effects
are carried out. The machines are never touched. It must not decide when anything happens.

Spec: none; docs/design.md for the order that some of these break.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from reliable_channel.records import (
    AcknowledgementRecord,
    Changes,
    ChannelRecord,
    CompletedRecord,
    DebtRecord,
    LedgerRecord,
    LogRecord,
    OutgoingRecord,
    ParityRecord,
    PendingRecord,
    Record,
    RequestRecord,
    rows_of,
)
from reliable_channel.types import ParticipantId

Found: TypeAlias = dict[type[Record], list[Record]]
"""The rows that a participant finds when it starts."""


def without(*kinds: type[Record]) -> Callable[[Found, ParticipantId], Found]:
    """Return what forgets all rows of some types."""
    return lambda found, _: {kind: rows for kind, rows in found.items() if kind not in kinds}


def with_channel(**values: object) -> Callable[[Found, ParticipantId], Found]:
    """Return what changes fields of the channel's row."""

    def change(found: Found, _: ParticipantId) -> Found:
        rows: list[Record] = [
            replace(row, **values)  # type: ignore[arg-type]
            for row in found.get(ChannelRecord, ())
        ]
        return {**found, ChannelRecord: rows}

    return change


def without_received(found: Found, sender_id: ParticipantId) -> Found:
    """Forget what others have sent and was delivered: copies of it pass the duplicate check."""
    pending = {row.message_id for row in rows_of(found, PendingRecord)}
    kept: list[Record] = [
        row
        for row in rows_of(found, LogRecord)
        if row.sender_id == sender_id or row.message_id in pending
    ]
    return {**without(CompletedRecord)(found, sender_id), LogRecord: kept}


def without_history(found: Found, _: ParticipantId) -> Found:
    """Forget that the log has an order: what is sent next names nothing before it."""
    unlogged: list[Record] = [replace(row, logged=False) for row in rows_of(found, LogRecord)]
    return {**with_channel(frontier=())(found, _), LogRecord: unlogged}


def without_keys(found: Found, _: ParticipantId) -> Found:
    """Forget the idempotency keys of requests."""
    rows: list[Record] = [replace(row, idempotency_key="") for row in rows_of(found, RequestRecord)]
    return {**found, RequestRecord: rows}


def without_open(found: Found, _: ParticipantId) -> Found:
    """Forget that nobody reported some transmissions before the process died: they may go out yet."""
    ledgers: list[Record] = [
        replace(row, in_flight=0, held=0) for row in rows_of(found, LedgerRecord)
    ]
    return {**found, LedgerRecord: ledgers}


def unlogged(changes: Changes, sender_id: ParticipantId) -> Changes:
    """Do not keep which messages of others were accepted, but for those that wait for more."""
    return {
        (kind, key): row
        for (kind, key), row in changes.items()
        if not isinstance(row, LogRecord)
        or row.sender_id == sender_id
        or changes.get((PendingRecord, key)) is not None
    }


def undeleted(changes: Changes, _: ParticipantId) -> Changes:
    """Keep what is owed although it no longer is."""
    return {key: row for key, row in changes.items() if key[0] is not DebtRecord or row is not None}


START_DAMAGE: Final[dict[str, Callable[[Found, ParticipantId], Found]]] = {
    "forget_budget": without(LedgerRecord),
    "forget_open_transmissions": without_open,
    "skip_duplicate_check": without_received,
    "forget_incomplete": without(PendingRecord, ParityRecord),
    "forget_requests": without(RequestRecord, OutgoingRecord, AcknowledgementRecord),
    "forget_keys": without_keys,
    "forget_wrap_time": with_channel(last_wrap_ns=0),
    "forget_sequence": with_channel(last_event_sequence=0),
    "forget_history": without_history,
}
"""What is wrong with the rows that a start finds."""

WRITE_DAMAGE: Final[dict[str, Callable[[Changes, ParticipantId], Changes]]] = {
    "forget_acknowledged": unlogged,
    "leave_rows": undeleted,
}
"""What is wrong with the rows that are kept."""

BREAKAGES: Final = (
    "publish_before_persist",
    "emit_before_persist",
    "never_start_again",
    *START_DAMAGE,
    *WRITE_DAMAGE,
)
"""All names."""
