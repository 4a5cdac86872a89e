"""``reliable-channel restored``: make a database that was restored from a backup safe to use.

Marking is ``persistence.restoration``'s part; nothing here may change the database.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import typer

from persistence.restoration import Restoration, mark_restored
from reliable_channel.types import SECOND, Nanoseconds


def run_restored(url: str, epoch_period_sec: int | None, *, forget_future: bool = False) -> None:
    """Mark a database as restored and say what that means.

    Args:
        url: Of the database.
        epoch_period_sec: Length of an epoch, seconds, of a budget that the backup need not know; None where there is
            none.
        forget_future: Set budgets of epochs that begin after now back to now.

    Raises:
        BudgetInUseError: A node counts in a budget of it.
        ConfigurationError: There is no such database, or its tables are not ours.
        ChannelExistsError: A process drives a channel of it.
        StoreUnavailableError: It cannot be read or written.
    """
    periods = () if epoch_period_sec is None else (epoch_period_sec,)
    done = asyncio.run(mark_restored(url, epoch_periods=periods, forget_future=forget_future))
    for line in lines_of(done, forget_future=forget_future):
        typer.echo(line)


def lines_of(done: Restoration, *, forget_future: bool = False) -> Iterator[str]:
    """Give what is to be said."""
    yield f"channels: {len(done.channels)}; their wrap times go on from now"
    for scope, until in done.budgets.items():
        yield f"budget {scope}: used up until {moment(until)}"
    for scope, begin in done.ahead.items():
        if forget_future:
            yield f"budget {scope}: was counted in an epoch that begins at {moment(begin)}; forgotten"
        else:
            yield (
                f"budget {scope}: was counted in an epoch that begins only at {moment(begin)}; "
                "if the clock is right, repeat this with --forget-future"
            )
    for scope in done.unmarked:
        yield f"budget {scope}: says no period, left as it is"
    if not done.budgets:
        yield (
            "the backup counts in no epoch budget; if a rate limit was switched on since, "
            "repeat this with its --epoch-period-sec"
        )


def moment(time_ns: Nanoseconds) -> str:
    """Return a time in words; times that a calendar does not have as seconds since 1970."""
    try:
        return f"{datetime.fromtimestamp(time_ns // SECOND, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_ns // SECOND} s since 1970"
