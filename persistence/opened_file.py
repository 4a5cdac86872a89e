"""Whether a path still names the file that was opened there.

A file that was removed or replaced while open goes on taking what is written to it, and is gone with its last opening.
Nothing here opens a file: closing it again would give back the locks that this process has on it.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self

from reliable_channel.errors import StoreUnavailableError


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """A file that is open.

    Args:
        path: Where it was opened.
        device: The file system that it is on.
        inode: Which file of that.
    """

    path: str
    device: int
    inode: int

    @classmethod
    def at(cls, path: str) -> Self:
        """Return the file that is at a path now.

        Raises:
            StoreUnavailableError: There is none, or that cannot be told.
        """
        try:
            return cls.of(path, os.stat(path))
        except OSError as error:
            problem = f"{path}: cannot be looked at: {error.strerror}"
            raise StoreUnavailableError(problem) from error

    @classmethod
    def of(cls, path: str, status: os.stat_result) -> Self:
        """Return the file that a descriptor is for."""
        return cls(path, status.st_dev, status.st_ino)

    def is_there(self) -> bool:
        """Say whether the path still names this file; where that cannot be told, it does not."""
        try:
            status = os.stat(self.path)
        except OSError:
            return False
        return status.st_ino == self.inode and status.st_dev == self.device

    def check(self) -> None:
        """Do nothing if the path still names this file.

        Raises:
            StoreUnavailableError: It does not; it may again later.
        """
        if not self.is_there():
            problem = (
                f"{self.path} was replaced or removed while open; put it back, or stop the process, "
                "restore it and start again"
            )
            raise StoreUnavailableError(problem)
