"""What a worker plays, and how a job is waited for; tests/laboratory runs Spark itself."""

from __future__ import annotations

import pyarrow as pa

from benchmarks.laboratory.results import SCHEMA
from benchmarks.laboratory.spark_engine import SQL_SCHEMA, player
from benchmarks.laboratory.trial import run_trial
from tests.support.laboratory import SEED, tiny


def test_a_worker_plays_the_numbers_it_is_given() -> None:
    cells = tiny(2).cells
    numbers = pa.RecordBatch.from_pydict({"id": [1, 2]})
    (batch,) = player(cells, (2, 2), SEED)([numbers])
    assert batch.schema == SCHEMA
    found = {(row["scenario"], row["channel"]): row["digest_high"] for row in batch.to_pylist()}
    expected = [run_trial(cells[1], SEED, 0), run_trial(cells[0], SEED, 1)]
    assert found == {(row.scenario, row.channel): row.digest_high for row in expected}


def test_sql_has_the_columns_in_their_order() -> None:
    names = [part.split()[0] for part in SQL_SCHEMA.split(", ")]
    assert names == SCHEMA.names
