"""The connection: found, lost, found again; no request too many in any state."""

from __future__ import annotations

import asyncio
import logging

import pytest

from messaging_adapter import ConnectionStatus, NodeConnectionStatusEvent, NodeTopicHealthEvent
from messaging_adapter.rest_link import LinkState
from reliable_channel.errors import ConfigurationError
from reliable_channel.ports import MessageEnvelope
from tests.support.rest import OTHER, TOPIC, OverWire, StandIn, listen, stand_in, until
from tests.support.virtual_loop import virtual_time

ALL = ["relay", "static", "filter", "messaging"]

MOST_IN_A_SECOND = 20
"""Requests with one topic: polls, and after a loss seven to find out what the node has, two to stores."""


async def say(node: OverWire, payload: bytes, topic: str = TOPIC) -> None:
    await node.publish("x", MessageEnvelope(content_topic=topic, payload=payload))


@virtual_time
async def test_a_node_that_is_not_there_yet_is_waited_for() -> None:
    async with stand_in() as network:
        network.wires[0].down = True
        node = await network.open()
        assert node.link.state is LinkState.DISCONNECTED
        assert node.connection_status is ConnectionStatus.DISCONNECTED
        heard = await listen(node)
        await asyncio.sleep(600)
        assert len(network.wires[0].times) < 150
        assert network.wires[0].most_in_a_second() <= 5
        network.wires[0].down = False
        await until(lambda: node.link.state is LinkState.CONNECTED, 10)
        other = await network.open(1)
        await say(other, b"a")
        await until(lambda: heard == [b"a"], 1)
        await node.close()
        await other.close()


@virtual_time
async def test_a_node_that_hangs_holds_up_the_start_for_a_moment_only() -> None:
    async with stand_in() as network:
        network.wires[0].hangs = True
        node = await network.open()
        assert asyncio.get_running_loop().time() == pytest.approx(5.0)
        await asyncio.sleep(600)
        assert len(network.wires[0].times) < 60
        await node.close()


@virtual_time
async def test_a_node_that_cannot_do_what_is_asked_is_refused_and_nothing_left_open() -> None:
    async with stand_in(without=("lightpush",)) as network:
        with pytest.raises(ConfigurationError, match="cannot publish by lightpush; it has filter"):
            await network.open(query="publish=lightpush")
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_a_restarted_node_is_subscribed_again_and_asked_for_what_was_missed(way: str) -> None:
    async with stand_in() as network:
        node = await network.open(query=f"receive={way}")
        other = await network.open(1)
        heard = await listen(node)
        await say(other, b"1")
        await until(lambda: heard == [b"1"], 5)
        network.nodes[0].restart()
        await say(other, b"2")
        await until(lambda: heard == [b"1", b"2"], 45)
        await say(other, b"3")
        await until(lambda: heard == [b"1", b"2", b"3"], 45)
        assert network.wires[0].most_in_a_second() <= MOST_IN_A_SECOND
        await node.close()
        await other.close()


@pytest.mark.parametrize("way", ["relay", "static", "filter"])
@virtual_time
async def test_what_was_missed_of_a_forgetful_node_is_asked_for_at_once(way: str) -> None:
    async with stand_in() as network:
        node = await network.open(query=f"receive={way}&check_ms=3600000")
        other = await network.open(1)
        heard = await listen(node)
        await asyncio.sleep(100)
        network.nodes[0].restart()
        await say(other, b"1")
        await asyncio.sleep(1)
        assert heard == [b"1"]
        await node.close()
        await other.close()


@pytest.mark.parametrize("way", ["filter", "messaging"])
@virtual_time
async def test_subscriptions_that_vanish_without_a_word_are_renewed(way: str) -> None:
    async with stand_in() as network:
        node = await network.open(query=f"receive={way}&store=off")
        other = await network.open(1)
        heard = await listen(node)
        if way == "filter":
            network.nodes[0].forget_filter()
        else:
            network.nodes[0].restart()
        await asyncio.sleep(35)
        await say(other, b"1")
        await until(lambda: heard == [b"1"], 2)
        await node.close()
        await other.close()


