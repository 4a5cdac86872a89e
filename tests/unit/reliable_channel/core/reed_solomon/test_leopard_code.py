"""Leopard's matrix in closed form; ``tests/interop`` holds it against the library's bytes."""

from __future__ import annotations

import pytest

from reliable_channel.core.reed_solomon.field import leopard_field
from reliable_channel.core.reed_solomon.leopard_code import field_of, parity_matrix


@pytest.mark.parametrize(
    ("data_count", "parity_count", "symbol_bytes"),
    [
        (1, 1, 1),
        (224, 28, 1),
        (224, 32, 1),
        (225, 28, 2),
        (225, 29, 2),
        (227, 29, 2),
        (128, 128, 1),
        (129, 65, 2),
        (192, 64, 1),
        (193, 63, 2),
        (255, 1, 1),
    ],
)
def test_field_follows_the_next_powers_of_two(
    data_count: int, parity_count: int, symbol_bytes: int
) -> None:
    """FF8 while nextpow2(nextpow2(m) + k) is at most 256."""
    assert field_of(data_count, parity_count) is leopard_field(symbol_bytes)


@pytest.mark.parametrize("data_count", [1, 2, 8, 255])
def test_one_parity_shard_is_the_sum(data_count: int) -> None:
    assert (parity_matrix(data_count, 1) == 1).all()


@pytest.mark.parametrize(
    ("data_count", "parity_count", "log"), [(5, 3, 2), (10, 2, 1), (7, 7, 3), (227, 29, 5)]
)
def test_coefficients(data_count: int, parity_count: int, log: int) -> None:
    """With M = 2^u and q = M + i, coefficient p, i times (q XOR p) is q >> u."""
    matrix = parity_matrix(data_count, parity_count)
    field = field_of(data_count, parity_count)
    assert matrix.shape == (parity_count, data_count)
    for p in range(parity_count):
        for i in (0, 1, data_count - 1):
            q = (1 << log) + i
            assert field.multiply(matrix[p : p + 1, i], q ^ p).tolist() == [q >> log]


def test_cached_matrix_cannot_be_spoilt() -> None:
    with pytest.raises(ValueError, match="read-only"):
        parity_matrix(3, 2)[0, 0] = 0


def test_cache_is_bounded() -> None:
    for data_count in range(2, 60):
        parity_matrix(data_count, 2)
    assert parity_matrix.cache_info().currsize == 32
