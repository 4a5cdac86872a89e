"""Which parts of its REST API a node has, and which of them to use.

Asking changes nothing at the node. Real nodes answer unknown routes with 400 as often as with 404.

Spec: the node's REST API; MESSAGING-API, core and edge nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import quote

from messaging_adapter.rest_client import Answer, RestClient, RestError, Trouble
from reliable_channel.errors import ConfigurationError

PROBE: Final = "probe"
"""An id that nobody has: asking for it changes nothing."""

PROBE_TOPIC: Final = "/reliable-channel/1/probe/proto"

PROBES: Final[tuple[tuple[str, str, str, object], ...]] = (
    ("static", "GET", f"/relay/v1/messages/{quote(PROBE_TOPIC, safe='')}", None),
    # Refused for its topic by every node, and with other words where there is no auto-sharding.
    ("relay", "POST", "/relay/v1/auto/messages", {"payload": "AA==", "contentTopic": PROBE}),
    ("filter", "GET", f"/filter/v2/subscriptions/{PROBE}", None),
    ("lightpush", "POST", "/lightpush/v3/message", {}),
    ("store", "GET", f"/store/v3/messages?pageSize=1&hashes=0x{'00' * 32}", None),
    ("messaging", "GET", f"/messaging/v1/events/send/{PROBE}", None),
    ("health", "GET", "/health", None),
)
"""What is asked to find out about each part: the part, method, path and body."""

REPEATS: Final = 2
"""How often a part is asked for again at once when its answer breaks off."""

FIRST: Final = PROBES[0][0]
"""What tells a node that is not well from one that is: no node answers it with 5xx."""

ORDER: Final = {
    "core": (
        ("relay", "static", "lightpush", "messaging"),
        ("relay", "static", "filter", "messaging"),
    ),
    "edge": (("lightpush", "messaging"), ("filter", "messaging")),
}
"""Ways to publish and to receive by the node's mode, the best first."""


async def probe(client: RestClient) -> frozenset[str]:
    """Return the parts of the API that a node has.

    Raises:
        RestError: It does not answer, or is not ready yet.
        ConfigurationError: It does not let us in.
    """
    found = set()
    for part, method, path, body in PROBES:
        answer = await _ask(client, method, path, body)
        if b"while initializing" in answer.body[:200] or (part == FIRST and answer.status >= 500):
            raise RestError(Trouble.FAILED, answer.words)
        if answer.status in (401, 403):
            problem = (
                f"the node refuses us ({answer.status}: {answer.words}); check user and password"
            )
            raise ConfigurationError(problem)
        if _has(part, answer):
            found.add(part)
    return frozenset(found)


async def _ask(client: RestClient, method: str, path: str, body: object) -> Answer:
    """Return a whole answer; one that breaks off is asked for again, or a bad line would seldom let all through."""
    for _ in range(REPEATS):
        try:
            return await client.request(method, path, body=body)
        except RestError as error:
            if error.trouble is not Trouble.BROKEN:
                raise
    return await client.request(method, path, body=body)


def _has(part: str, answer: Answer) -> bool:
    if answer.is_no_route or answer.status == 405 or _is_no_node(answer):
        return False
    match part:
        case "static":  # a node has 404 for the topic, which it is not subscribed to
            return True
        case "relay":
            return answer.status == 400 and "utosharding is disabled" not in answer.words
        case "messaging":
            return answer.ok or b"No send events" in answer.body
        case "health":
            return answer.ok or answer.status >= 500
        case _:  # a 404 of the node's own has JSON
            return answer.status != 404 or answer.body.lstrip().startswith(b"{")


def _is_no_node(answer: Answer) -> bool:
    """Say whether this comes from a web server that is no node: it redirects, or shows a page."""
    return 300 <= answer.status < 400 or answer.body[:200].lstrip()[:1] == b"<"


def choose(wanted: str, order: Sequence[str], areas: Collection[str], what: str) -> str:
    """Return the way to use.

    Args:
        wanted: What the URL says; ``auto`` takes the first one that the node has.
        order: The ways to consider, the best first.
        areas: What the node has.
        what: For the error: what it is for.

    Raises:
        ConfigurationError: The node has it not.
    """
    for way in order if wanted == "auto" else (wanted,):
        if way in areas:
            return way
    asked = "any of " + ", ".join(order) if wanted == "auto" else wanted
    problem = f"the node cannot {what} by {asked}; it has {', '.join(sorted(areas)) or 'nothing'}"
    raise ConfigurationError(problem)
