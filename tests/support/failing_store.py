"""A store and a node that fail, wait and write down what they did, on demand; and channels on them.

Both wrap a real one. Everything that matters is appended to one trace, so that a test can say what
happened before what. It is meant for virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from messaging_adapter import NodeConfig, WakuNode, create_node
from reliable_channel.channel import ReliableChannel
from reliable_channel.clock import LoopClock
from reliable_channel.config import RateLimitConfig, SdsConfig, SegmentationConfig
from reliable_channel.core.rate_limit import EpochRateLimiter
from reliable_channel.errors import ReliableChannelError, StoreUnavailableError
from reliable_channel.events import (
    EVENT_NAMES,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
)
from reliable_channel.manager import create_reliable_channel
from reliable_channel.ports import (
    ChannelStore,
    Clock,
    Encryption,
    IncomingMessage,
    MessageEnvelope,
    MessageHandler,
    Subscription,
)
from reliable_channel.records import (
    Changes,
    EventRecord,
    LedgerRecord,
    OutgoingRecord,
    Snapshot,
)
from reliable_channel.types import SECOND, ChannelId, Nanoseconds, ParticipantId, RequestId
from reliable_channel.volatile import VolatileStore
from tests.support.virtual_loop import START_NS

TOPIC: Final = "/app/1/room/proto"
"""Where the channel ``room`` of a `Side` is."""

T = TypeVar("T")


async def soon(awaitable: Awaitable[T], seconds: float = 60) -> T:
    """Wait, but not for ever: a channel has timers that keep virtual time going."""
    async with asyncio.timeout(seconds):
        return await awaitable


async def outcome(awaitable: Awaitable[Any], seconds: float = 60) -> Any:
    """Return the result or the exception; a TimeoutError where there is neither in time."""
    try:
        return await soon(awaitable, seconds)
    except Exception as error:
        return error


async def settle() -> None:
    """Let everything happen that takes no time."""
    await asyncio.sleep(0.001)


def virtual_clock(epoch_sec: int = 0) -> LoopClock:
    """Return a clock that follows the loop, all of a test's the same.

    Args:
        epoch_sec: Let it begin with an epoch of this length; 0 for any time.
    """
    loop = asyncio.get_running_loop()
    start = START_NS - START_NS % (epoch_sec * SECOND) if epoch_sec else START_NS
    return LoopClock(loop, start + round(loop.time() * SECOND))


@dataclass(frozen=True, slots=True)
class Committed:
    """A commit that the store has applied."""

    channel_id: ChannelId
    changes: Changes


@dataclass(frozen=True, slots=True)
class Published:
    """A message that the node was given."""

    request_id: RequestId
    envelope: MessageEnvelope


Trace: TypeAlias = list[object]
"""What happened, in order; tests may append what they saw themselves."""


@dataclass(slots=True)
class _Failures:
    """What calls raise instead of doing their work."""

    by_call: dict[str, Exception] = field(default_factory=dict)

    def raise_if_any(self, call: str) -> None:
        if call in self.by_call:
            raise self.by_call[call]


class FailingStore:
    """Wraps a store; implements ``ChannelStore``.

    Args:
        kept: What it wraps; a ``VolatileStore`` of its own unless given.
        trace: Where applied commits are written down.
    """

    def __init__(self, kept: ChannelStore | None = None, trace: Trace | None = None) -> None:
        self.kept: ChannelStore = VolatileStore() if kept is None else kept
        self.trace: Trace = [] if trace is None else trace
        self.commits = 0
        """Commits that were begun, successful or not."""
        self.before_commit_sec = 0.0
        """How long a commit takes before it is applied or fails."""
        self.after_commit_sec = 0.0
        """How long a commit takes to return after it was applied."""
        self.release_sec = 0.0
        """How long it takes to give a channel back."""
        self._failures = _Failures()

    def fail(self, call: str = "commit", error: Exception | None = None) -> None:
        """Let a call fail from now on, as if the disk were full unless an error is given.

        The call ``answer`` is the end of a commit that was applied.
        """
        self._failures.by_call[call] = error or StoreUnavailableError("disk full")

    def recover(self) -> None:
        """Let all calls work again."""
        self._failures.by_call.clear()

    async def open(self) -> None:
        """Open, or fail."""
        self._failures.raise_if_any("open")
        await self.kept.open()

    async def close(self) -> None:
        """Close what is wrapped."""
        await self.kept.close()

    async def acquire_channel(self, channel_id: ChannelId) -> Snapshot:
        """Take a channel, or fail."""
        self._failures.raise_if_any("acquire_channel")
        return await self.kept.acquire_channel(channel_id)

    async def release_channel(self, channel_id: ChannelId) -> None:
        """Give a channel back; told to fail, it does so and fails all the same."""
        if self.release_sec:
            await asyncio.sleep(self.release_sec)
        await self.kept.release_channel(channel_id)
        self._failures.raise_if_any("release_channel")

    async def commit(self, channel_id: ChannelId, changes: Changes) -> None:
        """Apply changes, or fail; both may take time."""
        self.commits += 1
        await asyncio.sleep(self.before_commit_sec)
        self._failures.raise_if_any("commit")
        await self.kept.commit(channel_id, dict(changes))
        self.trace.append(Committed(channel_id, dict(changes)))
        self._failures.raise_if_any("answer")
        if self.after_commit_sec:
            await asyncio.sleep(self.after_commit_sec)

    async def read_events(
        self, channel_id: ChannelId, *, after: int, limit: int
    ) -> list[EventRecord]:
        """Read events, or fail."""
        self._failures.raise_if_any("read_events")
        return await self.kept.read_events(channel_id, after=after, limit=limit)

    async def load_ledger(self, scope: str) -> LedgerRecord | None:
        """Read a ledger, or fail."""
        self._failures.raise_if_any("load_ledger")
        return await self.kept.load_ledger(scope)

    async def purge_channel(self, channel_id: ChannelId) -> None:
        """Forget a channel."""
        await self.kept.purge_channel(channel_id)


class ProbeNode:
    """Wraps a node; implements ``MessagingNode``. The wrapped node is closed with it.

    Args:
        inner: What it wraps.
        trace: Where messages are written down when they are given to the node.
    """

    def __init__(self, inner: WakuNode, trace: Trace | None = None) -> None:
        self.inner = inner
        self.trace: Trace = [] if trace is None else trace
        self.publish_sec = 0.0
        """How long the node takes for a message before the network has it."""
        self.is_marking = True
        """Off: messages go out without ``meta``, as from implementations that do not mark them."""
        self.subscriptions = 0
        """Subscriptions that are open."""
        self._failures = _Failures()

    def fail(self, call: str, error: Exception) -> None:
        """Let a call raise from now on."""
        self._failures.by_call[call] = error

    def when_closed(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self.inner.when_closed(callback)

    def recover(self) -> None:
        """Let all calls work again."""
        self._failures.by_call.clear()

    @property
    def published(self) -> list[Published]:
        """What the node was given so far."""
        return [entry for entry in self.trace if isinstance(entry, Published)]

    @property
    def sds_config(self) -> SdsConfig:
        """The wrapped node's."""
        return self.inner.sds_config

    @property
    def segmentation_config(self) -> SegmentationConfig:
        """The wrapped node's."""
        return self.inner.segmentation_config

    @property
    def rate_limit_config(self) -> RateLimitConfig:
        """The wrapped node's."""
        return self.inner.rate_limit_config

    @property
    def store(self) -> ChannelStore:
        """The wrapped node's."""
        return self.inner.store

    @property
    def epoch_budget(self) -> EpochRateLimiter:
        """The wrapped node's."""
        return self.inner.epoch_budget

    @property
    def clock(self) -> Clock:
        """The wrapped node's."""
        return self.inner.clock

    @property
    def max_message_bytes(self) -> int:
        """The wrapped node's."""
        return self.inner.max_message_bytes

    async def subscribe_topic(self, content_topic: str, handler: MessageHandler) -> Subscription:
        """Subscribe, or fail."""
        self._failures.raise_if_any("subscribe_topic")
        subscription = await self.inner.subscribe_topic(content_topic, handler)
        self.subscriptions += 1
        return _ProbeSubscription(self, subscription)

    async def publish(self, request_id: RequestId, envelope: MessageEnvelope) -> bytes:
        """Publish, or fail; both may take time."""
        self.trace.append(Published(request_id, envelope))
        if self.publish_sec:
            await asyncio.sleep(self.publish_sec)
        self._failures.raise_if_any("publish")
        if not self.is_marking:
            envelope = MessageEnvelope(
                content_topic=envelope.content_topic,
                payload=envelope.payload,
                ephemeral=envelope.ephemeral,
            )
        return await self.inner.publish(request_id, envelope)

    async def lookup(self, hashes: Sequence[bytes]) -> list[IncomingMessage]:
        """Ask the store by hash, or fail."""
        self._failures.raise_if_any("lookup")
        return await self.inner.lookup(hashes)

    async def query(self, content_topic: str, start_ns: Nanoseconds) -> list[IncomingMessage]:
        """Ask the store by time, or fail."""
        self._failures.raise_if_any("query")
        return await self.inner.query(content_topic, start_ns)

    async def close(self) -> None:
        """Close the wrapped node."""
        await self.inner.close()

    def raise_if_told(self, call: str) -> None:
        """Fail where a test said so; for subscriptions."""
        self._failures.raise_if_any(call)


