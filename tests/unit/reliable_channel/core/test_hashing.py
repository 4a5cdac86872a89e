"""keccak-256 against published values."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_channel.core.hashing import (
    JOIN_LIMIT_BYTES,
    LARGE,
    LARGE_BYTES,
    MAX_LENGTHS,
    keccak256,
    keccak256_parts,
    small_backend,
    zeros_until,
)

ABC = "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"


@pytest.mark.parametrize(
    ("data", "digest"),
    [
        (b"", "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (b"abc", ABC),
        (
            b"Transfer(address,address,uint256)",
            "ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef",
        ),
    ],
)
def test_hash_is_the_published_one(data: bytes, digest: str) -> None:
    assert keccak256(data).hex() == digest
    assert keccak256_parts(data).hex() == digest


def test_small_data_is_hashed_by_the_extra_where_it_is_installed_and_else_as_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "eth_hash.backends.pysha3", raising=False)
    monkeypatch.setitem(sys.modules, "sha3", None)  # as if it was not installed
    assert small_backend() is LARGE
    monkeypatch.undo()
    pytest.importorskip("sha3", reason="the extra `fast` is not installed")
    assert type(small_backend()).__name__ == "PySha3Backend"


@given(st.binary(max_size=600), st.integers(LARGE_BYTES - 600, LARGE_BYTES + 600))
def test_both_implementations_give_equal_hashes(data: bytes, octets: int) -> None:
    for whole in (data, data.ljust(octets, b"x")):
        digest = LARGE.keccak256(whole)
        assert keccak256(whole) == small_backend().keccak256(whole) == digest
        assert keccak256_parts(whole[:7], whole[7:]) == digest


def test_hash_is_not_the_standardised_sha3() -> None:
    assert keccak256(b"abc") != hashlib.sha3_256(b"abc").digest()


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param((), id="none"),
        pytest.param((b"", b"a", b"", b"bc"), id="small"),
        pytest.param((b"p" * 135, b"q", b"r"), id="around a block"),
        pytest.param((b"p" * (LARGE_BYTES - 1),), id="small by one"),
        pytest.param((b"p" * (LARGE_BYTES - 1), b"q"), id="large"),
        pytest.param((b"p" * (JOIN_LIMIT_BYTES - 1), b"q"), id="at the limit of joining"),
        pytest.param((b"p" * JOIN_LIMIT_BYTES, b"q"), id="above the limit of joining"),
        pytest.param((b"alice", b"1700000000000000000", b"c" * 102_400), id="a segment"),
    ],
)
def test_hash_of_parts_is_the_hash_of_the_whole(parts: tuple[bytes, ...]) -> None:
    assert keccak256_parts(*parts) == keccak256(b"".join(parts))


@pytest.mark.parametrize(
    ("zeros", "limit", "found"),
    [
        (0, 0, True),
        (0, 9, True),
        (9, 9, True),
        (10, 9, False),
        (MAX_LENGTHS - 1, 150_000, True),
        (MAX_LENGTHS, 150_000, False),
        (149_999, 150_000, False),
        (150_000, 150_000, True),
        (MAX_LENGTHS - 1, MAX_LENGTHS, True),
        (MAX_LENGTHS, MAX_LENGTHS, True),
        (MAX_LENGTHS, MAX_LENGTHS + 1, False),
    ],
)
def test_the_fewest_zeros_are_tried_and_the_most(zeros: int, limit: int, *, found: bool) -> None:
    """docs/adr/0013: each length in between costs a permutation, and a chunk has room for 150,000."""
    digest = keccak256(b"data" + bytes(zeros))
    assert zeros_until(b"data", digest, limit) == (zeros if found else None)


def test_environment_does_not_choose_the_implementation() -> None:
    program = "from reliable_channel.core.hashing import keccak256; print(keccak256(b'abc').hex())"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"ETH_HASH_BACKEND": "no-such-backend"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == ABC
