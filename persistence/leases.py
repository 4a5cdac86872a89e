"""Leases: who drives a channel, so that no two do; a lease dies with the process that holds it.

`FileLeases` are locks on bytes of a file beside an SQLite file, which the operating system gives back when the process
ends, however it ends. `AdvisoryLeases` are locks of a PostgreSQL session, which the server gives back when the session
ends. A process whose session ended goes on with its channels in the next one unless somebody took them meanwhile: who
takes a channel writes a number of its own to the channel's row, which others can see.

Everything here blocks and is for the thread of the store. Nothing here may know rows or events.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import RLock
from typing import Final, Protocol, Self
from weakref import finalize

from sqlalchemy import Connection, func, select, text

from persistence.opened_file import OpenedFile
from persistence.statements import SELECT_LEASE, TAKE_CHANNEL
from reliable_channel.errors import ChannelExistsError, LeaseLostError, StoreUnavailableError
from reliable_channel.store import lease_of
from reliable_channel.types import ChannelId

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

TAKEN: Final = "on this store, driven by another process or store object"
"""Where a channel is that is refused."""


class Leases(Protocol):
    """The leases of one opening of a store."""

    def holds(self, channel_id: ChannelId) -> bool:
        """Say whether a channel was taken and not given back."""

    def take(self, writer: Connection, channel_id: ChannelId) -> None:
        """Take a channel.

        Raises:
            ChannelExistsError: Somebody else drives it.
            StoreUnavailableError: That cannot be told.
        """

    def check_place(self) -> None:
        """Do nothing if others would find what we hold; before `check`, once for all channels.

        Raises:
            StoreUnavailableError: They would not, so that somebody may have taken any of it.
        """

    def check(self, channel_id: ChannelId) -> None:
        """Do nothing if nobody has taken the channel from us.

        Raises:
            LeaseLostError: Somebody has.
        """

    def resume(self, writer: Connection) -> None:
        """Hold in a new connection what was held in the last.

        Raises:
            StoreUnavailableError: That cannot be told yet.
        """

    def confirm(self, writer: Connection, channel_id: ChannelId) -> None:
        """Say in the transaction that the channel is ours, if it is: its row was deleted."""

    def give_back(self, writer: Connection | None, channel_id: ChannelId) -> None:
        """Give a channel back; harmless when it is not held.

        Args:
            writer: The connection; None where there is none any more.
            channel_id: The channel.
        """

    def close(self, writer: Connection | None) -> None:
        """Give everything back that is still held; the arguments are as above."""

    def driven(
        self, reader: Connection, channel_ids: Iterable[ChannelId]
    ) -> dict[ChannelId, bool | None]:
        """Say of each channel whether anybody holds it now, without taking it; None: cannot be told."""


LEDGER_LEASE: Final = "\x1fledger "
"""How names of ledgers begin where those of channels are expected; no channel's id has such a character."""


def ledger_lease(scope: str) -> ChannelId:
    """Return what a ledger, with those that go with it, is called among the channels that are leased."""
    return f"{LEDGER_LEASE}{lease_of(scope)}"


def lock_number(*parts: str) -> int:
    """Return the number of a lock: 62 bits that hardly anything else gives."""
    named = "\0".join(["reliable-channel", *parts])
    return int.from_bytes(hashlib.sha256(named.encode()).digest()[:8], "big") >> 2


# --- Locks on bytes of a file --------------------------------------------------------------------
# Locks of the process (fcntl), not of the open file (flock): children that were forked do not inherit them, so that
# they end with their owner. They have two oddities: they do not keep out the process itself, and all are gone when
# the process closes the file, opened whenever. Hence one open file for all stores of the process, closed with the
# last lock.


@dataclass(slots=True)
class _LockFile:
    """The one opening of a file by this process.

    Once another file was found in its place, others may have taken what is locked here, whatever is there later.
    """

    descriptor: int
    file: OpenedFile
    held: set[int] = field(default_factory=set)
    is_lost: bool = False

    @classmethod
    def open(cls, path: str, flags: int) -> Self:
        descriptor = os.open(path, flags, 0o644)
        return cls(descriptor, OpenedFile.of(path, os.fstat(descriptor)))

    def check(self) -> None:
        self.is_lost = self.is_lost or not self.file.is_there()
        if self.is_lost:
            problem = (
                f"{self.file.path} was replaced or removed while open, so that other processes may drive "
                "the channels of this one; close them, see to it that nobody does, and open them again"
            )
            raise StoreUnavailableError(problem)


_lock_files: Final[dict[str, _LockFile]] = {}
_lock_files_lock: Final = RLock()
_forgotten: Final[deque[tuple[str, set[int]]]] = deque()
"""What objects held that are gone without being closed; given back by the next call."""


