"""What may be a channel id or a sender id: 1-255 bytes of UTF-8 without control characters.

Spec: LIP-109 (SDS) types them as text; the bounds are ours (docs/wire.md).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from reliable_channel.errors import ConfigurationError

MAX_IDENTIFIER_BYTES: Final = 255

CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
"""Characters that no id may have: stores and terminals choke on them."""


def is_identifier(text: str) -> bool:
    """Tell whether a text may be a channel or sender id."""
    return 0 < len(text) <= MAX_IDENTIFIER_BYTES and is_clean(text)


@lru_cache(maxsize=4096)
def is_clean(text: str) -> bool:
    """Tell whether a text that is short enough in characters may be an id; longer ones are not to be kept."""
    if CONTROL.search(text):
        return False
    try:
        return len(text.encode()) <= MAX_IDENTIFIER_BYTES
    except UnicodeEncodeError:
        return False


def check_identifier(what: str, text: object) -> str:
    """Return the text of what may be an id, and refuse anything else.

    Args:
        what: What it is meant to be, for the error.
        text: Any object.

    Raises:
        ConfigurationError: It may not be an id.
    """
    if not isinstance(text, str):
        problem = f"{what} must be text, not {type(text).__name__}"
    elif not text:
        problem = f"{what} is empty; give 1 to {MAX_IDENTIFIER_BYTES} bytes of text"
    elif not is_identifier(text):
        limit = f"1 to {MAX_IDENTIFIER_BYTES} bytes of UTF-8 without control characters"
        problem = f"{what} must be {limit}"
    else:
        return text
    raise ConfigurationError(problem)
