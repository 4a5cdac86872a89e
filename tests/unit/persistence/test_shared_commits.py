"""Commits share a transaction, and each has its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from persistence import shared_commits
from persistence.shared_commits import ROW_BYTES, Attempt, Commit, SharedCommits, size_of
from persistence.testing import ROW_TYPES, deleted, sample_event, sample_records, written
from reliable_channel.errors import (
    LeaseLostError,
    StoreError,
    StoreOutcomeUnknownError,
    StoreUnavailableError,
)
from reliable_channel.records import BodyRecord, LostRecord
from tests.support.held_up import OK


class Database:
    """Writes down what was tried and applied, and fails where it is told to; its thread works when it is told to."""

    def __init__(self) -> None:
        self.tried: list[list[str]] = []
        self.hurried: list[bool] = []
        self.applied: list[list[str]] = []
        self.lost: set[str] = set()
        self.bad: dict[str, Exception] = {}
        self.down: Exception | None = None
        self.at_commit: list[Exception | None] = []
        self.jobs: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.does: Callable[[Attempt], None] = self.apply
        self.commits = SharedCommits(self.submit)

    def submit(self, job: Callable[..., Any], *args: object) -> Future[Any]:
        future: Future[Any] = Future()
        self.jobs.append((future, lambda: future.set_result(job(*args))))
        return future

    def work(self) -> None:
        """Do what the thread was given."""
        for _, job in self.jobs:
            job()
        self.jobs.clear()

    def wait(self, *names: str, octets: int = 0) -> list[Commit]:
        """Let commits wait."""
        body = BodyRecord(message_id="a", part="content", data=bytes(octets))
        added = [Commit(name, written([body]) if octets else {}) for name in names]
        for commit in added:
            self.commits.add(commit, self.does)
        return added

    def apply(self, attempt: Attempt) -> None:
        self.tried.append([commit.channel_id for commit in attempt.commits])
        self.hurried.append(attempt.is_hurried)
        for commit in attempt.check_each():
            if commit.channel_id in self.lost:
                raise LeaseLostError(commit.channel_id)
        if self.down is not None:
            raise self.down
        for commit in attempt.write_each():
            if commit.channel_id in self.bad:
                raise self.bad[commit.channel_id]
        error = self.at_commit.pop(0) if self.at_commit else None
        if error is not None:
            raise error
        self.applied.append([commit.channel_id for commit in attempt.commits])


async def ends(commits: list[Commit]) -> list[type]:
    """Return how commits ended that have."""
    await asyncio.sleep(0)
    return [type(commit.told.exception()) for commit in commits]


async def cancel(*commits: Commit) -> None:
    """Cancel those who wait."""
    for commit in commits:
        assert commit.told.cancel()
    await asyncio.sleep(0)


# --- Who shares ----------------------------------------------------------------------------------


async def test_those_who_wait_share_in_one_job() -> None:
    database = Database()
    added = database.wait("a", "b", "c")
    assert len(database.jobs) == 1
    database.work()
    assert database.applied == [["a", "b", "c"]]
    assert await ends(added) == [OK] * 3


async def test_who_comes_while_others_are_applied_is_in_the_next_transaction_of_the_same_job() -> (
    None
):
    database = Database()
    late: list[Commit] = []

    def apply(attempt: Attempt) -> None:
        Database.apply(database, attempt)
        if not late:
            late.extend(database.wait("c", "d"))

    database.does = apply
    database.wait("a", "b")
    database.work()
    assert database.applied == [["a", "b"], ["c", "d"]]
    assert await ends(late) == [OK] * 2
    database.wait("e")
    assert len(database.jobs) == 1, "the first has ended"
    database.work()
    assert database.applied[2:] == [["e"]]


async def test_no_commit_overtakes_another_job() -> None:
    database = Database()
    database.wait("a", "b")
    database.submit(database.applied.append, ["job"])
    database.commits.part()
    database.wait("c", "d")
    database.work()
    assert database.applied == [["a", "b"], ["job"], ["c", "d"]]


async def test_a_channels_next_commit_comes_after_its_last_has_ended() -> None:
    database = Database()
    database.bad["a"] = StoreError("refused")
    first = database.wait("a", "b")
    second = database.wait("a", "c")
    database.work()
    assert database.tried == [["a", "b"], ["b"], ["a"], ["a", "c"], ["c"], ["a"]]
    assert await ends(first) == await ends(second) == [StoreError, OK]


@pytest.mark.parametrize(
    ("bound", "value", "octets", "applied"),
    [
        ("MAX_SHARING", 2, 0, [["a", "b"], ["c"]]),
        ("MAX_SHARED_BYTES", 2 * (ROW_BYTES + 1_000), 1_000, [["a", "b"], ["c"]]),
        ("MAX_SHARED_BYTES", 1, 1_000, [["a"], ["b"], ["c"]]),
        ("MAX_SHARED_S", -1, 0, [["a"], ["b"], ["c"]]),
    ],
)
async def test_one_transaction_takes_no_more_than_its_bounds(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: float, octets: int, applied: list[list[str]]
) -> None:
    monkeypatch.setattr(shared_commits, bound, value)
    database = Database()
    added = database.wait("a", "b", "c", octets=octets)
    database.work()
    assert database.applied == applied
    assert await ends(added) == [OK] * 3


async def test_a_large_commit_holds_nobody_who_came_before_it() -> None:
    database = Database()
    database.wait("a", "b")
    database.wait("large", octets=20_000_000)
    database.wait("c", "d")
    database.work()
    assert database.applied == [["a", "b"], ["large"], ["c", "d"]]


async def test_what_is_done_again_has_the_same_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the first transaction may not have been heard of: nobody in it may be told that it was not."""
    monkeypatch.setattr(shared_commits, "MAX_SHARED_S", 3_600)
    attempt = Attempt([Commit(name, {}) for name in "abc"])
    assert len(list(attempt.write_each())) == 3
    monkeypatch.setattr(shared_commits, "MAX_SHARED_S", -1)
    assert len(list(attempt.write_each())) == 3
    assert attempt.left == []


