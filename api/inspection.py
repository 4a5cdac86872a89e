"""``reliable-channel inspect``: what a database holds, as tables for people or as JSON for programs.

Reading is ``persistence.inspection``'s part; nothing here may change the database.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from persistence.inspection import ChannelReport, LedgerReport, StoreReport, inspect_store

DRIVEN: Final = {True: "yes", False: "no", None: "?"}
"""Whether a process drives the channel now, in words."""

WIDTH: Final = 400
"""Of lines in pipes and files, at most; there nothing has to be folded, and a table takes what it needs."""

UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"))
"""Of ages, the largest first; under the smallest in seconds."""


def run_inspect(url: str, *, as_json: bool) -> None:
    """Write what a database holds to standard output.

    Args:
        url: Of the database.
        as_json: One JSON object instead of tables.

    Raises:
        ConfigurationError: There is no such database, or its tables are not those of this release.
        StoreUnavailableError: It cannot be read.
    """
    report = inspect_store(url)
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = WIDTH
    if as_json:
        console.print(json.dumps(asdict(report), indent=2))
        return
    for line in lines_above(report):
        console.print(line)
    if report.channels:
        console.print(channel_table(report.channels))
    if report.ledgers:
        console.print(ledger_table(report.ledgers))


def lines_above(report: StoreReport) -> list[str]:
    """Return what stands above the tables."""
    count = len(report.channels)
    channels = "1 channel" if count == 1 else f"{count or 'no'} channels"
    return [report.database, f"schema {report.schema_revision}, {channels}"]


def channel_table(channels: tuple[ChannelReport, ...]) -> Table:
    """Return a table with a row for each channel."""
    table = Table()
    table.add_column("channel", overflow="fold")
    table.add_column("driven", no_wrap=True)
    for title in ("log", "events", "kept", "outgoing", "pending", "parity", "open", "oldest"):
        table.add_column(title, justify="right", no_wrap=True)
    for channel in channels:
        oldest = channel.oldest_unacknowledged
        table.add_row(
            channel.channel_id,
            DRIVEN[channel.driven],
            f"{channel.log_entries:,}",
            f"{channel.events:,}",
            decimal(channel.kept_bytes),
            f"{channel.outgoing_segments:,}",
            f"{channel.pending_segments:,}",
            f"{channel.parity_segments:,}",
            f"{channel.open_requests:,}",
            age(oldest.age_sec) if oldest else "",
        )
    return table


def ledger_table(ledgers: tuple[LedgerReport, ...]) -> Table:
    """Return a table with a row for each epoch budget."""
    table = Table()
    table.add_column("budget", overflow="fold")
    for title in ("epoch", "counted", "used now"):
        table.add_column(title, justify="right", no_wrap=True)
    for ledger in ledgers:
        used_now = 0 if ledger.is_over else ledger.used
        table.add_row(ledger.scope, str(ledger.epoch), f"{ledger.used:,}", f"{used_now:,}")
    return table


def age(seconds: float) -> str:
    """Return an age in its largest unit, rounded down."""
    for size, unit in UNITS:
        if abs(seconds) >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{int(seconds)} s"
