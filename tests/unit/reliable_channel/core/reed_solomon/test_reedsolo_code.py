"""The matrix of ``reedsolo``, against the library."""

from __future__ import annotations

import pytest
import reedsolo

from reliable_channel.core.reed_solomon import reedsolo_code
from reliable_channel.core.reed_solomon.reedsolo_code import MAX_SHARDS, parity_matrix


@pytest.mark.parametrize("parity_count", [1, 2, 3, 29, 128, 254])
def test_columns_are_the_parity_of_unit_vectors(parity_count: int) -> None:
    data_count = MAX_SHARDS - parity_count
    matrix = parity_matrix(data_count, parity_count)
    codec = reedsolo.RSCodec(parity_count, nsize=MAX_SHARDS)
    for index in {0, 1, data_count // 2, data_count - 1} & set(range(data_count)):
        unit = bytearray(data_count)
        unit[index] = 1
        assert matrix[:, index].tobytes() == bytes(codec.encode(unit)[data_count:])


def test_shorter_shapes_have_the_last_columns() -> None:
    longest = parity_matrix(251, 4)
    for data_count in (1, 2, 10, 250):
        assert (parity_matrix(data_count, 4) == longest[:, -data_count:]).all()


def test_one_parity_shard_is_the_sum() -> None:
    assert (parity_matrix(254, 1) == 1).all()


def test_cached_matrix_cannot_be_spoilt() -> None:
    with pytest.raises(ValueError, match="read-only"):
        parity_matrix(3, 2)[0, 0] = 0


def test_cache_is_bounded() -> None:
    for parity_count in range(1, 60):
        parity_matrix(2, parity_count)
    assert reedsolo_code._longest_matrix.cache_info().currsize == 32
