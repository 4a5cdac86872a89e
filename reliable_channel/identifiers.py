"""What may be a channel id or a sender id: 1-255 bytes of UTF-8 without control characters.

Spec: LIP-109 (SDS) types them as text; the bounds are ours (docs/wire.md).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from reliable_channel.errors import ConfigurationError

MAX_IDENTIFIER_BYTES: Final = 255

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")


@lru_cache(maxsize=4096)
def is_identifier(text: str) -> bool:
    """Tell whether a text may be a channel or sender id."""
    if not text or len(text) > MAX_IDENTIFIER_BYTES or _CONTROL.search(text):
        return False
    try:
        return len(text.encode()) <= MAX_IDENTIFIER_BYTES
    except UnicodeEncodeError:
        return False


def check_identifier(what: str, text: object) -> str:
    """Return the text when it may be an id.

    Args:
        what: What it is meant to be, for the error.
        text: Any object.

    Raises:
        ConfigurationError: It may not.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"{what} must be text, not {type(text).__name__}")
    if not text:
        raise ConfigurationError(f"{what} is empty; give 1 to {MAX_IDENTIFIER_BYTES} bytes of text")
    if not is_identifier(text):
        raise ConfigurationError(
            f"{what} must be 1 to {MAX_IDENTIFIER_BYTES} bytes of UTF-8 without control characters"
        )
    return text
