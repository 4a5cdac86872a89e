"""Ending a session from another thread; what a fork does with sessions is in test_leases.py."""

from __future__ import annotations

import gc
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from persistence.sessions import Sessions


class Connection:
    """What a driver gives, with a socket of its own."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end

    def fileno(self) -> int:
        return self.end.fileno()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_who_waits_finds_that_the_other_hung_up(ends: tuple[socket.socket, socket.socket]) -> None:
    sessions, connection = Sessions(), Connection(ends[0])
    sessions.add(connection)
    found: list[bytes] = []
    waiting = threading.Thread(target=lambda: found.append(connection.end.recv(1)))
    waiting.start()
    sessions.hang_up()
    waiting.join(10)
    assert found == [b""]
    sessions.hang_up()


def test_a_session_that_is_removed_is_left_alone(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    sessions, connection = Sessions(), Connection(ends[0])
    sessions.add(connection)
    sessions.remove(connection)
    sessions.remove(connection)
    sessions.hang_up()
    ends[1].send(b"x")
    assert connection.end.recv(1) == b"x"


def test_closing_a_session_closes_it_for_the_other_side(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    """No handle of ours keeps it open, neither after it was removed nor after it was forgotten."""
    sessions = Sessions()
    connection = Connection(ends[0])
    sessions.add(connection)
    ends[0].close()
    del connection
    gc.collect()
    ends[1].settimeout(10)
    assert ends[1].recv(1) == b""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="cannot count descriptors here")
def test_handles_do_not_pile_up(ends: tuple[socket.socket, socket.socket]) -> None:
    sessions = Sessions()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        connection = Connection(ends[0])
        sessions.add(connection)
        sessions.remove(connection)
    assert len(os.listdir("/proc/self/fd")) == before
