"""Laws of segmentation: whatever the network does within parity, the payload comes out once; nothing is too large.

Spec: LIP-243 (Segmentation); RELIABLE-CHANNEL-API, Outgoing message processing, step 1.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.segmentation import Segmenter, check_segment, is_segmented
from reliable_channel.core.wire import MAX_RATE_LIMIT_PROOF_BYTES, SegmentMessage, WakuMessage
from reliable_channel.errors import ConfigurationError
from reliable_channel.events import MessageReceivedEvent
from tests.support.builders import (
    ALICE,
    BOB,
    CHANNEL,
    NO_FILTER,
    NOW,
    NOW_MS,
    TOPIC,
    Participant,
    Transmission,
    content_message,
    hash_of,
    messages_of,
)

# How long one example takes says more about the machine than about the code.
fewer = settings(max_examples=60)

LIMIT = 150 * 1024


@dataclass(frozen=True)
class Journey:
    """A payload, how it is cut, and what the network does to its segments."""

    size: int
    chunk: int
    rate: float
    code: str
    ephemeral: bool
    seed: int

    def payload(self) -> bytes:
        """Return bytes that end in zeros now and then."""
        rng = random.Random(self.seed)
        zeros = rng.choice([0, 0, 1, self.size // 2])
        return rng.randbytes(self.size - zeros) + bytes(zeros)

    def config(self) -> SegmentationConfig:
        return SegmentationConfig(
            segment_size_bytes=self.chunk,
            enable_reed_solomon=self.rate > 0,
            parity_rate=self.rate,
            parity_code="leopard" if self.code == "leopard" else "reedsolo",
        )

    def counts(self) -> tuple[int, int]:
        """Return how many data and parity segments there are."""
        data = -(-self.size // self.chunk)
        scaled = round(self.rate * 1_000_000)
        return data, min(data, -(-scaled * data // 1_000_000)) if data > 1 else 0

    def arrivals(self, lost: int) -> list[int]:
        """Return the places of what arrives: so many lost, some twice, in any order, one of data at least."""
        data, parity = self.counts()
        rng = random.Random(~self.seed)
        kept = rng.sample(range(data + parity), data + parity - lost)
        if min(kept) >= data:
            kept[0] = rng.randrange(data)
        arrived = kept + [rng.choice(kept) for _ in range(rng.randrange(4))]
        rng.shuffle(arrived)
        return arrived


JOURNEYS = st.builds(
    Journey,
    size=st.one_of(st.integers(1, 64 * 16), st.sampled_from([64, 65, 128, 1024])),
    chunk=st.sampled_from([64, 64, 128, 192]),
    rate=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0]),
    code=st.sampled_from(["reedsolo", "leopard"]),
    ephemeral=st.booleans(),
    seed=st.integers(0, 2**32),
)


def sent_by(journey: Journey) -> tuple[Participant, list[Transmission]]:
    """Return a sender and the transmissions of its payload: data in order, then parity."""
    sender = Participant(ALICE, sds=NO_FILTER, segmentation=journey.config())
    request_id = sender.send(journey.payload(), ephemeral=journey.ephemeral)
    sender.machine.queue.window = 256
    sender.machine.outgoing.pump(NOW)
    sender.carry_out(sender.machine.conclude(NOW))
    data, parity = journey.counts()
    assert sender.sent_since(0) == [
        f"{request_id}:{number}" for number in range(1, data + parity + 1)
    ]
    return sender, sender.transmissions


@given(JOURNEYS, st.data())
@example(Journey(1, 64, 0.0, "reedsolo", False, 0), None)
@example(Journey(64, 64, 0.5, "leopard", False, 0), None)
def test_any_loss_within_parity_any_order_and_duplicates_give_the_payload_once(
    journey: Journey, data: st.DataObject | None
) -> None:
    sender, transmissions = sent_by(journey)
    most = journey.counts()[1]
    lost = data.draw(st.integers(0, most)) if data else most
    receiver = Participant(BOB, sds=NO_FILTER)
    for place in journey.arrivals(lost):
        receiver.receive(transmissions[place].data)
    (event,) = receiver.of(MessageReceivedEvent)
    assert event.message == journey.payload()
    assert event.ephemeral is journey.ephemeral
    assert receiver.dropped() == {}
    assert receiver.status().incomplete_payloads == 0
    ids = [item.message.message_id for item in transmissions[: journey.counts()[0]]]
    if not journey.ephemeral:
        assert event.message_id == ids[0]
        assert set(receiver.machine.state.log.known) == set(ids)
        assert set(receiver.machine.state.debt) == set(ids)
    assert sender.status().dropped == {}


@given(JOURNEYS)
def test_fewer_segments_than_data_give_nothing(journey: Journey) -> None:
    _, transmissions = sent_by(journey)
    receiver = Participant(BOB, sds=NO_FILTER)
    distinct = list(dict.fromkeys(journey.arrivals(0)))
    for place in distinct[: journey.counts()[0] - 1]:
        receiver.receive(transmissions[place].data)
    assert receiver.received == []


@given(JOURNEYS)
def test_peers_that_write_neither_length_nor_wrap_time_are_understood(journey: Journey) -> None:
    """WIRE: cut to the length, or, where a sender gave none, cut trailing zero bytes."""
    data, parity = journey.counts()
    messages = [
        replace(message, causal_history=())
        for message in messages_of(
            journey.payload(),
            chunk=journey.chunk,
            parity_count=parity,
            code=journey.code,
            wrap_time_ns=0,
            with_length=False,
        )
    ]
    assert len(messages) == data + parity
    receiver = Participant(BOB, sds=NO_FILTER)
    for place in journey.arrivals(parity):
        receiver.receive(messages[place])
    assert receiver.received == [journey.payload()]


@given(
    payload=st.binary(min_size=1, max_size=5000),
    segment_size_bytes=st.integers(64, 1500),
    rate=st.floats(0, 1),
    wrap_time_ns=st.integers(0, 2**64 - 1),
)
def test_splitting_and_joining_is_the_identity(
    payload: bytes, segment_size_bytes: int, rate: float, wrap_time_ns: int
) -> None:
    segmenter = Segmenter(
        channel_id=CHANNEL,
        sender_id=ALICE,
        content_topic=TOPIC,
        segmentation=SegmentationConfig(
            segment_size_bytes=segment_size_bytes, enable_reed_solomon=True, parity_rate=rate
        ),
        sds=NO_FILTER,
        max_message_bytes=LIMIT,
        encryption_overhead=0,
    )
    segments = [SegmentMessage.decode(item) for item in segmenter.split(payload, wrap_time_ns)]
    assert b"".join(segment.payload for segment in segments) == payload
    plan = segmenter.plan(len(payload))
    assert plan.chunk_bytes % 64 == 0
    assert plan.data_count == len(segments)
    assert plan.data_count + plan.parity_count <= 255
    assert plan.parity_count <= plan.data_count
    for index, segment in enumerate(segments):
        assert is_segmented(segment)
        assert segment.data_segment_index == index
        check_segment(segment, 256, LIMIT)


# --- The network's limit -------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What decides the size of messages."""

    causal_history_size: int
    bloom_capacity: int
    bloom_error_rate: float
    channel_id: str
    sender_id: str
    content_topic: str
    overhead: int
    rate: float
    code: str
    concurrent: int

    def participant(self) -> Participant:
        return Participant(
            self.sender_id,
            channel_id=self.channel_id,
            content_topic=self.content_topic,
            sds=SdsConfig(
                causal_history_size=self.causal_history_size,
                bloom_capacity=self.bloom_capacity,
                bloom_error_rate=self.bloom_error_rate,
            ),
            segmentation=SegmentationConfig(
                segment_size_bytes=1 << 20,
                enable_reed_solomon=self.rate > 0,
                parity_rate=self.rate,
                parity_code="leopard" if self.code == "leopard" else "reedsolo",
            ),
            encryption_overhead=self.overhead,
        )

    def largest(self, transmission: Transmission) -> int:
        """Return the size of the largest WakuMessage that a transmission can become."""
        message = WakuMessage(
            payload=transmission.data + bytes(self.overhead),
            content_topic=self.content_topic,
            version=(1 << 32) - 1,
            timestamp=-(1 << 63),
            meta=bytes(64),
            rate_limit_proof=bytes(MAX_RATE_LIMIT_PROOF_BYTES),
            ephemeral=True,
        )
        return len(message.encode())


