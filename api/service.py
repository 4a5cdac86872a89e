"""The service: one store, one node and their channels, opened together, closed together.

Channels that were open stay the service's: the registry keeps their settings, and they are opened again after a
restart. Nothing here may know HTTP.

Spec: ARCHITECTURE, Command line and REST; RELIABLE-CHANNEL-API, Channel lifecycle.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Final, Literal
from weakref import WeakValueDictionary

from api.entries import Entry, close_logged, kept_entry, retry_distances
from api.errors import (
    ChannelConflictError,
    ChannelNotFoundError,
    ChannelUnavailableError,
    ServiceClosingError,
    ServiceStartingError,
    TooManyChannelsError,
    UnknownKeyError,
)
from api.keys import KeyRing
from api.metrics import Metrics
from api.models import ChannelRequest
from api.observed_store import ObservedStore
from api.readers import OpenStreams
from api.settings import ServiceSettings
from messaging_adapter import NodeConfig, WakuNode, create_node
from persistence import Registry, open_registry, open_store
from reliable_channel import (
    AesGcmEncryption,
    ChannelStore,
    RateLimitConfig,
    ReliableChannel,
    ReliableChannelError,
    SdsConfig,
    create_reliable_channel,
)
from reliable_channel.errors import one_line

logger = logging.getLogger("reliable_channel.api.service")

MAX_OPENING: Final = 8
"""Channels that are opened at the same time after a restart."""

LONGEST_START_SEC: Final = 60.0
"""After this long the service is ready, whatever is still being opened."""

State = Literal["starting", "ready", "closing"]


class Service:
    """Owns store, node and channels.

    Args:
        settings: Of the service.
        keys: What channels may encrypt with.
    """

    def __init__(self, settings: ServiceSettings, *, keys: KeyRing) -> None:
        self.settings = settings
        self.closing = asyncio.Event()
        """Set when shutdown begins: streams and sockets end then."""
        self.streams = OpenStreams(settings.max_streams, self.closing)
        """All event streams and sockets."""
        self.metrics = Metrics(self)
        self.metrics.streams = self.streams
        self._keys = keys
        self._state: State = "starting"
        self._started = asyncio.Event()
        self._entries: dict[str, Entry] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._slots = asyncio.Semaphore(MAX_OPENING)
        self._being_made = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stack = AsyncExitStack()
        self._store: ChannelStore | None = None
        self._node: WakuNode | None = None
        self._registry: Registry | None = None

    # -- what it has --------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """``starting`` until each kept channel was tried once, ``closing`` from the beginning of shutdown on."""
        return self._state

    @property
    def store(self) -> ChannelStore:
        """Where everything is kept; the metrics hear of each commit."""
        assert self._store is not None, "not started"
        return self._store

    @property
    def node(self) -> WakuNode:
        """What the channels stand on."""
        assert self._node is not None, "not started"
        return self._node

    @property
    def registry(self) -> Registry:
        """The settings of the channels that are to be open."""
        assert self._registry is not None, "not started"
        return self._registry

    @property
    def channels(self) -> Mapping[str, ReliableChannel]:
        """The open channels by id, in the order in which they were made."""
        return {
            channel_id: entry.channel
            for channel_id, entry in self._entries.items()
            if entry.channel is not None
        }

    def find(self, channel_id: str) -> ReliableChannel | None:
        """Return an open channel, or None; `channels` would go through all of them."""
        entry = self._entries.get(channel_id)
        return None if entry is None else entry.channel

    @property
    def unavailable(self) -> Mapping[str, ChannelUnavailableError]:
        """The channels of the service that are not open, and why."""
        return {
            channel_id: self._explain(channel_id, entry)
            for channel_id, entry in self._entries.items()
            if entry.channel is None
        }

    def check_ready(self) -> None:
        """Do nothing if channels can be used.

        Raises:
            ServiceStartingError: Not yet.
            ServiceClosingError: No longer.
        """
        if self._state == "starting":
            raise ServiceStartingError
        if self._state == "closing":
            raise ServiceClosingError

    def get(self, channel_id: str) -> ReliableChannel:
        """Return an open channel.

        Raises:
            ChannelNotFoundError: The service has no such channel.
            ChannelUnavailableError: It has, but could not open it again yet.
        """
        entry = self._entry(channel_id)
        if entry.channel is None:
            raise self._explain(channel_id, entry)
        return entry.channel

    def request_of(self, channel_id: str) -> ChannelRequest:
        """Return the settings that a channel was opened with, as they were given.

        Raises:
            ChannelNotFoundError: The service has no such channel.
            ChannelUnavailableError: They cannot be read.
        """
        entry = self._entry(channel_id)
        if entry.request is None:
            raise self._explain(channel_id, entry)
        return entry.request

    def _entry(self, channel_id: str) -> Entry:
        entry = self._entries.get(channel_id)
        if entry is None:
            raise ChannelNotFoundError(channel_id)
        return entry

    def _explain(self, channel_id: str, entry: Entry) -> ChannelUnavailableError:
        wait = max(1.0, entry.retry_at - asyncio.get_running_loop().time())
        return ChannelUnavailableError(channel_id, entry.reason, wait)

    # -- its life -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start, and close at the end."""
        await self.start()
        try:
            yield
        finally:
            await self.close()

    async def start(self) -> None:
        """Open store and node; begin to open the kept channels, and return before they are.

        Raises:
            ConfigurationError: A setting is unusable.
            StoreError: The store cannot be opened.
            NodeError: The network cannot be entered.
        """
        async with AsyncExitStack() as stack:
            store = open_store(self.settings.database)
            stack.push_async_callback(store.close)
            await store.open()
            self._registry = open_registry(store)
            self._store = ObservedStore(store, self.metrics)
            self._node = self.metrics.node = await create_node(self._node_config(self._store))
            stack.push_async_callback(self._node.close)
            kept = await self._registry.channels()
            self._stack = stack.pop_all()
        for channel_id, text in kept.items():
            self._entries[channel_id] = kept_entry(channel_id, text)
        if not kept:
            self._become_ready()
            return
        for channel_id, entry in self._entries.items():
            self._open_in_background(channel_id, entry)
        _ = self._spawn(self._wait_until_tried())

    def _node_config(self, store: ChannelStore) -> NodeConfig:
        period, messages = self.settings.epoch_period_sec, self.settings.messages_per_epoch
        given = {"epoch_period_sec": period, "messages_per_epoch": messages}
        limit = {name: value for name, value in given.items() if value is not None}
        return NodeConfig(
            transport=self.settings.node,
            sds_config=SdsConfig(persistence=store),
            rate_limit_config=RateLimitConfig(enabled=bool(limit), **limit),
        )

    async def _wait_until_tried(self) -> None:
        waits = [entry.tried.wait() for entry in self._entries.values()]
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_START_SEC):
                await asyncio.gather(*waits)
        self._become_ready()

    def _become_ready(self) -> None:
        if self._state == "starting":
            self._state = "ready"
            self._started.set()
            logger.info("ready; channels open: %d", len(self.channels))

    async def wait_started(self) -> None:
        """Return when each kept channel was tried once, or shutdown has begun."""
        await self._started.wait()

    def begin_closing(self) -> None:
        """Refuse new work and let streams and sockets end; harmless when repeated."""
        self._state = "closing"
        self.closing.set()
        self._started.set()

    async def close(self) -> None:
        """Close channels, node and store; what is being stored is stored, what is open goes on with the next start."""
        self.begin_closing()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        opened = self.channels
        ends = await asyncio.gather(
            *(channel.close() for channel in opened.values()), return_exceptions=True
        )
        for channel_id, end in zip(opened, ends, strict=True):
            if isinstance(end, BaseException):
                logger.warning("channel %s did not close well: %s", channel_id, one_line(end))
        self._entries.clear()
        await self._stack.aclose()
        logger.info("closed")

    # -- channels -----------------------------------------------------------------------------------

    async def open_channel(self, request: ChannelRequest) -> tuple[ReliableChannel, bool]:
        """Open a channel and remember to open it again after a restart.

        Args:
            request: Its settings.

        Returns:
            The channel, and whether it was opened now; False where it was open with the same settings.

        Raises:
            ChannelConflictError: It is open with other settings.
            TooManyChannelsError: No more may be open.
            ConfigurationError: The settings are unusable, or contradict the kept state.
            ReliableChannelError: It cannot be opened; nothing has changed.
        """
        request.configs()
        channel_id = request.channel_id
        async with self._lock(channel_id):
            self.check_ready()
            entry = self._entries.get(channel_id)
            if entry is not None:
                return await self._join(channel_id, entry, request), False
            if len(self._entries) + self._being_made >= self.settings.max_channels:
                raise TooManyChannelsError(self.settings.max_channels)
            self._being_made += 1
            try:
                channel = await self._make(request)
            finally:
                self._being_made -= 1
            self._entries[channel_id] = Entry(request, channel)
        logger.info("channel %s opened as %s", channel_id, request.sender_id)
        return channel, True

    async def _make(self, request: ChannelRequest) -> ReliableChannel:
        """Open a channel that is new to the registry, and put it there."""
        channel = await self._open(request)
        try:
            self.check_ready()
            await self.registry.put(request.channel_id, request.to_text())
        except BaseException:
            await close_logged(channel)
            raise
        return channel

    async def _join(
        self, channel_id: str, entry: Entry, request: ChannelRequest
    ) -> ReliableChannel:
        """Return the channel of an entry if it has these settings; try to open it if it is not."""
        if entry.request is None:
            raise self._explain(channel_id, entry)
        if differences := entry.request.differences(request):
            raise ChannelConflictError(channel_id, differences)
        if entry.channel is None:
            entry.channel = await self._open(entry.request)
        return entry.channel

    async def close_channel(self, channel_id: str, purge: bool) -> None:
        """Close a channel; it is not opened again after a restart.

        Args:
            channel_id: The channel.
            purge: Forget its state too, also that of a channel that is not open.

        Raises:
            ChannelNotFoundError: The service has no such channel, and nothing to forget of it.
            StoreUnavailableError: The store failed; the same call may work later.
        """
        async with self._lock(channel_id):
            self.check_ready()
            entry = self._entries.get(channel_id)
            if entry is None:
                if not purge:
                    raise ChannelNotFoundError(channel_id)
                await self._purge_kept(channel_id)
                return
            if not purge:
                await self.registry.remove(channel_id)
            await self._shut(entry)
            if purge:
                try:
                    await self.store.purge_channel(channel_id)
                    await self.registry.remove(channel_id)
                except ReliableChannelError:
                    self._open_in_background(channel_id, entry)
                    raise
            del self._entries[channel_id]
        logger.info("channel %s closed%s", channel_id, " and forgotten" if purge else "")

    async def _purge_kept(self, channel_id: str) -> None:
        """Forget the state of a channel that nobody has open."""
        kept = await self.store.acquire_channel(channel_id)
        try:
            if not any(kept.values()):
                raise ChannelNotFoundError(channel_id)
            await self.store.purge_channel(channel_id)
        finally:
            await self.store.release_channel(channel_id)
        logger.info("channel %s forgotten", channel_id)

    async def _shut(self, entry: Entry) -> None:
        """Close what an entry has open and stop what opens it."""
        if entry.task is not None:
            entry.task.cancel()
            await asyncio.wait([entry.task])
            entry.task = None
        channel, entry.channel = entry.channel, None
        if channel is not None:
            await close_logged(channel)

    async def _open(self, request: ChannelRequest) -> ReliableChannel:
        sds, segmentation, rate_limit = request.configs()
        return await create_reliable_channel(
            self.node,
            request.channel_id,
            request.content_topic,
            request.sender_id,
            self._encryption(request),
            sds_config=sds,
            segmentation_config=segmentation,
            rate_limit_config=None if request.rate_limit is None else rate_limit,
        )

    def _encryption(self, request: ChannelRequest) -> AesGcmEncryption | None:
        if request.encryption is None:
            return None
        key_ref = request.encryption.key_ref
        try:
            key = self._keys.get(key_ref)
        except KeyError:
            raise UnknownKeyError(key_ref) from None
        return AesGcmEncryption(key)

    # -- channels that are not open -----------------------------------------------------------------

    def revive(self, channel_id: str) -> None:
        """Close a channel that stopped working, and open it again in the background."""
        entry = self._entries.get(channel_id)
        if entry is not None and entry.channel is not None and self._state == "ready":
            _ = self._spawn(self._revive(channel_id, entry, entry.channel))

    async def _revive(self, channel_id: str, entry: Entry, failed: ReliableChannel) -> None:
        async with self._lock(channel_id):
            if self._entries.get(channel_id) is not entry or entry.channel is not failed:
                return
            entry.reason = "it stopped working and is being opened again"
            await self._shut(entry)
            self._open_in_background(channel_id, entry)

    def _open_in_background(self, channel_id: str, entry: Entry) -> None:
        if entry.request is None:
            entry.tried.set()
        else:
            entry.task = self._spawn(self._keep_opening(channel_id, entry, entry.request))
            entry.task.set_name(f"reliable-channel {channel_id} opening")

    async def _keep_opening(self, channel_id: str, entry: Entry, request: ChannelRequest) -> None:
        """Try to open a channel until it is open or no longer wanted."""
        for wait in retry_distances():
            async with self._slots, self._lock(channel_id):
                if self._entries.get(channel_id) is not entry or entry.channel is not None:
                    return
                try:
                    entry.channel = await self._open(request)
                except ReliableChannelError as error:
                    entry.reason = one_line(error)
                except Exception as error:
                    logger.exception("channel %s cannot be opened", channel_id)
                    entry.reason = f"a fault of the service ({type(error).__name__})"
                finally:
                    entry.tried.set()
            if entry.channel is not None:
                logger.info("channel %s open again", channel_id)
                return
            logger.warning(
                "channel %s not open, next try in %g s: %s", channel_id, wait, entry.reason
            )
            entry.retry_at = asyncio.get_running_loop().time() + wait
            await asyncio.sleep(wait)

    # -- small things -------------------------------------------------------------------------------

    def _lock(self, channel_id: str) -> asyncio.Lock:
        """Return what lets one at a time open or close a channel; it lives as long as somebody holds it."""
        return self._locks.setdefault(channel_id, asyncio.Lock())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something in the background, at most until the service closes."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
