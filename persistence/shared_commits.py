"""Commits of several channels that share one transaction, because they wait for the same thread.

Each still is all or nothing and ends as it would have ended alone. What a transaction of several fails of is looked
for: what is one commit's own is told to that one only, once it has failed alone, and the others go through; what is the
database's is told to all that wait, at once, since each alone would only wait for it once more. An end of a transaction
that was not heard of is what all of its commits are told.

It must not know databases: whoever applies says how far a transaction came.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeAlias

from reliable_channel.errors import StoreOutcomeUnknownError, StoreUnavailableError
from reliable_channel.records import (
    BodyRecord,
    Changes,
    EventRecord,
    ParityRecord,
    PendingRecord,
    Record,
)
from reliable_channel.types import ChannelId

MAX_SHARING: Final = 64
"""Commits in one transaction; with more there is less to gain for each than the first waits for the last."""

MAX_SHARED_BYTES: Final = 4 << 20
"""Size of the commits in one transaction; one that is larger has its own, bytes."""

MAX_SHARED_S: Final = 0.05
"""How long rows are written before a transaction takes no more commits, seconds.

For whatever takes longer than it looks: a server that is far away, old events that have to go.
"""

MAX_TOGETHER: Final = 3
"""How often commits are tried together before each is tried alone."""

ROW_BYTES: Final = 256
"""What a row counts for beside its payload, bytes."""

_LARGE: Final[dict[type[Record], Callable[[Any], int]]] = {
    BodyRecord: lambda row: len(row.data),
    EventRecord: lambda row: len(row.payload or b"") + len(row.detail),
    ParityRecord: lambda row: len(row.history) + len(row.chunk),
    PendingRecord: lambda row: len(row.history) + len(row.content),
}
"""Size of what may be large in a row."""


def size_of(changes: Changes) -> int:
    """Return about how much changes write, bytes."""
    octets = ROW_BYTES * len(changes)
    for (kind, _), record in changes.items():
        if record is not None and kind in _LARGE:
            octets += _LARGE[kind](record)
    return octets


class Commit:
    """What one channel wants kept; made on the event loop.

    Args:
        channel_id: The channel.
        changes: All or none of them.
    """

    __slots__ = ("_state", "changes", "channel_id", "octets", "told")

    def __init__(self, channel_id: ChannelId, changes: Changes) -> None:
        self.channel_id = channel_id
        self.changes = changes
        self.octets = size_of(changes)
        """Size of the changes."""
        self.told: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """How it ended; cancelled before it begins, it never does."""
        self._state: Future[None] = Future()
        self.told.add_done_callback(self._cancel)

    def begin(self) -> bool:
        """Begin, unless it was cancelled; in the thread."""
        return self._state.set_running_or_notify_cancel()

    def tell(self, error: BaseException | None) -> None:
        """Say how it ended, unless nobody waits for that; on the event loop."""
        if self.told.done():
            return
        if error is None:
            self.told.set_result(None)
        else:
            self.told.set_exception(error)

    def _cancel(self, told: asyncio.Future[None]) -> None:
        if told.cancelled():
            self._state.cancel()


@dataclass(slots=True, eq=False)
class Attempt:
    """A transaction of some commits, and how far it came; done again, it has the same commits.

    Attributes:
        commits: Those that are in it.
        is_hurried: Others have failed before: it shall not wait long for what somebody else holds.
        turn: Whose it would be if something failed now; None: nobody's in particular.
        is_common: What would fail now is the database, and would for whichever commit.
        left: Those that it has no time for.
    """

    commits: list[Commit]
    is_hurried: bool = False
    turn: Commit | None = None
    is_common: bool = True
    left: list[Commit] = field(default_factory=list)
    _was_begun: bool = False

    def check_each(self) -> Iterator[Commit]:
        """Give each commit in turn, before the transaction begins."""
        self.is_common = False
        for commit in self.commits:
            self.turn = commit
            yield commit
        self.blame_database()

    def write_each(self) -> Iterator[Commit]:
        """Give each commit in turn, within the transaction; where that takes long, the rest is left.

        Not when it is done again: the end of the first transaction may not have been heard of, so that none of its
        commits can be told that it was not applied.
        """
        may_end_early, self._was_begun = not self._was_begun, True
        end = time.monotonic() + MAX_SHARED_S
        self.is_common = False
        for place, commit in enumerate(self.commits):
            if may_end_early and place and time.monotonic() > end:
                self.left = self.commits[place:]
                del self.commits[place:]
                break
            self.turn = commit
            yield commit
        self.turn = None

    def blame_database(self) -> None:
        """Say that it failed of what would fail whichever commit."""
        self.turn, self.is_common = None, True


Submit: TypeAlias = Callable[..., "Future[Any]"]
"""Gives the thread a job, with its arguments."""

Apply: TypeAlias = Callable[[Attempt], None]
"""Applies the commits of an attempt."""


class SharedCommits:
    """Commits that wait for a thread; those between two other jobs of the thread may share.

    It does not keep what applies them, whose part it is: what is forgotten without being closed goes at once.

    Args:
        submit: Gives the thread a job.
    """

    def __init__(self, submit: Submit) -> None:
        self._submit = submit
        self._lock = Lock()
        self._open: deque[Commit] | None = None
        self._job: Future[Any] = Future()

    def add(self, commit: Commit, apply: Apply) -> Future[Any]:
        """Let a commit wait, and return the job that will do it.

        Args:
            commit: The commit.
            apply: Applies the commits of an attempt in one transaction, or none of them and raises; in the thread.

        Raises:
            RuntimeError: The thread has ended.
        """
        with self._lock:
            if self._open is None:
                waiting: deque[Commit] = deque()
                self._job = self._submit(self._work, waiting, apply)
                self._open = waiting
            self._open.append(commit)
            return self._job

    def part(self) -> None:
        """Have what comes from now on done after the job that the thread was given last."""
        with self._lock:
            self._open = None

    def _work(self, waiting: deque[Commit], apply: Apply) -> None:
        while commits := self._take(waiting):
            behind = len(waiting)
            error = _finish(commits, apply)
            if error is not None:  # they have waited as long
                _tell(self._take_first(waiting, behind), error)

    def _take(self, waiting: deque[Commit]) -> list[Commit]:
        """Return what may share the next transaction; a channel's next commit comes after its last one has ended."""
        taken: dict[ChannelId, Commit] = {}
        octets = 0
        with self._lock:
            while waiting and len(taken) < MAX_SHARING:
                commit = waiting[0]
                octets += commit.octets
                if taken and (octets > MAX_SHARED_BYTES or commit.channel_id in taken):
                    break
                waiting.popleft()
                if commit.begin():
                    taken[commit.channel_id] = commit
                else:
                    octets -= commit.octets
            if not taken and self._open is waiting:
                self._open = None
        return list(taken.values())

    def _take_first(self, waiting: deque[Commit], count: int) -> list[Commit]:
        with self._lock:
            taken = [waiting.popleft() for _ in range(count)]
        return [commit for commit in taken if commit.begin()]


