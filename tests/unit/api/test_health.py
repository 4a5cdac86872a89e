"""What health says of the service, its node, its store and each channel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from api.health import health_body, live_body
from api.metrics import Metrics
from messaging_adapter import WakuNode
from reliable_channel import ReliableChannel
from reliable_channel.errors import StoreUnavailableError
from reliable_channel.types import ChannelId
from tests.support.streaming import room


@dataclass
class Settings:
    max_channels: int = 10


@dataclass
class Service:
    """What health needs of the service."""

    node: WakuNode
    channels: dict[str, ReliableChannel]
    state: Literal["starting", "ready", "closing"] = "ready"
    unavailable: dict[str, Exception] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self)


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with room() as (alice, _):
        node: Any = alice._node
        yield Service(node, {"room": alice})


async def test_all_is_well(service: Service) -> None:
    status, body = await health_body(service)
    assert status == 200
    assert body == {
        "status": "ok",
        "node": {"status": "Connected"},
        "store": {"status": "ok"},
        "channels": [{"channelId": "room", "state": "open"}],
    }


@pytest.mark.parametrize("state", ["starting", "closing"])
async def test_a_service_that_is_not_ready_says_so(
    service: Service, state: Literal["starting", "closing"]
) -> None:
    service.state = state
    assert await health_body(service) == (503, {"status": state})


async def test_a_failed_channel_and_its_node_are_told(service: Service) -> None:
    await service.node.close()
    status, body = await health_body(service)
    assert (status, body["status"], body["node"]) == (200, "degraded", {"status": "Disconnected"})
    [channel] = body["channels"]
    assert (channel["channelId"], channel["state"]) == ("room", "failed")
    assert "NodeClosedError" in channel["error"]


async def test_a_channel_that_could_not_be_opened_is_told(service: Service) -> None:
    service.unavailable["other"] = ValueError("the file\nis locked")
    _, body = await health_body(service)
    assert body["status"] == "degraded"
    assert body["channels"][1] == {
        "channelId": "other",
        "state": "unavailable",
        "error": "the file is locked",
    }


async def test_a_failing_store_is_told_until_it_works_again(service: Service) -> None:
    service.metrics.commit_failed(ChannelId("room"), StoreUnavailableError("disk full"), 0.1)
    _, body = await health_body(service)
    assert body["status"] == "degraded"
    assert body["store"]["status"] == "failing"
    assert body["store"]["error"] == "disk full"
    assert body["store"]["failingSince"].endswith("Z")
    service.metrics.committed(ChannelId(""), {}, 0.1)
    _, body = await health_body(service)
    assert body["status"] == "ok"
    assert set(body["store"]) == {"status", "lastCommitAt"}


async def test_asking_leaves_nothing_behind(service: Service) -> None:
    channel = service.channels["room"]
    for _ in range(5):
        await health_body(service)
    assert not channel._hub._streams


def test_who_answers_lives() -> None:
    assert live_body() == (200, {"status": "live"})
