"""``/health``, ``/info``, ``/version`` and ``/admin/v1``: what a node says of itself and its peers.

Nothing here changes what a node does, but for the admin's list of static peers.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from api.devnode.bodies import read_texts
from api.devnode.http import OK, Answer, Call, RefusedError, Route, json, text
from api.devnode.node import Node, make_peer_id
from reliable_channel import __version__

INITIALIZING: Final = "INITIALIZING"
READY: Final = "READY"
NOT_READY: Final = "NOT_READY"
NOT_MOUNTED: Final = "NOT_MOUNTED"

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "NOTICE", "WARN", "ERROR", "FATAL")

CODECS: Final = {
    "relay": ("/vac/waku/relay/2.0.0",),
    "store": ("/vac/waku/store-query/3.0.0",),
    "filter": ("/vac/waku/filter-subscribe/2.0.0-beta1", "/vac/waku/filter-push/2.0.0-beta1"),
    "lightpush": ("/vac/waku/lightpush/3.0.0",),
}

HEALTHS: Final = (
    ("Relay", "relay"),
    ("Rln Relay", None),
    ("Store", "store"),
    ("Filter", "filter"),
    ("Lightpush", "lightpush"),
    ("Legacy Lightpush", "lightpush"),
    ("Peer Exchange", None),
    ("Rendezvous", None),
    ("Mix", None),
    ("Store Client", "store"),
    ("Filter Client", "filter"),
    ("Lightpush Client", "lightpush"),
    ("Legacy Lightpush Client", "lightpush"),
)
"""Protocols as their health is told, and what must be mounted; None is never."""


def routes() -> list[Route]:
    """Return the routes that each node has."""
    return [
        Route("GET", "/health", health),
        Route("GET", "/info", info),
        Route("GET", "/debug/v1/info", info),
        Route("GET", "/version", version),
        Route("GET", "/debug/v1/version", version),
    ]


def admin_routes() -> list[Route]:
    """Return the routes that only a node with ``--admin`` has."""
    return [
        Route("GET", "/admin/v1/peers", peers),
        Route("POST", "/admin/v1/peers", connect),
        Route("GET", "/admin/v1/peers/service", peers),
        Route("GET", "/admin/v1/peers/connected", peers),
        Route("GET", "/admin/v1/peers/connected/on/{}", peers),
        Route("GET", "/admin/v1/peer/{}", peer),
        Route("GET", "/admin/v1/peers/relay", peers_by_shard),
        Route("GET", "/admin/v1/peers/mesh", peers_by_shard),
        Route("GET", "/admin/v1/peers/relay/on/{}", peers_on_shard),
        Route("GET", "/admin/v1/peers/mesh/on/{}", peers_on_shard),
        Route("GET", "/admin/v1/peers/stats", stats),
        Route("GET", "/admin/v1/filter/subscriptions", filter_subscriptions),
        Route("POST", "/admin/v1/log-level/{}", log_level),
    ]


# --- Health --------------------------------------------------------------------------------------


async def health(call: Call) -> Answer:
    """Say how the node is."""
    node = call.node
    if await call.stalls("health"):
        return text(500, "Health check timed out")
    connected = "Connected" if node.peer_count else "Disconnected"
    state = node.faults.health or (INITIALIZING if node.faults.starting else READY)
    return json(
        {
            "nodeHealth": state,
            "connectionStatus": connected,
            "protocolsHealth": [protocol_health(node, *item) for item in HEALTHS],
        }
    )


def protocol_health(node: Node, name: str, protocol: str | None) -> dict[str, str | None]:
    """Return the health of one protocol."""
    if protocol is None or not node.settings.has(protocol):
        return {name: NOT_MOUNTED}
    if node.faults.starting:
        return {name: INITIALIZING}
    if not node.peer_count:
        return {name: NOT_READY, "desc": "No peers"}
    return {name: READY, "desc": None} if name.endswith("Client") else {name: READY}


# --- Info ----------------------------------------------------------------------------------------


def address(node: Node) -> str:
    """Return where a node would listen for peers."""
    return f"/ip4/127.0.0.1/tcp/{60_000 + node.number}/p2p/{node.peer_id}"


async def info(call: Call) -> Answer:
    """Say who the node is."""
    return json({"listenAddresses": [address(call.node)], "enrUri": f"enr:-{call.node.peer_id}"})


async def version(call: Call) -> Answer:
    """Say which program the node is."""
    return text(200, f"devnode-{__version__}")


# --- Admin ---------------------------------------------------------------------------------------


def known_peers(node: Node) -> list[dict[str, Any]]:
    """Return the peers of a node, also those that are not here."""
    if node.faults.isolated:
        return []
    settings = node.settings
    found = [(other.peer_id, address(other)) for other in node.network.peers_of(node)]
    for number in range(settings.peers):
        peer_id = make_peer_id(f"{settings.seed}/peer/{number}")
        found.append((peer_id, f"/ip4/192.0.2.{number % 254 + 1}/tcp/30303/p2p/{peer_id}"))
    codecs = [codec for name, names in CODECS.items() if settings.has(name) for codec in names]
    return [
        {
            "multiaddr": where,
            "protocols": codecs,
            "shards": [*range(settings.shards)],
            "connected": "Connected",
            "agent": "devnode",
            "origin": "Static",
            "score": 0.0,
        }
        for _, where in found
    ]


def shard_of_path(call: Call) -> int | None:
    """Return the shard that a path names; None where it names none.

    Raises:
        RefusedError: It is no number.
    """
    if not call.parts:
        return None
    (given,) = call.parts
    if not (given.isascii() and given.isdigit() and len(given) <= 5):
        raise RefusedError(text(400, f"Invalid shard: {given}"))
    return int(given)


async def peers(call: Call) -> Answer:
    """List peers, those on a shard where one is named."""
    shard = shard_of_path(call)
    found = known_peers(call.node)
    return json([item for item in found if shard is None or shard in item["shards"]])


async def peer(call: Call) -> Answer:
    """Give one peer."""
    (wanted,) = call.parts
    if not wanted.isalnum():
        return text(400, f"Invalid peerId: {wanted}")
    for item in known_peers(call.node):
        if item["multiaddr"].endswith(f"/{wanted}"):
            return json(item)
    return text(404, f"Peer with peerId {wanted} not found")


def need_relay(call: Call) -> None:
    """Do nothing where relay is mounted.

    Raises:
        RefusedError: It is not.
    """
    if not call.node.settings.has("relay"):
        raise RefusedError(text(503, "Error: Relay Protocol is not mounted to the node"))


async def peers_by_shard(call: Call) -> Answer:
    """List the peers of each shard."""
    need_relay(call)
    found = known_peers(call.node)
    return json(
        [{"shard": shard, "peers": found} for shard in range(call.node.settings.shards) if found]
    )


async def peers_on_shard(call: Call) -> Answer:
    """List the peers of one shard."""
    need_relay(call)
    shard = shard_of_path(call)
    found = [item for item in known_peers(call.node) if shard in item["shards"]]
    return json({"shard": shard, "peers": found})


async def stats(call: Call) -> Answer:
    """Count peers."""
    found = known_peers(call.node)
    by_shard = {str(shard): len(found) for shard in range(call.node.settings.shards)}
    total = len(found)
    return json(
        {
            "Sum": {"Total peers": total},
            "By Connectedness": {
                "NotConnected": 0,
                "CannotConnect": 0,
                "CanConnect": 0,
                "Connected": total,
            },
            "Relay peers": {**by_shard, "Total relay peers": total},
            "Mesh peers": {**by_shard, "Total mesh peers": total},
            "By Protocols": Counter(codec for item in found for codec in item["protocols"]),
        }
    )


async def filter_subscriptions(call: Call) -> Answer:
    """List who has what forwarded: the other nodes here."""
    if not call.node.settings.has("filter"):
        return text(400, "Error: Filter Protocol is not mounted to the node")
    return json(
        [
            {
                "peerId": other.peer_id,
                "filterCriteria": [
                    {"pubsubTopic": topic, "contentTopic": content}
                    for topic, content in sorted(other.filtered)
                ],
            }
            for other in call.node.network.peers_of(call.node)
            if other.filtered
        ]
    )


async def connect(call: Call) -> Answer:
    """Take peers to connect to; all are taken as reached, unless the node is isolated."""
    for index, where in enumerate(read_texts(call.data())):
        parts = where.split("/")
        if len(parts) < 7 or parts[0] or "p2p" not in parts:
            return text(400, f"Couldn't parse remote peer info: {where}")
        if call.node.faults.isolated:
            return text(400, f"Failed to connect to peer at index: {index} - {where}")
    return OK


async def log_level(call: Call) -> Answer:
    """Take a log level, and leave the log alone."""
    (level,) = call.parts
    if level not in LEVELS:
        return text(400, f"Invalid log-level: {level}")
    return OK
