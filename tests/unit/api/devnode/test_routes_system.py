"""Health of protocols and what admin knows of peers; whole answers are in tests/api/test_devnode.py."""

from __future__ import annotations

import pytest

from api.devnode.network import Network
from api.devnode.node import Node
from api.devnode.routes_system import address, known_peers, protocol_health
from api.devnode.settings import DevnodeSettings
from tests.support.devnode import ManualTimers


def make_node(**settings: object) -> Node:
    return Network(DevnodeSettings(**settings), ManualTimers()).nodes[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "protocol", "faults", "expected"),
    [
        ("Mix", None, {}, {"Mix": "NOT_MOUNTED"}),
        ("Store", "store", {}, {"Store": "NOT_MOUNTED"}),
        ("Relay", "relay", {}, {"Relay": "READY"}),
        ("Filter Client", "filter", {}, {"Filter Client": "READY", "desc": None}),
        ("Relay", "relay", {"isolated": True}, {"Relay": "NOT_READY", "desc": "No peers"}),
        ("Relay", "relay", {"starting": True}, {"Relay": "INITIALIZING"}),
    ],
)
def test_health_of_a_protocol(
    name: str, protocol: str | None, faults: dict[str, bool], expected: dict[str, str | None]
) -> None:
    node = make_node(without=("store",))
    for fault, value in faults.items():
        setattr(node.faults, fault, value)
    assert protocol_health(node, name, protocol) == expected


def test_peers_are_those_here_and_those_that_are_only_said_to_be() -> None:
    node = make_node(nodes=2, peers=3, without=("relay",))
    found = known_peers(node)
    assert len({item["multiaddr"] for item in found}) == 4
    assert found[0]["multiaddr"] == address(node.network.nodes[1])
    assert "/vac/waku/relay/2.0.0" not in found[0]["protocols"]
    assert "/vac/waku/store-query/3.0.0" in found[0]["protocols"]
    node.faults.isolated = True
    assert known_peers(node) == []
