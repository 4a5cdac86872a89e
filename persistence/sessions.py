"""The sockets of a driver's sessions, for what the driver cannot do: end them from another thread, or after a fork.

A driver's connection is used by one thread, and one that waits for an answer cannot be closed by another. But its
socket can be shut down, through a handle of our own: then the driver finds that the server hung up. It must not know
which database it is.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet, finalize


class Sessions:
    """Sessions that are open; any thread may use it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._handles: WeakKeyDictionary[Any, socket.socket] = WeakKeyDictionary()
        _all.add(self)

    def add(self, connection: Any) -> None:
        """Take a driver's connection that was opened."""
        handle = socket.fromfd(connection.fileno(), socket.AF_INET, socket.SOCK_STREAM)
        finalize(connection, handle.close).atexit = False
        with self._lock:
            self._handles[connection] = handle

    def remove(self, connection: Any) -> None:
        """Forget one that is about to be closed; harmless when repeated."""
        with self._lock:
            handle = self._handles.pop(connection, None)
            if handle is not None:
                handle.close()

    def hang_up(self) -> None:
        """Have whoever waits for an answer find that there will be none."""
        with self._lock:
            for handle in list(self._handles.values()):
                with suppress(OSError):  # it has ended by itself
                    handle.shutdown(socket.SHUT_RDWR)

    def leave_to_parent(self) -> None:
        """In a child that was forked, let go of the parent's sessions without ending them."""
        self._lock = Lock()  # another thread may have held it
        with open(os.devnull, "r+b") as nothing:
            for connection, handle in list(self._handles.items()):
                handle.close()
                if not connection.closed:
                    os.dup2(nothing.fileno(), connection.fileno(), inheritable=False)
        self._handles.clear()


# A child that was forked has the sockets of its parent's sessions. It must neither keep them open when the parent ends,
# for their locks would outlive it, nor say goodbye to the server when it ends itself.

_all: Final[WeakSet[Sessions]] = WeakSet()


def _leave_to_parent() -> None:
    for sessions in list(_all):
        sessions.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