class _ProbeSubscription:
    def __init__(self, owner: ProbeNode, inner: Subscription) -> None:
        self._owner = owner
        self._inner = inner
        self._is_open = True

    async def close(self) -> None:
        """Leave; told to fail, it does so and fails all the same."""
        if self._is_open:
            self._is_open = False
            self._owner.subscriptions -= 1
        await self._inner.close()
        self._owner.raise_if_told("unsubscribe")


@dataclass
class Side:
    """One participant of the channel ``room``: what it stands on and what its application sees."""

    sender_id: ParticipantId
    node: ProbeNode
    store: FailingStore
    trace: Trace
    encryption: Encryption | None
    seed: int
    channel: ReliableChannel = field(init=False)
    seen: list[Any] = field(default_factory=list)
    """Events shown to handlers, through all openings."""

    async def open(self) -> ReliableChannel:
        """Open the channel, or open it again on the same state."""
        self.seed += 1
        self.channel = await create_reliable_channel(
            self.node, "room", TOPIC, self.sender_id, self.encryption, seed=self.seed
        )
        for name in EVENT_NAMES:
            self.channel.on(name, self.see)
        return self.channel

    def see(self, event: object) -> None:
        """Take an event as its application does."""
        self.seen.append(event)
        self.trace.append(event)

    @property
    def received(self) -> list[bytes]:
        """Payloads shown."""
        return [item.message for item in self.seen if isinstance(item, MessageReceivedEvent)]

    @property
    def sequences(self) -> list[int]:
        """Sequences of the durable events shown."""
        return [item.sequence for item in self.seen if item.sequence]

    def finals(self) -> dict[RequestId, list[str]]:
        """Return how each request ended: ``delivered``, ``send-error``, ``delivery-error``."""
        found: dict[RequestId, list[str]] = {}
        for item in self.seen:
            if isinstance(
                item, MessageDeliveredEvent | MessageSendErrorEvent | MessageDeliveryErrorEvent
            ):
                found.setdefault(item.request_id, []).append(item.name.rpartition(":")[2])
        return found

    async def log(self) -> list[Any]:
        """Read the durable events, as an application does that was down."""
        found: list[Any] = []
        async with self.channel.events() as live, self.channel.events(after=0) as stream:
            while stream.last_sequence < live.last_sequence:
                found.append(await soon(anext(stream)))
        return found


