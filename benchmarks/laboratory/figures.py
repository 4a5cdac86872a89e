"""Which figures a grid gets, decided from what varies in it, and the numbers that go into them.

It must not look at names of grids, nor say what a figure means for a choice of settings.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias

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
    split,
)
from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.curves import drawn, residual_form
from benchmarks.laboratory.drawing import (
    MOST_SERIES,
    Line,
    Point,
    Scale,
    bands_chart,
    curves_chart,
    dots_chart,
    heat_chart,
    lines_chart,
)
from benchmarks.laboratory.measures import Measures
from benchmarks.laboratory.results import OTHER, REPAIR, STORE
from benchmarks.laboratory.summary import all_latencies, delivery, per_segment, percentile

Found: TypeAlias = Mapping[str, Measures]
Value: TypeAlias = Callable[[Measures, float], Point | None]
"""What a cell comes to at a place of an axis; None where it comes to nothing."""
Where: TypeAlias = tuple[float, float]
"""Loss and parity."""

MOST_ALIKE: Final = 8
"""Figures of one kind; a grid with more says so."""

MOST_ROWS: Final = 30
"""Cells in a figure with a row each."""

LATENCY_CELLS: Final = 4
"""For which the latencies are drawn."""

CURVE_PLACES: Final = 100
"""Of a distribution that is drawn."""

BROUGHT: Final = (
    ("first transmission", 0),
    ("second", 1),
    ("third", 2),
    ("later ones", 3),
    ("repair", 4),
    ("store", 5),
    ("other", 6),
)
"""What brings deliveries, and its colour."""

OPEN_TRIANGLES: Final = "open triangles: nothing was lost, the 95 % interval ends there"
INTERVALS: Final = "bars: 95 % intervals, channels as units"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A figure for the page."""

    name: str
    """Unique on the page; for links."""
    title: str
    caption: str
    """What is drawn, of how many channels."""
    svg: str


def figures(cells: Sequence[Shown], measures: Found) -> list[Picture]:
    """Return the figures of a grid.

    Args:
        cells: Of the grid, in its order; those without results are left out.
        measures: By key.
    """
    shown = [cell for cell in cells if cell.key in measures and measures[cell.key].channels]
    axes = axes_of(shown)
    if not shown:
        return []
    found: list[Picture] = []
    for axis in axes:
        found += _along(axis, shown, measures)
    if LOSS in axes and PARITY in axes:
        even = len(found) // 2 * 2  # in two columns, two maps are side by side
        found[even:even] = _heat_maps(shown, measures)
    if not any(picture.name.startswith("residual") for picture in found):
        found += _by_cell(shown, measures)
    if LOSS in axes or PARITY in axes:
        found += _tradeoffs(PARITY if PARITY in axes else LOSS, shown, measures)
    found += _latencies(shown, measures)
    found += _queues(shown, measures)
    return found


def _counted(cells: Iterable[Shown], measures: Found) -> str:
    """Return how many channels and deliveries a figure rests on."""
    keys = dict.fromkeys(cell.key for cell in cells)
    channels = [measures[key].channels for key in keys]
    owed = sum(measures[key].sums["owed"] for key in keys)
    each = (
        f"{min(channels):,}"
        if min(channels) == max(channels)
        else f"{min(channels):,} to {max(channels):,}"
    )
    return f"n = {each} channels a cell, {len(keys)} {'cell' if len(keys) == 1 else 'cells'}, {owed:,} deliveries owed"


# --- Along an axis -------------------------------------------------------------------------------


def delivered(measures: Measures, place: float) -> Point | None:
    """Return the delivery ratio with its interval."""
    if not measures.sums["owed"]:
        return None
    value, low, high = delivery(measures)
    return Point(place, value, low, high)


def not_delivered(measures: Measures, place: float) -> Point | None:
    """Return the share that was not delivered; where there was none, how much there may be."""
    if not measures.sums["owed"]:
        return None
    value, low, high = delivery(measures)
    if measures.sums["delivered"] == measures.sums["owed"]:
        return Point(place, 1 - low, 0, 1 - low, is_bound=True)
    return Point(place, 1 - value, 1 - high, 1 - low)


def transmissions(measures: Measures, place: float) -> Point | None:
    """Return all transmissions for each data segment."""
    value = measures.ratios["overhead"].value
    return Point(place, value, value, value) if value else None


