"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

pytest.register_assert_rewrite("persistence.testing")


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
