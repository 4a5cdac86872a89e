"""One node: what it wants, what its faults do, what a restart forgets."""

from __future__ import annotations

import pytest

from api.devnode import node as module
from api.devnode.network import Network
from api.devnode.node import Node, Seen, make_peer_id
from api.devnode.settings import DevnodeSettings
from reliable_channel.core.wire import WakuMessage
from tests.support.devnode import ManualTimers

SHARD = "/waku/2/rs/1/0"
TOPIC = "/myapp/1/room/proto"


def make(**settings: object) -> tuple[Node, ManualTimers]:
    timers = ManualTimers()
    network = Network(DevnodeSettings(**settings), timers)  # type: ignore[arg-type]
    node = network.nodes[0]
    node.relay.subscribe(("pubsub", SHARD))
    return node, timers


def receive(node: Node, *numbers: int) -> None:
    for number in numbers:
        message = WakuMessage(b"x", TOPIC, timestamp=number)
        node.receive(number.to_bytes(2, "big"), SHARD, message)


def read(node: Node) -> list[int | None]:
    return [message.timestamp for message in node.relay.take(("pubsub", SHARD)) or []]


def test_what_nobody_here_wants_is_not_counted() -> None:
    node, _ = make()
    node.receive(b"1", "/waku/2/rs/1/1", WakuMessage(b"x", TOPIC))
    assert node.arrived == 0
    node.messaging.subscribe(TOPIC)
    node.receive(b"1", "/waku/2/rs/1/1", WakuMessage(b"x", TOPIC))
    assert node.arrived == 1


def test_a_known_hash_is_not_taken_again_but_a_lost_one_is() -> None:
    node, _ = make(drop_every=2)
    receive(node, 1, 1, 2, 2)
    assert (read(node), node.arrived, node.lost) == ([1, 2], 3, 1)


def test_what_is_delayed_arrives_in_time() -> None:
    node, timers = make(delay_ms=100.0)
    receive(node, 1)
    timers.advance(0.099)
    assert read(node) == []
    timers.advance(0.001)
    assert (read(node), node.under_way_bytes) == ([1], 0)


def test_reordered_messages_are_overtaken() -> None:
    node, timers = make(reorder=0.3, seed=1)
    receive(node, *range(100))
    timers.advance(1)
    got = read(node)
    assert len(got) == 50
    assert got != sorted(got, key=lambda number: number or 0)


def test_what_is_under_way_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_UNDER_WAY_BYTES", 3_100)
    node, timers = make(delay_ms=10.0)
    receive(node, 1, 2, 3, 4)
    timers.advance(1)
    assert (read(node), node.lost) == ([1, 2, 3], 1)


def test_a_restart_forgets_also_what_is_under_way() -> None:
    node, timers = make(delay_ms=10.0)
    receive(node, 1)
    node.restart()
    node.relay.subscribe(("pubsub", SHARD))
    timers.advance(1)
    assert (read(node), node.under_way_bytes) == ([], 0)


def test_filter_gets_only_what_its_peer_knows_of() -> None:
    node, _ = make()
    node.filter.subscribe(("content", TOPIC))
    receive(node, 1)
    node.filtered.add((SHARD, TOPIC))
    receive(node, 2)
    node.forget_filter()
    receive(node, 3)
    assert [item.timestamp for item in node.filter.take(("content", TOPIC)) or []] == [2]


def test_hashes_are_forgotten_after_many() -> None:
    seen = Seen(2)
    for digest in (b"1", b"2", b"3"):
        seen.add(digest)
    assert [seen.knows(digest) for digest in (b"1", b"2", b"3")] == [False, True, True]


def test_ids_follow_the_seed() -> None:
    first, again, other = make()[0], make()[0], make(seed=1)[0]
    ids = [node.make_id() for node in (first, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert len(ids[0]) == 20
    assert first.peer_id == again.peer_id != other.peer_id == make_peer_id("1/0")
