"""What is counted and how it is named, on real channels."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.metrics import (
    DROPPED,
    EVENT_TOTALS,
    PREFIX,
    STATUS_GAUGES,
    STATUS_TOTALS,
    Metrics,
)
from api.observed_store import ObservedStore
from api.readers import EventReader, OpenStreams
from messaging_adapter import NodeConfig, create_node
from persistence import MemoryStore
from reliable_channel import (
    ChannelStatus,
    RateLimitConfig,
    ReliableChannel,
    create_reliable_channel,
)
from reliable_channel.errors import StoreUnavailableError
from reliable_channel.events import DURABLE_EVENTS
from reliable_channel.types import ChannelId
from tests.architecture.source_tree import ROOT
from tests.support.streaming import TOPIC, room

NAME = re.compile(r"reliable_channel_[a-z]+(_[a-z]+)*")


@dataclass
class Settings:
    max_channels: int = 10


@dataclass
class Service:
    """What metrics need of the service."""

    settings: Settings = field(default_factory=Settings)
    channels: dict[str, ReliableChannel] = field(default_factory=dict)

    def find(self, channel_id: str) -> ReliableChannel | None:
        return self.channels.get(channel_id)


@dataclass
class Lab:
    """Bob, whose store is observed, and alice, who hears him."""

    metrics: Metrics
    service: Service
    alice: ReliableChannel
    bob: ReliableChannel

    async def say(self, payload: bytes = b"hello") -> None:
        """Have bob send a message and wait until alice has it."""
        async with self.alice.events() as heard:
            request_id = await self.bob.send(payload)
            async for event in heard:
                if event.sequence:
                    break
        await self.bob.wait_delivered(request_id)

    async def reopen(self) -> None:
        """Close bob's channel and open it again."""
        await self.bob.close()
        self.bob = self.service.channels["room"] = await create_reliable_channel(
            self.bob._node, channel_id="room", content_topic=TOPIC, sender_id="bob"
        )


@pytest.fixture
async def lab() -> object:
    service = Service()
    metrics = Metrics(service)
    async with AsyncExitStack() as stack:
        store = ObservedStore(MemoryStore(), metrics)
        alice, bob = await stack.enter_async_context(room(store))
        service.channels["room"] = bob
        metrics.node = bob._node
        yield Lab(metrics, service, alice, bob)


