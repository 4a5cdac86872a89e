"""How many messages a second of CPU machines send, receive and acknowledge; the floor takes its turns beside them.

Payloads of 1 KiB, default bloom filter, causal history 2, a message every 50 ms of virtual time, so that
acknowledgements keep up; the effects are carried out by nobody, so this is the protocol alone. The floor is what no
implementation can leave out: hashing, encoding, and the bits of the bloom filter.
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import Figure, Part, Table, figure, rates
from reliable_channel.config import SdsConfig
from reliable_channel.core.effects import Effects, Publish
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.machine import ChannelMachine
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.state import salted_id
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage, content_suffix
from reliable_channel.events import MessageDeliveredEvent, MessageReceivedEvent
from reliable_channel.types import MS, SECOND

SIZES: Final = (2_000, 10_000, 100_000)
PARTICIPANTS: Final = (1, 10, 50)
GROUP_MESSAGES: Final = 2_000
TURN: Final = 500
GROUP_TURN: Final = 200

START_NS: Final = 1_700_000_000 * SECOND
MESSAGE_DISTANCE_NS: Final = 50 * MS
HASH: Final = bytes(32)
PAYLOAD_BYTES: Final = 1024

FLOOR: Final = "floor"
RATE: Final = "a CPU second"


@dataclass(frozen=True, slots=True)
class Turn:
    """What some messages in a row took, CPU seconds.

    Attributes:
        messages: How many were sent.
        receptions: How often one was received and delivered.
        acknowledged: How many requests were acknowledged by syncs.
        send: Of all sends, each with its report.
        receive: Of all receptions.
        acknowledge: Of making the syncs, and of taking them in.
    """

    messages: int
    receptions: int
    acknowledged: int
    send: float
    receive: float
    acknowledge: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """Ours and the floor, turn by turn.

    Attributes:
        ours: Our turns.
        floor: The floor's of the same rounds.
        peak_bytes: Most memory that the process has ever had, both ends together.
    """

    ours: tuple[Turn, ...]
    floor: tuple[Turn, ...]
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


class Exchange:
    """Machines that send in turn; what is due is done after each message, and nothing is lost.

    Args:
        senders: How many send.
        is_group: Whether each hears all others; else one more machine hears them, and they hear only what it says.
        payload_bytes: Size of each message.
    """

    def __init__(
        self, senders: int = 1, *, is_group: bool = False, payload_bytes: int = PAYLOAD_BYTES
    ) -> None:
        config = SdsConfig(max_outgoing_messages=1 << 20, max_in_flight=1024)
        self.senders = [machine(f"alice{number}", config) for number in range(senders)]
        self.receivers = self.senders if is_group else [machine("bob", config)]
        self.machines = self.senders if is_group else [*self.senders, *self.receivers]
        self.payload_bytes = payload_bytes
        self.sent = 0
        self.delivered = 0
        self._receptions = 0
        self._acknowledged = 0
        self._seconds = [0.0, 0.0, 0.0]

    def turn(self, messages: int) -> Turn:
        """Send, receive and acknowledge.

        Raises:
            RuntimeError: Not all was delivered.
        """
        self._receptions = self._acknowledged = 0
        self._seconds = [0.0, 0.0, 0.0]
        before = self.delivered
        for _ in range(messages):
            self._message()
        if self.delivered - before != self._receptions:
            text = f"{self.delivered - before} of {self._receptions} messages delivered"
            raise RuntimeError(text)
        return Turn(messages, self._receptions, self._acknowledged, *self._seconds)

    def _message(self) -> None:
        now = START_NS + self.sent * MESSAGE_DISTANCE_NS
        sender = self.senders[self.sent % len(self.senders)]
        payload = self.sent.to_bytes(8, "big") * (self.payload_bytes // 8)
        self.sent += 1
        began = time.process_time()
        _, effects = sender.send(payload, now)
        for publish in effects.publishes:
            sender.published(publish.segment_id, HASH, now)
        self._seconds[0] += time.process_time() - began
        receivers = [receiver for receiver in self.receivers if receiver is not sender]
        self._receptions += len(receivers)
        began = time.process_time()
        answers = [
            (receiver, receiver.receive(publish.data, HASH, now))
            for receiver in receivers
            for publish in effects.publishes
        ]
        self._seconds[1] += time.process_time() - began
        for _, answer in answers:
            self.delivered += sum(
                isinstance(event, MessageReceivedEvent) for event in answer.events
            )
        self._acknowledge(now, answers)

    def _acknowledge(self, now: int, answers: list[tuple[ChannelMachine, Effects]]) -> None:
        """Do what is due, and let everybody hear what is said."""
        due = [item for item in self.machines if (item.next_deadline() or now + 1) <= now]
        began = time.process_time()
        answers += [(item, effects) for item in due for effects in turn(item, now)]
        for who, answer in answers:
            for publish in answer.publishes:
                who.published(publish.segment_id, HASH, now)
                self._hear(who, publish, now)
        self._seconds[2] += time.process_time() - began

    def _hear(self, who: ChannelMachine, publish: Publish, now: int) -> None:
        for other in self.machines:
            if other is not who:
                events = other.receive(publish.data, HASH, now).events
                self._acknowledged += sum(isinstance(one, MessageDeliveredEvent) for one in events)


def turn(receiver: ChannelMachine, now: int) -> Iterator[Effects]:
    """Let a machine do what is due."""
    deadline = receiver.next_deadline()
    if deadline is not None and deadline <= now:
        yield receiver.tick(now)


class Floor:
    """What no implementation can leave out, with the same messages and nothing else.

    Args:
        payload_bytes: Size of each message.
    """

    def __init__(self, payload_bytes: int = PAYLOAD_BYTES) -> None:
        config = SdsConfig()
        self.payload_bytes = payload_bytes
        self.told = BloomFilter(config.bloom_capacity, config.bloom_error_rate)
        self.heard = BloomFilter(config.bloom_capacity, config.bloom_error_rate)
        self.history: tuple[HistoryEntry, ...] = ()
        self.sent = 0

    def turn(self, messages: int) -> Turn:
        """Make and read so many messages."""
        send = receive = 0.0
        for _ in range(messages):
            began = time.process_time()
            data = self._send()
            send += time.process_time() - began
            began = time.process_time()
            message_id = self._receive(data)
            receive += time.process_time() - began
            self.history = (*self.history, HistoryEntry(message_id, HASH, "alice"))[-2:]
        return Turn(messages, messages, 0, send, receive)

    def _send(self) -> bytes:
        now = START_NS + self.sent * MESSAGE_DISTANCE_NS
        payload = self.sent.to_bytes(8, "big") * (self.payload_bytes // 8)
        self.sent += 1
        content = SegmentMessage(
            entire_message_hash=keccak256(payload),
            data_segment_count=1,
            payload=payload,
            original_payload_length=len(payload),
            wrap_time_ns=now,
        ).encode()
        message_id = salted_id("alice", now, content)
        self.told.add(message_id)
        header = SdsMessage("alice", message_id, "bench", now, self.history, self.told.to_bytes())
        return header.encode() + content_suffix(content)

    def _receive(self, data: bytes) -> str:
        message = SdsMessage.decode(data)
        content = message.content or b""
        segment = SegmentMessage.decode(content)
        self.heard.add(salted_id(message.sender_id, segment.wrap_time_ns, content))
        if keccak256(segment.payload) != segment.entire_message_hash:
            text = "the floor's own message is wrong"
            raise RuntimeError(text)
        return message.message_id


# -- measuring ------------------------------------------------------------------------------------


def measure(messages: int, turn_messages: int = TURN) -> Run:
    """Send that many messages from one machine to another, in turns with the floor.

    Args:
        messages: How many.
        turn_messages: In a turn.
    """
    ours, floor = Exchange(), Floor()
    counts = turn_sizes(messages, turn_messages)
    turns = [(ours.turn(count), floor.turn(count)) for count in counts]
    mine, others = zip(*turns, strict=True)
    return Run(mine, others, peak_bytes())


def measure_afresh(messages: int) -> Run:
    """Measure in a process of its own: its memory is that of these messages."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(measure, messages).result()


