"""A watch over the thread that blocks: where a job takes long, somebody asks whether the database is still there.

A server that is frozen, or a network that swallows everything, would otherwise hold the thread for ever. Whoever asks
does so beside the thread, and does nothing as long as there is an answer: a job may take its time. It must not know
databases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import Any


class Watch:
    """A watch over one thread; one at a time asks.

    Args:
        patience_s: How long a job may take before we ask, seconds; None: as long as it likes.
        ask: Blocks until it has an answer, or has ended what the thread waits for.
    """

    def __init__(self, patience_s: float | None, ask: Callable[[], None]) -> None:
        self._patience_s = patience_s
        self._ask = ask
        self._began: float | None = None
        self._last: Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asker: Thread | None = None

    @contextmanager
    def job(self) -> Iterator[None]:
        """Say when a job begins and ends; in the thread that is watched."""
        self._began = time.monotonic()
        try:
            yield
        finally:
            self._began = None

    def until(self, future: Future[Any]) -> None:
        """Watch until a job that was just submitted has ended; on the event loop."""
        self._last = future
        if self._timer is None and self._patience_s is not None:
            self._wait(self._patience_s)

    def _wait(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        began, last, patience_s = self._began, self._last, self._patience_s
        if patience_s is None or (began is None and (last is None or last.done())):
            return
        left = patience_s if began is None else began + patience_s - time.monotonic()
        if left <= 0:
            self._have_asked()
            left = patience_s
        self._wait(left)

    def _have_asked(self) -> None:
        """Have somebody ask, unless somebody still waits for an answer."""
        if self._asker is None or not self._asker.is_alive():
            self._asker = Thread(target=self._ask, name="reliable-channel-watch", daemon=True)
            self._asker.start()
