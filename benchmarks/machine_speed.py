"""How many messages a second of CPU one machine sends and receives.

One sender, one receiver, payloads of 1 KiB, default bloom filter, causal history 2; the effects are carried out by
nobody, so this is the protocol alone. The floor is what no implementation can leave out: hashing, encoding, and the
bits of the bloom filter.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from reliable_channel.config import SdsConfig
from reliable_channel.core.effects import Effects
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.state import salted_id
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage, content_suffix
from reliable_channel.events import MessageReceivedEvent
from reliable_channel.types import SECOND

START_NS = 1_700_000_000 * SECOND
MESSAGE_DISTANCE_NS = SECOND // 1000
HASH = bytes(32)


@dataclass(frozen=True, slots=True)
class Speed:
    """What one run measured.

    Attributes:
        messages: Messages sent and received.
        sent_per_second: Messages a CPU second that ``send`` and its report took.
        received_per_second: Messages a CPU second that ``receive`` with delivery took.
        peak_bytes: Most memory that the process has ever had, sender and receiver together.
    """

    messages: int
    sent_per_second: float
    received_per_second: float
    peak_bytes: int


def machine(name: str, config: SdsConfig) -> ChannelMachine:
    """Return a started machine."""
    made = ChannelMachine(
        channel_id="bench",
        sender_id=name,
        content_topic="/bench/1/speed/proto",
        now=START_NS,
        seed=1,
        sds=config,
    )
    made.start(START_NS)
    return made


def measure(messages: int, payload_bytes: int = 1024) -> Speed:
    """Send that many messages from one machine to another.

    Args:
        messages: How many.
        payload_bytes: Size of each.
    """
    config = SdsConfig(max_outgoing_messages=1 << 20, max_in_flight=1024)
    sender, receiver = machine("alice", config), machine("bob", config)
    send_seconds = receive_seconds = 0.0
    delivered = 0
    for number in range(messages):
        now = START_NS + number * MESSAGE_DISTANCE_NS
        payload = number.to_bytes(8, "big") * (payload_bytes // 8)
        began = time.process_time()
        _, effects = sender.send(payload, now)
        for publish in effects.publishes:
            sender.published(publish.segment_id, HASH, now)
        send_seconds += time.process_time() - began
        began = time.process_time()
        answers = [receiver.receive(publish.data, HASH, now) for publish in effects.publishes]
        receive_seconds += time.process_time() - began
        for answer in (*answers, *turn(receiver, now)):
            delivered += sum(isinstance(event, MessageReceivedEvent) for event in answer.events)
            for publish in answer.publishes:
                receiver.published(publish.segment_id, HASH, now)
                sender.receive(publish.data, HASH, now)
    if delivered != messages:
        text = f"{delivered} of {messages} messages delivered"
        raise RuntimeError(text)
    return speed(messages, send_seconds, receive_seconds)


def speed(messages: int, send_seconds: float, receive_seconds: float) -> Speed:
    """Return what was measured."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_bytes = peak if sys.platform == "darwin" else peak * 1024
    return Speed(messages, messages / send_seconds, messages / receive_seconds, peak_bytes)


def measure_afresh(messages: int) -> Speed:
    """Measure in a process of its own: its memory is that of these messages."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, messages).result()


def measure_floor(messages: int, payload_bytes: int = 1024) -> Speed:
    """Do what no implementation can leave out, with the same messages and nothing else.

    Args:
        messages: How many.
        payload_bytes: Size of each.
    """
    config = SdsConfig()
    sent = BloomFilter(config.bloom_capacity, config.bloom_error_rate)
    heard = BloomFilter(config.bloom_capacity, config.bloom_error_rate)
    history: tuple[HistoryEntry, ...] = ()
    send_seconds = receive_seconds = 0.0
    for number in range(messages):
        now = START_NS + number * MESSAGE_DISTANCE_NS
        payload = number.to_bytes(8, "big") * (payload_bytes // 8)
        began = time.process_time()
        content = SegmentMessage(
            entire_message_hash=keccak256(payload),
            data_segment_count=1,
            payload=payload,
            original_payload_length=len(payload),
            wrap_time_ns=now,
        ).encode()
        message_id = salted_id("alice", now, content)
        sent.add(message_id)
        header = SdsMessage("alice", message_id, "bench", now, history, sent.to_bytes()).encode()
        data = header + content_suffix(content)
        send_seconds += time.process_time() - began
        began = time.process_time()
        message = SdsMessage.decode(data)
        segment = SegmentMessage.decode(message.content or b"")
        heard.add(salted_id(message.sender_id, segment.wrap_time_ns, message.content or b""))
        matches = keccak256(segment.payload) == segment.entire_message_hash
        receive_seconds += time.process_time() - began
        assert matches
        history = (*history, HistoryEntry(message_id, HASH, "alice"))[-2:]
    return speed(messages, send_seconds, receive_seconds)


def turn(receiver: ChannelMachine, now: int) -> Iterator[Effects]:
    """Let the receiver do what is due."""
    deadline = receiver.next_deadline()
    if deadline is not None and deadline <= now:
        yield receiver.tick(now)
