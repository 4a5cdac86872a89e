"""The line of a cell: percentiles of histograms, ratios, and nothing where nothing was."""

from __future__ import annotations

import csv
import io

import pytest

from benchmarks.laboratory.measures import Measures
from benchmarks.laboratory.results import STORE
from benchmarks.laboratory.summary import all_latencies, line, per_segment, percentile, summary_csv
from tests.support.laboratory_rows import Place, measures_of


@pytest.mark.parametrize(
    ("histogram", "share", "value"),
    [
        ({}, 0.5, None),
        ({7: 1}, 0.5, 7),
        ({1: 50, 2: 50}, 0.5, 1),
        ({1: 49, 2: 51}, 0.5, 2),
        ({9: 5, 1: 95}, 0.95, 1),
        ({9: 6, 1: 94}, 0.95, 9),
        ({1: 1, 2: 1, 3: 1}, 1.0, 3),
    ],
)
def test_percentiles(histogram: dict[int, int], share: float, value: int | None) -> None:
    assert percentile(histogram, share) == value


def test_a_line_has_what_the_measures_say() -> None:
    measures = measures_of(
        "k",
        owed=100,
        delivered=99,
        channels=10,
        latency={0: {50: 98}, STORE: {50: 1, 700: 1}},
        confirm={90: 1},
        sums={"retransmissions": 400, "others": 800},
        digest_low=-1,
    )
    found = line(Place("k"), measures)
    assert found["delivery"] == 0.99
    assert found["residual_loss"] == 0.01
    assert found["delivery_low"] < 0.99 < found["delivery_high"]  # type: ignore[operator]
    assert (found["latency_50_ms"], found["latency_99_ms"]) == (50, 50)
    assert found["confirm_95_ms"] == 90
    assert found["queue_50_ms"] is None
    assert found["retransmissions_per_segment"] == 0.1
    assert (found["others"], found["others_per_segment"]) == (800, 0.2)
    assert found["transmissions_per_segment"] == 1.5
    assert found["digest"] == "0" * 16 + "f" * 16
    assert all_latencies(measures) == {50: 99, 700: 1}


def test_nothing_owed_is_no_delivery_of_zero() -> None:
    found = line(Place("k"), Measures.empty("k"))
    assert found["delivery"] is None
    assert found["delivery_low"] is None
    assert per_segment(Measures.empty("k"), "parity") == 0


def test_the_file_has_a_line_a_cell_and_a_column_a_label() -> None:
    cells = [
        Place("a", (("loss", 0.1), ("messages", 3))),
        Place("b", (("loss", 0.2), ("note", 'with "quotes", and\nlines'))),
        Place("c", (("loss", 0.3),)),
    ]
    text = summary_csv(cells, {key: measures_of(key, channels=4) for key in "ab"})
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["name"] for row in rows] == ["a", "b", "c"]
    assert [row["label:loss"] for row in rows] == ["0.1", "0.2", "0.3"]
    assert rows[0]["label:messages"] == "3"
    assert rows[0]["messages"] == "4000", "the measure keeps its column"
    assert rows[1]["label:note"] == 'with "quotes", and\nlines'
    assert (rows[2]["channels"], rows[2]["delivery"]) == ("0", "")
    assert summary_csv([], {}).strip() == ""
