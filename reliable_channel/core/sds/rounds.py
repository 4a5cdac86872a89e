"""How many segments of a request go out again together when their acknowledgement timers end.

A lost acknowledgement looks like forty lost segments. So without news of a request one of its segments goes first: who
gets it a second time names all it has of the payload, and what it does not name is really missing. Parity fills as many
gaps as there is of it, so where a payload has parity only what exceeds it goes at once. Each further round is twice as
large. It must not know why somebody lacks a segment, and holds no timer.

Spec: none of SDS; the idea is that of RFC 8985, tail loss probes (docs/adr/0014-one-segment-asks-first.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from reliable_channel.types import Nanoseconds


@dataclass(slots=True)
class RetransmissionRound:
    """The segments of one request that go out again together.

    Attributes:
        ends_ns: From then on another round may begin.
        size: Segments that it lets out; 0 before the first.
        left: Those of them that it has not let out yet.
    """

    ends_ns: Nanoseconds = 0
    size: int = 0
    left: int = 0

    def begin(
        self, ends_ns: Nanoseconds, lacking: int, parity_count: int, *, is_news: bool
    ) -> None:
        """Begin the next round.

        Args:
            ends_ns: When it ends.
            lacking: Data segments that are not acknowledged.
            parity_count: Parity segments that were sent with them.
            is_news: Something of the request was acknowledged since these segments were last sent.
        """
        self.ends_ns = ends_ns
        twice = max(1, 2 * self.size)
        if not is_news:
            self.size = twice
        elif parity_count:
            self.size = max(twice, lacking - parity_count)
        else:
            self.size = lacking
        self.size = min(self.size, lacking)
        self.left = self.size

    def take(self) -> bool:
        """Let one segment out, if there is one left to let out."""
        if not self.left:
            return False
        self.left -= 1
        return True
