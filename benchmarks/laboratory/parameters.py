"""Scenarios from plain values: dotted names, types and bounds of everything that a grid may set.

::

    {"faults.loss": 0.1, "participants": 3} ─► Scenario
    parameters of a cell, as a manifest has them ─► Scenario

What is wrong is one sentence that names the parameter. It must not read files, nor know of grids.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from functools import cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from benchmarks.laboratory.cell import NOT_PARAMETERS
from benchmarks.simulation.engine import CHANNEL_ID, CONTENT_TOPIC
from benchmarks.simulation.scenario import Scenario
from benchmarks.simulation.workload import SHORTEST_PAYLOAD
from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.machine import DEFAULT_MAX_MESSAGE_BYTES
from reliable_channel.core.segmentation import Segmenter
from reliable_channel.errors import ConfigurationError

BASE: Final = Scenario(
    participants=2,
    messages=20,
    interval_ms=1_000.0,
    payload_bytes=(1_024, 1_024),
    settle_ms=900_000.0,
    sds=SdsConfig(bloom_capacity=500),
    segmentation=SegmentationConfig(segment_size_bytes=256),
)
"""What a grid changes: the library's own settings, but for a filter of 500 ids; payloads of 4 segments. After the last
message there is time for every wait there is: retransmissions, repairs, and the dependency timeout of 300 s."""

HIDDEN: Final = (*NOT_PARAMETERS, "persistence")
"""Fields that no grid may set."""

NOTHING: Final = "none"
"""For a parameter that may be absent; TOML has no word for it."""

PARITY: Final = "parity"
"""Short name that sets both the rate and whether there is parity at all; 0 is none."""

COUNTS: Final[dict[str, tuple[int, int]]] = {
    "participants": (2, 1_000),
    "messages": (0, 100_000),
    "payload_bytes": (1, 16 << 20),
    "retries": (0, 100),
}
"""Smallest and largest of the whole numbers of a scenario; all others are from 0 on."""

LONGEST_MS: Final = float((1 << 31) - 1)
"""Of any time: what a row of results can hold, 24 days. Counts that have no bounds of their own end here, too."""

MOST_SHOWN: Final = 60
"""Characters of a value in a sentence about it."""


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Return the types of the fields of a dataclass that a grid may set."""
    found = get_type_hints(kind)
    return {item.name: found[item.name] for item in fields(kind) if item.name not in HIDDEN}


def table_of(hint: Any) -> Any:
    """Return the dataclass that a type is, or may be; None where it is none."""
    found = [part for part in (hint, *_choices(hint)) if is_dataclass(part)]
    return found[0] if found else None


@cache
def names() -> tuple[str, ...]:
    """Return the dotted names of all parameters, without those inside lists."""
    return (PARITY, *_names(Scenario, ""))


def _names(kind: Any, before: str) -> Iterator[str]:
    for name, hint in hints_of(kind).items():
        table = table_of(hint)
        if table is None:
            yield before + name
        else:
            yield from _names(table, f"{before}{name}.")


def tables() -> tuple[str, ...]:
    """Return the names of the parameters that have parts, such as ``faults``."""
    return tuple(name for name, hint in hints_of(Scenario).items() if table_of(hint) is not None)


def may_be_absent(name: str) -> bool:
    """Say whether a table of parameters, such as ``bursts``, need not be there."""
    return types.NoneType in _choices(hints_of(Scenario).get(name))


def unknown(name: str, known: Iterable[str]) -> str:
    """Return a sentence about a name that nobody knows, with the nearest that there are, or all."""
    known = list(known)
    last = name.rpartition(".")[2]
    lasts = [item.rpartition(".")[2] for item in known]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    if not near:
        ends = difflib.get_close_matches(last, lasts, n=1, cutoff=0.75)
        near = [item for item in known if ends and item.rpartition(".")[2] == ends[0]]
    if near:
        return f"there is no {name!r}; did you mean {' or '.join(map(repr, near[:3]))}?"
    table = name.rpartition(".")[0] + "."
    shown = [item for item in known if item.startswith(table)]
    return f"there is no {name!r}; known are {_listed(shown or _tops(known))}"


def _tops(known: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(item.partition(".")[0] for item in known))


# --- Plain values to scenarios -------------------------------------------------------------------


def scenario_with(changes: Mapping[str, Any], base: Scenario = BASE) -> Scenario:
    """Return a scenario that differs from another one.

    Args:
        changes: Values by dotted name, in TOML's types; later ones count.
        base: What they change.

    Raises:
        ConfigurationError: Unknown names, wrong types, values that are out of bounds or contradict each other.
    """
    values = asdict(replace(base, seed=0))
    for dotted, value in changes.items():
        if dotted == PARITY:
            rate = _number(value, PARITY)
            values["segmentation"] |= {"enable_reed_solomon": rate > 0, "parity_rate": rate}
            continue
        if dotted not in names() and dotted not in tables():
            raise ConfigurationError(unknown(dotted, names()))
        if dotted in tables() and not (value == NOTHING and may_be_absent(dotted)):
            raise ConfigurationError(_must(dotted, "be a table", value))
        *path, last = dotted.split(".")
        table = values
        for part in path:
            if not isinstance(table.get(part), dict):
                table[part] = {}
            table = table[part]
        table[last] = value
    scenario = scenario_of(values)
    largest, most = max(scenario.payload_bytes[1], SHORTEST_PAYLOAD), largest_payload(scenario)
    if largest > most:
        text = f"payload_bytes: {largest} is above what a channel with these settings takes, {most}"
        raise ConfigurationError(text)
    return scenario


