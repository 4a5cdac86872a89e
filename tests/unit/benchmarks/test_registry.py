"""Every benchmark says what it is, and some are quick."""

from __future__ import annotations

from benchmarks.registry import BENCHMARKS


def test_each_benchmark_is_described_in_a_line() -> None:
    for name, item in BENCHMARKS.items():
        assert name == name.lower()
        assert 10 < len(item.about) < 80
        assert "\n" not in item.about
    assert {"machine", "codes", "segmentation", "payload", "harm", "micro"} == {
        name for name, item in BENCHMARKS.items() if item.is_quick
    }
