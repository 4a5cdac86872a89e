"""The one loop over payload bytes: apply a matrix over GF(2^8) or GF(2^16) to shards.

It must not know which code a matrix comes from, nor keep anything between calls: the tables it
makes live as long as the call and take at most 32 KiB for each shard.

What numpy does fast decides how: an XOR runs twenty times faster than any lookup, and a lookup of
32 bytes costs hardly more than one of a single byte. So a matrix of ones is XORed; otherwise the
products of one input byte for up to 32 rows are packed side by side, fetched at once and XORed,
for all shards in one call where they are short. Only for a few products of short shards, where
making such tables does not pay, ``bytes.translate`` makes the products one by one.

Spec: none of its own; see ``reed_solomon``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliable_channel.core.reed_solomon.field import Bytes, Field, Symbols, translation

Words: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Packed bytes as words of 1 to 8 bytes."""

MAX_TRANSLATED: Final = 64
"""Up to so many products of short shards, translating costs less than packing.

That is 2 rows of 32 shards; a single row is always translated, however long.
"""

MAX_JOINED_BYTES: Final = 4096
"""Shards up to here are joined and added in one call; longer ones one by one, without the copy."""

MAX_LOOKUPS: Final = 49152
"""Bytes of input that are looked up in one call; it takes up to 40 times as much scratch."""

PACKED_ROWS: Final = 32
"""Bytes that are fetched at once, one for each row; numpy copies items of 1 to 32 bytes fastest."""

PACKS: Final = 2
"""Packs that are made in one pass over the input, which bounds the tables."""

WORD_BYTES: Final = 8

NARROW_BLOCK: Final = 32768
WIDE_BLOCK: Final = 12800
"""Symbols handled at a time, for packs of at most 8 bytes and of more.

A pack takes up to 0.8 MiB of scratch, which a second-level cache holds. The wide one is an eighth
of the default chunk.
"""


def apply(matrix: Symbols, shards: Sequence[bytes], field: Field) -> list[bytes]:
    """Return, for each row of a matrix, the sum of the shards times the row's coefficients.

    Args:
        matrix: Rows by shards, at least one of each; no row is all zeros.
        shards: Of equal length; a multiple of 64 bytes where symbols have two.
        field: Where the coefficients live.
    """
    if matrix.max() <= 1:
        return [add(_chosen(row, shards)) for row in matrix]
    is_little = matrix.size <= MAX_TRANSLATED and len(shards[0]) <= MAX_JOINED_BYTES
    if field.symbol_bytes == 1 and (len(matrix) == 1 or is_little):
        return [add(_products(row, shards, field)) for row in matrix]
    return apply_packed(matrix, shards, field)


def add(shards: Sequence[bytes]) -> bytes:
    """Return the XOR of shards of equal length, at least one."""
    if len(shards) == 1:
        return shards[0]
    if len(shards[0]) <= MAX_JOINED_BYTES:
        rows = np.frombuffer(b"".join(shards), np.uint8).reshape(len(shards), -1)
        joined: Bytes = np.bitwise_xor.reduce(rows, axis=0)
        return joined.tobytes()
    first, second, *others = [np.frombuffer(shard, np.uint8) for shard in shards]
    total = first ^ second
    for shard in others:
        np.bitwise_xor(total, shard, out=total)
    return total.tobytes()


def _chosen(row: Symbols, shards: Sequence[bytes]) -> list[bytes]:
    """Return the shards whose coefficient is 1, where all others are 0."""
    return [shard for shard, coefficient in zip(shards, row, strict=True) if coefficient]


def _products(row: Symbols, shards: Sequence[bytes], field: Field) -> list[bytes]:
    """Return the shards times their coefficients; a coefficient of 1 costs nothing, nor does 0."""
    return [
        shard if coefficient == 1 else shard.translate(translation(field, coefficient))
        for shard, coefficient in zip(shards, row.tolist(), strict=True)
        if coefficient
    ]


def apply_packed(matrix: Symbols, shards: Sequence[bytes], field: Field) -> list[bytes]:
    """Do what ``apply`` does with packed tables, whatever the matrix and the length."""
    inputs = [np.frombuffer(shard, np.uint8) for shard in shards]
    outputs = np.empty((len(matrix), len(shards[0])), np.uint8)
    rows = PACKED_ROWS * PACKS // field.symbol_bytes
    for start in range(0, len(matrix), rows):
        part = slice(start, start + rows)
        _apply_pass(matrix[part], inputs, field, outputs[part])
    return [output.tobytes() for output in outputs]


