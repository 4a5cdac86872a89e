"""One Spark session for all tests of this folder: it is slow to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.laboratory import why_no_spark

if TYPE_CHECKING:
    from benchmarks.laboratory.spark_engine import SparkEngine


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the report of runs in this process, which takes seconds."""
    monkeypatch.setattr("benchmarks.laboratory.run.report", lambda *given: None)


@pytest.fixture(scope="session")
def needs_spark() -> None:
    """Skip where Spark cannot be run."""
    missing = why_no_spark()
    if missing:
        pytest.skip(missing)


@pytest.fixture(scope="session")
def spark(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    """Give Spark on two cores of this machine."""
    from benchmarks.laboratory.spark_engine import SparkEngine
    from benchmarks.laboratory.spark_session import Master

    engine = SparkEngine(Master("local[2]"), tmp_path_factory.mktemp("spark"))
    try:
        yield engine
    finally:
        engine.close()
