"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.support.postgres import Cluster

pytest.register_assert_rewrite("persistence.testing")


def pytest_configure() -> None:
    """Set what all tests run under."""
    _let_ctrl_c_work()
    _let_laws_take_their_time()


def _let_ctrl_c_work() -> None:
    """Have the programs that tests start heed Ctrl-C, also where a shell started the tests in the background.

    Such a shell has its children ignore SIGINT, and they pass that on.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _let_laws_take_their_time() -> None:
    """Have no law fail for the time it takes; where nothing may be skipped, each run tries the same examples."""
    all_checks = os.environ.get("RELIABLE_CHANNEL_REQUIRE_ALL") == "1"
    settings.register_profile(
        "tests",
        deadline=None,
        derandomize=all_checks or settings.default.derandomize,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("tests")


def pytest_report_header() -> str:
    """Say which build of the core is tested."""
    from reliable_channel.core.build import IS_COMPILED

    return f"core: {'compiled (make interpreted goes back to the sources)' if IS_COMPILED else 'interpreted'}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse extensions that are older than their sources, and skip what needs objects that are not compiled."""
    from reliable_channel.core.build import IS_COMPILED
    from tests.support.core_build import stale_extensions

    if not IS_COMPILED:
        return
    if os.environ.get("RELIABLE_CHANNEL_TEST_COMPILED") != "1":
        text = "the core is compiled, and tests would skip: make interpreted, or make test-compiled"
        raise pytest.UsageError(text)
    if stale := stale_extensions():
        text = f"compiled before {', '.join(stale)} changed: run make compiled again, or make interpreted"
        raise pytest.UsageError(text)
    skip = pytest.mark.skip(reason="looks into or replaces what is compiled here")
    for item in items:
        if item.get_closest_marker("interpreted") is not None:
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a failure of a skipped test that drives a foreign program, where all programs have to be there."""
    report = yield
    needed = os.environ.get("RELIABLE_CHANNEL_REQUIRE_ALL") == "1"
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if needed and skipped and item.get_closest_marker("real") is not None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"RELIABLE_CHANNEL_REQUIRE_ALL=1, but {reason}"
    return report


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """Give the URL of a PostgreSQL server that runs as long as the tests; skip where there is none."""
    from tests.support.postgres import MissingPostgresError, server_url

    with ExitStack() as stack:
        try:
            url = stack.enter_context(server_url())
        except MissingPostgresError as missing:
            pytest.skip(str(missing))
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """Give the URL of an empty schema on that server."""
    from tests.support.postgres import schema_url

    with schema_url(postgres_server) as url:
        yield url


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Give a server that a test may stop; skip where there is none."""
    from tests.support.postgres import MissingPostgresError, private_cluster

    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(private_cluster())
        except MissingPostgresError as missing:
            pytest.skip(str(missing))
        yield cluster
