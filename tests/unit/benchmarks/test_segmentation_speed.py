"""What is timed cuts payloads and puts them together again."""

from __future__ import annotations

import random

from benchmarks import segmentation_speed
from benchmarks.segmentation_speed import reassemble, segmenter, split_with_parity

OCTETS = 250_000


def test_every_work_is_measured_beside_the_hash() -> None:
    speed = segmentation_speed.measure(OCTETS, rounds=2, least_seconds=0)
    assert (speed.data_count, speed.parity_count) == (3, 1)
    assert set(speed.rates) == {segmentation_speed.HASH, *segmentation_speed.WORKS}
    assert min(speed.rates.values()) > 0
    assert list(speed.shares) == list(segmentation_speed.WORKS)
    assert all(0 < share.low <= share.median <= share.high for share in speed.shares.values())


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