def scenario_of(parameters: Mapping[str, Any]) -> Scenario:
    """Return the scenario of all its parameters, as `Cell.parameters` gives them.

    Raises:
        ConfigurationError: As `scenario_with`.
    """
    values = {name: value for name, value in parameters.items() if name not in NOT_PARAMETERS}
    scenario: Scenario = _table(Scenario, values, "")
    _check(scenario)
    return scenario


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else ()


def _build(hint: Any, value: Any, name: str, bounds: tuple[float, float] | None) -> Any:
    """Return a value as a field of this type takes it."""
    if choices := _choices(hint):
        if types.NoneType in choices and value in (None, NOTHING):
            return None
        (hint,) = (part for part in choices if part is not types.NoneType)
    if is_dataclass(hint):
        return _table(hint, value, name + ".")
    if get_origin(hint) is tuple:
        return _tuple(get_args(hint), value, name, bounds)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise ConfigurationError(_must(name, f"be one of {_listed(get_args(hint))}", value))
        return value
    if hint is float:
        value = _number(value, name)
    elif type(value) is not hint:
        kinds = {int: "a whole number", bool: "true or false", str: "a text"}
        raise ConfigurationError(_must(name, f"be {kinds.get(hint, hint)}", value))
    if bounds is not None and hint in (int, float) and not bounds[0] <= value <= bounds[1]:
        raise ConfigurationError(_must(name, f"be from {bounds[0]:g} to {bounds[1]:g}", value))
    return value


def _tuple(
    kinds: tuple[Any, ...], value: Any, name: str, bounds: tuple[float, float] | None
) -> Any:
    if Ellipsis in kinds:
        if not isinstance(value, list | tuple):
            raise ConfigurationError(_must(name, "be a list", value))
        return tuple(
            _build(kinds[0], item, f"{name}[{place}]", bounds) for place, item in enumerate(value)
        )
    items = [value] * len(kinds) if type(value) is int else value
    if not isinstance(items, list | tuple) or len(items) != len(kinds):
        raise ConfigurationError(_must(name, "be a whole number or [smallest, largest]", value))
    return tuple(_build(kind, item, name, bounds) for kind, item in zip(kinds, items, strict=True))


def _table(kind: Any, values: Any, before: str) -> Any:
    """Return a dataclass of plain values, checked one by one and then by itself."""
    place = before.rstrip(".")
    if not isinstance(values, Mapping):
        raise ConfigurationError(_must(place, "be a table", values))
    hints = hints_of(kind)
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name in HIDDEN and value is None:
            continue
        if name not in hints:
            raise ConfigurationError(unknown(before + name, [before + item for item in hints]))
        bounds = _bounds(kind, name, hints[name])
        given[name] = _build(hints[name], value, before + name, bounds)
    missing = [
        item.name
        for item in fields(kind)
        if item.default is MISSING and item.default_factory is MISSING and item.name not in given
    ]
    if missing:
        text = f"{place} needs {_listed(missing)}"
        raise ConfigurationError(text)
    try:
        return kind(**given)
    except ConfigurationError as error:
        problems = [before + problem for problem in error.problems]
        raise ConfigurationError(problems) from error
    except ValueError as error:
        text = str(error)  # the simulation's own classes name the table, the library's do not
        named = text.startswith(before)
        raise ConfigurationError(text if named else before + text) from error


def _bounds(kind: Any, name: str, hint: Any) -> tuple[float, float] | None:
    """Return the bounds of a number of the simulation; the library's own classes check theirs."""
    if not kind.__module__.startswith("benchmarks."):
        return None
    if int in (hint, *_choices(hint), *get_args(hint)):
        return COUNTS.get(name, (0, LONGEST_MS))
    if name == "clock_ms":
        return -LONGEST_MS, LONGEST_MS
    return (0, LONGEST_MS) if name.endswith("_ms") else (0, 1)


def _check(scenario: Scenario) -> None:
    """Raise where values contradict each other that the simulation's own classes do not compare."""
    low, high = scenario.payload_bytes
    if low > high:
        text = f"payload_bytes: the smallest, {low}, is above {high}"
        raise ConfigurationError(text)
    for cut in scenario.partitions:
        if cut.until_ms < cut.from_ms:
            text = f"partitions: until_ms {cut.until_ms:g} is before from_ms {cut.from_ms:g}"
            raise ConfigurationError(text)
    group = scenario.participants
    used = {index for cut in scenario.partitions for index in cut.side}
    used |= {join.participant for join in scenario.joins}
    used |= {restart.participant for restart in scenario.restarts}
    used |= {crash.participant for crash in scenario.crashes}
    if used and max(used) >= group:
        text = f"there is no participant {max(used)}: the {group} are numbered from 0"
        raise ConfigurationError(text)


def largest_payload(scenario: Scenario) -> int:
    """Return how many bytes a channel of a scenario takes at most.

    Raises:
        ConfigurationError: Its headers leave no room for any.
    """
    segmenter = Segmenter(
        channel_id=CHANNEL_ID,
        sender_id=f"p{scenario.participants - 1}",
        content_topic=CONTENT_TOPIC,
        segmentation=scenario.segmentation,
        sds=scenario.sds,
        max_message_bytes=DEFAULT_MAX_MESSAGE_BYTES,
        encryption_overhead=0,
    )
    return min(segmenter.max_payload_bytes, scenario.sds.max_outgoing_bytes)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ConfigurationError(_must(name, "be a number", value))
    try:
        return float(value)
    except OverflowError as error:
        raise ConfigurationError(_must(name, "be a number of fewer digits", value)) from error


def _must(name: str, what: str, value: Any) -> str:
    text = repr(value)
    shown = text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…"
    return f"{name} must {what}, not {shown}"


def _listed(items: Iterable[Any]) -> str:
    return ", ".join(map(str, items))
