"""What the REST API of a Waku node answers, as a table: each route with its statuses, bodies and content types.

Read from the handlers of logos-delivery (nwaku) in August 2026; what September added is
marked. Filter, lightpush and store are in `devnode_contract_services`.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Any, Final

from reliable_channel.core.wire import WakuMessage, waku_message_hash

TOPIC = "/myapp/1/room/proto"
SHARD = "/waku/2/rs/1/0"
"""Where ``myapp`` and ``1`` lead among 8 shards."""

QUOTED = TOPIC.replace("/", "%2F")
QUOTED_SHARD = SHARD.replace("/", "%2F")

SENT_AT: Final = 1_700_000_000_000_000_000

MESSAGE = {"payload": "aGk=", "contentTopic": TOPIC, "timestamp": SENT_AT}
DIGEST = waku_message_hash(SHARD, WakuMessage(b"hi", TOPIC, timestamp=SENT_AT)).hex()

UNDECODED = "Invalid content body, could not decode: Unable to deserialize data: "
UNKNOWN = "Bad request initiated. Invalid path or method used."
NO_BODY = "Missing content body"
WRONG = "Wrong Content-Type, expected application/json or text/plain"
NO_PEER = "No suitable service peer & no discovery method"
SUBSCRIBERS = {"requestId": "a", "contentFilters": [TOPIC]}


def big(size: int) -> dict[str, Any]:
    """Return a message with a payload of so many bytes."""
    return {**MESSAGE, "payload": base64.b64encode(bytes(size)).decode()}


@dataclass(frozen=True)
class Case:
    """One request and its answer.

    Attributes:
        request: Method and path.
        status: Of the answer.
        says: Its text, or what its JSON is, or what is found in either; JSON has a random request id besides.
        body: JSON that is sent; None is no body.
        raw: A body that is no such JSON.
        kind: The content type sent.
        first: Requests and bodies before, which are all answered with 200.
        settings: Of the network.
        faults: Of the node, from then on.
        headers: Sent besides.
    """

    request: str
    status: int = 200
    says: Any = "OK"
    body: Any = None
    raw: str | None = None
    kind: str = "application/json"
    first: tuple[tuple[str, Any], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    faults: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return request and status."""
        return f"{self.request[:60]} {self.status}"


SUBSCRIBED = (("POST /relay/v1/subscriptions", [SHARD]),)
AUTO = (("POST /relay/v1/auto/subscriptions", [TOPIC]),)
PUBLISHED = ((f"POST /relay/v1/messages/{QUOTED_SHARD}", MESSAGE),)
FILTERED = (("POST /filter/v2/subscriptions", SUBSCRIBERS),)
PUSHED = (("POST /lightpush/v3/message", {"message": MESSAGE}),)
JOINED = (("POST /messaging/v1/subscriptions", [TOPIC]),)
GIVEN = {**MESSAGE, "version": 0, "ephemeral": False, "proof": ""}
STALLED = {"stalled": {"relay", "filter", "lightpush", "store", "health"}, "timeout_s": 0.0}

STATIC = f"POST /relay/v1/messages/{QUOTED_SHARD}"
EXCEEDED = "Message size exceeded maximum of 153600 bytes"

