"""What a stand-in network is told when it begins: fields, defaults and bounds.

Nothing here listens or draws. What may change while it runs is in `faults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from api.devnode.faults import NODE_FAULT_BOUNDS, NodeFaults
from reliable_channel.config import Bounds, check_bounds
from reliable_channel.errors import ConfigurationError

MOUNTABLE: Final = ("relay", "filter", "lightpush", "store")
"""Protocols that a node can be without."""

GENERATIONS: Final = ("2026-08", "2026-09", "none")
"""The messaging API as it was before and after September 2026, or not there at all."""

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

SETTING_BOUNDS: Final[Bounds] = {
    **NODE_FAULT_BOUNDS,
    "port": (0, 65_535),
    "nodes": (1, 64),
    "peers": (0, 1_000),
    "cluster_id": (0, 65_535),
    "shards": (1, 1_024),
    "cache_capacity": (1, 100_000),
    "store_lag_s": (0.0, 3_600.0),
    "store_loss": (0.0, 1.0),
    "store_messages": (1, 1_000_000),
    "store_mb": (1, 16_384),
}
"""Smallest and largest accepted value of each number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevnodeSettings:
    """A stand-in network and its nodes, which are all alike at first.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.
    """

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8645
    """Port of the first node, the others follow; 0 takes free ones."""
    nodes: int = 1
    """Nodes of the network, each with caches and a port of its own."""
    peers: int = 4
    """Peers that each node has besides them; with 0 and one node nobody gets what is published."""
    cluster_id: int = 1
    """The network's number, in the names of its pubsub topics."""
    shards: int = 8
    """Shards of the network."""
    auto_sharding: bool = True
    """Whether nodes find the shard of a content topic."""
    without: tuple[str, ...] = ()
    """Protocols that are not mounted."""
    messaging_api: str = "2026-09"
    """Generation of the messaging API."""
    reliability: bool = True
    """Whether the messaging API asks the store for what it sent, and for what it missed."""
    admin: bool = False
    """Whether there are admin routes."""
    allow_origin: tuple[str, ...] = ()
    """Origins whose pages may ask; ``*`` is all."""
    cache_capacity: int = 50
    """Messages in a node's relay cache."""
    store_lag_s: float = 3.0
    """How long after its arrival the store shows a message, seconds."""
    store_loss: float = 0.0
    """Share of messages that the store misses."""
    store_messages: int = 65_536
    """Messages that the store keeps."""
    store_mb: int = 64
    """Megabytes (2^20 bytes) that the store keeps."""
    seed: int = 0
    """Makes faults and identifiers; the same seed and requests give the same ones."""
    loss: float = 0.0
    """See `NodeFaults`, as all that follow."""
    duplicate: float = 0.0
    reorder: float = 0.0
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    drop_every: int = 0
    self_echo: bool = True
    timeout_rate: float = 0.0
    answer_delay_ms: float = 0.0
    cut_rate: float = 0.0
    queue_s: float = 0.0

    def __post_init__(self) -> None:
        problems = check_bounds(self, SETTING_BOUNDS)
        problems += [
            f"without must name some of {', '.join(MOUNTABLE)}, not {name!r}"
            for name in self.without
            if name not in MOUNTABLE
        ]
        if self.messaging_api not in GENERATIONS:
            known = ", ".join(GENERATIONS)
            problems.append(f"messaging_api must be one of {known}, not {self.messaging_api!r}")
        if not problems and self.port and self.port + self.nodes - 1 > SETTING_BOUNDS["port"][1]:
            problems.append(
                f"port must leave room for {self.nodes} ports, and {self.port} does not"
            )
        if problems:
            raise ConfigurationError(problems)

    def has(self, protocol: str) -> bool:
        """Say whether a protocol is mounted."""
        return protocol not in self.without

    def faults(self) -> NodeFaults:
        """Return the faults that a node begins with."""
        shared = {item.name for item in fields(NodeFaults)} & {item.name for item in fields(self)}
        return NodeFaults(**{name: getattr(self, name) for name in shared})


def make_settings(given: Mapping[str, Any]) -> DevnodeSettings:
    """Return the settings that options name; a whole number does where a number is wanted.

    Raises:
        ConfigurationError: They are unusable.
    """
    values: dict[str, Any] = {
        name: tuple(value or ()) if name in ("without", "allow_origin") else value
        for name, value in given.items()
    }
    return DevnodeSettings(**values)


def read_log_level(given: str) -> str:
    """Return a log level.

    Raises:
        ConfigurationError: There is no such level.
    """
    if given not in LOG_LEVELS:
        problem = f"log_level must be one of {', '.join(LOG_LEVELS)}, not {given!r}"
        raise ConfigurationError(problem)
    return given


def read_log_format(given: str) -> Literal["text", "json"]:
    """Return a form of log lines.

    Raises:
        ConfigurationError: There is no such form.
    """
    if given == "json":
        return "json"
    if given == "text":
        return "text"
    problem = f"log_format must be one of text, json, not {given!r}"
    raise ConfigurationError(problem)
