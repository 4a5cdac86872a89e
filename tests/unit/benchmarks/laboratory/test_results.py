"""Rows have the columns of the schema, and digests that do not depend on time or order."""

from __future__ import annotations

from dataclasses import fields, replace

import pyarrow as pa
import pytest

from benchmarks.laboratory.results import DIGESTED, SCHEMA, Trial, batch_of, digest_of

TRIAL = Trial(scenario="00ff", channel=3, messages=2, latency_ms=[5, 6], round=[0, -1])


def test_columns_are_the_fields_of_a_trial() -> None:
    assert SCHEMA.names == [item.name for item in fields(Trial)]
    assert SCHEMA.field("round").type == pa.list_(pa.int16())
    assert SCHEMA.field("channel").type == pa.int64()
    assert SCHEMA.field("problem").type == pa.string()


def test_a_batch_gives_the_rows_back() -> None:
    trials = [replace(TRIAL).seal(), Trial(scenario="00ff", channel=4, problem="E: no").seal()]
    batch = batch_of(trials)
    assert batch.schema == SCHEMA
    assert [Trial(**values) for values in batch.to_pylist()] == trials
    assert batch_of([]).num_rows == 0


@pytest.mark.parametrize("name", [name for name in DIGESTED if name != "latency_ms"])
def test_digest_is_of_every_column(name: str) -> None:
    old = getattr(TRIAL, name)
    new = f"{old}x" if isinstance(old, str) else [*old, 1] if isinstance(old, list) else old + 1
    one, other = replace(TRIAL).seal(), replace(TRIAL, **{name: new}).seal()
    assert (one.digest_high, one.digest_low) != (other.digest_high, other.digest_low)


def test_time_is_not_in_the_digest() -> None:
    one, other = replace(TRIAL).seal(), replace(TRIAL, cpu_us=9).seal()
    assert (one.digest_high, one.digest_low) == (other.digest_high, other.digest_low)
    assert -(1 << 63) <= one.digest_high < 1 << 63


def test_digest_of_all_results_does_not_depend_on_their_order() -> None:
    parts = [("a", 1, 2, 3), ("b", 4, 5, 6)]
    assert digest_of(parts) == digest_of(reversed(parts))
    assert digest_of(parts) != digest_of([("a", 1, 2, 3), ("b", 4, 5, 7)])
