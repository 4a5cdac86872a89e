"""Two processes' worth of network in one: what a linked node sends is acknowledged, and comes from the network."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from benchmarks import acknowledging
from benchmarks.acknowledging import LinkedNode, acknowledger, offer_links
from messaging_adapter import NodeConfig, create_node, factory
from reliable_channel import SdsConfig, create_reliable_channel

TOPIC = "/test/1/linked/proto"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("bloom_capacity", [500, 0])
async def test_messages_of_all_channels_are_acknowledged(
    bloom_capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledging, "ACKNOWLEDGE_SEC", 0.01)
    monkeypatch.setattr(factory, "TRANSPORTS", dict(factory.TRANSPORTS))
    offer_links()
    config = SdsConfig(bloom_capacity=bloom_capacity)
    async with AsyncExitStack() as stack:
        transport = await stack.enter_async_context(acknowledger(bloom_capacity))
        node = await create_node(NodeConfig(transport=transport, sds_config=config))
        await stack.enter_async_context(node)
        assert isinstance(node, LinkedNode)
        for_each = [create_reliable_channel(node, name, TOPIC, "alice") for name in ("a", "b")]
        channels = [await stack.enter_async_context(await making) for making in for_each]
        sent = [(channel, await channel.send(b"hello")) for channel in channels * 3]
        heard = [channel.wait_delivered(request_id) for channel, request_id in sent]
        assert await asyncio.gather(*heard) == [("bob",)] * 6
        for channel in channels:
            status = channel.status()
            assert status.counters["transmissions"] == 3
            assert status.counters.get("foreign_filters", 0) == 0
            assert set(status.dropped) <= {"foreign_channel"}
