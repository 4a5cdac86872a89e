"""Spark SQL and Arrow come to the same measures of the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.measures import Measures, measures_by_arrow, measures_by_spark
from benchmarks.laboratory.results import Trial
from benchmarks.laboratory.storage import folder_of
from tests.support.laboratory_rows import MS_TABLE, Place, drawn_trials, write_rows

if TYPE_CHECKING:
    from benchmarks.laboratory.spark_engine import SparkEngine

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(180)]

NUMBER_KEY = "0123456789012345"
"""Digits alone, with a zero before them: as a number it would be another key."""
EXPONENT_KEY = "12e4567890123456"
FOLDER = "a [folder] {of} 100 %20 *signs?"
BLOCKS = (("theory", "5"), ("receivers", 4))


def test_both_ways_are_equal(spark: Any, tmp_path: Path) -> None:
    tmp_path /= FOLDER
    write_rows(tmp_path, drawn_trials(NUMBER_KEY, range(150)), files=3)
    write_rows(tmp_path, drawn_trials(EXPONENT_KEY, range(90), seed=2), files=2)
    write_rows(tmp_path, drawn_trials("f" * 16, range(9), seed=3))
    cells = [Place(NUMBER_KEY, BLOCKS), Place(EXPONENT_KEY), Place("e" * 16)]

    by_spark = measures_by_spark(spark.session, tmp_path, cells)
    by_arrow = measures_by_arrow(tmp_path, cells)

    assert by_spark == by_arrow
    assert by_spark["e" * 16] == Measures.empty("e" * 16), "no rows"
    assert by_spark[NUMBER_KEY].first_problem is not None
    assert by_spark[NUMBER_KEY].blocks[4]
    assert by_spark[EXPONENT_KEY].blocks == {}


def test_no_rows_have_no_measures(spark: Any, tmp_path: Path) -> None:
    place = Place(NUMBER_KEY)
    empty = {place.key: Measures.empty(place.key)}
    assert measures_by_spark(spark.session, tmp_path / "none", [place]) == empty


def test_what_spark_cannot_read_is_told_in_one_line(spark: SparkEngine, tmp_path: Path) -> None:
    folder_of(tmp_path, NUMBER_KEY).mkdir(parents=True)
    (folder_of(tmp_path, NUMBER_KEY) / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(LaboratoryError, match="Spark's job failed: ") as told:
        spark.measures(tmp_path, [Place(NUMBER_KEY)])
    assert "\n" not in str(told.value)


def test_no_number_is_too_large(spark: Any, tmp_path: Path) -> None:
    """Squares of 2^40 bytes are beyond int64; the last digits are there all the same."""
    rows = [
        Trial(
            scenario=NUMBER_KEY,
            channel=channel,
            messages=len(MS_TABLE),
            sent_bytes=2**40 + channel,
            payload_bytes=2**40 - channel,
            latency_ms=list(MS_TABLE),
            round=[0] * len(MS_TABLE),
        ).seal()
        for channel in range(20)
    ]
    write_rows(tmp_path, rows, files=2)
    cells = [Place(NUMBER_KEY)]

    found = measures_by_spark(spark.session, tmp_path, cells)[NUMBER_KEY]

    assert found.ratios["bytes"].numerator_squares == sum((2**40 + n) ** 2 for n in range(20))
    assert found == measures_by_arrow(tmp_path, cells)[NUMBER_KEY]
