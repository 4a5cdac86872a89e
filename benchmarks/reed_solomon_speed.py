"""How fast parity is made and lost segments are rebuilt, beside the C library ``zfec``; and what a stranger can cost.

All take turns in one process. Decoding is the worst case: as many data shards are lost as there is parity, the last
ones, which is where Leopard's shapes beyond 256 points are slowest. ``zfec`` is another code, not interchangeable with
ours, and does the same work: any k of k + m shards give the data back. The ``reedsolo`` library is called column by
column, for scale: on a few columns, since it works through a large shape for minutes.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import reedsolo

from benchmarks.figures import MILLION, Figure, Part, Table, figure, rate_figure
from benchmarks.rounds import Work, rate, seconds_of, timed
from reliable_channel.core.assembly import assemble
from reliable_channel.core.payload import IncomingPayload, SetKey
from reliable_channel.core.reed_solomon import encode_parity, recover
from reliable_channel.core.reed_solomon.coding import MAX_SHARDS
from reliable_channel.core.segmentation import PARITY_CODES
from reliable_channel.core.wire import SegmentMessage

PEER: Final = "zfec"

INSTALL_PEER: Final = "zfec is not installed: pip install 'reliable-channel[bench]'"

CODES: Final = ("reedsolo", "leopard")

COLUMNS: Final = 16
"""Bytes of each shard that the library is called on; what it takes grows in proportion."""

ROUNDS: Final = 5
LEAST_SECONDS: Final = 0.02


class Shape(NamedTuple):
    """What is coded.

    Attributes:
        data: Data shards.
        parity: Parity shards.
        size: Bytes of each.
    """

    data: int
    parity: int
    size: int

    def __str__(self) -> str:
        size = f"{self.size // 1024} KiB" if self.size >= 1024 else f"{self.size} B"
        return f"({self.data}, {self.parity}, {size})"


SHAPES: Final = (
    Shape(8, 1, 102_400),
    Shape(32, 4, 102_400),
    Shape(40, 10, 102_400),
    Shape(226, 29, 102_400),
    Shape(10, 2, 1024),
    Shape(40, 10, 1024),
)

HOSTILE_SHAPES: Final = (
    Shape(128, 127, 102_400),
    Shape(128, 128, 102_400),
    Shape(129, 127, 102_400),
    Shape(128, 127, 64),
    Shape(128, 128, 64),
    Shape(129, 127, 64),
)
"""With most parity; one with leopard also in its large field, where all that is rebuilt then is."""


@dataclass(frozen=True, slots=True)
class Speed:
    """What one operation reached on one shape.

    Attributes:
        shape: What was coded.
        operation: ``encode`` or ``decode``.
        seconds: CPU seconds of each round by who did it: a code of ours, ``zfec`` where it is installed.
        library_rate: MB/s of the library, column by column, extrapolated from a few columns.
    """

    shape: Shape
    operation: str
    seconds: dict[str, list[float]]
    library_rate: float


@dataclass(frozen=True, slots=True)
class Harm:
    """What one received segment costs that completes a set which makes nothing.

    Attributes:
        shape: The set's.
        code: The set's.
        seconds: CPU seconds for all attempts.
        unsized_seconds: The same where the segments name no payload length and the payload seems to end in zeros.
    """

    shape: Shape
    code: str
    seconds: float
    unsized_seconds: float


def peer_library() -> Any | None:
    """Return the ``zfec`` module, or None where it is not installed."""
    try:
        import zfec
    except ImportError:
        return None
    return zfec


def random_shards(shape: Shape) -> list[bytes]:
    """Return data shards, the same each time."""
    draws = random.Random(1)
    return [draws.randbytes(shape.size) for _ in range(shape.data)]


# -- who takes part -------------------------------------------------------------------------------


def our_works(shards: list[bytes], parity_count: int, code: str) -> dict[str, Work]:
    """Return encoding and worst-case decoding with a code of ours, which are right or raise."""
    parity = encode_parity(shards, parity_count, code)
    kept = max(0, len(shards) - parity_count)
    lossy = [*shards[:kept], *([None] * (len(shards) - kept))]
    check(recover(lossy, parity, code), shards, code)
    return {
        "encode": lambda: encode_parity(shards, parity_count, code),
        "decode": lambda: recover(lossy, parity, code),
    }


def peer_works(peer: Any, shards: list[bytes], parity_count: int) -> dict[str, Work]:
    """Return the same with ``zfec``, coders made beforehand."""
    count, total = len(shards), len(shards) + parity_count
    encoder, decoder = peer.Encoder(count, total), peer.Decoder(count, total)
    wanted = list(range(count, total))
    parity = encoder.encode(shards, wanted)
    held = [*shards[: count - parity_count], *parity]
    numbers = [*range(count - parity_count), *wanted]
    check(decoder.decode(held, numbers), shards, PEER)
    return {
        "encode": lambda: encoder.encode(shards, wanted),
        "decode": lambda: decoder.decode(held, numbers),
    }


def library_works(shards: list[bytes], parity_count: int) -> dict[str, Work]:
    """Return the same with the ``reedsolo`` library, column by column."""
    count = len(shards)
    codec = reedsolo.RSCodec(parity_count, nsize=count + parity_count)
    columns = [bytes(column) for column in zip(*shards, strict=True)]
    encoded = [bytes(codec.encode(column)) for column in columns]
    lost = list(range(count - parity_count, count))
    lossy = [code[: lost[0]] + bytes(parity_count) + code[count:] for code in encoded]

    def decode() -> list[bytes]:
        return [bytes(codec.decode(column, erase_pos=lost)[0]) for column in lossy]

    check(decode(), columns, "the library")
    return {"encode": lambda: [codec.encode(column) for column in columns], "decode": decode}


def check(got: Sequence[bytes], expected: Sequence[bytes], who: str) -> None:
    """Refuse to time what does not give the data back."""
    if [bytes(item) for item in got] != list(expected):
        text = f"{who} did not give the data back"
        raise RuntimeError(text)


# -- the measurements -----------------------------------------------------------------------------


def measure(
    shape: Shape,
    *,
    peer: Any | None,
    rounds: int = ROUNDS,
    least_seconds: float = LEAST_SECONDS,
    columns: int = COLUMNS,
) -> list[Speed]:
    """Measure encoding and decoding of a shape.

    Args:
        shape: With at least as much data as parity.
        peer: The ``zfec`` module, or None.
        rounds: How often all take their turn.
        least_seconds: CPU seconds of a turn, at least.
        columns: Bytes of each shard that the library is called on.
    """
    shards = random_shards(shape)
    takers = {code: our_works(shards, shape.parity, code) for code in CODES}
    if peer is not None:
        takers = {PEER: peer_works(peer, shards, shape.parity), **takers}
    part = [shard[:columns] for shard in shards]
    library = library_works(part, shape.parity)
    speeds = []
    for operation in ("encode", "decode"):
        works = {name: of[operation] for name, of in takers.items()}
        seconds = timed(works, rounds, least_seconds)
        slice_seconds = seconds_of(library[operation], 1)
        speeds.append(
            Speed(
                shape=shape,
                operation=operation,
                seconds=seconds,
                library_rate=rate(sum(map(len, part)), [slice_seconds]),
            )
        )
    return speeds


def measure_harm(shape: Shape, code: str) -> Harm:
    """Measure what the segment costs with which a stranger completes a set that makes nothing.

    Of the data only one segment is there, the rest is parity, which belongs together; the payload hash is none of
    theirs, so choices of parity are tried as long as a segment may cause work.
    """
    return Harm(
        shape,
        code,
        seconds=harm_seconds(shape, code, length=shape.data * shape.size),
        unsized_seconds=harm_seconds(shape, code, length=0),
    )


def harm_seconds(shape: Shape, code: str, *, length: int) -> float:
    """Return the CPU seconds that such a segment takes, where the set names a payload length."""
    shards = [bytes([1]) * shape.size, *[bytes(shape.size)] * (shape.data - 1)]
    held = max(1, shape.data - shape.parity + 1)
    parity = dict(enumerate(encode_parity(shards, shape.parity, code)))
    number = PARITY_CODES.index(code)
    key = SetKey("eve", bytes(32), 1, shape.data, shape.parity, length, number)
    payload = IncomingPayload(serial=1, key=key)
    payload.data = dict(enumerate(shards[:held]))
    payload.parity = parity
    last = SegmentMessage(
        is_parity=True, parity_segment_index=shape.parity - 1, payload=parity[shape.parity - 1]
    )
    began = time.process_time()
    made = assemble(payload, last)
    seconds = time.process_time() - began
    if made is not None or not payload.failures:
        text = f"{payload.failures} assemblies were tried and made {made!r:.20}"
        raise RuntimeError(text)
    return seconds


# -- figures --------------------------------------------------------------------------------------


def figures(speed: Speed) -> Iterator[Figure]:
    """Give what each code of ours reached beside ``zfec``, and the library."""
    name = f"{speed.shape} {speed.operation}"
    unit, octets = "MB a CPU second", speed.shape.data * speed.shape.size
    for code in CODES:
        yield rate_figure(
            f"{name}: {code}",
            unit,
            octets / MILLION,
            speed.seconds[code],
            peer=PEER,
            peer_seconds=speed.seconds.get(PEER, ()),
        )
    yield figure(f"{name}: library by column", unit, [speed.library_rate], better="neither")


def tables() -> Iterator[Part]:
    """Measure all shapes."""
    peer = peer_library()
    speeds = [speed for shape in SHAPES for speed in measure(shape, peer=peer)]
    notes = [
        "data shards, parity shards, bytes of each",
        f"the library is extrapolated from {COLUMNS} columns",
    ]
    if peer is None:
        notes.append(INSTALL_PEER)
    found = [item for speed in speeds for item in figures(speed)]
    yield Table("Reed-Solomon, payload, beside zfec", tuple(found), tuple(notes))


def harm_tables() -> Iterator[Part]:
    """Measure what one received segment can cost."""
    found = []
    for shape in HOSTILE_SHAPES:
        for code in CODES:
            if shape.data + shape.parity <= MAX_SHARDS[code]:
                harm = measure_harm(shape, code)
                for name, seconds in (
                    ("with a length", harm.seconds),
                    ("without", harm.unsized_seconds),
                ):
                    label = f"{shape} {code}: {name}"
                    found.append(figure(label, "CPU seconds", [seconds], better="less"))
    yield Table("A segment that completes a set which makes nothing", tuple(found))