@pytest.mark.parametrize("away_s", [1, 30, 300])
@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_after_an_absence_everything_comes_once_and_in_order(way: str, away_s: int) -> None:
    async with stand_in() as network:
        node = await network.open(query=f"receive={way}&window_ms=1000")
        other = await network.open(1)
        heard = await listen(node)
        await listen(node, OTHER)
        await say(other, b"0")
        await until(lambda: heard == [b"0"], 5)
        network.wires[0].down = True
        network.nodes[0].restart()
        for number in range(1, 131):
            await say(other, b"%d" % number)
            await asyncio.sleep(away_s / 130)
        network.wires[0].down = False
        await until(lambda: len(heard) == 131, 45)
        await say(other, b"131")
        await until(lambda: len(heard) == 132, 45)
        assert heard == [b"%d" % number for number in range(132)]
        await asyncio.sleep(30)
        assert len(heard) == 132
        await node.close()
        await other.close()


def refuse(network: StandIn) -> None:
    network.wires[0].down = True


def hang(network: StandIn) -> None:
    network.wires[0].hangs = True


def cut(network: StandIn) -> None:
    network.nodes[0].faults.cut_rate = 1.0


def fail(network: StandIn) -> None:
    network.nodes[0].faults.answer("/", 500, "oh no", times=1_000_000)


def busy(network: StandIn) -> None:
    network.nodes[0].faults.answer("/", 429, "slowly", times=1_000_000)


def forget(network: StandIn) -> None:
    network.nodes[0].faults.answer(
        "/relay/v1/auto/messages", 404, "x", times=1_000_000, method="GET"
    )


def garbage(network: StandIn) -> None:
    network.nodes[0].faults.answer("/", 200, "\x00\xff[", times=1_000_000)


def nonsense(network: StandIn) -> None:
    network.nodes[0].faults.answer("/", 200, '[{"payload": 5}, null, []]', times=1_000_000)


def start_anew(network: StandIn) -> None:
    network.nodes[0].faults.starting = True


