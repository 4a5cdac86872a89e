"""Protobuf fields as bytes: what the runtime would write, without building its message first.

A message that is made once and encoded at once costs less so; large fields are copied once, into memory of the right
size, where the runtime copies them several times. Nothing here knows a message or reads one: that the bytes are the
runtime's is for the tests of each message, with the generated classes.

Spec: Protocol Buffers, Encoding.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

ONE_BYTE: Final = 0x80
"""Lengths below are written in one byte."""

MAX_UINT64: Final = (1 << 64) - 1


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the lowest first.

    Raises:
        ValueError: The number is not within 0 to 2**64 - 1.
    """
    if not 0 <= number <= MAX_UINT64:
        problem = f"{number} is not within 0 to {MAX_UINT64}"
        raise ValueError(problem)
    groups = []
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


@lru_cache(maxsize=1024)
def size(octets: int) -> bytes:
    """Return the length that stands before a field of that many bytes; the same ones come again and again."""
    return varint(octets)


def delimited(tag: bytes, data: bytes) -> bytes:
    """Return a field that holds bytes or an encoded message.

    Args:
        tag: Number and wire type of the field, encoded.
        data: Its value; better not large, for it is copied.
    """
    octets = len(data)
    if octets < ONE_BYTE:
        return b"%b%c%b" % (tag, octets, data)
    return b"".join((tag, size(octets), data))
