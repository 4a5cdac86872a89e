"""Each message once; the store gives what did not come, in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from messaging_adapter.rest_client import Refusals, RestClient
from messaging_adapter.rest_intake import Intake, merged
from messaging_adapter.rest_store import RestStore
from messaging_adapter.rest_url import RestParameters
from messaging_adapter.rest_wire import MessageReader
from reliable_channel.core.wire import WakuMessage, waku_message_hash
from reliable_channel.ports import IncomingMessage
from reliable_channel.types import SECOND
from tests.support.rest import OTHER, TOPIC, StandIn, stand_in
from tests.support.virtual_loop import START_NS, virtual_time

FAR = "/other/2/hall/proto"
"""On another shard."""


def incoming(name: bytes, time: int = 0, topic: str = TOPIC) -> IncomingMessage:
    return IncomingMessage(
        content_topic=topic, payload=name, message_hash=name.ljust(32), timestamp_ns=time
    )


@dataclass
class Scene:
    intake: Intake
    network: StandIn
    got: list[bytes]
    connected: asyncio.Event

    def say(self, payload: bytes, age_s: float = 0.0, topic: str = TOPIC) -> bytes:
        """Put a message into the store only."""
        time = self.network.clock.now_ns() - int(age_s * SECOND)
        message = WakuMessage(payload, topic, timestamp=time)
        carrier = self.network.network.shard_topic(topic)
        self.network.nodes[1].publish(carrier, message)
        return waku_message_hash(carrier, message)

    def want(self, *topics: str, since_s: float = 1_000.0) -> None:
        for topic in topics:
            self.intake.topics[topic] = self.network.clock.now_ns() - int(since_s * SECOND)


@asynccontextmanager
async def scene(query: str = "", **settings: Any) -> AsyncIterator[Scene]:
    async with stand_in(**settings) as network:
        parameters = RestParameters.parse(f"waku+http://node:1?{query}")
        client = RestClient(parameters, clock=network.clock, transport=network.wires[0])
        refusals = Refusals(network.clock)
        carrier_of = network.network.shard_topic
        store = RestStore(client, MessageReader(carrier_of, 200_000, refusals), refusals)
        got: list[bytes] = []
        intake = Intake(
            parameters,
            clock=network.clock,
            store=store,
            refusals=refusals,
            pubsub_topic_of=carrier_of,
            deliver=lambda message: got.append(message.payload),
        )
        intake.has_store = True
        connected = asyncio.Event()
        connected.set()
        task = asyncio.create_task(intake.watch(connected))
        yield Scene(intake, network, got, connected)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()


@virtual_time
async def test_each_message_of_a_wanted_topic_is_delivered_once() -> None:
    async with scene() as on:
        on.want(TOPIC)
        for name in (b"a", b"b", b"a"):
            on.intake.take(incoming(name))
        on.intake.take(incoming(b"c", topic=OTHER))
        assert on.got == [b"a", b"b"]
        on.want(OTHER)
        on.intake.take(incoming(b"c", topic=OTHER))
        assert on.got == [b"a", b"b", b"c"]


@virtual_time
async def test_what_did_not_come_comes_from_the_store_in_order_of_time_over_all_topics() -> None:
    async with scene() as on:
        on.want(TOPIC, OTHER, FAR)
        names = [b"%03d" % number for number in range(230)]
        topics = [TOPIC, FAR, OTHER]
        hashes = [
            on.say(name, age_s=100 - number / 10, topic=topics[number % 3])
            for number, name in enumerate(names)
        ]
        on.intake.seen.add(hashes[7], 0)
        assert await on.intake.close_gaps() == 229
        assert on.got == names[:7] + names[8:]
        assert await on.intake.close_gaps() == 0


@virtual_time
async def test_what_is_older_than_the_wish_for_it_is_not_delivered() -> None:
    async with scene() as on:
        on.want(TOPIC, since_s=50)
        on.want(OTHER, since_s=10)
        on.say(b"old", age_s=60)
        on.say(b"new", age_s=40)
        on.say(b"other", age_s=40, topic=OTHER)
        await on.intake.close_gaps()
        assert on.got == [b"new"]


@virtual_time
async def test_beyond_the_window_only_an_interruption_looks() -> None:
    async with scene("window_ms=20000") as on:
        on.want(TOPIC)
        await asyncio.sleep(300)
        on.say(b"old", age_s=100)
        await on.intake.close_gaps()
        assert on.got == []
        on.intake.fall_behind(on.network.clock.now_ns() - 150 * SECOND)
        on.intake.fall_behind(on.network.clock.now_ns() - 1 * SECOND)
        await on.intake.close_gaps()
        assert on.got == [b"old"]
        assert on.intake.behind_ns is None


@virtual_time
async def test_after_an_interruption_the_store_is_asked_from_5_s_before_the_last_message() -> None:
    async with scene("window_ms=1000&check_ms=3600000") as on:
        on.want(TOPIC)
        await asyncio.sleep(100)
        await on.intake.close_gaps()
        on.intake.take(incoming(b"last", on.network.clock.now_ns() - 20 * SECOND))
        on.intake.interrupted()
        assert on.intake.behind_ns == on.network.clock.now_ns() - 25 * SECOND


@virtual_time
async def test_a_store_that_fails_is_asked_again_from_where_it_was() -> None:
    async with scene("window_ms=1000") as on:
        on.want(TOPIC)
        on.say(b"a", age_s=100)
        on.intake.fall_behind(START_NS - 200 * SECOND)
        on.network.nodes[0].faults.stalled.add("store")
        assert await on.intake.close_gaps() == 0
        assert on.intake.behind_ns == START_NS - 200 * SECOND
        on.network.nodes[0].faults.stalled.clear()
        await asyncio.sleep(30)
        assert on.got == [b"a"]


@virtual_time
async def test_without_a_store_or_topics_nothing_is_asked() -> None:
    async with scene() as on:
        on.intake.suspect()
        await asyncio.sleep(60)
        on.want(TOPIC)
        on.intake.has_store = False
        on.intake.interrupted()
        await asyncio.sleep(60)
        assert on.network.wires[0].times == []


@virtual_time
async def test_checks_are_frequent_after_trouble_and_rare_in_peace_and_none_while_away() -> None:
    async with scene() as on:
        on.want(TOPIC)
        await asyncio.sleep(100)
        peace = len(on.network.wires[0].times)
        assert 9 <= peace <= 15
        for _ in range(100):
            on.intake.suspect()
            await asyncio.sleep(0.1)
        assert len(on.network.wires[0].times) - peace in range(8, 14)  # a second apart
        on.connected.clear()
        await asyncio.sleep(2)
        away = len(on.network.wires[0].times)
        on.intake.suspect()
        await asyncio.sleep(100)
        assert len(on.network.wires[0].times) == away


@virtual_time
async def test_after_a_gap_the_next_is_looked_for_soon() -> None:
    async with scene(store_lag_s=3.0) as on:
        on.want(TOPIC)
        await asyncio.sleep(60)
        on.say(b"a")
        await asyncio.sleep(15)
        on.say(b"b")
        before = len(on.network.wires[0].times)
        await asyncio.sleep(3.5)
        assert on.got == [b"a"]
        await asyncio.sleep(8)
        assert on.got == [b"a", b"b"]
        assert len(on.network.wires[0].times) - before <= 12


@virtual_time
async def test_what_was_seen_and_forgotten_is_not_asked_for() -> None:
    async with scene() as on:
        on.want(TOPIC)
        on.say(b"a", age_s=50)
        on.say(b"b", age_s=30)
        on.intake.seen.horizon_ns = on.network.clock.now_ns() - 40 * SECOND
        await on.intake.close_gaps()
        assert on.got == [b"b"]


@virtual_time
async def test_an_echo_that_comes_before_its_hash_is_known_is_dropped_and_others_are_not() -> None:
    def same(message_hash: bytes) -> IncomingMessage:
        return replace(incoming(message_hash), payload=b"same")

    async with scene() as on:
        on.want(TOPIC)
        ours = WakuMessage(b"same", TOPIC)
        async with on.intake.own(ours):
            async with on.intake.own(ours):
                for name in (b"h1", b"h2", b"h3"):
                    on.intake.take(same(name))
                on.intake.take(incoming(b"different"))
                assert on.got == [b"different"]
                on.intake.seen.add(b"h1".ljust(32), 0)
            on.intake.seen.add(b"h2".ljust(32), 0)
        assert on.got == [b"different", b"same"]
        on.intake.take(same(b"h4"))
        assert on.got == [b"different", b"same", b"same"]


@virtual_time
async def test_a_handler_of_ours_that_fails_ends_nothing() -> None:
    async with scene() as on:
        on.want(TOPIC)
        on.say(b"a", age_s=5)
        on.intake._deliver = lambda _: 1 // 0  # type: ignore[assignment,return-value]
        assert await on.intake.close_gaps() == 0


@virtual_time
async def test_streams_are_merged_by_time_holding_one_of_each() -> None:
    taken = 0

    async def stream(*times: int) -> AsyncIterator[IncomingMessage]:
        nonlocal taken
        for time in times:
            taken += 1
            yield incoming(b"%d" % time, time)

    whole = merged([stream(1, 4, 5), stream(), stream(2, 3)])
    found = []
    async for message in whole:
        found.append(message.timestamp_ns)
        assert taken <= len(found) + 2
    assert found == [1, 2, 3, 4, 5]
