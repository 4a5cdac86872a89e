"""What a worker of Spark does with items, without Spark; tests/laboratory does it with."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.spark_analysis import SCHEMA, worker
from reliable_channel.errors import ConfigurationError, StoreUnavailableError


def results(job: Any, items: list[tuple[int, Any]], numbers: list[int]) -> dict[int, Any]:
    batches = [pa.RecordBatch.from_pydict({"id": [number]}) for number in numbers]
    found = list(worker(job, items)(batches))
    assert all(batch.schema == SCHEMA for batch in found)
    return {
        row["place"]: pickle.loads(row["result"]) for batch in found for row in batch.to_pylist()
    }


def test_results_carry_the_places_of_their_items() -> None:
    assert results(len, [(2, "aa"), (0, ""), (1, "a")], [0, 2]) == {2: 2, 1: 1}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ConfigurationError("no such file"), ConfigurationError),
        (StoreUnavailableError("server gone"), LaboratoryError),
        (PermissionError(13, "Permission denied", "log.jsonl"), LaboratoryError),
    ],
)
def test_errors_that_people_are_told_come_back(error: Exception, told: type[Exception]) -> None:
    def job(_: object) -> None:
        raise error

    refusal = results(job, [(0, "")], [0])[0]
    assert type(refusal.error) is told
    assert str(refusal.error) == str(error)


def test_a_bug_is_not_caught() -> None:
    with pytest.raises(ZeroDivisionError):
        results(lambda item: 1 // item, [(0, 0)], [0])
