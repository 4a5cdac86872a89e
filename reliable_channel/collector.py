"""Pauses the garbage collector where very many objects are made that all stay.

The collector would go through all of them several times while they are made, and find nothing: with 100,000 log rows
that took longer than making them. It must not be paused over an ``await``: others make garbage meanwhile.

Spec: none; RELIABLE-CHANNEL-API, createReliableChannel, is what it makes fast.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_lock = Lock()
_pauses = 0


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect no garbage meanwhile, in no thread; where the collector was off, it stays so.

    Threads may pause it at once: it goes on after the last of them.
    """
    global _pauses
    with _lock:
        if not _pauses and not gc.isenabled():
            is_ours = False
        else:
            is_ours = True
            _pauses += 1
            gc.disable()
    try:
        yield
    finally:
        if is_ours:
            with _lock:
                _pauses -= 1
                if not _pauses:
                    gc.enable()
