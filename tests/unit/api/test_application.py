"""The application around the routes: errors it answers with, and how it describes itself."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from pydantic.alias_generators import to_camel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import ASGIApp, Message

from api.application import ROUTERS, FaultMiddleware, create_app, route_of
from api.keys import KeyRing
from api.problems import KINDS
from api.readers import END_NAMES
from api.settings import ServiceSettings
from reliable_channel import ChannelEvent
from tests.support.served import problem_name, served

REST = Path(__file__).parents[3] / "docs" / "rest.md"

METHODS = ("get", "post", "put", "patch", "delete", "head", "options")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    app = create_app(ServiceSettings(database="memory://"), keys=KeyRing())
    return app.openapi()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    }


# --- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status", "name"),
    [
        ("GET", "/nowhere", 404, "not-found"),
        ("GET", "/v1/channels/", 404, "not-found"),
        ("GET", "/v1", 404, "not-found"),
        ("GET", "//v1/channels", 404, "not-found"),
        ("GET", "/v1/channels/a/b", 404, "not-found"),
        ("GET", "/v1/channels/../../etc/passwd", 404, "not-found"),
        ("GET", "/docs", 404, "not-found"),
        ("GET", "/v1/channels/%ff%fe", 404, "channel-not-found"),
        ("GET", "/v1/channels/%00", 404, "channel-not-found"),
        ("DELETE", "/v1/channels", 405, "method-not-allowed"),
        ("PUT", "/v1/channels/room", 405, "method-not-allowed"),
        ("BREW", "/v1/channels/room/messages", 405, "method-not-allowed"),
    ],
)
async def test_paths_and_methods_that_are_not_there(
    method: str, path: str, status: int, name: str
) -> None:
    async with served() as it:
        answer = await it.raw(method, path)
    assert (answer.status_code, problem_name(answer)) == (status, name)


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/v1/channels", "GET, POST"),
        ("/v1/channels/room", "DELETE, GET"),
        ("/v1/channels/room/messages", "GET, POST"),
        ("/health", "GET, HEAD"),
    ],
)
async def test_allow_names_all_methods_of_a_path(path: str, methods: str) -> None:
    async with served() as it:
        assert (await it.client.put(path)).headers["allow"] == methods


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://service")


async def test_a_fault_is_logged_with_its_traceback_and_says_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(*_: object) -> None:
        text = "secret"
        raise RuntimeError(text)

    async with client_of(FaultMiddleware(app)) as client:
        answer = await client.get("/x")
    assert (answer.status_code, problem_name(answer)) == (500, "internal-error")
    assert "secret" not in answer.text
    assert "secret" in caplog.text


async def test_a_response_that_has_begun_breaks_off() -> None:
    async def broken():  # type: ignore[no-untyped-def]
        yield b"begun"
        raise RuntimeError

    guarded = FaultMiddleware(StreamingResponse(broken()))
    async with client_of(guarded) as client:
        with pytest.raises(RuntimeError):
            await client.get("/x")


async def test_an_answer_passes() -> None:
    async with client_of(FaultMiddleware(PlainTextResponse("ok"))) as client:
        assert (await client.get("/x")).text == "ok"


@pytest.mark.parametrize("path", ["/v1/channels", "/v1/channels/room/messages"])
@pytest.mark.parametrize("kind", [b"application/json", b"application/octet-stream"])
async def test_a_client_that_leaves_in_its_request_is_no_fault(
    path: str, kind: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    sent: list[Message] = []

    async def left() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", kind), (b"content-length", b"9")]
    line = {"method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    async with served() as it:
        await it.open()
        caplog.clear()
        await it.app({"type": "http", "headers": headers, **line}, left, send)
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []
    assert sent == [] or sent[0]["status"] == 415


def test_where_no_route_matched_the_route_is_empty() -> None:
    assert route_of({"type": "http"}) == ""


async def test_a_status_of_the_framework_is_a_document() -> None:
    async with served() as it:

        async def teapot(request: Request) -> None:
            raise HTTPException(418, "short and stout")

        it.app.add_route("/teapot", teapot)
        answer = await it.client.get("/teapot")
    assert answer.status_code == 418
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "about:blank"


# --- OpenAPI -------------------------------------------------------------------------------------


def test_every_operation_says_what_it_is_for(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        assert operation["summary"], name
        assert operation["description"], name
        assert operation["tags"], name
        assert not operation["summary"].endswith("."), name


def test_tags_are_those_that_are_described(document: dict[str, Any]) -> None:
    used = {tag for operation in operations(document).values() for tag in operation["tags"]}
    assert {tag["name"] for tag in document["tags"]} == used


def test_every_parameter_and_field_is_described(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (name, parameter["name"])


def test_no_schema_of_the_framework_is_left(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    assert "ValidationError" not in text
    for name, operation in operations(document).items():
        for status, response in operation["responses"].items():
            if status.startswith(("4", "5")) and name.split()[1].startswith("/v1"):
                assert list(response["content"]) == ["application/problem+json"], (name, status)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document)))
    assert references == set(document["components"]["schemas"])


def test_every_v1_operation_documents_what_any_may_answer(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        if name.split()[1].startswith("/v1"):
            expected = {"400", "401", "403", "421", "422", "429", "431", "500", "503"}
            assert operation["responses"].keys() >= expected, name


async def test_the_description_is_served() -> None:
    async with served() as it:
        answer = await it.client.get("/openapi.json")
    assert answer.status_code == 200
    assert answer.json()["openapi"].startswith("3.")


# --- docs/rest.md --------------------------------------------------------------------------------


def rows(section: str) -> list[list[str]]:
    """Return the rows of the table below a heading of the page."""
    text = re.split(r"\n##+ ", REST.read_text(encoding="utf-8").partition(f"# {section}\n")[2])[0]
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_page_lists_every_route() -> None:
    routes = {
        (method, re.sub(r":segment", "", route.path))
        for router in ROUTERS
        for route in router.routes
        for method in getattr(route, "methods", {"WebSocket"}) - {"HEAD"}
    } | {("GET", "/openapi.json")}
    listed = {
        (method.strip(), path)
        for row in rows("Routes")
        for method, path in [row[0].strip("`").split(" ", 1)]
    }
    assert listed == routes


def test_the_page_lists_every_problem_with_its_status_and_title() -> None:
    listed = [(row[0], row[1], row[2]) for row in rows("Problems")]
    assert listed == [(f"`{kind.name}`", str(kind.status), kind.title) for kind in KINDS.values()]


def test_every_problem_says_what_to_do() -> None:
    assert [row[0] for row in rows("Problems") if not row[3].endswith(".")] == []


def test_the_page_lists_every_event_with_its_members() -> None:
    listed = {row[0].strip("`"): re.findall(r"`(\w+)`", row[1]) for row in rows("Events")}
    assert listed == {
        kind.name: [
            "payload" if item.name == "message" else to_camel(item.name)
            for item in fields(kind)
            if item.name not in ("channel_id", "sequence", "time_ns")
        ]
        for kind in get_args(ChannelEvent)
    }


def test_the_page_lists_every_end_of_a_stream() -> None:
    assert [row[0].strip("`") for row in rows("How a stream ends")] == list(END_NAMES)
