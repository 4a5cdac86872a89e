"""What the routes share."""

from __future__ import annotations

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response

from api.problems import KINDS
from api.routes.common import EVERYWHERE, DirectRoute, content_type, problems


def test_problems_are_grouped_by_status_with_an_example_each() -> None:
    described = problems("channel-not-found", "request-not-found")
    assert described[404]["description"] == (
        "No such channel is open (`channel-not-found`); No such request on the channel (`request-not-found`)"
    )
    examples = described[404]["content"]["application/problem+json"]["examples"]
    assert list(examples) == ["channel-not-found", "request-not-found"]
    for name, example in examples.items():
        assert example["value"]["status"] == KINDS[name].status == 404


def test_problems_of_every_route_are_always_there() -> None:
    assert problems().keys() == {KINDS[name].status for name in EVERYWHERE}


def test_retry_after_is_documented_where_it_is_sent() -> None:
    described = problems("channel-full", "channel-not-found")
    assert "Retry-After" in described[429]["headers"]
    assert "headers" not in described[404]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, ""),
        ({"content-type": "application/json"}, "application/json"),
        ({"content-type": " Application/JSON ; charset=utf-8"}, "application/json"),
        ({"content-type": "text/plain", "content-encoding": "identity"}, "text/plain"),
    ],
)
def test_the_media_type_of_a_body(headers: dict[str, str], expected: str) -> None:
    assert content_type(headers) == expected


def test_a_compressed_body_is_refused() -> None:
    with pytest.raises(HTTPException) as caught:
        content_type({"content-type": "application/json", "content-encoding": "gzip"})
    assert caught.value.status_code == 415


async def test_a_direct_route_gives_its_endpoints_response_and_is_described() -> None:
    router = APIRouter(route_class=DirectRoute)

    @router.post("/things/{name}", status_code=202, response_model=dict[str, str])
    async def take(request: Request) -> Response:
        """Take a thing."""
        return Response(request.path_params["name"].encode() + await request.body(), 299)

    (route,) = router.routes
    assert isinstance(route, DirectRoute)
    assert route.get_route_handler() is take, "nothing is called in between"
    app = FastAPI()
    app.router.routes.extend(router.routes)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        answer = await client.post("/things/a", content=b"b")
    assert (answer.status_code, answer.content) == (299, b"ab")
    described = app.openapi()["paths"]["/things/{name}"]["post"]
    assert described["description"] == "Take a thing."
    assert "202" in described["responses"]
