"""Paths as they were sent: an id may hold a slash as ``%2F``, a dot segment or any other character.

Servers decode the path before it is routed, and then ``a%2Fb`` cannot be told from ``a/b``. Here the raw path is
routed, each segment in one canonical spelling, and ids are decoded afterwards. Nothing here knows what an id is.

Spec: RFC 3986, sections 2.4 and 6.2.2.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, unquote, unquote_to_bytes

from starlette.convertors import Convertor, register_url_convertor
from starlette.types import ASGIApp, Receive, Scope, Send

PLAIN: Final = re.compile(rb"[A-Za-z0-9_.~/-]*")
"""Paths that are canonical as they are; most are."""


def canonical_path(raw: bytes) -> str:
    """Return a raw path with each segment in one spelling: what need not be encoded is not."""
    if PLAIN.fullmatch(raw):
        return raw.decode()
    return "/".join(quote(unquote_to_bytes(part), safe="") for part in raw.split(b"/"))


def quote_segment(text: str) -> str:
    """Return a text as one segment of a path; a dot segment is left to clients that send it as it is."""
    return quote(text, safe="")


class SegmentConvertor(Convertor[str]):
    """One segment of a raw path, decoded after routing.

    Bytes that are not UTF-8 become lone surrogates, which no id has: nothing is found there.
    """

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Return the text of a segment."""
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        """Return the segment of a text."""
        return quote_segment(value)


register_url_convertor("segment", SegmentConvertor())


class RawPathMiddleware:
    """Puts the canonical raw path in the place of the decoded one.

    Args:
        app: What routes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Route a request or a socket by its raw path."""
        await self._app(
            routed(scope) if scope["type"] in ("http", "websocket") else scope, receive, send
        )


def routed(scope: Scope) -> Scope:
    """Return the scope of a request or a socket with the canonical raw path in the place of the decoded one."""
    raw = scope.get("raw_path") or quote(scope["path"]).encode()
    return {**scope, "path": canonical_path(raw.partition(b"?")[0])}
