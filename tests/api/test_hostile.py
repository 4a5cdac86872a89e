"""Hostile requests over a real socket: each gets its 4xx, a problem document and one line in the log.

What stands around the routes is asked here; requests that only a route can refuse are in the routes' tests.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.serve_process import ServeProcess, serving

pytestmark = pytest.mark.timeout(120)

READ = "read-token-0123456789"
WRITE = "write-token-0123456789"
ROWS = 100 << 20


@pytest.fixture(scope="module")
def open_service() -> Iterator[ServeProcess]:
    """On loopback without tokens."""
    with serving("--database", "memory://", "--log-format", "json") as service:
        yield service


@pytest.fixture(scope="module")
def closed_service() -> Iterator[ServeProcess]:
    """With tokens."""
    env = {"RELIABLE_CHANNEL_READ_TOKENS": READ, "RELIABLE_CHANNEL_WRITE_TOKENS": WRITE}
    arguments = ("--database", "memory://", "--log-format", "json")
    with serving(*arguments, env=env) as service:
        yield service


@dataclass(frozen=True)
class Answer:
    """What came back over a socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """Of a problem document."""
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        assert document["detail"]
        return str(document["type"]).removeprefix("/problems/")


def ask(service: ServeProcess, head: str, body: bytes = b"") -> Answer:
    """Send bytes as they are, and read the one answer to them."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as sock:
        sock.sendall(head.encode("latin-1") + b"\r\n" + body)
        with sock.makefile("rb") as stream:
            return read_answer(stream)


def read_answer(stream: Any) -> Answer:
    status = int(stream.readline().split()[1])
    lines = iter(stream.readline, b"\r\n")
    headers = dict(line.decode("latin-1").rstrip("\r\n").lower().split(": ", 1) for line in lines)
    return Answer(status, headers, stream.read(int(headers["content-length"])))


def head(line: str, *fields: str, host: str = "localhost") -> str:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *fields, ""])


def asked(service: ServeProcess, request: str, body: bytes = b"") -> tuple[Answer, dict[str, Any]]:
    """Ask, and return the answer and the one line that was logged."""
    before = len(service.log())
    answer = ask(service, request, body)
    (line,) = lines_after(service, before, 1)
    assert line["status"] == answer.status
    return answer, line


def lines_after(service: ServeProcess, before: int, count: int) -> list[dict[str, Any]]:
    """Return what was logged since, when it is so many lines: each is written after its answer is sent."""
    while len(lines := service.log()[before:]) < count:
        assert service.process.poll() is None
    return [json.loads(line) for line in lines]


BEARER = f"Authorization: Bearer {WRITE}"

REFUSED_WITH_TOKENS = {
    "no token": (head("GET /v1/channels"), 401, "unauthorized"),
    "a wrong token": (head("GET /v1/channels", f"{BEARER}x"), 401, "unauthorized"),
    "a token in the address": (head(f"GET /v1/channels?token={WRITE}"), 401, "unauthorized"),
    "a token in a cookie": (
        head("GET /", f"Cookie: {BEARER}").replace(" / ", " /metrics "),
        401,
        "unauthorized",
    ),
    "two tokens": (head("GET /v1/channels", BEARER, BEARER), 401, "unauthorized"),
    "bytes for a token": (
        head("GET /v1/channels", "Authorization: Bearer \xff\xfe"),
        401,
        "unauthorized",
    ),
    "a reader that writes": (
        head("POST /v1/channels", f"Authorization: Bearer {READ}", "Content-Length: 0"),
        403,
        "forbidden",
    ),
    "a reader that deletes": (
        head("DELETE /v1/channels/a", f"Authorization: Bearer {READ}"),
        403,
        "forbidden",
    ),
    "a way round": (head("GET /health/live/../../v1/channels"), 401, "unauthorized"),
    "an encoded way round": (
        head("GET /health/live/%2e%2e/%2e%2e/v1/channels"),
        401,
        "unauthorized",
    ),
    "a double slash": (head("GET //v1/channels"), 401, "unauthorized"),
    "an absolute address": (head("GET http://localhost/v1/channels"), 401, "unauthorized"),
    "another method in a header": (
        head("POST /health/live", "X-HTTP-Method-Override: GET", "Content-Length: 0"),
        401,
        "unauthorized",
    ),
    "a socket without a token": (
        head(
            "GET /v1/channels/a/ws",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ),
        401,
        "unauthorized",
    ),
}

REFUSED_WITHOUT_TOKENS = {
    "another host": (head("GET /v1/channels", host="evil.example"), 421, "host-not-allowed"),
    "another host with our name": (
        head("GET /v1/channels", host="localhost.evil.example:8080"),
        421,
        "host-not-allowed",
    ),
    "a page of somebody else": (
        head("POST /v1/channels", "Origin: https://evil.example", "Content-Length: 0"),
        403,
        "origin-not-allowed",
    ),
    "a page of nobody": (
        head("DELETE /v1/channels/a", "Origin: null"),
        403,
        "origin-not-allowed",
    ),
    "a socket of a page of somebody else": (
        head(
            "GET /v1/channels/a/ws",
            "Origin: https://evil.example",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        ),
        403,
        "origin-not-allowed",
    ),
    "large headers": (head("GET /v1/channels", "X: " + "y" * 40_000), 431, "headers-too-large"),
    "many headers": (head("GET /", *["X: y"] * 10_000), 431, "headers-too-large"),
    "a long address": (head("GET /" + "y" * 40_000), 431, "headers-too-large"),
    "a large body, announced": (
        head("POST /v1/channels", f"Content-Length: {ROWS}"),
        413,
        "payload-too-large",
    ),
    "a body of no end, announced": (
        head("POST /v1/channels", f"Content-Length: {10**18}"),
        413,
        "payload-too-large",
    ),
    "a path that leaves": (head("GET /../../../etc/passwd"), 404, "not-found"),
    "an encoded path that leaves": (head("GET /%2e%2e%2f%2e%2e%2fetc/passwd"), 404, "not-found"),
    "a path with a line break": (head("GET /a%0d%0aforged:%20line"), 404, "not-found"),
    "a path with a terminal's codes": (head("GET /%1b%5b31mred%00"), 404, "not-found"),
    "a path that is no text": (head("GET /%ff%fe"), 404, "not-found"),
}


@pytest.mark.parametrize("name", REFUSED_WITH_TOKENS)
def test_what_needs_a_token_is_refused(closed_service: ServeProcess, name: str) -> None:
    request, status, kind = REFUSED_WITH_TOKENS[name]
    answer, line = asked(closed_service, request)
    assert (answer.status, answer.kind) == (status, kind)
    assert answer.headers["www-authenticate"].startswith("bearer realm=")
    assert (line["level"], line["problem"]) == ("warning", kind)
    assert "token-0123456789" not in json.dumps(line)


@pytest.mark.parametrize("name", REFUSED_WITHOUT_TOKENS)
def test_what_needs_no_token_is_refused(open_service: ServeProcess, name: str) -> None:
    request, status, kind = REFUSED_WITHOUT_TOKENS[name]
    answer, line = asked(open_service, request)
    assert (answer.status, answer.kind) == (status, kind)
    assert (line["level"], line["problem"]) == ("warning", kind)
    assert line["message"].isprintable()
    assert len(line["message"]) < 2_000


def test_a_large_body_without_a_length_is_counted_and_not_kept(
    open_service: ServeProcess,
) -> None:
    """100 MB in chunks; what comes after the limit is thrown away, and the answer can be read."""
    status = f"/proc/{open_service.process.pid}/status"
    request = head(
        "POST /v1/channels", "Content-Type: application/json", "Transfer-Encoding: chunked"
    )
    piece = b"x" * (1 << 20)
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    before = len(open_service.log())
    with socket.create_connection(("127.0.0.1", open_service.port), timeout=60) as sock:
        sock.sendall(request.encode() + b"\r\n")
        for _ in range(100):
            sock.sendall(chunk)
        sock.sendall(b"0\r\n\r\n")
        with sock.makefile("rb") as stream:
            answer = read_answer(stream)
            assert (answer.status, answer.kind) == (413, "payload-too-large")
            sock.sendall(head("GET /health/live").encode() + b"\r\n")  # the connection still works
            assert read_answer(stream).status == 200
    lines = lines_after(open_service, before, 2)
    assert [line["status"] for line in lines] == [413, 200]
    with open(status, encoding="utf-8") as file:
        peak = int(re.findall(r"VmHWM:\s+(\d+) kB", file.read())[0])
    assert peak < 350_000  # kB: the process, and the 35 MiB that may be read


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /\x1b[31m HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * (3 << 20) + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 300 + b"\r\n\r\n",
        b"frob\r\n\r\n",
    ],
)
def test_what_is_no_request_is_a_400_and_one_line(
    open_service: ServeProcess, request_bytes: bytes
) -> None:
    """The server itself refuses these; there is no request that a document could be about."""
    before = len(open_service.log())
    with socket.create_connection(("127.0.0.1", open_service.port), timeout=30) as sock:
        try:
            sock.sendall(request_bytes)
            answer = sock.recv(100)
        except ConnectionError:  # closed on us before all was sent
            answer = b"HTTP/1.1 400 "
    assert answer.startswith(b"HTTP/1.1 400 ")
    (line,) = lines_after(open_service, before, 1)
    assert (line["level"], line["logger"]) == ("warning", "uvicorn.error")


def test_requests_in_masses_are_refused_by_address_and_the_service_lives() -> None:
    env = {"RELIABLE_CHANNEL_REQUESTS_PER_SECOND": "0.001"}
    with serving("--database", "memory://", env=env) as service, service.client() as client:
        statuses = [client.get("/v1/channels").status_code for _ in range(20)]
        refused = client.get("/v1/channels")
        assert client.get("/health/live").status_code == 200
    assert statuses == [200, *[429] * 19]
    assert 900 <= int(refused.headers["retry-after"]) <= 1_000
