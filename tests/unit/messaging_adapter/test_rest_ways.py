"""What a node's answer to a message or a command means."""

from __future__ import annotations

import pytest

from messaging_adapter.rest_client import Answer, RestError
from messaging_adapter.rest_ways import command, judge
from reliable_channel.errors import PublishRejectedError
from tests.support.rest import stand_in
from tests.support.virtual_loop import virtual_time


@pytest.mark.parametrize("status", [200, 204])
def test_a_success_is_one(status: int) -> None:
    judge(Answer(status, b"OK"))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, b"Failed to publish: Message size exceeded maximum of 153600 bytes"),
        (400, b"Failed to publish. Autosharding error: invalid format"),
        (413, b'{"statusDesc":"too large"}'),
        (421, b'{"statusDesc":"unsupported"}'),
    ],
)
def test_what_would_be_refused_again_is_rejected_in_the_nodes_words(
    status: int, words: bytes
) -> None:
    with pytest.raises(PublishRejectedError) as caught:
        judge(Answer(status, words))
    assert str(caught.value) == Answer(status, words).words


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, b"Failed to publish: no peers for publishing"),
        (400, b"Failed to publish: NoPeersToPublish"),
        (400, b"Failed to publish: Node not subscribed to topic: /x"),
        (400, b"Bad request initiated. Invalid path or method used."),
        (404, b"/relay endpoints are not available while initializing."),
        (500, b"Failed to publish: timedout"),
        (503, b"no peer"),
        (505, b'{"statusDesc":"no peers"}'),
        (302, b""),
        (401, b"who are you"),
        (403, b"not you"),
        (404, b"<html>no such page</html>"),
        (408, b"too slow"),
    ],
)
def test_what_may_work_later_is_no_rejection(status: int, words: bytes) -> None:
    with pytest.raises(RestError):
        judge(Answer(status, words))


def test_a_refusal_can_be_for_good_whatever_its_status() -> None:
    with pytest.raises(PublishRejectedError):
        judge(Answer(500, b"x"), final=True)


@virtual_time
async def test_a_command_about_many_topics_goes_out_in_parts() -> None:
    async with stand_in() as network:
        node = await network.open()
        before = node.client.requests["relay"]
        topics = [f"/app/1/{number}/proto" for number in range(250)]
        await command(node.client, "POST", "/relay/v1/auto/subscriptions", topics)
        await command(node.client, "POST", "/relay/v1/auto/subscriptions", [])
        assert node.client.requests["relay"] - before == 3
        assert len(network.nodes[0].relay.places) == 250
        await node.close()
