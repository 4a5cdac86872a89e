"""A store that keeps everything in memory, for trials and tests.

It is the library's own volatile store behind the face of the other stores: settings that are
checked, and a context manager. It must not write anything anywhere.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

from typing import Self

from persistence.retention import EventRetention
from reliable_channel.types import ChannelId
from reliable_channel.volatile import MAX_EVENT_BYTES, MAX_EVENTS, VolatileStore


class MemoryStore(VolatileStore):
    """Keeps the state of channels as long as the object lives.

    Two stores share nothing. An object belongs to one event loop.

    Args:
        max_events: Events kept of each channel; the oldest go first.
        max_event_bytes: Size of the events kept of each channel, bytes; the newest always stays.
        max_event_age_sec: How long events are kept, seconds; the newest always stays. None: as long
            as the other bounds allow.

    Raises:
        ConfigurationError: A setting is out of its bounds.
    """

    def __init__(
        self,
        *,
        max_events: int = MAX_EVENTS,
        max_event_bytes: int = MAX_EVENT_BYTES,
        max_event_age_sec: int | None = None,
    ) -> None:
        limits = EventRetention(
            max_events=max_events,
            max_event_bytes=max_event_bytes,
            max_event_age_sec=max_event_age_sec,
        )
        super().__init__(
            max_events=limits.max_events,
            max_event_bytes=limits.max_event_bytes,
            max_event_age_sec=limits.max_event_age_sec,
        )
        self._registered: dict[ChannelId, str] = {}

    def registered(self) -> dict[ChannelId, str]:
        """Return what ``open_registry`` keeps here.

        Raises:
            StoreClosedError: The store is not open.
        """
        self._check_open()
        return self._registered

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
