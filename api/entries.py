"""The channels of a service, each with what is known of it: settings, handle, why it is not open.

Nothing here opens a channel.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from api.models import ChannelRequest
from reliable_channel import ReliableChannel, ReliableChannelError
from reliable_channel.errors import one_line

logger = logging.getLogger("reliable_channel.api.service")

FIRST_RETRY_SEC: Final = 1.0
LONGEST_RETRY_SEC: Final = 60.0
"""Distances of tries while a channel cannot be opened; each is twice the one before."""


@dataclass(slots=True, eq=False)
class Entry:
    """A channel of the service, open or not.

    Attributes:
        request: Its settings; None where the registry holds what this version cannot read.
        channel: The handle, while it is open.
        reason: Why it is not open.
        retry_at: When it is tried again, on the loop's clock.
        tried: It was tried once since the service started.
        task: What opens it.
    """

    request: ChannelRequest | None
    channel: ReliableChannel | None = None
    reason: str = "it is being opened"
    retry_at: float = 0.0
    tried: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


def kept_entry(channel_id: str, text: str) -> Entry:
    """Return the entry of a channel that the registry holds; one that cannot be read is never opened."""
    try:
        return Entry(ChannelRequest.model_validate_json(text))
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = (
            f"its kept settings cannot be read by this version ({where}: {first['msg']}); "
            "DELETE it and open it anew"
        )
    logger.warning("channel %s not open: %s", channel_id, reason)
    return Entry(None, reason=reason)


def retry_distances() -> Iterator[float]:
    """Give the seconds between tries, without end."""
    wait = FIRST_RETRY_SEC
    while True:
        yield wait
        wait = min(2 * wait, LONGEST_RETRY_SEC)


async def close_logged(channel: ReliableChannel) -> None:
    """Close a channel; what goes wrong is logged, for everything is released all the same."""
    try:
        await channel.close()
    except ReliableChannelError as error:
        logger.warning("channel %s did not close well: %s", channel.channel_id, one_line(error))
