"""Draws charts as SVG: lines with intervals, bands, heat maps, dots; the same bytes for the same numbers.

Colours are CSS variables with a value for light pages, so that a page in dark colours can set others; texts are texts.
Lines differ by colour, marker and dashes. It must not know cells or measures.

Spec: none of its own; matplotlib.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from benchmarks.laboratory.axes import Axis

TEXT, MUTED, LINE = "#191c20", "#565d67", "#d9dce0"
SERIES: Final = ("#0b62b0", "#c8541a", "#0a7350", "#9a3f8c", "#8a6a00", "#4a4f57")
BANDS: Final = ("#0b62b1", "#5b9de7", "#a9cdf1", "#d3e4f7", "#c8541b", "#9a3f8d", "#868d97")
"""Of deliveries by the first, second, third, a later transmission; by repair, by the store, by something else."""

VARIABLES: Final = {
    TEXT: "--text",
    MUTED: "--muted",
    LINE: "--line",
    **{colour: f"--series-{place}" for place, colour in enumerate(SERIES)},
    **{colour: f"--band-{place}" for place, colour in enumerate(BANDS)},
}
"""What the page calls each colour."""

MARKERS: Final = "os^Dvp"
DASHES: Final = (
    "-",
    (0, (5, 1.5)),
    (0, (2, 1.5)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (1, 1)),
    (0, (8, 2)),
)
MOST_SERIES: Final = len(SERIES)

WIDTH, HEIGHT = 5.0, 3.4
"""Of a chart, inches: at 72 points each its letters are large enough on a phone."""

LOWEST: Final = 4
"""On a log scale an interval from 0 is drawn from so small a part of the value on."""

LEGEND_LETTERS: Final = 60
"""Of one entry; longer ones are cut."""

LEGEND_LETTER, LEGEND_MARK = 5.0, 29.0
"""Widths in points: of a letter of an entry, on average, and of what stands before it with the room between entries."""

SETTINGS: Final = {
    "font.size": 9,
    "font.family": ["DejaVu Sans"],
    "text.parse_math": False,  # texts come from people's files
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.9,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.1,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "svg.fonttype": "none",
}


@dataclass(frozen=True, slots=True)
class Point:
    """A measured value with its interval."""

    x: float
    y: float
    low: float
    high: float
    is_bound: bool = False
    """Nothing was found: ``y`` is how much there may be at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """Points that belong together, and what was computed for them."""

    name: str
    points: tuple[Point, ...]
    form: tuple[tuple[float, float], ...] = ()
    """Of a closed form: drawn thin and dotted, in the same colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """One direction of a chart."""

    title: str
    is_share: bool = False
    """Drawn in percent."""
    is_log: bool = False
    ticks: tuple[float, ...] = ()
    """Where values were chosen by people, and not measured."""

    @classmethod
    def of(cls, axis: Axis, values: Sequence[float]) -> Scale:
        """Return that of an axis, with ticks where its values are."""
        ticks = tuple(sorted(set(values)))
        is_log = axis.is_log and min(ticks) > 0 and max(ticks) >= 10 * min(ticks)
        return cls(title=axis.title, is_share=axis.is_share, is_log=is_log, ticks=ticks)


def chart(name: str, paint: Callable[[Any, Any], None], *, height: float = HEIGHT) -> str:
    """Return an SVG to put into a page.

    Args:
        name: Of the figure; ids in the SVG depend on it, and on nothing that changes.
        paint: Draws, given the figure and its axes.
        height: Inches.
    """
    with rc_context({**SETTINGS, "svg.hashsalt": name}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        paint(figure, axes)
        file = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(file, format="svg", metadata=nothing)
    return _for_page(file.getvalue())


def _for_page(svg: str) -> str:
    """Leave out what only files need, and name the colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (xmlns(:\w+)?|version|width|height)="[^"]*"', "", svg.split(">", 1)[0]) + (
        ">" + svg.split(">", 1)[1]
    )
    svg = svg.replace("xlink:href", "href")
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # it would hold of all the page
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    svg = re.sub(r"font-family: [^;\"]*; ?", "", svg)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable}, {colour})")
    svg = re.sub(r"<[^>]*>", _rounded, svg)
    return re.sub(r"\n\s*", "\n", svg)


def _rounded(tag: re.Match[str]) -> str:
    """Return a tag with coordinates of a hundredth of a point; texts are not in tags."""
    return re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0])


