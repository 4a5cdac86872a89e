"""Laws of the parity codes: any k of k+m shards are enough, fewer never are.

Spec: LIP-243 (segmentation), Reed-Solomon parity.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reliable_channel.core.reed_solomon import UnrecoverableError, encode_parity, recover

# How long one example takes says more about the machine than about the code.


@dataclass(frozen=True)
class Case:
    """A shape, and a seed for data and losses."""

    code: str
    data_count: int
    parity_count: int
    size: int
    seed: int

    def shards(self) -> list[bytes]:
        rng = random.Random(self.seed)
        return [rng.randbytes(self.size) for _ in range(self.data_count)]

    def survivors(self, count: int) -> list[bool]:
        """Choose shards that arrive, data first; small seeds lose the first ones."""
        total = self.data_count + self.parity_count
        chosen = set(range(total - count, total))
        if self.seed >= 4:
            chosen = set(random.Random(~self.seed).sample(range(total), count))
        return [index in chosen for index in range(total)]

    def arrived(self, shards: list[bytes], count: int) -> list[bytes | None]:
        """Return all shards, data first, with None for what does not arrive."""
        present = self.survivors(count)
        return [shard if there else None for shard, there in zip(shards, present, strict=True)]

    def recover(self, arrived: list[bytes | None]) -> list[bytes]:
        return recover(arrived[: self.data_count], arrived[self.data_count :], self.code)


SEEDS = st.integers(0, 2**32)

# Short and long shards, on both sides of where the kernel changes its way of working.
LENGTHS = st.integers(1, 300) | st.sampled_from([4095, 4096, 4097, 8193, 33_000])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    code = draw(st.sampled_from(["reedsolo", "leopard"]))
    data_count = draw(st.integers(1, 40))
    if code == "reedsolo":
        parity_count = draw(st.integers(1, 40))
        return Case(code, data_count, parity_count, draw(LENGTHS), draw(SEEDS))
    parity_count = draw(st.integers(1, data_count))
    return Case(code, data_count, parity_count, -(-draw(LENGTHS) // 64) * 64, draw(SEEDS))


@st.composite
def wide_cases(draw: st.DrawFn) -> Case:
    """Shapes up to the codes' limits, where Leopard changes to GF(2^16)."""
    code = draw(st.sampled_from(["reedsolo", "leopard"]))
    limit = 255 if code == "reedsolo" else 256
    data_count = draw(st.integers(limit // 2, limit - 1))
    parity_count = draw(st.integers(1, limit - data_count))
    return Case(code, data_count, parity_count, 64 * draw(st.integers(1, 3)), draw(SEEDS))


@given(cases() | wide_cases())
@example(Case("reedsolo", 226, 29, 64, 0))
@example(Case("leopard", 227, 29, 64, 0))
@example(Case("leopard", 129, 127, 64, 0))
@example(Case("leopard", 1, 1, 64, 0))
@example(Case("reedsolo", 1, 254, 1, 9))
@pytest.mark.timeout(120)
def test_any_k_shards_rebuild_the_data(case: Case) -> None:
    shards = case.shards()
    parity = encode_parity(shards, case.parity_count, case.code)
    arrived = case.arrived([*shards, *parity], case.data_count)
    assert case.recover(arrived) == shards


@given(cases(), st.data())
def test_more_than_k_shards_rebuild_the_data(case: Case, data: st.DataObject) -> None:
    shards = case.shards()
    parity = encode_parity(shards, case.parity_count, case.code)
    more = data.draw(st.integers(0, case.parity_count))
    arrived = case.arrived([*shards, *parity], case.data_count + more)
    assert case.recover(arrived) == shards


@given(cases(), st.data())
def test_fewer_than_k_shards_are_refused(case: Case, data: st.DataObject) -> None:
    blank = [bytes(case.size)] * (case.data_count + case.parity_count)
    count = data.draw(st.integers(0, case.data_count - 1))
    with pytest.raises(UnrecoverableError) as caught:
        case.recover(case.arrived(blank, count))
    assert (caught.value.held, caught.value.needed) == (count, case.data_count)


@given(cases())
def test_parity_of_a_sum_is_the_sum_of_parities(case: Case) -> None:
    one = case.shards()
    other = Case(case.code, case.data_count, case.parity_count, case.size, case.seed + 1).shards()
    both = list(map(add, one, other))
    parities = [encode_parity(shards, case.parity_count, case.code) for shards in (one, other)]
    assert encode_parity(both, case.parity_count, case.code) == list(map(add, *parities))


@given(cases())
def test_parts_of_a_shard_do_not_depend_on_each_other(case: Case) -> None:
    shards = case.shards()
    half = case.size // 128 * 64
    whole = encode_parity(shards, case.parity_count, case.code)
    for part in (slice(0, half), slice(half, case.size)):
        if pieces := [piece for shard in shards if (piece := shard[part])]:
            expected = [shard[part] for shard in whole]
            assert encode_parity(pieces, case.parity_count, case.code) == expected


def add(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left) ^ int.from_bytes(right)).to_bytes(len(left))
