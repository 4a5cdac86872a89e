"""Grids: which scenarios a run plays, read from TOML files that people write.

::

    [base]                      what all cells share, over the laboratory's own base
    [axes]                      lists of values; every combination is a cell
    [settings.NAME]             several parameters under one name, for the axis ``setting``
    [[sweep]]                   base and axes of its own; any number of them
    [[cell]]                    a single cell

What is wrong with a file is one line that names the file and the place. It must not play anything, and needs nothing
beyond the library.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, Final

from benchmarks.laboratory.cell import Cell, Label
from benchmarks.laboratory.parameters import (
    PARITY,
    names,
    scenario_with,
    tables,
    unknown,
)
from reliable_channel.errors import ConfigurationError

MAX_CELLS: Final = 4_000
"""Of one grid."""

SETTING: Final = "setting"
"""The axis whose values are names of ``[settings.NAME]``."""

PLAIN: Final = "plain"
"""The setting that changes nothing; it is always there."""

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _.,=+-]{0,119}")
"""What a name may be: short, and good on a command line and for a file."""

GRID_KEYS: Final = (
    "title",
    "description",
    "cpu_minutes",
    "max_channels",
    "labels",
    "base",
    "settings",
    "axes",
)
SWEEP_KEYS: Final = ("name", "max_channels", "labels", "base", "axes")
CELL_KEYS: Final = ("name", "max_channels", "labels", "base")

SHORT: Final = {
    "store.enabled": "store",
    "sds.enable_repair": "repair",
    "sds.bloom_capacity": "bloom",
    "sds.causal_history_size": "history",
    "sds.possible_ack_threshold": "threshold",
    "sds.max_retransmissions": "retransmissions",
    "segmentation.parity_rate": PARITY,
    "segmentation.parity_code": "code",
    "rate_limit.messages_per_epoch": "budget",
    "bursts.loss": "loss",
    "bursts.burst_ms": "burst",
}
"""Parameters by what they are called in the name of a cell; others by the last part of their name."""

THEORY: Final = "theory"
"""The label whose value is the number of a closed form, against which a cell is checked."""

FORMS: Final = ("1", "1b", "2", "3", "4", "5", "6", "7", "8", "9")
"""The numbers that there are; `checks` has what they say."""

LABELS: Final = {PARITY: "segmentation.parity_rate"}
"""Labels of axes that are not parameters themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The cells of a run."""

    name: str
    """Of the file, without ``.toml``."""
    title: str
    description: str = ""
    cells: tuple[Cell, ...]
    """Of different names and different scenarios."""
    cpu_minutes: float = 0.0
    """What its author measured for 5,000 channels of each cell, minutes of one core; 0 is not known."""

    def cell(self, wanted: str) -> Cell:
        """Return a cell by its key, its name, or its number from 0.

        Raises:
            ConfigurationError: There is none.
        """
        for cell in self.cells:
            if wanted in (cell.key, cell.name):
                return cell
        if wanted.isascii() and wanted.isdigit() and int(wanted) < len(self.cells):
            return self.cells[int(wanted)]
        text = unknown(wanted, [cell.name for cell in self.cells]) if wanted else "name a scenario"
        raise wrong("", f"grid {self.name}, 0 to {len(self.cells) - 1}: {text}")


def grid_names() -> list[str]:
    """Return the names of the grids that come with the package."""
    folder = resources.files("benchmarks.laboratory") / "grids"
    found = [Path(item.name) for item in folder.iterdir()]
    return sorted(path.stem for path in found if path.suffix == ".toml")


def load_grid(name_or_path: str) -> Grid:
    """Return a grid that comes with the package, by name, or one of a file.

    Raises:
        ConfigurationError: There is none, it cannot be read, or something in it is wrong; one line.
    """
    shipped = grid_names()
    if name_or_path in shipped:
        source = resources.files("benchmarks.laboratory") / "grids" / f"{name_or_path}.toml"
        return read_grid(source.read_bytes(), f"{name_or_path}.toml")
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.is_file():
        text = unknown(name_or_path, shipped)
        raise wrong("", f"grid: {text} (or give the path of a TOML file)")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise wrong(str(path), f"{error.strerror or error}") from error
    return read_grid(data, str(path))


def read_grid(data: bytes, file: str) -> Grid:
    """Return the grid of a file's bytes.

    Args:
        data: TOML.
        file: Its name, for the grid and for errors.

    Raises:
        ConfigurationError: Something is wrong; one line that names file and place.
    """
    try:
        document = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise wrong(file, "not TOML: not UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise wrong(file, f"not TOML: {error}") from error
    try:
        return _Reader(document).grid(Path(file).stem)
    except ConfigurationError as error:
        raise wrong(file, f"{error}") from error


class _Reader:
    """Reads one document.

    Args:
        document: As tomllib has it.
    """

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        _known(document, (*GRID_KEYS, "sweep", "cell"), "")
        self.base: dict[str, Any] = {}
        self.settings: dict[str, dict[str, Any]] = {PLAIN: {}}
        for name, values in _table(document, "settings", "").items():
            if not NAME.fullmatch(name):
                raise wrong("", f"settings: {name!r} is no name; use letters and digits")
            if not isinstance(values, Mapping):
                raise wrong("", f"settings.{name} must be a table of parameters")
            self.settings[name] = flattened(values, f"settings.{name}")

    def grid(self, name: str) -> Grid:
        """Return it all."""
        document = self.document
        title = _text(document, "title", "")
        if not title:
            raise wrong("", "title: give the grid one, in a few words")
        minutes = document.get("cpu_minutes", 0)
        if isinstance(minutes, bool) or not isinstance(minutes, int | float) or not minutes >= 0:
            raise wrong("", f"cpu_minutes must be a number from 0 on, not {minutes!r}")
        self.base = flattened(_table(document, "base", ""), "base")
        cells = [cell for part, place in self.sweeps() for cell in self.sweep(part, place)]
        cells += [self.single(part, place) for part, place in self.parts("cell", CELL_KEYS)]
        if not cells:
            raise wrong("", "no cells; give it [axes], a [[sweep]] or a [[cell]]")
        if len(cells) > MAX_CELLS:
            raise wrong("", f"{len(cells)} cells are more than {MAX_CELLS}")
        _distinct(cells)
        description = " ".join(_text(document, "description", "").split())
        return Grid(
            name=name,
            title=title,
            description=description,
            cells=tuple(cells),
            cpu_minutes=float(minutes),
        )

    def sweeps(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Give the tables whose axes make cells, each with its place: the file's own, and all others."""
        if "axes" in self.document:
            yield {"axes": self.document["axes"]}, ""
        yield from self.parts("sweep", SWEEP_KEYS)

    def parts(self, key: str, known: tuple[str, ...]) -> Iterator[tuple[dict[str, Any], str]]:
        """Give the tables of a list, each with its place."""
        found = self.document.get(key, [])
        if not isinstance(found, list) or not all(isinstance(part, dict) for part in found):
            raise wrong("", f"{key}: write it as [[{key}]]")
        for number, part in enumerate(found, 1):
            place = f"{key} {number}"
            if name := _text(part, "name", place):
                place += f" ({name})"
                if not NAME.fullmatch(name):
                    text = f"{place}: use letters, digits, spaces and any of _.,=+- in the name"
                    raise wrong("", text)
            _known(part, known, place)
            yield part, place

    def sweep(self, part: dict[str, Any], place: str) -> Iterator[Cell]:
        """Give the cells of every combination of some axes."""
        axes = self.axes(part, place)
        if not axes:
            raise wrong(place, "axes: give at least one list of values")
        count = prod(len(values) for values in axes.values())
        if count > MAX_CELLS:
            raise wrong(place, f"{count} cells are more than {MAX_CELLS}")
        shorts = _short_names(axes)
        for values in product(*axes.values()):
            changes: dict[str, Any] = {}
            labels: list[tuple[str, Label]] = []
            words = [str(part["name"])] if "name" in part else []
            for (axis, all_values), value in zip(axes.items(), values, strict=True):
                changes = over(changes, self.settings[value] if axis == SETTING else {axis: value})
                label = _label(value, all_values)
                labels.append((LABELS.get(axis, axis), label))
                words.append(str(label) if axis == SETTING else f"{shorts[axis]}={_word(label)}")
            yield self.cell(" ".join(words), part, changes, labels, place)

    def single(self, part: dict[str, Any], place: str) -> Cell:
        """Return a cell that stands alone."""
        if "name" not in part:
            raise wrong(place, "needs a name")
        return self.cell(part["name"], part, {}, [], place)

    def cell(
        self,
        name: str,
        part: dict[str, Any],
        changes: dict[str, Any],
        labels: list[tuple[str, Label]],
        place: str,
    ) -> Cell:
        """Return a cell of what the file, its part and its values on the axes say, in this order."""
        values = over(self.base, flattened(_table(part, "base", place), _at(place, "base")))
        if not NAME.fullmatch(name):
            text = f"{name!r} is no name for a cell: put its values under [settings.NAME]"
            raise wrong(place, text)
        where = "" if name == part.get("name") else f"cell {name!r}: "
        try:
            scenario = scenario_with(over(values, changes))
        except ConfigurationError as error:
            raise wrong(place, f"{where}{error}") from error
        extra = _labels(self.document, "") | _labels(part, place)
        cell = Cell(
            name=name,
            labels=(*labels, *extra.items()),
            scenario=scenario,
            max_channels=self.most(part, place, scenario.participants),
        )
        if problem := misfit(cell):
            raise wrong(place, where + problem)
        return cell

    def most(self, part: dict[str, Any], place: str, participants: int) -> int | None:
        """Return the most channels of a cell with so many participants."""
        source, where = (part, place) if "max_channels" in part else (self.document, "")
        given = source.get("max_channels")
        if given is None:
            return None
        limits = given if isinstance(given, Mapping) else {"2": given}
        found: dict[int, int] = {}
        for group, limit in limits.items():
            if not group.isdecimal() or type(limit) is not int or limit < 1:
                text = (
                    "max_channels must be a whole number from 1 on, or such numbers by group size"
                )
                raise wrong(where, text)
            found[int(group)] = limit
        return next(
            (found[size] for size in sorted(found, reverse=True) if size <= participants), None
        )

    def axes(self, part: dict[str, Any], place: str) -> dict[str, list[Any]]:
        """Return the values of each axis, in the file's order."""
        axes: dict[str, list[Any]] = {}
        for name, values in _leaves(_table(part, "axes", place), ""):
            where = _at(place, f"axes.{name}")
            if name != SETTING and name not in names() and name not in tables():
                raise wrong(place, f"axes: {unknown(name, (SETTING, *names()))}")
            if not isinstance(values, list) or not values:
                raise wrong("", f"{where} must be a list with at least one value")
            axes[name] = values
        for value in axes.get(SETTING, []):
            if not isinstance(value, str) or value not in self.settings:
                text = f"{unknown(str(value), self.settings)}; describe it in [settings.{value}]"
                raise wrong(place, f"axes.{SETTING}: {text}")
        return axes


