"""The code of the ``reedsolo`` library, as a matrix.

It must not call the library for payload bytes, which it codes at 0.3 MB/s: the library supplies the
generator polynomial, and everything else follows from it. The parity of byte i of all shards is
what ``reedsolo.RSCodec(m, nsize=k + m)`` appends to them as one message.

Spec: LIP-243 (Segmentation), Reed-Solomon parity; docs/wire.md, Segment, parity_code 1.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import reedsolo

from reliable_channel.core.reed_solomon.field import Symbols, binary_field

MAX_SHARDS: Final = 255
"""Data and parity shards: above, the library silently leaves GF(2^8)."""


def parity_matrix(data_count: int, parity_count: int) -> Symbols:
    """Return the matrix of a shape: parity shards by data shards.

    Args:
        data_count: Data shards, at least 1.
        parity_count: Parity shards, at least 1; both together at most 255.
    """
    matrix = _longest_matrix(parity_count)
    return matrix[:, matrix.shape[1] - data_count :]


@lru_cache(maxsize=32)  # at most 16 KiB each
def _longest_matrix(parity_count: int) -> Symbols:
    """Return the matrix for as many data shards as fit; shorter messages have its last columns.

    The last data byte is followed by parity_count more, so its parity is x^m modulo the generator;
    each byte before it has one power of x more.
    """
    field = binary_field()
    generator = bytes(reedsolo.RSCodec(parity_count).gen[parity_count])
    tail = np.frombuffer(generator, np.uint8)[1:]
    matrix = np.zeros((parity_count, MAX_SHARDS - parity_count), field.dtype)
    matrix[:, -1] = tail
    for column in range(matrix.shape[1] - 2, -1, -1):
        following = matrix[:, column + 1]
        matrix[:-1, column] = following[1:]
        matrix[:, column] ^= field.multiply(tail, following[0])
    matrix.flags.writeable = False
    return matrix
