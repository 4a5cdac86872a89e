"""What a bad link does to one receiver's copy of a message: lose, duplicate, delay, reorder.

Pure and seeded: the caller gives the randomness and carries out the delays, in real or in virtual
time. Nothing here knows event loops, nodes or messages.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from reliable_channel.config import Bounds, check_bounds
from reliable_channel.errors import ConfigurationError
from reliable_channel.types import MS, Nanoseconds

FAULT_BOUNDS: Final[Bounds] = {
    "loss": (0.0, 1.0),
    "duplicate": (0.0, 1.0),
    "reorder": (0.0, 1.0),
    "delay_ms": (0.0, 3_600_000.0),
    "jitter_ms": (0.0, 3_600_000.0),
}
"""Smallest and largest accepted value of each field; an hour is longer than any timer waits."""

MIN_HOLD_MS: Final = 20.0
"""Shortest time a reordered copy is held back, milliseconds: several messages of a busy sender."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkFaults:
    """The faults of a link; without any, each copy arrives once and at once.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.
    """

    loss: float = 0.0
    """Probability that a copy does not arrive."""
    duplicate: float = 0.0
    """Probability that a copy which is not lost arrives twice."""
    reorder: float = 0.0
    """Probability that an arriving copy is held back."""
    delay_ms: float = 0.0
    """Shortest time under way, milliseconds."""
    jitter_ms: float = 0.0
    """Up to this much more time, drawn evenly for each arriving copy, milliseconds."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, FAULT_BOUNDS)
        if problems:
            raise ConfigurationError(problems)

    def copies(self, rng: random.Random) -> list[Nanoseconds]:
        """Draw what becomes of one receiver's copy of one message.

        A reordered copy is held back, on top of its ordinary delay, for once to twice the longest
        ordinary delay, or `MIN_HOLD_MS` where that is longer. So whatever follows within that time
        overtakes it, also on a link without delay; a message with no follower that soon arrives
        late, but in order.

        Args:
            rng: The receiver's own stream, so that what one receiver misses is independent of who
                else is there.

        Returns:
            The delay in nanoseconds of each arrival: none when lost, two when duplicated, not
            sorted. The same state of the stream gives the same answer.
        """
        if self.loss and rng.random() < self.loss:
            return []
        delays = [self._delay(rng)]
        if self.duplicate and rng.random() < self.duplicate:
            delays.append(self._delay(rng))
        return delays

    def _delay(self, rng: random.Random) -> Nanoseconds:
        delay_ms = self.delay_ms
        if self.jitter_ms:
            delay_ms += rng.random() * self.jitter_ms
        if self.reorder and rng.random() < self.reorder:
            delay_ms += (1 + rng.random()) * max(MIN_HOLD_MS, self.delay_ms + self.jitter_ms)
        return int(delay_ms * MS)
