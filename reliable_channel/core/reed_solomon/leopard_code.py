"""The code of Leopard-RS, which the Nim reference uses, as a matrix in closed form.

It must not go through Leopard's transforms: the matrix gives the same bytes, and rebuilding from it
is the faster of the two in numpy. Shapes beyond 256 shards, which Leopard knows and the wire format
does not, are left out.

Spec: LIP-243 (Segmentation), Reed-Solomon parity; docs/wire.md, Segment, parity_code 0.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from reliable_channel.core.reed_solomon.field import Field, Symbols, leopard_field

MAX_SHARDS: Final = 256
"""Data and parity shards, all that a receiver takes; Leopard itself goes to 65,536."""

SHARD_ALIGNMENT: Final = 64
"""Shards are a multiple of this many bytes."""

BYTE_FIELD_POINTS: Final = 256
"""Points of GF(2^8); shapes that need more use GF(2^16)."""


def field_of(data_count: int, parity_count: int) -> Field:
    """Return the field of a shape.

    Parity takes a power of two of points and data the next ones, and the transform a power of two
    above all. So 227 and 29 shards, 256 in all, need GF(2^16).
    """
    points = _next_power_of_two(_next_power_of_two(parity_count) + data_count)
    return leopard_field(1 if points <= BYTE_FIELD_POINTS else 2)


@lru_cache(maxsize=32)  # at most 32 KiB each
def parity_matrix(data_count: int, parity_count: int) -> Symbols:
    """Return the matrix of a shape: parity shards by data shards.

    With M = 2^u points for parity, shard p of which sits at label p, and data shard i at q = M + i,
    the coefficient is (q >> u) / (q XOR p). One parity shard is therefore the XOR of the data.

    Args:
        data_count: Data shards.
        parity_count: Parity shards, at least 1 and at most as many as data shards.
    """
    field = field_of(data_count, parity_count)
    start = _next_power_of_two(parity_count)
    data = start + np.arange(data_count)
    parity = np.arange(parity_count)[:, None]
    numerators = field.as_symbols(data // start)
    matrix = field.multiply(field.invert(field.as_symbols(data ^ parity)), numerators)
    matrix.flags.writeable = False
    return matrix


def _next_power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
