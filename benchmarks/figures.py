"""What every measurement returns: tables of figures, each beside its peer where there is one; and how they are shown.

A figure has one unit, and the median and spread of its rounds; its ratio to the peer is taken round by round, because
what else the machine does in a round meets both. It must not measure anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from rich.table import Table as RichTable

from benchmarks.rounds import Ratio

Better: TypeAlias = Literal["more", "less", "neither"]
"""What of a figure is better."""

MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """The rounds of one figure.

    Attributes:
        median: Of all rounds.
        low: The smallest.
        high: The largest.
        rounds: How many there were; the spread of one round is not known.
    """

    median: float
    low: float
    high: float
    rounds: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of what the rounds gave, at least one of them."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    def __str__(self) -> str:
        if self.rounds == 1:
            return number(self.median)
        return f"{number(self.median)} ({number(self.low)}–{number(self.high)})"


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured.

    Attributes:
        name: Says what, and is unique in its table.
        unit: Of the values.
        ours: What we reached.
        better: What of it is better.
        peer: Who stands beside us; empty for nobody.
        theirs: What the peer reached.
        ratio: Ours divided by the peer's, round by round.
    """

    name: str
    unit: str
    ours: Spread
    better: Better = "more"
    peer: str = ""
    theirs: Spread | None = None
    ratio: Ratio | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that are shown together.

    Attributes:
        title: Says how they were measured; unique in its benchmark.
        figures: One for each row.
        notes: What has to be known to read them, and what is missing and why.
    """

    title: str
    figures: tuple[Figure, ...]
    notes: tuple[str, ...] = ()


Part: TypeAlias = Table | str
"""What a benchmark gives: tables, or finished lines of Markdown for the documentation."""


# -- making them ----------------------------------------------------------------------------------


def figure(
    name: str,
    unit: str,
    ours: Sequence[float],
    *,
    better: Better = "more",
    peer: str = "",
    theirs: Sequence[float] = (),
) -> Figure:
    """Return a figure of what the rounds gave.

    Args:
        name: Says what.
        unit: Of the values.
        ours: One value for each round.
        better: What of it is better.
        peer: Who stands beside us.
        theirs: The peer's values of the same rounds; none where it took no part.
    """
    if not theirs:
        return Figure(name, unit, Spread.of(ours), better, peer)
    ratios = [own / max(other, 1e-12) for own, other in zip(ours, theirs, strict=True)]
    return Figure(
        name,
        unit,
        Spread.of(ours),
        better,
        peer,
        Spread.of(theirs),
        Ratio(statistics.median(ratios), min(ratios), max(ratios)),
    )


def rates(amount: float, seconds: Sequence[float]) -> list[float]:
    """Return how much of an amount each round did a second."""
    return [amount / max(spent, 1e-9) for spent in seconds]


def rate_figure(
    name: str,
    unit: str,
    amount: float,
    seconds: Sequence[float],
    *,
    peer: str = "",
    peer_seconds: Sequence[float] = (),
) -> Figure:
    """Return a figure of how much was done a second, from the seconds of the rounds.

    Args:
        name: Says what.
        unit: Of the rate.
        amount: What each round did, ours and the peer's.
        seconds: What each round took us.
        peer: Who stands beside us.
        peer_seconds: What each round took the peer.
    """
    theirs = rates(amount, peer_seconds)
    return figure(name, unit, rates(amount, seconds), peer=peer, theirs=theirs)


# -- showing them ---------------------------------------------------------------------------------


def number(value: float) -> str:
    """Return a number with about three digits."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.1 else f"{value:.2g}"


def shown_ratio(ratio: Ratio | None) -> str:
    """Return median and spread of a ratio."""
    if ratio is None:
        return ""
    middle, low, high = (number(value) for value in (ratio.median, ratio.low, ratio.high))
    return middle if low == high else f"{middle} ({low}–{high})"


def rendered(table: Table) -> RichTable:
    """Return a table as the terminal shows it; columns that all rows leave empty are left out."""
    rows = [
        (
            item.name,
            item.unit,
            str(item.ours),
            item.peer,
            "" if item.theirs is None else str(item.theirs),
            shown_ratio(item.ratio),
            "" if item.better == "neither" else item.better,
        )
        for item in table.figures
    ]
    titles = ("", "unit", "ours", "peer", "peer's", "ours ÷ peer's", "better")
    made = RichTable(
        title=table.title, caption="\n".join(table.notes) or None, caption_justify="left"
    )
    kept = [place for place in range(len(titles)) if place < 3 or any(row[place] for row in rows)]
    for place in kept:
        made.add_column(titles[place], justify="right" if place in (2, 4, 5) else "left")
    for row in rows:
        made.add_row(*(row[place] for place in kept))
    return made


def markdown(table: Table) -> Iterator[str]:
    """Give the lines of a table as the documentation shows it."""
    yield f"| {table.title} | unit | ours | peer | peer's | ours ÷ peer's |"
    yield "|---|---|---|---|---|---|"
    for item in table.figures:
        theirs = "" if item.theirs is None else str(item.theirs)
        cells = (item.name, item.unit, str(item.ours), item.peer, theirs, shown_ratio(item.ratio))
        yield f"| {' | '.join(cells)} |"


# -- JSON -----------------------------------------------------------------------------------------


def to_json(table: Table) -> dict[str, Any]:
    """Return a table as JSON values."""
    return asdict(table)


def from_json(values: Mapping[str, Any]) -> Table:
    """Return the table that ``to_json`` gave the values of.

    Raises:
        KeyError: Something is missing.
        TypeError: Something is there that no table has.
    """
    return Table(
        values["title"],
        tuple(map(_figure_from_json, values["figures"])),
        tuple(values["notes"]),
    )


def _figure_from_json(values: Mapping[str, Any]) -> Figure:
    theirs, ratio = values["theirs"], values["ratio"]
    return Figure(
        **{
            **values,
            "ours": Spread(**values["ours"]),
            "theirs": None if theirs is None else Spread(**theirs),
            "ratio": None if ratio is None else Ratio(**ratio),
        }
    )
