"""Rows of results made by hand or played, and the folders they are in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.laboratory.cell import Label
from benchmarks.laboratory.results import OTHER, REPAIR, STORE, Trial, batch_of

MS_TABLE: Final = (0, 7, 999, 1_000, 1_009, 1_010, 12_345, 999_999, 1_000_000, 2_147_483_647)
"""Milliseconds around the places where a fourth digit is dropped, and the largest of the columns."""


@dataclass(frozen=True, slots=True)
class Place:
    """What measures need to know of a cell."""

    key: str
    labels: tuple[tuple[str, Label], ...] = ()


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
