"""Refusals are problem documents, for requests and for WebSockets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.problems import make_problem
from api.refusal import raw_path, refuse, shown_path


async def sent(scope: dict[str, Any]) -> list[Any]:
    messages: list[Any] = []

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        messages.append(message)

    problem = make_problem("rate-limited", "wait", instance=shown_path(scope), retry_after_sec=1.5)
    await refuse(problem, scope, receive, send)
    return messages


@pytest.mark.parametrize(
    ("scope", "prefix"),
    [
        ({"type": "http"}, "http.response"),
        (
            {"type": "websocket", "extensions": {"websocket.http.response": {}}},
            "websocket.http.response",
        ),
    ],
)
async def test_a_refusal_is_a_problem_document(scope: dict[str, Any], prefix: str) -> None:
    start, body = await sent({**scope, "path": "/a", "raw_path": b"/%61"})
    assert (start["type"], body["type"]) == (f"{prefix}.start", f"{prefix}.body")
    headers = dict(start["headers"])
    assert start["status"] == 429
    assert headers[b"content-type"] == b"application/problem+json"
    assert headers[b"content-length"] == str(len(body["body"])).encode()
    assert headers[b"retry-after"] == b"2"
    assert json.loads(body["body"]) == {
        "type": "/problems/rate-limited",
        "title": "Too many requests",
        "status": 429,
        "detail": "wait",
        "instance": "/%61",
    }


async def test_a_websocket_that_cannot_be_answered_is_closed() -> None:
    assert await sent({"type": "websocket", "path": "/"}) == [
        {"type": "websocket.close", "code": 1008}
    ]


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ({"path": "/a b", "raw_path": b"/a%20b"}, "/a%20b"),
        ({"path": "/a b", "raw_path": None}, "/a b"),
        ({"path": "/a b"}, "/a b"),
        ({"path": "/", "raw_path": b"/?token=secret"}, "/"),
    ],
)
def test_the_path_as_it_was_asked_for(scope: dict[str, Any], path: str) -> None:
    assert raw_path(scope) == path
