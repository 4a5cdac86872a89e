"""Checked by mypy, never run: what an application's code may count on from the public names' types."""

from __future__ import annotations

from typing import assert_never

from messaging_adapter import MessageEnvelope, NodeConfig, create_node
from persistence import open_store
from reliable_channel import (
    AesGcmEncryption,
    ChannelEvent,
    Encryption,
    MessageDeliveredEvent,
    MessageDeliveryErrorEvent,
    MessageLostEvent,
    MessageProgressEvent,
    MessageQueuedEvent,
    MessageReceivedEvent,
    MessageSendErrorEvent,
    MessageSentEvent,
    ReliableChannel,
    SdsConfig,
    SenderIdConflictEvent,
    create_reliable_channel,
)
from reliable_channel.records import DebtRecord


class Reversed:
    """A user's own encryption, plain on the way out and a coroutine on the way in."""

    def encrypt(self, content: bytes) -> bytes:
        return content[::-1]

    async def decrypt(self, payload: bytes) -> bytes:
        return payload[::-1]


async def use() -> None:
    store = open_store("memory://")
    config = NodeConfig(transport="memory://lab", sds_config=SdsConfig(persistence=store))
    async with await create_node(config) as node:
        plain = await create_reliable_channel(node, "room", "/app/1/room/proto", "alice")
        async with plain, plain.events(after=0) as events:
            request_id: str = await plain.send(b"hello", ephemeral=False, idempotency_key="k")
            recipients: tuple[str, ...] = await plain.wait_delivered(request_id, timeout=1.0)
            seen: list[str] = [*recipients]
            seen += [describe(event) async for event in events]
        envelope = MessageEnvelope(content_topic="/a/1/b/proto", payload=b"raw")
        seen.append(await node.send(envelope))
        ciphers: tuple[Encryption, ...] = (AesGcmEncryption(bytes(32)), Reversed())
        for number, cipher in enumerate(ciphers):
            channel: ReliableChannel = await create_reliable_channel(
                node,
                channel_id=f"room {number}",
                content_topic="/app/1/room/proto",
                sender_id="alice",
                encryption=cipher,
            )
            await channel.close()


def describe(event: ChannelEvent) -> str:
    """Every kind of event is named: a new one makes this fail to check."""
    match event:
        case MessageReceivedEvent(message=message, sender_id=sender_id):
            return f"{sender_id}: {len(message)} bytes"
        case MessageDeliveredEvent(request_id=request_id, recipients=recipients):
            return f"{request_id} delivered to {', '.join(recipients)}"
        case MessageSendErrorEvent(error=error) | MessageDeliveryErrorEvent(error=error):
            return error
        case MessageSentEvent() | MessageQueuedEvent() | MessageProgressEvent():
            return event.request_id
        case MessageLostEvent() | SenderIdConflictEvent():
            return event.message_id
        case _:
            assert_never(event)


def change(row: DebtRecord) -> None:
    """Rows are frozen for type checkers only: without that guard the comment here is an error."""
    row.message_id = "other"  # type: ignore[misc]
