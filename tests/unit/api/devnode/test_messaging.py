"""The messaging API of a node in time turned by hand: the life of a request, and what comes in."""

from __future__ import annotations

import pytest

from api.devnode import messaging as module
from api.devnode.messaging import GAVE_UP, Messaging
from api.devnode.network import Network
from api.devnode.node import Node
from api.devnode.settings import DevnodeSettings
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.types import SECOND
from tests.support.devnode import ManualTimers

SHARD = "/waku/2/rs/1/0"
TOPIC = "/myapp/1/room/proto"


def make(**settings: object) -> tuple[Node, ManualTimers]:
    timers = ManualTimers()
    network = Network(DevnodeSettings(**settings), timers)  # type: ignore[arg-type]
    node = network.nodes[0]
    node.messaging.subscribe(TOPIC)
    return node, timers


def send(node: Node, **changes: object) -> str:
    message = WakuMessage(b"x", TOPIC, timestamp=1, **changes)  # type: ignore[arg-type]
    request_id = node.messaging.send(SHARD, message)
    assert request_id is not None
    return request_id


def kinds(node: Node) -> list[str]:
    return [event.kind for _, events in node.messaging.take_events() for event in events]


def sources(node: Node) -> list[str]:
    return [item.source for item in node.messaging.take_received()]


def test_propagated_at_once_and_sent_when_the_store_has_it() -> None:
    node, timers = make(store_lag_s=5.0)
    send(node)
    assert kinds(node) == ["propagated"]
    timers.advance(3)
    assert kinds(node) == []
    timers.advance(3)
    assert (kinds(node), node.messaging.under_way) == (["sent"], 0)
    timers.advance(100)
    assert kinds(node) == []


def test_a_message_that_the_store_missed_is_published_again() -> None:
    node, timers = make(store_lag_s=0.0, store_loss=1.0)
    send(node)
    timers.advance(3)
    assert kinds(node) == ["propagated"]
    node.network.store_loss = 0.0
    timers.advance(3)
    assert kinds(node) == []
    timers.advance(3)
    assert kinds(node) == ["sent"]
    assert sources(node) == ["live"]  # and once, however often it went out


def test_what_the_store_never_has_ends_in_silence() -> None:
    node, timers = make(store_loss=1.0)
    send(node)
    timers.advance(59)
    assert node.messaging.under_way == 1
    timers.advance(1)
    assert (kinds(node), node.messaging.under_way) == (["propagated"], 0)


def test_what_never_propagates_ends_in_an_error() -> None:
    node, timers = make(peers=0)
    send(node)
    timers.advance(59)
    assert kinds(node) == []
    timers.advance(1)
    ((_, (event,)),) = node.messaging.take_events()
    assert (event.kind, event.more) == ("error", {"error": GAVE_UP})
    assert node.messaging.under_way == 0


def test_the_time_in_the_queue_does_not_count() -> None:
    node, timers = make(peers=0, queue_s=10.0, messaging_api="2026-08")
    send(node)
    timers.advance(69)
    assert kinds(node) == []
    timers.advance(1)
    assert kinds(node) == ["error"]


def test_a_node_that_finds_peers_in_time_propagates() -> None:
    node, timers = make(store_lag_s=0.0)
    node.faults.isolated = True
    send(node)
    timers.advance(30)
    node.faults.isolated = False
    timers.advance(3)
    assert kinds(node) == ["propagated"]


@pytest.mark.parametrize(
    ("settings", "message"), [({}, {"ephemeral": True}), ({"reliability": False}, {})]
)
def test_some_messages_are_done_when_they_are_propagated(
    settings: dict[str, object], message: dict[str, object]
) -> None:
    node, timers = make(store_lag_s=0.0, **settings)
    send(node, **message)
    timers.advance(100)
    assert (kinds(node), node.messaging.under_way) == (["propagated"], 0)


@pytest.mark.parametrize(("generation", "told"), [("2026-08", []), ("2026-09", ["queued"])])
def test_a_message_that_waits_is_told_of_by_the_newer_generation(
    generation: str, told: list[str]
) -> None:
    node, timers = make(queue_s=10.0, messaging_api=generation)
    request_id = send(node)
    events = node.messaging.take_events_of(request_id) or []
    assert [event.kind for event in events] == told
    for event in events:
        assert event.more == {"expectedPublishTimestamp": timers.now() + 10 * SECOND}
    timers.advance(10)
    assert kinds(node) == ["propagated"]
    assert node.messaging.take_events_of(request_id) is None


def test_events_are_in_the_order_of_their_requests() -> None:
    node, _ = make(reliability=False)
    ids = [send(node) for _ in range(3)]
    assert [request_id for request_id, _ in node.messaging.take_events()] == ids


def test_the_ring_keeps_the_newest() -> None:
    node, _ = make()
    for number in range(60):
        message = WakuMessage(b"x", TOPIC, timestamp=number)
        node.messaging.receive(bytes([number]), message, "live")
    received = node.messaging.take_received()
    assert [item.digest[0] for item in received] == [*range(10, 60)]
    assert (node.messaging.evicted, node.messaging.take_received()) == (10, [])


def test_what_was_missed_comes_from_the_store() -> None:
    node, timers = make(loss=1.0, store_lag_s=2.0)
    node.publish(SHARD, WakuMessage(b"x", TOPIC, timestamp=1))
    timers.advance(4.9)
    assert sources(node) == []
    timers.advance(0.1)
    assert sources(node) == ["history"]


def test_without_reliability_what_was_missed_is_gone() -> None:
    node, timers = make(loss=1.0, reliability=False)
    node.publish(SHARD, WakuMessage(b"x", TOPIC, timestamp=1))
    timers.advance(100)
    assert sources(node) == []


def test_a_restart_ends_what_is_under_way() -> None:
    node, timers = make(loss=1.0)
    send(node)
    node.restart()
    node.messaging.subscribe(TOPIC)
    timers.advance(100)
    assert (kinds(node), sources(node)) == ([], [])
    assert not node.seen.knows(waku_message_hash(SHARD, WakuMessage(b"x", TOPIC, timestamp=1)))


def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _ = make(store_loss=1.0)
    monkeypatch.setattr(module, "MAX_OUTGOING_BYTES", 2)
    monkeypatch.setattr(module, "MAX_TOPICS", 1)
    message = WakuMessage(b"x", TOPIC, timestamp=1)
    sent = [node.messaging.send(SHARD, message) is not None for _ in range(3)]
    assert sent == [True, True, False]
    assert node.messaging.subscribe(TOPIC) is None
    assert node.messaging.subscribe("/b/1/c/d") == "too many subscriptions"
    monkeypatch.setattr(module, "MAX_REQUESTS", 1)
    monkeypatch.setattr(module, "MAX_OUTGOING_BYTES", 100)
    other = node.messaging = Messaging(node)
    assert [other.send(SHARD, message) is None for _ in range(2)] == [False, True]
    assert len(other.take_events()) == 1


def test_what_has_ended_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_OUTGOING_BYTES", 1)
    node, _ = make(reliability=False)
    for _ in range(3):
        send(node)
