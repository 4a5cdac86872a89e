"""WebSockets: a channel's events as text frames, and sends the other way.

The twin of the event stream: the same JSON, the same cursors. Frames of the client are ``{"type": "send", "id",
"payload", "ephemeral"?, "idempotencyKey"?}``; each is answered with ``{"type": "accepted", "id", "requestId"}`` once it
is stored, or with ``{"type": "problem", "id", "problem"}``. Answers come in no fixed order, sends go out in theirs. It
must not decide what happened, nor who may connect.

Spec: RFC 6455; RELIABLE-CHANNEL-API, send and events.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, Self

from pydantic import Field, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from api.models import Identifier, SendRequest
from api.problems import Problem, invalid_request, make_problem, problem_of, problem_response
from api.readers import (
    MAX_BACKLOG_BYTES,
    EndName,
    EventReader,
    StreamEnd,
    check_cursor,
    event_json,
    parse_cursor,
)
from api.refusal import shown_path
from api.streaming import SEND_TIMEOUT_SEC, StreamingService, streams_of, to_text
from reliable_channel import ReliableChannel, ReliableChannelError

MAX_SENDS_IN_FLIGHT: Final = 64
"""Sends of one socket that are being stored; while there are so many, its frames wait."""

MAX_BAD_FRAMES: Final = 5
"""Frames in a row that cannot be read before a socket is closed."""

MAX_FRAME_SLACK: Final = 1_024
"""What a frame may have beyond the largest body: its other fields."""

MAX_CLOSE_REASON_BYTES: Final = 123
"""Of the frame that closes a socket (RFC 6455, section 5.5.1)."""

END_CODES: Final[dict[EndName, int]] = {
    "stream:slow": 1013,  # try again later
    "stream:closing": 1001,  # going away
    "stream:closed": 1000,
    "stream:failed": 1011,
}
"""Status codes of RFC 6455 and its registry."""

POLICY_VIOLATION: Final = 1008
NO_CLOSE_FRAME: Final = 1006
"""Codes of RFC 6455 that are no `StreamEnd`'s."""

MAX_FRAME_ID: Final = 255
"""Characters of a frame's id."""

logger = logging.getLogger(__name__)


class SocketSettings(Protocol):
    """The settings that sockets need."""

    @property
    def heartbeat_sec(self) -> float:
        """Seconds between heartbeats."""

    @property
    def max_streams(self) -> int:
        """Event streams and sockets that may be open at once."""

    @property
    def max_body_bytes(self) -> int:
        """Largest request body, bytes."""


class SocketService(StreamingService, Protocol):
    """What sockets need of the service."""

    @property
    def settings(self) -> SocketSettings:
        """The settings that sockets need."""

    def get(self, channel_id: str) -> ReliableChannel:
        """Return an open channel, or raise what is the matter with it."""

    def check_ready(self) -> None:
        """Do nothing if channels can be used, or raise what is the matter."""


class SendFrame(SendRequest):
    """A frame that sends a message."""

    type: Literal["send"]
    id: str = Field(min_length=1, max_length=MAX_FRAME_ID)
    """The client's own; its answer has the same."""
    idempotency_key: Identifier | None = None
    """As the header ``Idempotency-Key``."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what a text frame holds.

        Raises:
            ValidationError: It is no such frame.
        """
        return cls.model_validate_json(text)


class Closing(NamedTuple):
    """Why we close a socket."""

    code: int
    reason: str


async def socket_route(websocket: WebSocket) -> None:
    """Serve ``/v1/channels/{channelId}/ws?after=``; what cannot be opened is answered with a problem document."""
    service: SocketService = websocket.app.state.service
    try:
        service.check_ready()
        channel = service.get(websocket.path_params["channelId"])
        after = websocket.query_params.get("after")
        begin = None if after is None else parse_cursor(after, "after")
        reader = EventReader(
            channel,
            after=begin,
            kind="websocket",
            streams=streams_of(websocket, service),
            max_backlog_bytes=MAX_BACKLOG_BYTES,
        )
        try:
            await check_cursor(channel, begin)
        except BaseException:
            await reader.close()
            raise
    except ReliableChannelError as error:
        problem = problem_of(error, instance=shown_path(websocket.scope))
        await websocket.send_denial_response(problem_response(problem))
        return
    await ChannelSocket(
        websocket,
        channel,
        reader,
        may_send=websocket.scope.get("state", {}).get("role") == "write",
        max_frame_bytes=service.settings.max_body_bytes + MAX_FRAME_SLACK,
    ).run()


