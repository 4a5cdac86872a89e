"""What monitors ask."""

from __future__ import annotations

import pytest

from tests.support.served import problem_name, served


async def test_health_liveness_and_metrics_answer() -> None:
    async with served() as it:
        health = await it.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert (await it.client.get("/health/live")).json() == {"status": "live"}
        metrics = await it.client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "reliable_channel_http_requests_total" in metrics.text


async def test_health_without_the_list_of_channels() -> None:
    async with served() as it:
        await it.open()
        body = (await it.client.get("/health")).json()
        assert body.pop("channels") == [{"channelId": "room", "state": "open"}]
        assert (await it.client.get("/health?channels=false")).json() == body
        answer = await it.client.get("/health?channels=maybe")
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-request")


@pytest.mark.parametrize("path", ["/", "/health", "/health/live", "/metrics", "/openapi.json"])
async def test_what_monitors_ask_takes_head(path: str) -> None:
    async with served() as it:
        asked, looked = await it.client.head(path), await it.client.get(path)
    assert asked.status_code == looked.status_code == 200
    assert asked.headers["content-type"] == looked.headers["content-type"]


async def test_the_page_is_at_the_root() -> None:
    async with served() as it:
        page = await it.client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
