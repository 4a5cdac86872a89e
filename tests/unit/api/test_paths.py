"""Raw paths in one spelling, ids decoded after routing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

from api.paths import (
    RawPathMiddleware,
    SegmentConvertor,
    canonical_path,
    quote_segment,
)


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/v1/channels/a%2fb", "/v1/channels/a%2Fb"),
        (b"/v1/ch%61nnels", "/v1/channels"),
        (b"/v1/channels/..", "/v1/channels/.."),
        (b"/v1/channels/%2e%2E", "/v1/channels/.."),
        (b"/a:b@c", "/a%3Ab%40c"),
        (b"/%ff/%", "/%FF/%25"),
        ("/ü".encode(), "/%C3%BC"),
        (b"//x/", "//x/"),
        (b"/v1/channels/room-1_2.~", "/v1/channels/room-1_2.~"),
        (b"/", "/"),
    ],
)
def test_a_path_has_one_spelling(raw: bytes, path: str) -> None:
    assert canonical_path(raw) == path
    assert canonical_path(path.encode()) == path


@given(st.text(min_size=1))
def test_any_text_is_one_segment_and_comes_back(text: str) -> None:
    segment = canonical_path(quote_segment(text).encode())
    assert "/" not in segment
    assert SegmentConvertor().convert(segment) == text
    assert SegmentConvertor().to_string(text) == segment


@given(st.binary(min_size=1))
def test_bytes_that_are_no_utf8_do_not_fail(data: bytes) -> None:
    text = SegmentConvertor().convert(canonical_path(data.replace(b"/", b"")))
    assert isinstance(text, str)


async def routed(scope: Scope) -> Scope:
    """Return the scope that the application gets."""
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def nothing(*_: object) -> None:
        raise AssertionError

    await RawPathMiddleware(app)(scope, nothing, nothing)
    return seen[0]


async def test_the_raw_path_is_routed() -> None:
    scope = {"type": "http", "path": "/a/b", "raw_path": b"/a%2Fb?x=1"}
    assert (await routed(scope))["path"] == "/a%2Fb"
    assert scope["path"] == "/a/b"


async def test_without_a_raw_path_the_decoded_one_is_taken() -> None:
    assert (await routed({"type": "websocket", "path": "/ü"}))["path"] == "/%C3%BC"


async def test_other_scopes_pass() -> None:
    assert await routed({"type": "lifespan"}) == {"type": "lifespan"}
