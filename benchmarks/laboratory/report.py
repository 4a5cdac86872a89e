"""``report.html``, one file that needs nothing else, and ``summary.csv``.

First whether theory holds, then what the grid says, then figures, every cell, and how to play a channel again. Texts
may come from people's files: all are escaped. It must not compute measures, nor play anything.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any, Final, Protocol

from benchmarks.laboratory.answers import exact, questions, seconds
from benchmarks.laboratory.axes import Shown, label_text
from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.figures import Picture, figures
from benchmarks.laboratory.measures import Measures
from benchmarks.laboratory.summary import Value, line, summary_csv

REPORT: Final = "report.html"
SUMMARY: Final = "summary.csv"

MOST_NAMED: Final = 3
"""Cells of an answer; of more, the first and the last are."""

PAGE: Final = "report_page.html"
"""Beside this module: the page without its contents."""


class Run(Protocol):
    """What a report says of a run; ``manifest.Manifest`` is one."""

    versions: dict[str, str]
    grid: dict[str, Any]
    seed: int
    channels: int
    engine: str
    master: str
    digest: str
    started: str
    seconds: float


class Shows(Protocol):
    """What a report says of a grid; ``grids.Grid`` is one."""

    @property
    def name(self) -> str:
        """Of the grid."""

    @property
    def title(self) -> str:
        """For people."""

    @property
    def description(self) -> str:
        """What it is for."""

    @property
    def cells(self) -> Sequence[Shown]:
        """In order."""


class Checked(Protocol):
    """What a report says of a check; ``checks.Check`` is one."""

    @property
    def form(self) -> str:
        """The closed form."""

    @property
    def cell(self) -> str:
        """Name of the cell."""

    @property
    def statement(self) -> str:
        """What should be so."""

    @property
    def expected(self) -> float:
        """By the form."""

    @property
    def measured(self) -> float:
        """By the cell."""

    @property
    def low(self) -> float:
        """Of the interval of the measured."""

    @property
    def high(self) -> float:
        """Of the same."""

    @property
    def adjusted(self) -> float:
        """P-value after Holm's correction."""

    @property
    def passed(self) -> bool:
        """Whether chance explains the difference."""


def write_report(
    out: Path,
    manifest: Run,
    grid: Shows,
    measures: Mapping[str, Measures],
    checks: Sequence[Checked],
) -> list[Path]:
    """Write the report of a run, and return what was written: the page first.

    Args:
        out: Folder of the run.
        manifest: Of the run.
        grid: Its cells; those without measures are named as such.
        measures: By key of the cell.
        checks: Against closed forms; none where there is nothing to compare with.
    """
    found = {out / REPORT: page(out, manifest, grid, measures, checks)}
    found[out / SUMMARY] = summary_csv(grid.cells, measures)
    for path, text in found.items():
        new = path.with_name(f".{path.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    return list(found)


def page(
    out: Path,
    manifest: Run,
    grid: Shows,
    measures: Mapping[str, Measures],
    checks: Sequence[Checked],
) -> str:
    """Return the report as HTML; the same for the same run, grid, measures and checks."""
    cells = grid.cells
    template = (resources.files("benchmarks.laboratory") / PAGE).read_text(encoding="utf-8")
    sections = [
        ("checks", "Checks against closed forms", _checks(checks)),
        ("answers", "Answers", _answers(cells, measures)),
        ("figures", "Figures", _figures(figures(cells, measures))),
        ("cells", "All cells", _cells(cells, measures)),
        (
            "problems",
            "Problems, and how to play a channel again",
            _problems(out, manifest, cells, measures),
        ),
        ("limits", "How to read this", _limits(manifest, cells, measures)),
    ]
    shown = [(name, title, body) for name, title, body in sections if body]
    return Template(template).substitute(
        title=escape(grid.title or grid.name),
        description=f'<p class="about">{escape(grid.description)}</p>' if grid.description else "",
        facts=_facts(manifest, grid, measures),
        links="".join(f'<a href="#{name}">{title}</a>' for name, title, _ in shown),
        sections="".join(
            f'<section id="{name}"><h2>{title}</h2>\n{body}</section>\n'
            for name, title, body in shown
        ),
    )


# --- Head ----------------------------------------------------------------------------------------


def _facts(manifest: Run, grid: Shows, measures: Mapping[str, Measures]) -> str:
    played = sum(found.channels for found in measures.values())
    problems = sum(found.problems for found in measures.values())
    engine = " on ".join(filter(None, (manifest.engine, manifest.master)))
    versions = ", ".join(
        f"{name} {version}" for name, version in manifest.versions.items() if version
    )
    facts = [
        ("grid", grid.name),
        ("cells", f"{len(grid.cells):,}"),
        ("channels", f"{played:,}" + (f", and {problems:,} with a problem" if problems else "")),
        ("seed", str(manifest.seed)),
        ("engine", engine),
        ("started", manifest.started),
        ("took", seconds(round(manifest.seconds * 1000))),
        ("digest", manifest.digest or "not all cells are finished"),
        ("versions", versions),
    ]
    return "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>" for name, text in facts if text
    )


