"""Who may ask what: tokens and roles, hosts, origins, CORS, one log line for each request."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.security import RequestLog, host_name, is_open, kind_of_problem, token_of, wrap
from api.settings import ServiceSettings
from api.tokens import Tokens
from tests.support.edge_app import (
    READ,
    TOKENS,
    WRITE,
    Clock,
    bearer,
    client_of,
    lines_logged,
    open_socket,
    wrapped,
)

UNKNOWN = "unknown-token-0123456789"


# --- Tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "none", "read", "write"),
    [
        ("GET", "/v1/channels", 401, 200, 200),
        ("HEAD", "/v1/channels", 401, 405, 405),
        ("OPTIONS", "/v1/channels", 401, 405, 405),
        ("POST", "/v1/channels", 401, 403, 200),
        ("DELETE", "/v1/channels", 401, 403, 405),
        ("FROB", "/v1/channels", 401, 403, 405),
        ("GET", "/v1/none", 401, 404, 404),
        ("GET", "/health", 401, 404, 404),
        ("GET", "/metrics", 401, 404, 404),
        ("GET", "/docs", 401, 200, 200),
        ("GET", "/health/live", 200, 200, 200),
        ("GET", "/", 200, 200, 200),
        ("GET", "/openapi.json", 200, 200, 200),
        ("POST", "/", 401, 403, 405),
        ("POST", "/health/live", 401, 403, 405),
    ],
)
async def test_roles(method: str, path: str, none: int, read: int, write: int) -> None:
    async with client_of(wrapped(TOKENS)) as client:
        for headers, status in ((None, none), (bearer(READ), read), (bearer(WRITE), write)):
            assert (await client.request(method, path, headers=headers)).status_code == status


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ({}, 'Bearer realm="reliable-channel"'),
        (bearer(UNKNOWN), 'Bearer realm="reliable-channel", error="invalid_token"'),
        (bearer(WRITE[:-1]), 'Bearer realm="reliable-channel", error="invalid_token"'),
        (bearer(""), 'Bearer realm="reliable-channel", error="invalid_token"'),
        ({"Authorization": f"Basic {WRITE}"}, 'error="invalid_token"'),
        ({"Authorization": WRITE}, 'error="invalid_token"'),
        ({"Authorization": "Bearer \u00ff".encode("latin-1")}, 'error="invalid_token"'),
        ({"Cookie": f"token={WRITE}"}, 'Bearer realm="reliable-channel"'),
        ({"X-Api-Key": WRITE}, 'Bearer realm="reliable-channel"'),
        ({"Sec-WebSocket-Protocol": f"bearer.{WRITE}"}, 'Bearer realm="reliable-channel"'),
    ],
)
async def test_without_a_known_token_the_answer_says_what_is_wanted(
    headers: Mapping[str, Any], challenge: str
) -> None:
    async with client_of(wrapped(TOKENS)) as client:
        answer = await client.get("/v1/channels", headers=headers)
    assert answer.status_code == 401
    assert challenge in answer.headers["www-authenticate"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "/problems/unauthorized"
    assert WRITE not in answer.text


async def test_a_token_in_the_address_is_none() -> None:
    async with client_of(wrapped(TOKENS)) as client:
        for name in ("token", "access_token", "bearer"):
            answer = await client.get("/v1/channels", params={name: WRITE})
            assert answer.status_code == 401


async def test_two_tokens_are_none() -> None:
    headers = [("Authorization", f"Bearer {WRITE}")] * 2
    async with client_of(wrapped(TOKENS)) as client:
        assert (await client.get("/v1/channels", headers=headers)).status_code == 401


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_the_scheme_may_be_written_in_any_case(scheme: str) -> None:
    async with client_of(wrapped(TOKENS)) as client:
        answer = await client.get("/v1/channels", headers={"Authorization": f"{scheme} {WRITE}"})
    assert answer.json() == {"role": "write"}


async def test_the_role_goes_on_to_the_routes() -> None:
    async with client_of(wrapped(TOKENS)) as client:
        answer = await client.get("/v1/channels", headers=bearer(READ))
    assert answer.json() == {"role": "read"}
    async with client_of(wrapped()) as client:
        assert (await client.get("/v1/channels")).json() == {"role": "write"}


@pytest.mark.parametrize(
    ("raw", "path", "expected"),
    [
        (b"/", "/", True),
        (b"/health/live", "/health/live", True),
        (b"/health/live", "/health/live/", False),
        (b"/%68ealth/live", "/health/live", False),
        (b"//", "//", False),
        (b"/health/live/../../v1/channels", "/health/live/../../v1/channels", False),
        (b"/v1/channels%2F..%2F..%2Fhealth/live", "/v1/channels/../../health/live", False),
        (b"http://h/health/live", "http://h/health/live", False),
        (b"/v1/channels", "/health/live", False),
        (b"/health/live", "/v1/channels", False),
    ],
)
def test_only_a_plain_path_is_open(raw: bytes, path: str, *, expected: bool) -> None:
    scope: Scope = {"type": "http", "method": "GET", "path": path, "raw_path": raw}
    assert is_open(scope) is expected
    assert not is_open({**scope, "method": "POST"})
    assert not is_open({**scope, "type": "websocket"})


async def test_each_token_has_its_own_rate_and_guesses_share_the_address_s() -> None:
    clock = Clock()
    async with client_of(wrapped(TOKENS, clock, requests_per_second=1)) as client:
        for headers in (bearer(READ), bearer(WRITE)):
            statuses = [
                (await client.get("/v1/channels", headers=headers)).status_code for _ in range(3)
            ]
            assert statuses == [200, 200, 429]
        statuses = [
            (await client.get("/v1/channels", headers=bearer(f"{UNKNOWN}{i}"))).status_code
            for i in range(3)
        ]
    assert statuses == [401, 401, 429]


# --- WebSockets ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subprotocols", "headers", "seen", "accepted"),
    [
        ((f"bearer.{READ}",), {}, "read", f"bearer.{READ}"),
        ((f"bearer.{WRITE}",), {}, "write", f"bearer.{WRITE}"),
        (("channel", f"bearer.{WRITE}"), {}, "write channel", "channel"),
        ((f"bearer.{READ}", "channel"), {}, "read channel", "channel"),
        (("channel",), bearer(READ), "read channel", None),
        ((), bearer(WRITE), "write", None),
    ],
)
async def test_sockets_show_tokens_too(
    subprotocols: tuple[str, ...], headers: dict[str, str], seen: str, accepted: str | None
) -> None:
    """Browsers give up a socket when none of the subprotocols that they named comes back."""
    opening = await open_socket(wrapped(TOKENS), *subprotocols, headers=headers)
    assert (opening.text, opening.subprotocol) == (seen, accepted)


@pytest.mark.parametrize(
    ("subprotocols", "headers"),
    [
        ((), {}),
        (("channel",), {}),
        ((f"bearer.{UNKNOWN}",), {}),
        (("bearer.",), {}),
        ((WRITE,), {}),
        ((f"bearer.{READ}", f"bearer.{WRITE}"), {}),
        ((f"bearer.{READ}",), bearer(WRITE)),
    ],
)
async def test_sockets_without_a_known_token_are_not_opened(
    subprotocols: tuple[str, ...], headers: dict[str, str]
) -> None:
    with lines_logged() as lines:
        opening = await open_socket(wrapped(TOKENS), *subprotocols, headers=headers)
    assert opening.status == 401
    assert json.loads(opening.text)["type"] == "/problems/unauthorized"
    (line,) = lines
    assert line.getMessage().startswith("WEBSOCKET /v1/ws 401 ")


async def test_a_socket_of_a_page_of_somebody_else_is_not_opened() -> None:
    opening = await open_socket(wrapped(), headers={"Origin": "https://evil.example"})
    assert json.loads(opening.text)["type"] == "/problems/origin-not-allowed"
    opening = await open_socket(wrapped(), headers={"Origin": "http://127.0.0.1"})
    assert (opening.status, opening.text) == (101, "write")


async def test_an_open_socket_is_one_line() -> None:
    with lines_logged() as lines:
        await open_socket(wrapped(TOKENS), f"bearer.{READ}")
    (line,) = lines
    assert line.levelno == logging.INFO
    assert line.getMessage().startswith("WEBSOCKET /v1/ws 101 ")
    assert READ not in line.getMessage()


# --- Hosts and origins ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8080", 200),
        ("127.0.0.1", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("[::1]:8080", 200),
        ("lab.example:8080", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:8080", 421),
        ("localhost:8080@evil.example", 421),
        ("", 421),
        ("::1", 421),
    ],
)
async def test_a_name_that_somebody_pointed_here_is_refused(host: str, status: int) -> None:
    async with client_of(wrapped(allowed_hosts=("Lab.example",))) as client:
        for path in ("/v1/channels", "/", "/health/live"):
            answer = await client.get(path, headers={"Host": host})
            assert answer.status_code == status
            if status == 421:
                assert answer.json()["type"] == "/problems/host-not-allowed"


async def test_two_hosts_are_none() -> None:
    async with client_of(wrapped()) as client:
        answer = await client.get("/v1/channels", headers=[("Host", "localhost")] * 2)
    assert answer.status_code == 421


@pytest.mark.parametrize(
    ("tokens", "settings", "status"),
    [
        (TOKENS, {}, 200),
        (Tokens(), {"host": "0.0.0.0"}, 200),
        (Tokens(), {"host": "0.0.0.0", "allowed_hosts": ("lab.example",)}, 421),
        (Tokens(), {}, 421),
    ],
)
async def test_where_hosts_are_looked_at(
    tokens: Tokens, settings: dict[str, Any], status: int
) -> None:
    async with client_of(wrapped(tokens, **settings), host="evil.example") as client:
        answer = await client.get("/v1/channels", headers=bearer(WRITE))
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("origin", "post"),
    [
        (None, 200),
        ("http://127.0.0.1:8080", 200),
        ("https://127.0.0.1:8080", 200),  # a reverse proxy on this machine
        ("https://app.example", 200),
        ("http://127.0.0.1:3000", 403),
        ("http://127.0.0.1", 403),
        ("https://evil.example", 403),
        ("https://app.example.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_pages_of_others_change_nothing(origin: str | None, post: int) -> None:
    headers = {} if origin is None else {"Origin": origin}
    async with client_of(wrapped(cors_origins=("https://app.example",))) as client:
        assert (await client.get("/v1/channels", headers=headers)).status_code == 200
        answer = await client.post("/v1/channels", headers=headers)
    assert answer.status_code == post


async def test_with_tokens_the_token_decides_and_not_the_page() -> None:
    headers = {**bearer(WRITE), "Origin": "https://app.example"}
    async with client_of(wrapped(TOKENS)) as client:
        assert (await client.post("/v1/channels", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("origins", "allowed"),
    [
        ((), None),
        (("https://other.example",), None),
        (("https://app.example",), "https://app.example"),
        (("*",), "*"),
    ],
)
async def test_cors_is_closed_unless_opened(origins: tuple[str, ...], allowed: str | None) -> None:
    headers = {"Origin": "https://app.example"}
    preflight = {
        **headers,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    name = "access-control-allow-origin"
    async with client_of(wrapped(TOKENS, cors_origins=origins)) as client:
        refused = await client.get("/v1/channels", headers=headers)
        asked = await client.options("/v1/channels", headers=preflight)
    assert refused.headers.get(name) == allowed  # or the page could not read why
    readable = refused.headers.get("access-control-expose-headers")
    assert readable == ("location, retry-after" if origins else None)
    assert asked.headers.get(name) == allowed
    assert asked.is_success is (allowed is not None)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("Localhost", "localhost"),
        (" a.b:80 ", "a.b"),
        ("[::1]:8080", "[::1]"),
        ("a:123456", "a:123456"),
        ("a:", "a:"),
    ],
)
def test_host_names(host: str, expected: str) -> None:
    assert host_name(host) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], None),
        ([(b"authorization", b"Bearer a")], "a"),
        ([(b"authorization", b"Basic a")], ""),
        ([(b"authorization", b"Bearer a"), (b"authorization", b"Bearer b")], ""),
    ],
)
def test_tokens_in_headers(headers: list[tuple[bytes, bytes]], expected: str | None) -> None:
    assert token_of({"type": "http", "headers": headers}) == expected


# --- The log -------------------------------------------------------------------------------------


async def test_a_line_for_each_request_says_what_where_how_long_and_how_much() -> None:
    with lines_logged() as lines:
        async with client_of(wrapped()) as client:
            await client.post("/v1/channels?token=secret", content=b"payload")
    (line,) = lines
    assert line.getMessage() == "POST /v1/channels 200 0.0 ms 12 bytes 127.0.0.1"
    assert line.levelno == logging.INFO
    assert vars(line)["fields"] == {
        "method": "POST",
        "path": "/v1/channels",
        "status": 200,
        "ms": 0.0,
        "bytes": 12,
        "client": "127.0.0.1",
    }


async def test_a_refusal_is_a_warning_with_its_kind() -> None:
    with lines_logged() as lines:
        async with client_of(wrapped(TOKENS)) as client:
            await client.get("/v1/channels", headers=bearer(UNKNOWN))
    (line,) = lines
    assert line.levelno == logging.WARNING
    assert line.getMessage().endswith(" 127.0.0.1 unauthorized")
    assert vars(line)["fields"]["problem"] == "unauthorized"
    assert UNKNOWN not in line.getMessage()


async def test_a_bug_is_one_line_with_its_traceback_and_the_client_is_told_nothing() -> None:
    with lines_logged() as lines:
        async with client_of(wrapped()) as client:
            answer = await client.get("/v1/bug")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    (line,) = lines
    assert line.levelno == logging.ERROR
    assert line.exc_info is not None
    assert line.exc_info[0] is RuntimeError


async def test_a_bug_before_any_answer_is_a_problem_document() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise ZeroDivisionError

    with lines_logged() as lines:
        async with client_of(RequestLog(broken)) as client:
            answer = await client.get("/")
    assert answer.json()["type"] == "/problems/internal-error"
    assert len(lines) == 1


async def test_a_client_that_went_away_is_a_line_too() -> None:
    async def silent(scope: Scope, receive: Receive, send: Send) -> None:
        return

    async def ignore(*arguments: Any) -> Any:
        return None

    with lines_logged() as lines:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        await RequestLog(silent)(scope, ignore, ignore)
    assert " 499 " in lines[0].getMessage()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"type": "/problems/channel-full"}', "channel-full"),
        (b'{"type": "about:blank"}', "about:blank"),
        (b'{"type": "/a\\nb"}', r"a\nb"),
        (b'{"type": 5}', ""),
        (b"[]", ""),
        (b"\xff", ""),
        (b"", ""),
    ],
)
def test_kinds_of_problems(body: bytes, kind: str) -> None:
    assert kind_of_problem(body) == kind


@pytest.mark.parametrize(
    ("level", "shown"),
    [(logging.INFO, [200, 404, 500]), (logging.WARNING, [404, 500]), (logging.ERROR, [500])],
)
async def test_a_request_has_a_line_where_the_level_asks_for_it(
    level: int, shown: list[int]
) -> None:
    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/500":
            raise ZeroDivisionError
        await Response(status_code=int(scope["path"][1:]))(scope, receive, send)

    with lines_logged() as lines:
        logging.getLogger("reliable_channel.access").setLevel(level)
        async with client_of(RequestLog(answering)) as client:
            for status in (200, 404, 500):
                await client.get(f"/{status}")
    assert [vars(line)["fields"]["status"] for line in lines] == shown


async def test_what_is_no_request_goes_through_untouched() -> None:
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def ignore(*arguments: Any) -> Any:
        return None

    scope = {"type": "lifespan"}
    await wrap(app, ServiceSettings(requests_per_second=1), TOKENS)(scope, ignore, ignore)
    assert seen == [scope]
