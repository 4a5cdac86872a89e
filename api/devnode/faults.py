"""What goes wrong at one node, and how often; a test changes it while the node runs.

Only values and their bounds are here: who draws and who suffers is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from messaging_adapter.faults import FAULT_BOUNDS, LinkFaults
from reliable_channel.config import Bounds, check_bounds
from reliable_channel.errors import ConfigurationError

NODE_FAULT_BOUNDS: Final[Bounds] = {
    **FAULT_BOUNDS,
    "drop_every": (0, 1_000_000),
    "timeout_rate": (0.0, 1.0),
    "timeout_s": (0.0, 3_600.0),
    "answer_delay_ms": (0.0, 3_600_000.0),
    "cut_rate": (0.0, 1.0),
    "queue_s": (0.0, 3_600.0),
}
"""Smallest and largest accepted value of each number."""

PROTOCOLS: Final = ("relay", "filter", "lightpush", "store", "health")
"""Whose answers can time out."""


@dataclass(slots=True, kw_only=True)
class ForcedAnswer:
    """An answer that a node gives instead of its own.

    Attributes:
        method: Of the requests that get it; empty is any.
        path: How their path begins, as it was sent.
        status: HTTP status.
        body: As it goes out.
        content_type: Of the body.
        times: How many requests get it.
        after: Whether the request takes effect before its answer is replaced.
    """

    path: str
    status: int
    body: str = ""
    content_type: str = "text/plain"
    method: str = ""
    times: int = 1
    after: bool = False


@dataclass(slots=True, kw_only=True)
class NodeFaults:
    """The faults of a node; without any, everything arrives once and at once.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.
    """

    loss: float = 0.0
    """Share of messages that do not reach the node's caches, its own among them."""
    duplicate: float = 0.0
    """Share that comes twice; where the first is still unread, the second comes after it was read."""
    reorder: float = 0.0
    """Share that is held back, so that later ones overtake it."""
    delay_ms: float = 0.0
    """Time under way, milliseconds."""
    jitter_ms: float = 0.0
    """Up to so much more, milliseconds."""
    drop_every: int = 0
    """Every such message does not reach the caches; 0 is none."""
    self_echo: bool = True
    """Whether a node's own messages come back to it."""
    isolated: bool = False
    """Whether the node has no peers: relay takes messages all the same, and nobody gets them."""
    strict_seen: bool = False
    """Whether a message that the node has published already is quietly not published again."""
    timeout_rate: float = 0.0
    """Share of requests to the network that time out."""
    stalled: set[str] = field(default_factory=set)
    """Protocols of which all requests time out."""
    timeout_s: float = 5.0
    """How long such a request takes, seconds."""
    answer_delay_ms: float = 0.0
    """How much later each answer comes, milliseconds."""
    cut_rate: float = 0.0
    """Share of JSON answers that end in the middle, in turn with and without the right length."""
    queue_s: float = 0.0
    """How long the messaging API keeps a message before it publishes it, as for a rate limit, seconds."""
    store_status: tuple[int, str] | None = None
    """Status and text inside a store's answer that is 200 outside; None is 200 there too."""
    health: str | None = None
    """The health that the node claims; None is the true one."""
    starting: bool = False
    """Whether the node is still starting: only its health can be asked."""
    forced: list[ForcedAnswer] = field(default_factory=list)
    """Answers to give instead; the first that fits is taken."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, NODE_FAULT_BOUNDS)
        problems += [f"stalled has no {name!r}" for name in sorted(self.stalled - {*PROTOCOLS})]
        if problems:
            raise ConfigurationError(problems)

    @property
    def link(self) -> LinkFaults:
        """What becomes of messages under way."""
        return LinkFaults(
            loss=self.loss,
            duplicate=self.duplicate,
            reorder=self.reorder,
            delay_ms=self.delay_ms,
            jitter_ms=self.jitter_ms,
        )

    def answer(self, path: str, status: int, body: str = "", **more: object) -> None:
        """Have the next requests to a path answered so.

        Args:
            path: How it begins, as it is sent.
            status: HTTP status.
            body: As it goes out.
            more: Further fields of a `ForcedAnswer`.
        """
        self.forced.append(ForcedAnswer(path=path, status=status, body=body, **more))  # type: ignore[arg-type]

    def forced_for(self, method: str, path: str) -> ForcedAnswer | None:
        """Return the answer that a request gets instead of its own, and count it as given."""
        for item in self.forced:
            if path.startswith(item.path) and item.method in ("", method):
                item.times -= 1
                if item.times <= 0:
                    self.forced.remove(item)
                return item
        return None
