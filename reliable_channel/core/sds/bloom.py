"""The bloom filter in which a participant tells others what it knows.

Its bytes are those that the published JavaScript implementation reads and writes. They carry no
parameters: both ends must agree on them. Nothing here decides what membership proves; a filter
may say yes to an id that was never added, never no to one that was.

Spec: LIP-109 (SDS), Bloom filter. Deviation: the specification leaves hash and layout open.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import mmh3
import numpy as np

from reliable_channel.errors import ConfigurationError, DecodeError

HashPair: TypeAlias = tuple[int, int]
"""The two hashes of an id, 0 to 2**31 each; the same for filters of every shape."""

WORD_BITS: Final = 64
WORD_BYTES: Final = 8

MANY_BYTES: Final = 2048
"""From here on bits are counted faster in an array than in one long number."""


def hash_pair(item: str) -> HashPair:
    """Return the two hashes that place an id in any filter; callers may keep them with the id."""
    return abs(mmh3.hash(item)), abs(mmh3.hash(item + " b"))


@dataclass(frozen=True, slots=True)
class BloomShape:
    """The sizes of a filter, derived from what it must hold.

    Args:
        capacity: Ids for which the error rate holds; at least 1.
        error_rate: Share of wrong positives at capacity; between 0 and 1, both excluded.

    Raises:
        ConfigurationError: An argument is out of its range.
    """

    capacity: int
    error_rate: float
    hash_count: int = field(init=False)
    """Bits set for each id."""
    bit_count: int = field(init=False)
    """Bits in use; the encoded filter has up to 64 more, always 0."""
    byte_length: int = field(init=False)
    """Length of the encoded filter."""

    def __post_init__(self) -> None:
        """Derive the sizes, by the formulas of the peers' implementation."""
        if self.capacity < 1:
            problem = f"bloom capacity must be at least 1, not {self.capacity}"
            raise ConfigurationError(problem)
        if not 0 < self.error_rate < 1:
            problem = f"bloom error rate must be between 0 and 1, not {self.error_rate}"
            raise ConfigurationError(problem)
        bits_per_item = math.ceil(-math.log(self.error_rate) / math.log(2) ** 2)
        bit_count = self.capacity * bits_per_item
        object.__setattr__(self, "hash_count", round(math.log(2) * bits_per_item))
        object.__setattr__(self, "bit_count", bit_count)
        object.__setattr__(self, "byte_length", (1 + bit_count // WORD_BITS) * WORD_BYTES)

    def has_pair(self, data: bytes | bytearray, pair: HashPair) -> bool:
        """Say whether a filter of this shape may contain an id.

        Args:
            data: The encoded filter, `byte_length` long.
            pair: What `hash_pair` gave for the id.
        """
        bit_count = self.bit_count
        index, step = pair[0] % bit_count, pair[1] % bit_count
        for _ in range(self.hash_count):
            # Words are big-endian: within each eight bytes, the lowest bits come last.
            if not data[index >> 3 ^ 7] >> (index & 7) & 1:
                return False
            index += step
            if index >= bit_count:
                index -= bit_count
        return True

    def matches(self, data: bytes, pairs: Iterable[HashPair]) -> list[bool]:
        """Say for each of many ids whether a received filter may contain it; nothing is copied.

        Args:
            data: The encoded filter.
            pairs: What `hash_pair` gave for each id.

        Raises:
            DecodeError: The filter is not of this shape.
        """
        self.check_length(data)
        return [self.has_pair(data, pair) for pair in pairs]

    def bits_set_ratio(self, data: bytes) -> float:
        """Return the share of bits that are set; about one half in a filter at capacity.

        Args:
            data: The encoded filter; the ratio of one of another shape means nothing.
        """
        if len(data) < MANY_BYTES or len(data) % WORD_BYTES:
            return int.from_bytes(data, "big").bit_count() / self.bit_count
        return int(np.bitwise_count(np.frombuffer(data, np.uint64)).sum()) / self.bit_count

    def check_length(self, data: bytes) -> None:
        """Raise DecodeError unless the data is as long as an encoded filter of this shape."""
        if len(data) != self.byte_length:
            raise DecodeError(BloomFilter.__name__, f"{len(data)} bytes, not {self.byte_length}")


class BloomFilter:
    """A set of ids that only grows, in a fixed number of bytes.

    Args:
        capacity: Ids for which the error rate holds; at least 1.
        error_rate: Share of wrong positives at capacity; between 0 and 1, both excluded.

    Raises:
        ConfigurationError: An argument is out of its range.
    """

    __slots__ = ("_bits", "count", "shape")

    shape: Final[BloomShape]
    count: int
    """Ids added since the filter was made or cleared, repeated ones included."""

    def __init__(self, capacity: int, error_rate: float) -> None:
        self.shape = BloomShape(capacity, error_rate)
        self.clear()

    @classmethod
    def from_bytes(cls, data: bytes, capacity: int, error_rate: float) -> BloomFilter:
        """Return a filter with the given content; how many ids made it is not known (`count` 0).

        Args:
            data: What `to_bytes` gave for a filter of the same capacity and error rate.
            capacity: As for a new filter.
            error_rate: As for a new filter.

        Raises:
            DecodeError: The data is of another length than such a filter has.
        """
        bloom = cls(capacity, error_rate)
        bloom.shape.check_length(data)
        bloom._bits[:] = data
        return bloom

    def to_bytes(self) -> bytes:
        """Return the encoded filter: 64-bit words, big-endian, bit i in word i div 64."""
        return bytes(self._bits)

    def clear(self) -> None:
        """Forget all ids."""
        self._bits = bytearray(self.shape.byte_length)
        self.count = 0

    def add(self, item: str) -> None:
        """Add an id."""
        self.add_pair(hash_pair(item))

    def add_pair(self, pair: HashPair) -> None:
        """Add the id that `hash_pair` gave the pair for."""
        bits, bit_count = self._bits, self.shape.bit_count
        index, step = pair[0] % bit_count, pair[1] % bit_count
        for _ in range(self.shape.hash_count):
            # Words are big-endian: within each eight bytes, the lowest bits come last.
            bits[index >> 3 ^ 7] |= 1 << (index & 7)
            index += step
            if index >= bit_count:
                index -= bit_count
        self.count += 1

    def add_many(self, items: Sequence[str]) -> None:
        """Add ids all at once: in arrays, which for thousands is several times faster than one by one."""
        if not items:
            return
        shape = self.shape
        pairs = np.array([hash_pair(item) for item in items], np.int64).reshape(-1, 2)
        first, step = (pairs % shape.bit_count).T
        turns = np.arange(shape.hash_count)[:, None]
        places = ((first + turns * step) % shape.bit_count).ravel()
        masks = (1 << (places & 7)).astype(np.uint8)
        # Words are big-endian, as in `add_pair`; places repeat, so the masks are put in one after the other.
        np.bitwise_or.at(np.frombuffer(self._bits, np.uint8), places >> 3 ^ 7, masks)
        self.count += len(items)

    def __contains__(self, item: str) -> bool:
        """Say whether an id may have been added; never False for one that was."""
        return self.shape.has_pair(self._bits, hash_pair(item))

    def has_pair(self, pair: HashPair) -> bool:
        """Say whether the id that `hash_pair` gave the pair for may have been added."""
        return self.shape.has_pair(self._bits, pair)
