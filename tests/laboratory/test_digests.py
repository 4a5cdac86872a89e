"""The digest of all results is the same for any engine and any number of pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.laboratory.cell import Cell
from benchmarks.laboratory.progress import Silent
from benchmarks.laboratory.results import digest_of
from benchmarks.laboratory.run import run
from benchmarks.laboratory.trial import run_trial
from tests.support.laboratory import (
    SCENARIO,
    SEED,
    options,
    running,
    spark_service,
    tiny,
    wait_for_text,
)
from tests.support.ports import free_ports

if TYPE_CHECKING:
    from benchmarks.laboratory.spark_engine import SparkEngine

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("no_report")]


@pytest.fixture(scope="session")
def plain() -> str:
    """Give the digest of a plain loop in this process."""
    return loop(tiny().cells, 12)


def loop(cells: tuple[Cell, ...], channels: int) -> str:
    parts = []
    for cell in cells:
        high = low = 0
        for channel in range(cell.channels(channels)):
            trial = run_trial(cell, SEED, channel)
            high, low = high ^ trial.digest_high, low ^ trial.digest_low
        parts.append((cell.key, cell.channels(channels), high, low))
    return digest_of(parts)


@pytest.mark.parametrize(("workers", "pieces"), [(1, None), (2, None), (2, 5), (1, 29)])
def test_processes_give_what_a_loop_gives(
    tmp_path: Path, plain: str, workers: int, pieces: int | None
) -> None:
    manifest = run(options(tmp_path, workers=workers, partitions=pieces), Silent())
    assert manifest.digest == plain
    assert [cell.channels for cell in manifest.finished.values()] == [12, 12, 5]


@pytest.mark.real
@pytest.mark.parametrize("pieces", [1, 3, 8])
def test_spark_gives_what_a_loop_gives(
    tmp_path: Path, plain: str, spark: SparkEngine, pieces: int
) -> None:
    manifest = run(options(tmp_path, "spark", partitions=pieces), Silent(), engine=spark)
    assert manifest.digest == plain
    assert manifest.versions["java"]


@pytest.mark.real
def test_engines_can_share_a_run(tmp_path: Path, plain: str, spark: SparkEngine) -> None:
    """What one finished the other skips; a folder's name may have the signs of patterns in it."""
    out = tmp_path / "a [folder] {with} signs"
    first = run(options(out, "spark"), Silent(), engine=spark)
    first.finished.popitem()
    first.write(out)
    manifest = run(options(out), Silent())
    assert manifest.digest == plain


@pytest.mark.real
@pytest.mark.parametrize("key_wanted", ["12345678", "1e5", "00000017"])
def test_keys_that_look_like_numbers_stay_texts(
    tmp_path: Path, spark: SparkEngine, key_wanted: str
) -> None:
    from benchmarks.laboratory.plan import Wave

    class Named(Cell):
        key = key_wanted  # type: ignore[assignment]

    wave = Wave(cells=(Named(name="numeral", scenario=SCENARIO),), counts=(3,), tasks=2)
    spark.play(wave, SEED, tmp_path, lambda done: None)
    assert spark.sums(wave, tmp_path)[key_wanted].rows == 3


@pytest.fixture(scope="module")
def standalone(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of a master of its own with one worker, started from the installed package."""
    folder = tmp_path_factory.mktemp("standalone")
    (port,), package = free_ports(1), "org.apache.spark.deploy"
    url = f"spark://127.0.0.1:{port}"
    host = ("--host", "127.0.0.1", "--webui-port", "0")
    ours, theirs = folder / "master.log", folder / "worker.log"
    master = (f"{package}.master.Master", *host, "--port", str(port))
    with spark_service(ours, "spark-class", *master):
        wait_for_text(ours, "I have been elected leader")
        limits = ("--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"))
        with spark_service(theirs, "spark-class", f"{package}.worker.Worker", *host, *limits, url):
            wait_for_text(theirs, "Successfully registered with master")
            yield url


@pytest.fixture(scope="module")
def connect(needs_spark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of a Spark Connect server, started from the installed package."""
    log = tmp_path_factory.mktemp("connect") / "server.log"
    (port,) = free_ports(1)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(log.parent),
    }
    pairs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with spark_service(
        log, "spark-submit", "--class", server, "--master", "local[2]", *pairs, "spark-internal"
    ):
        wait_for_text(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("cluster", ["standalone", "connect"])
def test_clusters_give_what_a_loop_gives(
    tmp_path: Path, plain: str, cluster: str, request: pytest.FixtureRequest
) -> None:
    """The package is shipped; nothing of Spark shows on the terminal."""
    url = request.getfixturevalue(cluster)
    with running(tmp_path, "spark", 3, 12, 3, url) as process:
        out, errors = process.communicate(timeout=200)
    assert (process.returncode, errors) == (0, "")
    assert out.splitlines()[-1] == plain