@asynccontextmanager
async def side(
    sender_id: ParticipantId,
    *,
    transport: str = "memory://lab",
    encryption: Any = None,
    segmentation: SegmentationConfig | None = None,
    rate_limit: RateLimitConfig | None = None,
    **sds: Any,
) -> AsyncIterator[Side]:
    """Open a participant, and close it at the end.

    Args:
        sender_id: Who it is.
        transport: Its network.
        encryption: Its hook.
        segmentation: Its settings.
        rate_limit: Its settings.
        **sds: Fields of its `SdsConfig`.
    """
    trace: Trace = []
    store = FailingStore(trace=trace)
    config = NodeConfig(
        transport=transport,
        sds_config=SdsConfig(persistence=store, **sds),
        segmentation_config=segmentation or SegmentationConfig(),
        rate_limit_config=rate_limit or RateLimitConfig(),
    )
    async with await create_node(config, clock=virtual_clock()) as inner:
        seed = 1000 * sum(sender_id.encode())
        here = Side(sender_id, ProbeNode(inner, trace), store, trace, encryption, seed)
        await here.open()
        try:
            yield here
        finally:
            with suppress(ReliableChannelError, TimeoutError):
                await soon(here.channel.close())


@asynccontextmanager
async def pair(**settings: Any) -> AsyncIterator[tuple[Side, Side]]:
    """Open alice and bob, with the settings of `side`."""
    async with side("alice", **settings) as alice, side("bob", **settings) as bob:
        yield alice, bob


def assert_store_came_first(trace: Trace) -> None:
    """Check that nothing was published or shown before what it rests on was committed."""
    events: set[int] = set()
    segments: set[RequestId] = set()
    for entry in trace:
        if isinstance(entry, Committed):
            for record in entry.changes.values():
                if isinstance(record, EventRecord):
                    events.add(record.sequence)
                elif isinstance(record, OutgoingRecord):
                    segments.add(f"{record.request_id}:{record.segment_index + 1}")
        elif isinstance(entry, Published):
            assert entry.request_id in segments or entry.request_id.startswith("sync:")
        else:
            sequence = getattr(entry, "sequence", 0)
            assert not sequence or sequence in events