class FileLeases:
    """Locks beside a file; implements ``Leases``.

    Args:
        path: The file with the locks; it is made where it is missing, holds nothing and stays.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._held: set[int] = set()
        finalize(self, _forgotten.append, (path, self._held)).atexit = False

    def holds(self, channel_id: ChannelId) -> bool:
        """Say whether a channel was taken and not given back."""
        return lock_number(channel_id) in self._held

    def take(self, writer: Connection, channel_id: ChannelId) -> None:
        """Take a channel."""
        number = lock_number(channel_id)
        with _lock_files_lock:
            _give_back_forgotten()
            file = self._opened()
            try:
                if number in file.held or not _try_lock(file.descriptor, number):
                    raise ChannelExistsError(channel_id, TAKEN)
                file.held.add(number)
                self._held.add(number)
                file.check()  # now that it is locked
            except StoreUnavailableError:
                _unlock(file.descriptor, number)
                file.held.discard(number)
                self._held.discard(number)
                raise
            except OSError as error:
                problem = f"{self._path}: cannot be locked: {error.strerror}"
                raise StoreUnavailableError(problem) from error
            finally:
                _close_unused(self._path)

    def check(self, channel_id: ChannelId) -> None:
        """Do nothing: nobody can take a lock away."""

    def check_place(self) -> None:
        """Do nothing if the locks are in the file that others look at."""
        file = _lock_files.get(self._path)
        if file is not None and self._held:
            file.check()

    def resume(self, writer: Connection) -> None:
        """Do nothing: the locks are the process's."""

    def confirm(self, writer: Connection, channel_id: ChannelId) -> None:
        """Do nothing: rows say nothing about locks."""

    def give_back(self, writer: Connection | None, channel_id: ChannelId) -> None:
        """Give a channel back; harmless when it is not held."""
        _give_back(self._path, self._held & {lock_number(channel_id)})
        self._held.discard(lock_number(channel_id))

    def close(self, writer: Connection | None) -> None:
        """Give everything back that is still held."""
        _give_back(self._path, self._held)
        self._held.clear()

    def driven(
        self, reader: Connection, channel_ids: Iterable[ChannelId]
    ) -> dict[ChannelId, bool | None]:
        """Say of each channel whether anybody holds it now, without taking it; None: cannot be told."""
        numbers = {channel_id: lock_number(channel_id) for channel_id in channel_ids}
        with _lock_files_lock:
            _give_back_forgotten()
            ours = _lock_files.get(self._path)
            try:
                # Another opening of a file that we have open would give our locks back when it is closed.
                file = ours or _LockFile.open(self._path, os.O_RDONLY)
            except FileNotFoundError:  # it is made with the first lease, and stays
                return dict.fromkeys(numbers, False)
            except OSError:
                return dict.fromkeys(numbers, None)
            try:
                return {
                    channel_id: number in file.held or _is_locked(file.descriptor, number)
                    for channel_id, number in numbers.items()
                }
            finally:
                if ours is None:
                    os.close(file.descriptor)

    def _opened(self) -> _LockFile:
        file = _lock_files.get(self._path)
        if file is None:
            try:
                file = _LockFile.open(self._path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                problem = f"{self._path}: cannot be opened: {error.strerror}"
                raise StoreUnavailableError(problem) from error
            _lock_files[self._path] = file
        return file


def _give_back(path: str, numbers: set[int]) -> None:
    with _lock_files_lock:
        file = _lock_files.get(path)
        if file is not None:
            for number in numbers & file.held:
                _unlock(file.descriptor, number)
            file.held -= numbers
            _close_unused(path)


def _give_back_forgotten() -> None:
    while _forgotten:
        _give_back(*_forgotten.popleft())


def _close_unused(path: str) -> None:
    if not _lock_files[path].held:
        os.close(_lock_files.pop(path).descriptor)


def _forget_inherited() -> None:
    """Start anew in a forked child: it holds no lock, and closing files gives none of its parent's back."""
    for file in _lock_files.values():
        os.close(file.descriptor)
    _lock_files.clear()
    _forgotten.clear()


if sys.platform == "win32":

    def _try_lock(descriptor: int, number: int) -> bool:
        os.lseek(descriptor, number, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def _unlock(descriptor: int, number: int) -> None:
        os.lseek(descriptor, number, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

    def _is_locked(descriptor: int, number: int) -> bool | None:
        return None

else:
    os.register_at_fork(after_in_child=_forget_inherited)

    def _try_lock(descriptor: int, number: int) -> bool:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):  # systems differ
            return False
        return True

    def _unlock(descriptor: int, number: int) -> None:
        fcntl.lockf(descriptor, fcntl.LOCK_UN, 1, number)

    def _is_locked(descriptor: int, number: int) -> bool | None:
        """Ask who holds a lock; to try it would be to hold it for a moment."""
        if sys.platform == "linux" and sys.maxsize > 1 << 32:
            question = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, number, 1, 0)
            kind = struct.unpack("@hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, question))[0]
        elif sys.platform == "darwin":
            question = struct.pack("@qqihh", number, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
            kind = struct.unpack("@qqihh", fcntl.fcntl(descriptor, fcntl.F_GETLK, question))[3]
        else:  # another layout of the question
            return None
        return bool(kind != fcntl.F_UNLCK)


# --- Locks of a session --------------------------------------------------------------------------

_ADVISORY_LOCKS: Final = text(
    "SELECT CAST(classid AS bigint), CAST(objid AS bigint) FROM pg_locks "
    "WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
"""Both halves of the numbers that are locked in this database, by whomever."""


class AdvisoryLeases:
    """Locks of the session in which everything is written; implements ``Leases``.

    A transaction of that session can only be committed while the locks are held: both end together.

    Args:
        schema: Where the tables are; the server tells its databases apart itself.
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema
        self._held: dict[ChannelId, int] = {}
        self._lost: set[ChannelId] = set()

    def holds(self, channel_id: ChannelId) -> bool:
        """Say whether a channel was taken and not given back."""
        return channel_id in self._held or channel_id in self._lost

    def take(self, writer: Connection, channel_id: ChannelId) -> None:
        """Take a channel, and write our number to its row."""
        lease = secrets.randbits(62)
        with writer.begin():
            if not self._try_lock(writer, channel_id):
                raise ChannelExistsError(channel_id, TAKEN)
            try:
                writer.execute(TAKE_CHANNEL, {"channel": channel_id, "lease": lease})
            except BaseException:
                writer.rollback()
                self._unlock(writer, channel_id)
                raise
        self._held[channel_id] = lease

    def check_place(self) -> None:
        """Do nothing: the server has them."""

    def check(self, channel_id: ChannelId) -> None:
        """Do nothing if nobody has taken the channel from us."""
        if channel_id in self._lost:
            raise LeaseLostError(channel_id)

    def resume(self, writer: Connection) -> None:
        """Lock again what was locked in the last session, but for what others took meanwhile."""
        for channel_id, lease in list(self._held.items()):
            with writer.begin():
                is_locked = self._try_lock(writer, channel_id)
                found = writer.scalar(SELECT_LEASE, {"channel": channel_id})
                if found != lease:
                    if is_locked:
                        self._unlock(writer, channel_id)
                    del self._held[channel_id]
                    self._lost.add(channel_id)
                elif not is_locked:  # most likely by our last session
                    problem = f"the server has not given back the lease of {channel_id!r} yet"
                    raise StoreUnavailableError(problem)

    def confirm(self, writer: Connection, channel_id: ChannelId) -> None:
        """Write our number to the channel's row again, if it is ours."""
        lease = self._held.get(channel_id)
        if lease is not None:
            writer.execute(TAKE_CHANNEL, {"channel": channel_id, "lease": lease})

    def give_back(self, writer: Connection | None, channel_id: ChannelId) -> None:
        """Give a channel back; harmless when it is not held."""
        self._lost.discard(channel_id)
        if self._held.pop(channel_id, None) is not None and writer is not None:
            with writer.begin():
                self._unlock(writer, channel_id)

    def close(self, writer: Connection | None) -> None:
        """Give everything back that is still held: the server takes a moment to see a session end."""
        self._lost.clear()
        for channel_id in list(self._held):
            self.give_back(writer, channel_id)

    def driven(
        self, reader: Connection, channel_ids: Iterable[ChannelId]
    ) -> dict[ChannelId, bool | None]:
        """Say of each channel whether anybody holds it now, without taking it."""
        locked = {(high << 32) | low for high, low in reader.execute(_ADVISORY_LOCKS)}
        return {channel_id: self._number(channel_id) in locked for channel_id in channel_ids}

    def _number(self, channel_id: ChannelId) -> int:
        return lock_number("channel", self._schema, channel_id)

    def _try_lock(self, writer: Connection, channel_id: ChannelId) -> bool:
        return bool(writer.scalar(select(func.pg_try_advisory_lock(self._number(channel_id)))))

    def _unlock(self, writer: Connection, channel_id: ChannelId) -> None:
        writer.execute(select(func.pg_advisory_unlock(self._number(channel_id))))
