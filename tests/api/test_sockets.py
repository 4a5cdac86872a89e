"""WebSockets over real connections: events, sends, bad frames, slow readers, the end of the service."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from api import sockets
from api.readers import EventReader
from api.sockets import MAX_BAD_FRAMES, ChannelSocket, socket_route
from api.streaming import streams_of
from reliable_channel import MessageReceivedEvent, ReliableChannel
from tests.support.streaming import SmallService, SmallSettings, room, running, small_app

pytestmark = pytest.mark.timeout(120)

PATH = "/v1/channels/{channelId}/ws"


def with_role(app: ASGIApp, role: str) -> ASGIApp:
    """Stand where tokens are looked at: every caller has one role."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {"role": role}}, receive, send)

    return wrapped


@asynccontextmanager
async def served(service: SmallService, *, role: str = "write") -> AsyncIterator[str]:
    """Serve sockets; give the address of the channel's."""
    app = small_app(service, (WebSocketRoute(PATH, socket_route),))
    async with running(with_role(app, role)) as port:
        yield f"ws://127.0.0.1:{port}/v1/channels/room/ws"


@pytest.fixture
async def ends() -> AsyncIterator[tuple[ReliableChannel, ReliableChannel]]:
    async with room() as (alice, bob):
        yield alice, bob


async def ask(socket: ClientConnection, frame: Any) -> dict[str, Any]:
    """Send a frame and return its answer, whatever events come before."""
    await socket.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))
    while "type" not in (answer := json.loads(await socket.recv())):
        pass
    return dict(answer)


def frame(number: int, **more: Any) -> dict[str, Any]:
    payload = base64.b64encode(str(number).encode()).decode()
    return {"type": "send", "id": f"f{number}", "payload": payload, **more}


