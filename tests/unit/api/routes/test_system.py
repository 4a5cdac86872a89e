"""What monitors ask."""

from __future__ import annotations

from tests.support.served import served


async def test_health_liveness_and_metrics_answer() -> None:
    async with served() as it:
        health = await it.client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "ok")
        assert (await it.client.get("/health/live")).json() == {"status": "live"}
        metrics = await it.client.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "reliable_channel_http_requests_total" in metrics.text


async def test_the_page_is_at_the_root() -> None:
    async with served() as it:
        page = await it.client.get("/")
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "default-src 'none'" in page.headers["content-security-policy"]
