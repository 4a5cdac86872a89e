"""Measures: nothing is lost, rounded or counted twice, however the rows are cut into files and batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.laboratory import measures as module
from benchmarks.laboratory.measures import (
    COUNTS,
    Measures,
    RatioSums,
    block_sizes,
    measures_by_arrow,
    three_digits,
)
from benchmarks.laboratory.results import STORE, Trial
from tests.support.laboratory_rows import Place, drawn_trials, write_rows

KEY = "0123456789012345"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (0, 0),
        (7, 7),
        (999, 999),
        (1_000, 1_000),
        (1_009, 1_000),
        (12_345, 12_300),
        (10**6 - 1, 999_000),
    ],
)
def test_three_digits_are_kept(value: int, kept: int) -> None:
    assert three_digits(value) == kept


@given(st.integers(0, 2**31 - 1))
def test_what_is_dropped_is_less_than_a_hundredth(value: int) -> None:
    kept = three_digits(value)
    assert kept <= value
    assert (value - kept) * 100 <= value
    assert three_digits(kept) == kept


def test_the_column_of_counts_is_every_whole_number_that_can_be_summed() -> None:
    assert {"owed", "delivered", "sent_bytes", "virtual_ms", "cpu_us"} <= set(COUNTS)
    assert not {"channel", "digest_high", "scenario", "problem", "tries"} & set(COUNTS)


def test_sums_ratios_and_histograms_of_two_rows(tmp_path: Path) -> None:
    rows = [
        Trial(
            scenario=KEY, channel=0, messages=2, owed=2, delivered=2, latency_ms=[1_234, 1_239],
            round=[0, STORE], confirm_ms=[5], queue_ms=[0, 0], tries=[4, 6], receivers=[1, 1],
        ),
        Trial(
            scenario=KEY, channel=1, messages=1, owed=1, delivered=0, queue_ms=[70_049],
            tries=[1_011], receivers=[0],
        ),
    ]  # fmt: skip
    write_rows(tmp_path, rows)

    found = measures_by_arrow(tmp_path, [Place(KEY)])[KEY]

    assert (found.channels, found.problems) == (2, 0)
    assert found.sums["messages"] == 3
    assert found.ratios["delivery"] == RatioSums(
        channels=2,
        numerator=2,
        denominator=3,
        numerator_squares=4,
        products=4,
        denominator_squares=5,
    )
    assert found.latency == {0: {1_230: 1}, STORE: {1_230: 1}}
    assert found.confirm == {5: 1}
    assert found.queue == {0: 2, 70_000: 1}
    assert found.tries == {4: 1, 6: 1, 1_011: 1}, "numbers of transmissions are not rounded"
    assert found.blocks == {}


def test_a_row_with_a_problem_is_in_the_digest_and_in_nothing_else(tmp_path: Path) -> None:
    good = Trial(scenario=KEY, channel=2, messages=1, owed=1, tries=[4], receivers=[0]).seal()
    bad = [
        Trial(scenario=KEY, channel=channel, messages=9, owed=9, tries=[7], problem=text).seal()
        for channel, text in [(7, "later"), (3, "first")]
    ]
    write_rows(tmp_path / "all", [good, *bad])
    write_rows(tmp_path / "good", [good])

    found = measures_by_arrow(tmp_path / "all", [Place(KEY)])[KEY]
    alone = measures_by_arrow(tmp_path / "good", [Place(KEY)])[KEY]

    assert (found.channels, found.problems) == (1, 2)
    assert found.first_problem == (3, "first")
    assert found.digest_high == good.digest_high ^ bad[0].digest_high ^ bad[1].digest_high
    assert found.digest != alone.digest
    found.problems, found.first_problem = 0, None
    found.digest_high, found.digest_low = alone.digest_high, alone.digest_low
    assert found == alone


def test_files_and_batches_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = drawn_trials(KEY, range(300))
    write_rows(tmp_path / "one", rows)
    write_rows(tmp_path / "five", rows[::-1], files=5)
    cells = [Place(KEY, (("theory", "5"), ("receivers", 4)))]

    whole = measures_by_arrow(tmp_path / "one", cells)
    monkeypatch.setattr(module, "BATCH_ROWS", 7)

    assert measures_by_arrow(tmp_path / "five", cells) == whole
    assert whole[KEY].channels + whole[KEY].problems == 300
    assert whole[KEY].problems > 0
    assert sum(whole[KEY].queue.values()) == whole[KEY].sums["messages"]


def test_what_is_no_file_of_results_is_left_alone(tmp_path: Path) -> None:
    write_rows(tmp_path, drawn_trials(KEY, range(3)))
    folder = tmp_path / f"scenario={KEY}"
    for name in ("_SUCCESS", ".part-0.parquet.crc", "_half.parquet", ".half.parquet"):
        (folder / name).write_bytes(b"no parquet")
    found = measures_by_arrow(tmp_path, [Place(KEY)])[KEY]
    assert found.channels + found.problems == 3


def test_a_cell_without_rows_has_measures_of_nothing(tmp_path: Path) -> None:
    assert measures_by_arrow(tmp_path, [Place("none")]) == {"none": Measures.empty("none")}
    assert Measures.empty("none").ratios["delivery"].value == 0
    assert Measures.empty("none").digest == "0" * 32


@pytest.mark.parametrize(
    ("labels", "sizes"),
    [
        ((("theory", "5"), ("receivers", 4)), {KEY: 4}),
        ((("theory", "1b"), ("receivers", 10)), {KEY: 10}),
        ((("theory", "1"), ("receivers", 4)), {}),
        ((("theory", 5), ("receivers", 4)), {KEY: 4}),
        ((("receivers", 4),), {}),
        ((("theory", "5"),), {}),
        ((("theory", "5"), ("receivers", "four")), {}),
    ],
)
def test_blocks_are_asked_for_by_labels(labels: tuple, sizes: dict) -> None:
    assert block_sizes([Place(KEY, labels)]) == sizes


def test_blocks_are_of_consecutive_channels_and_whole_ones_only(tmp_path: Path) -> None:
    def row(channel: int, tries: list[int], receivers: list[int]) -> Trial:
        number = len(tries)
        return Trial(
            scenario=KEY,
            channel=channel,
            messages=number,
            owed=number,
            tries=tries,
            receivers=receivers,
        )

    rows = [
        row(0, [1, 2], [1, 1]),
        row(1, [5, 1], [1, 0]),
        row(2, [3], [1]),
        row(3, [3], [1]),
        row(4, [9], [1]),  # its neighbour has a problem
        Trial(scenario=KEY, channel=5, problem="broken"),
        row(6, [9], [1]),  # the last, without a neighbour
    ]
    write_rows(tmp_path, rows)

    found = measures_by_arrow(tmp_path, [Place(KEY, (("theory", "5"), ("receivers", 2)))])[KEY]

    assert found.blocks == {2: Counter({5: 1, 2: 1, 3: 1})}
    assert found.blocks_complete == {2: (2, 3)}
