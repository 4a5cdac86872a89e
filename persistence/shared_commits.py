"""Commits of several channels that share one transaction, because they wait for the same thread.

Each still is all or nothing, and has a result of its own: where a transaction of several fails, each is tried alone.
Only where the end of it was not heard of, that is what all of them are told. It must not know databases.

Spec: RELIABLE-CHANNEL-API, Type definitions, Persistence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from reliable_channel.errors import StoreOutcomeUnknownError
from reliable_channel.records import Changes
from reliable_channel.types import ChannelId

MAX_SHARING: Final = 64
"""Commits in one transaction; more would let the first wait long for the last."""


@dataclass(slots=True, eq=False)
class Commit:
    """What one channel wants kept.

    Attributes:
        channel_id: The channel.
        changes: All or none of them.
        done: How it ended; cancelled before it begins, it never does.
    """

    channel_id: ChannelId
    changes: Changes
    done: Future[None] = field(default_factory=Future)


class SharedCommits:
    """A queue of commits.

    Args:
        apply: Applies commits in one transaction, or none of them and raises.
    """

    def __init__(self, apply: Callable[[Sequence[Commit]], None]) -> None:
        self._apply = apply
        self._waiting: deque[Commit] = deque()

    def add(self, commit: Commit) -> None:
        """Let a commit wait; `work` has to be called in the thread once for each."""
        self._waiting.append(commit)

    def remove(self, commit: Commit) -> None:
        """Let it wait no longer: there is no thread any more."""
        self._waiting.remove(commit)

    def work(self) -> None:
        """Do what waits, as much as one transaction takes; in the thread."""
        commits = self._take()
        if len(commits) > 1 and self._do_together(commits):
            return
        for commit in commits:
            self._do(commit)

    def _take(self) -> list[Commit]:
        taken: list[Commit] = []
        while self._waiting and len(taken) < MAX_SHARING:
            commit = self._waiting.popleft()
            if commit.done.set_running_or_notify_cancel():
                taken.append(commit)
        return taken

    def _do_together(self, commits: Sequence[Commit]) -> bool:
        """Return whether all know how they ended."""
        try:
            self._apply(commits)
        except StoreOutcomeUnknownError as error:
            for commit in commits:
                commit.done.set_exception(StoreOutcomeUnknownError(error.reason))
        except Exception:  # each will meet its own
            return False
        else:
            for commit in commits:
                commit.done.set_result(None)
        return True

    def _do(self, commit: Commit) -> None:
        try:
            self._apply((commit,))
        except BaseException as error:  # as a thread pool hands it on
            commit.done.set_exception(error)
        else:
            commit.done.set_result(None)
