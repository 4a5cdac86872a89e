"""What a node has given us already: hashes within a bound, and the newest time among them.

Decides whether a message is new; it never asks anybody.

Spec: P2P-RELIABILITY, Store-based reliability for receiving: the local cache of hashes.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from reliable_channel.ports import Clock
from reliable_channel.types import Nanoseconds

MAX_SEEN: Final = 65_536
"""Hashes kept, about 10 MB."""


class SeenMessages:
    """The hashes of the newest messages.

    Args:
        clock: Bounds what a message claims about its time.
        capacity: Hashes kept; the oldest arrivals go first.
    """

    def __init__(self, clock: Clock, capacity: int = MAX_SEEN) -> None:
        self._clock = clock
        self._capacity = capacity
        self._times: OrderedDict[bytes, Nanoseconds] = OrderedDict()
        self.newest_ns: Nanoseconds = 0
        """Time of the newest message; 0 before the first. Never in the future."""
        self.horizon_ns: Nanoseconds = 0
        """Up to here messages may have been seen and forgotten: a store must not be asked for them."""

    def __contains__(self, message_hash: bytes) -> bool:
        return message_hash in self._times

    def __len__(self) -> int:
        return len(self._times)

    def add(self, message_hash: bytes, timestamp_ns: Nanoseconds) -> bool:
        """Take note of a message and say whether it is new."""
        if message_hash in self._times:
            return False
        time = min(timestamp_ns, self._clock.now_ns())
        self._times[message_hash] = time
        self.newest_ns = max(self.newest_ns, time)
        if len(self._times) > self._capacity:
            _, gone = self._times.popitem(last=False)
            self.horizon_ns = max(self.horizon_ns, gone)
        return True
