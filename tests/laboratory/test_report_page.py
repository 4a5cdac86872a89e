"""The report in a real browser, from a file: it opens without a complaint, fetches nothing, and its tables sort."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.laboratory.manifest import Manifest
from benchmarks.laboratory.report import write_report
from tests.support.browser import MissingBrowserError, browser_program, run_browser, watch
from tests.support.laboratory_rows import Place, measures_of

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(120)]

PHONE = {"width": 390, "height": 844}


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """As far as a report looks at it."""

    name: str = "small"
    title: str = "A small grid"
    description: str = ""
    cells: tuple[Any, ...]


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """Give the report of a grid with losses, parity and a problem."""
    cells = tuple(
        Place(f"loss {loss} parity {parity}", (("loss", loss), ("parity", parity)))
        for loss in (0.1, 0.2, 0.4)
        for parity in (0, 0.5)
    )
    measures = {
        cell.key: measures_of(cell.key, delivered=990 - 7 * place, channels=50)
        for place, cell in enumerate(cells)
    }
    measures[cells[0].key].problems = 1
    measures[cells[0].key].first_problem = (3, "ValueError: no")
    path, _ = write_report(tmp_path, Manifest(engine="process"), Grid(cells=cells), measures, [])
    return path


async def test_it_opens_from_a_file(report: Path) -> None:
    try:
        browser_program()
    except MissingBrowserError as missing:
        pytest.skip(str(missing))
    async with run_browser() as browser:
        page = await browser.new_page(viewport=PHONE, color_scheme="dark")
        seen = watch(page)
        await page.goto(report.as_uri())

        assert await page.locator("figure svg").count() > 8
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= PHONE["width"], "the page itself never scrolls sideways"
        names = page.locator("#cells tbody tr td:first-child")
        head = page.locator("#cells th").filter(has_text="delivered")
        await head.get_by_role("button").click()
        assert (await names.all_text_contents())[0] == "loss 0.4 parity 0.5"
        await head.get_by_role("button").click()
        assert (await names.all_text_contents())[0] == "loss 0.1 parity 0"
        assert await head.get_attribute("aria-sort") == "descending"

        assert seen.problems == []
        assert seen.hosts <= {""}, "nothing but the file itself"