NAMES = st.sampled_from(["a", "room", "x" * 255, "€" * 85])

SETTINGS = st.builds(
    Setting,
    causal_history_size=st.sampled_from([1, 2, 10, 64]),
    bloom_capacity=st.sampled_from([0, 1, 100, 10_000, 40_000, 60_000, 65_000]),
    bloom_error_rate=st.sampled_from([0.001, 0.01]),
    channel_id=NAMES,
    sender_id=NAMES,
    content_topic=st.sampled_from([TOPIC, "/app/1/" + "x" * 500 + "/proto"]),
    overhead=st.sampled_from([0, 28, 1024, 20_000]),
    rate=st.sampled_from([0.0, 0.125, 1.0]),
    code=st.sampled_from(["reedsolo", "leopard"]),
    concurrent=st.sampled_from([0, 1, 20, 70]),
)

WIDEST = Setting(
    64, 40_000, 0.001, "€" * 85, "x" * 255, "/app/1/" + "x" * 500 + "/proto", 28, 1.0, "leopard", 70
)


@given(SETTINGS, st.sampled_from([-1, 0, 1]), st.integers(1, 2))
@example(WIDEST, 0, 2)
@example(replace(WIDEST, bloom_capacity=62_000, causal_history_size=2), 0, 1)
@fewer
def test_nothing_that_goes_out_is_larger_than_the_network_takes(
    setting: Setting, beyond: int, chunks: int
) -> None:
    """At most 150 KiB encoded: segments, parity, ephemerals, syncs, under every setting."""
    try:
        member = setting.participant()
    except ConfigurationError:
        return  # the headers leave no room, and that is said at once
    for number in range(setting.concurrent):
        message = content_message(
            b"hello",
            sender_id=f"{number:03}" + "€" * 84,
            message_id=f"{number:03}" + "m" * 253,
            lamport=NOW_MS + number,
            channel_id=setting.channel_id,
        )
        member.receive(message, hint=hash_of(message.encode()))
    chunk = member.machine.outgoing.segmenter.chunk_bytes
    size = min(max(1, chunks * chunk + beyond), 400_000)
    member.advance(3 * 10**9)
    for ephemeral in (False, True):
        member.send(b"x" * size, ephemeral=ephemeral)
        member.published()
    member.send(b"x" * size)
    member.published()
    member.advance(60 * 10**9)
    kinds = {item.segment_id.startswith("sync:") for item in member.transmissions}
    assert False in kinds
    assert max(map(setting.largest, member.transmissions)) <= LIMIT