@dataclass(frozen=True, slots=True)
class Pack:
    """One lane of up to 32 output rows, computed side by side.

    Attributes:
        places: Where in the tables an input lane is; lanes that add nothing are not there.
        tables: What input lanes add, by the value of their byte.
        product: Room for the products of one lane of a block.
        total: Room for the sum over the lanes so far.
    """

    places: dict[int, int]
    tables: Words
    product: Words
    total: Words

    def shortened(self, symbols: int) -> Pack:
        """Return the pack for a block of so many symbols."""
        return Pack(self.places, self.tables, self.product[:symbols], self.total[:symbols])

    def add(self, lane: int, index: NDArray[np.intp]) -> None:
        """Add the products of a lane; the first one begins a new sum."""
        place = self.places.get(lane)
        if place is None:
            return
        # With any other mode than "clip", numpy goes through a buffer of its own.
        self.tables[place].take(index, 0, self.product if place else self.total, "clip")
        if place:
            np.bitwise_xor(self.total, self.product, self.total)

    def add_all(self, lanes: Bytes) -> None:
        """Sum the products of all lanes at once, which takes scratch for all of them."""
        tables = self.tables.reshape(-1, *self.tables.shape[2:])
        starts = np.arange(0, len(tables), 256)[:, None]
        products = tables.take(lanes[list(self.places)] + starts, 0, mode="clip")
        np.bitwise_xor.reduce(products, 0, out=self.total)

    def rows(self) -> Bytes:
        """Return the finished rows."""
        return self.total.view(np.uint8).reshape(len(self.total), -1).T


def _make_pack(images: Bytes, block: int) -> Pack:
    """Return the pack for one lane of ``bit_images``, for blocks of up to so many symbols."""
    lanes = np.flatnonzero(images.any(axis=(1, 2)))
    tables = packed_words(images[lanes])
    shape = (block, *tables.shape[2:])
    places = {lane: place for place, lane in enumerate(lanes.tolist())}
    return Pack(places, tables, np.empty(shape, tables.dtype), np.empty(shape, tables.dtype))


def _apply_pass(matrix: Symbols, inputs: list[Bytes], field: Field, outputs: Bytes) -> None:
    """Compute the rows of a few packs, block by block."""
    size = outputs.shape[1]
    narrow = len(matrix) <= WORD_BYTES
    block = min(NARROW_BLOCK if narrow else WIDE_BLOCK, size // field.symbol_bytes)
    groups = [slice(start, start + PACKED_ROWS) for start in range(0, len(matrix), PACKED_ROWS)]
    packs = [
        [_make_pack(images, block) for images in bit_images(matrix[group], field)]
        for group in groups
    ]
    index = np.empty(block, np.intp)
    step = block * field.symbol_bytes
    for start in range(0, size, step):
        part = slice(start, min(start + step, size))
        symbols = (part.stop - start) // field.symbol_bytes
        current = [[pack.shortened(symbols) for pack in lanes] for lanes in packs]
        _sum_products(
            [pack for lanes in current for pack in lanes],
            [shard[part] for shard in inputs],
            field,
            index[:symbols],
        )
        for group, lanes in zip(groups, current, strict=True):
            _unpack(lanes, field, outputs[group, part])


def _sum_products(
    packs: list[Pack], pieces: list[Bytes], field: Field, index: NDArray[np.intp]
) -> None:
    """Let the packs total the products of all lanes of a block."""
    if len(pieces) * len(pieces[0]) <= MAX_LOOKUPS:
        lanes = field.lanes(np.stack(pieces)).reshape(-1, len(index))
        for pack in packs:
            pack.add_all(lanes)
        return
    for number, lane in enumerate(chain.from_iterable(map(field.lanes, pieces))):
        index[:] = lane  # lookups want machine words: widened once for all packs
        for pack in packs:
            pack.add(number, index)


def _unpack(packs: list[Pack], field: Field, outputs: Bytes) -> None:
    """Take the finished lanes of some rows apart, into shards."""
    lanes = np.empty((len(outputs), len(packs), len(packs[0].total)), np.uint8)
    for number, pack in enumerate(packs):
        lanes[:, number] = pack.rows()[: len(outputs)]
    outputs[:] = field.shards(lanes)


def bit_images(matrix: Symbols, field: Field) -> Bytes:
    """Return what each bit of an input byte adds to the rows.

    Products are linear in the bits of a byte, so these tell all of them.

    Returns:
        Bytes by (output lane, input lane, bit, row). A lane is one byte of the symbols; the input
        lanes are those of all shards in order.
    """
    bits = field.sheared(field.as_symbols(1 << np.arange(8 * field.symbol_bytes)))
    products = field.sheared(field.multiply(matrix.T[:, None], bits[:, None]))
    lanes = products.view(np.uint8).reshape(-1, 8, len(matrix), field.symbol_bytes)
    return lanes.transpose(3, 0, 1, 2)


def packed_words(images: Bytes) -> Words:
    """Return what every value of an input byte adds to the rows, side by side.

    Args:
        images: What its single bits add, by (input lane, bit, row); at most 32 rows.

    Returns:
        Words by (input lane, value), or, where the rows take more than one word, by (input lane,
        value, word). The bytes of the words are those of the rows in order, filled up with zeros to
        a power of two.
    """
    rows = images.shape[2]
    width = 1 << (rows - 1).bit_length()
    tables = np.zeros((len(images), 256, width), np.uint8)
    tables[:, [1 << bit for bit in range(8)], :rows] = images
    words: Words = tables.view(f"<u{min(width, WORD_BYTES)}")
    for word in range(words.shape[2]):
        _fill_sums(words[:, :, word])
    return words if words.shape[2] > 1 else words[:, :, 0]


def _fill_sums(tables: Words) -> None:
    """Fill tables of 256 values in which only the powers of two are there."""
    for bit in range(1, 8):
        value = 1 << bit
        lower, upper = tables[:, 1:value], tables[:, value + 1 : 2 * value]
        np.bitwise_xor(lower, tables[:, value, None], out=upper)