def _finish(commits: list[Commit], apply: Apply) -> StoreUnavailableError | None:
    """Apply commits, and tell each how it ended; return what the database failed of, if that is why."""
    groups = deque([commits])
    failures = 0
    while groups:
        attempt = Attempt(groups.popleft(), is_hurried=failures > 0)
        error = _try(attempt, apply)
        if attempt.left:
            groups.appendleft(attempt.left)
        if error is None or isinstance(error, StoreOutcomeUnknownError):
            _tell(attempt.commits, error)
        elif attempt.is_common and isinstance(error, StoreUnavailableError):
            for group in (attempt.commits, *groups):
                _tell(group, error)
            return error
        elif len(attempt.commits) == 1:
            _tell(attempt.commits, error)
        else:
            failures += 1
            together, alone = _part(attempt, is_last=failures >= MAX_TOGETHER)
            groups.extendleft([together] if together else [])
            groups.extend([commit] for commit in alone)
    return None


def _try(attempt: Attempt, apply: Apply) -> BaseException | None:
    try:
        apply(attempt)
    except BaseException as error:  # as a thread pool hands it on
        return error
    return None


def _part(attempt: Attempt, *, is_last: bool) -> tuple[list[Commit], list[Commit]]:
    """Return who is tried together once more, and who alone."""
    if attempt.turn is None or is_last:
        return [], attempt.commits
    return [commit for commit in attempt.commits if commit is not attempt.turn], [attempt.turn]


def _tell(commits: Sequence[Commit], error: BaseException | None) -> None:
    """Have all told how they ended, and wake the event loop once: that costs more than a commit's rows."""
    if commits:
        with suppress(RuntimeError):  # it has ended, and nobody waits
            commits[0].told.get_loop().call_soon_threadsafe(_tell_each, commits, error)


def _tell_each(commits: Sequence[Commit], error: BaseException | None) -> None:
    for commit in commits:
        commit.tell(error and _own(error))


def _own(error: BaseException) -> BaseException:
    """Return an error for one task: where it is raised is written to it."""
    if not isinstance(error, StoreUnavailableError):
        return error
    copy = type(error)(*_reason(error))
    copy.__cause__ = error.__cause__
    return copy


def _reason(error: StoreUnavailableError) -> Sequence[str]:
    return (error.reason,) if isinstance(error, StoreOutcomeUnknownError) else error.args
