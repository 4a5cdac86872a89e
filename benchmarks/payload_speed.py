"""How fast a large payload goes all the way: cut, named, encrypted, carried, decrypted, put together, delivered.

Two channels of the public library in one process and one event loop, with AES-256-GCM, over ``memory://`` without
faults. Beside it the floor: the keccak-256 passes over all bytes that the wire rules demand, and one encryption and one
decryption of the same bytes in the same pieces. The two take turns; all are CPU seconds.

Spec: docs/wire.md, Segment.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import MILLION, Figure, Part, Table, rate_figure
from messaging_adapter import NodeConfig, create_node
from reliable_channel import (
    AesGcmEncryption,
    MessageReceivedEvent,
    ReliableChannel,
    SdsConfig,
    create_reliable_channel,
)
from reliable_channel.config import SegmentationConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.machine import DEFAULT_MAX_MESSAGE_BYTES
from reliable_channel.core.segmentation import Segmenter
from reliable_channel.core.state import salted_id

OCTETS: Final = 20_000_000
ROUNDS: Final = 7

BLOOM_CAPACITIES: Final = (10_000, 500)
"""Ids that the filter in each message is made for: the default, 18,752 bytes of it, and one of 944 bytes."""

TOPIC: Final = "/bench/1/payload/proto"
WRAP_TIME_NS: Final = 1_700_000_000_000_000_000

WAIT_SEC: Final = 60.0
"""What is not delivered by then never will be."""

ACKNOWLEDGEMENT_TIMEOUT_MS: Final = 2_000
"""The receiver acknowledges within a quarter of it on average, so that rounds follow each other soon."""

PASSES: Final = {
    "hash of the payload, sender": "every segment carries it",
    "ids of the segments, sender": "keccak-256 of sender, wrap time and content",
    "ids of the segments, receiver": "a forged one is refused",
    "hash of the payload, receiver": "what was put together is checked",
    "encryption": "AES-256-GCM of each segment",
    "decryption": "and of each again",
}
"""What cannot be left out, by name, and why: four keccak-256 passes over all bytes, two of AES-GCM."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What one size of filter reached, CPU seconds of each round.

    Attributes:
        bloom_capacity: Of the filter.
        segments: What the payload is cut into.
        octets: Bytes of the payload.
        passes: Of each pass of the floor, by name.
        pipeline: All the way.
    """

    bloom_capacity: int
    segments: int
    octets: int
    passes: dict[str, list[float]]
    pipeline: list[float]

    @property
    def floor(self) -> list[float]:
        """All passes together."""
        return [sum(found) for found in zip(*self.passes.values(), strict=True)]


class Floor:
    """What cannot be left out, over the segments of one payload.

    Args:
        payload: The payload.
        encryption: What each segment is encrypted with.
        bloom_capacity: What the size of a segment depends on.
    """

    def __init__(self, payload: bytes, encryption: AesGcmEncryption, bloom_capacity: int) -> None:
        segmenter = Segmenter(
            channel_id="payload",
            sender_id="alice",
            content_topic=TOPIC,
            segmentation=SegmentationConfig(),
            sds=SdsConfig(bloom_capacity=bloom_capacity),
            max_message_bytes=DEFAULT_MAX_MESSAGE_BYTES,
            encryption_overhead=encryption.overhead_bytes,
        )
        self.payload = payload
        self.contents = segmenter.split(payload, WRAP_TIME_NS)
        self.encryption = encryption
        self.encrypted = [encryption.encrypt(content) for content in self.contents]

    def run(self) -> list[float]:
        """Do all passes; return the CPU seconds of each, in the order of ``PASSES``."""
        works: tuple[Callable[[], object], ...] = (
            lambda: keccak256(self.payload),
            self.name_all,
            self.name_all,
            lambda: keccak256(self.payload),
            lambda: [self.encryption.encrypt(content) for content in self.contents],
            lambda: [self.encryption.decrypt(data) for data in self.encrypted],
        )
        return [cpu_seconds(work) for work in works]

    def name_all(self) -> list[str]:
        """Return the message ids of all segments."""
        return [salted_id("alice", WRAP_TIME_NS, content) for content in self.contents]


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU seconds of one run."""
    began = time.process_time()
    work()
    return time.process_time() - began


