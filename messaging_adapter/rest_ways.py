"""What all ways to use a node's REST API have in common: how it is reached, what its refusals mean.

Spec: the node's REST API; P2P-RELIABILITY, which errors a repetition can help with.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from messaging_adapter.rest_client import Answer, RestClient, RestError, Trouble
from messaging_adapter.rest_wire import MessageReader, PubsubTopicOf
from reliable_channel.errors import PublishRejectedError

MAY_PASS: Final = re.compile(r"no ?peers|timed ?out|not subscribed|not ready|no suitable", re.I)
"""Words of a refusal (400) that are about the node's situation, not about the message."""

ABOUT_THE_MESSAGE: Final = frozenset({400, 413, 420, 421, 422})
"""Refusals for good. Other ones (401, 404, 408 …) come from what stands before a node, and pass."""

MAX_SUBSCRIBED: Final = 100
"""Topics in one request."""


@dataclass(frozen=True, slots=True)
class Ways:
    """What all ways have in common."""

    client: RestClient
    reader: MessageReader
    pubsub_topic_of: PubsubTopicOf


def judge(answer: Answer, *, final: bool = False) -> None:
    """Raise what an answer to a message means.

    Args:
        answer: The node's.
        final: It is a refusal for good whatever the status says.
    """
    if answer.ok:
        return
    passing = answer.is_no_route or bool(MAY_PASS.search(answer.words))
    if final or (answer.status in ABOUT_THE_MESSAGE and not passing):
        raise PublishRejectedError(answer.words)
    raise RestError(Trouble.FAILED, answer.words)


async def command(client: RestClient, method: str, path: str, topics: Sequence[str]) -> None:
    """Send a command about topics, a hundred at a time.

    Raises:
        PublishRejectedError: The node refused for good, in its words.
        RestError: It may work later.
    """
    for first in range(0, len(topics), MAX_SUBSCRIBED):
        part = list(topics[first : first + MAX_SUBSCRIBED])
        judge(await client.request(method, path, body=part))
