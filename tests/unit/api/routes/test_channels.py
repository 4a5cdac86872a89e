"""What a channel looks like on the wire; its routes are tested in tests/api/test_channels.py."""

from __future__ import annotations

from api.routes.channels import EXAMPLES, channel_view, epoch_view
from tests.support.served import channel_body, served


async def test_a_channel_shows_its_settings_as_given() -> None:
    async with served() as it:
        await it.open(sds={"maxInFlight": 4})
        view = channel_view(it.service, it.service.get("room"))
    body = view.model_dump(exclude_unset=True)
    assert body.items() >= channel_body(sds={"maxInFlight": 4}).items()
    assert body["rateLimit"] is None
    assert body["status"]["openRequests"] == 0


async def test_the_epoch_counts_what_was_transmitted() -> None:
    async with served(epoch_period_sec=1 << 31, messages_per_epoch=50) as it:
        await it.open()
        sent = await it.send(b"hello", "room")
        path = "/v1/channels/room/events?limit=1&wait=10&after=0"
        assert (await it.client.get(path)).json()["events"], sent.text
        epoch = epoch_view(it.service.node)
        assert epoch is not None
        assert epoch.used >= 1
        assert epoch.left == 50 - epoch.used
        assert epoch.resets_at > "2030"


async def test_examples_of_the_description_can_be_opened() -> None:
    async with served(keys={"PLANS": bytes(32)}) as it:
        for example in EXAMPLES.values():
            answer = await it.client.post("/v1/channels", json=example["value"])
            assert answer.status_code == 201
