"""Whole channels: durable files, restarts, kills, shared budgets, hundreds on one loop, the design's example."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import subprocess
import sys
import warnings
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from messaging_adapter import MessageEnvelope, NodeConfig, WakuNode, create_node
from persistence import open_store
from reliable_channel import (
    AesGcmEncryption,
    ChannelEvent,
    ChannelExistsError,
    ChannelFailedError,
    IdempotencyConflictError,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    MessagingNode,
    NodeUnavailableError,
    RateLimitConfig,
    ReliableChannel,
    SdsConfig,
    SegmentationConfig,
    SenderIdConflictEvent,
    StoreUnavailableError,
    create_reliable_channel,
)
from reliable_channel.clock import LoopClock
from reliable_channel.core.wire import SdsMessage
from reliable_channel.ports import ChannelStore, IncomingMessage
from reliable_channel.records import LedgerRecord
from reliable_channel.types import SECOND
from reliable_channel.volatile import VolatileStore
from tests.support.failing_store import (
    Committed,
    FailingStore,
    ProbeNode,
    Published,
    Side,
    Trace,
    assert_store_came_first,
    outcome,
    pair,
    side,
    soon,
    virtual_clock,
)
from tests.support.virtual_loop import virtual_time

ROOT = Path(__file__).parents[2]
QUICK: dict[str, Any] = {
    "acknowledgement_timeout_ms": 60,
    "sync_interval_ms": 100,
    "max_retransmissions": 1_000,
}
"""Timers for tests in real time; a machine that is busy with other tests fails none of them."""

pytestmark = pytest.mark.timeout(120)


async def open_node(
    store: ChannelStore | None = None,
    *,
    transport: str = "memory://channels",
    clock: LoopClock | None = None,
    limit: RateLimitConfig | None = None,
    **sds: Any,
) -> WakuNode:
    config = NodeConfig(
        transport=transport,
        sds_config=SdsConfig(persistence=store, **sds),
        rate_limit_config=limit or RateLimitConfig(),
    )
    return await create_node(config, clock=clock)


async def open_channel(
    node: MessagingNode, sender_id: str, channel_id: str = "room", **settings: Any
) -> ReliableChannel:
    topic = f"/app/1/{channel_id}/proto"
    return await create_reliable_channel(node, channel_id, topic, sender_id, **settings)


async def log_of(channel: ReliableChannel) -> list[Any]:
    """Read all durable events of an open channel up to now."""
    found: list[Any] = []
    async with channel.events() as live, channel.events(after=0) as stream:
        while stream.last_sequence < live.last_sequence:
            found.append(await soon(anext(stream)))
    return found


async def has_received(channel: ReliableChannel, count: int) -> list[bytes]:
    """Wait until so many messages have been received, ever, and return them."""
    payloads: list[bytes] = []
    async with channel.events(after=0) as stream:
        while len(payloads) < count:
            event = await soon(anext(stream))
            if isinstance(event, MessageReceivedEvent):
                payloads.append(event.message)
    return payloads


def payloads_in(log: list[Any]) -> list[bytes]:
    return [event.message for event in log if isinstance(event, MessageReceivedEvent)]


FINAL = MessageDeliveredEvent | MessageSendErrorEvent | MessageDeliveryErrorEvent


# --- Files ---------------------------------------------------------------------------------------


async def test_a_conversation_is_kept_in_files_and_goes_on(tmp_path: Path) -> None:
    """Stores, nodes and channels are closed and made anew, three times over."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("alice", "bob")}
    key = AesGcmEncryption.generate_key()
    for round_number in range(3):
        async with AsyncExitStack() as stack:
            channels = []
            for name, url in urls.items():
                store = await stack.enter_async_context(open_store(url))
                node = await stack.enter_async_context(await open_node(store, **QUICK))
                channel = await open_channel(node, name, encryption=AesGcmEncryption(key))
                channels.append(await stack.enter_async_context(channel))
            for name, channel in zip(urls, channels, strict=True):
                for number in range(5):
                    request_id = await channel.send(f"{name} {round_number} {number}".encode())
                    assert len(await soon(channel.wait_delivered(request_id))) == 1
            logs = [await log_of(channel) for channel in channels]
        for log, peer in zip(logs, ("bob", "alice"), strict=True):
            assert [event.sequence for event in log] == list(range(1, len(log) + 1))
            assert payloads_in(log) == [
                f"{peer} {past} {number}".encode()
                for past in range(round_number + 1)
                for number in range(5)
            ]
            delivered = [event for event in log if isinstance(event, MessageDeliveredEvent)]
            assert len(delivered) == 5 * (round_number + 1)


