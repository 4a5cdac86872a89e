"""The one loop over payload bytes: apply a matrix over GF(2^8) or GF(2^16) to shards.

It must not know which code a matrix comes from, nor keep anything between calls: the tables it
makes live as long as the call and take at most 32 KiB for each shard.

What numpy does fast decides how: an XOR runs twenty times faster than any lookup, and a lookup of
32 bytes costs hardly more than one of a single byte. So a matrix of ones is XORed; for long shards
the products of one input byte for up to 32 output bytes are packed side by side, fetched at once
and XORed; for short ones, where every call counts, ``bytes.translate`` makes the products one by
one.

Spec: none of its own; see ``reed_solomon``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reliable_channel.core.reed_solomon.field import Bytes, Field, Symbols, translation

Words: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Packed bytes as words of 1 to 8 bytes."""

MAX_TRANSLATED_BYTES: Final = 16384
"""Up to so many bytes of output, translating costs less than packing.

That is 4 rows of 4 KiB, or 16 of 1 KiB; a single row is always translated.
"""

MAX_JOINED_BYTES: Final = 4096
"""Shards up to here are joined and added in one call; longer ones one by one, without the copy."""

PACKED_BYTES: Final = 32
"""Products that are fetched at once; numpy copies items of 1, 2, 4, 8, 16 and 32 bytes fastest."""

PACKS: Final = 2
"""Packs that are made in one pass over the input, which bounds the tables."""

WORD_BYTES: Final = 8

NARROW_BLOCK: Final = 32768
WIDE_BLOCK: Final = 8192
"""Symbols handled at a time, for packs of at most 8 bytes and of more.

Either takes up to 0.8 MiB of scratch, which a second-level cache holds.
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
    output_bytes = len(matrix) * len(shards[0])
    if field.symbol_bytes == 1 and (len(matrix) == 1 or output_bytes <= MAX_TRANSLATED_BYTES):
        return [add(_products(row, shards, field)) for row in matrix]
    return apply_packed(matrix, shards, field)


def add(shards: Sequence[bytes]) -> bytes:
    """Return the XOR of shards of equal length, at least one."""
    if len(shards[0]) <= MAX_JOINED_BYTES:
        rows = np.frombuffer(b"".join(shards), np.uint8).reshape(len(shards), -1)
        joined: Bytes = np.bitwise_xor.reduce(rows, axis=0)
        return joined.tobytes()
    total = np.frombuffer(shards[0], np.uint8).copy()
    for shard in shards[1:]:
        np.bitwise_xor(total, np.frombuffer(shard, np.uint8), out=total)
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
    rows = PACKED_BYTES // field.symbol_bytes * PACKS
    for start in range(0, len(matrix), rows):
        part = slice(start, start + rows)
        _apply_pass(matrix[part], inputs, field, outputs[part])
    return [output.tobytes() for output in outputs]


@dataclass(frozen=True, slots=True)
class Pack:
    """Output rows that are computed side by side.

    Attributes:
        tables: Their products, for each lane by the value of the input byte.
        product: Room for the products of one lane of a block.
        total: Room for the sum over the lanes so far.
    """

    tables: list[Words]
    product: Words
    total: Words

    def shortened(self, symbols: int) -> Pack:
        """Return the pack for a block of so many symbols."""
        return Pack(self.tables, self.product[:symbols], self.total[:symbols])

    def start(self, lane: int, index: NDArray[np.intp]) -> None:
        """Begin a block with the products of a lane."""
        # With any other mode than "clip", numpy goes through a buffer of its own.
        self.tables[lane].take(index, 0, self.total, "clip")

    def add(self, lane: int, index: NDArray[np.intp]) -> None:
        """Add the products of another lane."""
        self.tables[lane].take(index, 0, self.product, "clip")
        np.bitwise_xor(self.total, self.product, self.total)

    def unpack(self, field: Field, outputs: Bytes) -> None:
        """Take the finished rows apart, into shards."""
        width = field.symbol_bytes
        packed = self.total.view(np.uint8).reshape(len(self.total), -1).T
        for row, output in enumerate(outputs):
            lanes = np.ascontiguousarray(packed[row * width : (row + 1) * width])
            output[:] = field.shard(lanes)


def _make_pack(matrix: Symbols, field: Field, block: int) -> Pack:
    """Return the pack of some rows of the matrix, for blocks of up to so many symbols."""
    tables = packed_words(matrix, field)
    shape = (block, *tables.shape[2:])
    return Pack(list(tables), np.empty(shape, tables.dtype), np.empty(shape, tables.dtype))


def _apply_pass(matrix: Symbols, inputs: list[Bytes], field: Field, outputs: Bytes) -> None:
    """Compute the rows of a few packs, block by block."""
    size = outputs.shape[1]
    rows = PACKED_BYTES // field.symbol_bytes
    narrow = len(matrix) * field.symbol_bytes <= WORD_BYTES
    block = min(NARROW_BLOCK if narrow else WIDE_BLOCK, size // field.symbol_bytes)
    groups = [slice(start, start + rows) for start in range(0, len(matrix), rows)]
    packs = [_make_pack(matrix[group], field, block) for group in groups]
    index = np.empty(block, np.intp)
    step = block * field.symbol_bytes
    for start in range(0, size, step):
        part = slice(start, min(start + step, size))
        symbols = (part.stop - start) // field.symbol_bytes
        current = [pack.shortened(symbols) for pack in packs]
        _sum_products(current, [shard[part] for shard in inputs], field, index[:symbols])
        for group, pack in zip(groups, current, strict=True):
            pack.unpack(field, outputs[group, part])


def _sum_products(
    packs: list[Pack], pieces: list[Bytes], field: Field, index: NDArray[np.intp]
) -> None:
    """Let the packs total the products of all lanes of a block."""
    lanes = (lane for piece in pieces for lane in field.lanes(piece))
    for number, lane in enumerate(lanes):
        index[:] = lane  # lookups want machine words: widened once for all packs
        for pack in packs:
            if number:
                pack.add(number, index)
            else:
                pack.start(number, index)


def packed_words(matrix: Symbols, field: Field) -> Words:
    """Return the products of every input byte with all rows, side by side.

    Products are linear in the bits of a byte: those of single bits are multiplied, the rest are
    sums.

    Args:
        matrix: Rows by shards; the rows' symbols take at most 32 bytes.
        field: Where the coefficients live.

    Returns:
        Words by (lane, value of the input byte), or, where they take more than one word, by (lane,
        value, word). A lane is one byte of the symbols of one shard. The bytes of the words are
        those of the rows' symbols in order, filled up with zeros to a power of two.
    """
    used = len(matrix) * field.symbol_bytes
    width = 1 << (used - 1).bit_length()
    columns = np.ascontiguousarray(matrix.T)
    tables = np.zeros((len(columns), field.symbol_bytes, 256, width), np.uint8)
    for bit in range(8 * field.symbol_bytes):
        images = field.multiply(columns, 1 << bit)
        tables[:, bit // 8, 1 << bit % 8, :used] = images.view(np.uint8)
    words: Words = tables.reshape(-1, 256, width).view(f"<u{min(width, WORD_BYTES)}")
    for word in range(words.shape[2]):
        _fill_sums(words[:, :, word])
    return words if words.shape[2] > 1 else words[:, :, 0]


def _fill_sums(tables: Words) -> None:
    """Fill tables of 256 values in which only the powers of two are there."""
    for bit in range(1, 8):
        value = 1 << bit
        lower, upper = tables[:, 1:value], tables[:, value + 1 : 2 * value]
        np.bitwise_xor(lower, tables[:, value, None], out=upper)
