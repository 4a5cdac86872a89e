"""What a client sees of a server that ended."""

from __future__ import annotations

import socket
from contextlib import suppress


def assert_hung_up(client: socket.socket) -> None:
    """Check that the other side closed a connection without an answer."""
    client.settimeout(5)
    with suppress(ConnectionResetError):
        assert client.recv(1) == b""