async def test_large_messages_and_open_requests_survive_in_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/alice.db"
    payload = random.Random(1).randbytes(700_000)
    async with (
        open_store(url) as store,
        await open_node(store, **QUICK) as node,
        await open_channel(node, "alice") as alice,
    ):
        request_id = await alice.send(payload)
    async with (
        open_store(url) as store,
        await open_node(store, **QUICK) as node,
        await open_node(**QUICK) as other,
        await open_channel(other, "bob") as bob,
        await open_channel(node, "alice") as alice,
    ):
        assert await soon(alice.wait_delivered(request_id)) == ("bob",)
        finals = [event for event in await log_of(alice) if isinstance(event, FINAL)]
        assert [event.request_id for event in finals] == [request_id]
        assert await has_received(bob, 1) == [payload]


async def test_repeats_under_a_key_are_known_in_a_file(tmp_path: Path) -> None:
    """An application that repeats everything after each start, and starts three times."""
    url = f"sqlite:///{tmp_path}/alice.db"
    seen: list[list[str]] = []
    async with await open_node(**QUICK) as other, await open_channel(other, "bob") as bob:
        for _ in range(3):
            async with (
                open_store(url) as store,
                await open_node(store, **QUICK) as node,
                await open_channel(node, "alice") as alice,
            ):
                ids = [
                    await alice.send(b"%d" % number * 1_000, idempotency_key=f"Schlüssel {number}")
                    for number in range(5)
                ]
                seen.append(ids)
                with pytest.raises(IdempotencyConflictError):
                    await alice.send(b"other", idempotency_key="Schlüssel 0")
                assert await soon(alice.wait_delivered(ids[0])) == ("bob",)
        assert seen == [ids] * 3
        await has_received(bob, 5)
        assert payloads_in(await log_of(bob)) == [b"%d" % number * 1_000 for number in range(5)]


async def test_replays_from_a_file_meet_what_keeps_coming(tmp_path: Path) -> None:
    async with (
        open_store(f"sqlite:///{tmp_path}/bob.db", synchronous="NORMAL") as store,
        await open_node(**QUICK) as a,
        await open_node(store, **QUICK) as b,
        await open_channel(a, "alice") as alice,
        await open_channel(b, "bob") as bob,
    ):
        readers = []
        for number in range(300):
            await alice.send(b"%d" % number)
            if number % 30 == 0:
                readers.append(asyncio.create_task(has_received(bob, 300)))
        expected = [b"%d" % number for number in range(300)]
        assert [await soon(reader) for reader in readers] == [expected] * 10


