"""How fast payloads become segments and segments payloads, beside one keccak-256 pass over the same bytes.

That pass is inherent: each segment names the hash of the whole payload, and whoever has put a payload together checks
it. Message ids are not counted; they are of the messages, not of the segments. All take turns in one process.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from benchmarks.figures import MILLION, Figure, Part, Table, rate_figure
from benchmarks.rounds import Work, timed
from reliable_channel.config import SdsConfig, SegmentationConfig
from reliable_channel.core.assembly import assemble
from reliable_channel.core.hashing import keccak256
from reliable_channel.core.machine import DEFAULT_MAX_MESSAGE_BYTES
from reliable_channel.core.reassembly import Reassembler
from reliable_channel.core.segmentation import Segmenter
from reliable_channel.core.wire import SegmentMessage

MIB: Final = 1 << 20
SIZES: Final = (1 * MIB, 10 * MIB, 20 * MIB)

HASH: Final = "keccak-256"
WORKS: Final = ("split", "split with parity", "reassembly", "reassembly with loss")

ROUNDS: Final = 7
LEAST_SECONDS: Final = 0.02
WRAP_TIME_NS: Final = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Speed:
    """What one payload size reached.

    Attributes:
        octets: Bytes of the payload.
        data_count: Data segments it makes.
        parity_count: Parity segments it makes with parity.
        seconds: CPU seconds of each round: of the hash alone and of each work.
    """

    octets: int
    data_count: int
    parity_count: int
    seconds: dict[str, list[float]]


def segmenter(*, parity: bool) -> Segmenter:
    """Return a segmenter with the default chunk."""
    return Segmenter(
        channel_id="bench",
        sender_id="alice",
        content_topic="/bench/1/speed/proto",
        segmentation=SegmentationConfig(enable_reed_solomon=parity),
        sds=SdsConfig(),
        max_message_bytes=DEFAULT_MAX_MESSAGE_BYTES,
        encryption_overhead=0,
    )


def split_with_parity(cutter: Segmenter, payload: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the encoded data segments and parity segments of a payload."""
    contents = cutter.split(payload, WRAP_TIME_NS)
    return contents, cutter.add_parity(contents)


def reassemble(contents: list[bytes]) -> bytes | None:
    """Return the payload that encoded segments make, taken one by one; None when they are too few."""
    reassembler = Reassembler(SegmentationConfig())
    for content in contents:
        segment = SegmentMessage.decode(content)
        key = reassembler.key_of("alice", segment)
        if reassembler.refusal(key, segment) is None:
            payload = reassembler.add(key, segment)
            if reassembler.is_complete(payload):
                return assemble(payload, segment)
    return None


def measure(octets: int, rounds: int = ROUNDS, least_seconds: float = LEAST_SECONDS) -> Speed:
    """Measure a payload of random bytes.

    Where segments are lost, as many data segments are as there is parity, the last ones.

    Args:
        octets: Its size, more than a chunk.
        rounds: How often all take their turn.
        least_seconds: CPU seconds of a turn, at least.
    """
    message = random.Random(1).randbytes(octets)
    plain, protected = segmenter(parity=False), segmenter(parity=True)
    contents = plain.split(message, WRAP_TIME_NS)
    data, parity = split_with_parity(protected, message)
    lossy = [*data[: len(data) - len(parity)], *parity]
    for arrived in (contents, lossy):
        if reassemble(arrived) != message:
            text = f"the segments of {octets} bytes did not make them again"
            raise RuntimeError(text)
    works: dict[str, Work] = {
        HASH: lambda: keccak256(message),
        "split": lambda: plain.split(message, WRAP_TIME_NS),
        "split with parity": lambda: split_with_parity(protected, message),
        "reassembly": lambda: reassemble(contents),
        "reassembly with loss": lambda: reassemble(lossy),
    }
    return Speed(octets, len(data), len(parity), timed(works, rounds, least_seconds))


def figures(speed: Speed) -> Iterator[Figure]:
    """Give what one payload size reached, each work beside the hash."""
    for work in WORKS:
        yield rate_figure(
            f"{speed.octets / MIB:g} MiB, {speed.data_count} + {speed.parity_count} segments: {work}",
            "MB a CPU second",
            speed.octets / MILLION,
            speed.seconds[work],
            peer=HASH,
            peer_seconds=speed.seconds[HASH],
        )


def tables() -> Iterator[Part]:
    """Measure all sizes."""
    found = [item for size in SIZES for item in figures(measure(size))]
    yield Table("Segmentation beside one keccak-256 of the payload", tuple(found))
