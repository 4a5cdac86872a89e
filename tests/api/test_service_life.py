"""How the service starts, answers in each state, and ends; and what it says about itself."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from api.application import create_app
from api.keys import KeyRing
from api.settings import ServiceSettings
from reliable_channel import ConfigurationError
from tests.support.served import new_network, path_of, problem_name, served

V1 = [
    ("GET", "/v1/channels"),
    ("GET", path_of()),
    ("DELETE", path_of()),
    ("GET", f"{path_of()}/messages"),
    ("GET", f"{path_of()}/requests/x"),
    ("GET", f"{path_of()}/events"),
]


@pytest.mark.parametrize(("method", "path"), V1)
async def test_before_it_has_started_routes_ask_to_come_again(method: str, path: str) -> None:
    app = create_app(ServiceSettings(node=new_network(), database="memory://"), keys=KeyRing())
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://service"
    ) as client:
        answer = await client.request(method, path)
        assert (answer.status_code, problem_name(answer)) == (503, "starting")
        assert answer.headers["retry-after"] == "1"
        health = await client.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "starting"})
        assert health.headers["retry-after"] == "1"
        assert (await client.get("/health/live")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200


@pytest.mark.parametrize(("method", "path"), V1)
async def test_when_it_closes_routes_say_so(method: str, path: str) -> None:
    async with served() as it:
        await it.open()
        it.service.begin_closing()
        answer = await it.client.request(method, path)
        assert (answer.status_code, problem_name(answer)) == (503, "closing")
        assert (await it.client.get("/health")).json() == {"status": "closing"}
        assert it.service.closing.is_set()


async def test_closing_ends_polls_and_closes_everything(tmp_path: Path) -> None:
    async with served(database=f"sqlite:///{tmp_path}/a.db") as it:
        for name in "abc":
            await it.open(name)
        waiting = asyncio.create_task(
            it.client.get(f"{path_of('a')}/events", params={"limit": 1, "wait": 30})
        )
        await asyncio.sleep(0)  # the poll is waiting now
        channels = list(it.service.channels.values())
        it.service.begin_closing()
        assert (await waiting).json() == {"events": [], "next": 0}
    assert it.service.channels == {}
    for channel in channels:
        with pytest.raises(Exception, match="closed"):
            await channel.send(b"late")


async def test_health_names_channels_that_are_not_open(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    encryption = {"scheme": "aes-256-gcm", "keyRef": "A"}
    async with served(database=database, keys={"A": bytes(32)}) as it:
        await it.open("plain")
        await it.open("secret", encryption=encryption)
        assert (await it.client.get("/health")).json()["status"] == "ok"
    async with served(database=database) as it:
        await it.service.wait_started()
        health = await it.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")
        states = {item["channelId"]: item["state"] for item in health.json()["channels"]}
        assert states == {"plain": "open", "secret": "unavailable"}


async def test_a_channel_that_stops_working_is_opened_again() -> None:
    async with served() as it:
        await it.open()
        failing = it.service.get("room")
        next(task for task in asyncio.all_tasks() if "room machine" in task.get_name()).cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        answer = await it.send(b"hello")
        assert (answer.status_code, problem_name(answer)) == (503, "channel-failed")
        while it.service.channels.get("room", failing) is failing:
            assert (await it.client.get(path_of())).status_code in (200, 503)
            await asyncio.sleep(0)
        assert (await it.send(b"hello")).status_code == 202


@pytest.mark.parametrize(
    "settings",
    [{"database": "mysql://x/y"}, {"node": "pigeon://lab"}, {"node": "memory://lab?loss=2"}],
    ids=["database", "node", "fault"],
)
async def test_settings_that_cannot_be_stop_the_start(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        async with served(**settings):
            pass


async def test_answers_are_counted_by_route() -> None:
    async with served() as it:
        await it.open()
        await it.client.get(path_of())
        await it.client.get(path_of("none"))
        await it.client.get("/nowhere")
        text = (await it.client.get("/metrics")).text
    found = set(
        re.findall(r'http_requests_total\{method="(\w+)",route="(.*?)",status="(\d+)"', text)
    )
    assert found == {
        ("POST", "/v1/channels", "201"),
        ("GET", "/v1/channels/{channelId}", "200"),
        ("GET", "/v1/channels/{channelId}", "404"),
        ("GET", "none", "404"),
    }
