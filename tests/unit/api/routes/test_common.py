"""What the routes share."""

from __future__ import annotations

import pytest
from fastapi import HTTPException

from api.problems import KINDS
from api.routes.common import EVERYWHERE, content_type, problems


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
