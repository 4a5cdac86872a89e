"""What the rows of a cell come to together: sums, sums of squares and histograms, computed where the rows are.

The same measures are made by Spark SQL, for any number of rows, and by Arrow where there is no Spark; both are exact.
Nothing here may hold all rows, nor judge what it sums up. A row with a problem is counted in ``problems``, is part of
the digest of all rows, and of nothing else.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.laboratory.cell import Label
from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.results import SCHEMA
from benchmarks.laboratory.storage import literal

NOT_COUNTS: Final = ("channel", "digest_high", "digest_low")
"""Columns of whole numbers whose sum says nothing."""

COUNTS: Final = tuple(
    item.name for item in SCHEMA if item.type == pa.int64() and item.name not in NOT_COUNTS
)
"""Columns that are summed up."""

BLOCK_FORMS: Final = ("1b", "5")
"""Values of the label ``theory`` whose forms are of several receivers, and are shown on as many channels of one."""

BATCH_ROWS: Final = 1_024
"""Of Arrow, at a time: at most some 16 MB, where 200 participants get 20 messages each."""

VALUE_DIGITS: Final = 9
"""Of the largest power of ten in an int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSums:
    """What a ratio of two counts, and its variance between channels, are computed from.

    Messages of one channel are not independent, so the channel is the unit.
    """

    channels: int = 0
    numerator: int = 0
    denominator: int = 0
    numerator_squares: int = 0
    products: int = 0
    denominator_squares: int = 0

    @property
    def value(self) -> float:
        """The ratio; 0 where nothing was counted."""
        return self.numerator / self.denominator if self.denominator else 0.0


RATIOS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "delivery": (("delivered",), "owed"),
    "completion": (("complete",), "messages"),
    "confirmation": (("confirmed",), "messages"),
    "data_sends": (("segments", "retransmissions"), "segments"),
    "overhead": (("transmissions",), "segments"),
    "bytes": (("sent_bytes",), "payload_bytes"),
    "repairs": (("repairs",), "owed"),
    "late": (("late",), "owed"),
}
"""By name: the columns whose sum is the numerator, and the denominator."""


