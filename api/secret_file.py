"""Files that hold secrets: read line by line, refused where everybody may read them.

Lines are never part of an error: only the file and the number of the line are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from reliable_channel.errors import ConfigurationError

MAX_BYTES: Final = 1 << 20
"""Nobody has a longer list; a device or a wrong file is noticed."""


def secret_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Give the lines that say something, with their numbers; ``#`` begins a comment line.

    Like ssh with its keys, a file that everybody on the machine may read is refused. Its group may: that is how
    systemd and containers hand secrets to a service.

    Args:
        path: Of the file.

    Raises:
        ConfigurationError: It cannot be read, is no text, or is open to everybody.
    """
    for number, line in enumerate(_read(path).splitlines(), 1):
        text = line.strip()
        if text and not text.startswith("#"):
            yield number, text


def _read(path: Path) -> str:
    try:
        with path.open("rb") as handle:
            mode = os.fstat(handle.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
                problem = (
                    f"{path} may be read or written by everybody on this machine; chmod 600 {path}"
                )
                raise ConfigurationError(problem)
            content = handle.read(MAX_BYTES + 1)
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}"
        raise ConfigurationError(problem) from None
    if len(content) > MAX_BYTES:
        problem = f"{path} is longer than {MAX_BYTES} bytes; it is not a list of secrets"
        raise ConfigurationError(problem)
    try:
        return content.decode()
    except UnicodeDecodeError:
        problem = f"{path} is not UTF-8; save it as UTF-8"
    raise ConfigurationError(problem)
