"""Which events route answers how; streams are tested in tests/api/test_streams.py."""

from __future__ import annotations

import pytest

from tests.support.served import path_of, problem_name, served

EVENTS = f"{path_of()}/events"


async def test_with_a_limit_it_is_a_page() -> None:
    async with served() as it:
        await it.open()
        await it.send(b"hello")
        first = await it.client.get(EVENTS, params={"after": 0, "limit": 1, "wait": 10})
        assert first.status_code == 200
        (event,) = first.json()["events"]
        assert first.json()["next"] == event["sequence"] == 1
        resumed = await it.client.get(EVENTS, params={"limit": 5}, headers={"Last-Event-ID": "1"})
        assert resumed.json() == {"events": [], "next": 1}


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=1&wait=31", "limit=1&wait=nan", "after=-1", "since=1"]
)
async def test_a_query_that_cannot_be_is_refused(query: str) -> None:
    async with served() as it:
        await it.open()
        answer = await it.client.get(f"{EVENTS}?{query}")
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-request")


@pytest.mark.parametrize("limit", ["", "&limit=1"])
async def test_a_place_that_is_not_there_is_refused(limit: str) -> None:
    async with served() as it:
        await it.open()
        answer = await it.client.get(f"{EVENTS}?after=7{limit}")
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-cursor")