def measure_groups(
    participants: Sequence[int], messages: int, turn_messages: int = GROUP_TURN
) -> dict[tuple[int, bool], list[Turn]]:
    """Let senders of each number take turns, heard by one receiver, and, where there are several, by all.

    Args:
        participants: How many send.
        messages: Of all of them.
        turn_messages: In a turn.

    Returns:
        The turns of each, by how many send, and whether all hear each other.
    """
    kinds = [(count, is_group) for is_group in (False, True) for count in participants]
    found = {
        (count, is_group): Exchange(count, is_group=is_group)
        for count, is_group in kinds
        if count > 1 or not is_group
    }
    turns: dict[tuple[int, bool], list[Turn]] = {kind: [] for kind in found}
    for size in turn_sizes(messages, turn_messages):
        for kind, exchange in found.items():
            turns[kind].append(exchange.turn(size))
    return turns


def turn_sizes(messages: int, turn_messages: int) -> list[int]:
    """Return the sizes of turns that are so many messages together."""
    return [
        min(turn_messages, messages - start) for start in range(0, messages, max(1, turn_messages))
    ]


def peak_bytes() -> int:
    """Return the most memory that this process has ever had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


# -- figures --------------------------------------------------------------------------------------


def sends(turns: Sequence[Turn]) -> list[float]:
    """Return the messages a CPU second that were sent in each turn."""
    return [item.messages / max(item.send, 1e-9) for item in turns]


def receptions(turns: Sequence[Turn]) -> list[float]:
    """Return the receptions with delivery a CPU second in each turn."""
    return [item.receptions / max(item.receive, 1e-9) for item in turns]


def acknowledgements(turns: Sequence[Turn]) -> list[float]:
    """Return the acknowledged requests a CPU second, over all turns together: a turn may have no sync."""
    seconds = sum(item.acknowledge for item in turns)
    return rates(sum(item.acknowledged for item in turns), [seconds])


def size_figures(messages: int, run: Run) -> list[Figure]:
    """Return what one number of messages reached, beside the floor."""
    name = f"{messages:,} messages"
    return [
        figure(f"{name}: send", RATE, sends(run.ours), peer=FLOOR, theirs=sends(run.floor)),
        figure(
            f"{name}: receive with delivery",
            RATE,
            receptions(run.ours),
            peer=FLOOR,
            theirs=receptions(run.floor),
        ),
        figure(f"{name}: acknowledge", RATE, acknowledgements(run.ours)),
        figure(f"{name}: peak memory", "MB", [run.peak_bytes / 1e6], better="less"),
    ]


def group_figures(found: dict[tuple[int, bool], list[Turn]]) -> Iterator[Figure]:
    """Give what each number of participants reached, beside one sender and one receiver."""
    alone = found[1, False]
    for (count, is_group), turns in found.items():
        name = f"{count} who all hear each other" if is_group else f"{count} heard by one"
        peer = "1 heard by one" if turns is not alone else ""
        yield figure(
            f"{name}: send", RATE, sends(turns), peer=peer, theirs=sends(alone) if peer else ()
        )
        yield figure(
            f"{name}: receive with delivery",
            RATE,
            receptions(turns),
            peer=peer,
            theirs=receptions(alone) if peer else (),
        )
        if not is_group:
            yield figure(f"{name}: acknowledge", RATE, acknowledgements(turns))


def tables() -> Iterator[Part]:
    """Measure all sizes, and all numbers of participants."""
    figures = [item for size in SIZES for item in size_figures(size, measure_afresh(size))]
    yield Table(
        "One sender, one receiver, 1 KiB, default bloom filter, causal history 2",
        tuple(figures),
        (
            f"median (smallest–largest) of turns of {TURN} messages, with the floor in between",
            "floor: hashing, encoding and filter alone; acknowledge: all that syncs cost both ends, a request",
        ),
    )
    found = measure_groups(PARTICIPANTS, GROUP_MESSAGES)
    yield Table(
        f"Participants: {GROUP_MESSAGES:,} messages of 1 KiB, all in turns of {GROUP_TURN}",
        tuple(group_figures(found)),
        ("a reception is one message at one receiver",),
    )
