"""What a grid says about choosing settings, in plain sentences with its own numbers.

Each answer names the cells it rests on. What a grid does not vary is not answered. It must not draw anything, nor say
what was not measured.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from benchmarks.laboratory.axes import (
    BUDGET,
    GROUP,
    LOSS,
    PARITY,
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

MOST_ANSWERS: Final = 8
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
        Question(title, tuple(spread(answers)), max(0, len(answers) - MOST_ANSWERS))
        for title, answers in found
        if answers
    ]


def spread(answers: Sequence[Answer]) -> list[Answer]:
    """Return the first, the last and some between, where there are more than a page should say."""
    if len(answers) <= MOST_ANSWERS:
        return list(answers)
    step = (len(answers) - 1) / (MOST_ANSWERS - 1)
    return [answers[round(number * step)] for number in range(MOST_ANSWERS)]


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
    measured = f"at {percent(place)} they were {exact(value)} ({between(low, high)})"
    if not parts and value == 1:
        some = [place for place, ratio, _, _ in takewhile(lambda at: at[1] == 1, intervals)]
        return (
            f"all deliveries were made up to a loss of {percent(some[-1])}, "
            f"but so few channels show no more than that {exact(low)} are."
        )
    if not parts:
        return f"at no loss that was tried were {percent(LEVELS[-1])} of the deliveries made for sure; {measured}."
    text = f"of the deliveries, at least this share was made: {', '.join(parts)}"
    if place <= most:
        return f"{text}, the largest that was tried; there they were {exact(value)} ({between(low, high)})."
    return f"{text}; {measured}."


# --- Parity --------------------------------------------------------------------------------------


def _parity(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    for one in series_along(cells, PARITY):
        low, high = one.points[0][0], one.points[-1][0]
        change = f"parity {percent(high)} instead of {percent(low) if low else 'none'}"
        yield _compared(change, one, measures)


def _compared(change: str, one: Series, measures: Mapping[str, Measures]) -> Answer:
    """Return what the last cell of a series has that the first has not."""
    first, last = one.points[0][1], one.points[-1][1]
    pair = measures[first.key], measures[last.key]
    again = [per_segment(found, "retransmissions") * 100 for found in pair]
    slow = [_slow(found) for found in pair]
    sent = [found.ratios["bytes"].value for found in pair]
    made = [exact(delivery(found)[0]) for found in pair]
    parts = [
        f"{again[1]:.3g} retransmissions for 100 data segments {_before(f'{again[0]:.3g}', *again)}",
        f"95\N{NO-BREAK SPACE}% of those delivered within {slow[1]} {_before(slow[0])}",
        f"{sent[1]:.3g} bytes to a byte of payload {_before(f'{sent[0]:.3g}', *sent)}",
        f"{made[1]} of the deliveries made {_before(made[0])}",
    ]
    if not all(sent):
        del parts[2]
    text = f"{_start(one.name)}{change}: {', '.join(parts)}."
    return Answer(text, (first.name, last.name))


def _before(text: str, before: float = 0, after: float = 0) -> str:
    change = round(100 * after / before) - 100 if before else 0
    part = f" ({change:+d}\N{NO-BREAK SPACE}%)".replace("-", "−") if change else ""
    return f"instead of {text}{part}"


# --- Groups, limits, the rest --------------------------------------------------------------------


def _group(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    for one in series_along(cells, GROUP):
        (few, small), (many, large) = one.points[0], one.points[-1]
        before, after = measures[small.key], measures[large.key]
        text = (
            f"from {few:g} to {many:g} participants, transmissions for each data segment went from "
            f"{before.ratios['overhead'].value:.3g} to {after.ratios['overhead'].value:.3g}, "
            f"{_repairs(before, after)}"
            f"the 95th percentile of latency from {_slow(before)} to {_slow(after)}, "
            f"and deliveries made from {exact(delivery(before)[0])} to {exact(delivery(after)[0])} "
            f"({between(*delivery(after)[1:])})."
        )
        yield Answer(_start(one.name) + text, (small.name, large.name))


def _repairs(before: Measures, after: Measures) -> str:
    few, many = (found.ratios["repairs"].value * 100 for found in (before, after))
    if not few and not many:
        return ""
    return f"repairs for each hundred deliveries from {few:.3g} to {many:.3g}, "


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
            f"95\N{NO-BREAK SPACE}% of the deliveries were made within {_slow(found)}."
        )
        yield Answer(text, (cell.name,))


def _others(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> Iterator[Answer]:
    for axis in axes_of(cells):
        if axis in (LOSS, PARITY, GROUP, BUDGET):
            continue
        for one in series_along(cells, axis):
            name = axis.title.partition(" (")[0]
            change = f"{name} {one.points[-1][0]:g} instead of {one.points[0][0]:g}"
            yield _compared(change, one, measures)


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
    return f"with {name}: " if name else ""


def between(low: float, high: float) -> str:
    """Return an interval of shares."""
    return f"{exact(low)} to {exact(high)}"


def exact(share: float) -> str:
    """Return a share in percent, with digits enough to see how far from all it is; never 100 % for less."""
    for digits in (1, 2, 3, 4):
        text = f"{share * 100:.{digits}f}"
        if share == 1 or (float(text) != 100 and 1 - share > 20 * 10 ** -(digits + 2)):
            return (
                f"{float(text):g}\N{NO-BREAK SPACE}%"
                if share == 1
                else f"{text}\N{NO-BREAK SPACE}%"
            )
    return (
        "over 99.9999\N{NO-BREAK SPACE}%"
        if float(f"{share * 100:.4f}") == 100
        else f"{share * 100:.4f}\N{NO-BREAK SPACE}%"
    )


def seconds(milliseconds: int) -> str:
    """Return a time for people."""
    if milliseconds < 1_000:
        return f"{milliseconds}\N{NO-BREAK SPACE}ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1_000:.3g}\N{NO-BREAK SPACE}s"
    return f"{milliseconds / 60_000:.3g}\N{NO-BREAK SPACE}min"
