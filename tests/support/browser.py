"""Real services on ports of their own, and the browser that looks at their page.

Services of one test share the test's event loop, so that a ``memory://`` network can join them. The browser is the
system's Chromium; none is ever downloaded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from api.settings import ServiceSettings
from api.tokens import Tokens
from tests.support.live import LiveService

PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
"""Names that the browser goes by, in the order in which they are looked for."""


class MissingBrowserError(Exception):
    """There is no browser to be had, for the reason given."""


def browser_program() -> str:
    """Return the path of the system's browser.

    Raises:
        MissingBrowserError: There is none.
    """
    for name in PROGRAMS:
        found = shutil.which(name)
        if found:
            return found
    problem = f"no browser: apt-get install chromium (looked for {', '.join(PROGRAMS)})"
    raise MissingBrowserError(problem)


@asynccontextmanager
async def run_browser() -> AsyncIterator[Browser]:
    """Run a browser without a window.

    Raises:
        MissingBrowserError: It cannot be had.
    """
    program = browser_program()
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program,
            # As root Chromium refuses its sandbox; /dev/shm is small in containers.
            args=["--disable-dev-shm-usage", *(["--no-sandbox"] if root else [])],
        )
        try:
            yield browser
        finally:
            await browser.close()


# --- What a page did that it must not ------------------------------------------------------------


@dataclass(slots=True)
class Watch:
    """Notes what goes wrong in a page, and where it asks for things.

    Attributes:
        problems: Errors of the console and of scripts, and violations of the policy.
        hosts: ``host:port`` of each request that leaves the page.
    """

    problems: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


def watch(page: Page) -> Watch:
    """Watch a page from now on."""
    seen = Watch()

    def on_request(url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("data", "blob"):
            seen.hosts.add(parts.netloc)

    page.on("request", lambda request: on_request(request.url))
    page.on("pageerror", lambda error: seen.problems.append(f"script: {error}"))
    page.on(
        "console",
        lambda message: (
            seen.problems.append(f"console: {message.text}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    return seen


# --- Services ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Lab:
    """Services and the pages that look at them, in one network.

    Attributes:
        browser: What the pages are in.
        folder: Where databases are kept.
        network: URL of the network that all services are in.
        services: Those that were started.
        watches: One for each page.
    """

    browser: Browser
    folder: Path
    network: str
    services: list[LiveService] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)
    watches: list[Watch] = field(default_factory=list)

    async def serve(self, tokens: Tokens | None = None, **settings: Any) -> LiveService:
        """Start a service with a database of its own."""
        database = f"sqlite:///{self.folder / f'{len(self.services)}.db'}"
        given = {"database": database, "node": self.network, **settings}
        service = LiveService(ServiceSettings(**given), tokens or Tokens())
        self.services.append(service)
        await service.start()
        return service

    async def look_at(self, service: LiveService, **options: Any) -> Page:
        """Open the page of a service in a window of its own."""
        context = await self.browser.new_context(**options)
        self.contexts.append(context)
        page = await context.new_page()
        self.watches.append(watch(page))
        await page.goto(service.url)
        return page

    def problems(self) -> list[str]:
        """Return what went wrong in any page."""
        return [problem for seen in self.watches for problem in seen.problems]

    async def close(self) -> None:
        """Close windows and services."""
        for context in self.contexts:
            await context.close()
        for service in self.services:
            await service.stop()
