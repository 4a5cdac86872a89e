"""What the REST API of a Waku node answers, as a table: filter, lightpush and store."""

from __future__ import annotations

import re
from typing import Final

from tests.support.devnode_contract import (
    DIGEST,
    ENTRY,
    EXCEEDED,
    FILTERED,
    MESSAGE,
    NO_BODY,
    NO_PEER,
    PUSHED,
    QUOTED,
    QUOTED_SHARD,
    SENT_AT,
    SHARD,
    STALLED,
    SUBSCRIBERS,
    TOPIC,
    Case,
    big,
)


def about(description: str, request_id: str = "a") -> dict[str, str]:
    """Return what filter answers."""
    return {"requestId": request_id, "statusDesc": description}


TIMED_OUT = about("SERVICE_UNAVAILABLE: Subscription request timed out")
UNREADABLE = "BAD_REQUEST: Failed to decode request: "

FILTER = [
    *(
        case
        for method in ("POST", "PUT")
        for case in (
            Case(f"{method} /filter/v2/subscriptions", says=about("OK"), body=SUBSCRIBERS),
            Case(
                f"{method} /filter/v2/subscriptions",
                says=about("OK"),
                body={**SUBSCRIBERS, "pubsubTopic": SHARD},
                settings={"auto_sharding": False},
            ),
        )
    ),
    Case("DELETE /filter/v2/subscriptions", says=about("OK"), body=SUBSCRIBERS, first=FILTERED),
    Case(
        "DELETE /filter/v2/subscriptions",
        404,
        about("peer has no subscriptions"),
        body=SUBSCRIBERS,
    ),
    Case("DELETE /filter/v2/subscriptions/all", says=about("OK"), body=SUBSCRIBERS, first=FILTERED),
    Case(
        "DELETE /filter/v2/subscriptions/all",
        404,
        about("peer has no subscriptions"),
        body={"requestId": "a"},
    ),
    Case("GET /filter/v2/subscriptions/a%2Fb", says=about("OK", "a/b"), first=FILTERED),
    Case("GET /filter/v2/subscriptions/a", 404, about("peer has no subscriptions")),
    Case("POST /filter/v2/subscriptions", 400, about(UNREADABLE + NO_BODY, "unknown")),
    Case(
        "POST /filter/v2/subscriptions",
        400,
        about(f"{UNREADABLE}Wrong Content-Type, expected application/json", "unknown"),
        body=SUBSCRIBERS,
        kind="text/plain",
    ),
    *(
        Case("POST /filter/v2/subscriptions", 400, re.compile(f"unknown.*{UNREADABLE}"), raw=raw)
        for raw in ("{", "[]", "{}", '{"requestId": "a"}', '{"requestId":"a","contentFilters":[]}')
    ),
    Case(
        "POST /filter/v2/subscriptions",
        400,
        re.compile("BAD_REQUEST: invalid format"),
        body={**SUBSCRIBERS, "contentFilters": ["x"]},
    ),
    *(
        case
        for request, body in (
            ("POST /filter/v2/subscriptions", SUBSCRIBERS),
            ("DELETE /filter/v2/subscriptions", SUBSCRIBERS),
            ("DELETE /filter/v2/subscriptions/all", SUBSCRIBERS),
            ("GET /filter/v2/subscriptions/a", None),
        )
        for case in (
            Case(
                request,
                503,
                about(f"SERVICE_UNAVAILABLE: {NO_PEER}"),
                body=body,
                faults={"isolated": True},
            ),
            Case(request, 503, TIMED_OUT, body=body, faults=STALLED),
        )
    ),
    Case(f"GET /filter/v2/messages/{QUOTED}", 400, f"Not subscribed to topic: {TOPIC}"),
    Case(f"GET /filter/v2/messages/{QUOTED}", says=[], first=FILTERED),
    Case(
        f"GET /filter/v2/messages/{QUOTED}",
        says=[{**MESSAGE, "version": 0, "ephemeral": False}],
        first=FILTERED + PUSHED,
    ),
]

