"""Requests on the short way are answered as on the framework's, and all others go the framework's."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from api.busy import Application, ShortWay, matched
from api.errors import ChannelNotFoundError
from api.paths import RawPathMiddleware, routed
from reliable_channel import ReliableChannelError
from tests.support.served import Served, path_of, served

SENDS: dict[str, dict[str, Any]] = {
    "accepted": {"json": {"payload": "aGVsbG8="}},
    "raw, with a query": {
        "params": {"ephemeral": "true"},
        "content": b"hello",
        "headers": {"Content-Type": "application/octet-stream"},
    },
    "not JSON": {"content": b"{", "headers": {"Content-Type": "application/json"}},
    "another type": {"content": b"hello", "headers": {"Content-Type": "text/plain"}},
    "a bad query": {"params": {"ephemeral": "perhaps"}, "json": {"payload": "aGVsbG8="}},
    "a bad key": {"json": {"payload": "aGVsbG8="}, "headers": {"Idempotency-Key": "\x7f"}},
    "compressed": {"content": b"x", "headers": {"Content-Encoding": "gzip"}},
    "empty": {"json": {"payload": ""}},
}

PATHS = (
    "/v1/channels/%ff/messages",
    *(f"{path_of(name)}/messages" for name in ("room", "a/b", "nowhere")),
)


def shown(answer: httpx.Response) -> tuple[int, dict[str, str], str]:
    """Return what an answer says, but for the ids that differ."""
    headers = {name: value for name, value in answer.headers.items() if name != "content-length"}
    text = str((headers, answer.text))
    return answer.status_code, dict.fromkeys(headers, ""), re.sub(r"[0-9a-f]{16,}", "ID", text)


@pytest.mark.parametrize("name", SENDS)
async def test_both_ways_answer_the_same(name: str) -> None:
    async with served() as it:
        for channel_id in ("room", "a/b"):
            assert (await it.open(channel_id)).status_code == 201
        assert isinstance(it.app, Application)
        short, it.app._busy = it.app._busy, None
        assert short is not None
        for path in PATHS:
            answers = []
            for way in (None, short):
                it.app._busy = way
                answers.append(shown(await it.client.post(path, **SENDS[name])))
            assert answers[0] == answers[1]


async def test_only_the_route_goes_the_short_way() -> None:
    async with served() as it:
        await it.open()
        taken = spied(it)
        messages = f"{path_of()}/messages"
        for method, path in (
            ("POST", messages),
            ("GET", messages),
            ("PUT", messages),
            ("POST", f"{messages}/"),
            ("POST", "/v1/channels"),
            ("POST", f"/v1/channels/a/b{messages}"),
        ):
            await it.client.request(method, path, json={"payload": "aGVsbG8="})
        assert taken == [("POST", messages)]


def spied(it: Served) -> list[tuple[str, str]]:
    """Return what goes the short way from now on."""
    assert isinstance(it.app, Application)
    assert it.app._busy is not None
    route, way = it.app._busy
    taken: list[tuple[str, str]] = []

    async def seen(scope: Scope, receive: Receive, send: Send) -> None:
        taken.append((scope["method"], scope["path"]))
        await way(scope, receive, send)

    it.app.shorten(route, seen)
    return taken


class NearError(ReliableChannelError):
    """Nearer than its base."""


@pytest.mark.parametrize(
    ("error", "status"),
    [(NearError(), 299), (ChannelNotFoundError("room"), 298), (KeyError(), None)],
)
async def test_the_nearest_class_of_an_exception_says_the_answer(
    error: Exception, status: int | None
) -> None:
    async def endpoint(_: Request) -> Response:
        raise error

    async def near(*_: object) -> Response:
        return Response(status_code=299)

    async def far(*_: object) -> Response:
        return Response(status_code=298)

    way = ShortWay(endpoint, {ReliableChannelError: far, NearError: near})
    transport = httpx.ASGITransport(app=way)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        if status is None:
            with pytest.raises(KeyError):
                await client.post("/")
        else:
            assert (await client.post("/")).status_code == status


def test_a_match_leaves_the_scope_as_it_was() -> None:
    router = APIRouter()

    @router.post("/things/{name:segment}")
    async def take() -> None:
        """Take a thing."""

    (route,) = router.routes
    assert isinstance(route, APIRoute)
    scope = {"type": "http", "method": "POST", "path": "/things/a/b", "raw_path": b"/things/a%2fb"}
    before = dict(scope)
    found = matched(route, scope)
    assert found is not None
    assert found["path_params"] == {"name": "a/b"}
    assert found["path"] == routed(scope)["path"] == "/things/a%2Fb"
    assert found["route"] is route
    assert matched(route, {**scope, "method": "GET"}) is None
    assert matched(route, {**scope, "raw_path": b"/things/a/b"}) is None
    assert scope == before


def test_no_middleware_can_be_added_that_the_short_way_would_go_past() -> None:
    app = Application()
    app.add_middleware(RawPathMiddleware)
    route = APIRoute("/way", endpoint=lambda: None)
    app.shorten(route, app.router)
    with pytest.raises(RuntimeError, match="put it around the application"):
        app.add_middleware(RawPathMiddleware)