async def sequences(socket: ClientConnection, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        event = json.loads(await socket.recv())
        found += [event["sequence"]] if event["sequence"] else []
    return found


async def until_closed(socket: ClientConnection) -> tuple[list[dict[str, Any]], int]:
    """Return all frames up to the end, and the code that ended it."""
    items = [json.loads(text) async for text in _texts(socket)]
    assert socket.close_code is not None
    return items, socket.close_code


async def _texts(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):
        while True:
            yield await socket.recv()


async def test_sends_are_answered_and_go_out_in_their_order(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    async with (
        served(SmallService(channels={"room": alice})) as url,
        bob.events() as heard,
        connect(url) as socket,
    ):
        for number in range(60):
            await socket.send(json.dumps(frame(number)))
        answers = []
        while len(answers) < 60:
            answer = json.loads(await socket.recv())
            answers += [answer] if "type" in answer else []
        received = [event.message async for event in _take(heard, 60)]
    assert {answer["type"] for answer in answers} == {"accepted"}
    assert {answer["id"] for answer in answers} == {f"f{number}" for number in range(60)}
    assert all(alice.request_status(answer["requestId"]) for answer in answers)
    assert received == [str(number).encode() for number in range(60)]


async def _take(heard: Any, count: int) -> AsyncIterator[MessageReceivedEvent]:
    async for event in heard:
        if isinstance(event, MessageReceivedEvent):
            yield event
            count -= 1
        if not count:
            return


async def test_a_repeated_key_sends_once(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    async with served(SmallService(channels={"room": ends[0]})) as url, connect(url) as socket:
        first = await ask(socket, frame(1, idempotencyKey="k"))
        again = await ask(socket, {**frame(1, idempotencyKey="k"), "id": "again"})
        other = await ask(socket, frame(2, idempotencyKey="k"))
    assert again == {"type": "accepted", "id": "again", "requestId": first["requestId"]}
    assert (other["type"], other["id"], other["problem"]["status"]) == ("problem", "f2", 409)


async def test_ephemeral_sends(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    alice, bob = ends
    async with (
        served(SmallService(channels={"room": alice})) as url,
        bob.events() as heard,
        connect(url) as socket,
    ):
        await ask(socket, frame(1, ephemeral=True))
        [event] = [event async for event in _take(heard, 1)]
    assert event.ephemeral


@pytest.mark.parametrize("seed", range(3))
async def test_whoever_disconnects_at_any_moment_resumes_with_every_event_once(
    ends: tuple[ReliableChannel, ReliableChannel], seed: int
) -> None:
    alice, bob = ends
    rng = random.Random(seed)
    seen: list[int] = []
    total = 200

    async def talk() -> None:
        for number in range(total):
            await alice.send(str(number).encode(), ephemeral=True)

    async with served(SmallService(channels={"room": bob})) as url:
        talking = asyncio.create_task(talk())
        while len(seen) < total:
            async with connect(f"{url}?after={seen[-1] if seen else 0}") as socket:
                seen += await sequences(socket, min(rng.randrange(40), total - len(seen)))
        await talking
    assert seen == list(range(1, total + 1))


async def test_a_reader_cannot_send(ends: tuple[ReliableChannel, ReliableChannel]) -> None:
    alice, _ = ends
    service = SmallService(channels={"room": alice})
    async with served(service, role="read") as url, connect(url) as socket:
        answers = [await ask(socket, frame(number)) for number in range(MAX_BAD_FRAMES + 1)]
    assert [(item["id"], item["problem"]["status"]) for item in answers] == [
        (f"f{number}", 403) for number in range(MAX_BAD_FRAMES + 1)
    ]
    assert alice.status().open_requests == 0


BAD_FRAMES: dict[str, tuple[str | bytes, int, str | None]] = {
    "binary": (b"\x00", 400, None),
    "not json": ("{", 422, None),
    "no object": ("[]", 422, None),
    "unknown type": ('{"type":"buy","id":"a","payload":"YQ=="}', 422, "a"),
    "unknown field": ('{"type":"send","id":"a","payload":"YQ==","x":1}', 422, "a"),
    "no base64": ('{"type":"send","id":"a","payload":"?"}', 422, "a"),
    "no id": ('{"type":"send","payload":"YQ=="}', 422, None),
    "id of another type": ('{"type":"send","id":7,"payload":"YQ=="}', 422, None),
    "too large": ('{"type":"send","id":"a","payload":"' + "YWFh" * 2_000 + '"}', 413, None),
    "deep": ("[" * 5_000, 422, None),
}


@pytest.mark.parametrize("name", BAD_FRAMES)
async def test_a_bad_frame_is_answered_and_harms_nothing(
    ends: tuple[ReliableChannel, ReliableChannel], name: str
) -> None:
    text, status, frame_id = BAD_FRAMES[name]
    service = SmallService(SmallSettings(max_body_bytes=4_000), channels={"room": ends[0]})
    async with served(service) as url, connect(url) as socket:
        answer = await ask(socket, text)
        assert (answer["type"], answer["id"], answer["problem"]["status"]) == (
            "problem",
            frame_id,
            status,
        )
        assert (await ask(socket, frame(1)))["type"] == "accepted"


async def test_an_empty_payload_is_refused_by_itself(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    async with served(SmallService(channels={"room": ends[0]})) as url, connect(url) as socket:
        answer = await ask(socket, {"type": "send", "id": "a", "payload": ""})
        assert (answer["type"], answer["problem"]["status"]) == ("problem", 422)


async def test_after_several_bad_frames_a_socket_is_closed(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    async with served(SmallService(channels={"room": ends[0]})) as url, connect(url) as socket:
        for _ in range(MAX_BAD_FRAMES - 1):
            await ask(socket, "?")
        await ask(socket, frame(1))  # one good frame, and it counts anew
        for _ in range(MAX_BAD_FRAMES):
            await ask(socket, "?")
        _, code = await until_closed(socket)
    assert code == 1008


@pytest.mark.parametrize(
    ("query", "status"), [("?after=99", 422), ("?after=x", 422), ("?after=-1", 422)]
)
async def test_a_bad_cursor_is_refused_before_the_socket_opens(
    ends: tuple[ReliableChannel, ReliableChannel], query: str, status: int
) -> None:
    async with served(SmallService(channels={"room": ends[0]})) as url:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + query)
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body)["type"] == "/problems/invalid-cursor"


async def test_an_unknown_channel_is_refused_before_the_socket_opens() -> None:
    async with served(SmallService()) as url:
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
    answer = refused.value.response
    assert answer.status_code == 404
    assert answer.body is not None
    problem = json.loads(answer.body)
    assert (problem["type"], problem["instance"]) == (
        "/problems/channel-not-found",
        urlsplit(url).path,
    )


async def test_only_so_many_sockets_are_open(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    service = SmallService(SmallSettings(max_streams=1), channels={"room": ends[0]})
    async with served(service) as url, connect(url):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
    assert refused.value.response.status_code == 503
    assert int(refused.value.response.headers["Retry-After"]) >= 1


async def test_the_end_of_the_service_closes_sockets(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    service = SmallService(channels={"room": ends[0]})
    async with served(service) as url, connect(url) as socket:
        service.closing.set()
        end = json.loads(await socket.recv())
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
    assert (end["name"], end["resumeAfter"]) == ("stream:closing", 0)
    assert closed.value.rcvd is not None
    assert (closed.value.rcvd.code, closed.value.rcvd.reason.split(":")[1]) == (1001, "closing")


async def test_a_slow_reader_is_closed_with_a_reason_and_resumes(
    ends: tuple[ReliableChannel, ReliableChannel], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = ends
    monkeypatch.setattr(sockets, "MAX_BACKLOG_BYTES", 1 << 20)
    big = bytes(50_000)
    total = 400
    async with served(SmallService(channels={"room": bob})) as url:
        async with AsyncExitStack() as stack:
            heard = await stack.enter_async_context(bob.events())
            # Its buffer is full after one frame; nobody reads it as long as alice talks.
            socket = await stack.enter_async_context(
                connect(url, max_queue=1, max_size=None, compression=None)
            )
            for _ in range(total):
                await alice.send(big, ephemeral=True)
                await anext(heard)
            (*events, end), code = await until_closed(socket)
        assert end["name"] == "stream:slow"
        assert 0 < len(events) < total
        assert code == 1013
        async with connect(f"{url}?after={end['resumeAfter']}", max_size=None) as socket:
            rest = await sequences(socket, total - len(events))
    assert [event["sequence"] for event in events] + rest == list(range(1, total + 1))


async def test_a_client_that_takes_no_bytes_is_let_go(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, bob = ends
    service = SmallService(channels={"room": bob})
    gone = asyncio.Event()

    async def impatient(websocket: Any) -> None:
        reader = EventReader(
            bob, after=None, kind="websocket", streams=streams_of(websocket, service)
        )
        await ChannelSocket(
            websocket, bob, reader, may_send=True, max_frame_bytes=999, send_timeout_sec=0.2
        ).run()
        gone.set()

    app = small_app(service, (WebSocketRoute(PATH, impatient),))
    async with running(app) as port, bob.events() as heard:
        url = f"ws://127.0.0.1:{port}/v1/channels/room/ws"
        async with connect(url, max_queue=1, close_timeout=0.1, compression=None):
            while not gone.is_set():
                await alice.send(bytes(60_000), ephemeral=True)
                await anext(heard)
        assert app.state.streams.ended["websocket", "stream:left"] == 1


async def test_a_client_that_does_not_take_its_answers_is_let_go(
    ends: tuple[ReliableChannel, ReliableChannel],
) -> None:
    alice, _ = ends
    await alice.close()  # each send is answered at once, with a problem
    async with room() as (quiet, _):
        service = SmallService()
        gone = asyncio.Event()

        async def impatient(websocket: Any) -> None:
            reader = EventReader(
                quiet, after=None, kind="websocket", streams=streams_of(websocket, service)
            )
            await ChannelSocket(
                websocket, alice, reader, may_send=True, max_frame_bytes=999, send_timeout_sec=0.2
            ).run()
            gone.set()

        app = small_app(service, (WebSocketRoute(PATH, impatient),))
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with running(app) as port:
            connection.connect(("127.0.0.1", port))  # loopback, and it listens
            connection.setblocking(False)
            url = f"ws://127.0.0.1:{port}/v1/channels/room/ws"
            async with connect(
                url, sock=connection, max_queue=1, ping_interval=None, compression=None
            ) as client:
                sending = asyncio.ensure_future(flood(client))
                async with asyncio.timeout(60):
                    await gone.wait()
                client.transport.abort()
                await sending


async def flood(client: ClientConnection) -> None:
    """Send frames without end."""
    with suppress(ConnectionClosed):
        while True:
            await client.send(json.dumps({**frame(1, ephemeral=True), "id": "x" * 255}))