def samples(metrics: Metrics) -> dict[str, float]:
    """Return every sample of the text by its name, with the labels behind it."""
    text = metrics.render()[0].decode()
    return {
        " ".join([sample.name.removeprefix(PREFIX), *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_what_becomes_of_a_message_is_counted_and_timed(lab: Lab) -> None:
    await lab.say()
    await lab.say()
    found = samples(lab.metrics)
    expected = {
        "messages_accepted_total room": 2,
        "messages_sent_total room": 2,
        "messages_delivered_total room": 2,
        "messages_delivery_error_total room": 0,
        "segments_sent_total room": 2,
        "message_sent_seconds_count": 2,
        "message_delivered_seconds_count": 2,
        "channels": 1,
        "open_requests room": 0,
        "store_commit_failures_total": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert found["acknowledgements_total room"] >= 2
    assert 0 < found["message_sent_seconds_sum"] <= found["message_delivered_seconds_sum"] < 60
    assert found["store_commit_seconds_count"] > 4


async def test_counters_never_go_back_when_a_channel_is_opened_again(lab: Lab) -> None:
    before = samples(lab.metrics)
    for _ in range(3):
        await lab.say()
        await lab.reopen()
        found = samples(lab.metrics)
        falling = {
            name: (value, found.get(name))
            for name, value in before.items()
            if name.partition(" ")[0].endswith(("_total", "_count", "_sum"))
            and found.get(name, -1) < value
        }
        assert falling == {}
        before = found
    assert before["messages_accepted_total room"] == 3
    assert before["messages_delivered_total room"] == 3


async def test_nothing_is_counted_twice_while_a_closed_channel_is_still_listed(lab: Lab) -> None:
    await lab.say()
    await lab.bob.close()
    assert samples(lab.metrics)["messages_accepted_total room"] == 1
    del lab.service.channels["room"]
    assert samples(lab.metrics)["messages_accepted_total room"] == 1


async def test_a_channel_that_is_closed_between_two_looks_loses_nothing(lab: Lab) -> None:
    await lab.say()
    channel = lab.service.channels.pop("room")
    await channel.close()
    found = samples(lab.metrics)
    assert found["messages_accepted_total room"] == 1
    assert "open_requests room" not in found


async def test_a_purged_channel_vanishes(lab: Lab) -> None:
    await lab.say()
    store = lab.bob._store
    await lab.bob.close()
    del lab.service.channels["room"]
    await store.purge_channel(ChannelId("room"))
    assert not [name for name in samples(lab.metrics) if name.endswith(" room")]


async def test_labels_are_bounded_by_the_channels_that_may_be_open(lab: Lab) -> None:
    lab.service.settings.max_channels = 3
    await lab.say()
    for number in range(20):
        lab.metrics.committed(ChannelId(f"gone-{number}"), {}, 0.001)
    text = lab.metrics.render()[0].decode()
    assert set(re.findall(r'channel="([^"]+)"', text)) == {"room", "gone-18", "gone-19"}


async def test_drops_are_counted_by_reason(lab: Lab) -> None:
    assert "dropped_total room decrypt_failed" not in samples(lab.metrics)
    for _ in range(2):
        lab.bob._machine.refuse("decrypt_failed", lab.bob._clock.now_ns())
    assert samples(lab.metrics)["dropped_total room decrypt_failed"] == 2


async def test_the_epoch_budget_is_shown_where_there_is_one(lab: Lab) -> None:
    assert "epoch_messages_left" not in samples(lab.metrics)
    limit = RateLimitConfig(enabled=True, epoch_period_sec=3600, messages_per_epoch=50)
    config = NodeConfig(transport="memory://budget", rate_limit_config=limit)
    async with await create_node(config) as node:
        lab.metrics.node = node
        found = samples(lab.metrics)
        assert (found["epoch_messages_limit"], found["epoch_messages_left"]) == (50, 50)


async def test_streams_are_counted_by_kind_and_ending(lab: Lab) -> None:
    assert "open_streams sse" not in samples(lab.metrics)
    streams = lab.metrics.streams = OpenStreams(5, asyncio.Event())
    reader = EventReader(lab.bob, after=None, kind="sse", streams=streams)
    assert samples(lab.metrics)["open_streams sse"] == 1
    await reader.close()
    found = samples(lab.metrics)
    assert (found["open_streams sse"], found["streams_ended_total sse left"]) == (0, 1)


def test_requests_are_counted_by_route_and_status() -> None:
    metrics = Metrics(Service())
    metrics.request_answered("GET", "/v1/channels", 200)
    metrics.request_answered("GET", "/v1/channels", 200)
    metrics.request_answered("BREW", "", 405)
    found = samples(metrics)
    assert found["http_requests_total GET /v1/channels 200"] == 2
    assert found["http_requests_total other none 405"] == 1


def test_the_store_is_failing_from_the_first_failure_to_the_next_commit() -> None:
    metrics = Metrics(Service())
    metrics.committed(ChannelId(""), {}, 0.1)
    assert metrics.store.last_commit_ns > 0
    metrics.commit_failed(ChannelId("room"), StoreUnavailableError("the disk is full"), 0.1)
    since = metrics.store.failing_since_ns
    metrics.commit_failed(ChannelId("room"), StoreUnavailableError("the disk is full"), 0.1)
    assert metrics.store.failing_since_ns == since > 0
    assert "full" in metrics.store.error
    assert samples(metrics)["store_commit_failures_total"] == 2
    metrics.committed(ChannelId(""), {}, 0.1)
    assert (metrics.store.failing_since_ns, metrics.store.error) == (0, "")


def test_two_of_them_share_nothing() -> None:
    one, other = Metrics(Service()), Metrics(Service())
    one.request_answered("GET", "/", 200)
    assert "http_requests_total GET / 200" not in samples(other)


# --- Names ---------------------------------------------------------------------------------------


async def families(lab: Lab) -> dict[str, str]:
    """Return every metric that there can be, with its help."""
    lab.metrics.streams = OpenStreams(5, asyncio.Event())
    limit = RateLimitConfig(enabled=True, epoch_period_sec=3600, messages_per_epoch=50)
    config = NodeConfig(transport="memory://names", rate_limit_config=limit)
    async with await create_node(config) as node:
        lab.metrics.node = node
        return {
            metric.name + ("_total" if metric.type == "counter" else ""): metric.documentation
            for metric in lab.metrics.collect()
        }


async def test_names_follow_the_conventions(lab: Lab) -> None:
    found = await families(lab)
    assert [name for name in found if not NAME.fullmatch(name)] == []
    assert all(text.endswith(".") for text in found.values())


async def test_every_metric_is_documented(lab: Lab) -> None:
    found = await families(lab)
    section = (ROOT / "docs" / "operations.md").read_text().partition("## Metrics\n")[2]
    rows = re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], re.MULTILINE)
    assert sorted(rows) == sorted(name.removeprefix(PREFIX) for name in found)


def test_every_durable_event_and_status_field_has_its_metric() -> None:
    assert set(EVENT_TOTALS) == set(DURABLE_EVENTS)
    sizes = {
        name
        for name, kind in ChannelStatus.__annotations__.items()
        if kind in ("int", int) and name != "lamport_timestamp"  # compiled: the type itself
    }
    assert set(STATUS_GAUGES) == sizes
    names = [name for name, _ in (*EVENT_TOTALS.values(), *STATUS_TOTALS.values(), DROPPED)]
    assert len(names) == len(set(names))


def test_every_counter_is_one_that_the_core_counts() -> None:
    core = "\n".join(path.read_text() for path in (ROOT / "reliable_channel/core").rglob("*.py"))
    counted = set(re.findall(r'\.count\(\s*"([a-z_]+)"', core)) | {"segments_sent"}
    assert set(STATUS_TOTALS) <= counted