async def carry(
    sender: ReliableChannel, receiver: ReliableChannel, payload: bytes
) -> tuple[float, int]:
    """Send a payload, and wait until the sender knows that it was delivered.

    Returns:
        The CPU seconds until its delivery, and how many segments it made.

    Raises:
        RuntimeError: Something else was delivered.
        TimeoutError: Nothing was.
    """
    async with asyncio.timeout(WAIT_SEC), receiver.events() as events:
        began = time.process_time()
        request_id = await sender.send(payload)
        event = await anext(events)
        while not isinstance(event, MessageReceivedEvent):
            event = await anext(events)
        seconds = time.process_time() - began
        if event.message != payload:
            text = f"{len(payload)} bytes were not delivered as they were sent"
            raise RuntimeError(text)
        segments = len(sender.request_status(request_id).segments)
        await sender.wait_delivered(request_id)
    return seconds, segments


async def measure(bloom_capacity: int, octets: int = OCTETS, rounds: int = ROUNDS) -> Speed:
    """Measure a payload of random bytes, another one in each round; the first round is not counted.

    Args:
        bloom_capacity: Of the filter in each message.
        octets: Bytes of the payload.
        rounds: How often floor and pipeline take their turn.
    """
    generator = random.Random(1)
    encryption = AesGcmEncryption(AesGcmEncryption.generate_key())
    floor = Floor(generator.randbytes(octets), encryption, bloom_capacity)
    sds = SdsConfig(
        bloom_capacity=bloom_capacity, acknowledgement_timeout_ms=ACKNOWLEDGEMENT_TIMEOUT_MS
    )
    config = NodeConfig(transport=f"memory://payload-{bloom_capacity}")
    passes, pipeline, segments = [], [], 0
    async with AsyncExitStack() as stack:
        channels = []
        for who in ("alice", "bob"):
            node = await create_node(config)
            stack.push_async_callback(node.close)
            channel = await create_reliable_channel(
                node, "payload", TOPIC, who, encryption, sds_config=sds
            )
            channels.append(await stack.enter_async_context(channel))
        for number in range(rounds + 1):
            found = floor.run()
            sender, receiver = channels
            seconds, segments = await carry(sender, receiver, generator.randbytes(octets))
            if number:
                passes.append(found)
                pipeline.append(seconds)
    return Speed(
        bloom_capacity=bloom_capacity,
        segments=segments,
        octets=octets,
        passes={
            name: list(found) for name, found in zip(PASSES, zip(*passes, strict=True), strict=True)
        },
        pipeline=pipeline,
    )


def figures(speed: Speed) -> Iterator[Figure]:
    """Give what one size of filter reached, and each pass of the floor."""
    name = f"filter for {speed.bloom_capacity:,}, {speed.segments} segments"
    unit, amount = "MB a CPU second", speed.octets / MILLION
    yield rate_figure(
        f"{name}: all the way",
        unit,
        amount,
        speed.pipeline,
        peer="all passes",
        peer_seconds=speed.floor,
    )
    for work, seconds in speed.passes.items():
        yield rate_figure(f"{name}: {work}", unit, amount, seconds)


def tables() -> Iterator[Part]:
    """Measure each size of filter."""
    found = [
        item
        for capacity in BLOOM_CAPACITIES
        for item in figures(asyncio.run(measure(capacity, OCTETS, ROUNDS)))
    ]
    yield Table(
        f"{OCTETS / MILLION:g} MB all the way, beside the passes that nobody can leave out",
        tuple(found),
        tuple(f"{name}: {why}" for name, why in PASSES.items()),
    )