def test_sizes_count_what_may_be_large_and_every_row() -> None:
    body = BodyRecord(message_id="a", part="content", data=bytes(10_000))
    assert size_of(written([body])) == ROW_BYTES + 10_000
    assert size_of(deleted([body])) == ROW_BYTES
    event = sample_event(1, payload=bytes(500))
    assert size_of(written([event])) == ROW_BYTES + 500 + len(event.detail)
    assert size_of(written([sample_event(1, payload=None)])) == ROW_BYTES + len(event.detail)
    rows = [LostRecord(message_id=str(number), lost_ns=1) for number in range(1_000)]
    assert size_of(written(rows)) == 1_000 * ROW_BYTES


@pytest.mark.parametrize("kind", ROW_TYPES, ids=lambda kind: kind.__name__)
def test_every_row_has_a_size(kind: type[Any]) -> None:
    assert size_of(written(sample_records(kind)[1:2])) >= ROW_BYTES


# --- How each ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StoreError("refused"), StoreUnavailableError("locked")])
async def test_what_is_ones_own_is_told_to_it_alone(error: Exception) -> None:
    database = Database()
    database.bad["b"] = error
    added = database.wait("a", "b", "c")
    database.work()
    assert database.tried == [["a", "b", "c"], ["a", "c"], ["b"]]
    assert await ends(added) == [OK, type(error), OK]
    assert database.hurried == [False, True, True]


async def test_a_lost_lease_is_told_to_its_owner() -> None:
    database = Database()
    database.lost = {"b"}
    added = database.wait("a", "b", "c")
    database.work()
    assert await ends(added) == [OK, LeaseLostError, OK]
    assert database.applied == [["a", "c"]]


async def test_where_many_fail_each_is_tried_alone_in_the_end() -> None:
    database = Database()
    names = [f"{number}" for number in range(20)]
    database.bad = {name: StoreUnavailableError(name) for name in names[:10]}
    added = database.wait(*names)
    database.work()
    assert await ends(added) == [StoreUnavailableError] * 10 + [OK] * 10
    assert [str(commit.told.exception()) for commit in added[:10]] == names[:10]
    together = [tried for tried in database.tried if len(tried) > 1]
    assert len(together) == shared_commits.MAX_TOGETHER
    assert len(database.tried) == len(together) + len(names)


async def test_where_the_end_fails_each_is_tried_alone() -> None:
    database = Database()
    database.at_commit = [StoreUnavailableError("full"), None, StoreUnavailableError("full"), None]
    added = database.wait("a", "b", "c")
    database.work()
    assert database.tried == [["a", "b", "c"], ["a"], ["b"], ["c"]]
    assert await ends(added) == [OK, StoreUnavailableError, OK]


async def test_what_is_the_databases_is_told_to_all_who_waited_at_once() -> None:
    database = Database()
    database.down = StoreUnavailableError("no route")
    names = [str(number) for number in range(3 * shared_commits.MAX_SHARING)]
    added = database.wait(*names)
    cancelled = added.pop(100)
    await cancel(cancelled)
    database.work()
    assert len(database.tried) == 1
    assert await ends(added) == [StoreUnavailableError] * len(added)
    errors = {id(commit.told.exception()) for commit in added}
    assert len(errors) == len(added), "each is raised in a task of its own"
    assert {str(commit.told.exception()) for commit in added} == {"no route"}
    database.down = None
    again = database.wait("a")
    database.work()
    assert await ends(again) == [OK]


