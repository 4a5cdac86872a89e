"""Opening, showing and closing channels over REST, against a whole service."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from persistence import open_store
from tests.support.served import channel_body, path_of, problem_name, served

KEY = bytes(range(32))

STRANGE_IDS = [
    "..",
    ".",
    "a/b",
    "/",
    "../../etc/passwd",
    "%",
    "%2F",
    "a?b#c;d&e=f",
    "a b",
    " ",
    "'; DROP TABLE channels; --",
    '"quoted"',
    "back\\slash",
    "Grüße ☃ 🎉",
    "e\u0301",
    "x" * 255,
    "é" * 127,
]


@pytest.mark.parametrize("channel_id", STRANGE_IDS)
async def test_any_id_makes_the_round_trip(channel_id: str) -> None:
    async with served() as it:
        opened = await it.open(channel_id)
        assert opened.status_code == 201
        path = opened.headers["location"]
        shown = await it.raw("GET", path)
        assert (shown.status_code, shown.json()["channelId"]) == (200, channel_id)
        sent = await it.client.post("/v1/channels", json=channel_body(channel_id))
        assert sent.status_code == 200
        closed = await it.raw("DELETE", path)
        assert closed.status_code == 204
        assert (await it.raw("GET", path)).status_code == 404


async def test_an_id_with_a_slash_is_not_two_segments() -> None:
    async with served() as it:
        await it.open("a")
        assert (await it.client.get("/v1/channels/a%2Fmessages")).status_code == 404
        assert (await it.client.get("/v1/channels/a/messages")).status_code == 200
        await it.open("a/messages")
        assert (await it.client.get("/v1/channels/a%2Fmessages")).json()[
            "channelId"
        ] == "a/messages"


BAD_BODIES = {
    "empty id": channel_body(""),
    "long id": channel_body("x" * 256),
    "long in bytes": channel_body("é" * 128),
    "control character": channel_body("a\x00b"),
    "newline": channel_body("a\nb"),
    "C1 control": channel_body("a\x85b"),
    "id of a wrong type": channel_body() | {"channelId": 7},
    "no topic": {"channelId": "room", "senderId": "alice"},
    "bad topic": channel_body(contentTopic="room"),
    "unknown field": channel_body(colour="red"),
    "unknown setting": channel_body(sds={"bloomCapcity": 5}),
    "snake case": channel_body() | {"channel_id": "room"},
    "setting of a wrong type": channel_body(sds={"bloomCapacity": "5"}),
    "a truth value as a number": channel_body(sds={"bloomCapacity": True}),
    "a number beyond its bound": channel_body(sds={"causalHistorySize": 65}),
    "settings that contradict each other": channel_body(sds={"repairTMinMs": 200_000}),
    "persistence": channel_body(sds={"persistence": None}),
    "unknown scheme": channel_body(encryption={"scheme": "rot13", "keyRef": "A"}),
    "key reference with a path": channel_body(
        encryption={"scheme": "aes-256-gcm", "keyRef": "../a"}
    ),
    "a list": [channel_body()],
    "null": None,
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=list(BAD_BODIES))
async def test_what_cannot_be_opened_is_refused(body: object) -> None:
    async with served() as it:
        answer = await it.client.post(
            "/v1/channels", content=json.dumps(body), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 422
        assert problem_name(answer) in ("invalid-request", "invalid-configuration")
        assert (await it.client.get("/v1/channels")).json() == {"channels": [], "unavailable": []}


async def test_a_key_that_the_service_does_not_have_is_a_conflict() -> None:
    async with served(keys={"B": KEY}) as it:
        answer = await it.open(encryption={"scheme": "aes-256-gcm", "keyRef": "A"})
        assert (answer.status_code, problem_name(answer)) == (409, "unknown-key")
        assert "'B'" not in answer.text
        assert (await it.client.get(path_of())).status_code == 404


async def test_opening_again_with_the_same_settings_is_harmless() -> None:
    async with served(keys={"A": KEY}) as it:
        encryption = {"scheme": "aes-256-gcm", "keyRef": "A"}
        first = await it.open(encryption=encryption, sds={"maxInFlight": 4})
        assert first.status_code == 201
        assert first.headers["location"] == "/v1/channels/room"
        body = first.json()
        assert body["encryption"] == encryption
        assert body["sds"] == {"maxInFlight": 4}
        assert body["segmentation"] is None
        assert KEY.hex() not in first.text
        again = await it.open(
            encryption=encryption, sds={"maxInFlight": 4, "bloomCapacity": 10_000}
        )
        assert again.status_code == 200
        assert again.json()["sds"] == {"maxInFlight": 4}


async def test_opening_again_with_other_settings_is_a_conflict() -> None:
    async with served() as it:
        await it.open()
        answer = await it.open(sender_id="bob", sds={"maxInFlight": 4})
        assert (answer.status_code, problem_name(answer)) == (409, "channel-conflict")
        assert answer.json()["differences"] == ["senderId", "sds"]


async def test_two_opens_at_once_make_one_channel(tmp_path: Path) -> None:
    async with served(
        database=f"sqlite:///{tmp_path}/a.db"
    ) as it:  # opening has to wait for a file
        same = await asyncio.gather(*(it.open() for _ in range(5)))
        assert sorted(answer.status_code for answer in same) == [200, 200, 200, 200, 201]
        others = await asyncio.gather(*(it.open("hall", name) for name in ("alice", "bob")))
        assert sorted(answer.status_code for answer in others) == [201, 409]


async def test_no_more_channels_than_allowed(tmp_path: Path) -> None:
    async with served(max_channels=2, database=f"sqlite:///{tmp_path}/a.db") as it:
        answers = await asyncio.gather(*(it.open(name) for name in "abc"))
        assert sorted(answer.status_code for answer in answers) == [201, 201, 409]
        refused = next(answer for answer in answers if answer.status_code == 409)
        assert (problem_name(refused), refused.json()["limit"]) == ("too-many-channels", 2)
        opened = next(iter(it.service.channels))
        await it.client.delete(path_of(opened))
        assert (await it.open("d")).status_code == 201


async def test_a_closed_channel_goes_on_with_other_settings(tmp_path: Path) -> None:
    async with served(database=f"sqlite:///{tmp_path}/a.db") as it:
        await it.open()
        sent = await it.send(b"hello")
        assert (await it.client.delete(path_of())).status_code == 204
        closed = await it.client.get(sent.headers["location"])
        assert (closed.status_code, problem_name(closed)) == (404, "channel-not-found")
        assert (await it.client.delete(path_of())).status_code == 404
        assert (await it.open(sds={"maxInFlight": 4})).status_code == 201
        kept = await it.client.get(sent.headers["location"])
        assert kept.json()["requestId"] == sent.json()["requestId"]


@pytest.mark.parametrize(
    "change",
    [
        {"senderId": "bob"},
        {"contentTopic": "/test/1/other/proto"},
        {"sds": {"bloomCapacity": 5_000}},
    ],
    ids=["senderId", "contentTopic", "bloomCapacity"],
)
async def test_what_cannot_change_is_refused_until_the_state_is_forgotten(
    change: dict[str, object],
) -> None:
    async with served() as it:
        await it.open()
        await it.client.delete(path_of())
        other = channel_body() | change
        refused = await it.client.post("/v1/channels", json=other)
        assert (refused.status_code, problem_name(refused)) == (422, "invalid-configuration")
        forgotten = await it.client.delete(path_of(), params={"purge": "true"})
        assert forgotten.status_code == 204
        assert (await it.client.post("/v1/channels", json=other)).status_code == 201


async def test_purge_forgets_an_open_channel_and_is_not_found_twice() -> None:
    async with served() as it:
        await it.open()
        sent = await it.send(b"hello")
        assert (await it.client.delete(f"{path_of()}?purge=true")).status_code == 204
        again = await it.client.delete(f"{path_of()}?purge=true")
        assert (again.status_code, problem_name(again)) == (404, "channel-not-found")
        await it.open()
        gone = await it.client.get(sent.headers["location"])
        assert (gone.status_code, problem_name(gone)) == (404, "request-not-found")


async def test_a_misspelt_query_is_not_ignored() -> None:
    async with served() as it:
        await it.open()
        answer = await it.client.delete(f"{path_of()}?purg=true")
        assert (answer.status_code, problem_name(answer)) == (422, "invalid-request")
        assert (await it.client.get(path_of())).status_code == 200


async def test_the_epoch_budget_is_shown_where_there_is_one() -> None:
    async with served() as it:
        assert (await it.open()).json()["epoch"] is None
    async with served(epoch_period_sec=600, messages_per_epoch=50) as it:
        epoch = (await it.open()).json()["epoch"]
        assert (epoch["messagesPerEpoch"], epoch["used"], epoch["left"]) == (50, 0, 50)


# --- Restarts ------------------------------------------------------------------------------------


async def test_open_channels_are_open_again_after_a_restart(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    async with served(database=database, keys={"A": KEY}) as it:
        for name in ("zebra", "a/b", "closed"):
            await it.open(name, encryption={"scheme": "aes-256-gcm", "keyRef": "A"})
        sent = await it.send(b"hello", "a/b")
        await it.client.delete(path_of("closed"))
    async with served(database=database, keys={"A": KEY}) as it:
        await it.service.wait_started()
        listed = (await it.client.get("/v1/channels")).json()
        assert [channel["channelId"] for channel in listed["channels"]] == ["zebra", "a/b"]
        assert (await it.client.get(sent.headers["location"])).json()["state"] == "open"
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert KEY not in "\n".join(connection.iterdump()).encode("utf-8", "surrogateescape")


async def test_a_channel_that_cannot_be_opened_stops_no_other(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    async with served(database=database, keys={"A": KEY}) as it:
        await it.open("plain")
        await it.open("secret", encryption={"scheme": "aes-256-gcm", "keyRef": "A"})
    async with served(database=database) as it:
        await it.service.wait_started()
        listed = (await it.client.get("/v1/channels")).json()
        assert [channel["channelId"] for channel in listed["channels"]] == ["plain"]
        assert [channel["channelId"] for channel in listed["unavailable"]] == ["secret"]
        answer = await it.client.get(path_of("secret"))
        assert (answer.status_code, problem_name(answer)) == (503, "channel-unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert "'A'" in answer.json()["detail"]
        assert (await it.client.delete(path_of("secret"))).status_code == 204
        assert (await it.client.get(path_of("secret"))).status_code == 404


async def test_a_channel_that_somebody_else_has_opens_when_it_is_free(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    async with served(database=database) as it:
        await it.open()
    async with open_store(database) as other:
        await other.acquire_channel("room")
        async with served(database=database) as it:
            await it.service.wait_started()
            assert (await it.client.get(path_of())).status_code == 503
            taken = await it.open()
            assert (taken.status_code, problem_name(taken)) == (409, "channel-exists")
            await other.release_channel("room")
            assert (await it.open()).status_code == 200
            assert (await it.client.get(path_of())).status_code == 200


async def test_kept_settings_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    async with served(database=database) as it:
        await it.open()
        await it.service.registry.put("newer", '{"channelId":"newer","colour":"red"}')
    async with served(database=database) as it:
        await it.service.wait_started()
        answer = await it.client.get(path_of("newer"))
        assert (answer.status_code, problem_name(answer)) == (503, "channel-unavailable")
        assert (await it.client.get(path_of())).status_code == 200
        assert (await it.client.delete(path_of("newer"))).status_code == 204


async def test_a_registry_that_fails_leaves_no_channel_open(tmp_path: Path) -> None:
    async with served(database=f"sqlite:///{tmp_path}/a.db") as it:
        await it.open("before")
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.execute("ALTER TABLE registry RENAME TO elsewhere")
            refused = await it.open()
            assert (refused.status_code, problem_name(refused)) == (503, "store-unavailable")
            assert refused.headers["retry-after"]
            kept = await it.client.delete(path_of("before"))
            assert (kept.status_code, problem_name(kept)) == (503, "store-unavailable")
            assert list(it.service.channels) == ["before"]
            connection.execute("ALTER TABLE elsewhere RENAME TO registry")
        assert (await it.open()).status_code == 201
