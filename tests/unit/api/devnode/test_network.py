"""A stand-in network: shards, who hears what, what the store gets."""

from __future__ import annotations

import pytest

from api.devnode.network import Network, TopicError, is_shard_topic
from api.devnode.settings import DevnodeSettings
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from tests.support.devnode import ManualTimers

SHARD = "/waku/2/rs/1/0"
TOPIC = "/myapp/1/room/proto"


def make(**settings: object) -> Network:
    given = {"store_lag_s": 0.0, **settings}
    return Network(DevnodeSettings(**given), ManualTimers())  # type: ignore[arg-type]


def message(number: int = 1) -> WakuMessage:
    return WakuMessage(b"x", TOPIC, timestamp=number)


def listen(network: Network) -> None:
    for node in network.nodes:
        node.relay.subscribe(("content", TOPIC))


def heard(network: Network) -> list[int]:
    return [len(node.relay.take(("content", TOPIC)) or []) for node in network.nodes]


def test_the_published_vector_of_auto_sharding() -> None:
    assert make().shard_topic(TOPIC) == make().shard_topic(f"/0{TOPIC}") == SHARD
    assert make(cluster_id=7).shard_topic(TOPIC) == "/waku/2/rs/7/0"


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("x", "invalid format: content-topic 'x' must start with slash"),
        ("/a/b", "invalid format: content-topic '/a/b' must be"),
        (f"/1{TOPIC}", "Generation > 0"),
    ],
)
def test_topics_without_a_shard(topic: str, reason: str) -> None:
    with pytest.raises(TopicError, match=reason):
        make().shard_topic(topic)


@pytest.mark.parametrize(
    ("topic", "is_shard", "is_served"),
    [
        (SHARD, True, True),
        ("/waku/2/rs/1/7", True, True),
        ("/waku/2/rs/1/8", True, False),
        ("/waku/2/rs/2/0", True, False),
        ("/waku/2/rs/1/00", False, False),
        ("/waku/2/default-waku/proto", False, False),
    ],
)
def test_names_of_shards(topic: str, is_shard: bool, is_served: bool) -> None:
    assert (is_shard_topic(topic), make().is_served(topic)) == (is_shard, is_served)


def test_everybody_hears_it_and_the_store_keeps_it() -> None:
    network = make(nodes=3)
    listen(network)
    assert network.publish(network.nodes[1], SHARD, message()) == 6
    assert heard(network) == [1, 1, 1]
    assert network.archive.has(waku_message_hash(SHARD, message()), network.timers.now())


def test_an_isolated_node_neither_speaks_nor_hears() -> None:
    network = make(nodes=3)
    listen(network)
    network.nodes[0].faults.isolated = True
    assert network.publish(network.nodes[0], SHARD, message(1)) == 0
    assert (heard(network), len(network.archive)) == ([1, 0, 0], 0)
    assert network.publish(network.nodes[1], SHARD, message(2)) == 5
    assert heard(network) == [0, 1, 1]


def test_a_single_node_without_peers_reaches_nobody() -> None:
    network = make(peers=0)
    assert network.publish(network.nodes[0], SHARD, message()) == 0
    assert len(network.archive) == 0


def test_the_store_misses_its_share() -> None:
    network = make(store_loss=0.5)
    for number in range(1_000):
        network.publish(network.nodes[0], SHARD, message(number))
    assert len(network.archive) == pytest.approx(500, abs=60)


def test_a_strict_node_publishes_a_message_once() -> None:
    network = make()
    network.nodes[0].faults.strict_seen = True
    assert [network.publish(network.nodes[0], SHARD, message()) for _ in range(2)] == [4, 0]
