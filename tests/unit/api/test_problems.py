"""Every error has its problem document, and no document says what it should not."""

from __future__ import annotations

import importlib
import json
import logging
import pkgutil

import pytest

import api
from api.errors import ChannelConflictError, ChannelUnavailableError
from api.problems import (
    KINDS,
    MAX_LISTED_ERRORS,
    MEDIA_TYPE,
    PROBLEM_TYPES,
    Problem,
    invalid_request,
    kind_of,
    log_problem,
    make_problem,
    problem_of,
    problem_of_status,
    problem_response,
)
from reliable_channel import errors


def tree(root: type[Exception]) -> set[type[Exception]]:
    """Return a class and all below it."""
    return {root}.union(*(tree(child) for child in root.__subclasses__()))


OFFLINE = {"api.demo", "api.cli", "api.__main__", "api.inspection", "api.restored", "api.serving"}
"""Modules whose errors end a command and never reach a request."""


def classes_of_the_service() -> set[type[Exception]]:
    for found in pkgutil.walk_packages(api.__path__, "api."):
        if found.name != "api.__main__":
            importlib.import_module(found.name)
    return {
        kind
        for kind in tree(errors.ReliableChannelError)
        if kind.__module__.split(".")[0] in ("api", "reliable_channel")
        and kind.__module__ not in OFFLINE
    }


def test_no_exception_of_the_tree_is_missing() -> None:
    missing = classes_of_the_service() - PROBLEM_TYPES.keys()
    assert sorted(kind.__name__ for kind in missing) == []


def test_kinds_have_names_of_their_own_and_statuses_of_errors() -> None:
    for name, kind in KINDS.items():
        assert kind.name == name
        assert kind.uri == f"/problems/{name}"
        assert 400 <= kind.status <= 503
        assert kind.title
        assert bool(kind.retry_after_sec) == (kind.status in (429, 503))


CASES = [
    (errors.ChannelFullError("room", 3, 99), 429, {"messages": 3, "octets": 99}),
    (errors.MessageTooLargeError(9, 5), 413, {"size": 9, "limit": 5}),
    (errors.EventsExpiredError(1, 7), 410, {"after": 1, "oldest": 7}),
    (errors.ConfigurationError(["a is bad", "b too"]), 422, {"problems": ("a is bad", "b too")}),
    (errors.StoreUnavailableError("disk\nfull"), 503, {"detail": "disk full"}),
    (ChannelConflictError("room", ("sds",)), 409, {"differences": ("sds",)}),
    (errors.RequestNotFoundError("r"), 404, {}),
]


@pytest.mark.parametrize(
    ("error", "status", "members"), CASES, ids=lambda item: type(item).__name__
)
def test_exceptions_become_documents(
    error: Exception, status: int, members: dict[str, object]
) -> None:
    problem = problem_of(error, instance="/v1/x")
    assert problem.status == status
    assert problem.to_json().items() >= {"instance": "/v1/x", "status": status, **members}.items()


def test_a_new_subclass_is_what_its_parent_is() -> None:
    class NewError(errors.ChannelFullError):
        pass

    assert kind_of(NewError("room", 1, 1)).name == "channel-full"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("secret"), errors.EncryptError("secret"), errors.DecodeError("X", "secret")],
    ids=lambda error: type(error).__name__,
)
def test_a_fault_says_nothing_of_itself(error: Exception) -> None:
    problem = problem_of(error)
    assert problem.status == 500
    assert "secret" not in json.dumps(problem.to_json())


@pytest.mark.parametrize(("wait", "header"), [(0.2, "1"), (1.0, "1"), (1.2, "2"), (59.5, "60")])
def test_retry_after_is_whole_seconds_rounded_up(wait: float, header: str) -> None:
    problem = problem_of(ChannelUnavailableError("room", "no key", wait))
    assert problem.headers["Retry-After"] == header


def test_retry_after_is_there_only_where_it_helps() -> None:
    assert make_problem("starting").headers == {"Retry-After": "1"}
    assert make_problem("not-found").headers == {}


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, "/problems/not-found"), (415, "/problems/unsupported-media-type"), (418, "about:blank"),
     (507, "/problems/internal-error")],
)  # fmt: skip
def test_bare_statuses_become_documents(status: int, kind: str) -> None:
    assert problem_of_status(status).type == kind


def test_errors_of_a_request_name_places_and_never_what_was_given() -> None:
    found = [
        {"loc": ("body", "sds", "ü" * 200), "msg": "is wrong", "input": "secret", "type": "x"}
        for _ in range(MAX_LISTED_ERRORS + 5)
    ]
    problem = invalid_request(found)
    text = json.dumps(problem.to_json())
    assert "secret" not in text
    assert len(problem.extra["errors"]) == MAX_LISTED_ERRORS
    assert problem.extra["errors"][0]["at"].startswith("body.sds.\\xfc")
    assert len(problem.extra["errors"][0]["at"]) == 120
    assert "22 more" in problem.detail


def test_the_response_is_a_problem_document() -> None:
    response = problem_response(
        Problem(type="/problems/x", title="X", status=429, headers={"Retry-After": "3"})
    )
    assert response.status_code == 429
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.headers["retry-after"] == "3"
    assert json.loads(bytes(response.body)) == {"type": "/problems/x", "title": "X", "status": 429}


def test_members_of_the_standard_are_not_overwritten() -> None:
    problem = Problem(type="/problems/x", title="X", status=409, extra={"status": 200, "more": 1})
    assert problem.to_json() == {"type": "/problems/x", "title": "X", "status": 409, "more": 1}


def test_only_faults_are_logged_here_with_their_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log_problem(make_problem("channel-full"), "POST")
    assert caplog.records == []
    log_problem(make_problem("internal-error", instance="/v1/x"), "POST", RuntimeError("why"))
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.getMessage() == "POST /v1/x: fault"
