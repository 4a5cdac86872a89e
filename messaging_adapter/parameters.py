"""The query of a transport's URL: each parameter read once, all that is wrong with them said together.

It must not know any transport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import SplitResult, parse_qsl

from reliable_channel.errors import ConfigurationError

Readers: TypeAlias = Mapping[str, Callable[[str], object]]
"""What makes a value of a text, by parameter: ``int``, ``float`` or ``str``."""


def read_parameters(parts: SplitResult, readers: Readers) -> dict[str, Any]:
    """Return the values of a URL's parameters by name; those that are not given are not in it.

    Args:
        parts: The URL.
        readers: The parameters that there are.

    Raises:
        ConfigurationError: An unknown or repeated parameter, or a value that is no number; all problems are named.
    """
    problems = []
    values: dict[str, Any] = {}
    for key, text in parse_qsl(parts.query, keep_blank_values=True):
        if key not in readers:
            known = ", ".join(readers)
            problems.append(f"{parts.scheme}:// has no parameter {key!r}; it has {known}")
        elif key in values:
            problems.append(f"{key} is given twice")
        else:
            try:
                values[key] = readers[key](text)
            except ValueError:
                kind = "a whole number" if readers[key] is int else "a number"
                problems.append(f"{key} must be {kind}, not {text!r}")
    if problems:
        raise ConfigurationError(problems)
    return values