@dataclass(slots=True, kw_only=True)
class Measures:
    """All that is known of a cell's rows."""

    key: str
    """Of the cell."""
    channels: int = 0
    """Rows without a problem."""
    problems: int = 0
    """Rows with one."""
    sums: dict[str, int] = field(default_factory=dict)
    """Of each column of counts, and of ``virtual_ms`` and ``cpu_us``."""
    ratios: dict[str, RatioSums] = field(default_factory=dict)
    """By the names of `RATIOS`."""
    latency: dict[int, dict[int, int]] = field(default_factory=dict)
    """By what brought the delivery (``round``): how many deliveries by milliseconds, three digits kept."""
    confirm: dict[int, int] = field(default_factory=dict)
    """How many confirmations by milliseconds, three digits kept."""
    queue: dict[int, int] = field(default_factory=dict)
    """How many messages by milliseconds until all of them was sent, three digits kept."""
    tries: dict[int, int] = field(default_factory=dict)
    """How many messages by the transmissions of their data segments."""
    blocks: dict[int, dict[int, int]] = field(default_factory=dict)
    """By the size of a block of consecutive channels: how many messages, taken at the same place in each of them, by
    the most transmissions. Of the cells that `BLOCK_FORMS` are shown on."""
    blocks_complete: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The same: how many of these every receiver of the block got, and how many there are."""
    first_problem: tuple[int, str] | None = None
    """Lowest number of a channel with a problem, and its text."""
    digest_high: int = 0
    digest_low: int = 0
    """Exclusive or of the digests of all rows."""
    unknown: frozenset[str] = frozenset()
    """Columns and ratios that are 0 because nobody knows them, where rows are not of trials."""

    @classmethod
    def empty(cls, key: str) -> Measures:
        """Return those of a cell without rows."""
        return cls(
            key=key,
            sums=dict.fromkeys(COUNTS, 0),
            ratios={name: RatioSums() for name in RATIOS},
        )

    @property
    def digest(self) -> str:
        """The digests of all rows as 32 hexadecimal digits."""
        return f"{self.digest_high % 2**64:016x}{self.digest_low % 2**64:016x}"


class Measured(Protocol):
    """What has to be known of a cell to measure it."""

    @property
    def key(self) -> str:
        """Name of its folder of results."""

    @property
    def labels(self) -> Sequence[tuple[str, Label]]:
        """What sets it apart from others; ``theory`` and ``receivers`` ask for blocks."""


def three_digits(value: int) -> int:
    """Return a whole number of 0 or more with its first three digits kept and zeros for the rest."""
    unit = 1
    while value // unit >= 1000:
        unit *= 10
    return value // unit * unit


def block_sizes(cells: Iterable[Measured]) -> dict[str, int]:
    """Return the size of the blocks that a closed form is shown on, by the key of its cell."""
    found = {}
    for cell in cells:
        labels = dict(cell.labels)
        size = labels.get("receivers")
        if str(labels.get("theory")) in BLOCK_FORMS and isinstance(size, int) and size > 0:
            found[cell.key] = size
    return found


# --- Spark ---------------------------------------------------------------------------------------

SPARK_TYPES: Final = {
    pa.string(): "STRING",
    pa.int64(): "BIGINT",
    pa.list_(pa.int32()): "ARRAY<INT>",
    pa.list_(pa.int16()): "ARRAY<SMALLINT>",
}

FIELDS: Final = ("confirm", "queue", "tries")
"""Histograms of a column that has ``_ms`` in its name, where it is one of times."""


def measures_by_spark(spark: Any, results: Path, cells: Sequence[Measured]) -> dict[str, Measures]:
    """Return the measures of cells, computed by Spark in two or three jobs; only they come to the driver.

    Args:
        spark: The session, classic or Connect.
        results: Folder that all workers can read, with a folder ``scenario=<key>`` a cell.
        cells: Those wanted; others' results are not read.
    """
    found = {cell.key: Measures.empty(cell.key) for cell in cells}
    # A schema of our own: 16 hexadecimal digits can look like a number, and lose their zeros.
    schema = ", ".join(f"`{item.name}` {SPARK_TYPES[item.type]}" for item in SCHEMA)
    folder = results.absolute()
    # Each cell by itself: the folder's own name may have the signs of a pattern in it.
    paths = [path for path in (folder / f"scenario={key}" for key in found) if path.is_dir()]
    if not paths:
        return found
    reader = spark.read.schema(schema).option("basePath", f"file://{folder}")
    rows = reader.parquet(*map(literal, paths))
    for row in _rows_of(
        spark.sql(f"SELECT {_sums_sql()} FROM {{rows}} GROUP BY scenario", rows=rows)
    ):
        _take_sums(found[row["scenario"]], row)
    good = rows.where("problem = ''")
    for row in _rows_of(spark.sql(_histograms_sql(), rows=good)):
        _take_value(found[row["scenario"]], row["what"], row["round"], row["value"], row["number"])
    if sizes := block_sizes(cells):
        for row in _rows_of(spark.sql(_blocks_sql(sizes), rows=good)):
            _take_blocks(
                found[row["scenario"]],
                sizes[row["scenario"]],
                row["tries"],
                row["number"],
                row["complete"],
            )
    return found


def _rows_of(frame: Any) -> Iterator[dict[str, Any]]:
    """Give the rows of a small table; by Arrow, which Connect and the classic session both have."""
    for batch in frame.toArrow().to_batches():
        yield from batch.to_pylist()


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _sums_sql() -> str:
    """Return the columns of sums; of squares as decimals, which no number of bytes overflows."""
    good = "problem = ''"
    columns = [
        "scenario",
        f"count_if({good}) AS channels",
        f"count_if(NOT {good}) AS problems",
        f"min(struct(channel, problem)) FILTER (WHERE NOT {good}) AS first_problem",
        "bit_xor(digest_high) AS digest_high",
        "bit_xor(digest_low) AS digest_low",
        *(f"sum(if({good}, {name}, 0L)) AS {name}" for name in COUNTS),
    ]
    for name, (numerators, denominator) in RATIOS.items():
        above = f"CAST(if({good}, {' + '.join(numerators)}, 0L) AS DECIMAL(19))"
        below = f"CAST(if({good}, {denominator}, 0L) AS DECIMAL(19))"
        columns += [
            f"sum({above} * {above}) AS {name}_numerator_squares",
            f"sum({above} * {below}) AS {name}_products",
            f"sum({below} * {below}) AS {name}_denominator_squares",
        ]
    return ", ".join(columns)


def _three_digits_sql(value: str) -> str:
    """Return `three_digits` of an int32 in SQL; nothing but whole numbers."""
    cases = "".join(
        f" WHEN {value} < {10**digits}L THEN {value} - {value} % {10 ** (digits - 3)}L"
        for digits in range(4, VALUE_DIGITS + 1)
    )
    last = f"{value} - {value} % {10 ** (VALUE_DIGITS - 2)}L"
    return f"CASE WHEN {value} < 1000L THEN {value}{cases} ELSE {last} END"


def _histograms_sql() -> str:
    """Return the query for all histograms, in one job."""
    latency = (
        "SELECT scenario, 'latency' AS what, CAST(item.round AS BIGINT) AS round,"
        " CAST(item.latency_ms AS BIGINT) AS value FROM"
        " (SELECT scenario, explode(arrays_zip(latency_ms, round)) AS item FROM {rows})"
    )
    others = [
        f"SELECT scenario, '{name}' AS what, 0L AS round, CAST(item AS BIGINT) AS value FROM"
        f" (SELECT scenario, explode({_column_of(name)}) AS item FROM {{rows}})"
        for name in FIELDS
    ]
    kept = f"CASE WHEN what = 'tries' THEN value ELSE {_three_digits_sql('value')} END"
    return (
        f"SELECT scenario, what, round, {kept} AS value, count(*) AS number"
        f" FROM ({' UNION ALL '.join([latency, *others])}) GROUP BY 1, 2, 3, 4"
    )


def _blocks_sql(sizes: Mapping[str, int]) -> str:
    """Return the query for blocks: of each, the most tries and whether all got it; then how many there are of each."""
    cases = "".join(f" WHEN {_quoted(key)} THEN {size}L" for key, size in sizes.items())
    items = (
        f"SELECT scenario, CASE scenario{cases} END AS size, channel, owed, messages,"
        " posexplode(arrays_zip(tries, receivers)) AS (place, item) FROM {rows}"
        f" WHERE scenario IN ({', '.join(_quoted(key) for key in sizes)})"
    )
    blocks = (
        "SELECT scenario, size, max(item.tries) AS tries,"
        " min(if(item.receivers * messages = owed, 1L, 0L)) AS complete, count(*) AS members"
        f" FROM ({items}) GROUP BY scenario, size, channel div size, place"
    )
    return (
        "SELECT scenario, CAST(tries AS BIGINT) AS tries, count(*) AS number,"
        f" sum(complete) AS complete FROM ({blocks}) WHERE members = size GROUP BY scenario, tries"
    )


def _take_sums(into: Measures, row: Mapping[str, Any]) -> None:
    into.channels, into.problems = row["channels"], row["problems"]
    into.digest_high, into.digest_low = row["digest_high"], row["digest_low"]
    if (first := row["first_problem"]) is not None:
        into.first_problem = first["channel"], first["problem"]
    into.sums = {name: row[name] for name in COUNTS}
    for name, (numerators, denominator) in RATIOS.items():
        into.ratios[name] = RatioSums(
            channels=into.channels,
            numerator=sum(row[part] for part in numerators),
            denominator=row[denominator],
            numerator_squares=int(row[f"{name}_numerator_squares"]),
            products=int(row[f"{name}_products"]),
            denominator_squares=int(row[f"{name}_denominator_squares"]),
        )


def _take_value(into: Measures, what: str, brought_by: int, value: int, number: int) -> None:
    by_value = into.latency.setdefault(brought_by, {}) if what == "latency" else getattr(into, what)
    by_value[value] = by_value.get(value, 0) + number


def _take_blocks(into: Measures, size: int, tries: int, number: int, complete: int) -> None:
    by_tries = into.blocks.setdefault(size, {})
    by_tries[tries] = by_tries.get(tries, 0) + number
    before = into.blocks_complete.get(size, (0, 0))
    into.blocks_complete[size] = before[0] + complete, before[1] + number


def _column_of(name: str) -> str:
    return name if name == "tries" else f"{name}_ms"


# --- Arrow ---------------------------------------------------------------------------------------


def measures_by_arrow(results: Path, cells: Sequence[Measured]) -> dict[str, Measures]:
    """Return the measures of cells, read batch by batch: memory does not grow with the rows.

    Args:
        results: Folder with a folder ``scenario=<key>`` a cell.
        cells: Those wanted; others' results are not read.
    """
    sizes = block_sizes(cells)
    return {
        cell.key: _measures_of(cell.key, _batches(results / f"scenario={cell.key}"), sizes)
        for cell in cells
    }


def _batches(folder: Path) -> Iterator[pa.RecordBatch]:
    columns = [name for name in SCHEMA.names if name != "scenario"]
    for path in sorted(folder.glob("[!._]*.parquet")):
        try:
            with pq.ParquetFile(path) as file:
                yield from file.iter_batches(batch_size=BATCH_ROWS, columns=columns)
        except (OSError, pa.ArrowException) as error:
            text = f"{path} cannot be read; remove its folder, run again"
            raise LaboratoryError(text) from error


def _measures_of(key: str, batches: Iterable[pa.RecordBatch], sizes: Mapping[str, int]) -> Measures:
    measures = Measures.empty(key)
    blocks = _Blocks(measures, sizes[key]) if key in sizes else None
    for batch in batches:
        _add_digests(measures, batch)
        good = batch.filter(pc.equal(batch.column("problem"), ""))
        _add_problems(measures, batch, batch.num_rows - good.num_rows)
        _add_sums(measures, good)
        _add_histograms(measures, good)
        if blocks is not None:
            blocks.add(good)
    return measures


def _add_digests(measures: Measures, batch: pa.RecordBatch) -> None:
    for name in ("digest_high", "digest_low"):
        value = int(np.bitwise_xor.reduce(batch.column(name).to_numpy()))
        setattr(measures, name, getattr(measures, name) ^ value)


def _add_problems(measures: Measures, batch: pa.RecordBatch, number: int) -> None:
    if not number:
        return
    measures.problems += number
    texts = zip(
        batch.column("channel").to_pylist(), batch.column("problem").to_pylist(), strict=True
    )
    first = min(entry for entry in texts if entry[1])
    if measures.first_problem is None or first < measures.first_problem:
        measures.first_problem = first


def _add_sums(measures: Measures, batch: pa.RecordBatch) -> None:
    """Add counts and their squares; as Python's numbers, which have no end."""
    columns = {name: batch.column(name).to_pylist() for name in COUNTS}
    measures.channels += batch.num_rows
    for name, values in columns.items():
        measures.sums[name] += sum(values)
    for name, (numerators, denominator) in RATIOS.items():
        above = [sum(parts) for parts in zip(*(columns[part] for part in numerators), strict=True)]
        below = columns[denominator]
        before = measures.ratios[name]
        measures.ratios[name] = RatioSums(
            channels=measures.channels,
            numerator=before.numerator + sum(above),
            denominator=before.denominator + sum(below),
            numerator_squares=before.numerator_squares + sum(value * value for value in above),
            products=before.products + sum(a * b for a, b in zip(above, below, strict=True)),
            denominator_squares=before.denominator_squares + sum(value * value for value in below),
        )