def misfit(cell: Cell) -> str:
    """Return why a cell cannot be checked against the form of its label ``theory``; empty where it can."""
    form = cell.label(THEORY)
    if form is None:
        return ""
    if str(form) not in FORMS:
        return f"labels.{THEORY} must be one of {', '.join(FORMS)}, not {form!r}"
    receivers = cell.label("receivers", 1)
    if type(receivers) is not int or receivers < 1:
        return f"labels.receivers must be a whole number from 1 on, not {receivers!r}"
    bursts = cell.scenario.bursts
    if str(form) == "7" and not (
        bursts and (bursts.bad_loss, bursts.good_loss) == (1.0, 0.0) and bursts.loss < 1
    ):
        return f"labels.{THEORY}: form 7 needs bursts in whose bad state all is lost, of a loss below 1"
    return ""


def flattened(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return parameters by their dotted names.

    Raises:
        ConfigurationError: There is no parameter of a name.
    """
    found = dict(_leaves(values, ""))
    for name in found:
        if name not in names() and name not in tables():
            raise wrong(place, f"{unknown(name, names())}")
    return found


def over(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with changes, which come last: ``parity`` sets what other names set, too."""
    return {name: value for name, value in values.items() if name not in changes} | dict(changes)


def _leaves(values: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{before}{name}.")
        else:
            yield before + name, value


def _distinct(cells: list[Cell]) -> None:
    """Raise unless names and scenarios are all different."""
    name, count = Counter(cell.name for cell in cells).most_common(1)[0]
    if count > 1:
        text = f"{count} cells are named {name!r}; give each [[sweep]] a name"
        raise wrong("", text)
    seen: dict[str, Cell] = {}
    for cell in cells:
        other = seen.setdefault(cell.key, cell)
        if other is not cell:
            text = f"cells {other.name!r} and {cell.name!r} are the same scenario; leave one out"
            raise wrong("", text)


def _short_names(axes: Mapping[str, Any]) -> dict[str, str]:
    """Return what each axis is called in names: the last part of its name where that is enough."""
    short = {axis: SHORT.get(axis, axis.rpartition(".")[2]) for axis in axes}
    count = Counter(short.values())
    return {axis: axis if count[name] > 1 else name for axis, name in short.items()}


def _label(value: Any, values: list[Any]) -> Label:
    """Return the label of a value on an axis."""
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        return "-".join(map(str, value))
    return values.index(value)


def _word(label: Label) -> str:
    return {True: "on", False: "off"}[label] if isinstance(label, bool) else str(label)


def _labels(part: Mapping[str, Any], place: str) -> dict[str, Label]:
    found = _table(part, "labels", place)
    for name, value in found.items():
        if not isinstance(value, str | int | float):
            text = f"labels.{name} must be a text, a number or a truth value, not {value!r}"
            raise wrong(place, text)
    return found


def _table(part: Mapping[str, Any], key: str, place: str) -> dict[str, Any]:
    found = part.get(key, {})
    if not isinstance(found, dict):
        raise wrong(place, f"{key} must be a table, not {found!r}")
    return found


def _text(part: Mapping[str, Any], key: str, place: str) -> str:
    found = part.get(key, "")
    if not isinstance(found, str):
        raise wrong(place, f"{key} must be a text, not {found!r}")
    return found


def _known(part: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for key in part:
        if key not in known:
            hint = f"{unknown(key, known)}"
            if key in names() or key in tables():
                hint = f"{key!r} is a parameter; write it under base"
            raise wrong(place, hint)


def wrong(place: str, text: str) -> ConfigurationError:
    """Return the error of a mistake at a place of a file."""
    return ConfigurationError(_at(place, text))


def _at(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text
