"""What can be measured, by name; each gives its tables as soon as they are known.

A new benchmark is a module with a function that gives tables, and a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks import (
    channel_load,
    durable_tables,
    growth,
    idle_memory,
    machine_speed,
    micro_speed,
    parity_saving,
    payload_speed,
    peer_speed,
    reed_solomon_speed,
    segmentation_speed,
    service_speed,
    sync_cost,
)
from benchmarks.figures import Part


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One thing that can be measured.

    Attributes:
        parts: Measures, and gives tables and lines.
        about: What it is, in a line.
        is_quick: Whether it is run where none is named; the others take minutes.
    """

    parts: Callable[[], Iterable[Part]]
    about: str
    is_quick: bool = False


def laboratory() -> Iterator[Part]:
    """Measure the loss laboratory, which needs the extra ``spark``."""
    from benchmarks import laboratory_speed

    yield from laboratory_speed.tables()


BENCHMARKS: Final[dict[str, Benchmark]] = {
    "micro": Benchmark(
        micro_speed.tables, "hashing, bloom filter, wire codecs, beside the libraries alone", True
    ),
    "machine": Benchmark(
        machine_speed.tables, "send, receive, acknowledge; 1, 10, 50 participants", True
    ),
    "peer": Benchmark(peer_speed.tables, "the same beside @waku/sds through Node.js"),
    "codes": Benchmark(reed_solomon_speed.tables, "both parity codes beside zfec", True),
    "segmentation": Benchmark(
        segmentation_speed.tables, "segmentation and reassembly beside one hash", True
    ),
    "payload": Benchmark(payload_speed.tables, "20 MB all the way, beside the passes", True),
    "harm": Benchmark(reed_solomon_speed.harm_tables, "what one hostile segment costs", True),
    "growth": Benchmark(
        growth.tables, "a message with 1 and 1,000 channels, and the 100,000th message"
    ),
    "memory": Benchmark(idle_memory.tables, "bytes that an idle channel takes"),
    "channels": Benchmark(
        channel_load.tables, "1,000 channels in one service, 1,000 messages a second"
    ),
    "durable": Benchmark(durable_tables.tables, "sends kept durably beside the bare database"),
    "service": Benchmark(service_speed.tables, "sends over HTTP beside an empty handler"),
    "saving": Benchmark(parity_saving.lines, "retransmissions that parity saves (Markdown)"),
    "sync": Benchmark(sync_cost.lines, "syncs that groups answer with (Markdown)"),
    "laboratory": Benchmark(laboratory, "the loss laboratory, with and without Spark"),
}
"""By the name on the command line, in the order they are run."""
