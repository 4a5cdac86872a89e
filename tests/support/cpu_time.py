"""What a call costs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import process_time


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of a call, without collections of garbage: those take longer the more tests ran before."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        begin = process_time()
        call()
        return process_time() - begin
    finally:
        if was_enabled:
            gc.enable()