RELAY = [
    Case("POST /relay/v1/subscriptions", body=[SHARD, "/waku/2/rs/7/1023"]),
    Case("POST /relay/v1/subscriptions", body=[SHARD], kind="text/plain"),
    Case("POST /relay/v1/subscriptions", body=[SHARD], kind="application/json; charset=utf-8"),
    Case("DELETE /relay/v1/subscriptions", body=[SHARD]),
    Case("DELETE /relay/v1/subscriptions", body=[SHARD], first=SUBSCRIBED),
    Case("POST /relay/v1/subscriptions", 400, NO_BODY),
    Case("POST /relay/v1/subscriptions", 400, WRONG, body=[SHARD], kind="text/html"),
    Case("POST /relay/v1/subscriptions", 400, "Invalid content type", body=[SHARD], kind="json"),
    Case("POST /relay/v1/subscriptions", 400, re.compile(re.escape(UNDECODED)), raw="[oops"),
    Case("POST /relay/v1/subscriptions", 400, re.compile(re.escape(UNDECODED)), body={}),
    Case("POST /relay/v1/subscriptions", 400, re.compile(re.escape(UNDECODED)), body=[1]),
    Case(
        "POST /relay/v1/subscriptions",
        400,
        'Invalid pubsub topic(s): @["/waku/2/default-waku/proto", "x"]',
        body=["/waku/2/default-waku/proto", SHARD, "x"],
    ),
    Case(f"GET /relay/v1/messages/{QUOTED_SHARD}", 404, ""),
    Case(f"GET /relay/v1/messages/{QUOTED_SHARD}", says=[], first=SUBSCRIBED),
    Case(f"GET /relay/v1/messages/{QUOTED_SHARD}", says=[GIVEN], first=SUBSCRIBED + PUBLISHED),
    Case(
        f"GET /relay/v1/messages/{QUOTED_SHARD}",
        says=[],
        first=SUBSCRIBED + PUBLISHED + ((f"GET /relay/v1/messages/{QUOTED_SHARD}", None),),
    ),
    Case(STATIC, body=MESSAGE, first=SUBSCRIBED),
    Case(STATIC, body={**MESSAGE, "whatever": 1}, first=SUBSCRIBED),
    Case(STATIC, body=MESSAGE, first=SUBSCRIBED, faults={"isolated": True}),
    Case(STATIC, 400, f"Failed to publish: Node not subscribed to topic: {SHARD}", body=MESSAGE),
    Case(STATIC, 400, NO_BODY, first=SUBSCRIBED),
    Case(STATIC, 400, f"Failed to publish: {EXCEEDED}", body=big(153_600), first=SUBSCRIBED),
    Case(STATIC, body=big(153_500), first=SUBSCRIBED),
    Case(
        STATIC, 500, "Failed to publish: timedout", body=MESSAGE, first=SUBSCRIBED, faults=STALLED
    ),
    *(
        Case(STATIC, 400, re.compile(re.escape(UNDECODED)), raw=raw, first=SUBSCRIBED)
        for raw in (
            '{"contentTopic": "/a/1/b/c"}',
            '{"contentTopic": "/a/1/b/c", "payload": " "}',
            '{"contentTopic": "/a/1/b/c", "payload": "aGk"}',
            '{"contentTopic": "/a/1/b/c", "payload": "a_-="}',
            '{"contentTopic": " ", "payload": "aGk="}',
            '{"payload": "aGk="}',
            '{"payload": "aGk=", "payload": "aGk=", "contentTopic": "/a/1/b/c"}',
            '{"payload": "aGk=", "contentTopic": "/a/1/b/c", "version": -1}',
            '{"payload": "aGk=", "contentTopic": "/a/1/b/c", "timestamp": "soon"}',
            '{"payload": "aGk=", "contentTopic": "/a/1/b/c", "timestamp": 9223372036854775808}',
            '{"payload": "aGk=", "contentTopic": "/a/1/b/c", "ephemeral": 1}',
            '{"payload": "aGk=", "contentTopic": "/a/1/b/c", "version": NaN}',
        )
    ),
    Case("POST /relay/v1/auto/subscriptions", body=[TOPIC, "/0/myapp/1/x/proto"]),
    Case("DELETE /relay/v1/auto/subscriptions", body=[TOPIC]),
    Case("POST /relay/v1/auto/subscriptions", 500, re.compile("^Subscribe failed:"), body=["x"]),
    Case(
        "DELETE /relay/v1/auto/subscriptions", 500, re.compile("^Unsubscribe failed:"), body=["x"]
    ),
    Case(f"GET /relay/v1/auto/messages/{QUOTED}", 404, TOPIC),
    Case(f"GET /relay/v1/auto/messages/{QUOTED}", says=[], first=AUTO),
    Case(
        f"GET /relay/v1/auto/messages/{QUOTED}",
        says=[{**GIVEN, "meta": "bWU="}],
        first=(*AUTO, ("POST /relay/v1/auto/messages", {**MESSAGE, "meta": "bWU="})),
    ),
    Case("POST /relay/v1/auto/messages", body=MESSAGE),
    Case("POST /relay/v1/auto/messages", 400, ""),
    Case(
        "POST /relay/v1/auto/messages",
        400,
        re.compile("^Invalid content body"),
        body={"payload": "aGk="},
    ),
    Case(
        "POST /relay/v1/auto/messages",
        400,
        "Failed to publish. Autosharding is disabled",
        body=MESSAGE,
        settings={"auto_sharding": False},
    ),
    Case(
        "POST /relay/v1/auto/messages",
        400,
        "Failed to publish. Autosharding error: invalid format: "
        "content-topic 'x' must start with slash",
        body={**MESSAGE, "contentTopic": "x"},
    ),
    Case(
        "POST /relay/v1/auto/messages",
        400,
        re.compile("^Failed to publish. Autosharding error: Generation > 0"),
        body={**MESSAGE, "contentTopic": f"/1{TOPIC}"},
    ),
    Case(
        "POST /relay/v1/auto/messages",
        400,
        re.compile("^Failed to publish: no peers"),
        body=MESSAGE,
        faults={"isolated": True},
    ),
    Case(
        "POST /relay/v1/auto/messages",
        400,
        f"Failed to publish: {EXCEEDED}",
        body=big(153_600),
    ),
    Case(
        "POST /relay/v1/auto/messages",
        500,
        "Failed to publish: timedout",
        body=MESSAGE,
        faults=STALLED,
    ),
    *(
        Case(f"OPTIONS /relay/v1/{path}")
        for path in (
            "subscriptions",
            f"messages/{QUOTED_SHARD}",
            "auto/subscriptions",
            f"auto/messages/{QUOTED}",
            "auto/messages",
        )
    ),
]


