"""A browser and services for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.browser import Lab, MissingBrowserError, browser_program, run_browser

NETWORK = "memory://page-test?loss=0.2&seed=20"
"""A fifth of all messages is lost, for each receiver apart."""


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Give a browser and a network; skip where there is no browser."""
    try:
        browser_program()
    except MissingBrowserError as missing:
        pytest.skip(str(missing))
    async with run_browser() as browser:
        lab = Lab(browser, tmp_path, NETWORK)
        try:
            yield lab
        finally:
            await lab.close()
