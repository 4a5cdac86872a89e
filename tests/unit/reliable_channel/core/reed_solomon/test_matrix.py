"""Small matrices: inverses and products."""

from __future__ import annotations

import random

import numpy as np
import pytest

from reliable_channel.core.reed_solomon import leopard_code, reedsolo_code
from reliable_channel.core.reed_solomon.field import Field, Symbols, binary_field, leopard_field
from reliable_channel.core.reed_solomon.matrix import invert, multiply

CODES = [
    pytest.param(reedsolo_code.parity_matrix(60, 40), binary_field(), id="reedsolo"),
    pytest.param(leopard_code.parity_matrix(60, 40), leopard_field(1), id="leopard-8"),
    pytest.param(leopard_code.parity_matrix(190, 66), leopard_field(2), id="leopard-16"),
]


def square_part(matrix: Symbols, size: int, seed: int) -> Symbols:
    rng = random.Random(seed)
    rows = sorted(rng.sample(range(matrix.shape[0]), size))
    columns = sorted(rng.sample(range(matrix.shape[1]), size))
    return matrix[np.ix_(rows, columns)]


@pytest.mark.parametrize("size", [1, 2, 7, 40])
@pytest.mark.parametrize(("matrix", "field"), CODES)
def test_inverse_times_matrix_is_identity(matrix: Symbols, field: Field, size: int) -> None:
    for seed in range(5):
        part = square_part(matrix, size, seed)
        identity = np.eye(size, dtype=int).tolist()
        assert multiply(invert(part, field), part, field).tolist() == identity
        assert multiply(part, invert(part, field), field).tolist() == identity


def test_product_of_rectangles() -> None:
    field = binary_field()
    left = field.as_symbols([[1, 2, 3]])
    right = field.as_symbols([[1, 0], [2, 1], [0, 7]])
    assert multiply(left, right, field).tolist() == [[1 ^ 4, 2 ^ 9]]


def test_arguments_stay_as_they_are() -> None:
    part = square_part(reedsolo_code.parity_matrix(9, 6), 4, 1)
    before = part.copy()
    invert(part, binary_field())
    assert (part == before).all()
