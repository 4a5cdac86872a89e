"""The page's policy, what it may ask for, and what its text must not have; tests/browser looks at it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from api.application import create_app
from api.keys import KeyRing
from api.page import ETAG, HEADERS, PAGE, content_security_policy, page_response
from api.settings import ServiceSettings

MINIMAL = "<style>a{}</style><script>1</script>"


class Elements(HTMLParser):
    """Notes elements with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements() -> list[tuple[str, dict[str, str | None]]]:
    parser = Elements()
    parser.feed(PAGE)
    return parser.found


def routes_of_the_page() -> dict[str, str]:
    """Return the table of addresses in the script."""
    table = re.search(r"const ROUTES = (\{.*?\});", PAGE, re.DOTALL)
    assert table is not None
    text = re.sub(r"(\w+):", r'"\1":', table[1])
    return {str(k): str(v) for k, v in json.loads(text.replace(",\n}", "\n}")).items()}


# --- Its policy ----------------------------------------------------------------------------------


def test_the_policy_names_the_one_script_and_the_one_style_by_their_digests() -> None:
    policy = HEADERS["Content-Security-Policy"]
    for tag in ("script", "style"):
        inside = PAGE.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    others = re.sub(r"'sha256-[^']*'", "X", policy)
    assert others == (
        "default-src 'none'; script-src X; style-src X; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def test_the_policy_follows_the_page() -> None:
    assert content_security_policy(MINIMAL) != content_security_policy(MINIMAL.replace("1", "2"))
    assert content_security_policy(MINIMAL) != content_security_policy(MINIMAL.replace("a{", "b{"))


@pytest.mark.parametrize(
    "page",
    [
        "<style></style>",
        "<script></script>",
        MINIMAL + "<script>2</script>",
        MINIMAL + "<style>b{}</style>",
        MINIMAL.replace("<script>", "<script async>"),
        MINIMAL + '<script src="x"></script>',
    ],
)
def test_a_page_that_the_policy_would_break_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"api/page\.html must have one"):
        content_security_policy(page)


def test_nothing_in_the_page_needs_more_than_the_policy_gives() -> None:
    for tag, attributes in elements():
        assert tag not in {"iframe", "object", "embed", "base", "img"}, tag
        assert not [name for name in attributes if name.startswith("on") or name == "style"], tag
        for name in ("src", "action", "formaction", "data", "poster"):
            assert name not in attributes, tag
        target = attributes.get("href") or ""
        assert target.startswith(("data:", "#", "/openapi.json")) or not target, target


def test_nothing_comes_from_elsewhere() -> None:
    assert set(re.findall(r"\w+://[^\s'\"<>)]*", PAGE)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|url\(|(?<![\w:])//[a-z]+\.", PAGE)


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_no_text_ever_becomes_markup_or_script(word: str) -> None:
    assert word not in PAGE


def test_tokens_stay_in_the_tab() -> None:
    assert "sessionStorage" in PAGE
    assert "localStorage" not in PAGE
    assert "document.cookie" not in PAGE


# --- What it asks --------------------------------------------------------------------------------


def test_the_page_uses_public_routes_only(tmp_path: Path) -> None:
    settings = ServiceSettings(database=f"sqlite:///{tmp_path / 'a.db'}", node="memory://page")
    public = create_app(settings, keys=KeyRing({})).openapi()["paths"]
    used = routes_of_the_page()
    assert len(used) == 6
    assert set(used.values()) <= set(public)
    # Each address that is in the page stands in that table.
    written = set(re.findall(r"[\"'`](/[a-z][^\"'`\s]*)[\"'`]", PAGE))
    written -= {"/openapi.json", "/reliable-channel/1/${name}/proto"}  # a link, and a topic
    assert written == set(used.values())
    assert PAGE.count("fetch(") == 1
    assert "XMLHttpRequest" not in PAGE
    assert "sendBeacon" not in PAGE
    asked = set(re.findall(r"(?:call|reach)\(\"([A-Z]+)\", address\(\"(\w+)\"", PAGE))
    assert {name for _, name in asked} == set(used)
    for method, name in asked:
        assert method.lower() in public[used[name]], f"{method} {used[name]}"


# --- How it is served ----------------------------------------------------------------------------


async def get(headers: dict[str, str]) -> httpx.Response:
    app = Starlette(routes=[Route("/", page_response)])
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get("/", headers=headers)


async def test_the_page_is_served_as_it_is() -> None:
    response = await get({})
    assert response.status_code == 200
    assert response.text == PAGE
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert response.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("known", "status"),
    [(ETAG, 304), (f'W/{ETAG}, "x"', 304), ('"x"', 200), ("", 200)],
    ids=["same", "among others", "another", "none"],
)
async def test_a_browser_that_has_the_page_does_not_get_it_again(known: str, status: int) -> None:
    response = await get({"If-None-Match": known} if known else {})
    assert response.status_code == status
    assert response.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert bool(response.content) is (status == 200)
