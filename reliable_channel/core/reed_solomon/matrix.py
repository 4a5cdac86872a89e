"""Small matrices over a field: what it takes to turn an encoding matrix into a rebuilding one.

It must not touch shards, and it leaves its arguments as they are. Only matrices from a code that is
maximum distance separable belong here: every square part of their parity matrix can be inverted, so
elimination never meets a zero pivot.

Spec: none of its own; see ``reed_solomon``.
"""

from __future__ import annotations

from collections.abc import Sequence

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
        scale = field.invert(work[pivot, pivot])
        work[pivot, pivot] = 1
        work[pivot] = field.multiply(work[pivot], scale)
        factors = work[:, pivot].copy()
        factors[pivot] = 0
        work[factors != 0, pivot] = 0
        work ^= field.multiply(factors[:, None], work[pivot])
    return work


def multiply(left: Symbols, right: Symbols, field: Field) -> Symbols:
    """Return the product of two matrices."""
    product = np.zeros((len(left), right.shape[1]), field.dtype)
    for index, row in enumerate(right):
        product ^= field.multiply(left[:, index, None], row)
    return product


def rebuilding_matrix(
    parity_matrix: Symbols, lost: Sequence[int], used: Sequence[int], field: Field
) -> Symbols:
    """Return the matrix that makes the lost data shards out of what is there.

    Its columns stand for the data shards that are there, in order, then for the parity shards used,
    in order.

    Args:
        parity_matrix: Parity shards by data shards, the matrix of the code.
        lost: Indices of the data shards to rebuild, ascending.
        used: Indices of as many parity shards that are there.
        field: Where the coefficients live.
    """
    held = np.delete(np.arange(parity_matrix.shape[1]), lost)
    rows = parity_matrix[np.asarray(used)]
    solution = invert(rows[:, np.asarray(lost)], field)
    return np.hstack([multiply(solution, rows[:, held], field), solution])
