"""Masters, their settings, and the one line that an error of Spark comes to."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue

import pytest

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.java import Java
from benchmarks.laboratory.spark_session import (
    Master,
    Watched,
    choose_master,
    environment,
    explain,
    idle,
    python_path,
    quiet,
    settings,
    variables,
)
from tests.support.laboratory import ROOT
from tests.support.ports import free_ports

JAVA = Java(Path("/java/bin/java"), "17", Path("/java"))


@pytest.mark.parametrize(
    ("given", "workers", "variables", "url"),
    [
        ("spark://a:1", 2, {"SPARK_REMOTE": "sc://b:1"}, "spark://a:1"),
        (None, 2, {"SPARK_REMOTE": "sc://b:1"}, "sc://b:1"),
        (
            None,
            None,
            {"SPARK_REMOTE": "sc://b:1", "RELIABLE_CHANNEL_SPARK_MASTER": "yarn"},
            "yarn",
        ),
        (None, None, {"SPARK_REMOTE": ""}, "local[*]"),
        (None, 3, {}, "local[3]"),
    ],
)
def test_the_flag_comes_before_the_environment(
    given: str | None, workers: int | None, variables: dict[str, str], url: str
) -> None:
    assert choose_master(given, workers, variables) == Master(url)


@pytest.mark.parametrize(
    ("url", "local", "loopback"),
    [
        ("local", True, True),
        ("local[*]", True, True),
        ("local-cluster[2,1,1024]", False, False),
        ("spark://127.0.0.1:7077", False, True),
        ("spark://10.0.0.1:7077", False, False),
        ("yarn", False, False),
        ("sc://127.0.0.1:15002", False, False),
    ],
)
def test_loopback_settings_are_for_this_machine_alone(
    url: str, local: bool, loopback: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/theirs")
    master = Master(url)
    assert (master.is_local, master.is_loopback) == (local, loopback)
    found = settings(master, Path("/out"))
    assert ("spark.driver.host" in found) == loopback
    assert found["spark.sql.sources.partitionColumnTypeInference.enabled"] == "false"
    names = variables(master, JAVA)
    assert names.get("SPARK_LOCAL_IP") == ("127.0.0.1" if loopback else None)
    assert names.get("PYSPARK_PYTHON") == (sys.executable if loopback else None)
    assert ("PYTHONPATH" in names) == local
    assert names["JAVA_HOME"] == "/java"


def test_workers_elsewhere_take_our_python_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert variables(Master("yarn"), JAVA)["PYSPARK_PYTHON"] == sys.executable


def test_workers_here_find_the_same_packages() -> None:
    entries = python_path("/one").split(os.pathsep)
    assert entries == [str(ROOT), "/one"]
    assert python_path(os.pathsep.join(entries)).split(os.pathsep) == entries


def test_the_environment_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_OF_OURS", "1")
    with environment({"ONE_OF_OURS": None, "TWO_OF_OURS": "2"}):
        assert (os.environ.get("ONE_OF_OURS"), os.environ["TWO_OF_OURS"]) == (None, "2")
    assert (os.environ["ONE_OF_OURS"], os.environ.get("TWO_OF_OURS")) == ("1", None)


@pytest.mark.parametrize(
    ("url", "what"), [("spark://127.0.0.1", "Spark master"), ("sc://127.0.0.1", "Connect server")]
)
def test_a_master_that_is_not_there_is_named(url: str, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        Master(f"{url}:{server.getsockname()[1]}").check()
    with pytest.raises(LaboratoryError, match=f"no .*{what} answers at {url}"):
        Master(f"{url}:{free_ports(1)[0]}").check()
    Master("yarn").check()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sc://a:1/;token=geheim;use_ssl=true", "sc://a:1"),
        ("sc://a:1;token=geheim", "sc://a:1"),
        ("sc://me:geheim@a:1/", "sc://a:1"),
        ("spark://a:1,b:2", "spark://a:1,b:2"),
        ("local[2]", "local[2]"),
        ("yarn", "yarn"),
    ],
)
def test_a_token_is_not_shown(url: str, shown: str) -> None:
    master = Master(url)
    assert master.shown == shown
    assert master.hide(f"cannot reach {url}!") == f"cannot reach {shown}!"
    assert "geheim" not in repr(master)


def test_a_token_is_in_no_error() -> None:
    master = Master("sc://127.0.0.1:1/;token=ge%20heim")
    error = RuntimeError("z" * 190 + " x-token: ge heim")
    assert "ge" not in explain(error, master.hide)
    for url in (
        f"sc://127.0.0.1:{free_ports(1)[0]}/;token=geheim",
        "sc://127.0.0.1:1;token=geheim",
    ):
        with pytest.raises(LaboratoryError, match=r"no Spark Connect server answers") as told:
            Master(url).check()
        assert "geheim" not in str(told.value)


def test_loggers_speak_to_the_log(tmp_path: Path) -> None:
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    place = "/packages/py4j/clientserver.py"
    record = root.makeRecord("root", logging.ERROR, place, 1, "interrupted", (), None)
    told: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(told)
    propagated = py4j.propagate  # not where a session of other tests is open
    root.addHandler(handler)
    try:
        with quiet(tmp_path / "log"):
            logging.getLogger("py4j.clientserver").error("a line")
            root.handle(record)
            root.error("ours")
        assert (tmp_path / "log").read_text() == "a line\n"
        assert [told.get().getMessage() for _ in range(told.qsize())] == ["ours"]
        root.handle(record)
        assert told.get_nowait().getMessage() == "interrupted"
    finally:
        root.removeHandler(handler)
    assert py4j.propagate == propagated


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "Traceback\n  x\nModuleNotFoundError: No module named 'mmh3'\n\n\tat org.apache",
            "a worker's Python has no mmh3: install reliable-channel there",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, "
            "PySpark cannot run",
            "the workers' Python is 3.12, ours 3.11: set PYSPARK_PYTHON to one of the same version there",
        ),
        (
            'java.io.IOException: Cannot run program "/x/python": error=2',
            "a worker has no program /x/python: set PYSPARK_PYTHON to its Python",
        ),
        (
            "java.io.IOException: Mkdirs failed to create file:/out/results (exists=false)",
            "a worker cannot write file:/out/results: --out has to be a folder that all of them share",
        ),
        (
            "SparkException: Job aborted.\n\tat a.b\nCaused by: java.lang.X: one\n\tat c\nCaused by: y.Z: two",
            "y.Z: two",
        ),
        ("Traceback\n File x\nValueError: bad\n\n\tat org.apache", "ValueError: bad"),
        ("", "RuntimeError"),
        ("z" * 900, "z" * 200),
    ],
)
def test_an_error_comes_to_one_line(text: str, line: str) -> None:
    assert explain(RuntimeError(text)) == line


def test_a_jobs_error_is_raised_to_who_waits() -> None:
    def fail() -> None:
        raise ValueError("from the job")

    with pytest.raises(ValueError, match="from the job"):
        Watched(fail).wait(idle, idle)


def test_an_interrupted_wait_cancels_the_job() -> None:
    cancelled = threading.Event()
    ended = threading.Event()

    def work() -> None:
        cancelled.wait()
        ended.set()

    def look() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Watched(work).wait(look, cancelled.set)
    assert ended.is_set()