def _add_histograms(measures: Measures, batch: pa.RecordBatch) -> None:
    rounds = _flat(batch, "round")
    latencies = _all_three_digits(_flat(batch, "latency_ms"))
    for brought_by in np.unique(rounds):
        _add_values(measures, "latency", int(brought_by), latencies[rounds == brought_by])
    for name in FIELDS:
        values = _flat(batch, _column_of(name))
        _add_values(measures, name, 0, values if name == "tries" else _all_three_digits(values))


def _add_values(
    measures: Measures, what: str, brought_by: int, values: npt.NDArray[np.int64]
) -> None:
    for value, number in zip(*np.unique(values, return_counts=True), strict=True):
        _take_value(measures, what, brought_by, int(value), int(number))


def _flat(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.int64]:
    """Return all entries of a column of lists."""
    values: npt.NDArray[np.int64] = batch.column(name).flatten().to_numpy().astype(np.int64)
    return values


def _all_three_digits(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return `three_digits` of each."""
    units = np.ones_like(values)
    for digits in range(3, VALUE_DIGITS + 1):
        units[values >= 10**digits] = 10 ** (digits - 2)
    return values // units * units


class _Blocks:
    """Puts rows together to blocks of consecutive channels; forgets a block once it is whole."""

    def __init__(self, measures: Measures, size: int) -> None:
        self.measures = measures
        self.size = size
        self.waiting: dict[tuple[int, int], tuple[int, int, int]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; a block one of whose rows never comes does not count."""
        names = ("channel", "owed", "messages", "tries", "receivers")
        for channel, owed, messages, tries, receivers in zip(
            *(batch.column(name).to_pylist() for name in names), strict=True
        ):
            for place, (sent, got) in enumerate(zip(tries, receivers, strict=True)):
                block = channel // self.size, place
                most, complete, members = self.waiting.pop(block, (0, 1, 0))
                most, members = max(most, sent), members + 1
                complete = min(complete, int(got * messages == owed))
                if members == self.size:
                    _take_blocks(self.measures, self.size, most, 1, complete)
                else:
                    self.waiting[block] = most, complete, members