def lines_chart(name: str, x: Scale, y: Scale, lines: Sequence[Line]) -> str:
    """Return lines with intervals; a value that is only a bound is an open triangle that points down."""

    def paint(figure: Any, axes: Any) -> None:
        handles = []
        for place, one in enumerate(lines):
            colour, marker = SERIES[place % MOST_SERIES], MARKERS[place % MOST_SERIES]
            dashes = DASHES[place % MOST_SERIES]
            _form(axes, x, y, one, colour)
            found = [point for point in one.points if not point.is_bound]
            xs = [_shown(x, point.x) for point in found]
            ys = [_shown(y, point.y) for point in found]
            (handle,) = axes.plot(xs, ys, color=colour, linestyle=dashes, marker=marker)
            handles.append(handle)
            for point in one.points:
                _interval(axes, x, y, point, colour)
        _scale(axes.xaxis, x, axes.set_xscale)
        _scale(axes.yaxis, y, axes.set_yscale)
        _legend(figure, handles, [one.name for one in lines])

    return chart(name, paint, height=HEIGHT + _legend_height([one.name for one in lines]))


def _form(axes: Any, x: Scale, y: Scale, one: Line, colour: str) -> None:
    if one.form:
        xs, ys = zip(*one.form, strict=True)
        axes.plot(
            [_shown(x, value) for value in xs],
            [_shown(y, value) for value in ys],
            color=colour,
            linestyle=(0, (1, 1.6)),
            linewidth=1.1,
        )


def _interval(axes: Any, x: Scale, y: Scale, point: Point, colour: str) -> None:
    at = _shown(x, point.x)
    if point.is_bound:
        axes.plot([at], [_shown(y, point.y)], marker="v", markersize=9, markerfacecolor="none",
                  markeredgecolor=colour, linestyle="none")  # fmt: skip
    elif point.high > point.low:
        low = max(point.low, point.y / LOWEST) if y.is_log else point.low
        ends = [_shown(y, low), _shown(y, point.high)]
        axes.plot([at, at], ends, color=colour, marker="_", linewidth=1)


def curves_chart(
    name: str, x: Scale, y: Scale, curves: Sequence[tuple[str, Sequence[tuple[float, float]]]]
) -> str:
    """Return steps that rise, such as distributions."""

    def paint(figure: Any, axes: Any) -> None:
        handles = []
        for place, (_, points) in enumerate(curves):
            (handle,) = axes.step(
                [_shown(x, at) for at, _ in points],
                [_shown(y, value) for _, value in points],
                where="post",
                color=SERIES[place % MOST_SERIES],
                linestyle=DASHES[place % MOST_SERIES],
            )
            handles.append(handle)
        _scale(axes.xaxis, x, axes.set_xscale)
        _scale(axes.yaxis, y, axes.set_yscale)
        _legend(figure, handles, [name for name, _ in curves])

    return chart(name, paint, height=HEIGHT + _legend_height([name for name, _ in curves]))


def bands_chart(
    name: str,
    x: Scale,
    y: Scale,
    places: Sequence[float],
    bands: Sequence[tuple[str, int, Sequence[float]]],
) -> str:
    """Return areas on top of each other.

    Args:
        name: Of the figure.
        x: Direction of the places.
        y: Direction of the heights.
        places: Where heights are known.
        bands: From the bottom: name, number of the colour, and height at each place.
    """

    def paint(figure: Any, axes: Any) -> None:
        below = [0.0] * len(places)
        xs = [_shown(x, place) for place in places]
        handles = []
        for _, colour, heights in bands:
            above = [a + b for a, b in zip(below, heights, strict=True)]
            low, high = ([_shown(y, value) for value in edge] for edge in (below, above))
            area = axes.fill_between(xs, low, high, step="post", color=BANDS[colour], linewidth=0)
            handles.append(area)
            below = above
        axes.step(xs, [_shown(y, value) for value in below], where="post", color=TEXT, linewidth=1)
        axes.margins(x=0)
        _scale(axes.xaxis, x, axes.set_xscale)
        _scale(axes.yaxis, y, axes.set_yscale)
        _legend(figure, handles, [name for name, _, _ in bands])

    return chart(name, paint, height=HEIGHT + _legend_height([name for name, _, _ in bands]))


