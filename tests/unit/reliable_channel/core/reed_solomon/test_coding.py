"""Parity and rebuilding as callers see them: bytes of the library, misuse, what is given back."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import reedsolo

from reliable_channel.core.reed_solomon import UnrecoverableError, encode_parity, recover
from reliable_channel.errors import ReliableChannelError

CODES = ("leopard", "reedsolo")


def random_shards(count: int, size: int, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(size) for _ in range(count)]


def library_parity(shards: list[bytes], parity_count: int) -> list[bytes]:
    """Return what the library appends to each column of the shards."""
    codec = reedsolo.RSCodec(parity_count, nsize=len(shards) + parity_count)
    columns = [codec.encode(bytes(column))[len(shards) :] for column in zip(*shards, strict=True)]
    return [bytes(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    ("data_count", "parity_count", "size"),
    [
        (1, 1, 3),
        (1, 4, 3),
        (2, 1, 70),
        (3, 2, 1),
        (8, 1, 64),
        (10, 2, 33),
        (5, 9, 20),
        (32, 4, 5000),
        (40, 5, 12),
        (226, 29, 2),
        (1, 254, 1),
        (254, 1, 2),
        (127, 128, 2),
    ],
)
def test_reedsolo_parity_is_that_of_the_library(
    data_count: int, parity_count: int, size: int
) -> None:
    """Bit-identical to reedsolo.RSCodec(m, nsize=k+m), column by column."""
    shards = random_shards(data_count, size)
    distinct = [shard[:64].ljust(size, shard[:1]) for shard in shards]  # the library is slow
    parity = encode_parity(distinct, parity_count, "reedsolo")
    short = [shard[: min(size, 65)] for shard in distinct]
    assert [shard[:65] for shard in parity] == library_parity(short, parity_count)
    assert all(shard[64:] == shard[64:65] * (size - 64) for shard in parity if size > 64)


def test_library_reads_our_parity() -> None:
    shards = random_shards(6, 10)
    parity = encode_parity(shards, 3, "reedsolo")
    codec = reedsolo.RSCodec(3, nsize=9)
    for column in zip(*shards, *parity, strict=True):
        damaged = bytearray(column)
        damaged[1] ^= 255
        assert bytes(codec.decode(damaged)[0]) == bytes(column[:6])


@pytest.mark.parametrize("code", CODES)
def test_one_parity_shard_is_the_sum(code: str) -> None:
    shards = random_shards(3, 64)
    expected = bytes(a ^ b ^ c for a, b, c in zip(*shards, strict=True))
    assert encode_parity(shards, 1, code) == [expected]


def test_leopard_copies_a_single_shard() -> None:
    shards = random_shards(1, 64)
    assert encode_parity(shards, 1, "leopard") == shards


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("size", [64, 8192])
def test_lost_shards_come_back(code: str, size: int) -> None:
    shards = random_shards(10, size)
    parity = encode_parity(shards, 4, code)
    lossy = [None if index in (0, 4, 9) else shard for index, shard in enumerate(shards)]
    assert recover(lossy, [None, *parity[1:]], code) == shards
    assert recover(lossy, parity, code) == shards


@pytest.mark.parametrize("code", CODES)
def test_worst_loss_of_the_largest_shape(code: str) -> None:
    shards = random_shards(226, 64)
    parity = encode_parity(shards, 29, code)
    assert recover([*([None] * 29), *shards[29:]], parity, code) == shards


@pytest.mark.parametrize("code", CODES)
def test_all_data_lost(code: str) -> None:
    shards = random_shards(60, 64)
    parity = encode_parity(shards, 60, code)
    assert recover([None] * 60, parity, code) == shards


@pytest.mark.parametrize("lost", [range(65), range(63, 128), range(126, 191), (0, 127, 128, 190)])
def test_any_loss_in_the_large_field(lost: Sequence[int]) -> None:
    """Shards from 128 on lie beyond the small field within it, which the others are in."""
    shards = random_shards(191, 64)
    parity = encode_parity(shards, 65, "leopard")
    lossy = [None if index in lost else shard for index, shard in enumerate(shards)]
    assert recover(lossy, parity, "leopard") == shards


@pytest.mark.parametrize("code", CODES)
def test_what_was_there_is_not_copied(code: str) -> None:
    shards = random_shards(3, 64)
    parity = encode_parity(shards, 2, code)
    whole = recover(shards, [None, None], code)
    assert all(got is given for got, given in zip(whole, shards, strict=True))
    assert whole is not shards
    rebuilt = recover([shards[0], None, shards[2]], parity, code)
    assert rebuilt[0] is shards[0]
    assert rebuilt[2] is shards[2]


@pytest.mark.parametrize("code", CODES)
def test_results_are_bytes(code: str) -> None:
    shards = random_shards(5, 64)
    parity = encode_parity(shards, 2, code)
    rebuilt = recover([None, None, *shards[2:]], parity, code)
    assert {type(shard) for shard in (*parity, *rebuilt)} == {bytes}


@pytest.mark.parametrize("code", CODES)
def test_no_parity_is_no_work(code: str) -> None:
    shards = random_shards(2, 64)
    assert encode_parity(shards, 0, code) == []
    assert recover(shards, [], code) == shards


@pytest.mark.parametrize("code", CODES)
def test_too_few_shards(code: str) -> None:
    shards = random_shards(4, 64)
    parity = encode_parity(shards, 2, code)
    with pytest.raises(UnrecoverableError) as caught:
        recover([None, None, *shards[2:]], [parity[0], None], code)
    assert (caught.value.held, caught.value.needed) == (3, 4)
    assert isinstance(caught.value, ReliableChannelError)
    assert str(caught.value) == "too few shards to rebuild from: 3 of the 4 that it takes"


@pytest.mark.parametrize("code", CODES)
def test_nothing_there_at_all(code: str) -> None:
    with pytest.raises(UnrecoverableError, match="0 of the 2"):
        recover([None, None], [None], code)


@pytest.mark.parametrize(
    ("data_count", "parity_count", "size", "code", "match"),
    [
        (2, 1, 64, "", "unknown code ''.*leopard, reedsolo"),
        (2, 1, 64, "Leopard", "unknown code"),
        (0, 1, 64, "reedsolo", "0 data and 1 parity"),
        (0, 0, 64, "leopard", "at least 1"),
        (255, 1, 64, "reedsolo", "at most 255"),
        (128, 128, 64, "reedsolo", "at most 255"),
        (256, 1, 64, "leopard", "at most 256"),
        (2, 3, 64, "leopard", "as many parity"),
        (2, 1, 0, "reedsolo", "empty"),
        (2, 1, 0, "leopard", "empty"),
        (2, 1, 63, "leopard", "multiple of 64"),
        (2, 1, 65, "leopard", "multiple of 64"),
    ],
)
def test_misuse_is_refused_both_ways(
    data_count: int, parity_count: int, size: int, code: str, match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        encode_parity([bytes(size)] * data_count, parity_count, code)
    with pytest.raises(ValueError, match=match):
        recover([bytes(size)] * data_count, [bytes(size)] * parity_count, code)


def test_negative_parity_count_is_refused() -> None:
    with pytest.raises(ValueError, match="2 data and -1 parity"):
        encode_parity([b"a", b"b"], -1, "reedsolo")


@pytest.mark.parametrize("code", CODES)
def test_unequal_lengths_are_refused(code: str) -> None:
    with pytest.raises(ValueError, match="64 to 128 bytes"):
        encode_parity([bytes(64), bytes(128)], 1, code)
    with pytest.raises(ValueError, match="64 to 128 bytes"):
        recover([bytes(64), None], [bytes(128)], code)
    with pytest.raises(ValueError, match="64 to 128 bytes"):
        recover([bytes(64), bytes(64)], [bytes(128)], code)
