"""What a grid says about choosing settings, in plain sentences with its own numbers.

Each answer names the cells it rests on. What a grid does not vary is not answered. It must not draw anything, nor say
what was not measured.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.laboratory.axes import (
    BUDGET,
    GROUP,
    LOSS,
    PARITY,
    Axis,
    Series,
    Shown,
    axes_of,
    percent,
    series_along,
)
from benchmarks.laboratory.figures import demand
from benchmarks.laboratory.measures import Measures
from benchmarks.laboratory.summary import all_latencies, delivery, per_segment, percentile

LEVELS: Final = (0.999, 0.99, 0.95, 0.9)
"""Delivery ratios asked for, the strictest first: of these the first that anything reaches."""

MOST_ANSWERS: Final = 12
"""To one question; a grid with more says so."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A sentence, and the names of the cells it rests on."""

    text: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, and what a grid answers."""

    title: str
    answers: tuple[Answer, ...]
    more: int = 0
    """Answers left out."""


def questions(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> list[Question]:
    """Return the questions that a grid answers.

    Args:
        cells: Of the grid; those without deliveries owed say nothing.
        measures: By key.
    """
    shown = [cell for cell in cells if cell.key in measures and measures[cell.key].sums["owed"]]
    found = [
        ("What loss is survived", list(_survived(shown, measures))),
        ("What parity buys", list(_parity(shown, measures))),
        ("What a group costs", list(_group(shown, measures))),
        ("What the rate limit costs", list(_limit(shown, measures))),
        ("What the other settings change", list(_others(shown, measures))),
        ("What was delivered", list(_overall(shown, measures))),
    ]
    return [
        Question(title, tuple(answers[:MOST_ANSWERS]), max(0, len(answers) - MOST_ANSWERS))
        for title, answers in found
        if answers
    ]


# --- Loss ----------------------------------------------------------------------------------------


def _survived(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    for one in series_along(cells, LOSS):
        names = tuple(cell.name for _, cell in one.points)
        yield Answer(_start(one.name) + _survives(one, measures), names)


def _survives(one: Series, measures: Mapping[str, Measures]) -> str:
    """Return up to what loss each level surely holds, and what comes after the last."""
    intervals = [(place, *delivery(measures[cell.key])) for place, cell in one.points]
    reached: dict[float, float] = {}
    for level in LEVELS:
        last = None
        for place, _, low, _ in intervals:
            if low < level:
                break
            last = place
        if last is not None:
            reached.setdefault(last, level)
    parts = [
        f"{percent(level)} up to a loss of {percent(at)}" for at, level in sorted(reached.items())
    ]
    most = max(reached, default=-1.0)
    place, value, low, high = next((at for at in intervals if at[0] > most), intervals[-1])
    measured = f"at {percent(place)} it was {exact(value)} ({between(low, high)})"
    if not parts:
        return f"at no loss that was tried were {percent(LEVELS[-1])} of the deliveries made for sure; {measured}."
    text = f"of the deliveries, at least this share was made: {', '.join(parts)}"
    if place <= most:
        return f"{text}, the largest that was tried; there it was {exact(value)} ({between(low, high)})."
    return f"{text}; {measured}."


# --- Parity --------------------------------------------------------------------------------------


def _parity(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    for one in series_along(cells, PARITY):
        (low, without), (high, with_it) = one.points[0], one.points[-1]
        before, after = measures[without.key], measures[with_it.key]
        base = "no parity" if not low else f"parity {percent(low)}"
        text = (
            f"parity {percent(high)} instead of {base} "
            f"{_sends(before, after)}, {_times(before, after)} and {_bytes(before, after)}"
            f"; deliveries made: {exact(delivery(before)[0])} → {exact(delivery(after)[0])}."
        )
        yield Answer(_start(one.name) + text, (without.name, with_it.name))


def _sends(before: Measures, after: Measures) -> str:
    a, b = (per_segment(measures, "retransmissions") * 100 for measures in (before, after))
    if a == b:
        return f"leaves retransmissions at {a:.3g} to 100 data segments"
    verb = "cuts" if b < a else "raises"
    return f"{verb} retransmissions from {a:.3g} to {b:.3g} for 100 data segments{_change(a, b)}"


def _times(before: Measures, after: Measures) -> str:
    a, b = (percentile(all_latencies(measures), 0.95) for measures in (before, after))
    if a is None or b is None:
        return "leaves nothing to time"
    if a == b:
        return f"leaves the 95th percentile of latency at {seconds(a)}"
    verb = "brings" if b < a else "moves"
    return f"{verb} the 95th percentile of latency from {seconds(a)} to {seconds(b)}"


def _bytes(before: Measures, after: Measures) -> str:
    a, b = (measures.ratios["bytes"].value for measures in (before, after))
    what = "bytes to a byte of payload"
    if not a or not b:
        a, b = (measures.ratios["overhead"].value for measures in (before, after))
        what = "transmissions to a data segment"
    return f"takes {b:.3g} {what} instead of {a:.3g}{_change(a, b)}"


def _change(before: float, after: float) -> str:
    if not before or round(100 * after / before) == 100:
        return ""
    return f" ({(after / before - 1) * 100:+.0f} %)".replace("-", "−")


# --- Groups, limits, the rest --------------------------------------------------------------------


def _group(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    for one in series_along(cells, GROUP):
        (few, small), (many, large) = one.points[0], one.points[-1]
        before, after = measures[small.key], measures[large.key]
        text = (
            f"from {few:g} to {many:g} participants, transmissions for each data segment went from "
            f"{before.ratios['overhead'].value:.3g} to {after.ratios['overhead'].value:.3g}, "
            f"repairs for each hundred deliveries from {_repairs(before)} to {_repairs(after)}, "
            f"the 95th percentile of latency from {_slow(before)} to {_slow(after)}, "
            f"and deliveries made from {exact(delivery(before)[0])} to {exact(delivery(after)[0])} "
            f"({between(*delivery(after)[1:])})."
        )
        yield Answer(_start(one.name) + text, (small.name, large.name))


def _repairs(measures: Measures) -> str:
    return f"{measures.ratios['repairs'].value * 100:.3g}"


def _slow(measures: Measures, share: float = 0.95) -> str:
    value = percentile(all_latencies(measures), share)
    return "none" if value is None else seconds(value)


def _limit(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    limited = [(demand(cell, measures[cell.key]), cell) for cell in cells]
    for wanted, cell in limited:
        found = measures[cell.key]
        if wanted is None or not found.queue:
            continue
        half, most = (percentile(found.queue, share) or 0 for share in (0.5, 0.95))
        text = (
            f"{cell.name}: with a demand of {percent(wanted)} of the budget, half of the messages "
            f"were sent within {seconds(half)} and 95 % within {seconds(most)}; "
            f"95 % of the deliveries were made within {_slow(found)}."
        )
        yield Answer(text, (cell.name,))


def _others(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    for axis in axes_of(cells):
        if axis in (LOSS, PARITY, GROUP, BUDGET):
            continue
        for one in series_along(cells, axis):
            yield _compared(axis, one, measures)


def _compared(axis: Axis, one: Series, measures: Mapping[str, Measures]) -> Answer:
    (low, first), (high, last) = one.points[0], one.points[-1]
    before, after = measures[first.key], measures[last.key]
    name = axis.title.partition(" (")[0]
    text = (
        f"{name} {high:g} instead of {low:g} {_sends(before, after)}, {_times(before, after)} and "
        f"{_bytes(before, after)}; deliveries made: "
        f"{exact(delivery(before)[0])} → {exact(delivery(after)[0])}."
    )
    return Answer(_start(one.name) + text, (first.name, last.name))


def _overall(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    """Say what there is to say where nothing varies along an axis, as in real traffic."""
    if axes_of(cells):
        return
    for cell in sorted(cells, key=lambda cell: delivery(measures[cell.key])[0]):
        found = measures[cell.key]
        value, low, high = delivery(found)
        text = (
            f"{cell.name}: {exact(value)} of {found.sums['owed']:,} deliveries were made "
            f"({between(low, high)}), half of them within {_slow(found, 0.5)} and "
            f"95 % within {_slow(found)}."
        )
        yield Answer(text, (cell.name,))


# --- Words ---------------------------------------------------------------------------------------


def _start(name: str) -> str:
    return f"With {name}: " if name else ""


def between(low: float, high: float) -> str:
    """Return an interval of shares."""
    return f"{exact(low)} to {exact(high)}"


def exact(share: float) -> str:
    """Return a share in percent, with digits enough to see how far from all it is; never 100 % for less."""
    for digits in (1, 2, 3, 4):
        text = f"{share * 100:.{digits}f}"
        if share == 1 or (float(text) != 100 and 1 - share > 20 * 10 ** -(digits + 2)):
            return f"{float(text):g} %" if share == 1 else f"{text} %"
    return "over 99.9999 %" if float(f"{share * 100:.4f}") == 100 else f"{share * 100:.4f} %"


def seconds(milliseconds: int) -> str:
    """Return a time for people."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1_000:.3g} s"
    return f"{milliseconds / 60_000:.3g} min"
