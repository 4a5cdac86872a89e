"""Commits share a transaction, and each has its own end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from persistence import shared_commits
from persistence.shared_commits import Commit, SharedCommits
from reliable_channel.errors import (
    LeaseLostError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)


class Transactions:
    """Keeps who was applied with whom; fails where it is told to."""

    def __init__(self, failures: dict[str, Exception] | None = None) -> None:
        self.applied: list[list[str]] = []
        self.failures = failures or {}

    def apply(self, commits: Sequence[Commit]) -> None:
        names = [commit.channel_id for commit in commits]
        for name in names:
            if name in self.failures:
                raise self.failures[name]
        self.applied.append(names)


def waiting(commits: SharedCommits, *names: str) -> list[Commit]:
    added = [Commit(name, {}) for name in names]
    for commit in added:
        commits.add(commit)
    return added


def test_those_who_wait_share_and_the_calls_for_the_others_find_nothing() -> None:
    transactions = Transactions()
    commits = SharedCommits(transactions.apply)
    added = waiting(commits, "a", "b", "c")
    for _ in added:
        commits.work()
    assert transactions.applied == [["a", "b", "c"]]
    assert [commit.done.result(0) for commit in added] == [None] * 3


def test_one_transaction_takes_no_more_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_commits, "MAX_SHARING", 2)
    transactions = Transactions()
    commits = SharedCommits(transactions.apply)
    for _ in waiting(commits, "a", "b", "c"):
        commits.work()
    assert transactions.applied == [["a", "b"], ["c"]]


@pytest.mark.parametrize("failure", [LeaseLostError("b"), StoreUnavailableError("full")])
def test_where_one_fails_the_others_are_tried_alone(failure: Exception) -> None:
    transactions = Transactions({"b": failure})
    commits = SharedCommits(transactions.apply)
    one, two, three = waiting(commits, "a", "b", "c")
    commits.work()
    assert transactions.applied == [["a"], ["c"]]
    assert two.done.exception(0) is failure
    assert one.done.exception(0) is three.done.exception(0) is None


def test_an_end_that_was_not_heard_of_is_told_to_all_and_nobody_is_tried_again() -> None:
    transactions = Transactions({"b": StoreOutcomeUnknownError("gone")})
    commits = SharedCommits(transactions.apply)
    added = waiting(commits, "a", "b")
    commits.work()
    assert transactions.applied == []
    errors = [commit.done.exception(0) for commit in added]
    assert [type(error) for error in errors] == [StoreOutcomeUnknownError] * 2
    assert errors[0] is not errors[1], "each is raised in a task of its own"
    assert all("gone" in str(error) for error in errors)


def test_what_is_cancelled_before_it_begins_never_does() -> None:
    transactions = Transactions()
    commits = SharedCommits(transactions.apply)
    one, two = waiting(commits, "a", "b")
    assert one.done.cancel()
    commits.work()
    assert transactions.applied == [["b"]]
    assert two.done.result(0) is None


def test_what_was_removed_is_not_done() -> None:
    transactions = Transactions()
    commits = SharedCommits(transactions.apply)
    one, two = waiting(commits, "a", "b")
    commits.remove(one)
    commits.work()
    assert transactions.applied == [["b"]]
    assert not one.done.done()
    assert two.done.done()
