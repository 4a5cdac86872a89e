"""The parts that every message goes through, beside the library that does the work: what our own code adds.

Hashing beside plain pycryptodome; the bloom filter beside its two mmh3 hashes alone, and its bytes beside one copy;
both wire codecs beside the protobuf runtime that makes or reads the same bytes into its own message. All take turns in
one process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import mmh3
from Crypto.Hash import keccak

from benchmarks.figures import Figure, Part, Table, figure
from benchmarks.rounds import Work, timed
from reliable_channel.config import SdsConfig
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.sds.bloom import BloomFilter
from reliable_channel.core.wire import HistoryEntry, SdsMessage, SegmentMessage
from reliable_channel.core.wire.proto import sds_pb2, segment_pb2

ROUNDS: Final = 7
LEAST_SECONDS: Final = 0.02

HASHED_BYTES: Final = (64, 1_024, 4_096, 16_384, 102_400)
FILTERS: Final = (10_000, 500)
PAYLOAD_BYTES: Final = 1_024
MESSAGE_ID: Final = "0x" + "3f" * 32
START_NS: Final = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that is measured.

    Attributes:
        name: Says what.
        ours: Does it.
        peer: Who does the same, or the part of it that cannot be left out.
        theirs: Does that.
    """

    name: str
    ours: Work
    peer: str
    theirs: Work


def hashing() -> Iterator[Case]:
    """Give keccak-256 of several sizes."""
    for size in HASHED_BYTES:
        data = random.Random(size).randbytes(size)

        def ours(data: bytes = data) -> bytes:
            return keccak256(data)

        def plain(data: bytes = data) -> bytes:
            return keccak.new(data=data, digest_bits=256).digest()

        check(ours() == plain(), "the hashes")
        yield Case(f"keccak-256 of {size:,} bytes", ours, "pycryptodome", plain)


def filters() -> Iterator[Case]:
    """Give adding, looking up and encoding of bloom filters that are half full."""
    for capacity in FILTERS:
        bloom = BloomFilter(capacity, SdsConfig().bloom_error_rate)
        bloom.add_many([f"id {number}" for number in range(capacity // 2)])
        encoded = bytearray(bloom.to_bytes())
        bloom.add(MESSAGE_ID)

        def hashes() -> tuple[int, int]:
            return mmh3.hash(MESSAGE_ID), mmh3.hash(MESSAGE_ID + " b")

        def add(bloom: BloomFilter = bloom) -> None:
            bloom.add(MESSAGE_ID)

        def look_up(bloom: BloomFilter = bloom) -> bool:
            return MESSAGE_ID in bloom

        def encode(bloom: BloomFilter = bloom) -> bytes:
            return bloom.to_bytes()

        def copy(data: bytearray = encoded) -> bytes:
            return bytes(data)

        check(look_up(), "the filters")
        name = f"bloom filter for {capacity:,}"
        yield Case(f"{name}: add", add, "mmh3 hashes", hashes)
        yield Case(f"{name}: look up", look_up, "mmh3 hashes", hashes)
        yield Case(f"{name}: to bytes", encode, "a copy", copy)


def codecs() -> Iterator[Case]:
    """Give encoding and decoding of a segment, and of SDS messages with it, with and without a filter."""
    segment = SegmentMessage(
        entire_message_hash=bytes(range(32)),
        data_segment_count=1,
        payload=random.Random(1).randbytes(PAYLOAD_BYTES),
        original_payload_length=PAYLOAD_BYTES,
        wrap_time_ns=START_NS,
    )
    content = segment.encode()
    yield from codec("segment", segment, segment_pb2.SegmentMessage, SegmentMessage)
    bloom = BloomFilter(FILTERS[0], SdsConfig().bloom_error_rate).to_bytes()
    for name, carried in (("with a filter", bloom), ("without", None)):
        history = tuple(HistoryEntry(MESSAGE_ID, bytes(32), "alice") for _ in range(2))
        message = SdsMessage("bob", MESSAGE_ID, "bench", START_NS, history, carried, (), content)
        yield from codec(f"SDS message {name}", message, sds_pb2.SdsMessage, SdsMessage)


def codec(
    name: str,
    value: SdsMessage | SegmentMessage,
    runtime: type[sds_pb2.SdsMessage] | type[segment_pb2.SegmentMessage],
    kind: type[SdsMessage] | type[SegmentMessage],
) -> Iterator[Case]:
    """Give encoding and decoding of one message beside the protobuf runtime."""
    data = value.encode()
    parsed = runtime.FromString(data)
    check(kind.decode(data) == value and parsed.SerializeToString() == data, name)
    yield Case(f"{name}: encode", value.encode, "protobuf", parsed.SerializeToString)
    yield Case(
        f"{name}: decode", lambda: kind.decode(data), "protobuf", lambda: runtime.FromString(data)
    )


def check(is_right: bool, what: str) -> None:
    """Refuse to time what does not agree with the peer."""
    if not is_right:
        text = f"{what} do not agree with the peer"
        raise RuntimeError(text)


def measured(case: Case, rounds: int, least_seconds: float) -> Figure:
    """Return what one case takes, beside its peer."""
    works: Mapping[str, Work] = {"ours": case.ours, "theirs": case.theirs}
    found = timed(works, rounds, least_seconds)
    return figure(
        case.name,
        "µs",
        [1e6 * seconds for seconds in found["ours"]],
        better="less",
        peer=case.peer,
        theirs=[1e6 * seconds for seconds in found["theirs"]],
    )


def tables() -> Iterator[Part]:
    """Measure all of them."""
    for title, cases in (
        ("Hashing beside pycryptodome", hashing()),
        ("The bloom filter beside what it cannot leave out", filters()),
        ("The wire codecs beside the protobuf runtime", codecs()),
    ):
        figures = tuple(measured(case, ROUNDS, LEAST_SECONDS) for case in cases)
        notes = ("the runtime's own message is there already, and stays",) * ("wire" in title)
        yield Table(title, figures, notes)
