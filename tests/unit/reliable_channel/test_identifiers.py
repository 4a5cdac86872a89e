"""Which texts may be channel or sender ids, and how others are refused."""

from __future__ import annotations

import pytest

from reliable_channel.errors import ConfigurationError
from reliable_channel.identifiers import check_identifier, is_clean, is_identifier

VALID = [
    "a",
    " ",
    "room/1",
    "Zoë",
    "会议室",
    "👩‍👩‍👧",  # with joiners, which are no control characters
    "x" * 255,
    "ä" * 127,
    "€" * 85,
    "\u00a0",
    "\u2028",
]

INVALID = [
    "",
    "x" * 256,
    "ä" * 128,
    "€" * 86,
    "😀" * 64,
    *(f"a{chr(code)}b" for code in (0x00, 0x09, 0x0A, 0x0D, 0x1F, 0x7F, 0x80, 0x85, 0x9F)),
    "\ud800",
    "a\udfff",
]


@pytest.mark.parametrize("text", VALID, ids=ascii)
def test_texts_of_1_to_255_bytes_without_control_characters_are_ids(text: str) -> None:
    assert is_identifier(text)
    check_identifier("channel_id", text)


@pytest.mark.parametrize("text", INVALID, ids=lambda text: ascii(text)[:20] + f" {len(text)}")
def test_other_texts_are_none(text: str) -> None:
    assert not is_identifier(text)
    with pytest.raises(ConfigurationError, match=r"^sender_id ") as caught:
        check_identifier("sender_id", text)
    assert "\n" not in str(caught.value)
    str(caught.value).encode()


@pytest.mark.parametrize("value", [None, 1, b"room", ["room"], True])
def test_what_is_no_text_is_refused_with_its_type(value: object) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_identifier("channel_id", value)
    assert str(caught.value) == f"channel_id must be text, not {type(value).__name__}"


def test_an_empty_id_is_refused_as_such() -> None:
    with pytest.raises(ConfigurationError, match="channel_id is empty; give 1 to 255 bytes"):
        check_identifier("channel_id", "")


def test_what_is_too_long_is_not_kept() -> None:
    is_clean.cache_clear()
    assert not is_identifier("x" * 100_000)
    assert not is_identifier("")
    assert is_clean.cache_info().currsize == 0
    assert is_identifier("x" * 255)
    assert is_clean.cache_info().currsize == 1
