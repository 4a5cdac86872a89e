"""Stores that channels can keep their state in, behind ``reliable_channel.ports.ChannelStore``.

``persistence.testing`` is the suite for a store of your own. Nothing here may know the protocol.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import re

from persistence.memory import MemoryStore
from persistence.registry import Registry, open_registry
from persistence.sql import SqlStore
from persistence.sqlite import Synchronous
from reliable_channel.errors import ConfigurationError

__all__ = ("MemoryStore", "Registry", "SqlStore", "open_registry", "open_store")


def open_store(
    url: str,
    *,
    max_events: int | None = None,
    max_event_bytes: int | None = None,
    max_event_age_sec: int | None = None,
    synchronous: Synchronous = "FULL",
) -> MemoryStore | SqlStore:
    """Return the store that a URL names.

    Nothing is touched yet: ``await store.open()`` does that, or ``async with``, or the node that
    the store is given to.

    Args:
        url: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute.db`` or
            ``postgresql+psycopg://user:password@host/database``.
        max_events: Durable events that are kept of each channel, the newest ones; None: 100,000.
        max_event_bytes: Size of those events, bytes; None: 64 MiB in memory, 1 GiB elsewhere.
        max_event_age_sec: How long they are kept, seconds; None: as long as the other bounds allow.
            The newest event stays in any case.
        synchronous: SQLite only. ``FULL``: what was committed survives a power cut. ``NORMAL``:
            several times as many commits a second, but a power cut (not the end of the process) can
            undo the newest, while others have seen what they led to.

    Raises:
        ConfigurationError: The URL or a setting is unusable.
    """
    limits = {
        "max_events": max_events,
        "max_event_bytes": max_event_bytes,
        "max_event_age_sec": max_event_age_sec,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    if not isinstance(url, str):
        text = f"a store is opened by its URL, for example sqlite:///alice.db, not by {type(url).__name__}"
        raise ConfigurationError(text)
    scheme, _, rest = url.partition("://")
    if scheme in ("sqlite", "postgresql+psycopg"):
        return SqlStore(url, synchronous=synchronous, **given)
    if scheme != "memory" or rest:
        problem = (
            f"not a store: {_masked(url)!r}; use memory://, sqlite:///relative.db, "
            "sqlite:////absolute.db or postgresql+psycopg://user:password@host/database"
        )
        raise ConfigurationError(problem)
    if synchronous != "FULL":
        problem = "synchronous is a setting of SQLite; leave it out with memory://"
        raise ConfigurationError(problem)
    return MemoryStore(**given)


def _masked(url: str) -> str:
    """Return the URL without its password and options."""
    without_password = re.sub(r":(?!//).*@", ":***@", url, flags=re.DOTALL)
    return without_password.partition("?")[0]
