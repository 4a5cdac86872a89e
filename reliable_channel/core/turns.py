"""Whose turn it is among the clients that wait with one class of traffic.

Start-time fair queueing: a client that has had more turns than another waits until the other has caught up, as long
as the other keeps asking. It must not count transmissions or know epochs' limits; that is ``rate_limit``.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from reliable_channel.types import Nanoseconds


@dataclass(slots=True)
class WaitingClient:
    """A client that has something waiting; times are on the limiter's clock."""

    level: int
    asked_at: Nanoseconds
    resume_epoch: int = -1
    """The epoch for which it was told to come back; -1 when it was not."""
    resume_offset: Nanoseconds = 0
    """How long after the start of that epoch."""


class TurnLine:
    """The clients that wait with one class of traffic, and whose turn it is."""

    __slots__ = (
        "_absent_levels",
        "_active",
        "_level",
        "_level_counts",
        "_served_at",
        "_silent",
        "waits_since",
    )

    def __init__(self) -> None:
        self.waits_since: Nanoseconds = 0
        """When it was last served, or began to wait; means nothing while nobody waits."""
        self._served_at: Nanoseconds = -(1 << 63)
        self._active: OrderedDict[str, WaitingClient] = OrderedDict()  # longest silent first
        self._silent: dict[
            str, WaitingClient
        ] = {}  # they wait, but do not take what is kept for them
        self._absent_levels: dict[str, int] = {}
        self._level_counts: dict[int, int] = {}  # active clients by level
        self._level = 0  # of whoever was served last: newcomers start here, not in the past

    def __len__(self) -> int:
        """Count the clients that something is kept for."""
        return len(self._active)

    def find(self, client: str) -> WaitingClient | None:
        """Return what is known of a waiting client, silent or not; None when it does not wait."""
        return self._active.get(client) or self._silent.get(client)

    def join(self, client: str, since: Nanoseconds, clock: Nanoseconds) -> None:
        """Let a client wait; it starts where those are who wait already."""
        if self.find(client):
            return
        since = max(since, self._served_at)
        if self._active or self._silent:
            since = min(since, self.waits_since)
        self.waits_since = since
        level = max(self._absent_levels.pop(client, 0), self._level)
        self._activate(client, WaitingClient(level, clock))

    def leave(self, client: str) -> None:
        """Forget that it waits, but not its level: it would be ahead by joining again."""
        waiting = self._silent.pop(client, None) or self._deactivate(client)
        if waiting and waiting.level > self._level:
            self._absent_levels[client] = waiting.level

    def forget(self, client: str) -> None:
        """Drop everything about a client."""
        self.leave(client)
        self._absent_levels.pop(client, None)

    def ask(self, client: str, clock: Nanoseconds) -> None:
        """Note that a waiting client is still there; its turn is kept, of a silent one again."""
        if waiting := self._active.get(client):
            waiting.asked_at = clock
            self._active.move_to_end(client)
        elif waiting := self._silent.pop(client, None):
            waiting.asked_at = clock
            waiting.level = max(waiting.level, self._level)
            self._activate(client, waiting)

    def lapse(self, asked_before: Nanoseconds) -> None:
        """Keep nothing more for clients that did not ask since; each is visited once."""
        while self._active:
            client, waiting = next(iter(self._active.items()))
            if waiting.asked_at >= asked_before:
                return
            self._deactivate(client)
            self._silent[client] = waiting

    def begin_epoch(self, previous: int, clock: Nanoseconds) -> None:
        """Keep something again for those who were told to come back; drop levels of no use."""
        for client, waiting in list(self._silent.items()):
            if waiting.resume_epoch > previous:
                del self._silent[client]
                waiting.asked_at = clock
                self._activate(client, waiting)
        self._absent_levels = {
            client: level for client, level in self._absent_levels.items() if level > self._level
        }

    def kept_from(self, client: str) -> int:
        """Return how many turns the other waiting clients have had less, in all.

        The cost is a step for each different level; they are few, since the budget bounds the sum
        of what this returns: about 14 of them for 100 messages an epoch.
        """
        level = self._level_of(client)
        return sum(
            count * (level - other) for other, count in self._level_counts.items() if other < level
        )

    def take(self, client: str, clock: Nanoseconds) -> None:
        """Count a turn."""
        level = self._level_of(client)
        self._level = max(self._level, level)
        self.waits_since = self._served_at = clock
        if waiting := self._active.get(client):
            self._uncount(level)
            waiting.level = level + 1
            self._count(level + 1)
        else:
            self._absent_levels[client] = level + 1

    def _level_of(self, client: str) -> int:
        if waiting := self._active.get(client):
            return waiting.level
        return max(self._absent_levels.get(client, 0), self._level)

    def _activate(self, client: str, waiting: WaitingClient) -> None:
        self._active[client] = waiting
        self._count(waiting.level)

    def _deactivate(self, client: str) -> WaitingClient | None:
        waiting = self._active.pop(client, None)
        if waiting:
            self._uncount(waiting.level)
        return waiting

    def _count(self, level: int) -> None:
        self._level_counts[level] = self._level_counts.get(level, 0) + 1

    def _uncount(self, level: int) -> None:
        self._level_counts[level] -= 1
        if not self._level_counts[level]:
            del self._level_counts[level]
