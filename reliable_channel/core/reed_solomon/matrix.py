"""Small matrices over a field: inverses and products, which rebuilding takes.

It must not touch shards, and it leaves its arguments as they are. Only matrices from a code that is
maximum distance separable belong here: every square part of their parity matrix can be inverted, so
elimination never meets a zero pivot.

Spec: none of its own; see ``reed_solomon``.
"""

from __future__ import annotations

import numpy as np

from reliable_channel.core.reed_solomon.field import Field, Symbols


def invert(matrix: Symbols, field: Field) -> Symbols:
    """Return the inverse of a square part of a parity matrix, by Gauss and Jordan in place.

    Args:
        matrix: Square; it and all its leading parts can be inverted.
        field: Where its coefficients live.
    """
    work = matrix.copy()
    for pivot in range(len(work)):
        factors = work[:, pivot].copy()
        work[:, pivot] = 0
        work[pivot, pivot] = 1
        row = field.multiply(work[pivot], field.invert(factors[pivot]))
        work ^= field.multiply(factors[:, None], row)
        work[pivot] = row
    return work


def multiply(left: Symbols, right: Symbols, field: Field) -> Symbols:
    """Return the product of two matrices."""
    product = np.zeros((len(left), right.shape[1]), field.dtype)
    for index, row in enumerate(right):
        product ^= field.multiply(left[:, index, None], row)
    return product
