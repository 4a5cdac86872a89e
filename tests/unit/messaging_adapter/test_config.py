"""A node's configuration: the Messaging API's defaults, bounds, contradictions, support."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from messaging_adapter.config import (
    AutoShardingConfig,
    MessageValidation,
    NetworkingConfig,
    NodeConfig,
    ProtocolsConfig,
    RlnConfig,
    unsupported_fields,
)
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.errors import ConfigurationError
from reliable_channel.volatile import VolatileStore

RLN = RlnConfig(contract_address="0x" + "Ab" * 20, chain_id=59_141, epoch_size_sec=600)


def node_config(**fields: Any) -> NodeConfig:
    return NodeConfig(**{"transport": "memory://lab", **fields})


def problems_of(kind: type, **fields: Any) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        kind(**fields)
    return caught.value.problems


def test_defaults_are_those_of_the_messaging_api() -> None:
    config = node_config()
    assert config.mode == "core"
    assert config.protocols_config.cluster_id == 1
    assert config.protocols_config.auto_sharding_config.num_shards_in_cluster == 8
    assert config.protocols_config.message_validation.max_message_bytes == 153_600
    assert config.protocols_config.message_validation.rln_config is None
    assert config.networking_config == NetworkingConfig(
        listen_ipv4="0.0.0.0", p2p_tcp_port=60_000, discv5_udp_port=9_000
    )
    assert config.sds_config == SdsConfig()
    assert config.segmentation_config == SegmentationConfig()
    assert config.rate_limit_config == RateLimitConfig()
    assert config.persistence is None


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        node_config().mode = "edge"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("150 KiB", 153_600),
        ("150KiB", 153_600),
        ("153600", 153_600),
        ("153600 B", 153_600),
        ("150KB", 150_000),
        (" 150 kb ", 150_000),
        ("1024B", 1_024),
        ("16384 KiB", 16 << 20),
    ],
)
def test_message_sizes_are_read(text: str, size: int) -> None:
    assert MessageValidation(max_message_size=text).max_message_bytes == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "KiB",
        "150 MiB",
        "1.5 KiB",
        "-1",
        "1e5",
        "150 KiB!",
        "9" * 40,
        "\u0661\u0665\u0660",
        None,
    ],
)
def test_unreadable_message_sizes_are_refused(text: Any) -> None:
    assert "whole number of KiB" in problems_of(MessageValidation, max_message_size=text)[0]


@pytest.mark.parametrize("text", ["0", "1023", "16385 KiB"])
def test_message_sizes_have_bounds(text: str) -> None:
    assert "1024 B to 16777216 B" in problems_of(MessageValidation, max_message_size=text)[0]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (AutoShardingConfig, {"num_shards_in_cluster": 0}),
        (AutoShardingConfig, {"num_shards_in_cluster": 1_025}),
        (AutoShardingConfig, {"num_shards_in_cluster": "8"}),
        (ProtocolsConfig, {"cluster_id": -1}),
        (ProtocolsConfig, {"cluster_id": 65_536}),
        (ProtocolsConfig, {"entry_nodes": "/ip4/127.0.0.1"}),
        (ProtocolsConfig, {"static_store_nodes": [1]}),
        (ProtocolsConfig, {"message_validation": {"max_message_size": "1 KiB"}}),
        (ProtocolsConfig, {"auto_sharding_config": None}),
        (NetworkingConfig, {"listen_ipv4": "localhost"}),
        (NetworkingConfig, {"listen_ipv4": "::1"}),
        (NetworkingConfig, {"p2p_tcp_port": 65_536}),
        (NetworkingConfig, {"discv5_udp_port": -1}),
        (NodeConfig, {"transport": "lab"}),
        (NodeConfig, {"transport": ""}),
        (NodeConfig, {"transport": None}),
        (NodeConfig, {"transport": "memory://lab", "mode": "relay"}),
        (NodeConfig, {"transport": "memory://lab", "eth_rpc_endpoints": "http://127.0.0.1"}),
        (NodeConfig, {"transport": "memory://lab", "sds_config": {}}),
        (NodeConfig, {"transport": "memory://lab", "rate_limit_config": None}),
    ],
)
def test_bad_values_are_refused_by_name(kind: type, fields: dict[str, Any]) -> None:
    bad = [name for name in fields if name != "transport" or len(fields) == 1]
    (problem,) = problems_of(kind, **fields)
    assert problem.startswith(bad[0])


@pytest.mark.parametrize(
    "fields",
    [
        {"contract_address": "0x12"},
        {"contract_address": "Ab" * 20},
        {"chain_id": 0},
        {"epoch_size_sec": 0},
    ],
)
def test_bad_rln_values_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(fields))):
        replace(RLN, **fields)


def test_all_problems_are_named() -> None:
    problems = problems_of(
        NodeConfig, transport="", mode="x", networking_config=1, eth_rpc_endpoints=5
    )
    assert len(problems) == 4


def test_lists_become_tuples() -> None:
    assert ProtocolsConfig(entry_nodes=["a"]).entry_nodes == ("a",)  # type: ignore[arg-type]
    assert ProtocolsConfig(entry_nodes=[]) == ProtocolsConfig()  # type: ignore[arg-type]


def test_one_store_serves_both_configs() -> None:
    store = VolatileStore()
    sds, segmentation = SdsConfig(persistence=store), SegmentationConfig(persistence=store)
    assert node_config(sds_config=sds).persistence is store
    assert node_config(segmentation_config=segmentation).persistence is store
    both = node_config(sds_config=sds, segmentation_config=segmentation)
    assert both.persistence is store


def test_two_stores_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="two stores"):
        node_config(
            sds_config=SdsConfig(persistence=VolatileStore()),
            segmentation_config=SegmentationConfig(persistence=VolatileStore()),
        )


def test_the_epoch_must_be_the_one_of_the_network() -> None:
    """The epoch size MUST match the configured epochPeriodSec."""
    validated = ProtocolsConfig(message_validation=MessageValidation(rln_config=RLN))
    limit = RateLimitConfig(enabled=True, epoch_period_sec=60)
    with pytest.raises(ConfigurationError, match=r"\(60\) must be .* \(600\)"):
        node_config(protocols_config=validated, rate_limit_config=limit)
    node_config(protocols_config=validated, rate_limit_config=replace(limit, enabled=False))
    node_config(protocols_config=validated, rate_limit_config=RateLimitConfig(enabled=True))


def test_defaults_need_not_be_honoured() -> None:
    assert unsupported_fields(node_config(), ["transport"]) == []


def test_fields_that_differ_are_named_with_their_path() -> None:
    config = node_config(
        mode="edge",
        protocols_config=ProtocolsConfig(
            cluster_id=2,
            entry_nodes=("enrtree://x",),
            message_validation=MessageValidation(max_message_size="1 KiB", rln_config=RLN),
        ),
        networking_config=NetworkingConfig(p2p_tcp_port=1),
        eth_rpc_endpoints=("http://127.0.0.1",),
        sds_config=SdsConfig(causal_history_size=3),
    )
    assert unsupported_fields(config, ["protocols_config.cluster_id", "sds_config"]) == [
        "mode",
        "protocols_config.entry_nodes",
        "protocols_config.message_validation.max_message_size",
        "protocols_config.message_validation.rln_config",
        "networking_config.p2p_tcp_port",
        "eth_rpc_endpoints",
    ]


def test_honouring_a_whole_honours_its_parts() -> None:
    config = node_config(protocols_config=ProtocolsConfig(cluster_id=2, entry_nodes=("a",)))
    assert unsupported_fields(config, ["protocols_config"]) == []


def test_a_store_is_no_difference() -> None:
    config = node_config(sds_config=SdsConfig(persistence=VolatileStore()))
    assert unsupported_fields(config, []) == []
