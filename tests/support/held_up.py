"""A store whose thread is held up for a moment, so that what is asked for meanwhile waits together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from persistence.database import Database

OK: Final = type(None)
"""How a commit ends that is applied."""


@contextmanager
def held_up(database: Database) -> Iterator[None]:
    """Let what is asked for in the block wait for the thread together."""
    blocked = threading.Event()
    waiting = database.run(blocked.wait)
    try:
        yield
    finally:
        blocked.set()
        del waiting


async def ends(awaitables: Iterable[Awaitable[object]]) -> list[type]:
    """Return the types of errors that were raised, and `OK` for those that were not."""
    found = await asyncio.gather(*awaitables, return_exceptions=True)
    return [type(item) if isinstance(item, BaseException) else OK for item in found]
