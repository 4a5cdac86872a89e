"""Opens a Spark session for a run, quietly, and ends it with everything that belongs to it.

What Spark's Java process writes goes to ``spark.log`` in the run's folder, and what pyspark logs does, too; nothing
shows on the terminal. It must not know what is played.

Spec: none of its own; Spark 4.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

from benchmarks.laboratory.errors import LaboratoryError
from benchmarks.laboratory.java import Java, find_java
from benchmarks.laboratory.shipping import home_of

MASTER_VARIABLES: Final = ("RELIABLE_CHANNEL_SPARK_MASTER", "SPARK_REMOTE")
"""Environment variables that may name the master: ours, then Spark's own."""

LOG_FILE: Final = "spark.log"

HIDDEN: Final = "***"
"""In the place of a secret."""

INSTALL: Final = "pyspark is missing: pip install 'reliable-channel[spark]', or --engine process"

LOOPBACK: Final = "127.0.0.1"

REACH_SECONDS: Final = 5.0
"""In which a master or a Connect server has to accept a connection; Spark itself would try for a minute."""

POLL_SECONDS: Final = 0.2
"""Between two looks at how far a job is."""

CANCEL_SECONDS: Final = 2.0
"""In which a cancelled job has to end before we go."""

START_SECONDS: Final = 15.0
"""In which a Java process whose start was interrupted has to answer, so that it can be ended."""

END_SECONDS: Final = 5.0
"""In which the Java process has to end, before it is killed."""

