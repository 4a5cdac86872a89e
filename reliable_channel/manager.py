"""Opening and closing channels: checks every argument, takes the state, wires machine, node and store.

One channel id is open once per node, and once per store. It must not drive anything; that is ``channel``.

Spec: RELIABLE-CHANNEL-API, Channel lifecycle.
"""

from __future__ import annotations

import secrets
from contextlib import AsyncExitStack, suppress
from weakref import WeakKeyDictionary

from reliable_channel.budget import warn_of_future
from reliable_channel.channel import ReliableChannel
from reliable_channel.cipher import Cipher
from reliable_channel.collector import collector_paused
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.core.rate_limit import ChannelBudget, EpochRateLimiter
from reliable_channel.core.wire.topics import parse_content_topic
from reliable_channel.errors import ChannelExistsError, ConfigurationError, ReliableChannelError
from reliable_channel.identifiers import check_identifier
from reliable_channel.ports import ChannelStore, Encryption, MessagingNode
from reliable_channel.records import ChannelRecord, Snapshot, rows_of
from reliable_channel.types import ChannelId, ParticipantId
from reliable_channel.volatile import VolatileStore

_open_channels: WeakKeyDictionary[MessagingNode, set[ChannelId]] = WeakKeyDictionary()


async def create_reliable_channel(
    node: MessagingNode,
    channel_id: ChannelId,
    content_topic: str,
    sender_id: ParticipantId,
    encryption: Encryption | None = None,
    *,
    sds_config: SdsConfig | None = None,
    segmentation_config: SegmentationConfig | None = None,
    rate_limit_config: RateLimitConfig | None = None,
    seed: int | None = None,
) -> ReliableChannel:
    """Open a reliable channel: subscribe its topic, take its kept state back, go on with open requests.

    Args:
        node: The messaging node; it stays the caller's to close.
        channel_id: Identifies the channel; all its participants use the same.
        content_topic: Where its messages go, per 23/TOPICS.
        sender_id: Who we are on it; unique among participants, and the same at every opening.
        encryption: Applied to every message; None sends plaintext.
        sds_config: Instead of the node's.
        segmentation_config: Instead of the node's.
        rate_limit_config: Narrows the node's limit for this channel; it can never widen it.
        seed: Of the channel's random stream, for reproducible runs; None is a fresh one.

    Returns:
        The channel, working. Close it, or use it as an async context manager.

    Raises:
        ConfigurationError: An argument is unusable, the kept state was made with other settings, or the
            rate is limited and the channel's store would outlast what the node counts.
        ChannelExistsError: The channel is open already, on this node or this store.
        NodeError: The topic cannot be subscribed.
        StoreUnavailableError: The state cannot be read or written.

    Spec: RELIABLE-CHANNEL-API, createReliableChannel.
    """
    check_identifier("channel_id", channel_id)
    check_identifier("sender_id", sender_id)
    if not hasattr(node, "subscribe_topic"):
        text = f"node must be what create_node returns, not {type(node).__name__}"
        raise ConfigurationError(text)
    parse_content_topic(content_topic)
    cipher = Cipher(encryption)
    sds = sds_config or node.sds_config
    segmentation = segmentation_config or node.segmentation_config
    store = store_of(node, sds, segmentation)
    check_budget_lasts(node, store)
    opened = _open_channels.setdefault(node, set())
    if channel_id in opened:
        raise ChannelExistsError(channel_id)
    async with AsyncExitStack() as undo:
        opened.add(channel_id)
        undo.callback(opened.discard, channel_id)
        await store.open()
        snapshot = await store.acquire_channel(channel_id)
        undo.push_async_callback(store.release_channel, channel_id)
        budget = await budget_of(node, store, channel_id, rate_limit_config)
        with collector_paused():
            machine = ChannelMachine(
                channel_id=channel_id,
                sender_id=sender_id,
                content_topic=content_topic,
                now=node.clock.now_ns(),
                seed=secrets.randbits(64) if seed is None else seed,
                sds=sds,
                segmentation=segmentation,
                budget=budget,
                max_message_bytes=node.max_message_bytes,
                encryption_overhead=cipher.overhead_bytes,
                snapshot=snapshot,
            )
        channel = ReliableChannel(
            machine,
            node=node,
            store=store,
            cipher=cipher,
            clock=node.clock,
            on_close=lambda closed: opened.discard(closed.channel_id),
        )
        undo.pop_all()  # from here on closing the channel undoes all of it
        undo.push_async_callback(close_quietly, channel)
        await channel.open(last_seen_ns=last_seen_ns(snapshot))
        undo.pop_all()
    return channel


