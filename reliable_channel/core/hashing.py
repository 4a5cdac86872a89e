"""keccak-256, the hash behind message ids and payload hashes.

This is Ethereum's keccak with the original padding, not the SHA3-256 of the standard library.

Spec: LIP-173 (reliable channel API), MessageId; LIP-243 (segmentation), entire_message_hash.
"""

from __future__ import annotations

from typing import Final

from Crypto.Hash import keccak
from eth_hash.abc import BackendAPI

# Backends are named: eth_hash.auto would pick one by an environment variable, on first use.
from eth_hash.backends.pycryptodome import CryptodomeBackend

LARGE: Final[BackendAPI] = CryptodomeBackend()
"""Hashes most bytes a second, but a call costs more than a hash of 500 bytes."""


def small_backend() -> BackendAPI:
    """Return what hashes small data: ``pysha3`` where the extra ``fast`` is installed, else as large data."""
    try:
        from eth_hash.backends.pysha3 import PySha3Backend
    except ImportError:
        return LARGE
    return PySha3Backend()


SMALL: Final = small_backend()
"""Hashes what is below ``LARGE_BYTES``; both give the same hashes."""

LARGE_BYTES: Final = 1 << 13
"""From here on, the rate of bytes counts more than the cost of a call."""

JOIN_LIMIT_BYTES: Final = 1 << 15
"""Below, copying parts together costs less than a call into the hash for each (about 1 us)."""

MAX_LENGTHS: Final = 1_024
"""Lengths that are tried where a sender gave none: a chunk of zeros would else cost a second."""

_small_hash: Final = SMALL.keccak256
_large_hash: Final = LARGE.keccak256


def keccak256(data: bytes) -> bytes:
    """Return the keccak-256 hash of the data, 32 bytes."""
    return _small_hash(data) if len(data) < LARGE_BYTES else _large_hash(data)


def keccak256_parts(*parts: bytes) -> bytes:
    """Return the keccak-256 hash of the parts in a row, 32 bytes; large parts are not copied."""
    if sum(map(len, parts)) <= JOIN_LIMIT_BYTES:
        return keccak256(b"".join(parts))
    hasher = keccak.new(digest_bits=256)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def zeros_until(data: bytes, digest: bytes, limit: int) -> int | None:
    """Return how many zero bytes after the data give the digest; None when none that is tried does.

    Tried are the fewest ``MAX_LENGTHS``, and the limit. The data is hashed once; each zero costs one permutation.
    """
    hasher = keccak.new(data=data, digest_bits=256, update_after_digest=True)
    for count in range(min(limit, MAX_LENGTHS)):
        if hasher.digest() == digest:
            return count
        hasher.update(b"\0")
    hasher.update(bytes(max(0, limit - MAX_LENGTHS)))
    return limit if hasher.digest() == digest else None
