"""What varies in a grid, found in the labels of its cells: axes, and series of cells that differ along one of them.

It must not look at measures, nor at the names of grids.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from benchmarks.laboratory.cell import Cell, Label


class Shown(Protocol):
    """What a report has to know of a cell."""

    @property
    def name(self) -> str:
        """For people; unique in its grid."""

    @property
    def key(self) -> str:
        """By which its measures are found."""

    @property
    def labels(self) -> Sequence[tuple[str, Label]]:
        """What sets it apart from the others of its grid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Something that is measured in numbers and differs between cells."""

    name: str
    title: str
    """With the unit, for the axis of a figure."""
    labels: tuple[str, ...]
    """Names that it goes by."""
    is_share: bool = False
    """Shown in percent."""
    is_log: bool = False

    def value(self, cell: Shown) -> float | None:
        """Return where a cell is on it; None where its labels do not say so."""
        for name, value in cell.labels:
            if name in self.labels and is_number(value):
                return float(value)
        return None

    def text(self, value: float) -> str:
        """Return a value for people."""
        return percent(value) if self.is_share else f"{value:g}"


LOSS: Final = Axis(
    name="loss",
    title="loss of copies (%)",
    labels=("loss", "faults.loss", "bursts.loss"),
    is_share=True,
)
PARITY: Final = Axis(
    name="parity",
    title="parity segments to data segments (%)",
    labels=("parity", "segmentation.parity_rate"),
    is_share=True,
)
GROUP: Final = Axis(
    name="group",
    title="participants",
    labels=("participants",),
    is_log=True,
)
BUDGET: Final = Axis(
    name="budget",
    title="budget (messages an epoch)",
    labels=("budget", "rate_limit.messages_per_epoch"),
    is_log=True,
)
KNOWN: Final = (LOSS, PARITY, GROUP, BUDGET)
"""Axes with figures of their own."""

NOT_AXES: Final = ("theory", "receivers")
"""Labels that say which closed form a cell is compared with."""

BURSTS: Final = "bursts.burst_ms"
"""The label that says that losses come in bursts, and how long these are."""

SOME_BURSTS: Final = "bursts.some"
"""Stands for it where nothing says how long they are."""

LOG_RATIO: Final = 20
"""An axis whose largest value is so many times its smallest is drawn on a log scale."""

SHORT: Final = {
    "setting": "",
    "theory": "form",
    "store.enabled": "store",
    "sds.enable_repair": "repair",
    "segmentation.parity_rate": "parity",
    "segmentation.parity_code": "code",
    "segmentation.enable_reed_solomon": "parity",
    BURSTS: "length of bursts",
    "bursts.loss": "loss",
    "faults.loss": "loss",
    "rate_limit.messages_per_epoch": "budget",
    "rate_limit.epoch_period_sec": "epoch",
    "store.loss": "store loss",
    "sds.bloom_capacity": "bloom capacity",
    "sds.max_retransmissions": "retransmissions",
}
"""Labels by what people call them; others go by the last part of their name."""

SHARES: Final = ("loss", "parity", "duplication", "reordering", "failure", "ephemeral")
"""Last parts of the names of labels that are shown in percent, and ``…_rate`` and ``…_loss``."""

UNITS: Final = {"_ms": " ms", "_sec": " s", "_bytes": " bytes"}
"""By the end of a label's name."""


