"""The stores that are opened hold what they are said to hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

from benchmarks import opening_speed
from benchmarks.durable_speed import Load

SIZES = (5, 12)


def make(folder: Path) -> dict[int, Path]:
    return asyncio.run(opening_speed.make_stores(folder, SIZES))


def test_stores_of_each_size_are_opened_cold_and_warm(tmp_path: Path) -> None:
    found = opening_speed.measure_openings(make(tmp_path), rounds=2)
    assert list(found) == [(size, kind) for size in SIZES for kind in ("cold", "warm")]
    for (size, _), openings in found.items():
        assert [item.entries for item in openings] == [size, size]
        for item in openings:
            assert min(item.store, item.rows, item.machine) > 0
            assert item.total == item.store + item.rows + item.machine


def test_sends_go_through_a_copy(tmp_path: Path) -> None:
    stores = make(tmp_path)
    found = opening_speed.measure_sends(stores, Load(2, 6), rounds=2)
    assert [len(runs) for runs in found.values()] == [2, 2]
    assert all(sum(run.batches) == 6 for runs in found.values() for run in runs)
    assert not list(tmp_path.glob("*.copy.db*"))
    opened = opening_speed.measure_openings(stores, rounds=1)
    assert [opened[size, "warm"][0].entries for size in SIZES] == list(SIZES)