def heat_chart(
    name: str,
    columns: tuple[str, Sequence[str]],
    rows: tuple[str, Sequence[str]],
    values: Sequence[Sequence[float | None]],
    texts: Sequence[Sequence[str]],
) -> str:
    """Return a table in colours, dark where much is; each place says its value.

    Args:
        name: Of the figure.
        columns: Title and texts of the columns.
        rows: Title and texts of the rows, from the bottom.
        values: By row and column, from 0 to 1; None where there is none.
        texts: What each place says.
    """

    def paint(_: Any, axes: Any) -> None:
        axes.grid(visible=False)
        for down, (numbers, words) in enumerate(zip(values, texts, strict=True)):
            for across, (value, text) in enumerate(zip(numbers, words, strict=True)):
                if value is None:
                    continue
                shade, ink = _shade(value)
                axes.fill_between([across, across + 1], down, down + 1, color=shade, linewidth=0)
                axes.text(across + 0.5, down + 0.5, text, color=ink, fontsize=8,
                          ha="center", va="center")  # fmt: skip
        for axis, (title, names) in ((axes.xaxis, columns), (axes.yaxis, rows)):
            axis.set_ticks([place + 0.5 for place in range(len(names))], list(names))
            axis.set_label_text(title)
            axis.set_tick_params(length=0)
        axes.set(xlim=(0, len(columns[1])), ylim=(0, len(rows[1])))

    return chart(name, paint, height=max(1.6, 0.9 + 0.38 * len(rows[1])))


def _shade(value: float) -> tuple[str, str]:
    """Return a colour from pale to dark blue, the same for all eyes, and that of the text on it."""
    pale, dark = (232, 240, 249), (9, 58, 112)
    mixed = (round(a + (b - a) * min(max(value, 0), 1)) for a, b in zip(pale, dark, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed), "#ffffff" if value > 0.5 else "#14171a"


def dots_chart(name: str, x: Scale, rows: Sequence[tuple[str, Point]]) -> str:
    """Return a row for each value with its interval, the first on top."""

    def paint(_: Any, axes: Any) -> None:
        for place, (_, point) in enumerate(reversed(rows)):
            ends = [_shown(x, point.low), _shown(x, point.high)]
            axes.plot(ends, [place, place], color=SERIES[0], linewidth=1.2)
            axes.plot([_shown(x, point.y)], [place], color=SERIES[0], marker="o")
        names = [_cut(text, LEGEND_LETTERS // 2) for text, _ in reversed(rows)]
        axes.yaxis.set_ticks(range(len(rows)), names)
        axes.yaxis.set_tick_params(length=0)
        _scale(axes.xaxis, x, axes.set_xscale)

    return chart(name, paint, height=0.9 + 0.22 * len(rows))


def _shown(scale: Scale, value: float) -> float:
    return value * 100 if scale.is_share else value


def _scale(axis: Any, scale: Scale, set_scale: Callable[[str], None]) -> None:
    axis.set_label_text(scale.title)
    low, high = axis.get_data_interval()
    if scale.is_log and 0 < high < math.inf and low < math.inf:
        set_scale("log")
        axis.set_major_locator(LogLocator(10))
        axis.set_minor_locator(NullLocator())
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if 0 < len(scale.ticks) <= 9:
        places = [_shown(scale, tick) for tick in scale.ticks]
        axis.set_ticks(_apart(places, is_log=scale.is_log))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value)))


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.4g}"


def _apart(places: list[float], *, is_log: bool) -> list[float]:
    """Return places without those whose texts would touch the one before."""
    ends = [math.log(place) if is_log else place for place in places]
    least = (ends[-1] - ends[0]) / 14
    kept: list[int] = []
    for number, place in enumerate(ends):
        if not kept or place - ends[kept[-1]] >= least:
            kept.append(number)
    return [places[number] for number in kept]


def _cut(text: str, letters: int) -> str:
    shown = text if len(text) <= letters else text[: letters - 1] + "…"
    return f" {shown}" if shown.startswith("_") else shown  # matplotlib hides names with _


def _columns(names: Sequence[str]) -> int:
    """Return how many columns of a legend surely fit, the fewest for as many rows."""
    widths = [LEGEND_MARK + LEGEND_LETTER * min(len(name), LEGEND_LETTERS) for name in names]
    for columns in range(min(len(names), MOST_SERIES), 1, -1):
        each, longer = divmod(len(names), columns)
        ends = [place * each + min(place, longer) for place in range(columns + 1)]
        if sum(max(widths[a:b]) for a, b in pairwise(ends)) <= WIDTH * 72:
            rows = -(-len(names) // columns)
            return -(-len(names) // rows)
    return 1


def _legend_height(names: Sequence[str]) -> float:
    if not any(names):
        return 0.0
    return 0.17 * -(-len(names) // _columns(names)) + 0.05


def _legend(figure: Any, handles: Sequence[Any], names: Sequence[str]) -> None:
    if any(names):
        shown = [_cut(name, LEGEND_LETTERS) for name in names]
        figure.legend(handles, shown, loc="outside lower center", ncols=_columns(names))
