"""Fields as bytes, against bytes written by hand."""

from __future__ import annotations

import pytest

from reliable_channel.core.wire.writing import delimited, size, varint


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (1, b"\x01"),
        (0x7F, b"\x7f"),
        (0x80, b"\x80\x01"),
        (300, b"\xac\x02"),
        (0x3FFF, b"\xff\x7f"),
        (0x4000, b"\x80\x80\x01"),
        (2**64 - 1, b"\xff" * 9 + b"\x01"),
    ],
)
def test_a_number_is_written_in_groups_of_seven_bits(number: int, encoded: bytes) -> None:
    assert varint(number) == size(number) == encoded


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_that_does_not_fit_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="not within 0 to 18446744073709551615"):
        varint(number)


@pytest.mark.parametrize(
    ("octets", "length"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_bytes_follow_their_tag_and_length(octets: int, length: bytes) -> None:
    data = b"d" * octets
    assert delimited(b"\xa2\x01", data) == b"\xa2\x01" + length + data
