"""The bloom filter: what it promises, and its bytes on small shapes that can be checked by hand."""

from __future__ import annotations

import math
from random import Random

import mmh3
import pytest

from reliable_channel.core.sds.bloom import BloomFilter, BloomShape, hash_pair
from reliable_channel.errors import ConfigurationError, DecodeError

CAPACITY = 200
ERROR_RATE = 0.001


def ids(prefix: str, count: int) -> list[str]:
    """Return distinct ids."""
    return [f"{prefix}-{number}" for number in range(count)]


@pytest.fixture
def full() -> BloomFilter:
    """A filter at capacity."""
    bloom = BloomFilter(CAPACITY, ERROR_RATE)
    for item in ids("member", CAPACITY):
        bloom.add(item)
    return bloom


@pytest.mark.parametrize(
    ("capacity", "error_rate", "hash_count", "bit_count", "byte_length"),
    [
        (10_000, 0.001, 10, 150_000, 18_752),
        (1, 0.001, 10, 15, 8),
        (64, 0.05, 5, 448, 64),  # 448 is a multiple of 64: a whole word stays unused
        (7, 0.5, 1, 14, 8),
        (1, 0.999, 1, 1, 8),
    ],
)
def test_shape_follows_from_capacity_and_error_rate(
    capacity: int, error_rate: float, hash_count: int, bit_count: int, byte_length: int
) -> None:
    shape = BloomShape(capacity, error_rate)
    assert shape.hash_count == hash_count
    assert shape.bit_count == bit_count
    assert shape.byte_length == byte_length
    assert len(BloomFilter(capacity, error_rate).to_bytes()) == byte_length


@pytest.mark.parametrize(
    ("capacity", "error_rate"), [(0, 0.1), (-1, 0.1), (1, 0.0), (1, 1.0), (1, -0.5), (1, math.nan)]
)
def test_impossible_shape_is_refused(capacity: int, error_rate: float) -> None:
    with pytest.raises(ConfigurationError, match="bloom"):
        BloomFilter(capacity, error_rate)


def test_hash_pair_is_murmur3_read_as_signed_and_made_positive() -> None:
    negative = next(item for item in ids("id", 100) if mmh3.hash(item) < 0)
    positive = next(item for item in ids("id", 100) if mmh3.hash(item) > 0)
    assert hash_pair(negative)[0] == -mmh3.hash(negative, signed=True)
    assert hash_pair(positive)[0] == mmh3.hash(positive, signed=True)
    assert hash_pair(positive)[1] == abs(mmh3.hash(positive + " b"))


@pytest.mark.parametrize(
    ("first", "encoded"),
    [
        (0, "0000000000000001 0000000000000000"),
        (7, "0000000000000080 0000000000000000"),
        (8, "0000000000000100 0000000000000000"),
        (63, "8000000000000000 0000000000000000"),
        (64, "0000000000000000 0000000000000001"),
        (99, "0000000000000000 0000000800000000"),
        (100, "0000000000000001 0000000000000000"),  # modulo the 100 bits of this shape
    ],
)
def test_words_are_big_endian_and_bits_count_from_the_lowest(first: int, encoded: str) -> None:
    bloom = BloomFilter(10, 0.01)
    assert bloom.shape.bit_count == 100
    bloom.add_pair((first, 0))
    assert bloom.to_bytes() == bytes.fromhex(encoded)


def test_bits_of_an_id_are_steps_of_its_second_hash_from_its_first() -> None:
    bloom = BloomFilter(10, 0.01)
    assert bloom.shape.hash_count == 7
    bloom.add_pair((1090, 2**31))  # 90, then steps of 48, modulo 100
    expected = sum(1 << index for index in (90, 38, 86, 34, 82, 30, 78))
    low, high = expected & (1 << 64) - 1, expected >> 64
    assert bloom.to_bytes() == low.to_bytes(8, "big") + high.to_bytes(8, "big")


def test_step_that_ends_at_the_last_bit_goes_on_at_the_first() -> None:
    bloom = BloomFilter(10, 0.01)
    bloom.add_pair((60, 40))
    assert bloom.to_bytes() == sum(1 << index for index in (0, 20, 40, 60)).to_bytes(8, "big") + (
        1 << 80 - 64
    ).to_bytes(8, "big")
    assert bloom.has_pair((60, 40))


def test_every_added_id_is_found(full: BloomFilter) -> None:
    assert all(item in full for item in ids("member", CAPACITY))
    assert all(full.has_pair(hash_pair(item)) for item in ids("member", CAPACITY))


