"""The running service against its own description: schemathesis makes the requests, a fixed seed chooses them.

Whatever is asked, no answer is a 5xx, and every answer fits what is written about it. Event streams have no end; they
are read by polling here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from api.application import create_app
from api.keys import KeyRing
from api.settings import ServiceSettings
from api.streaming import MAX_WAIT_SEC
from tests.support.serve_process import ServeProcess, serving
from tests.support.served import channel_body

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

SEED: Final = 20260131

EXAMPLES: Final = 25
"""Requests of each operation that are drawn, besides those at the edges of what is described."""

BOUNDS: Final = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)

LONGEST_WAIT_SEC: Final = 0.01
"""Of a poll."""

BEYOND_A_SCHEMA: Final = {
    "/problems/invalid-configuration",  # fields that contradict each other
    "/problems/invalid-content-topic",
    "/problems/invalid-cursor",  # later than the channel's last event
}
"""Refusals of what fits its description by rules that a description cannot hold."""


def description() -> Any:
    """Return what the tests go through."""
    config = schemathesis.Config(seed=SEED)
    generation = config.projects.default.generation
    generation.max_examples = EXAMPLES
    generation.deterministic = True
    app = create_app(ServiceSettings(database="memory://"), keys=KeyRing())
    return schemathesis.openapi.from_dict(app.openapi(), config=config)


def bounded(case: Any) -> Any:
    """Make a request for events one that ends soon."""
    if case.operation.path.endswith("/events"):
        query = case.query = dict(case.query or {})
        if query.get("limit") is None:
            query["limit"] = 1
        with suppress(TypeError, ValueError):
            if LONGEST_WAIT_SEC < float(query.get("wait")) <= MAX_WAIT_SEC:
                query["wait"] = LONGEST_WAIT_SEC
    return case


def check(case: Any, response: Response) -> None:
    """Hold an answer against the description."""
    excluded = []
    if response.status_code == 422:
        problem = response.json()
        unprintable = "body.contentTopic: is above 1024 characters, or not printable"
        if problem["type"] in BEYOND_A_SCHEMA or unprintable in problem["detail"]:
            excluded.append(positive_data_acceptance)
    case.validate_response(response, excluded_checks=excluded)


class Asked:
    """A service, and what it has answered.

    Args:
        service: Running.
        client: Of it.
    """

    def __init__(self, service: ServeProcess, client: httpx.Client) -> None:
        self.service = service
        self.client = client
        self.answers: Counter[tuple[str, int]] = Counter()

    def ask(self, case: Any) -> None:
        """Ask, with a room there is to ask about."""
        self.open_room()
        response = bounded(case).call(base_url=self.service.url, timeout=30)
        self.answers[case.operation.label, response.status_code] += 1
        check(case, response)
        if response.status_code == 201:  # with drawn settings: it may be a busy one
            self.client.delete(response.headers["location"][0], params={"purge": True})

    def open_room(self) -> None:
        assert self.client.post("/v1/channels", json=channel_body()).status_code in (200, 201)

    def send(self) -> str:
        answer = self.client.post("/v1/channels/room/messages", json={"payload": "aGVsbG8="})
        return str(answer.json()["requestId"])

    def succeeded(self) -> set[str]:
        """Return the operations that did what was asked."""
        return {label for label, status in self.answers if status < 300}


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with serving("--database", "memory://") as service, service.client() as client:
        yield Asked(service, client)


anywhere = description()


@anywhere.parametrize()
def test_every_operation(case: Any, asked: Asked) -> None:
    asked.ask(case)


def test_every_operation_on_a_channel(asked: Asked) -> None:
    """Channel and request are there, so that each has something to do."""
    asked.open_room()
    asked.answers.clear()
    known = {"channelId": "room", "requestId": asked.send()}
    kept = description().include(path_regex="channelId").exclude(method="DELETE")
    operations = [found.ok() for found in kept.get_all_operations()]

    def ask_known(case: Any) -> None:
        case.path_parameters = {name: known[name] for name in case.path_parameters}
        asked.ask(case)

    for operation in operations:
        valid = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        BOUNDS(given(valid)(ask_known))()
    assert asked.succeeded() == {operation.label for operation in operations}, asked.answers


def test_the_description_that_is_served_is_this_one(asked: Asked) -> None:
    assert asked.client.get("/openapi.json").json() == anywhere.raw_schema
