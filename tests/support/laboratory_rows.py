"""Rows of results made by hand or played, and the folders they are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.laboratory.cell import Cell, Label
from benchmarks.laboratory.measures import Measures, RatioSums
from benchmarks.laboratory.results import OTHER, REPAIR, STORE, Trial, batch_of
from benchmarks.simulation.scenario import Scenario, StoreFaults
from reliable_channel.config import SdsConfig, SegmentationConfig

MS_TABLE: Final = (0, 7, 999, 1_000, 1_009, 1_010, 12_345, 999_999, 1_000_000, 2_147_483_647)
"""Milliseconds around the places where a fourth digit is dropped, and the largest of the columns."""


@dataclass(frozen=True, slots=True)
class Place:
    """What measures and a report need to know of a cell."""

    key: str
    labels: tuple[tuple[str, Label], ...] = ()

    @property
    def name(self) -> str:
        """The key; there is no other."""
        return self.key


def write_rows(folder: Path, trials: Sequence[Trial], *, files: int = 1) -> None:
    """Write rows as a run leaves them: a folder a cell, with so many files.

    Args:
        folder: Where the folders of cells are.
        trials: Of one cell.
        files: The rows go to them in turn.
    """
    target = folder / f"scenario={trials[0].scenario}"
    target.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        table = pa.Table.from_batches([batch_of(trials[number::files])])
        pq.write_table(table.drop_columns("scenario"), target / f"part-{number}.parquet")


def drawn_trials(key: str, channels: Iterable[int], *, seed: int = 1) -> list[Trial]:
    """Return rows of all kinds of values, some of them with a problem."""
    return [_drawn(key, channel, Random(f"{seed}/{channel}")) for channel in channels]


def _drawn(key: str, channel: int, random: Random) -> Trial:
    if random.random() < 0.1:
        return Trial(scenario=key, channel=channel, problem='ValueError: it\'s \\ "so"').seal()
    messages = random.randrange(4)
    receivers = [random.randrange(3) for _ in range(messages)]
    delivered = sum(receivers)
    return Trial(
        scenario=key,
        channel=channel,
        messages=messages,
        owed=2 * messages,
        delivered=delivered,
        segments=4 * messages,
        retransmissions=random.randrange(9),
        transmissions=random.randrange(50),
        sent_bytes=random.randrange(2**36),
        payload_bytes=messages * 1_024,
        latency_ms=[random.choice(MS_TABLE) for _ in range(delivered)],
        round=[random.choice((0, 1, 5, STORE, REPAIR, OTHER)) for _ in range(delivered)],
        confirm_ms=[random.choice(MS_TABLE) for _ in range(random.randrange(3))],
        queue_ms=[random.randrange(100_000) for _ in range(messages)],
        tries=[random.randrange(4, 1_200) for _ in range(messages)],
        receivers=receivers,
        virtual_ms=random.randrange(10**7),
    ).seal()


def cell_of(name: str, labels: dict[str, Label] | None = None, **changes: Any) -> Cell:
    """Return a cell of a short scenario with changes to it."""
    return Cell(name=name, labels=tuple((labels or {}).items()), scenario=replace(SHORT, **changes))


SHORT: Final = Scenario(
    participants=2,
    messages=4,
    interval_ms=1_000.0,
    payload_bytes=(1_024, 1_024),
    sds=SdsConfig(bloom_capacity=100, enable_repair=False),
    segmentation=SegmentationConfig(segment_size_bytes=256),
    store=StoreFaults(enabled=False),
)
"""Four messages of four segments between two, without repair and store."""


def measures_of(
    key: str,
    *,
    owed: int = 1_000,
    delivered: int = 1_000,
    channels: int = 5_000,
    **others: Any,
) -> Measures:
    """Return measures as if every channel had been the like, but for the one with all losses.

    Args:
        key: Of the cell.
        owed: Deliveries owed in each channel.
        delivered: Made in each, on average.
        channels: Rows.
        others: Further fields of `Measures`; ``sums`` are put to those that are there.
    """
    made = [owed + 2 * (delivered - owed) if n % 2 else owed for n in range(channels)]
    found = Measures.empty(key)
    found.channels = channels
    found.sums |= {
        "owed": owed * channels,
        "delivered": sum(made),
        "messages": owed * channels,
        "segments": 4 * owed * channels,
    }
    found.sums |= others.pop("sums", {})
    found.ratios["delivery"] = RatioSums(
        channels=channels,
        numerator=sum(made),
        denominator=owed * channels,
        numerator_squares=sum(value * value for value in made),
        products=sum(value * owed for value in made),
        denominator_squares=owed * owed * channels,
    )
    found.ratios["overhead"] = RatioSums(channels=channels, numerator=6, denominator=4)
    found.latency = {0: {50: sum(made)}}
    for name, value in others.items():
        setattr(found, name, value)
    return found