@pytest.mark.parametrize(
    ("break_it", "at_most"),
    [
        (refuse, 160),
        (hang, 60),
        (cut, 700),
        (fail, 160),
        (busy, 400),
        (forget, 1_000),
        (garbage, 700),
        (nonsense, 4_000),  # lists, and so polled on as ever
        (start_anew, 160),
    ],
)
@virtual_time
async def test_no_failure_makes_requests_without_end(
    break_it: object, at_most: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with stand_in() as network:
        node = await network.open()
        await listen(node)
        await asyncio.sleep(10)
        network.wires[0].times.clear()
        assert callable(break_it)
        break_it(network)
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(600)
        wire = network.wires[0]
        assert wire.most_in_a_second() <= MOST_IN_A_SECOND
        assert len(wire.times) <= at_most
        assert len(caplog.records) <= 700
        assert not any(task.done() for task in node._tasks)
        wire.down = wire.hangs = False
        network.nodes[0].faults = network.network.settings.faults()
        heard = await listen(node, OTHER)
        await asyncio.sleep(60)
        other = await network.open(1)
        await say(other, b"a", OTHER)
        await until(lambda: heard == [b"a"], 10)
        await node.close()
        await other.close()
        assert len(asyncio.all_tasks()) == 1


@virtual_time
async def test_much_is_asked_for_more_often_and_nothing_is_lost() -> None:
    async with stand_in() as network:
        node = await network.open()
        other = await network.open(1)
        heard = await listen(node)
        for number in range(500):
            await say(other, b"%d" % number)
            await asyncio.sleep(0.005)
        await until(lambda: len(heard) == 500, 20)
        assert sorted(heard, key=int) == [b"%d" % number for number in range(500)]
        assert network.wires[0].most_in_a_second() <= 40
        await node.close()
        await other.close()


@virtual_time
async def test_a_stream_of_messages_does_not_overflow_the_cache_of_the_node() -> None:
    async with stand_in() as network:
        node = await network.open(query="store=off")
        other = await network.open(1)
        heard = await listen(node)
        for number in range(300):
            await say(other, b"%d" % number)
            await asyncio.sleep(0.008 if number < 100 else 0.004)
        await asyncio.sleep(1)
        assert len(heard) == 300
        await node.close()
        await other.close()


@virtual_time
async def test_many_topics_are_asked_for_at_fifty_a_second_at_most() -> None:
    async with stand_in() as network:
        node = await network.open()
        for number in range(200):
            await listen(node, f"/app/1/room{number}/proto")
        network.wires[0].paths.clear()
        network.wires[0].times.clear()
        await asyncio.sleep(30)
        assert 30 <= network.wires[0].paths["GET /relay/v1/auto"] / 30 <= 50
        assert network.wires[0].most_in_a_second() <= 80  # and now and then the store
        await node.close()


@virtual_time
async def test_health_is_told_when_it_changes() -> None:
    async with stand_in() as network:
        node = await network.open()
        await listen(node)
        told: list[str] = []
        node.on(NodeConnectionStatusEvent, lambda e: told.append(str(e.connection_status)))
        node.on(NodeTopicHealthEvent, lambda e: told.append(f"{e.content_topic} {e.health}"))
        network.nodes[0].faults.isolated = True
        await asyncio.sleep(20)
        assert node.connection_status is not ConnectionStatus.CONNECTED
        first = len(told)
        assert first == 2
        network.nodes[0].faults.isolated = False
        await asyncio.sleep(20)
        assert told[first:] == ["Connected", f"{TOPIC} SUFFICIENTLY_HEALTHY"]
        network.wires[0].down = True
        await asyncio.sleep(20)
        assert told[first + 2 :] == ["Disconnected", f"{TOPIC} UNHEALTHY"]
        await node.close()


@virtual_time
async def test_topics_are_left_with_their_last_holder() -> None:
    async with stand_in() as network:
        node = await network.open()
        await node.subscribe([TOPIC])
        first = await node.subscribe_topic(TOPIC, lambda _: None)
        second = await node.subscribe_topic(OTHER, lambda _: None)
        await first.close()
        await second.close()
        assert network.nodes[0].relay.places == {("content", TOPIC)}
        await node.unsubscribe([TOPIC])
        assert network.nodes[0].relay.places == set()
        await node.subscribe([TOPIC])
        await node.close()
        assert network.nodes[0].relay.places == set()


@pytest.mark.parametrize("way", ALL)
@virtual_time
async def test_joining_and_leaving_while_a_slow_node_is_asked_is_not_taken_for_forgetting(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with stand_in(answer_delay_ms=90) as network:
        node = await network.open(query=f"receive={way}&poll_ms=20")
        await listen(node, OTHER)
        for number in range(40):
            held = await node.subscribe_topic(f"/app{number}/1/x/proto", lambda _: None)
            await asyncio.sleep(0.037 * (number % 7))
            await held.close()
        await node.close()
    assert [record.getMessage() for record in caplog.records if record.levelno > 20] == []


@virtual_time
async def test_a_topic_that_the_node_refuses_for_good_spoils_no_other() -> None:
    async with stand_in() as network:
        network.wires[0].down = True
        node = await network.open()
        await listen(node)
        heard = await listen(node, OTHER)
        faults = network.nodes[0].faults
        faults.answer("/relay/v1/auto/subscriptions", 400, "Invalid topic", times=2)
        network.wires[0].down = False
        await asyncio.sleep(10)
        other = await network.open(1)
        await say(other, b"a", OTHER)
        await until(lambda: heard == [b"a"], 5)
        assert node.refusals.counts == {"topic_refused": 1}
        assert network.wires[0].paths["POST /relay/v1/auto"] == 4  # to find out; both; each
        await node.close()
        await other.close()
