"""The configuration of a node: the Messaging API's fields, a transport, and what its channels use.

Frozen, validated at once, all problems in one error. Whether a transport can honour a field is the
transport's to say; nothing here opens anything or reads the environment.

Spec: MESSAGING-API, Init node type definitions; RELIABLE-CHANNEL-API, Node configuration.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Final, Literal

from reliable_channel.config import (
    Bounds,
    RateLimitConfig,
    SdsConfig,
    SegmentationConfig,
    check_bounds,
)
from reliable_channel.errors import ConfigurationError

if TYPE_CHECKING:
    from reliable_channel.ports import ChannelStore

SIZE_UNITS: Final = {"": 1, "b": 1, "kb": 1_000, "kib": 1_024}
"""Bytes in each unit that ``max_message_size`` may have, in lower case."""

MESSAGE_BYTES: Final = (1_024, 16 << 20)
"""Smallest and largest accepted ``max_message_size``, bytes."""

SHARDING_BOUNDS: Final[Bounds] = {"num_shards_in_cluster": (1, 1_024)}
"""A cluster has at most 1,024 shards (RELAY-SHARDING)."""

PROTOCOLS_BOUNDS: Final[Bounds] = {"cluster_id": (0, 65_535)}
"""A cluster id has 16 bits (RELAY-SHARDING)."""

NETWORKING_BOUNDS: Final[Bounds] = {"p2p_tcp_port": (0, 65_535), "discv5_udp_port": (0, 65_535)}
"""Port 0 lets the system choose."""

RLN_BOUNDS: Final[Bounds] = {"chain_id": (1, 1 << 63), "epoch_size_sec": (1, 1 << 31)}
"""Smallest and largest accepted value of each numeric field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoShardingConfig:
    """How content topics are spread over shards.

    Raises:
        ConfigurationError: A value is out of its bounds.
    """

    num_shards_in_cluster: int = 8
    """Shards of the cluster, agreed by everybody in it; 8 in The Waku Network."""

    def __post_init__(self) -> None:
        _raise_if_any(check_bounds(self, SHARDING_BOUNDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class RlnConfig:
    """The rate limit that the network enforces by zero-knowledge proofs.

    Raises:
        ConfigurationError: A value is unusable; all problems are named.
    """

    contract_address: str
    """Of the RLN contract, ``0x`` and 40 hex digits."""
    chain_id: int
    """The chain that the contract is on."""
    epoch_size_sec: int
    """Length of an epoch, seconds."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, RLN_BOUNDS)
        if not re.fullmatch(r"0x[0-9a-fA-F]{40}", str(self.contract_address)):
            problems.append(
                f"contract_address must be 0x and 40 hex digits, not {self.contract_address!r}"
            )
        _raise_if_any(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageValidation:
    """Which messages the network takes.

    Raises:
        ConfigurationError: The size is unreadable or out of its bounds.
    """

    max_message_size: str = "150 KiB"
    """Largest encoded message: a whole number of KiB (1,024 bytes), KB (1,000 bytes) or B."""
    rln_config: RlnConfig | None = None
    """None where the network checks no proofs, or where that is another program's affair."""

    def __post_init__(self) -> None:
        low, high = MESSAGE_BYTES
        if not low <= self.max_message_bytes <= high:
            expected = f"from {low} B to {high} B"
            _raise_if_any([f"max_message_size must be {expected}, not {self.max_message_size!r}"])

    @property
    def max_message_bytes(self) -> int:
        """The largest encoded message in bytes."""
        found = re.fullmatch(r"\s*([0-9]{1,12})\s*([A-Za-z]*)\s*", str(self.max_message_size))
        if found is None or found[2].lower() not in SIZE_UNITS:
            expected = "a whole number of KiB, KB or B, such as '150 KiB'"
            problem = f"max_message_size must be {expected}, not {self.max_message_size!r}"
            raise ConfigurationError(problem)
        return int(found[1]) * SIZE_UNITS[found[2].lower()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolsConfig:
    """Which network the node is part of.

    The defaults are The Waku Network's cluster and shards without its entry nodes and proofs.

    Raises:
        ConfigurationError: A value is unusable; all problems are named.

    Spec: MESSAGING-API, ProtocolsConfig.
    Deviation: the specification's default is the whole preset of The Waku Network; here nothing
    connects to public machines unless it was told to.
    """

    entry_nodes: tuple[str, ...] = ()
    """Where the network is entered: enrtree or multiaddr."""
    static_store_nodes: tuple[str, ...] = ()
    """Preferred for store queries: multiaddr."""
    cluster_id: int = 1
    """The cluster, part of every pubsub topic's name."""
    auto_sharding_config: AutoShardingConfig = field(default_factory=AutoShardingConfig)
    """How content topics are spread over shards."""
    message_validation: MessageValidation = field(default_factory=MessageValidation)
    """Which messages the network takes."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, PROTOCOLS_BOUNDS)
        problems += _freeze_texts(self, "entry_nodes", "static_store_nodes")
        problems += _wrong_types(self, "auto_sharding_config", AutoShardingConfig)
        problems += _wrong_types(self, "message_validation", MessageValidation)
        _raise_if_any(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkingConfig:
    """Where the node listens.

    Raises:
        ConfigurationError: A value is unusable; all problems are named.
    """

    listen_ipv4: str = "0.0.0.0"
    """Address for incoming connections; all of the machine's by default."""
    p2p_tcp_port: int = 60_000
    """TCP port of the peer-to-peer protocols."""
    discv5_udp_port: int = 9_000
    """UDP port of discovery."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, NETWORKING_BOUNDS)
        try:
            ipaddress.IPv4Address(self.listen_ipv4)
        except ValueError:
            problems.append(f"listen_ipv4 must be an IPv4 address, not {self.listen_ipv4!r}")
        _raise_if_any(problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What a node is and what its channels use unless they say otherwise.

    Raises:
        ConfigurationError: A value is unusable, or values contradict each other; all problems are
            named.

    Spec: MESSAGING-API, NodeConfig; RELIABLE-CHANNEL-API, Node configuration.
    """

    transport: str
    """How the network is reached: a URL such as ``memory://NAME?loss=0.2``."""
    mode: Literal["core", "edge"] = "core"
    """``core`` takes part in routing; ``edge`` relies on others."""
    protocols_config: ProtocolsConfig = field(default_factory=ProtocolsConfig)
    """Which network the node is part of."""
    networking_config: NetworkingConfig = field(default_factory=NetworkingConfig)
    """Where the node listens."""
    eth_rpc_endpoints: tuple[str, ...] = ()
    """URLs of Ethereum nodes, for RLN only; any of them may contain a secret."""
    sds_config: SdsConfig = field(default_factory=SdsConfig)
    """Scalable Data Sync, and where state is kept."""
    segmentation_config: SegmentationConfig = field(default_factory=SegmentationConfig)
    """Segmentation and reassembly."""
    rate_limit_config: RateLimitConfig = field(default_factory=RateLimitConfig)
    """The limits of the node's membership."""

    def __post_init__(self) -> None:
        problems = _freeze_texts(self, "eth_rpc_endpoints")
        if not isinstance(self.transport, str) or "://" not in self.transport:
            problems.append("transport must be a URL such as memory://NAME")
        if self.mode not in ("core", "edge"):
            problems.append(f"mode must be 'core' or 'edge', not {self.mode!r}")
        for name, kind in _PARTS.items():
            problems += _wrong_types(self, name, kind)
        _raise_if_any(problems or self._contradictions())

    @property
    def persistence(self) -> ChannelStore | None:
        """The store that was given in one of the configs, or in both; None is memory."""
        given = self.sds_config.persistence
        return self.segmentation_config.persistence if given is None else given

    def _contradictions(self) -> list[str]:
        problems = []
        stores = {
            id(store)
            for store in (self.sds_config.persistence, self.segmentation_config.persistence)
            if store is not None
        }
        if len(stores) > 1:
            problems.append(
                "sds_config.persistence and segmentation_config.persistence are two stores, and no "
                "transaction spans them; give the same one, or only one"
            )
        rln = self.protocols_config.message_validation.rln_config
        limit = self.rate_limit_config
        if rln and limit.enabled and rln.epoch_size_sec != limit.epoch_period_sec:
            problems.append(
                f"rate_limit_config.epoch_period_sec ({limit.epoch_period_sec}) must be "
                f"rln_config.epoch_size_sec ({rln.epoch_size_sec})"
            )
        return problems


_PARTS: Final = {
    "protocols_config": ProtocolsConfig,
    "networking_config": NetworkingConfig,
    "sds_config": SdsConfig,
    "segmentation_config": SegmentationConfig,
    "rate_limit_config": RateLimitConfig,
}


def unsupported_fields(config: NodeConfig, honoured: Collection[str]) -> list[str]:
    """List the fields that differ from their default although the transport cannot honour them.

    Args:
        config: A node's configuration.
        honoured: Dotted names of the fields that the transport honours; one that names a whole
            configuration stands for everything in it.

    Returns:
        Dotted names, in the order of the fields.
    """
    return list(_differences(config, NodeConfig(transport=config.transport), "", honoured))


def _differences(
    value: object, default: object, path: str, honoured: Collection[str]
) -> Iterable[str]:
    if path in honoured or value == default:
        return
    if is_dataclass(value) and is_dataclass(default):
        for item in fields(value):
            name = f"{path}.{item.name}" if path else item.name
            yield from _differences(
                getattr(value, item.name), getattr(default, item.name), name, honoured
            )
    else:
        yield path


def _freeze_texts(config: object, *names: str) -> list[str]:
    """Turn lists of strings into tuples, and return one sentence for each field that is none."""
    problems = []
    for name in names:
        given = getattr(config, name)
        if isinstance(given, list | tuple) and all(isinstance(text, str) for text in given):
            object.__setattr__(config, name, tuple(given))
        else:
            problems.append(f"{name} must be a list of strings")
    return problems


def _wrong_types(config: object, name: str, kind: type) -> list[str]:
    """Return a sentence when a field is not of its type, as when somebody gives a dictionary."""
    value = getattr(config, name)
    if isinstance(value, kind):
        return []
    return [f"{name} must be a {kind.__name__}, not {type(value).__name__}"]


def _raise_if_any(problems: list[str]) -> None:
    if problems:
        raise ConfigurationError(problems)
