"""Whether the service lives, and how node, store and channels are.

It must not name keys, addresses or passwords, and must not do any work of its own: monitors ask often.

Spec: ARCHITECTURE, Command line and REST; MESSAGING-API, Health type definitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from api.metrics import Metrics, StoreHealth
from api.readers import rfc3339
from messaging_adapter import WakuNode
from reliable_channel import ReliableChannel, ReliableChannelError
from reliable_channel.errors import one_line


class ObservedService(Protocol):
    """What health needs of the service."""

    metrics: Metrics

    @property
    def state(self) -> Literal["starting", "ready", "closing"]:
        """How far the service is."""

    @property
    def node(self) -> WakuNode:
        """What the channels stand on; there while the service is ready."""

    @property
    def channels(self) -> Mapping[str, ReliableChannel]:
        """The open channels."""

    @property
    def unavailable(self) -> Mapping[str, Exception]:
        """The channels that could not be opened, and why."""


def live_body() -> tuple[int, dict[str, Any]]:
    """Return status and body of ``/health/live``: whoever can answer lives."""
    return 200, {"status": "live"}


async def health_body(service: ObservedService) -> tuple[int, dict[str, Any]]:
    """Return status and body of ``/health``.

    503 while the channels are being opened again and from the beginning of shutdown on. Else 200, also where
    something is wrong: the service answers, and the body says what.
    """
    if service.state != "ready":
        return 503, {"status": service.state}
    channels = [await _channel(*item) for item in service.channels.items()]
    channels += [
        {"channelId": channel_id, "state": "unavailable", "error": one_line(error)}
        for channel_id, error in service.unavailable.items()
    ]
    store = _store(service.metrics.store)
    node = {"status": str(service.node.connection_status)}
    well = (
        store["status"] == "ok"
        and node["status"] != "Disconnected"
        and all(channel["state"] == "open" for channel in channels)
    )
    status = "ok" if well else "degraded"
    return 200, {"status": status, "node": node, "store": store, "channels": channels}


def _store(store: StoreHealth) -> dict[str, Any]:
    body: dict[str, Any] = {"status": "failing" if store.failing_since_ns else "ok"}
    if store.last_commit_ns:
        body["lastCommitAt"] = rfc3339(store.last_commit_ns)
    if store.failing_since_ns:
        body |= {"failingSince": rfc3339(store.failing_since_ns), "error": store.error}
    return body


async def _channel(channel_id: str, channel: ReliableChannel) -> dict[str, Any]:
    """Return how a channel is; a handle that works no more says so when it is asked for events."""
    try:
        await channel.events().close()
    except ReliableChannelError as error:
        return {"channelId": channel_id, "state": "failed", "error": one_line(error)}
    return {"channelId": channel_id, "state": "open"}