def test_empty_filter_contains_nothing() -> None:
    bloom = BloomFilter(CAPACITY, ERROR_RATE)
    assert not any(item in bloom for item in ids("member", 1000))
    assert bloom.to_bytes() == bytes(bloom.shape.byte_length)


def test_wrong_positives_stay_near_the_error_rate_at_capacity(full: BloomFilter) -> None:
    wrong = sum(item in full for item in ids("stranger", 10_000))
    assert wrong <= 10_000 * ERROR_RATE * 3


def test_adding_a_pair_is_adding_its_id() -> None:
    by_id, by_pair = BloomFilter(CAPACITY, ERROR_RATE), BloomFilter(CAPACITY, ERROR_RATE)
    by_id.add("id")
    by_pair.add_pair(hash_pair("id"))
    assert by_id.to_bytes() == by_pair.to_bytes()


@pytest.mark.parametrize(("capacity", "error_rate"), [(1, 0.5), (1_000, 0.001), (300, 1e-9)])
@pytest.mark.parametrize("count", [0, 1, 700])
def test_adding_many_is_adding_each(capacity: int, error_rate: float, count: int) -> None:
    one_by_one, at_once = BloomFilter(capacity, error_rate), BloomFilter(capacity, error_rate)
    for item in ids("member", count):
        one_by_one.add(item)
    at_once.add_many(ids("member", count))
    assert at_once.to_bytes() == one_by_one.to_bytes()
    assert at_once.count == one_by_one.count


def test_order_and_repetition_leave_no_trace_in_the_bytes() -> None:
    one, other = BloomFilter(CAPACITY, ERROR_RATE), BloomFilter(CAPACITY, ERROR_RATE)
    for item in ("a", "b", "c"):
        one.add(item)
    for item in ("c", "a", "b", "a"):
        other.add(item)
    assert one.to_bytes() == other.to_bytes()


def test_count_is_of_ids_added_until_cleared(full: BloomFilter) -> None:
    assert full.count == CAPACITY
    full.add("member-0")
    assert full.count == CAPACITY + 1
    full.clear()
    assert full.count == 0
    assert full.to_bytes() == bytes(full.shape.byte_length)
    assert "member-0" not in full


def test_filter_survives_its_bytes(full: BloomFilter) -> None:
    copy = BloomFilter.from_bytes(full.to_bytes(), CAPACITY, ERROR_RATE)
    assert copy.to_bytes() == full.to_bytes()
    assert copy.count == 0
    copy.add("another")
    assert copy.to_bytes() != full.to_bytes()
    assert "another" in copy
    assert "member-0" in copy


@pytest.mark.parametrize("difference", [-8, -1, 1, 8])
def test_bytes_of_another_length_are_not_such_a_filter(difference: int) -> None:
    shape = BloomShape(CAPACITY, ERROR_RATE)
    data = bytes(shape.byte_length + difference)
    with pytest.raises(DecodeError, match=str(shape.byte_length)):
        BloomFilter.from_bytes(data, CAPACITY, ERROR_RATE)
    with pytest.raises(DecodeError, match=str(shape.byte_length)):
        shape.matches(data, [])


def test_many_pairs_are_looked_up_in_received_bytes_in_their_order(full: BloomFilter) -> None:
    pairs = [hash_pair(item) for item in ("member-3", "stranger", "member-7")]
    assert full.shape.matches(full.to_bytes(), pairs) == [True, False, True]


def test_ratio_of_set_bits_is_about_one_half_at_capacity(full: BloomFilter) -> None:
    assert 0.45 < full.shape.bits_set_ratio(full.to_bytes()) < 0.55


def test_ratio_of_set_bits_counts_them_all() -> None:
    shape = BloomShape(10, 0.01)  # 100 bits in 16 bytes
    assert shape.bits_set_ratio(bytes(16)) == 0
    assert shape.bits_set_ratio(b"\x80" + bytes(14) + b"\x03") == 0.03
    # Bits beyond the shape's own, which only garbage has, raise the ratio above 1.
    assert shape.bits_set_ratio(b"\xff" * 16) == 1.28


@pytest.mark.parametrize("capacity", [10, 1_000, 10_000])
@pytest.mark.parametrize("length", [0, 1, 7])
def test_ratio_is_the_same_however_long_the_filter_is(capacity: int, length: int) -> None:
    shape = BloomShape(capacity, ERROR_RATE)
    data = Random(capacity).randbytes(shape.byte_length + length)  # of its shape only without more
    expected = sum(byte.bit_count() for byte in data) / shape.bit_count
    assert shape.bits_set_ratio(data) == expected
