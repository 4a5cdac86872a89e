"""How many messages a second of CPU one machine sends and receives.

One sender, one receiver, payloads of 1 KiB, default bloom filter, causal history 2; the effects are carried out by
nobody, so this is the protocol alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from reliable_channel.config import SdsConfig
from reliable_channel.core.effects import Effects
from reliable_channel.core.machine import ChannelMachine
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
    """

    messages: int
    sent_per_second: float
    received_per_second: float


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
    return Speed(messages, messages / send_seconds, messages / receive_seconds)


def turn(receiver: ChannelMachine, now: int) -> Iterator[Effects]:
    """Let the receiver do what is due."""
    deadline = receiver.next_deadline()
    if deadline is not None and deadline <= now:
        yield receiver.tick(now)