LOGGERS: Final = ("py4j", "pyspark", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Python loggers whose lines belong in the log."""

SETTINGS: Final = {
    "spark.app.name": "reliable-channel simulate",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.worker.reuse": "true",
    "spark.python.task.killTimeout": "200ms",
    "spark.speculation": "false",  # a channel played twice is wasted
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""For a driver of our own."""

SQL_SETTINGS: Final = {
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""For any session. Keys of cells are texts, also those that look like numbers."""


@dataclass(frozen=True, slots=True)
class Master:
    """Where Spark runs.

    Args:
        url: As Spark takes it; only for the connection, since it may hold a token.
    """

    url: str = field(repr=False)

    @property
    def shown(self) -> str:
        """For people and files: the URL without what follows its first semicolon, which may be a token, and user."""
        scheme, separator, rest = self.url.partition(";")[0].partition("://")
        return f"{scheme}{separator}{rest.rpartition('@')[2]}".rstrip("/")

    def hide(self, text: str) -> str:
        """Return a text without what of the URL is not shown."""
        text = text.replace(self.url, self.shown)
        for part in self.url.split(";")[1:]:
            value = part.partition("=")[2]
            for secret in filter(None, (part, value, unquote(value))):
                text = text.replace(secret, HIDDEN)
        return text

    @property
    def is_local(self) -> bool:
        """Whether everything is threads and children of the driver's own Java process."""
        return re.fullmatch(r"local(\[.*\])?", self.url) is not None

    @property
    def is_connect(self) -> bool:
        """Whether the driver is a Spark Connect server."""
        return self.url.startswith("sc://")

    @property
    def is_loopback(self) -> bool:
        """Whether nothing of Spark leaves this machine's loopback interface."""
        parts = urlsplit(self.url)
        return self.is_local or (parts.scheme == "spark" and parts.hostname == LOOPBACK)

    def check(self) -> None:
        """See whether somebody listens there, as far as the URL tells.

        Raises:
            LaboratoryError: Nobody does.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in ("spark", "sc") or "," in parts.netloc:
            return
        try:
            port = parts.port or {"spark": 7077, "sc": 15002}[parts.scheme]
            socket.create_connection((parts.hostname or "", port), REACH_SECONDS).close()
        except (OSError, ValueError) as error:
            what = "Spark Connect server" if self.is_connect else "Spark master"
            text = f"no {what} answers at {self.shown} ({error}): start it, or name another by --master"
            raise LaboratoryError(self.hide(text)) from error


def choose_master(
    given: str | None, workers: int | None, environment: Mapping[str, str] | None = None
) -> Master:
    """Return where to run: as the flag says, else the environment, else on this machine.

    Args:
        given: By flag.
        workers: Cores to use on this machine where nothing else is said; None is all.
        environment: Variables; None is this process's.
    """
    variables = os.environ if environment is None else environment
    named = [given, *(variables.get(name) for name in MASTER_VARIABLES)]
    return Master(next(filter(None, named), f"local[{workers or '*'}]"))


def settings(master: Master, out: Path) -> dict[str, str]:
    """Return Spark's settings for a driver of our own."""
    found = {**SETTINGS, **SQL_SETTINGS, "spark.master": master.url}
    found["spark.sql.warehouse.dir"] = f"file://{out / 'warehouse'}"
    if master.is_loopback:
        found |= {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
    if master.is_local:
        # Results come to some hundred rows a cell: more pieces than this cost more than they save.
        found |= {"spark.sql.shuffle.partitions": "8", "spark.sql.adaptive.enabled": "false"}
    return found


def variables(master: Master, java: Java) -> dict[str, str | None]:
    """Return the environment variables for a driver of our own; None is for one that must not be there."""
    found: dict[str, str | None] = {"SPARK_REMOTE": None, "SPARK_CONNECT_MODE_ENABLED": None}
    if java.home is not None:
        found["JAVA_HOME"] = str(java.home)
    if master.is_loopback or not os.environ.get("PYSPARK_PYTHON"):
        found["PYSPARK_PYTHON"] = sys.executable
    if master.is_loopback:
        # What belongs to another Spark must not come in between.
        found |= {"SPARK_LOCAL_IP": LOOPBACK, "SPARK_HOME": None, "PYSPARK_SUBMIT_ARGS": None}
    if master.is_local:
        found["PYTHONPATH"] = python_path(os.environ.get("PYTHONPATH", ""))
    return found


def python_path(present: str) -> str:
    """Return a search path by which children find the same packages of ours as this process."""
    root = str(home_of("benchmarks").parent)
    entries = [entry for entry in present.split(os.pathsep) if entry]
    if root not in entries and not root.endswith(("site-packages", "dist-packages")):
        entries.insert(0, root)
    return os.pathsep.join(entries)


@contextmanager
def environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Change this process's environment variables for a while; None removes one."""
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set(changes)
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextmanager
def quiet(log: Path) -> Iterator[IO[str]]:
    """Send what Spark's Python loggers say to the log, and give the file."""
    with log.open("a", encoding="utf-8") as file:
        handler = logging.StreamHandler(file)
        root = logging.getLogger()
        root.addFilter(_not_of_py4j)
        loggers = [logging.getLogger(name) for name in LOGGERS]
        before = [(logger, logger.propagate) for logger in loggers]
        for logger in loggers:
            logger.addHandler(handler)
            logger.propagate = False
        try:
            yield file
        finally:
            root.removeFilter(_not_of_py4j)
            for logger, propagate in before:
                logger.removeHandler(handler)
                logger.propagate = propagate


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Keep out what py4j says in nobody's name: that Ctrl-C met it while it talked to Java."""
    return Path(record.pathname).parent.name != "py4j"


@contextmanager
def signals_kept() -> Iterator[None]:
    """Keep the handler of Ctrl-C: Spark's own would talk to Java from within it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


class Watched:
    """A job that runs in a thread, so that Ctrl-C meets this one and never a talk with Java.

    Args:
        work: The job.
        patience: Seconds in which it has to end when it is cancelled, before we go.
    """

    def __init__(self, work: Callable[[], object], *, patience: float = CANCEL_SECONDS) -> None:
        self._work = work
        self._patience = patience
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # shown to whoever waits
            self._error = error

    def wait(self, look: Callable[[], None], cancel: Callable[[], None]) -> None:
        """Wait for the end of the job and raise its error.

        Args:
            look: Is called now and then.
            cancel: Is called when the wait is interrupted.
        """
        self._thread.start()
        try:
            while self._thread.is_alive():
                self._thread.join(POLL_SECONDS)
                look()
        except BaseException:
            cancelling = threading.Thread(target=cancel, daemon=True)
            cancelling.start()
            cancelling.join(self._patience)
            self._thread.join(self._patience)
            raise
        if self._error is not None:
            raise self._error


def idle() -> None:
    """Do nothing."""


@contextmanager
def open_session(master: Master, out: Path) -> Iterator[tuple[Any, str]]:
    """Give a session and the version of its driver's Java, empty for Spark Connect.

    Args:
        master: Where Spark runs.
        out: The run's folder.

    Raises:
        LaboratoryError: pyspark or Java is missing, or nobody answers at the master's URL.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise LaboratoryError(INSTALL) from error
    log = out / LOG_FILE
    with ExitStack() as stack:
        file = stack.enter_context(quiet(log))
        if master.is_connect:
            master.check()
            yield stack.enter_context(_remote_session(master, log)), ""
        else:
            java = find_java()
            master.check()
            yield stack.enter_context(_own_session(master, java, out, file)), java.version


@contextmanager
def _own_session(master: Master, java: Java, out: Path, log: IO[str]) -> Iterator[Any]:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # What this process draws and imports is nothing to Java: a configuration without a Java process behind it.
    conf = SparkConf(loadDefaults=False).setAll(list(settings(master, out).items()))
    with signals_kept(), environment(variables(master, java)):
        streams = {"stdout": log, "stderr": log, "start_new_session": True}
        made: list[Any] = []
        launch = Watched(
            lambda: made.append(launch_gateway(conf, popen_kwargs=streams)), patience=START_SECONDS
        )
        try:
            launch.wait(idle, idle)
        except BaseException as error:
            # Only a Java process that has answered once ends when nobody is there any more.
            for gateway in made:
                _end(gateway)
            if not isinstance(error, Exception):
                raise
            text = f"Spark does not start: {explain(error)}; see {out / LOG_FILE}"
            raise LaboratoryError(text) from error
        (gateway,) = made
        try:
            context = SparkContext(gateway=gateway, conf=conf)
        except BaseException as error:
            _end(gateway)
            if not isinstance(error, Exception):
                raise
            text = f"Spark does not start: {explain(error)}; see {out / LOG_FILE}"
            raise LaboratoryError(text) from error
    try:
        context.setLogLevel("WARN")
        yield SparkSession(context)
    finally:
        stopping = threading.Thread(target=_stop, args=(context,), daemon=True)
        stopping.start()
        stopping.join(END_SECONDS)
        _end(gateway)


def _stop(context: Any) -> None:
    with suppress(Exception):  # Java may be gone
        context.stop()


def _end(gateway: Any) -> None:
    """End a Java process, and have the next session start one of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    process = getattr(gateway, "proc", None)
    with suppress(Exception):
        gateway.shutdown()
    if process is None:
        return
    process.stdin.close()  # the Java process ends when it can read no more
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _remote_session(master: Master, log: Path) -> Iterator[Any]:
    try:
        from pyspark.sql import SparkSession

        session = SparkSession.builder.remote(master.url).getOrCreate()
        for name, value in SQL_SETTINGS.items():
            session.conf.set(name, value)
    except Exception as error:
        text = f"no session at {master.shown}: {explain(error, master.hide)}; see {log}"
        raise LaboratoryError(text) from error
    try:
        yield session
    finally:
        with suppress(Exception):
            session.stop()


CAUSES: Final = (
    (r"No module named '([^']+)'", "a worker's Python has no {0}: install reliable-channel there"),
    (
        r"different (?:minor )?version[^0-9]*(\d+\.\d+)[^0-9]+(\d+\.\d+)",
        "the workers' Python is {0}, ours {1}: set PYSPARK_PYTHON to one of the same version there",
    ),
    (
        r'Cannot run program "([^"]+)"',
        "a worker has no program {0}: set PYSPARK_PYTHON to its Python",
    ),
    (r"(No space left on device|Disk quota exceeded)", "{0}"),
    (
        r"(?:Mkdirs failed to create|Permission denied|AccessDenied\w*:?|Unable to create)[ :]*(\S*)",
        "a worker cannot write {0}: --out has to be a folder that all of them share",
    ),
    (r"(OutOfMemoryError[^\n]{0,60})", "{0}: a larger spark.driver.memory, or --engine process"),
    (r"Could not parse Master URL: *'?([^'\n]+)", "Spark knows no master {0}"),
)
"""What texts of errors mean, and what to do."""

LONGEST_CAUSE: Final = 200


def explain(error: BaseException, hide: Callable[[str], str] = str) -> str:
    """Return one line that says what went wrong and, where it is known, what to do.

    Args:
        error: What was raised.
        hide: Takes secrets out of a text.
    """
    text = hide(str(error))
    for pattern, meaning in CAUSES:
        found = re.search(pattern, text)
        if found:
            return meaning.format(*(part.rstrip(".,;:") for part in found.groups()))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    deepest = [line for line in lines if line.startswith("Caused by: ")]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b: ", line)]
    best = (deepest or raised or lines or [type(error).__name__])[-1 if deepest or raised else 0]
    return best.removeprefix("Caused by: ")[:LONGEST_CAUSE]