PUSH = "POST /lightpush/v3/message"
LIGHTPUSH = [
    Case(PUSH, says={"relayPeerCount": 4}, body={"message": MESSAGE}),
    Case(PUSH, says={"relayPeerCount": 4}, body={"message": MESSAGE, "pubsubTopic": SHARD}),
    Case(PUSH, says={"relayPeerCount": 5}, body={"message": MESSAGE}, settings={"nodes": 2}),
    Case(PUSH, 400, {"statusDesc": f"Invalid push request! {NO_BODY}"}),
    Case(PUSH, 400, re.compile("^{.statusDesc.:.Invalid push request! Invalid content"), body={}),
    Case(
        PUSH,
        400,
        re.compile("Invalid message! "),
        body={"message": {**MESSAGE, "payload": "aGk"}},
    ),
    Case(
        PUSH,
        500,
        re.compile("Invalid content-topic: .*must start with slash"),
        body={"message": {**MESSAGE, "contentTopic": "x"}},
    ),
    Case(
        PUSH,
        500,
        {"statusDesc": "Pubsub topic must be specified when static sharding is enabled"},
        body={"message": MESSAGE},
        settings={"auto_sharding": False},
    ),
    Case(PUSH, 413, {"statusDesc": EXCEEDED}, body={"message": big(153_600)}),
    Case(
        PUSH,
        421,
        re.compile("unsupported pubsub topic"),
        body={"message": MESSAGE, "pubsubTopic": "/waku/2/rs/1/8"},
    ),
    Case(PUSH, 503, {"statusDesc": NO_PEER}, body={"message": MESSAGE}, faults={"isolated": True}),
    Case(
        PUSH,
        503,
        {"statusDesc": "Push request timed out"},
        body={"message": MESSAGE},
        faults=STALLED,
    ),
    Case(
        PUSH,
        505,
        re.compile("no peers"),
        body={"message": MESSAGE},
        faults={"strict_seen": True},
        first=PUSHED,
    ),
    Case("POST /lightpush/v1/message", body={"message": MESSAGE}),
    Case("POST /lightpush/v1/message", 400, NO_BODY),
    Case(
        "POST /lightpush/v1/message",
        503,
        NO_PEER,
        body={"message": MESSAGE},
        faults={"isolated": True},
    ),
]

FULL = ENTRY | {
    "message": {**MESSAGE, "version": 0, "ephemeral": False},
    "pubsubTopic": SHARD,
}
STORE = "GET /store/v3/messages"
PAGE = {"statusCode": 200, "statusDesc": "OK"}
HASH = "waku message hash parsing error: "
STORED = [
    Case(STORE, says=PAGE | {"messages": []}),
    Case(STORE, says=PAGE | {"messages": [ENTRY]}, first=PUSHED),
    Case(f"{STORE}?includeData=false", says=PAGE | {"messages": [ENTRY]}, first=PUSHED),
    Case(f"{STORE}?includeData=true", says=PAGE | {"messages": [FULL]}, first=PUSHED),
    Case(f"{STORE}?hashes={DIGEST}", says=PAGE | {"messages": [ENTRY]}, first=PUSHED),
    Case(
        f"{STORE}?hashes=0x{DIGEST.upper()},{'00' * 32}",
        says=PAGE | {"messages": [ENTRY]},
        first=PUSHED,
    ),
    Case(f"{STORE}?hashes={'00' * 32}", says=PAGE | {"messages": []}, first=PUSHED),
    Case(f"{STORE}?cursor={'00' * 32}", says=PAGE | {"messages": []}, first=PUSHED),
    Case(
        f"{STORE}?contentTopics={QUOTED},%2Fa&pubsubTopic={QUOTED_SHARD}",
        says=PAGE | {"messages": [ENTRY]},
        first=PUSHED,
    ),
    Case(f"{STORE}?contentTopics=%2Fa", says=PAGE | {"messages": []}, first=PUSHED),
    Case(f"{STORE}?pubsubTopic=%2Fa", says=PAGE | {"messages": []}, first=PUSHED),
    Case(
        f"{STORE}?startTime={SENT_AT}&endTime={SENT_AT}",
        says=PAGE | {"messages": [ENTRY]},
        first=PUSHED,
    ),
    Case(
        f"{STORE}?startTime={SENT_AT + 1}",
        says=PAGE | {"messages": []},
        first=PUSHED,
    ),
    Case(f"{STORE}?hashes=0x1234", 400, f"{HASH}invalid hash length: 2"),
    Case(f"{STORE}?cursor=zz", 400, re.compile(f"^{HASH}")),
    Case(f"{STORE}?startTime=soon", 400, re.compile("^time parsing error: ")),
    Case(f"{STORE}?endTime=0", 400, re.compile("^time parsing error: ")),
    Case(f"{STORE}?endTime=-1", 400, re.compile("^time parsing error: ")),
    Case(f"{STORE}?includeData=perhaps", 400, re.compile("^include data parsing error: ")),
    Case(f"{STORE}?pageSize=many", 400, re.compile("^page size parsing error: ")),
    Case(STORE, 412, NO_PEER, faults={"isolated": True}),
    Case(STORE, 500, "No history response received (timeout)", faults=STALLED),
    Case(
        STORE,
        says={"statusCode": 503, "statusDesc": "SERVICE_UNAVAILABLE", "messages": []},
        faults={"store_status": (503, "SERVICE_UNAVAILABLE")},
        first=PUSHED,
    ),
]

SERVICE_CASES: Final = [*FILTER, *LIGHTPUSH, *STORED]