ENTRY = {"messageHash": f"0x{DIGEST}"}
SEND = {"payload": "aGk=", "contentTopic": TOPIC}
MESSAGING = [
    Case("POST /messaging/v1/subscriptions", body=[TOPIC]),
    Case("DELETE /messaging/v1/subscriptions", body=[TOPIC]),
    Case("POST /messaging/v1/subscriptions", 400, NO_BODY),
    Case("POST /messaging/v1/subscriptions", 500, re.compile("^Subscribe failed: "), body=["x"]),
    Case(
        "POST /messaging/v1/messages",
        says=re.compile(r'^{"requestId":"[0-9a-f]{20}"}$'),
        body=SEND,
        kind="application/json",
    ),
    Case("POST /messaging/v1/messages", 400, re.compile(re.escape(UNDECODED)), body={}),
    Case(
        "POST /messaging/v1/messages",
        400,
        re.compile(re.escape(UNDECODED)),
        body={**SEND, "payload": ""},
    ),
    Case("POST /messaging/v1/messages", 400, f"Invalid message: {EXCEEDED}", body=big(153_600)),
    Case(
        "POST /messaging/v1/messages",
        500,
        re.compile("^Send failed: "),
        body={**SEND, "contentTopic": "x"},
    ),
    Case("GET /messaging/v1/events/send", says=[]),
    Case("GET /messaging/v1/events/send/5e", 404, "No send events for requestId: 5e"),
    Case("GET /messaging/v1/events/received", says=[]),
    Case(
        "GET /messaging/v1/events/received",
        says=[{**ENTRY, "message": GIVEN}],
        first=JOINED + PUSHED,
        settings={"messaging_api": "2026-08"},
    ),
    Case(
        "GET /messaging/v1/events/received",
        says=[{**ENTRY, "message": GIVEN, "source": "live"}],
        first=JOINED + PUSHED,
    ),
    Case("GET /messaging/v1/events/send", 400, UNKNOWN, settings={"messaging_api": "none"}),
]


def not_there(name: str, option: str) -> str:
    """Return what is said of routes that are not installed."""
    return f"/{name} endpoints are not available. Please check your configuration: {option}"


