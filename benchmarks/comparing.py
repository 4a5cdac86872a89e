"""Two runs side by side: what changed between two commits, and what is within the spread.

Where a figure has a peer in both runs, their ratios are compared, since the machine may have been faster in one of
them; otherwise the figures themselves. Two are told apart only if the ranges of their rounds do not meet.

It must not measure anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.table import Table as RichTable

from benchmarks.figures import Figure, Spread, from_json, number, shown_ratio
from benchmarks.rounds import Ratio

WITHIN: Final = "within the spread"
UNKNOWN: Final = "one round, no spread"


@dataclass(frozen=True, slots=True)
class Pair:
    """One figure of both runs.

    Attributes:
        benchmark: Its name.
        title: Of the table.
        first: Of the first run.
        second: Of the second.
    """

    benchmark: str
    title: str
    first: Figure
    second: Figure

    @property
    def change(self) -> float:
        """Second divided by first: the ratios to the peer where both have one, otherwise the figures."""
        first, second = self._compared()
        return second.median / max(first.median, 1e-12)

    @property
    def verdict(self) -> str:
        """Say what the change means."""
        first, second = self._compared()
        if min(self.first.ours.rounds, self.second.ours.rounds) == 1:
            return UNKNOWN
        if first.low <= second.high and second.low <= first.high:
            return WITHIN
        is_more = second.median > first.median
        if self.first.better == "neither":
            return "more" if is_more else "less"
        return "better" if is_more == (self.first.better == "more") else "worse"

    @property
    def has_ratios(self) -> bool:
        """Whether the ratios to the same peer are compared."""
        return (
            self.first.peer == self.second.peer
            and self.first.ratio is not None
            and self.second.ratio is not None
        )

    def _compared(self) -> tuple[Spread | Ratio, Spread | Ratio]:
        if self.has_ratios and self.first.ratio and self.second.ratio:
            return self.first.ratio, self.second.ratio
        return self.first.ours, self.second.ours


def figures_of(run: Mapping[str, Any]) -> dict[tuple[str, str, str, str], Figure]:
    """Return every figure of a run by benchmark, table, name and unit.

    Raises:
        KeyError: It is not what ``--json`` writes.
        TypeError: The same.
    """
    return {
        (benchmark, table.title, item.name, item.unit): item
        for benchmark, parts in run["benchmarks"].items()
        for table in map(from_json, parts["tables"])
        for item in table.figures
    }


def pairs(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[Pair]:
    """Give every figure that both runs have, in the order of the first."""
    others = figures_of(second)
    for key, figure in figures_of(first).items():
        if key in others:
            yield Pair(key[0], key[1], figure, others[key])


def only_in_one(first: Mapping[str, Any], second: Mapping[str, Any]) -> int:
    """Return how many figures only one of the runs has."""
    return len(figures_of(first).keys() ^ figures_of(second).keys())


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Give a line for each thing beside the commit that was not the same in both runs."""
    for group in ("machine", "versions"):
        names = {**first[group], **second[group]}
        for name in names:
            before, after = first[group].get(name), second[group].get(name)
            if before != after:
                yield f"{name}: {before} and {after}"
    for name, run in (("A", first), ("B", second)):
        loads = " to ".join(str(run["load"][when][:1]).strip("[]") for when in ("before", "after"))
        yield f"load of {name}: {loads}"


def described(run: Mapping[str, Any]) -> str:
    """Return which commit a run is of, and when it was."""
    commit = run["commit"]
    changed = " with changes" if commit["changed"] else ""
    return f"{commit['id'][:12] or 'no commit'}{changed}, {run['time']}"


def rendered(found: list[Pair]) -> Iterator[RichTable]:
    """Give a table for each table that both runs have."""
    for benchmark, title in dict.fromkeys((pair.benchmark, pair.title) for pair in found):
        made = RichTable(title=f"{benchmark}: {title}")
        for name in ("", "unit"):
            made.add_column(name)
        for name in ("A", "B", "A ÷ peer", "B ÷ peer", "B ÷ A"):
            made.add_column(name, justify="right")
        made.add_column("")
        for pair in found:
            if (pair.benchmark, pair.title) == (benchmark, title):
                made.add_row(*_cells(pair))
        yield made


def _cells(pair: Pair) -> tuple[str, ...]:
    ratios = (pair.first.ratio, pair.second.ratio) if pair.has_ratios else (None, None)
    return (
        pair.first.name,
        pair.first.unit,
        str(pair.first.ours),
        str(pair.second.ours),
        *map(shown_ratio, ratios),
        number(pair.change),
        pair.verdict,
    )