# --- Sections ------------------------------------------------------------------------------------


def _checks(checks: Sequence[Checked]) -> str:
    if not checks:
        return ""
    failed = sum(not check.passed for check in checks)
    verdict = (
        f'<p class="verdict bad">{failed} of {len(checks)} checks failed.</p>'
        if failed
        else f'<p class="verdict good">All {len(checks)} checks passed.</p>'
    )
    rows = [
        [
            ("passed" if check.passed else "FAILED", None),
            (check.form, None),
            (check.cell, None),
            (check.statement, None),
            (f"{check.expected:.6g}", check.expected),
            (f"{check.measured:.6g}", check.measured),
            (f"{check.low:.6g} to {check.high:.6g}", check.low),
            (f"{check.adjusted:.3g}", check.adjusted),
        ]
        for check in sorted(checks, key=lambda check: check.passed)
    ]
    heads = ["", "form", "cell", "statement", "expected", "measured", "95 % interval", "adjusted p"]
    marks = ["good" if row[0][0] == "passed" else "bad" for row in rows]
    return (
        f"{verdict}\n{_table(heads, rows, marks)}"
        '<p class="hint">Two-sided tests, Holm-corrected over the grid; the channel is the unit.</p>'
    )


def _answers(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> str:
    found = []
    for question in questions(cells, measures):
        items = "".join(
            f"<li>{escape(answer.text[:1].upper() + answer.text[1:])}"
            f' <span class="rests">{escape(_named(answer.cells))}</span></li>'
            for answer in question.answers
        )
        more = (
            f'<p class="hint">{question.more:,} more are in the table.</p>' if question.more else ""
        )
        found.append(f"<h3>{question.title}</h3><ul>{items}</ul>{more}\n")
    return "".join(found)


def _named(cells: Sequence[str]) -> str:
    """Return the names of the cells an answer rests on."""
    if len(cells) > MOST_NAMED:
        return f"[{cells[0]} … {cells[-1]}, {len(cells)} cells]"
    return "[" + "; ".join(cells) + "]"


def _figures(pictures: Sequence[Picture]) -> str:
    if not pictures:
        return ""
    return (
        '<div class="figures">'
        + "".join(
            f'<figure id="{picture.name}"><figcaption><b>{escape(picture.title)}</b></figcaption>\n'
            f"{_labelled(picture)}\n<p>{escape(picture.caption)}</p></figure>\n"
            for picture in pictures
        )
        + "</div>"
    )


def _labelled(picture: Picture) -> str:
    label = f'<svg role="img" aria-label="{escape(picture.title)}"'
    return picture.svg.replace("<svg", label, 1)


COLUMNS: Final = {
    "channels": "channels",
    "delivery": "delivered",
    "interval": "95 % interval",
    "latency_50_ms": "latency 50 %",
    "latency_95_ms": "95 %",
    "latency_99_ms": "99 %",
    "confirm_50_ms": "confirmed 50 %",
    "confirm_95_ms": "95 %",
    "transmissions_per_segment": "transmissions a segment",
    "bytes_per_payload_byte": "bytes a byte",
    "retransmissions_per_segment": "retransmissions a segment",
    "parity_per_segment": "parity a segment",
    "others_per_segment": "others a segment",
    "repairs_per_owed": "repairs a delivery",
    "queue_50_ms": "queue 50 %",
    "queue_95_ms": "95 %",
    "problems": "problems",
}
"""Of the table of cells: names of `summary.line`, and heads."""


def _cells(cells: Sequence[Shown], measures: Mapping[str, Measures]) -> str:
    rows = []
    for cell in cells:
        values = line(cell, measures.get(cell.key) or Measures.empty(cell.key))
        labels = ", ".join(label_text(name, value) for name, value in cell.labels)
        row: list[tuple[str, float | None]] = [(cell.name, None), (labels, None)]
        row += [_cell(name, values) for name in COLUMNS]
        row.append((cell.key, None))
        rows.append(row)
    heads = ["cell", "labels", *COLUMNS.values(), "key"]
    return (
        f'{_table(heads, rows)}<p class="hint">A click on a head sorts. All numbers, and more of them, '
        "are in summary.csv. Times keep three digits.</p>"
    )


def _cell(name: str, values: Mapping[str, Value]) -> tuple[str, float | None]:
    """Return the text of a value, and what it is sorted by."""
    if name == "interval":
        low, high = values["delivery_low"], values["delivery_high"]
        if not isinstance(low, int | float) or not isinstance(high, int | float):
            return "", None
        return f"{exact(low)} to {exact(high)}", low
    value = values[name]
    if not isinstance(value, int | float):
        return "", None
    if name == "delivery":
        return exact(value), value
    if name.endswith("_ms"):
        return seconds(int(value)), value
    return (f"{value:,}" if isinstance(value, int) else f"{value:.3g}"), value


def _problems(
    out: Path, manifest: Run, cells: Sequence[Shown], measures: Mapping[str, Measures]
) -> str:
    bad = [cell for cell in cells if (found := measures.get(cell.key)) and found.problems]
    rows = []
    for cell in bad:
        found = measures[cell.key]
        channel, text = found.first_problem or (0, "")
        rows.append(
            [(cell.name, None), (f"{found.problems:,}", float(found.problems)), (text, None),
             (replay_command(out, cell, channel), None)]
        )  # fmt: skip
    parts = []
    if rows:
        heads = ["cell", "channels", "the first of them", "plays it again"]
        parts.append(f'<p class="verdict bad">Some channels could not be played; they count nowhere else.</p>'
                     f"{_table(heads, rows)}")  # fmt: skip
    elif cells and is_simulated(manifest):
        parts.append('<p class="verdict good">Every channel was played to its end.</p>')
    missing = [cell.name for cell in cells if cell.key not in measures]
    if missing:
        parts.append(f"<p>Without results: {escape('; '.join(missing))}.</p>")
    if cells and is_simulated(manifest):
        command = escape(replay_command(out, cells[0], 0))
        parts.append(
            "<p>Any channel can be played again alone, with a trace of all it did; name the cell by name, key or "
            f"number, and the channel by its number:</p><pre>{command}</pre>"
        )
    return "".join(parts)


def replay_command(out: Path, cell: Shown, channel: int) -> str:
    """Return the command that plays one channel again."""
    words = ["reliable-channel", "simulate", "replay", "--out", str(out), "--scenario", cell.key]
    return shlex.join([*words, "--channel", str(channel)])


READING: Final = (
    "A delivery is owed to every participant but the sender for each message that <code>send</code> took; "
    "ephemeral messages are owed to nobody.",
    "Intervals are of 95 %. Messages of one channel depend on each other, so the channel is the unit. "
    "No loss in n channels still leaves room for about 3/n.",
    "Latencies are from <code>send</code> to the delivery in order, and so contain the wait for what came before. "
    "Deliveries never made have no latency: read percentiles together with the delivery ratio.",
)
"""Of all reports."""

NEW: Final = (
    "Channels{} are new at their first message: nothing names a loss before later messages do, and the last messages "
    "have fewer after them. Short conversations look worse than long ones for that."
)
WARM: Final = (
    "Channels{} are not new at their first message: everybody had been heard for a while, which counts nowhere here. "
    "The last messages have fewer after them that name a loss."
)
"""Of channels with and without a warm-up."""

SIMULATED: Final = (
    "<b>Not modelled.</b> Congestion: losses and delays do not grow with what is sent. Routes: every receiver’s copy "
    "fares on its own, there is no relay between. Computing takes no time.",
    "Dotted curves are closed forms for other, simpler channels; they are to compare with. What is held against a form "
    "is in the checks.",
)
"""Of reports of simulated channels."""


def is_simulated(manifest: Run) -> bool:
    """Tell whether channels were played; those of an analysis of real traffic have a window of time."""
    return bool(manifest.engine) and "window_sec" not in manifest.grid


def _limits(manifest: Run, cells: Sequence[Shown], measures: Mapping[str, Measures]) -> str:
    if not any(found.channels for found in measures.values()):
        return ""
    texts = [*READING]
    if is_simulated(manifest):
        texts += [_warm_up(cells), *SIMULATED]
    return "<ul>" + "".join(f"<li>{text}</li>" for text in texts) + "</ul>"


def _warm_up(cells: Sequence[Shown]) -> str:
    """Say whether channels are new at their first message: all, none, or some by name."""
    warm = [cell.name for cell in cells if isinstance(cell, Cell) and cell.scenario.warm_up]
    if not warm:
        text = NEW.format("")
    elif len(warm) == len(cells):
        text = WARM.format("")
    else:
        named = f" of {escape(_named(warm))}"
        text = f"{WARM.format(named)} {NEW.format(' of the other cells')}"
    return f"<b>Warm-up.</b> {text}"


def _table(
    heads: Sequence[str],
    rows: Iterable[Sequence[tuple[str, float | None]]],
    marks: Sequence[str] = (),
) -> str:
    """Return a table; numbers are to the right, and sorted by their value."""
    rows = list(rows)
    numeric = [any(row[place][1] is not None for row in rows) for place in range(len(heads))]
    head = "".join(
        f'<th scope="col"{" class=number" if is_number else ""}>{escape(text)}</th>'
        for text, is_number in zip(heads, numeric, strict=True)
    )
    body = []
    for place, row in enumerate(rows):
        mark = f' class="{marks[place]}"' if marks else ""
        entries = "".join(
            f"<td{' class=number' if is_number else ''}{'' if value is None else f' data-value={value!r}'}>"
            f"{escape(text)}</td>"
            for (text, value), is_number in zip(row, numeric, strict=True)
        )
        body.append(f"<tr{mark}>{entries}</tr>\n")
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(heads[0] or heads[1])}">'
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{''.join(body)}</tbody></table></div>\n"
    )
