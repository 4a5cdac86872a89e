"""The figures of durable sends: beside the bare database, with long logs, and how long opening takes.

It must not measure anything itself; ``durable_speed`` and ``opening_speed`` do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks import durable_speed, opening_speed
from benchmarks.durable_speed import Comparison, Run, Spent
from benchmarks.figures import Figure, Part, Table, figure, rate_figure
from benchmarks.opening_speed import Opening

SERVER: Final = "RELIABLE_CHANNEL_TEST_POSTGRES"
"""Environment variable: a PostgreSQL server, which is given a schema for a while."""

KEPT: Final = "kept: send returned; published: also on the network, and that kept, too"


def tables() -> Iterator[Part]:
    """Measure SQLite, PostgreSQL where a server is named, and what long logs cost."""
    rounds = durable_speed.ROUNDS
    yield comparison_table("SQLite", durable_speed.compare(durable_speed.LOADS, rounds))
    server = os.environ.get(SERVER, "")
    if server:
        loads = [load for load in durable_speed.LOADS if load.synchronous == "FULL"]
        with durable_speed.schema_of_our_own(server) as url:
            yield comparison_table("PostgreSQL", durable_speed.compare(loads, rounds, url))
    yield rows_table(durable_speed.rows_of_a_send(durable_speed.LOADS[0]))
    with TemporaryDirectory() as folder:
        stores = asyncio.run(opening_speed.make_stores(Path(folder), opening_speed.SIZES))
        yield opening_table(opening_speed.measure_openings(stores, opening_speed.ROUNDS))
        load = opening_speed.LOAD
        yield growth_table(
            opening_speed.measure_sends(stores, load, opening_speed.ROUNDS), load.messages
        )


def comparison_table(database: str, found: Sequence[Comparison]) -> Table:
    """Return sends beside the bare database."""
    figures = tuple(item for comparison in found for item in figures_of(comparison))
    return Table(f"{database}: durable sends of 1 KiB", figures, (KEPT,))


def figures_of(found: Comparison) -> Iterator[Figure]:
    """Give what one load reached."""
    load, peer = found.load, "bare"
    batch = mean(size for run in found.runs for size in run.batches)
    name = f"{load.synchronous}, {load.writers:,} writers"
    parts: tuple[tuple[str, Callable[[Run], Spent]], ...] = (
        ("kept", lambda run: run.kept),
        ("published", lambda run: run.published),
    )
    for part, of in parts:
        yield rate_figure(
            f"{name}: {part}",
            "a second",
            load.messages,
            [of(run).wall for run in found.runs],
            peer=peer,
            peer_seconds=[spent.wall for spent in found.bare],
        )
        yield figure(
            f"{name}: {part}, CPU",
            "µs a message",
            [1e6 * of(run).cpu / load.messages for run in found.runs],
            better="less",
            peer=peer,
            theirs=[1e6 * spent.cpu / load.messages for spent in found.bare],
        )
    yield figure(f"{name}: batch", "messages a commit", [batch], better="neither")


def rows_table(rows: dict[str, float]) -> Table:
    """Return the rows that one message changes, by record type."""
    return Table(
        "Rows that a message of one writer changes",
        tuple(figure(name, "rows", [count], better="less") for name, count in rows.items()),
    )


def opening_table(found: dict[tuple[int, str], list[Opening]]) -> Table:
    """Return how long channels take to open."""
    parts = ("store", "rows", "machine", "total")
    return Table(
        "Opening a channel",
        tuple(
            figure(
                f"{openings[0].entries:,} log entries, {temperature}: {part}",
                "s",
                [getattr(item, part) for item in openings],
                better="less",
            )
            for (_, temperature), openings in found.items()
            for part in parts
        ),
    )


def growth_table(found: dict[int, list[Run]], messages: int) -> Table:
    """Return what a send costs with logs of several lengths, until it is published."""
    return Table(
        "A send with a log, until it is published",
        tuple(
            figure(
                f"{size:,} log entries: {part}",
                "µs a message",
                [1e6 * float(getattr(run.published, part)) / messages for run in runs],
                better="less",
            )
            for size, runs in found.items()
            for part in ("wall", "cpu")
        ),
    )
