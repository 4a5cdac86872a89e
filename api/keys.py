"""The encryption keys of a service: named from outside, shown to nobody.

Requests name a key (``keyRef``); its value comes from a file or the environment and goes nowhere but into the cipher.
Nothing here may put a value into a text: not into ``repr``, a log line or an error.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from api.secret_file import secret_lines
from reliable_channel.encryption import KEY_BYTES
from reliable_channel.errors import ConfigurationError

KEY_VARIABLE: Final = "RELIABLE_CHANNEL_KEY_"
"""Of environment variables that hold a key; the rest is its name, as it stands."""

NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
LINE: Final = re.compile(r"""(?P<name>[^\s=]+)\s*=\s*(["']?)(?P<value>[^\s"']+)\2\s*(#.*)?""")


class KeyRing:
    """Keys by name.

    Args:
        keys: Each of 32 bytes.

    Raises:
        ConfigurationError: A name or a key is unusable.
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, bytes] | None = None) -> None:
        self._keys = dict(keys or {})
        for name, key in self._keys.items():
            if not NAME.fullmatch(name):
                problem = f"a key's name is 1 to 64 of A-Z a-z 0-9 . _ -, not {name[:80]!r}"
                raise ConfigurationError(problem)
            if len(key) != KEY_BYTES:
                problem = f"key {name!r} must be {KEY_BYTES} bytes, not {len(key)}"
                raise ConfigurationError(problem)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._keys))

    def get(self, key_ref: str) -> bytes:
        """Return a key.

        Raises:
            KeyError: There is none of this name.
        """
        return self._keys[key_ref]

    def __contains__(self, key_ref: object) -> bool:
        """Say whether there is a key of this name."""
        return key_ref in self._keys

    def __repr__(self) -> str:
        """Return the names only."""
        return f"KeyRing({', '.join(self.names)})"


def read_keys(path: Path | None, environ: Mapping[str, str]) -> KeyRing:
    """Return the keys of a file and of the environment; the environment beats the file.

    Args:
        path: File with lines ``NAME = KEY``, quoted or not, so that flat TOML will do; None is no file.
        environ: Environment variables; ``RELIABLE_CHANNEL_KEY_NAME`` holds the key ``NAME``.

    Raises:
        ConfigurationError: The file is unusable, or a key is not 32 bytes in hex or base64.
    """
    keys: dict[str, bytes] = {}
    for number, line in [] if path is None else secret_lines(path):
        match = LINE.fullmatch(line)
        if match is None or not NAME.fullmatch(match["name"]):
            problem = f"{path}, line {number}: write NAME = KEY, the name of A-Z a-z 0-9 . _ -"
            raise ConfigurationError(problem)
        if match["name"] in keys:
            problem = f"{path}, line {number}: there is a key {match['name']!r} already"
            raise ConfigurationError(problem)
        keys[match["name"]] = _decode(match["value"], f"{path}, line {number}")
    for variable, value in environ.items():
        if variable.startswith(KEY_VARIABLE) and value:
            keys[variable.removeprefix(KEY_VARIABLE)] = _decode(value, f"environment, {variable}")
    return KeyRing(keys)


def _decode(text: str, where: str) -> bytes:
    """Return the bytes of a key in hex or base64, either alphabet."""
    key = b""
    if re.fullmatch(rf"[0-9a-fA-F]{{{2 * KEY_BYTES}}}", text):
        key = bytes.fromhex(text)
    else:
        try:
            padded = text + "=" * (-len(text) % 4)
            key = base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
        except (ValueError, binascii.Error):
            pass  # said below, without the text
    if len(key) != KEY_BYTES:
        problem = (
            f"{where}: a key is {KEY_BYTES} random bytes in hex or base64; "
            "openssl rand -hex 32 makes one"
        )
        raise ConfigurationError(problem)
    return key
