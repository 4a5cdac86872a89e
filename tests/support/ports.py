"""Ports for programs that cannot be given an open socket, nor asked which one they took."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

CANDIDATES: Final = range(20_000, 30_000)
"""Below those that systems give to connections and to whoever asks for any."""


def free_ports(count: int) -> range:
    """Return ports of the loopback interface on which nobody listens; they follow each other."""
    for first in random.sample(CANDIDATES, 100):
        ports = range(first, first + count)
        with ExitStack() as stack:
            try:
                for port in ports:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        return ports
    raise AssertionError(f"no {count} free ports in a row")