def slowest_seconds(measures: Measures, place: float) -> Point | None:
    """Return within what time 95 % of the deliveries were made."""
    value = percentile(all_latencies(measures), 0.95)
    if value is None:
        return None
    seconds = max(value, 1) / 1000
    return Point(place, seconds, seconds, seconds)


def bytes_sent(measures: Measures, place: float) -> Point | None:
    """Return all bytes for each byte of payload."""
    value = measures.ratios["bytes"].value
    return Point(place, value, value, value) if value else None


def _along(axis: Axis, cells: Sequence[Shown], measures: Found) -> Iterator[Picture]:
    """Give the figures of an axis: those of one kind follow each other, to be compared."""
    series = series_along(cells, axis)
    panels = [
        _panel(axis, number, title, group, measures)
        for number, (title, group) in enumerate(_few(series))
    ]
    if axis in (LOSS, GROUP):
        for number, panel in enumerate(panels):
            yield _delivery(panel, measures, _note(series) if number == 0 else "")
    if axis is not BUDGET:
        for panel in panels:
            yield _residual(panel, measures)
    if axis is not LOSS:
        for give in (_cost, _slowness):
            yield from filter(None, (give(panel, measures) for panel in panels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Series of one figure."""

    name: str
    axis: Axis
    against: str
    """The end of the title."""
    scale: Scale
    group: Sequence[Series]
    counted: str


def _panel(axis: Axis, number: int, title: str, group: Sequence[Series], measures: Found) -> Panel:
    against = {
        LOSS: "the loss of copies",
        PARITY: "the parity rate",
        GROUP: "the size of the group",
        BUDGET: "the budget",
    }.get(axis, axis.title.partition(" (")[0])
    return Panel(
        name=f"{_slug(axis.name)}-{number}",
        axis=axis,
        against=f"{against}, {title}" if title else against,
        scale=Scale.of(axis, [place for one in group for place, _ in one.points]),
        group=group,
        counted=_counted([cell for one in group for _, cell in one.points], measures),
    )


def _delivery(panel: Panel, measures: Found, note: str) -> Picture:
    lines, form = _lines(panel.axis, panel.group, measures, delivered)
    y = Scale(title="deliveries made (%)", is_share=True)
    return Picture(
        name=f"delivery-{panel.name}",
        title=f"Delivery against {panel.against}",
        caption=_sentence("Deliveries made of those owed", INTERVALS, form, panel.counted, note),
        svg=lines_chart(f"delivery-{panel.name}", panel.scale, y, lines),
    )


def _residual(panel: Panel, measures: Found) -> Picture:
    lines, form = _lines(panel.axis, panel.group, measures, not_delivered)
    y = Scale(title="deliveries not made (%)", is_share=True, is_log=True)
    bounds = OPEN_TRIANGLES if any(p.is_bound for one in lines for p in one.points) else ""
    what = "Deliveries never made, on a log scale"
    return Picture(
        name=f"residual-{panel.name}",
        title=f"Residual loss against {panel.against}",
        caption=_sentence(what, INTERVALS, bounds, form, panel.counted),
        svg=lines_chart(f"residual-{panel.name}", panel.scale, y, lines),
    )


def _cost(panel: Panel, measures: Found) -> Picture | None:
    """Return what a place on an axis costs: transmissions, or bytes."""
    if panel.axis in (GROUP, PARITY):
        value, y = transmissions, "transmissions a data segment"
        what = "All transmissions of all participants to the data segments"
    else:
        value, y = bytes_sent, "bytes sent to bytes of payload"
        what = "Bytes of all transmissions to the bytes of the payloads"
    lines, _ = _lines(panel.axis, panel.group, measures, value)
    if not any(line.points for line in lines):
        return None
    return Picture(
        name=f"cost-{panel.name}",
        title=f"Overhead against {panel.against}",
        caption=_sentence(what, panel.counted),
        svg=lines_chart(f"cost-{panel.name}", panel.scale, Scale(title=y), lines),
    )


def _slowness(panel: Panel, measures: Found) -> Picture | None:
    """Return how long deliveries take."""
    lines, _ = _lines(panel.axis, panel.group, measures, slowest_seconds)
    if not any(line.points for line in lines):
        return None
    y = Scale(title="95 % delivered within (s)", is_log=_is_wide(lines))
    return Picture(
        name=f"slow-{panel.name}",
        title=f"Latency against {panel.against}",
        caption=_sentence("95th percentile of the time from send to delivery", panel.counted),
        svg=lines_chart(f"slow-{panel.name}", panel.scale, y, lines),
    )


def _is_wide(lines: Sequence[Line]) -> bool:
    values = [point.y for line in lines for point in line.points]
    return max(values) >= 20 * min(values)


def _lines(
    axis: Axis, group: Sequence[Series], measures: Found, value: Value
) -> tuple[list[Line], str]:
    """Return a line a series, with the closed form where there is one, and what that is."""
    found, about = [], dict[str, None]()
    for one in group:
        points = [value(measures[cell.key], place) for place, cell in one.points]
        kept = tuple(point for point in points if point is not None)
        form: tuple[tuple[float, float], ...] = ()
        fitting = residual_form(one.points[0][1], axis)
        if fitting is not None and value in (delivered, not_delivered):
            text, function = fitting
            about[text] = None
            form = drawn(function, axis, one.points[0][0], one.points[-1][0])
            lowest = min((p.low or p.y for p in kept), default=0.0) / 10
            if value is delivered:
                form = tuple((x, 1 - y) for x, y in form)
            else:  # a log scale has no room for what is far below anything measured
                form = tuple((x, y) for x, y in form if y > max(lowest, 1e-12))
        found.append(Line(one.name, kept, form))
    return found, "; ".join(about)


def _few(series: Sequence[Series]) -> list[tuple[str, list[Series]]]:
    return split(series, MOST_SERIES)[:MOST_ALIKE]


def _note(series: Sequence[Series]) -> str:
    number = len(split(series, MOST_SERIES))
    return f"the first {MOST_ALIKE} of {number} such figures" if number > MOST_ALIKE else ""


# --- Others --------------------------------------------------------------------------------------


def _heat_maps(cells: Sequence[Shown], measures: Found) -> Iterator[Picture]:
    """Give parity and loss against each other, for all else alike: maps of one kind in the same colours."""
    groups: dict[str, dict[Where, Shown]] = {}
    for one in series_along(cells, LOSS, PARITY):
        places = groups.setdefault(one.name, {})
        for _, cell in one.points:
            places[(LOSS.value(cell) or 0.0, PARITY.value(cell) or 0.0)] = cell
    wide = [
        (name, places)
        for name, places in groups.items()
        if min(len({at[way] for at in places}) for way in (0, 1)) > 1
    ][: MOST_ALIKE // 2]
    kinds: tuple[tuple[str, str, str, Callable[[Measures], float]], ...] = (
        (
            "heat-residual",
            "Deliveries not made",
            "Share of the owed deliveries, in percent; 0 is none at all",
            lambda found: 1 - found.ratios["delivery"].value,
        ),
        (
            "heat-again",
            "Retransmissions",
            "Retransmissions for each hundred data segments",
            lambda found: per_segment(found, "retransmissions"),
        ),
    )
    for kind, title, what, value in kinds:
        maps = [
            {at: value(measures[cell.key]) for at, cell in places.items()} for _, places in wide
        ]
        most = max((number for one in maps for number in one.values()), default=0.0) or 1.0
        same = "the same colours in all such maps" if len(wide) > 1 else ""
        for number, ((group, places), values) in enumerate(zip(wide, maps, strict=True)):
            yield Picture(
                name=f"{kind}-{number}",
                title=f"{title} by loss and parity{f', {group}' if group else ''}",
                caption=_sentence(what, same, _counted(places.values(), measures)),
                svg=_heat(f"{kind}-{number}", values, most),
            )


def _heat(name: str, values: Mapping[Where, float], most: float) -> str:
    """Return a map of shares, said in percent; it is darkest at the most."""
    columns = sorted({at[0] for at in values})
    rows = sorted({at[1] for at in values})
    table = [[values.get((column, row)) for column in columns] for row in rows]
    return heat_chart(
        name,
        (LOSS.title, [f"{column * 100:g}" for column in columns]),
        (PARITY.title.replace(" to ", " to\n"), [f"{row * 100:.3g}" for row in rows]),
        [[None if value is None else value / most for value in row] for row in table],
        [["" if value is None else f"{value * 100:.3g}" for value in row] for row in table],
    )


def _tradeoffs(axis: Axis, cells: Sequence[Shown], measures: Found) -> Iterator[Picture]:
    """Give residual loss against overhead; a line is what an axis does."""
    series = series_along(cells, axis)
    for number, (title, group) in enumerate(_few(series)):
        more = f", {title}" if title else ""
        lines = []
        for one in group:
            points = []
            for _, cell in one.points:
                point = not_delivered(
                    measures[cell.key], measures[cell.key].ratios["overhead"].value
                )
                if point is not None and point.x:
                    points.append(point)
            lines.append(Line(one.name, tuple(points)))
        if not any(line.points for line in lines):
            continue
        counted = _counted([cell for one in group for _, cell in one.points], measures)
        what = "more parity" if axis is PARITY else "more loss"
        values = [axis.text(place) for place, _ in group[0].points]
        name = f"tradeoff-{number}"
        yield Picture(
            name=name,
            title=f"Residual loss against overhead{more}",
            caption=_sentence(
                f"Each line goes from less to {what} ({', '.join(dict.fromkeys(values))})",
                OPEN_TRIANGLES,
                counted,
            ),
            svg=lines_chart(
                name,
                Scale(title="transmissions a data segment"),
                Scale(title="deliveries not made (%)", is_share=True, is_log=True),
                lines,
            ),
        )


def _by_cell(cells: Sequence[Shown], measures: Found) -> Iterator[Picture]:
    """Give the delivery ratio of each cell, the worst first."""
    rows = [(cell.name, point) for cell in cells if (point := delivered(measures[cell.key], 0.0))]
    rows.sort(key=lambda row: row[1].y)
    if not rows:
        return
    some = f"the {MOST_ROWS} lowest of {len(rows)}" if len(rows) > MOST_ROWS else ""
    yield Picture(
        name="delivery-by-cell",
        title="Delivery of each cell",
        caption=_sentence(
            "Deliveries made of those owed", INTERVALS, some, _counted(cells, measures)
        ),
        svg=dots_chart(
            "delivery-by-cell",
            Scale(title="deliveries made (%)", is_share=True),
            [(name, point) for name, point in rows[:MOST_ROWS]],
        ),
    )


def _latencies(cells: Sequence[Shown], measures: Found) -> Iterator[Picture]:
    """Give latencies by what brought the delivery, for cells from the smoothest to the hardest."""

    def hard(cell: Shown) -> float:
        latency = measures[cell.key].latency
        first = sum(latency.get(0, {}).values())
        return 1 - first / sum(sum(histogram.values()) for histogram in latency.values())

    able = sorted((cell for cell in cells if measures[cell.key].latency), key=hard)
    last = len(able) - 1
    places = {round(last * part / (LATENCY_CELLS - 1)) for part in range(LATENCY_CELLS)}
    for number, place in enumerate(sorted(places) if able else ()):
        cell, name = able[place], f"latency-{number}"
        yield Picture(
            name=name,
            title=f"Latency by what brought it: {cell.name}",
            caption=_sentence(
                "Share of the owed deliveries made within a time",
                f"{percent(hard(cell))} of those made needed more than each segment’s first transmission",
                _counted([cell], measures),
            ),
            svg=_latency(name, measures[cell.key]),
        )


def _latency(name: str, measures: Measures) -> str:
    """Return areas by what brought deliveries."""
    merged: dict[int, dict[int, int]] = {}
    for brought_by, histogram in measures.latency.items():
        colour = {STORE: 5, REPAIR: 4, OTHER: 6}.get(brought_by, min(brought_by, 3))
        into = merged.setdefault(colour, {})
        for value, number in histogram.items():
            into[value] = into.get(value, 0) + number
    everything = [value for histogram in merged.values() for value in histogram]
    places = _log_places(max(min(everything), 1), max(*everything, 2))
    owed = measures.sums["owed"] or sum(sum(found.values()) for found in merged.values())
    bands = [
        (text, colour, [share / owed for share in _up_to(merged[colour], places)])
        for text, colour in BROUGHT
        if colour in merged
    ]
    seconds = [place / 1000 for place in places]
    x = Scale(title="time from send to delivery (s)", is_log=True)
    return bands_chart(
        name, x, Scale(title="owed deliveries made (%)", is_share=True), seconds, bands
    )


def _log_places(low: float, high: float) -> list[float]:
    """Return places from half of the smallest value to a little over the largest, evenly on a log scale."""
    low, high = low / 2, max(high * 1.2, low * 10)
    return [low * (high / low) ** (n / CURVE_PLACES) for n in range(CURVE_PLACES + 1)]


def _up_to(histogram: Mapping[int, int], places: Sequence[float]) -> list[int]:
    """Return how many values are no larger than each place."""
    values = sorted(histogram)
    sums = [0, *accumulate(histogram[value] for value in values)]
    return [sums[bisect_right(values, place)] for place in places]


def _queues(cells: Sequence[Shown], measures: Found) -> Iterator[Picture]:
    """Give the waits for the epoch budget, where there are any."""
    waiting = [cell for cell in cells if max(measures[cell.key].queue, default=0) >= 1_000]
    if not waiting:
        return
    parts = [waiting[start : start + MOST_SERIES] for start in range(0, len(waiting), MOST_SERIES)]
    for number, part in enumerate(parts[: MOST_ALIKE // 2]):
        highest = max(max(measures[cell.key].queue) for cell in part) / 1000
        places = [highest * 1.02 * n / CURVE_PLACES for n in range(CURVE_PLACES + 1)]
        curves = []
        for cell in part:
            histogram = measures[cell.key].queue
            total = sum(histogram.values())
            shares = _up_to(histogram, [place * 1000 for place in places])
            curves.append(
                (cell.name, [(at, n / total) for at, n in zip(places, shares, strict=True)])
            )
        yield Picture(
            name=f"queue-{number}",
            title="Waits for the budget",
            caption=_sentence(
                "Share of the messages all of which was sent within a time",
                _counted(part, measures),
            ),
            svg=curves_chart(
                f"queue-{number}",
                Scale(title="time from send until all of it was sent (s)"),
                Scale(title="messages (%)", is_share=True),
                curves,
            ),
        )
    yield from _demand(cells, measures)


def demand(cell: Shown, measures: Measures) -> float | None:
    """Return what a sender wants to transmit in an epoch, as a share of its budget: data and parity.

    None where the cell has no limit, or no scenario.
    """
    if not isinstance(cell, Cell) or not cell.scenario.rate_limit.enabled:
        return None
    scenario, limit = cell.scenario, cell.scenario.rate_limit
    if not measures.sums["messages"] or not scenario.interval_ms:
        return None
    segments = (measures.sums["segments"] + measures.sums["parity"]) / measures.sums["messages"]
    senders = scenario.senders or scenario.participants
    messages = limit.epoch_period_sec * 1000 / scenario.interval_ms / senders
    return segments * messages / limit.messages_per_epoch


def _demand(cells: Sequence[Shown], measures: Found) -> Iterator[Picture]:
    queues: dict[float, dict[int, int]] = {}
    limited = []
    for cell in cells:
        place = demand(cell, measures[cell.key])
        if place is None or not measures[cell.key].queue:
            continue
        limited.append(cell)
        into = queues.setdefault(round(place, 6), {})
        for value, number in measures[cell.key].queue.items():
            into[value] = into.get(value, 0) + number
    if len(queues) < 2:
        return
    lines = []
    for text, share in (("half of the messages", 0.5), ("95 %", 0.95), ("99 %", 0.99)):
        points = []
        for place in sorted(queues):
            seconds = (percentile(queues[place], share) or 0) / 1000
            points.append(Point(place, seconds, seconds, seconds))
        lines.append(Line(text, tuple(points)))
    yield Picture(
        name="queue-demand",
        title="Waits against the demand",
        caption=_sentence(
            "Time until all of a message was sent, against what each sender wants to send in an epoch,"
            " as a share of its budget; cells of one demand together",
            "data and parity, without retransmissions and syncs",
            _counted(limited, measures),
        ),
        svg=lines_chart(
            "queue-demand",
            Scale(title="demand to budget (%)", is_share=True),
            Scale(title="time until all was sent (s)"),
            lines,
        ),
    )


def _sentence(*parts: str) -> str:
    return "; ".join(part for part in parts if part) + "."


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())
