"""``/store/v3``: pages of what the network keeps.

Nothing here keeps anything.

Spec: 13/WAKU2-STORE, version 3.
"""

from __future__ import annotations

from typing import Any

from api.devnode.archive import DEFAULT_PAGE, Archived, StoreQuery
from api.devnode.bodies import MAX_INT64, hash_text, message_json
from api.devnode.http import Answer, Call, RefusedError, Route, json, text

HASH_BYTES = 32


def routes() -> list[Route]:
    """Return the routes."""
    return [Route("GET", "/store/v3/messages", query)]


async def query(call: Call) -> Answer:
    """Give a page of messages."""
    asked = read_query(call.query)
    with_data = read_flag(call.query.get("includeData"))
    if call.node.faults.isolated:
        return text(412, "No suitable service peer & no discovery method")
    if await call.stalls("store"):
        return text(500, "No history response received (timeout)")
    body: dict[str, Any] = {"requestId": call.node.make_id()}
    if call.node.faults.store_status is not None:
        status, why = call.node.faults.store_status
        return json(body | {"statusCode": status, "statusDesc": why, "messages": []})
    page = call.node.network.archive.query(asked, call.node.network.timers.now())
    body |= {"statusCode": 200, "statusDesc": "OK"}
    body["messages"] = [entry(item, with_data=with_data) for item in page.items]
    if page.cursor is not None:
        body["paginationCursor"] = hash_text(page.cursor)
    return json(body)


def entry(item: Archived, *, with_data: bool) -> dict[str, Any]:
    """Return one message of an answer."""
    body: dict[str, Any] = {"messageHash": hash_text(item.digest)}
    if with_data:
        body["message"] = message_json(item.message, proof=bool(item.message.rate_limit_proof))
        body["pubsubTopic"] = item.pubsub_topic
    return body


def read_query(given: dict[str, str]) -> StoreQuery:
    """Return what the parameters ask for.

    Raises:
        RefusedError: One cannot be read.
    """
    cursor = given.get("cursor")
    return StoreQuery(
        pubsub_topic=given.get("pubsubTopic") or None,
        content_topics=frozenset(filter(None, given.get("contentTopics", "").split(","))),
        start=read_time(given.get("startTime")),
        end=read_time(given.get("endTime")),
        hashes=tuple(read_hash(part) for part in given.get("hashes", "").split(",") if part),
        cursor=read_hash(cursor) if cursor else None,
        forward=given.get("ascending", "true") == "true",
        page_size=read_size(given.get("pageSize")),
    )


def read_hash(given: str) -> bytes:
    """Return a message's hash.

    Raises:
        RefusedError: It is none.
    """
    try:
        digest = bytes.fromhex(given.removeprefix("0x"))
    except ValueError as error:
        problem = f"waku message hash parsing error: invalid hex: {given}"
        raise RefusedError(text(400, problem)) from error
    if len(digest) != HASH_BYTES:
        problem = f"waku message hash parsing error: invalid hash length: {len(digest)}"
        raise RefusedError(text(400, problem))
    return digest


def read_time(given: str | None) -> int | None:
    """Return a time, Unix ns, or None.

    Raises:
        RefusedError: It is none.
    """
    if not given:
        return None
    if not is_decimal(given) or not 0 < int(given) <= MAX_INT64:
        raise RefusedError(text(400, f"time parsing error: invalid integer: {given}"))
    return int(given)


def read_flag(given: str | None) -> bool:
    """Return a truth, false where nobody said.

    Raises:
        RefusedError: It is none.
    """
    if not given:
        return False
    if given not in ("true", "false"):
        raise RefusedError(text(400, f"include data parsing error: cannot interpret: {given}"))
    return given == "true"


def read_size(given: str | None) -> int:
    """Return the size of a page.

    Raises:
        RefusedError: It is none.
    """
    if not given:
        return DEFAULT_PAGE
    if not is_decimal(given) or int(given) > MAX_INT64:
        raise RefusedError(text(400, f"page size parsing error: invalid integer: {given}"))
    return int(given)


def is_decimal(given: str) -> bool:
    """Say whether a text is a number in plain digits, and no longer than any that is used."""
    return given.isascii() and given.isdigit() and len(given) <= 20
