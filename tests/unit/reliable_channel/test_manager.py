"""Opening and closing: what is refused, what is left behind, what a second channel may be."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from messaging_adapter import NodeConfig, WakuNode, create_node, createNode
from reliable_channel import (
    AesGcmEncryption,
    ChannelClosedError,
    ChannelExistsError,
    ConfigurationError,
    InvalidContentTopicError,
    MessageReceivedEvent,
    MessagingNode,
    NodeClosedError,
    NodeUnavailableError,
    RateLimitConfig,
    ReliableChannel,
    SdsConfig,
    SegmentationConfig,
    StoreUnavailableError,
    close_channel,
    closeChannel,
    create_reliable_channel,
    createReliableChannel,
)
from reliable_channel.events import EVENT_NAMES
from reliable_channel.manager import store_of
from reliable_channel.ports import ChannelStore
from reliable_channel.records import LedgerRecord, key_of
from reliable_channel.types import SECOND
from reliable_channel.volatile import VolatileStore
from tests.support.failing_store import TOPIC, FailingStore, ProbeNode, soon, virtual_clock
from tests.support.virtual_loop import virtual_time


async def open_node(**fields: Any) -> WakuNode:
    return await create_node(
        NodeConfig(**{"transport": "memory://lab", **fields}), clock=virtual_clock()
    )


async def open_channel(
    node: MessagingNode, sender_id: str = "alice", channel_id: str = "room", **settings: Any
) -> ReliableChannel:
    return await create_reliable_channel(node, channel_id, TOPIC, sender_id, **settings)


def seen_by(channel: ReliableChannel) -> list[Any]:
    seen: list[Any] = []
    for name in EVENT_NAMES:
        channel.on(name, seen.append)
    return seen


async def is_usable(node: MessagingNode, **settings: Any) -> bool:
    """Say whether a channel can be opened and a message arrives on it, exactly once."""
    async with (
        await open_node() as other,
        await open_channel(other, "bob") as bob,
        await open_channel(node, **settings) as alice,
    ):
        seen = seen_by(alice)
        delivered = await soon(bob.wait_delivered(await bob.send(b"hello")))
        await asyncio.sleep(10)
    received = [event.message for event in seen if isinstance(event, MessageReceivedEvent)]
    return delivered == (alice.sender_id,) and received == [b"hello"]


def assert_one_clear_line(error: BaseException) -> None:
    text = str(error)
    assert 10 < len(text) < 400
    assert text.isprintable()


# --- Names and arguments -------------------------------------------------------------------------


@virtual_time
async def test_the_specifications_names_work_by_position_and_by_keyword() -> None:
    key = AesGcmEncryption.generate_key()
    config = NodeConfig(transport="memory://lab")
    async with await createNode(config), await createNode(nodeConfig=config):
        pass
    async with await open_node() as a, await open_node() as b:
        alice = await createReliableChannel(a, "room", TOPIC, "alice", AesGcmEncryption(key))
        bob = await createReliableChannel(
            node=b,
            channelId="room",
            contentTopic=TOPIC,
            senderId="bob",
            encryption=AesGcmEncryption(key),
        )
        request_id = await alice.send(b"hello")
        assert await soon(alice.wait_delivered(request_id)) == ("bob",)
        await closeChannel(alice)
        await close_channel(channel=bob)


@virtual_time
async def test_encryption_may_be_left_out() -> None:
    async with await open_node() as node:
        async with await createReliableChannel(node, "room", TOPIC, "alice"):
            pass
        async with await create_reliable_channel(
            node, channel_id="room", content_topic=TOPIC, sender_id="alice"
        ):
            pass


@virtual_time
async def test_a_channel_says_what_it_is() -> None:
    async with await open_node() as node, await open_channel(node) as channel:
        assert (channel.channel_id, channel.sender_id) == ("room", "alice")
        assert channel.content_topic == TOPIC
        assert channel.max_payload_bytes > 20 << 20
        assert "room" in repr(channel)
        assert "alice" in repr(channel)
        status = channel.status()
        assert (status.channel_id, status.sender_id, status.content_topic) == (
            "room",
            "alice",
            TOPIC,
        )


@pytest.mark.parametrize(
    "identifier", ["", "a\nb", "\x00", "\x7f", "x" * 256, "ü" * 128, "\ud800", None, 5, b"room"]
)
@pytest.mark.parametrize("which", ["channel_id", "sender_id"])
@virtual_time
async def test_unusable_ids_are_refused(which: str, identifier: Any) -> None:
    async with await open_node() as node:
        arguments = {"channel_id": "room", "sender_id": "alice", which: identifier}
        with pytest.raises(ConfigurationError, match=which) as caught:
            await create_reliable_channel(node, content_topic=TOPIC, **arguments)
        assert_one_clear_line(caught.value)
        assert await is_usable(node)


@pytest.mark.parametrize("identifier", ["r", "x" * 255, "ü" * 127, "a/b c%2F?#\u2028", "房间"])
@virtual_time
async def test_ids_may_be_any_text_without_control_characters(identifier: str) -> None:
    async with (
        await open_node() as a,
        await open_node() as b,
        await open_channel(a, identifier, identifier) as alice,
        await open_channel(b, "bob", identifier) as bob,
    ):
        seen = seen_by(bob)
        assert await soon(alice.wait_delivered(await alice.send(b"hello"))) == ("bob",)
    assert seen[0].sender_id == identifier
    assert seen[0].channel_id == identifier


@pytest.mark.parametrize(
    "content_topic", ["", "room", "/app/1/room", "/app//room/proto", "/x/app/1/room/proto", None, 5]
)
@virtual_time
async def test_unusable_content_topics_are_refused(content_topic: Any) -> None:
    """Of 23/TOPICS: ``/{application-name}/{version}/{content-topic-name}/{encoding}``."""
    async with await open_node() as node:
        with pytest.raises(ConfigurationError) as caught:
            await create_reliable_channel(node, "room", content_topic, "alice")
        assert isinstance(caught.value, InvalidContentTopicError)
        assert_one_clear_line(caught.value)
        assert await is_usable(node)


class OnlyEncrypts:
    def encrypt(self, content: bytes, /) -> bytes:
        return content


class OnlyDecrypts:
    def decrypt(self, payload: bytes, /) -> bytes:
        return payload


class Identity(OnlyEncrypts, OnlyDecrypts):
    """Both, and whatever ``overhead_bytes`` a test gives it."""

    def __init__(self, overhead_bytes: object) -> None:
        self.overhead_bytes = overhead_bytes


class NotCallable:
    encrypt = decrypt = b"key"


@pytest.mark.parametrize(
    ("encryption", "problem"),
    [
        (b"a key of sixteen", "encrypt"),
        (object(), "encrypt"),
        (OnlyDecrypts(), "encrypt"),
        (OnlyEncrypts(), "decrypt"),
        (NotCallable(), "encrypt"),
        (Identity("28"), "overhead_bytes"),
        (Identity(-1), "overhead_bytes"),
        (Identity(1.5), "overhead_bytes"),
        (Identity(True), "overhead_bytes"),
        (Identity(1 << 30), "room"),
    ],
    ids=["key", "object", "decrypts", "encrypts", "data", "text", "negative", "float", "bool", "G"],
)
@virtual_time
async def test_unusable_encryption_is_refused(encryption: Any, problem: str) -> None:
    async with await open_node() as node:
        with pytest.raises(ConfigurationError, match=problem) as caught:
            await open_channel(node, encryption=encryption)
        assert_one_clear_line(caught.value)
        assert await is_usable(node)


# --- Configuration -------------------------------------------------------------------------------


@virtual_time
async def test_a_channel_may_have_settings_of_its_own() -> None:
    small = SegmentationConfig(segment_size_bytes=64)
    few = SdsConfig(max_outgoing_bytes=100)
    async with (
        await open_node(sds_config=SdsConfig(max_outgoing_messages=7)) as node,
        await open_channel(node, channel_id="a") as plain,
        await open_channel(node, channel_id="b", segmentation_config=small) as narrow,
        await open_channel(node, channel_id="c", sds_config=few) as short,
    ):
        assert plain.max_payload_bytes > 20 << 20
        assert narrow.max_payload_bytes < 256 * 64
        assert short.max_payload_bytes == 100


@virtual_time
async def test_settings_without_a_store_leave_the_nodes_store_in_use() -> None:
    store = FailingStore()
    async with (
        await open_node(sds_config=SdsConfig(persistence=store)) as node,
        await open_channel(node, sds_config=SdsConfig(), segmentation_config=None) as channel,
    ):
        await channel.send(b"hello")
    assert store.commits > 0


@pytest.mark.parametrize("which", ["sds_config", "segmentation_config"])
@virtual_time
async def test_one_store_serves_both_configs(which: str) -> None:
    kinds = {"sds_config": SdsConfig, "segmentation_config": SegmentationConfig}
    store = FailingStore()
    async with await open_node() as node:
        settings = {which: kinds[which](persistence=store)}
        async with await open_channel(node, **settings) as channel:
            await channel.send(b"hello")
            assert store.commits > 0
            assert store_of(node, SdsConfig(), SegmentationConfig()) is node.store


@virtual_time
async def test_two_different_stores_are_refused() -> None:
    """No transaction spans them."""
    async with await open_node() as node:
        with pytest.raises(ConfigurationError, match="two different stores") as caught:
            await open_channel(
                node,
                sds_config=SdsConfig(persistence=VolatileStore()),
                segmentation_config=SegmentationConfig(persistence=VolatileStore()),
            )
        assert_one_clear_line(caught.value)
        assert await is_usable(node)


IN_MEMORY, DURABLE = VolatileStore, FailingStore


@pytest.mark.parametrize(
    ("of_node", "of_channel", "limited", "is_refused"),
    [
        (None, DURABLE, True, True),
        (None, IN_MEMORY, True, True),
        (IN_MEMORY, DURABLE, True, True),
        (None, None, True, False),
        (None, DURABLE, False, False),
        (IN_MEMORY, IN_MEMORY, True, False),
        (DURABLE, None, True, False),
        (DURABLE, IN_MEMORY, True, False),
        (DURABLE, DURABLE, True, False),
    ],
)
@virtual_time
async def test_a_budget_is_not_kept_for_a_shorter_time_than_channels(
    *,
    of_node: type[ChannelStore] | None,
    of_channel: type[ChannelStore] | None,
    limited: bool,
    is_refused: bool,
) -> None:
    """A node in memory forgets what channels with a database transmitted, and nobody else knows of it."""
    sds = SdsConfig(persistence=of_node() if of_node else None)
    limit = RateLimitConfig(enabled=limited)
    settings = {"sds_config": SdsConfig(persistence=of_channel())} if of_channel else {}
    async with await open_node(sds_config=sds, rate_limit_config=limit) as node:
        if is_refused:
            with pytest.raises(ConfigurationError, match="give the node that store") as caught:
                await open_channel(node, **settings)
            assert_one_clear_line(caught.value)
        assert await is_usable(node, **({} if is_refused else settings))


@pytest.mark.parametrize(
    ("messages", "own", "expected"),
    [(100, 4, 4), (4, 100, 4)],
    ids=["narrowed", "never widened"],
)
@virtual_time
async def test_a_channel_can_only_narrow_the_budget(messages: int, own: int, expected: int) -> None:
    def limit(count: int) -> RateLimitConfig:
        return RateLimitConfig(enabled=True, epoch_period_sec=600, messages_per_epoch=count)

    async with await open_node(rate_limit_config=limit(messages)) as inner:
        node = ProbeNode(inner)
        started = inner.clock.now_ns()
        await asyncio.sleep((-started // SECOND) % 600)  # an epoch begins
        async with await open_channel(node, rate_limit_config=limit(own)) as channel:
            for number in range(10):
                await channel.send(b"%d" % number)
            await asyncio.sleep(590)
            assert 1 <= len(node.published) <= expected
            assert channel.status().waiting > 0


@virtual_time
async def test_a_rate_limit_that_is_not_enabled_narrows_nothing() -> None:
    off = RateLimitConfig(enabled=False, messages_per_epoch=1)
    async with await open_node() as inner:
        node = ProbeNode(inner)
        async with await open_channel(node, rate_limit_config=off) as channel:
            for _ in range(10):
                await channel.send(b"hello")
            await asyncio.sleep(1)
            assert len(node.published) == 10


# --- A second channel ----------------------------------------------------------------------------


@virtual_time
async def test_an_id_is_open_once_on_a_node() -> None:
    async with await open_node() as node, await open_channel(node) as first:
        seen = seen_by(first)
        before = first.status()
        for sender_id in ("alice", "bob"):
            with pytest.raises(
                ChannelExistsError, match=r"channel already exists.*'room'"
            ) as caught:
                await open_channel(node, sender_id)
            assert caught.value.channel_id == "room"
            assert_one_clear_line(caught.value)
        assert first.status() == before
        assert seen == []
        async with await open_node() as other, await open_channel(other, "bob"):
            assert await soon(first.wait_delivered(await first.send(b"hello"))) == ("bob",)


@virtual_time
async def test_an_id_is_open_once_on_a_store() -> None:
    sds = SdsConfig(persistence=VolatileStore())
    async with await open_node(sds_config=sds) as a, await open_node(sds_config=sds) as b:
        async with await open_channel(a):
            with pytest.raises(ChannelExistsError, match="store"):
                await open_channel(b, "bob")
            async with await open_channel(b, channel_id="hall"):
                pass
        async with await open_channel(b):
            pass


@virtual_time
async def test_an_id_may_be_open_on_two_nodes_with_stores_of_their_own() -> None:
    async with (
        await open_node() as a,
        await open_node() as b,
        await open_channel(a),
        await open_channel(b, "bob"),
    ):
        pass


@virtual_time
async def test_of_two_openings_at_once_one_succeeds() -> None:
    async with await open_node(sds_config=SdsConfig(persistence=FailingStore())) as node:
        outcomes = await asyncio.gather(
            open_channel(node), open_channel(node), return_exceptions=True
        )
        opened = [item for item in outcomes if isinstance(item, ReliableChannel)]
        refused = [item for item in outcomes if isinstance(item, ChannelExistsError)]
        assert (len(opened), len(refused)) == (1, 1)
        await opened[0].close()
        assert await is_usable(node)


@virtual_time
async def test_a_closed_channel_can_be_opened_again_at_once() -> None:
    async with await open_node() as node:
        for _ in range(3):
            channel = await open_channel(node)
            await channel.close()
        with pytest.raises(ChannelClosedError):
            await channel.send(b"hello")
        assert await is_usable(node)


@virtual_time
async def test_a_channel_that_is_closing_still_exists() -> None:
    store = FailingStore()
    async with await open_node(sds_config=SdsConfig(persistence=store)) as node:
        channel = await open_channel(node)
        store.before_commit_sec = 5.0
        sending = asyncio.create_task(channel.send(b"hello"))
        await asyncio.sleep(1)
        closing = asyncio.create_task(channel.close())
        await asyncio.sleep(1)
        with pytest.raises(ChannelExistsError):
            await open_channel(node)
        await soon(closing)
        assert await soon(sending)
        store.before_commit_sec = 0.0
        assert await is_usable(node)


@virtual_time
async def test_a_forgotten_node_is_not_kept_alive() -> None:
    node = await open_node()
    await (await open_channel(node)).close()
    await node.close()
    remembered = weakref.ref(node)
    del node
    await asyncio.sleep(0)
    gc.collect()
    assert remembered() is None


# --- Failed openings -----------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["open", "acquire_channel", "commit"])
@pytest.mark.parametrize(
    "error", [StoreUnavailableError("disk full"), KeyError("bug")], ids=["full", "bug"]
)
@virtual_time
async def test_an_opening_that_fails_at_the_store_leaves_nothing(
    call: str, error: Exception
) -> None:
    store = FailingStore()
    async with await open_node(sds_config=SdsConfig(persistence=store)) as inner:
        node = ProbeNode(inner)
        store.fail(call, error)
        with pytest.raises(type(error)):
            await open_channel(node)
        assert node.subscriptions == 0
        assert node.published == []
        store.recover()
        assert await is_usable(node)


@virtual_time
async def test_an_opening_that_fails_at_the_ledger_leaves_nothing() -> None:
    store = FailingStore()
    limit = RateLimitConfig(enabled=True, messages_per_epoch=100)
    async with await open_node(sds_config=SdsConfig(persistence=store)) as node:
        store.fail("load_ledger")
        with pytest.raises(StoreUnavailableError):
            await open_channel(node, rate_limit_config=limit)
        store.recover()
        assert await is_usable(node, rate_limit_config=limit)


@pytest.mark.parametrize(
    "error", [NodeUnavailableError("no peers"), KeyError("bug")], ids=["unavailable", "bug"]
)
@virtual_time
async def test_an_opening_that_fails_at_the_node_leaves_nothing(error: Exception) -> None:
    async with await open_node() as inner:
        node = ProbeNode(inner)
        node.fail("subscribe_topic", error)
        with pytest.raises(type(error)):
            await open_channel(node)
        node.recover()
        assert await is_usable(node)


@virtual_time
async def test_a_closed_node_opens_no_channel_and_holds_none() -> None:
    sds = SdsConfig(persistence=VolatileStore())
    node = await open_node(sds_config=sds)
    await node.close()
    with pytest.raises(NodeClosedError):
        await open_channel(node)
    async with await open_node(sds_config=sds) as another:
        assert await is_usable(another)


@virtual_time
async def test_a_channel_that_has_never_received_anything_asks_for_what_it_missed_too() -> None:
    """From when it was made: who died before the first message is not new."""
    async with await open_node() as node, await open_node() as other:
        await (await open_channel(node)).close()
        async with await open_channel(other, "bob") as bob:
            await bob.send(b"while you were away")
            await asyncio.sleep(600)
        async with await open_channel(node) as alice, alice.events(after=0) as events:
            received = await soon(anext(events))
            assert isinstance(received, MessageReceivedEvent)
            assert received.message == b"while you were away"


@virtual_time
async def test_what_was_missed_not_being_had_does_not_hinder_opening() -> None:
    async with await open_node() as inner, await open_node() as other:
        node = ProbeNode(inner)
        async with await open_channel(node) as alice, await open_channel(other, "bob") as bob:
            assert await soon(bob.wait_delivered(await bob.send(b"hello"))) == ("alice",)
            await alice.close()
        node.fail("query", NodeUnavailableError("no store"))
        assert await is_usable(node)


@pytest.mark.parametrize("after_sec", [0.5, 1.5])
@virtual_time
async def test_an_opening_that_is_cancelled_leaves_nothing(after_sec: float) -> None:
    class SlowStore(FailingStore):
        async def acquire_channel(self, channel_id: str) -> Any:
            await asyncio.sleep(1)
            return await super().acquire_channel(channel_id)

    store = SlowStore()
    store.before_commit_sec = 1.0
    async with await open_node(sds_config=SdsConfig(persistence=store)) as inner:
        node = ProbeNode(inner)
        with pytest.raises(TimeoutError):
            await soon(open_channel(node), after_sec)
        assert node.subscriptions == 0
        store.before_commit_sec = 0.0
        assert await is_usable(node)


# --- Kept state ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("content_topic", {"content_topic": "/app/1/hall/proto"}),
        ("sender_id", {"sender_id": "mallory"}),
        ("bloom_capacity", {"sds_config": SdsConfig(bloom_capacity=500)}),
        ("bloom_error_rate", {"sds_config": SdsConfig(bloom_error_rate=0.01)}),
    ],
)
@virtual_time
async def test_kept_state_does_not_change_its_identity(field: str, settings: Any) -> None:
    async with await open_node() as node:
        usual: dict[str, Any] = {
            "channel_id": "room",
            "content_topic": TOPIC,
            "sender_id": "alice",
        }
        async with await create_reliable_channel(node, **usual) as channel:
            await channel.send(b"hello")
        with pytest.raises(ConfigurationError, match=field) as caught:
            await create_reliable_channel(node, **(usual | settings))
        assert len(caught.value.problems) == 1
        assert_one_clear_line(caught.value)
        async with await create_reliable_channel(node, **usual) as channel:
            assert channel.status().open_requests == 1


@virtual_time
async def test_kept_state_takes_other_timers_and_sizes() -> None:
    async with await open_node() as node:
        async with await open_channel(node) as channel:
            request_id = await channel.send(b"hello")
        settings = {
            "sds_config": SdsConfig(acknowledgement_timeout_ms=100, max_retransmissions=1),
            "segmentation_config": SegmentationConfig(segment_size_bytes=1024),
            "encryption": AesGcmEncryption(AesGcmEncryption.generate_key()),
        }
        async with await open_channel(node, **settings) as channel:
            await asyncio.sleep(1)
            assert channel.request_status(request_id).state == "delivery-error"


@virtual_time
async def test_a_seed_makes_a_run_reproducible() -> None:
    ids = []
    for _ in range(2):
        async with await open_node() as node, await open_channel(node, seed=7) as channel:
            ids.append(await channel.send(b"hello"))
    async with await open_node() as node, await open_channel(node) as channel:
        ids.append(await channel.send(b"hello"))
    assert ids[0] == ids[1] != ids[2]


@pytest.mark.parametrize("which", ["own", "node"])
@virtual_time
async def test_a_budget_that_is_ahead_in_the_channels_store_is_warned_of(
    which: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The channel's own, or what it keeps of the node's."""
    limit = RateLimitConfig(enabled=True)
    store = VolatileStore()
    await store.open()
    scope = "node:600" if which == "node" else "channel:room:600"
    epoch = virtual_clock().now_ns() // (600 * SECOND) + 288
    ledger = LedgerRecord(scope=scope, epoch=epoch, used=1)
    await store.commit("", {(LedgerRecord, key_of(ledger)): ledger})
    of_node = SdsConfig(persistence=VolatileStore())
    async with await open_node(sds_config=of_node, rate_limit_config=limit) as node:
        settings = {"rate_limit_config": limit, "sds_config": SdsConfig(persistence=store)}
        async with await open_channel(node, **settings):
            pass
        assert [record.getMessage() for record in caplog.records if "ahead" in record.getMessage()]
        caplog.clear()
        async with await open_channel(node, channel_id="hall", **settings):
            assert not caplog.records
