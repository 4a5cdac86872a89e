"""Coefficients: the three fields, checked against slow arithmetic on their elements."""

from __future__ import annotations

import random
import subprocess
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import reedsolo

from reliable_channel.core.reed_solomon.field import (
    CANTOR_BASIS_8,
    CANTOR_BASIS_16,
    POLYNOMIAL_8,
    POLYNOMIAL_16,
    Field,
    binary_field,
    leopard_field,
    translation,
)

ROOT = Path(__file__).parents[5]

FIELDS = [
    pytest.param(binary_field(), id="binary"),
    pytest.param(leopard_field(1), id="leopard-8"),
    pytest.param(leopard_field(2), id="leopard-16"),
]


def slow_product(left: int, right: int, polynomial: int) -> int:
    """Multiply two elements bit by bit."""
    top = 1 << (polynomial.bit_length() - 1)
    product = 0
    while right:
        if right & 1:
            product ^= left
        left <<= 1
        if left & top:
            left ^= polynomial
        right >>= 1
    return product


def element(label: int, basis: tuple[int, ...]) -> int:
    """Return what a label stands for."""
    chosen = [value for bit, value in enumerate(basis) if label >> bit & 1]
    return reduce(int.__xor__, chosen, 0)


def product(field: Field, left: int, right: int) -> int:
    return int(field.multiply(field.as_symbols([left]), right)[0])


@pytest.mark.parametrize(("left", "right", "expected"), [(2, 2, 3), (2, 3, 1), (200, 100, 237)])
def test_products_of_leopard_labels(left: int, right: int, expected: int) -> None:
    assert product(leopard_field(1), left, right) == expected


def test_inverse_of_a_leopard_label() -> None:
    field = leopard_field(1)
    assert field.invert(field.as_symbols([5])).tolist() == [14]


def test_binary_products_are_those_of_reedsolo() -> None:
    reedsolo.init_tables()
    symbols = np.arange(256, dtype=np.uint8)
    table = binary_field().multiply(symbols[:, None], symbols)
    expected = [[reedsolo.gf_mul(x, y) for y in range(256)] for x in range(256)]
    assert table.tolist() == expected


@pytest.mark.parametrize(
    ("field", "polynomial", "basis"),
    [
        pytest.param(leopard_field(1), POLYNOMIAL_8, CANTOR_BASIS_8, id="8"),
        pytest.param(leopard_field(2), POLYNOMIAL_16, CANTOR_BASIS_16, id="16"),
    ],
)
def test_products_of_labels_are_products_of_elements(
    field: Field, polynomial: int, basis: tuple[int, ...]
) -> None:
    rng = random.Random(1)
    for _ in range(300):
        left, right = (rng.randrange(1 << len(basis)) for _ in range(2))
        expected = slow_product(element(left, basis), element(right, basis), polynomial)
        assert element(product(field, left, right), basis) == expected


@pytest.mark.parametrize("field", FIELDS)
def test_everything_but_zero_has_an_inverse(field: Field) -> None:
    symbols = field.as_symbols(np.arange(1, 1 << 8 * field.symbol_bytes))
    assert (field.multiply(symbols, field.invert(symbols)) == 1).all()


@pytest.mark.parametrize("field", FIELDS)
def test_zero_times_anything_is_zero(field: Field) -> None:
    symbols = field.as_symbols(np.arange(1 << 8 * field.symbol_bytes))
    assert not field.multiply(symbols, 0).any()
    assert not field.multiply(field.as_symbols([0]), symbols).any()


def test_symbols_of_two_bytes_lie_32_bytes_apart() -> None:
    """In each block of 64 bytes, symbol j is byte[j] | byte[j + 32] << 8."""
    shard = np.frombuffer(random.Random(2).randbytes(192), np.uint8)
    lanes = leopard_field(2).lanes(shard)
    symbols = np.ascontiguousarray(lanes.T).view("<u2")[:, 0]
    plain = leopard_field(2).sheared(symbols)
    low, high = plain & 255, plain >> 8
    for number in range(96):
        block, j = divmod(number, 32)
        assert low[number] == shard[64 * block + j]
        assert high[number] == shard[64 * block + j + 32]


@pytest.mark.parametrize("field", FIELDS)
def test_lanes_make_the_shard_again(field: Field) -> None:
    shard = np.frombuffer(random.Random(3).randbytes(320), np.uint8)
    lanes = field.lanes(shard)
    assert lanes.shape == (field.symbol_bytes, 320 // field.symbol_bytes)
    assert field.shards(lanes).tobytes() == shard.tobytes()


@pytest.mark.parametrize("field", FIELDS)
def test_shards_together_have_the_lanes_that_each_has(field: Field) -> None:
    shards = np.frombuffer(random.Random(3).randbytes(960), np.uint8).reshape(3, 320)
    lanes = field.lanes(shards)
    assert lanes.tolist() == [field.lanes(shard).tolist() for shard in shards]
    assert field.shards(lanes).tolist() == shards.tolist()


def test_sheared_symbols_times_a_small_one_keep_their_bytes_apart() -> None:
    field = leopard_field(2)
    symbols = field.as_symbols(np.arange(1 << 16))
    assert (field.sheared(field.sheared(symbols)) == symbols).all()
    for coefficient in (1, 2, 77, 255):
        products = field.sheared(field.multiply(field.sheared(symbols), coefficient))
        assert (products & 255 == products[symbols & 255]).all()
        assert (products & 0xFF00 == products[symbols & 0xFF00]).all()


@pytest.mark.parametrize("coefficient", [0, 1, 2, 255])
def test_translation_multiplies_bytes(coefficient: int) -> None:
    field = leopard_field(1)
    table = translation(field, coefficient)
    assert list(table) == [product(field, value, coefficient) for value in range(256)]


def test_translations_are_bounded() -> None:
    assert translation.cache_info().maxsize == 512


def test_import_computes_nothing() -> None:
    script = (
        "import reliable_channel.core.reed_solomon.field as field\n"
        "import reliable_channel.core.reed_solomon as package\n"
        "for made in (field.binary_field, field.leopard_field, field.translation):\n"
        "    assert made.cache_info().currsize == 0, made\n"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)
