"""Parity for shards, and shards from parity: checks the shape, picks the matrix, runs the kernel.

It must not guess: shards have one length, indices are positions, a missing shard is None.

Spec: LIP-243 (Segmentation), Reed-Solomon parity; docs/wire.md, Segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from reliable_channel.core.reed_solomon import leopard_code, reedsolo_code
from reliable_channel.core.reed_solomon.field import Field, Symbols, binary_field
from reliable_channel.core.reed_solomon.kernel import add, apply
from reliable_channel.core.reed_solomon.matrix import invert, multiply
from reliable_channel.errors import UnrecoverableError

MAX_SHARDS: Final = {
    "leopard": leopard_code.MAX_SHARDS,
    "reedsolo": reedsolo_code.MAX_SHARDS,
}
"""Data and parity shards that a code takes, by its name."""


def encode_parity(shards: Sequence[bytes], parity_count: int, code: str) -> list[bytes]:
    """Compute parity shards: any len(shards) of data and parity together give the data back.

    Args:
        shards: Data shards of equal length, at least one byte; for leopard a multiple of 64.
        parity_count: How many to make. With the data at most 255 for reedsolo; for leopard at most
            256, and at most as many as data shards.
        code: ``reedsolo`` or ``leopard``.

    Returns:
        Parity shards of the same length, in order.

    Raises:
        ValueError: The code is unknown, or cannot work on shards of this number or length.
    """
    _check_shape(len(shards), parity_count, code)
    _check_lengths(shards, code)
    if not parity_count:
        return []
    matrix, field = _code_matrix(len(shards), parity_count, code)
    return apply(matrix, shards, field)


def recover(
    shards: Sequence[bytes | None], parity: Sequence[bytes | None], code: str
) -> list[bytes]:
    """Rebuild the data shards that are missing.

    A corrupted shard goes unnoticed and corrupts what is rebuilt: compare a hash of the whole.

    Args:
        shards: The data shards in order, None where one is missing.
        parity: The parity shards in order, as many as were made, None where one is missing.
        code: ``reedsolo`` or ``leopard``, as for encoding.

    Returns:
        All data shards in order; the ones that were there are the same objects.

    Raises:
        UnrecoverableError: Fewer shards are there than there are data shards.
        ValueError: The code is unknown, or cannot work on shards of this number or length.
    """
    _check_shape(len(shards), len(parity), code)
    held = [shard for shard in shards if shard is not None]
    spare = [(index, shard) for index, shard in enumerate(parity) if shard is not None]
    if len(held) + len(spare) < len(shards):
        raise UnrecoverableError(len(held) + len(spare), len(shards))
    _check_lengths([*held, *(shard for _, shard in spare)], code)
    if len(held) == len(shards):
        return held
    lost = [index for index, shard in enumerate(shards) if shard is None]
    used = spare[: len(lost)]
    matrix, field = _code_matrix(len(shards), len(parity), code)
    rows = matrix[[index for index, _ in used]]
    shares = rows[:, [shard is not None for shard in shards]]
    solution = invert(rows[:, lost], field)
    rebuilt = iter(_solve(solution, shares, held, [shard for _, shard in used], field))
    return [next(rebuilt) if shard is None else shard for shard in shards]


def _solve(
    solution: Symbols, shares: Symbols, held: list[bytes], parity: list[bytes], field: Field
) -> list[bytes]:
    """Return the lost shards: the solution of parity less the shares that held shards have in it.

    In the small field that is one matrix for all. In the large one most shares are below 256, which
    halves their cost, and their products with the solution are not: there it takes two steps.
    """
    if field.symbol_bytes == 1:
        whole = np.hstack([multiply(solution, shares, field), solution])
        return apply(whole, [*held, *parity], field)
    if held:
        parity = [add(pair) for pair in zip(parity, apply(shares, held, field), strict=True)]
    return apply(solution, parity, field)


def _code_matrix(data_count: int, parity_count: int, code: str) -> tuple[Symbols, Field]:
    if code == "leopard":
        matrix = leopard_code.parity_matrix(data_count, parity_count)
        return matrix, leopard_code.field_of(data_count, parity_count)
    return reedsolo_code.parity_matrix(data_count, parity_count), binary_field()


def _check_shape(data_count: int, parity_count: int, code: str) -> None:
    if code not in MAX_SHARDS:
        text = f"unknown code {code!r}: it is one of {', '.join(MAX_SHARDS)}"
        raise ValueError(text)
    if data_count < 1 or parity_count < 0:
        text = f"{data_count} data and {parity_count} parity shards: at least 1 and 0 are needed"
        raise ValueError(text)
    if data_count + parity_count > MAX_SHARDS[code]:
        text = (
            f"{data_count} data and {parity_count} parity shards: {code} takes at most "
            f"{MAX_SHARDS[code]} in all"
        )
        raise ValueError(text)
    if code == "leopard" and parity_count > data_count:
        text = (
            f"{data_count} data and {parity_count} parity shards: leopard takes at most as many "
            "parity shards as data shards"
        )
        raise ValueError(text)


def _check_lengths(shards: Iterable[bytes], code: str) -> None:
    lengths = set(map(len, shards))
    length = min(lengths)
    if len(lengths) > 1:
        text = f"shards of {length} to {max(lengths)} bytes: all must have the same length"
        raise ValueError(text)
    if not length:
        text = "shards are empty: at least one byte is needed"
        raise ValueError(text)
    if code == "leopard" and length % leopard_code.SHARD_ALIGNMENT:
        text = (
            f"shards of {length} bytes: leopard needs a multiple of {leopard_code.SHARD_ALIGNMENT}"
        )
        raise ValueError(text)
