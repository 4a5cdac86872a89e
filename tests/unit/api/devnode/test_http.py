"""Finding routes, reading bodies, errors that all routes share; whole answers are in tests/api/test_devnode.py."""

from __future__ import annotations

import pytest

from api.devnode.bodies import BodyError
from api.devnode.http import (
    OK,
    Answer,
    Call,
    RefusedError,
    Route,
    Router,
    cross_origin,
    read_body,
    text,
)
from api.devnode.network import Network
from api.devnode.node import Node
from api.devnode.settings import DevnodeSettings
from tests.support.devnode import ManualTimers


def make_node(**settings: object) -> Node:
    return Network(DevnodeSettings(**settings), ManualTimers()).nodes[0]  # type: ignore[arg-type]


async def echo(call: Call) -> Answer:
    return text(200, "|".join(call.parts))


async def undecodable(call: Call) -> Answer:
    reason = "oops"
    raise BodyError(reason)


async def refusing(call: Call) -> Answer:
    raise RefusedError(text(418, "no"))


ROUTER = Router(
    [
        Route("GET", "/a/{}/b/{}", echo),
        Route("GET", "/a.b", echo),
        Route("POST", "/bad", undecodable),
        Route("GET", "/no", refusing),
    ],
    missing=["relay"],
)


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [
        ("GET", "/a/x%2Fy/b/%C3%A9", 200, "x/y|é"),
        ("GET", "/a//b/c", 400, "Bad request initiated. Invalid path or method used."),
        ("GET", "/aXb", 400, "Bad request initiated. Invalid path or method used."),
        ("POST", "/a.b", 400, "Bad request initiated. Invalid path or method used."),
        ("GET", "", 400, "Bad request initiated. Invalid path or method used."),
        (
            "POST",
            "/bad",
            400,
            "Invalid content body, could not decode: Unable to deserialize data: oops",
        ),
        ("GET", "/no", 418, "no"),
        (
            "GET",
            "/relay/x",
            404,
            "/relay endpoints are not available. Please check your configuration: --relay",
        ),
    ],
)
async def test_routes(method: str, path: str, status: int, body: str) -> None:
    answer = await ROUTER.answer(Call(make_node(), method, path))
    assert (answer.status, answer.body.decode()) == (status, body)


@pytest.mark.parametrize(
    ("kind", "fits"),
    [
        ("application/json", True),
        ("text/plain; charset=utf-8", True),
        ("APPLICATION/JSON", True),
        ("application/xml", False),
        (None, False),
    ],
)
def test_content_types(kind: str | None, fits: bool) -> None:
    headers = [] if kind is None else [("content-type", kind)]
    call = Call(make_node(), "POST", "/", headers=headers, body=b"x")
    if fits:
        assert call.data() == b"x"
    else:
        with pytest.raises(RefusedError):
            call.data()


async def test_stalls_have_their_rate() -> None:
    node = make_node(timeout_rate=0.3)
    node.faults.timeout_s = 0.0
    call = Call(node, "GET", "/")
    stalls = [await call.stalls("store") for _ in range(1_000)]
    assert sum(stalls) == pytest.approx(300, abs=60)
    node.faults.timeout_rate = 0.0
    node.faults.stalled = {"relay"}
    assert [await call.stalls(name) for name in ("store", "relay")] == [False, True]


async def test_a_body_comes_in_parts() -> None:
    parts = [
        {"type": "http.request", "body": b"a", "more_body": True},
        {"type": "http.request", "body": b"b"},
    ]

    async def receive() -> dict[str, object]:
        return parts.pop(0)

    assert await read_body(receive) == b"ab"  # type: ignore[arg-type]


def test_pages_of_any_origin_may_ask_where_nothing_is_configured() -> None:
    headers = [("origin", "https://a.example")]
    assert cross_origin(Call(make_node(), "GET", "/", headers=headers)) == (None, {})
    assert OK.body == b"OK"