async def close_quietly(channel: ReliableChannel) -> None:
    """Close a channel that could not be opened; why it could not is what the caller is told."""
    with suppress(ReliableChannelError):
        await channel.close()


async def close_channel(channel: ReliableChannel) -> None:
    """Close a channel: unsubscribe its topic and release everything; its state stays in the store.

    Spec: RELIABLE-CHANNEL-API, closeChannel.
    """
    await channel.close()


async def createReliableChannel(
    node: MessagingNode,
    channelId: ChannelId,
    contentTopic: str,
    senderId: ParticipantId,
    encryption: Encryption | None = None,
) -> ReliableChannel:
    """Open a reliable channel; the specification's spelling of ``create_reliable_channel``."""
    return await create_reliable_channel(node, channelId, contentTopic, senderId, encryption)


closeChannel = close_channel


def store_of(node: MessagingNode, sds: SdsConfig, segmentation: SegmentationConfig) -> ChannelStore:
    """Return where a channel keeps its state: one store for both configs, else the node's.

    Raises:
        ConfigurationError: The configs name two different stores; no transaction spans them.
    """
    given = [item for item in (sds.persistence, segmentation.persistence) if item is not None]
    if len(given) == 2 and given[0] is not given[1]:
        text = (
            "sds_config.persistence and segmentation_config.persistence are two different stores; "
            "give the same object to both, or to one"
        )
        raise ConfigurationError(text)
    return given[0] if given else node.store


def check_budget_lasts(node: MessagingNode, store: ChannelStore) -> None:
    """Refuse a store that outlasts the node's, where the node counts what it transmits.

    The next node, or another one, has the same membership, and would not know of what went out; nor does
    the channel's store keep other nodes away, as the node's does. Stores in memory end with the process: to
    keep the one that counts for the next node is up to whoever made it.

    Raises:
        ConfigurationError: The channel's store is not the node's, which is in memory.
    """
    if not node.epoch_budget.enabled or store is node.store:
        return
    given = node.sds_config.persistence or node.segmentation_config.persistence
    outlasts = given is None or not isinstance(store, VolatileStore)
    if outlasts and isinstance(node.store, VolatileStore):
        text = (
            "the node has a rate limit and counts in memory, but the channel has a store of its own; "
            "give the node that store too: NodeConfig(sds_config=SdsConfig(persistence=store))"
        )
        raise ConfigurationError(text)


async def budget_of(
    node: MessagingNode,
    store: ChannelStore,
    channel_id: ChannelId,
    narrower: RateLimitConfig | None,
) -> ChannelBudget:
    """Return a channel's share of the node's epoch budget, with its own ledger where it has one."""
    # A channel with a store of its own keeps the node's ledger there as well, after the node's store did.
    known = node.epoch_budget.epoch
    node.epoch_budget.absorb(await store.load_ledger(node.epoch_budget.scope))
    now = node.clock.now_ns()
    if node.epoch_budget.epoch > known:
        warn_of_future(node.epoch_budget, now)
    own = None
    if narrower is not None and narrower.enabled:
        # Epoch numbers of different periods cannot be compared, so the scope names the period.
        scope = f"channel:{channel_id}:{narrower.epoch_period_sec}"
        own = EpochRateLimiter(narrower, scope=scope, restored=await store.load_ledger(scope))
        warn_of_future(own, now)
    return ChannelBudget(node.epoch_budget, own, f"channel:{channel_id}")


def last_seen_ns(snapshot: Snapshot) -> int:
    """Return when the kept channel last took a message in, or was made before it ever did; 0 when it is new."""
    records = rows_of(snapshot, ChannelRecord)
    return (records[0].last_seen_ns or records[0].created_ns) if records else 0