def is_number(value: object) -> bool:
    """Tell whether a label is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def percent(value: float, digits: int = 3) -> str:
    """Return a share in percent, with so many digits that count."""
    shown = f"{value * 100:,.0f}" if abs(value) >= 1 else f"{value * 100:.{digits}g}"
    return f"{shown}\N{NO-BREAK SPACE}%"


def words(name: str) -> str:
    """Return what people call a label."""
    if name in SHORT:
        return SHORT[name]
    last = name.rpartition(".")[2]
    for end in UNITS:
        last = last.removesuffix(end)
    return last.replace("_", " ")


def label_text(name: str, value: Label) -> str:
    """Return a label for people: ``loss 5 %``, ``no store``, ``bursts of 0.5 s``."""
    called = words(name)
    if name == BURSTS and is_number(value):
        return f"bursts of {float(value) / 1000:g}\N{NO-BREAK SPACE}s"
    if name == SOME_BURSTS:
        return "losses in bursts"
    if isinstance(value, bool):
        return called if value else f"no {called}"
    if not isinstance(value, str):
        last = name.rpartition(".")[2]
        if last in SHARES or last.endswith(("_rate", "_loss")):
            return (
                f"no {called}" if called == "parity" and not value else f"{called} {percent(value)}"
            )
        unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
        return f"{called} {value:g}{unit}"
    return f"{called} {value}".strip()


def axes_of(cells: Iterable[Shown]) -> list[Axis]:
    """Return the axes that vary over cells: the known first, then others in the order of the labels."""
    cells = list(cells)
    found = [axis for axis in KNOWN if len(_values(axis, cells)) > 1]
    taken = {name for axis in KNOWN for name in axis.labels} | set(NOT_AXES)
    for name in dict.fromkeys(name for cell in cells for name, _ in cell.labels):
        if name in taken:
            continue
        values = _values(Axis(name=name, title=name, labels=(name,)), cells)
        if len(values) > 1:
            unit = next(
                (f" ({unit.strip()})" for end, unit in UNITS.items() if name.endswith(end)), ""
            )
            is_log = min(values) > 0 and max(values) >= LOG_RATIO * min(values)
            title = f"{words(name) or name}{unit}"
            found.append(Axis(name=name, title=title, labels=(name,), is_log=is_log))
    return found


def _values(axis: Axis, cells: Iterable[Shown]) -> set[float]:
    return {value for cell in cells if (value := axis.value(cell)) is not None}


@dataclass(frozen=True, slots=True)
class Series:
    """Cells that differ along one axis and are alike in all else."""

    name: str
    """What sets it apart from the other series; empty where there is one."""
    labels: tuple[tuple[str, Label], ...]
    """What its cells have in common."""
    points: tuple[tuple[float, Shown], ...]
    """In the order of the axis, each place once."""


def told_apart(cell: Shown) -> tuple[tuple[str, Label], ...]:
    """Return the labels of a cell, with its bursts and its group where only its scenario has them.

    Sweeps of one grid may differ in these alone: without them their cells would look alike.
    """
    labels = tuple(cell.labels)
    names = {name for name, _ in labels}
    if not isinstance(cell, Cell):
        is_bursty = BURSTS not in names and any(name.startswith("bursts.") for name in names)
        return (*labels, (SOME_BURSTS, True)) if is_bursty else labels
    scenario = cell.scenario
    if scenario.bursts is not None and BURSTS not in names:
        labels += ((BURSTS, scenario.bursts.burst_ms),)
    if "participants" not in names:
        labels += (("participants", scenario.participants),)
    return labels


def series_along(cells: Iterable[Shown], *axes: Axis) -> list[Series]:
    """Return the series of two cells or more along an axis, in the order of the grid.

    Args:
        cells: Of a grid.
        axes: The first is the one; cells of a series may differ along the others, too.
    """
    own = {name for axis in axes for name in axis.labels}
    groups: dict[tuple[tuple[str, Label], ...], dict[tuple[float, ...], Shown]] = {}
    for cell in cells:
        place = tuple(axis.value(cell) for axis in axes)
        if None in place:
            continue
        rest = tuple(entry for entry in told_apart(cell) if entry[0] not in own)
        groups.setdefault(rest, {}).setdefault(tuple(float(x or 0) for x in place), cell)
    found = {
        rest: points for rest, points in groups.items() if len({place[0] for place in points}) > 1
    }
    names = _names(list(found))
    return [
        Series(
            names[place],
            rest,
            tuple((at[0], cell) for at, cell in sorted(points.items(), key=lambda item: item[0])),
        )
        for place, (rest, points) in enumerate(found.items())
    ]


def _names(groups: list[tuple[tuple[str, Label], ...]]) -> list[str]:
    """Return what tells groups of labels apart."""
    if len(groups) < 2:
        return [""] * len(groups)
    common = set(groups[0]).intersection(*map(set, groups[1:]))
    some_burst = any(name.startswith("bursts.") for group in groups for name, _ in group)
    found = []
    for group in groups:
        texts = [label_text(*entry) for entry in group if entry not in common]
        if some_burst and not any(name.startswith("bursts.") for name, _ in group):
            texts.append("independent losses")
        found.append(", ".join(texts) or "as the grid's base")
    return found


def split(series: Sequence[Series], most: int) -> list[tuple[str, list[Series]]]:
    """Return series in groups of no more than ``most``, with what each group has in common.

    Within a group one label varies: of those with few enough values, the one with most.
    """
    if len(series) <= most:
        return [("", list(series))]
    axis_of = {name: axis.name for axis in KNOWN for name in axis.labels}
    kinds = dict.fromkeys(axis_of.get(name, name) for one in series for name, _ in one.labels)
    counts = {kind: len({_value_of(kind, axis_of, one.labels) for one in series}) for kind in kinds}
    fitting = {kind: number for kind, number in counts.items() if number <= most}
    within = max(fitting, key=lambda kind: fitting[kind]) if fitting else ""
    groups: dict[tuple[tuple[str, Label], ...], list[Series]] = {}
    for one in series:
        rest = tuple(entry for entry in one.labels if axis_of.get(entry[0], entry[0]) != within)
        groups.setdefault(rest, []).append(one)
    titles = _names(list(groups))
    found = []
    for title, (_, members) in zip(titles, groups.items(), strict=True):
        short = _names([one.labels for one in members])
        renamed = [
            Series(name, one.labels, one.points) for name, one in zip(short, members, strict=True)
        ]
        found += [(title, renamed[at : at + most]) for at in range(0, len(renamed), most)]
    return found


def _value_of(
    kind: str, axis_of: Mapping[str, str], labels: Iterable[tuple[str, Label]]
) -> Label | None:
    return next((value for name, value in labels if axis_of.get(name, name) == kind), None)
