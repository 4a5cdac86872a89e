"""The kernel against symbol-by-symbol sums, on each of its paths and across their borders."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from reliable_channel.core.reed_solomon.field import Field, Symbols, binary_field, leopard_field
from reliable_channel.core.reed_solomon.kernel import (
    MAX_JOINED_BYTES,
    MAX_LOOKUPS,
    MAX_TRANSLATED,
    NARROW_BLOCK,
    WIDE_BLOCK,
    add,
    apply,
    apply_packed,
    bit_images,
    packed_words,
)

FIELDS = [
    pytest.param(binary_field(), id="binary"),
    pytest.param(leopard_field(1), id="leopard-8"),
    pytest.param(leopard_field(2), id="leopard-16"),
]


def random_matrix(field: Field, rows: int, columns: int, seed: int = 1) -> Symbols:
    rng = np.random.default_rng(seed)
    return field.as_symbols(rng.integers(2, 1 << 8 * field.symbol_bytes, (rows, columns)))


def random_shards(count: int, size: int, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(size) for _ in range(count)]


def symbols_of(shard: bytes, field: Field) -> Symbols:
    if field.symbol_bytes == 1:
        return np.frombuffer(shard, np.uint8)
    blocks = np.frombuffer(shard, np.uint8).reshape(-1, 2, 32).astype(np.uint16)
    return (blocks[:, 0] | blocks[:, 1] << 8).reshape(-1).astype(np.uint16)


def slow_apply(matrix: Symbols, shards: Sequence[bytes], field: Field) -> list[list[int]]:
    """Return the symbols of the result, by definition."""
    inputs = [symbols_of(shard, field) for shard in shards]
    results = []
    for row in matrix.tolist():
        total = np.zeros(len(inputs[0]), field.dtype)
        for coefficient, values in zip(row, inputs, strict=True):
            total ^= field.multiply(values, coefficient)
        results.append(total.tolist())
    return results


def assert_right(got: list[bytes], matrix: Symbols, shards: list[bytes], field: Field) -> None:
    assert [len(shard) for shard in got] == [len(shards[0])] * len(matrix)
    values = [symbols_of(shard, field).tolist() for shard in got]
    assert values == slow_apply(matrix, shards, field)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 100])
def test_any_number_of_rows(field: Field, rows: int) -> None:
    matrix, shards = random_matrix(field, rows, 3), random_shards(3, 192)
    assert_right(apply(matrix, shards, field), matrix, shards, field)
    assert_right(apply_packed(matrix, shards, field), matrix, shards, field)


@pytest.mark.parametrize("rows", [1, 2, 5, 20])
@pytest.mark.parametrize("size", [1, 2, 63, 65, MAX_JOINED_BYTES, MAX_JOINED_BYTES + 1, 20_001])
def test_any_length_in_bytes(rows: int, size: int) -> None:
    field = binary_field()
    matrix, shards = random_matrix(field, rows, 2), random_shards(2, size)
    assert_right(apply(matrix, shards, field), matrix, shards, field)


@pytest.mark.parametrize("rows", [2, 20])
@pytest.mark.parametrize("border", [NARROW_BLOCK, WIDE_BLOCK])
@pytest.mark.parametrize("beyond", [-64, 0, 64])
def test_blocks_meet(rows: int, border: int, beyond: int) -> None:
    for field in (binary_field(), leopard_field(2)):
        size = border * field.symbol_bytes + beyond
        matrix, shards = random_matrix(field, rows, 2), random_shards(2, size)
        assert_right(apply_packed(matrix, shards, field), matrix, shards, field)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("size", [64, 8192])
def test_ones_and_zeros_among_the_coefficients(field: Field, size: int) -> None:
    matrix = random_matrix(field, 3, 4)
    matrix[0, 1] = matrix[1, 2] = 0
    matrix[2] = [1, 0, 1, 3]
    shards = random_shards(4, size)
    assert_right(apply(matrix, shards, field), matrix, shards, field)
    assert_right(apply_packed(matrix, shards, field), matrix, shards, field)


@pytest.mark.parametrize("size", [5, 8192])
def test_matrix_of_ones_is_the_sum(size: int) -> None:
    field = binary_field()
    shards = random_shards(3, size)
    matrix = field.as_symbols([[1, 1, 1], [0, 1, 0]])
    expected = bytes(a ^ b ^ c for a, b, c in zip(*shards, strict=True))
    assert apply(matrix, shards, field) == [expected, shards[1]]


@pytest.mark.parametrize("size", [1, MAX_JOINED_BYTES, MAX_JOINED_BYTES + 1])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_sum_of_shards(count: int, size: int) -> None:
    shards = random_shards(count, size)
    expected = 0
    for shard in shards:
        expected ^= int.from_bytes(shard)
    assert add(shards) == expected.to_bytes(size)


def test_path_does_not_show() -> None:
    field = leopard_field(1)
    for size in (64, MAX_JOINED_BYTES, MAX_JOINED_BYTES + 1):
        for count in (MAX_TRANSLATED // 4, MAX_TRANSLATED // 4 + 1):
            matrix, shards = random_matrix(field, 4, count), random_shards(count, size)
            assert apply(matrix, shards, field) == apply_packed(matrix, shards, field)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("beyond", [-64, 0, 64])
@pytest.mark.parametrize("rows", [3, 40])
def test_lookups_all_at_once_or_one_by_one(field: Field, beyond: int, rows: int) -> None:
    shards = random_shards(3, MAX_LOOKUPS // 3 + beyond)
    matrix = random_matrix(field, rows, 3)
    matrix[:2, 0] = 0
    assert_right(apply_packed(matrix, shards, field), matrix, shards, field)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("rows", [1, 3, 5, 13, 32])
def test_packed_words_hold_the_products(field: Field, rows: int) -> None:
    matrix = random_matrix(field, rows, 2)
    for out, images in enumerate(bit_images(matrix, field)):
        words = packed_words(images)
        for lane in range(2 * field.symbol_bytes):
            shard, byte = divmod(lane, field.symbol_bytes)
            for value in (0, 1, 2, 3, 127, 128, 255):
                symbol = field.sheared(field.as_symbols([value << 8 * byte]))
                products = field.sheared(field.multiply(matrix[:, shard].copy(), symbol))
                packed = words[lane, value].tobytes()
                assert packed[:rows] == bytes(products.view(np.uint8)[out :: field.symbol_bytes])
                assert not any(packed[rows:])


def test_a_small_coefficient_of_the_large_field_leaves_the_other_lane_alone() -> None:
    """It halves the lookups of most shapes that need the large field."""
    matrix = leopard_field(2).as_symbols([[2, 256], [255, 1]])
    low, high = bit_images(matrix, leopard_field(2)).any(axis=(2, 3)).tolist()
    assert low == [True, False, True, True]
    assert high == [False, True, True, True]


def test_tables_are_bounded() -> None:
    """Beside the output and its copy, at most 32 KiB for each shard and 2 MiB of scratch."""
    field = leopard_field(2)
    matrix, shards = random_matrix(field, 100, 100), random_shards(100, 64)
    apply(matrix, shards, field)
    tracemalloc.start()
    try:
        apply(matrix, shards, field)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * 32 * 1024 + (2 << 20)