async def test_who_came_while_the_database_failed_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has not waited yet."""
    database = Database()
    late: list[Commit] = []

    def apply(attempt: Attempt) -> None:
        if not late:
            late.extend(database.wait("c", "d"))
            raise StoreUnavailableError("locked")
        Database.apply(database, attempt)

    monkeypatch.setattr(shared_commits, "MAX_SHARING", 1)
    database.does = apply
    first = database.wait("a", "b")
    database.work()
    assert await ends(first) == [StoreUnavailableError] * 2
    assert await ends(late) == [OK] * 2


async def test_a_database_that_fails_when_they_are_tried_alone_is_asked_no_more() -> None:
    database = Database()

    def apply(attempt: Attempt) -> None:
        if len(database.tried) == 1:
            database.down = StoreUnavailableError("gone")
        Database.apply(database, attempt)

    database.does = apply
    added = database.wait("a", "b", "c")
    database.at_commit = [StoreUnavailableError("full")]
    database.work()
    assert database.tried == [["a", "b", "c"], ["a"]]
    assert await ends(added) == [StoreUnavailableError] * 3
    assert [str(commit.told.exception()) for commit in added] == ["gone"] * 3


async def test_a_refusal_for_good_is_nobody_elses() -> None:
    """Each that is told so ends its channel."""
    database = Database()
    database.down = StoreError("refused")
    added = database.wait("a", "b")
    database.work()
    assert database.tried == [["a", "b"], ["a"], ["b"]]
    assert await ends(added) == [StoreError] * 2


async def test_an_end_that_was_not_heard_of_is_told_to_all_and_nobody_is_tried_again() -> None:
    database = Database()
    database.at_commit = [StoreOutcomeUnknownError("gone")]
    added = database.wait("a", "b")
    database.work()
    assert database.tried == [["a", "b"]]
    assert await ends(added) == [StoreOutcomeUnknownError] * 2
    errors = [commit.told.exception() for commit in added]
    assert errors[0] is not errors[1], "each is raised in a task of its own"
    assert {getattr(error, "reason", "") for error in errors} == {"gone"}


async def test_those_for_whom_there_was_no_time_are_told_nothing_of_an_unknown_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_commits, "MAX_SHARED_S", -1)
    database = Database()
    database.at_commit = [StoreOutcomeUnknownError("gone")]
    added = database.wait("a", "b")
    database.work()
    assert await ends(added) == [StoreOutcomeUnknownError, OK]


async def test_faults_that_are_no_stores_are_told_too() -> None:
    database = Database()
    database.bad["b"] = OverflowError("an integer of 65 bits")
    added = database.wait("a", "b")
    database.work()
    assert await ends(added) == [OK, OverflowError]


# --- Not at all ----------------------------------------------------------------------------------


async def test_what_is_cancelled_before_it_begins_never_does() -> None:
    database = Database()
    one, two, three = database.wait("a", "b", "c")
    await cancel(one, three)
    database.work()
    assert database.applied == [["b"]]
    assert await ends([two]) == [OK]


async def test_what_is_cancelled_takes_nobodys_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_commits, "MAX_SHARED_BYTES", 3_000)
    database = Database()
    first, *_ = database.wait("a", "b", "c", octets=1_000)
    await cancel(first)
    database.work()
    assert database.applied == [["b", "c"]]


async def test_where_all_are_cancelled_the_job_ends() -> None:
    database = Database()
    await cancel(*database.wait("a", "b"))
    database.work()
    assert database.tried == []
    database.wait("c")
    database.work()
    assert database.applied == [["c"]]


async def test_what_has_begun_is_done_though_nobody_waits_for_it_any_more() -> None:
    database = Database()
    one, two = database.wait("a", "b")
    assert one.told.cancel(), "the thread comes before the event loop's next turn"
    database.work()
    assert database.applied == [["a", "b"]]
    assert await ends([two]) == [OK]
    assert one.told.cancelled()


async def test_the_event_loop_is_woken_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    wakes: list[object] = []
    wake = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *what: wakes.append(wake(*what)))
    database = Database()
    added = database.wait("a", "b", "c")
    database.work()
    assert await ends(added) == [OK] * 3
    assert len(wakes) == 1


def test_commits_of_an_event_loop_that_has_ended_are_done() -> None:
    database = Database()

    async def leave() -> None:
        database.wait("a", "b")

    asyncio.run(leave())
    database.work()
    assert database.applied == [["a", "b"]]


async def test_without_a_thread_nothing_waits() -> None:
    def refuse(*_: object) -> Future[Any]:
        raise RuntimeError("cannot schedule new futures after shutdown")

    database = Database()
    commits = SharedCommits(refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            commits.add(Commit("a", {}), database.apply)