async def test_a_file_is_driven_by_one_channel_at_a_time(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/alice.db"
    async with (
        open_store(url) as first,
        open_store(url) as second,
        await open_node(first) as a,
        await open_node(second) as b,
    ):
        async with await open_channel(a, "alice"):
            with pytest.raises(ChannelExistsError):
                await open_channel(b, "alice")
        async with await open_channel(b, "alice"):
            pass


async def test_a_store_that_is_closed_first_stops_the_channel_loudly_and_loses_nothing(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/alice.db"
    async with await open_node(**QUICK) as other, await open_channel(other, "bob") as bob:
        store = open_store(url)
        async with await open_node(store, **QUICK) as node:
            alice = await open_channel(node, "alice")
            await soon(alice.wait_delivered(await alice.send(b"one")))
            await store.close()
            with pytest.raises(ChannelFailedError):
                await soon(alice.send(b"two"), 10)
            await soon(alice.close())
        async with (
            open_store(url) as store,
            await open_node(store, **QUICK) as node,
            await open_channel(node, "alice") as alice,
        ):
            await soon(alice.wait_delivered(await alice.send(b"three")))
            assert await has_received(bob, 2) == [b"one", b"three"]


KILLED = """
import asyncio, sys
from messaging_adapter import NodeConfig, create_node
from persistence import open_store
from reliable_channel import SdsConfig, create_reliable_channel

async def main():
    sds = SdsConfig(persistence=open_store(sys.argv[1]))
    node = await create_node(NodeConfig(transport="memory://alone", sds_config=sds))
    channel = await create_reliable_channel(node, "room", "/app/1/room/proto", "alice")
    for number in range(10_000):
        print(await channel.send(b"%d" % number), flush=True)

asyncio.run(main())
"""


async def test_what_send_has_returned_survives_a_kill(tmp_path: Path) -> None:
    """It is stored when `send` returns."""
    url = f"sqlite:///{tmp_path}/alice.db"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, url, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    lines = [await soon(process.stdout.readline()) for _ in range(20)]
    process.kill()
    lines += (await soon(process.communicate()))[0].splitlines()
    ids = [line.decode().strip() for line in lines]
    async with (
        open_store(url) as store,
        await open_node(store, **QUICK) as node,
        await open_node(**QUICK) as other,
        await open_channel(other, "bob") as bob,
        await open_channel(node, "alice") as alice,
    ):
        waits = [alice.wait_delivered(request_id) for request_id in ids]
        assert await soon(asyncio.gather(*waits)) == [("bob",)] * len(ids)
        received = Counter(payloads_in(await log_of(bob)))
        assert received >= Counter(b"%d" % number for number in range(len(ids)))
        assert set(received.values()) == {1}


# --- Bad conditions ------------------------------------------------------------------------------


@virtual_time
async def test_everybody_gets_everything_once_through_a_bad_network() -> None:
    url = "memory://bad?loss=0.2&duplicate=0.1&reorder=0.2&delay_ms=20&jitter_ms=30&seed=3"
    names = ("alice", "bob", "carol", "dave")
    async with AsyncExitStack() as stack:
        sides = [await stack.enter_async_context(side(name, transport=url)) for name in names]
        for number in range(15):
            for item in sides:
                await item.channel.send(f"{item.sender_id} {number}".encode())
            await asyncio.sleep(0.2)
        await asyncio.sleep(240)
        for item in sides:
            others = [name for name in names if name != item.sender_id]
            expected = [f"{name} {number}".encode() for name in others for number in range(15)]
            assert sorted(item.received) == sorted(expected)
            for name in others:
                mine = [text for text in item.received if text.startswith(name.encode())]
                assert mine == [f"{name} {number}".encode() for number in range(15)]
            assert list(item.finals().values()) == [["delivered"]] * 15
            assert item.sequences == list(range(1, len(item.sequences) + 1))


@pytest.mark.parametrize("seed", range(5))
@virtual_time
async def test_a_store_that_fails_now_and_then_loses_and_doubles_nothing(seed: int) -> None:
    rng = random.Random(seed)

    async def disturb(item: Side) -> None:
        while True:
            await asyncio.sleep(rng.uniform(0, 2))
            item.store.fail()
            item.store.before_commit_sec = rng.choice((0, 0.05))
            await asyncio.sleep(rng.uniform(0, 1))
            item.store.recover()

    sent: dict[str, bytes] = {}
    async with pair(transport="memory://shaky?loss=0.1&seed=1") as (alice, bob):
        disturbers = [asyncio.create_task(disturb(item)) for item in (alice, bob)]
        for number in range(40):
            payload = b"%d" % number
            result = await outcome(alice.channel.send(payload))
            assert isinstance(result, str | StoreUnavailableError)
            if isinstance(result, str):
                sent[result] = payload
            await asyncio.sleep(rng.uniform(0, 0.5))
        await asyncio.sleep(120)
        for disturber in disturbers:
            disturber.cancel()
        await asyncio.sleep(60)
        assert 5 < len(sent) <= 40
        assert bob.received == list(sent.values())
        assert alice.finals() == {request_id: ["delivered"] for request_id in sent}
        for item in (alice, bob):
            assert item.sequences == list(range(1, len(item.sequences) + 1))
            assert [event.sequence for event in await item.log()] == item.sequences
            assert_store_came_first(item.trace)


# --- Restarts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_sec", [0.0, 0.001, 0.5, 3.0, 7.0])
@virtual_time
async def test_open_requests_go_on_with_the_next_opening(after_sec: float) -> None:
    async with side("alice") as alice:
        ids = [await alice.channel.send(b"%d" % number * 60_000) for number in range(3)]
        ids.append(await alice.channel.send(b"ephemeral", ephemeral=True))
        await asyncio.sleep(after_sec)
        await alice.channel.close()
        async with side("bob") as bob:
            await asyncio.sleep(3)
            await alice.open()
            for request_id in ids[:3]:
                assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
            assert await soon(alice.channel.wait_delivered(ids[3])) == ()
            await asyncio.sleep(30)
            log = await alice.log()
            finals = Counter(
                event.request_id for event in log if isinstance(event, MessageDeliveredEvent)
            )
            sent = Counter(event.request_id for event in log if isinstance(event, MessageSentEvent))
            assert finals == dict.fromkeys(ids[:3], 1)
            assert sent == dict.fromkeys(ids, 1)
            assert [event.sequence for event in log] == list(range(1, 8))
            ordered = [payload for payload in bob.received if payload != b"ephemeral"]
            assert ordered == [b"%d" % number * 60_000 for number in range(3)]


@virtual_time
async def test_opening_again_shows_nothing_twice_and_nothing_of_our_own() -> None:
    """What the node's store still has of the time before is known already."""
    async with pair() as (alice, bob):
        for number in range(3):
            await alice.channel.send(b"alice %d" % number)
            await bob.channel.send(b"bob %d" % number)
        await asyncio.sleep(10)
        for _ in range(3):
            await alice.channel.close()
            await alice.open()
            await asyncio.sleep(1)
        log = await alice.log()
        assert [event for event in log if isinstance(event, SenderIdConflictEvent)] == []
        received = [event.message for event in log if isinstance(event, MessageReceivedEvent)]
        assert received == [b"bob 0", b"bob 1", b"bob 2"]


@virtual_time
async def test_what_was_sent_while_the_channel_was_closed_comes_once() -> None:
    async with pair(max_retransmissions=1) as (alice, bob):
        await soon(bob.channel.wait_delivered(await bob.channel.send(b"0")))
        await alice.channel.close()
        for number in range(1, 4):
            await bob.channel.send(b"%d" % number)
        await asyncio.sleep(60)
        assert len(bob.finals()) == 4
        await alice.open()
        assert asyncio.get_running_loop().time() < 70
        received = [
            event.message for event in await alice.log() if isinstance(event, MessageReceivedEvent)
        ]
        assert received == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("seed", range(6))
@virtual_time
async def test_restarts_at_any_time_lose_and_double_nothing(seed: int) -> None:
    """Both participants are closed and opened again and again, on a network that loses a fifth."""
    rng = random.Random(seed)
    url = f"memory://restarts?loss=0.2&duplicate=0.05&reorder=0.1&delay_ms=30&seed={seed}"
    stores = {name: VolatileStore() for name in ("alice", "bob")}
    sent: dict[str, list[bytes]] = {name: [] for name in stores}
    requests: dict[str, list[str]] = {name: [] for name in stores}
    sds = {"acknowledgement_timeout_ms": 500, "sync_interval_ms": 3000, "max_retransmissions": 50}

    async def live(name: str) -> None:
        for life in range(6):
            async with (
                await open_node(stores[name], transport=url, clock=virtual_clock(), **sds) as node,
                await open_channel(node, name) as channel,
            ):
                for _ in range(rng.randrange(6) if life < 5 else 3):
                    payload = f"{name} {len(sent[name])}".encode()
                    requests[name].append(await channel.send(payload))
                    sent[name].append(payload)
                    await asyncio.sleep(rng.uniform(0, 0.5))
                await asyncio.sleep(rng.choice((0, 0.1, 1, 5)))
            await asyncio.sleep(rng.choice((0, 0.5, 7, 40)))

    keeper = await open_node(transport=url, clock=virtual_clock())
    async with keeper:  # the network and its store outlive the participants
        await asyncio.gather(*(live(name) for name in stores))
        async with AsyncExitStack() as stack:
            channels = {}
            for name, store in stores.items():
                node = await open_node(store, transport=url, clock=virtual_clock(), **sds)
                await stack.enter_async_context(node)
                opening = await open_channel(node, name)
                channels[name] = await stack.enter_async_context(opening)
            await asyncio.sleep(300)
            logs = {name: await log_of(channel) for name, channel in channels.items()}
    for name, log in logs.items():
        (other,) = stores.keys() - {name}
        assert [event for event in log if isinstance(event, SenderIdConflictEvent)] == []
        assert payloads_in(log) == sent[other]
        finals = Counter(event.request_id for event in log if isinstance(event, FINAL))
        assert finals == dict.fromkeys(requests[name], 1)
        shown = Counter(event.request_id for event in log if isinstance(event, MessageSentEvent))
        assert shown == dict.fromkeys(requests[name], 1)
        assert [event.sequence for event in log] == list(range(1, len(log) + 1))


@virtual_time
async def test_a_seed_that_is_used_again_makes_no_request_id_again() -> None:
    store = VolatileStore()
    ids = []
    for _ in range(3):
        async with (
            await open_node(store, clock=virtual_clock()) as node,
            await open_channel(node, "alice", seed=7) as channel,
        ):
            ids += [await channel.send(b"x"), await channel.send(b"y")]
            assert channel.status().open_requests == len(ids)
    assert len(set(ids)) == 6


# --- The epoch budget ----------------------------------------------------------------------------

EPOCH_SEC = 60
BUDGET = 20


class Meter:
    """Counts what the network carries in each epoch."""

    def __init__(self, clock: LoopClock) -> None:
        self.by_epoch: Counter[int] = Counter()
        self.by_topic: Counter[tuple[int, str]] = Counter()
        self._clock = clock

    def count(self, message: IncomingMessage) -> None:
        epoch = self._clock.now_ns() // (EPOCH_SEC * SECOND)
        self.by_epoch[epoch] += 1
        self.by_topic[epoch, message.content_topic] += 1

    async def listen(self, *topics: str) -> WakuNode:
        """Return a node that hears everything, and only hears."""
        node = await open_node(clock=self._clock)
        for topic in topics:
            await node.subscribe_topic(topic, self.count)
        return node


LIMIT = RateLimitConfig(enabled=True, epoch_period_sec=EPOCH_SEC, messages_per_epoch=BUDGET)
TOPICS = [f"/app/1/{name}/proto" for name in ("room", "hall", "raw")]


@virtual_time
async def test_all_channels_of_a_node_and_the_node_itself_share_one_budget() -> None:
    clock = virtual_clock(EPOCH_SEC)
    meter = Meter(clock)
    async with (
        await meter.listen(*TOPICS),
        await open_node(limit=LIMIT, clock=clock) as node,
        await open_channel(node, "alice", "room") as room,
        await open_channel(node, "alice", "hall") as hall,
    ):
        for number in range(100):
            await room.send(b"%d" % number)
            await hall.send(b"%d" % number)
            if number % 10 == 0:
                envelope = MessageEnvelope(content_topic=TOPICS[2], payload=b"%d" % number)
                await node.send(envelope)
        await asyncio.sleep(5 * EPOCH_SEC)
    assert max(meter.by_epoch.values()) <= BUDGET
    assert len(meter.by_epoch) >= 5
    assert sum(meter.by_epoch.values()) >= 4 * BUDGET // 2, "and it is used"
    for epoch in sorted(meter.by_epoch)[1:5]:
        shares = [meter.by_topic[epoch, topic] for topic in TOPICS[:2]]
        assert min(shares) >= BUDGET // 5, "nobody starves"


@virtual_time
async def test_a_request_that_has_to_wait_says_until_when() -> None:
    clock = virtual_clock(EPOCH_SEC)
    started = clock.now_ns()
    async with (
        await open_node(limit=LIMIT, clock=clock) as node,
        await open_node(clock=clock) as other,
        await open_channel(other, "bob") as bob,
        await open_channel(node, "alice") as alice,
    ):
        ids = [await alice.send(b"%d" % number) for number in range(50)]
        await asyncio.sleep(1)
        log = await log_of(alice)
        queued = {
            event.request_id: event.expected_at
            for event in log
            if isinstance(event, MessageQueuedEvent)
        }
        sent_now = {event.request_id for event in log if isinstance(event, MessageSentEvent)}
        assert sent_now.isdisjoint(queued)
        assert sent_now | queued.keys() == set(ids)
        assert 5 <= len(sent_now) <= BUDGET
        assert list(queued) == ids[len(sent_now) :], "in their order, each once"
        expected = list(queued.values())
        assert expected == sorted(expected)
        assert min(expected) >= started + EPOCH_SEC * SECOND
        await asyncio.sleep(20 * EPOCH_SEC)
        log = await log_of(alice)
        sent_at = {e.request_id: e.time_ns for e in log if isinstance(e, MessageSentEvent)}
        assert list(sent_at) == ids
        for request_id, expected_at in queued.items():
            late = (sent_at[request_id] - expected_at) / SECOND
            assert -2 * EPOCH_SEC < late < 2 * EPOCH_SEC, "an estimate"
        assert payloads_in(await log_of(bob)) == [b"%d" % number for number in range(50)]
        assert len([event for event in log if isinstance(event, MessageQueuedEvent)]) == len(queued)


@virtual_time
async def test_without_a_limit_nothing_is_queued() -> None:
    async with (
        await open_node(clock=virtual_clock()) as node,
        await open_channel(node, "alice") as alice,
    ):
        for _ in range(200):
            await alice.send(b"x")
        await asyncio.sleep(1)
        log = await log_of(alice)
    assert {type(event) for event in log} == {MessageSentEvent}


@pytest.mark.parametrize("own_store", [False, True], ids=["of the node", "of the channel"])
@virtual_time
async def test_what_was_used_of_an_epoch_stays_used_after_a_restart(*, own_store: bool) -> None:
    """Wherever the channels keep their state: the budget is the membership's."""
    clock = virtual_clock(EPOCH_SEC)
    meter = Meter(clock)
    kept, beside = VolatileStore(), VolatileStore()
    settings = {"sds_config": SdsConfig(persistence=beside)} if own_store else {}
    async with await meter.listen(*TOPICS):
        for _ in range(3):
            async with (
                await open_node(kept, limit=LIMIT, clock=clock) as node,
                await open_channel(node, "alice", **settings) as alice,
            ):
                for _ in range(30):
                    await alice.send(b"x")
                await asyncio.sleep(1)
    assert len(meter.by_epoch) == 1
    assert 5 <= sum(meter.by_epoch.values()) <= BUDGET


@pytest.mark.parametrize("own_store", [False, True], ids=["of the node", "of the channel"])
@virtual_time
async def test_a_clean_end_costs_the_next_epoch_no_more_than_what_is_in_doubt(
    *, own_store: bool
) -> None:
    """At the boundary one is with the node, and others wait for it."""
    clock = virtual_clock(EPOCH_SEC)
    kept, beside = VolatileStore(), VolatileStore()
    settings: dict[str, Any] = {"sds_config": SdsConfig(persistence=beside)} if own_store else {}
    async with await open_node(kept, limit=LIMIT, clock=clock) as inner:
        await asyncio.sleep(EPOCH_SEC - 10)
        node = ProbeNode(inner)
        node.publish_sec = 3
        async with await open_channel(node, "alice", **settings) as alice:
            for number in range(4):
                await alice.send(b"%d" % number)
            await asyncio.sleep(4)
    assert len(node.published) == 2
    await asyncio.sleep(EPOCH_SEC)
    async with await open_node(kept, limit=LIMIT, clock=clock) as again:
        assert again.epoch_budget.remaining(clock.now_ns()) == BUDGET - 1


@virtual_time
async def test_what_goes_out_at_opening_is_in_the_nodes_ledger_before() -> None:
    """Also where the channel keeps its state elsewhere: the next one of the node may not know that place."""
    clock = virtual_clock(EPOCH_SEC)
    trace: Trace = []
    kept, beside = FailingStore(trace=trace), VolatileStore()
    settings: dict[str, Any] = {"sds_config": SdsConfig(persistence=beside)}
    async with await open_node(kept, limit=LIMIT, clock=clock) as inner:
        node = ProbeNode(inner, trace)
        node.fail("publish", NodeUnavailableError("no peers"))
        async with await open_channel(node, "alice", **settings) as alice:
            for number in range(5):
                await alice.send(b"%d" % number)
            await asyncio.sleep(0.5)
        counted = used = inner.epoch_budget.record().used
        trace.clear()
        node.recover()
        async with await open_channel(node, "alice", **settings):
            await asyncio.sleep(0.5)
    assert len(node.published) == 5
    for entry in trace:
        if isinstance(entry, Committed):
            rows = [row for row in entry.changes.values() if isinstance(row, LedgerRecord)]
            counted = max(counted, *(row.used for row in rows))
        elif isinstance(entry, Published):
            used += 1
            assert counted >= used


class SlowEncryption:
    """Takes its time for each message."""

    overhead_bytes = 0

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def encrypt(self, content: bytes, /) -> bytes:
        await asyncio.sleep(self.seconds)
        return content

    def decrypt(self, payload: bytes, /) -> bytes:
        return payload


@pytest.mark.parametrize("seconds", [3.0, 4.0])
@virtual_time
async def test_what_encryption_holds_beyond_its_epoch_waits_for_another_turn(
    seconds: float,
) -> None:
    """No epoch of the network ever sees more than its limit, and everything gets out in the end."""
    limit = RateLimitConfig(enabled=True, epoch_period_sec=10, messages_per_epoch=8)
    clock = virtual_clock(10)
    by_epoch: Counter[int] = Counter()

    def count(message: IncomingMessage) -> None:
        if SdsMessage.decode(message.payload).sender_id == "alice":
            by_epoch[clock.now_ns() // (10 * SECOND)] += 1

    async with (
        await open_node(clock=clock) as other,
        await open_node(limit=limit, clock=clock) as node,
        await open_channel(other, "bob") as bob,
        await open_channel(node, "alice", encryption=SlowEncryption(seconds)) as room,
        await open_channel(node, "alice", "hall") as hall,
    ):
        for topic in TOPICS[:2]:
            await other.subscribe_topic(topic, count)
        for number in range(12):
            await room.send(b"%d" % number)
            await hall.send(b"%d" % number)
        await asyncio.sleep(600)
        payloads = payloads_in(await log_of(bob))
        held = room.status().counters.get("expired_transmissions", 0)
    assert max(by_epoch.values()) <= 8
    assert held
    assert payloads == [b"%d" % number for number in range(12)]


# --- Many ----------------------------------------------------------------------------------------


def assert_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    """Check that asyncio's debug mode had nothing to say, and that we logged no error."""
    found = [
        record.getMessage()
        for record in caplog.records
        if (record.name == "asyncio" and record.levelno >= logging.WARNING)
        or record.levelno >= logging.ERROR
    ]
    assert found == []


@virtual_time
async def test_two_hundred_channels_live_on_one_node_and_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asyncio.get_running_loop().set_debug(True)
    names = [f"room-{number}" for number in range(200)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with AsyncExitStack() as stack:
            a, b = [
                await stack.enter_async_context(await open_node(clock=virtual_clock()))
                for _ in range(2)
            ]
            alices = [
                await stack.enter_async_context(await open_channel(a, "alice", name))
                for name in names
            ]
            bobs = [
                await stack.enter_async_context(await open_channel(b, "bob", name))
                for name in names
            ]
            streams = [bob.events() for bob in bobs]
            ids = await asyncio.gather(*(alice.send(alice.channel_id.encode()) for alice in alices))
            waits = zip(alices, ids, strict=True)
            recipients = await soon(
                asyncio.gather(*(alice.wait_delivered(request_id) for alice, request_id in waits))
            )
            assert recipients == [("bob",)] * 200
            received = [await soon(anext(stream)) for stream in streams]
        assert [event.message.decode() for event in received] == names
        assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert_no_complaint(caplog)


async def test_debug_mode_has_no_complaint_about_files_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing blocks the loop: a disk is waited for in a thread."""
    loop = asyncio.get_running_loop()
    assert loop.get_debug()
    loop.slow_callback_duration = 1.0  # generous, for machines that are busy with other tests
    gc.collect()  # what they left would take as long
    async with (
        open_store(f"sqlite:///{tmp_path}/alice.db") as store,
        await open_node(store, **QUICK) as a,
        await open_node(**QUICK) as b,
        await open_channel(b, "bob") as bob,
        await open_channel(a, "alice") as alice,
        alice.events() as events,
    ):
        async with asyncio.timeout(60):
            for size in (1, 1_000, 1_000_000):
                request_id = await alice.send(bytes(size))
                await alice.wait_delivered(request_id)
            assert [len(payload) for payload in await has_received(bob, 3)] == [
                1,
                1_000,
                1_000_000,
            ]
            shown = [await anext(events) for _ in range(3)]
            assert all(event.channel_id == "room" for event in shown)
    await asyncio.sleep(0)
    assert_no_complaint(caplog)


# --- The design's example ------------------------------------------------------------------------


@virtual_time
async def test_the_example_of_the_design_runs() -> None:
    """Of the architecture, 'What a user sees', with a second participant to talk to."""
    seen: list[ChannelEvent] = []
    key = AesGcmEncryption.generate_key()
    store = open_store("memory://")
    clock = virtual_clock()
    node = await create_node(
        NodeConfig(
            transport="memory://lab?loss=0.2",
            sds_config=SdsConfig(persistence=store),
            segmentation_config=SegmentationConfig(enable_reed_solomon=True, persistence=store),
            rate_limit_config=RateLimitConfig(
                enabled=True, epoch_period_sec=600, messages_per_epoch=100
            ),
        ),
        clock=clock,
    )
    peer = await create_node(NodeConfig(transport="memory://lab?loss=0.2"), clock=clock)
    channel = await create_reliable_channel(
        node,
        channel_id="room",
        content_topic="/app/1/room/proto",
        sender_id="alice",
        encryption=AesGcmEncryption(key),
    )
    bob = await create_reliable_channel(
        peer,
        channel_id="room",
        content_topic="/app/1/room/proto",
        sender_id="bob",
        encryption=AesGcmEncryption(key),
    )
    async with channel.events() as events:
        request_id = await channel.send(b"hello")
        await bob.send(b"hello yourself")
        async with asyncio.timeout(120):
            async for event in events:
                match event:
                    case MessageReceivedEvent(message=message):
                        assert message == b"hello yourself"
                        seen.append(event)
                    case MessageDeliveredEvent(request_id=delivered):
                        assert delivered == request_id
                        seen.append(event)
                if len(seen) == 2:
                    break
    await node.send(MessageEnvelope(content_topic="/app/1/other/proto", payload=b"raw"))
    await channel.close()
    await bob.close()
    await node.close()
    await peer.close()
    await store.close()


# --- A node that is closed first -----------------------------------------------------------------


@virtual_time
async def test_a_node_closed_under_a_channel_is_told_and_leaves_requests_open() -> None:
    """Closing in the wrong order must not turn stored requests into errors."""
    store = VolatileStore()
    limited = RateLimitConfig(enabled=True, epoch_period_sec=600, messages_per_epoch=4)
    config = NodeConfig(
        transport="memory://order",
        sds_config=SdsConfig(persistence=store),
        rate_limit_config=limited,
    )
    clock = LoopClock(asyncio.get_running_loop(), 1_700_000_000 * SECOND)
    node = await create_node(config, clock=clock)
    channel = await create_reliable_channel(node, "room", "/app/1/room/proto", "alice")
    ids = [await channel.send(b"%d" % number) for number in range(8)]
    stream = channel.events()
    await node.close()
    with pytest.raises(ChannelFailedError, match="the node is closed"):
        _ = [event async for event in stream]
    with pytest.raises(ChannelFailedError, match="the node is closed"):
        await channel.send(b"late")
    await asyncio.sleep(7)
    await channel.close()
    again = await create_node(config, clock=clock)
    reopened = await create_reliable_channel(again, "room", "/app/1/room/proto", "alice")
    assert {reopened.request_status(item).state for item in ids} == {"open"}
    await reopened.close()
    await again.close()