ADMIN = {"admin": True}
SYSTEM = [
    Case("GET /nothing", 400, UNKNOWN),
    Case("GET /", 400, UNKNOWN),
    Case("PATCH /relay/v1/subscriptions", 400, UNKNOWN),
    Case("GET /relay/v2/subscriptions", 400, UNKNOWN),
    Case("GET /private", 400, UNKNOWN),
    Case("GET /admin/v1/peers", 404, not_there("admin", "--rest-admin=true")),
    Case("GET /relay/v1/x", 404, not_there("relay", "--relay"), settings={"without": ("relay",)}),
    *(
        Case(
            f"GET /{name}/v1",
            404,
            re.compile(f"^/{name} endpoints are not available"),
            settings={"without": (name,)},
        )
        for name in ("filter", "lightpush", "store")
    ),
    *(
        Case(
            f"GET /{name}/v1",
            404,
            f"/{name} endpoints are not available while initializing.",
            faults={"starting": True},
        )
        for name in ("admin", "debug", "relay", "filter", "lightpush", "store")
    ),
    Case("GET /info", 400, UNKNOWN, faults={"starting": True}),
    Case("GET /health", says=re.compile('"nodeHealth":"INITIALIZING"'), faults={"starting": True}),
    Case("GET /health", 500, "Health check timed out", faults=STALLED),
    Case("GET /health", says=re.compile('"connectionStatus":"Connected"')),
    Case("GET /health", says=re.compile('"connectionStatus":"Disc'), faults={"isolated": True}),
    Case("GET /version", says=re.compile("^devnode-"), kind="text/plain"),
    Case("GET /debug/v1/version", says=re.compile("^devnode-"), kind="text/plain"),
    Case("GET /info", says=re.compile(r'^{"listenAddresses":\["/ip4/.*"\],"enrUri":"enr:')),
    Case("GET /debug/v1/info", says=re.compile('^{"listenAddresses"')),
    Case("GET /admin/v1/peer/5e", 404, re.compile("5e"), settings=ADMIN),
    Case("GET /admin/v1/peer/%20", 400, re.compile("Invalid peerId"), settings=ADMIN),
    Case(
        "GET /admin/v1/peers/mesh",
        503,
        "Error: Relay Protocol is not mounted to the node",
        settings={"admin": True, "without": ("relay",)},
    ),
    Case(
        "GET /admin/v1/filter/subscriptions",
        400,
        re.compile("not mounted"),
        settings={"admin": True, "without": ("filter",)},
    ),
    Case("GET /admin/v1/filter/subscriptions", says=[], settings=ADMIN),
    Case(
        "GET /admin/v1/peers/relay/on/7",
        says={"shard": 7, "peers": []},
        faults={"isolated": True},
        settings=ADMIN,
    ),
    Case("GET /admin/v1/peers", says=[], faults={"isolated": True}, settings=ADMIN),
    Case("POST /admin/v1/peers", body=["/ip4/192.0.2.9/tcp/1/p2p/16Uiu2"], settings=ADMIN),
    Case(
        "POST /admin/v1/peers",
        400,
        "Failed to connect to peer at index: 0 - /ip4/192.0.2.9/tcp/1/p2p/16Uiu2",
        body=["/ip4/192.0.2.9/tcp/1/p2p/16Uiu2"],
        faults={"isolated": True},
        settings=ADMIN,
    ),
    Case(
        "POST /admin/v1/peers",
        400,
        "Couldn't parse remote peer info: x",
        body=["x"],
        settings=ADMIN,
    ),
    Case("POST /admin/v1/log-level/DEBUG", settings=ADMIN),
    Case("POST /admin/v1/log-level/LOUD", 400, re.compile("LOUD"), settings=ADMIN),
    Case(
        "GET /info",
        403,
        "Origin not allowed",
        headers={"origin": "https://a.example"},
        settings={"allow_origin": ("https://b.example",)},
    ),
]

CASES: Final = [*RELAY, *MESSAGING, *SYSTEM]
