"""``python -m benchmarks [NAME ...]``: measures and prints tables; nothing here asserts a speed.

Without a name it runs what takes seconds; what takes minutes is run by its name.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks import (
    durable_speed,
    machine_speed,
    opening_speed,
    parity_saving,
    payload_speed,
    peer_speed,
    reed_solomon_speed,
    segmentation_speed,
    service_speed,
    sync_cost,
)
from reliable_channel.core.reed_solomon.coding import MAX_SHARDS

SIZES = (2_000, 10_000, 100_000)
FLOOR = 10_000

SERVER: Final = "RELIABLE_CHANNEL_TEST_POSTGRES"
"""Environment variable: a PostgreSQL server, which is given a schema for a while."""


def show_machine() -> None:
    """Print how fast one machine is, and how much memory it takes."""
    table = Table(
        title="1 KiB messages a CPU second, one core, default bloom filter, history 2",
        caption="floor: hashing, encoding and filter alone",
    )
    for title in ("messages", "sent", "received with delivery", "peak memory, MB"):
        table.add_column(title, justify="right")
    rows = [(f"{size:,}", machine_speed.measure_afresh(size)) for size in SIZES]
    rows.append(("floor", machine_speed.measure_floor(FLOOR)))
    for title, speed in rows:
        table.add_row(
            title,
            f"{speed.sent_per_second:,.0f}",
            f"{speed.received_per_second:,.0f}",
            f"{speed.peak_bytes / 1e6:,.0f}",
        )
    Console().print(table)


def show_sync() -> None:
    """Print, as Markdown for the documentation, how many syncs groups answer with."""
    show_lines(sync_cost.lines())


def show_saving() -> None:
    """Print, as Markdown for the documentation, how many retransmissions parity saves."""
    show_lines(parity_saving.lines())


def show_lines(lines: Iterable[str]) -> None:
    """Print lines as they come."""
    for line in lines:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def show_reed_solomon() -> None:
    """Print how fast both parity codes are beside a C library."""
    peer = reed_solomon_speed.peer_library()
    table = Table(
        title="Reed-Solomon, MB of payload a CPU second; times zfec: median (smallest-largest)"
    )
    table.add_column("data, parity, shard")
    table.add_column("")
    titles = ["zfec", "reedsolo", "times zfec", "leopard", "times zfec"]
    columns = reed_solomon_speed.COLUMNS
    for title in (*titles, f"library, extrapolated from {columns} columns"):
        table.add_column(title, justify="right")
    for shape in reed_solomon_speed.SHAPES:
        for speed in reed_solomon_speed.measure(shape, peer=peer):
            ours = [
                text
                for code in reed_solomon_speed.CODES
                for text in (f"{speed.rates[code]:,.0f}", str(speed.ratios.get(code, "-")))
            ]
            theirs = f"{speed.rates[reed_solomon_speed.PEER]:,.0f}" if peer else "-"
            library = f"{speed.library_rate:.2f}"
            table.add_row(str(shape), speed.operation, theirs, *ours, library)
    Console().print(table)
    if peer is None:
        Console().print(reed_solomon_speed.INSTALL_PEER, markup=False, soft_wrap=True)


def show_harm() -> None:
    """Print what one received segment can cost."""
    table = Table(title="CPU seconds for a segment that completes a set which makes nothing")
    for title in ("data, parity, shard", "code", "with a length", "without"):
        table.add_column(title, justify="right")
    for shape in reed_solomon_speed.HOSTILE_SHAPES:
        for code in reed_solomon_speed.CODES:
            if shape.data + shape.parity <= MAX_SHARDS[code]:
                harm = reed_solomon_speed.measure_harm(shape, code)
                table.add_row(
                    str(shape), code, f"{harm.seconds:.2f}", f"{harm.unsized_seconds:.2f}"
                )
    Console().print(table)


def show_segmentation() -> None:
    """Print how fast payloads are cut and put together, beside one hash of them."""
    table = Table(
        title="Segmentation, MB of payload a CPU second; share of the hash: median (smallest-largest)"
    )
    for title in ("MiB", "data, parity", "hash alone"):
        table.add_column(title, justify="right")
    for work in segmentation_speed.WORKS:
        table.add_column(work, justify="right")
        table.add_column("share", justify="right")
    for size in segmentation_speed.SIZES:
        speed = segmentation_speed.measure(size)
        table.add_row(
            f"{size / segmentation_speed.MIB:g}",
            f"{speed.data_count}, {speed.parity_count}",
            f"{speed.rates[segmentation_speed.HASH]:,.0f}",
            *(
                text
                for work in segmentation_speed.WORKS
                for text in (f"{speed.rates[work]:,.0f}", str(speed.shares[work]))
            ),
        )
    Console().print(table)


def show_payload() -> None:
    """Print how fast a large payload goes all the way, beside the hashes and ciphers that it cannot do without."""
    octets = payload_speed.OCTETS
    table = Table(
        title=f"{octets / 1e6:g} MB all the way, MB a CPU second; share of the floor: median (smallest-largest)",
        caption="floor: all passes together",
    )
    for title in ("filter for", "segments", *payload_speed.PASSES, "floor", "pipeline", "share"):
        table.add_column(title, justify="right")
    for capacity in payload_speed.BLOOM_CAPACITIES:
        speed = asyncio.run(payload_speed.measure(capacity, octets, payload_speed.ROUNDS))
        rates = (*speed.passes.values(), speed.floor_rate, speed.rate)
        table.add_row(
            f"{capacity:,}",
            str(speed.segments),
            *(f"{rate:,.0f}" for rate in rates),
            str(speed.share),
        )
    Console().print(table)


def show_durable() -> None:
    """Print how fast sends are kept, how long opening takes, and what a send costs with a long log."""
    rounds = durable_speed.ROUNDS
    show_comparisons("SQLite", durable_speed.compare(durable_speed.LOADS, rounds))
    server = os.environ.get(SERVER, "")
    if server:
        loads = [load for load in durable_speed.LOADS if load.synchronous == "FULL"]
        with durable_speed.schema_of_our_own(server) as url:
            show_comparisons("PostgreSQL", durable_speed.compare(loads, rounds, url))
    rows = durable_speed.rows_of_a_send(durable_speed.LOADS[0])
    text = ", ".join(f"{name} {count:.1f}" for name, count in rows.items())
    Console().print(f"Rows that a message of one writer changes: {text}", soft_wrap=True)
    with TemporaryDirectory() as folder:
        stores = asyncio.run(opening_speed.make_stores(Path(folder), opening_speed.SIZES))
        show_openings(stores)
        show_growth(stores)


def show_comparisons(database: str, found: Iterable[durable_speed.Comparison]) -> None:
    """Print sends beside the bare database."""
    table = Table(
        title=f"{database}: durable sends of 1 KiB a second; share of bare: median (smallest-largest)",
        caption="kept: send returned; published: also on the network, and that kept, too",
    )
    table.add_column("synchronous")
    titles = ("writers", "batch", "bare", "kept", "share", "published", "share")
    for title in (*titles, "CPU µs: bare, kept, published"):
        table.add_column(title, justify="right")
    for item in found:
        cpu = (item.bare_cpu, item.kept_cpu, item.published_cpu)
        table.add_row(
            item.load.synchronous,
            f"{item.load.writers:,}",
            f"{item.batch:.1f}",
            f"{item.bare_rate:,.0f}",
            f"{item.kept_rate:,.0f}",
            str(item.kept_share),
            f"{item.published_rate:,.0f}",
            str(item.published_share),
            ", ".join(f"{seconds * 1e6:,.0f}" for seconds in cpu),
        )
    Console().print(table)


def show_openings(stores: dict[int, Path]) -> None:
    """Print how long channels take to open."""
    table = Table(title="Opening a channel, seconds: median; all: median (smallest-largest)")
    table.add_column("log entries", justify="right")
    table.add_column("file")
    for title in ("database", "rows", "machine", "all"):
        table.add_column(title, justify="right")
    for (_, temperature), openings in opening_speed.measure_openings(
        stores, opening_speed.ROUNDS
    ).items():
        middle = opening_speed.middle(openings)
        parts = (middle.store, middle.rows, middle.machine)
        table.add_row(
            f"{middle.entries:,}",
            temperature,
            *(f"{seconds:.3f}" for seconds in parts),
            opening_speed.spread([item.total for item in openings]),
        )
    Console().print(table)


def show_growth(stores: dict[int, Path]) -> None:
    """Print what a send costs with logs of several lengths."""
    table = Table(title="A send with a log, until it is published, µs: median (smallest-largest)")
    for title in ("log entries", "wall", "CPU"):
        table.add_column(title, justify="right")
    load = opening_speed.LOAD
    messages = load.messages
    for size, runs in opening_speed.measure_sends(stores, load, opening_speed.ROUNDS).items():
        table.add_row(
            f"{size:,}",
            opening_speed.spread([run.published.wall / messages for run in runs], 1e6),
            opening_speed.spread([run.published.cpu / messages for run in runs], 1e6),
        )
    Console().print(table)


def show_service() -> None:
    """Print how many sends the service accepts beside an empty handler, and how long a message takes."""
    table = Table(
        title="The service: sends of 1 KiB accepted a second; share of the empty handler's: median "
        "(smallest-largest)",
        caption="CPU of the server's process, µs a request; the service's until all is published",
    )
    for title in ("connections", "empty", "accepted", "share", "ms: half, 99 %"):
        table.add_column(title, justify="right")
    table.add_column("CPU µs: empty, accepted", justify="right")
    for connections in service_speed.CONNECTIONS:
        found = asyncio.run(
            service_speed.measure_acceptance(
                connections, service_speed.ROUNDS, service_speed.MESSAGES
            )
        )
        table.add_row(
            str(found.connections),
            f"{found.empty_rate:,.0f}",
            f"{found.accepted_rate:,.0f}",
            str(found.share),
            f"{found.middle_ms:.1f}, {found.slow_ms:.1f}",
            f"{found.empty_cpu_us:,.0f}, {found.accepted_cpu_us:,.0f}",
        )
    Console().print(table)
    rate = service_speed.LATENCY_RATE
    table = Table(title="From POST to the event at the receiving service, ms")
    for title in ("messages", "a second", "half", "99 %", "all"):
        table.add_column(title, justify="right")
    latency = asyncio.run(service_speed.measure_latency(rate, service_speed.LATENCY_SEC))
    times = (latency.middle_ms, latency.slow_ms, latency.worst_ms)
    table.add_row(f"{latency.messages:,}", str(rate), *(f"{time:.1f}" for time in times))
    Console().print(table)


def show_peer() -> None:
    """Print how fast one machine is beside the published JavaScript implementation."""
    node = peer_speed.peer_program()
    if node is None:
        Console().print(peer_speed.INSTALL_PEER, markup=False, soft_wrap=True)
        return
    duel = peer_speed.duel(node)
    table = Table(
        title="Messages of 1 KiB a CPU second beside @waku/sds, default bloom filter, history 2",
        caption=f"in turns of {peer_speed.TURN} messages; the last turn in brackets",
    )
    for title in ("", "ours", "@waku/sds", "times as fast"):
        table.add_column(title, justify="right")
    last = slice(-1, None)
    for name in ("send", "receive"):
        cells = [
            f"{peer_speed.rate(side, name):,.0f} ({peer_speed.rate(side[last], name):,.0f})"
            for side in (duel.ours, duel.theirs)
        ]
        times = f"{duel.times(name):.1f} ({duel.times(name, turns=last):.1f})"
        table.add_row(name, *cells, times)
    Console().print(table)


def show_laboratory() -> None:
    """Print how fast the loss laboratory plays, and what Spark adds to a pool of processes."""
    from benchmarks import laboratory_speed as speed  # needs the extra spark
    from benchmarks.laboratory.process_engine import cores_here

    cores = cores_here()
    found = speed.compare(speed.CHANNELS, speed.ROUNDS, cores)
    table = Table(
        title=f"{speed.CHANNELS:,} channels of two participants, {cores} cores, in turns; seconds",
        caption="start: until the first small wave is played; CPU: of all processes",
    )
    titles = ("start", "wall", "CPU", "trials", "channels a second and core")
    table.add_column("engine")
    for title in (*titles, "wall, times the pool's", "CPU, times the pool's"):
        table.add_column(title, justify="right")
    pool = found.plays["process"]
    for name, plays in found.plays.items():
        for other, play in zip(pool, plays, strict=True):
            table.add_row(
                name,
                f"{found.starts[name]:.1f}",
                f"{play.wall:.1f}",
                f"{play.cpu:.1f}",
                f"{play.trials:.1f}",
                f"{speed.CHANNELS / max(play.cpu, 1e-9):.0f}",
                f"{play.wall / other.wall:.2f}",
                f"{play.cpu / max(other.cpu, 1e-9):.2f}",
            )
    Console().print(table)
    text = f"Plain trial: {speed.rate():.0f} channels a second and core"
    Console().print(text, soft_wrap=True, highlight=False)
    for name in found.plays:
        peaks = [speed.peak_of_parent(name, size, cores) for size in speed.MEMORY_CHANNELS]
        sizes = ", ".join(f"{peak / 1e6:.0f} MB" for peak in peaks)
        counts = " and ".join(f"{size:,}" for size in speed.MEMORY_CHANNELS)
        line = f"Most memory of the parent, {name}, at {counts} channels: {sizes}"
        Console().print(line, soft_wrap=True, highlight=False)


BENCHMARKS: Final[dict[str, Callable[[], None]]] = {
    "machine": show_machine,
    "peer": show_peer,
    "codes": show_reed_solomon,
    "segmentation": show_segmentation,
    "payload": show_payload,
    "harm": show_harm,
    "saving": show_saving,
    "sync": show_sync,
    "durable": show_durable,
    "service": show_service,
    "laboratory": show_laboratory,
}
"""What there is, by the name on the command line."""

QUICK: Final = ("machine", "codes", "segmentation", "payload", "harm")
"""What takes seconds."""


def main(names: list[str]) -> int:
    """Run the named measurements, the quick ones when none is named."""
    unknown = sorted(set(names) - BENCHMARKS.keys())
    if unknown:
        known = ", ".join(BENCHMARKS)
        Console(stderr=True).print(
            f"no benchmark {unknown[0]!r}; there is: {known}", soft_wrap=True
        )
        return 2
    for name, show in BENCHMARKS.items():
        if name in (names or QUICK):
            show()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