@dataclass(slots=True)
class ChannelSocket:
    """One socket.

    Args:
        websocket: Not accepted yet.
        channel: What is sent goes there.
        reader: Where events come from; closed at the end.
        may_send: Whether the client's role allows sends.
        max_frame_bytes: Largest frame of the client, UTF-8 bytes.
        send_timeout_sec: A client whose connection takes no bytes for so long is disconnected, seconds.
    """

    websocket: WebSocket
    channel: ReliableChannel
    reader: EventReader
    may_send: bool
    max_frame_bytes: int
    send_timeout_sec: float = SEND_TIMEOUT_SEC

    _sends: set[asyncio.Task[None]] = field(default_factory=set)
    _stuck: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Serve until the channel, the service or the client ends it."""
        tasks: list[asyncio.Task[Closing | None]] = []
        closing: Closing | None = None
        try:
            await self.websocket.accept()
            works = (self._events(), self._frames(), self._until_stuck())
            tasks = [asyncio.ensure_future(work) for work in works]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            closing = next((end for task in done if (end := task.result()) is not None), None)
        except WebSocketDisconnect:
            logger.debug("the client of a socket has gone")
        finally:
            everything = [*tasks, *self._sends]
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            await self.reader.close()
        if closing is not None:
            await self._close(closing)

    async def _close(self, closing: Closing) -> None:
        """Say why it ends, where that can still be said."""
        reason = closing.reason.encode()[:MAX_CLOSE_REASON_BYTES].decode(errors="ignore")
        if self._is_connected():
            with suppress(TimeoutError, WebSocketDisconnect):
                async with asyncio.timeout(self.send_timeout_sec):
                    await self.websocket.close(closing.code, reason)

    def _is_connected(self) -> bool:
        return self.websocket.application_state is WebSocketState.CONNECTED

    async def _write(self, body: dict[str, Any]) -> None:
        """Send a frame; where the client takes no bytes, everything ends.

        Raises:
            WebSocketDisconnect: The client has gone.
        """
        if not self._is_connected():
            raise WebSocketDisconnect(NO_CLOSE_FRAME)
        try:
            async with asyncio.timeout(self.send_timeout_sec):
                await self.websocket.send_text(to_text(body))
        except TimeoutError:
            self._stuck.set()
            raise WebSocketDisconnect(NO_CLOSE_FRAME) from None

    async def _until_stuck(self) -> None:
        await self._stuck.wait()
        logger.info("a socket took no bytes for %g s and was closed", self.send_timeout_sec)

    # -- events -------------------------------------------------------------------------------------

    async def _events(self) -> Closing | None:
        """Send events; return why there are no more."""
        async for item in self.reader.items():
            if isinstance(item, StreamEnd):
                await self._write(item.json())
                return Closing(END_CODES[item.name], f"{item.name}: {item.reason}")
            await self._write(event_json(item))
        return None

    # -- frames of the client -----------------------------------------------------------------------

    async def _frames(self) -> Closing | None:
        """Take frames; return why no more are taken, or None when the client went."""
        bad = 0
        while True:
            message = await self.websocket.receive()
            if message["type"] == "websocket.disconnect":
                return None
            frame = await self._read(message.get("text"))
            if frame is None:
                bad += 1
                if bad == MAX_BAD_FRAMES:
                    return Closing(POLICY_VIOLATION, f"{bad} frames in a row that cannot be read")
                continue
            bad = 0
            if not self.may_send:
                await self._refuse(frame.id, make_problem("forbidden", "the token may only read"))
                continue
            if len(self._sends) >= MAX_SENDS_IN_FLIGHT:
                await asyncio.wait(self._sends, return_when=asyncio.FIRST_COMPLETED)
            task = asyncio.ensure_future(self._send(frame))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)

    async def _read(self, text: str | None) -> SendFrame | None:
        """Return what a frame asks for; answer it with a problem where it cannot be read."""
        frame_id = None
        if text is None:
            problem = make_problem("bad-request", "send text frames, each one JSON object")
        elif len(text) > self.max_frame_bytes or len(text.encode()) > self.max_frame_bytes:
            detail = f"a frame has at most {self.max_frame_bytes} bytes"
            problem = make_problem("payload-too-large", detail)
        else:
            try:
                return SendFrame.read(text)
            except ValidationError as error:
                frame_id = id_of(text)
                problem = invalid_request(error.errors(include_input=False, include_url=False))
        await self._refuse(frame_id, problem)
        return None

    async def _send(self, frame: SendFrame) -> None:
        """Send one message and answer its frame; whoever has gone misses the answer only."""
        with suppress(WebSocketDisconnect):
            try:
                request_id = await self.channel.send_nowait(
                    frame.payload, ephemeral=frame.ephemeral, idempotency_key=frame.idempotency_key
                )
            except ReliableChannelError as error:
                await self._refuse(frame.id, problem_of(error))
            else:
                await self._write({"type": "accepted", "id": frame.id, "requestId": request_id})

    async def _refuse(self, frame_id: str | None, problem: Problem) -> None:
        await self._write({"type": "problem", "id": frame_id, "problem": problem.to_json()})


def id_of(text: str) -> str | None:
    """Return the id of a frame that is wrong otherwise, where it has one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    frame_id = found.get("id") if isinstance(found, dict) else None
    return frame_id if isinstance(frame_id, str) and len(frame_id) <= MAX_FRAME_ID else None
