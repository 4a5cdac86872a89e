"""What is timed cuts payloads and puts them together again."""

from __future__ import annotations

import random

import pytest

from benchmarks import segmentation_speed
from benchmarks.segmentation_speed import reassemble, segmenter, split_with_parity

OCTETS = 250_000


def test_every_work_is_measured_beside_the_hash() -> None:
    speed = segmentation_speed.measure(OCTETS, rounds=2, least_seconds=0)
    assert (speed.data_count, speed.parity_count) == (3, 1)
    assert set(speed.seconds) == {segmentation_speed.HASH, *segmentation_speed.WORKS}
    assert all(len(found) == 2 and min(found) > 0 for found in speed.seconds.values())
    figures = list(segmentation_speed.figures(speed))
    assert len(figures) == len(segmentation_speed.WORKS)
    assert all(item.peer == segmentation_speed.HASH and item.ratio for item in figures)


def test_the_table_has_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmentation_speed, "SIZES", (150_000, 250_000))
    monkeypatch.setattr(segmentation_speed, "ROUNDS", 1)
    (table,) = segmentation_speed.tables()
    assert isinstance(table, segmentation_speed.Table)
    assert len(table.figures) == 2 * len(segmentation_speed.WORKS)


def test_the_default_chunk_is_used_and_only_parity_differs() -> None:
    payload = random.Random(2).randbytes(OCTETS)
    plain, protected = segmenter(parity=False), segmenter(parity=True)
    assert plain.chunk_bytes == protected.chunk_bytes == 102_400
    assert plain.add_parity(plain.split(payload, 1)) == []
    data, parity = split_with_parity(protected, payload)
    assert (len(data), len(parity)) == (3, 1)


def test_segments_are_put_together_with_and_without_loss() -> None:
    payload = random.Random(2).randbytes(OCTETS)
    data, parity = split_with_parity(segmenter(parity=True), payload)
    assert reassemble(data) == payload
    assert reassemble([*data[:-1], *parity]) == payload
    assert reassemble(data[:-1]) is None
