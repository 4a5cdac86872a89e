"""What is timed goes all the way, beside what cannot be left out."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks import payload_speed
from benchmarks.payload_speed import BLOOM_CAPACITIES, PASSES, TOPIC, Floor
from messaging_adapter import NodeConfig, create_node
from reliable_channel import AesGcmEncryption, ReliableChannel, create_reliable_channel

OCTETS = 250_000


async def test_every_pass_is_measured_beside_the_pipeline() -> None:
    speed = await payload_speed.measure(BLOOM_CAPACITIES[1], OCTETS, rounds=2)
    assert speed.segments == 3
    assert list(speed.passes) == list(PASSES)
    assert all(len(found) == 2 for found in (speed.pipeline, *speed.passes.values()))
    assert speed.floor == [
        sum(found[place] for found in speed.passes.values()) for place in range(2)
    ]
    whole, *passes = payload_speed.figures(speed)
    assert whole.ratio is not None
    assert 0 < whole.ratio.low <= whole.ratio.high
    assert len(passes) == len(PASSES)


async def test_the_floor_works_on_the_segments_that_the_channel_sends() -> None:
    """Ids, sizes and cipher are of the same contents: the share compares like with like."""
    encryption = AesGcmEncryption(bytes(32))
    floor = Floor(b"x" * OCTETS, encryption, BLOOM_CAPACITIES[0])
    node = await create_node(NodeConfig(transport="memory://floor"))
    async with (
        node,
        await create_reliable_channel(node, "payload", TOPIC, "alice", encryption) as channel,
    ):
        request_id = await channel.send(b"x" * OCTETS)
        segments = channel.request_status(request_id).segments
    assert len(floor.contents) == len(segments) == 3
    assert [encryption.decrypt(data) for data in floor.encrypted] == floor.contents
    assert [len(name) for name in floor.name_all()] == [len(item.message_id) for item in segments]
    assert len(floor.run()) == len(PASSES)


async def test_another_payload_than_the_one_sent_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send = ReliableChannel.send

    async def altered(channel: ReliableChannel, payload: bytes) -> str:
        return await send(channel, payload[:-1])

    monkeypatch.setattr(ReliableChannel, "send", altered)
    with pytest.raises(RuntimeError, match="250000 bytes were not delivered as they were sent"):
        await payload_speed.measure(BLOOM_CAPACITIES[1], OCTETS, rounds=1)


async def test_what_is_not_delivered_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_speed, "WAIT_SEC", 0.05)

    async def kept(_channel: ReliableChannel, _payload: bytes) -> str:
        await asyncio.sleep(0)
        return "never"

    monkeypatch.setattr(ReliableChannel, "send", kept)
    with pytest.raises(TimeoutError):
        await payload_speed.measure(BLOOM_CAPACITIES[1], OCTETS, rounds=1)
