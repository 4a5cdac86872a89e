"""The page at ``/``: one file that shows a running service to people.

The page asks the same public routes as any client and nothing else; its policy (CSP) lets it run its own script, show
its own style and reach its own service only. Nothing here may look into channels, nor put anything into the page:
what is served is the file as it is, to everybody, before any token is known.

Spec: ARCHITECTURE, REST; W3C Content Security Policy Level 3.
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response


def content_security_policy(page: str) -> str:
    """Return the policy under which a page's own script and style run, and nothing else does.

    Args:
        page: HTML with one ``<script>`` and one ``<style>``, both without attributes.

    Raises:
        ValueError: It has more of them, or none: whoever changed the page has to know.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {_digest_of(page, 'script')}",
            f"style-src {_digest_of(page, 'style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _digest_of(page: str, tag: str) -> str:
    """Return the source expression of the one inline element of a kind."""
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    if len(found) != 1 or len(re.findall(rf"<{tag}\b", page)) != 1:
        problem = f"api/page.html must have one <{tag}> without attributes"
        raise ValueError(problem)
    digest = hashlib.sha256(found[0].encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


PAGE: Final = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
"""The page as it is served."""

ETAG: Final = f'"{hashlib.sha256(PAGE.encode()).hexdigest()[:32]}"'
"""Changes with the page."""

HEADERS: Final = {
    "Content-Security-Policy": content_security_policy(PAGE),
    "Cache-Control": "no-cache",  # asked for again each time: a new version shows at once
    "Cross-Origin-Opener-Policy": "same-origin",
    "ETag": ETAG,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""What goes with the page."""


async def page_response(request: Request) -> Response:
    """Return the page, or 304 to a browser that has it."""
    known = request.headers.get("if-none-match", "")
    if ETAG in [part.strip().removeprefix("W/") for part in known.split(",")]:
        return Response(status_code=304, headers=HEADERS)
    return Response(PAGE, headers=HEADERS, media_type="text/html; charset=utf-8")
