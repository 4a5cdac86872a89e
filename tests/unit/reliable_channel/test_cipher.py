"""The caller's encryption on a channel: plain, async, failing, answering nonsense, growing messages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from messaging_adapter import NodeConfig, create_node
from reliable_channel import (
    AesGcmEncryption,
    MessageDeliveryErrorEvent,
    MessageEnvelope,
    MessageSendErrorEvent,
    MessageSentEvent,
    RequestFailedError,
    SegmentationConfig,
)
from reliable_channel.cipher import Cipher
from reliable_channel.core.wire import SdsMessage
from tests.support.failing_store import TOPIC, outcome, pair, settle, side, soon
from tests.support.virtual_loop import virtual_time


@asynccontextmanager
async def eavesdropper() -> AsyncIterator[list[bytes]]:
    """Hear every payload that the network carries on the topic."""
    heard: list[bytes] = []
    async with await create_node(NodeConfig(transport="memory://lab")) as node:
        await node.subscribe_topic(TOPIC, lambda message: heard.append(message.payload))
        yield heard


def flip(data: bytes) -> bytes:
    return bytes(byte ^ 0x55 for byte in data)


class Hook:
    """Encrypts by flipping bits, behind a mark that decryption insists on."""

    overhead_bytes = 4

    def encrypt(self, content: bytes, /) -> Any:
        return b"mark" + flip(content)

    def decrypt(self, payload: bytes, /) -> Any:
        if not payload.startswith(b"mark"):
            raise ValueError(payload)
        return flip(payload[4:])


class AsyncHook(Hook):
    """Takes its time; the less, the later."""

    delay_sec = 1.0

    async def encrypt(self, content: bytes, /) -> Any:
        self.delay_sec /= 2
        await asyncio.sleep(self.delay_sec)
        return super().encrypt(content)

    async def decrypt(self, payload: bytes, /) -> Any:
        self.delay_sec /= 2
        await asyncio.sleep(self.delay_sec)
        return super().decrypt(payload)


@pytest.mark.parametrize(
    "make", [Hook, AsyncHook, lambda: AesGcmEncryption(bytes(32))], ids=["plain", "async", "ready"]
)
@virtual_time
async def test_every_message_is_encrypted_and_order_is_kept(make: Callable[[], Any]) -> None:
    payloads = [b"secret %d" % number for number in range(10)]
    async with (
        eavesdropper() as heard,
        side("alice", encryption=make()) as alice,
        side("bob", encryption=make()) as bob,
    ):
        await asyncio.gather(*(alice.channel.send(payload) for payload in payloads))
        await asyncio.sleep(90)  # syncs go out as well
        assert [len(ends) for ends in alice.finals().values()] == [1] * 10
        assert bob.channel.status().counters["syncs_sent"] > 0
    assert bob.received == payloads
    assert len(heard) > 10
    assert not any(b"secret" in payload or b"room" in payload for payload in heard)


@virtual_time
async def test_the_hook_sees_the_whole_message_once_for_each_transmission() -> None:
    """Outgoing processing: segmentation, SDS, encryption, rate limit, dispatch."""
    calls: list[bytes] = []

    class Recorder(Hook):
        def encrypt(self, content: bytes, /) -> Any:
            calls.append(content)
            return super().encrypt(content)

    async with side("alice", encryption=Recorder(), max_retransmissions=2) as alice:
        await alice.channel.send(b"hello")
        await asyncio.sleep(14)
        assert len(calls) == len(alice.node.published) == 3
    assert {SdsMessage.decode(call).sender_id for call in calls} == {"alice"}


NONSENSE = [None, "text", 5, b"", bytearray(b"mark"), [b"mark"]]


class Failing(Hook):
    """Encrypts as long as ``answer`` is its own class; else it raises or answers that."""

    answer: Any = Hook

    def encrypt(self, content: bytes, /) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return super().encrypt(content) if self.answer is Hook else self.answer


class AsyncFailing(Failing):
    async def encrypt(self, content: bytes, /) -> Any:
        return super().encrypt(content)


@pytest.mark.parametrize("kind", [Failing, AsyncFailing])
@pytest.mark.parametrize(
    "answer",
    [ValueError("no key today"), TimeoutError(), *NONSENSE],
    ids=["raises", "times-out", "none", "text", "number", "empty", "bytearray", "list"],
)
@virtual_time
async def test_a_hook_that_cannot_encrypt_ends_the_request_and_nothing_goes_out(
    kind: type[Failing], answer: Any
) -> None:
    hook = kind()
    async with (
        eavesdropper() as heard,
        side("alice", encryption=hook) as alice,
        side("bob", encryption=Hook()) as bob,
    ):
        hook.answer = answer
        request_id = await alice.channel.send(b"secret")
        with pytest.raises(RequestFailedError) as caught:
            await soon(alice.channel.wait_delivered(request_id))
        assert caught.value.event_name == "reliable:message:send-error"
        assert caught.value.error.startswith("encryption failed: ")
        assert caught.value.error.isprintable()
        if isinstance(answer, ValueError):
            assert "no key today" in caught.value.error
        await asyncio.sleep(60)
        assert heard == []
        assert [type(event) for event in await alice.log()] == [MessageSendErrorEvent]
        hook.answer = Hook
        await soon(alice.channel.wait_delivered(await alice.channel.send(b"found the key")))
    assert bob.received == [b"found the key"]


@virtual_time
async def test_an_empty_result_of_encryption_is_called_empty() -> None:
    hook = Failing()
    hook.answer = b""
    async with side("alice", encryption=hook) as alice:
        await alice.channel.send(b"hello")
        await settle()
        assert "empty" in alice.seen[-1].error


@virtual_time
async def test_a_hook_that_makes_messages_too_large_is_told_both_sizes() -> None:
    class Swelling(Hook):
        def encrypt(self, content: bytes, /) -> Any:
            return content + bytes(200_000)

    async with eavesdropper() as heard, side("alice", encryption=Swelling()) as alice:
        request_id = await alice.channel.send(b"hello")
        with pytest.raises(RequestFailedError, match="send-error") as caught:
            await soon(alice.channel.wait_delivered(request_id))
        assert str(150 * 1024) in caught.value.error
        assert any(
            200_000 < int(word) < 300_000 for word in caught.value.error.split() if word.isdigit()
        )
        assert heard == []


@pytest.mark.parametrize("declared", [True, False])
@virtual_time
async def test_room_is_kept_for_what_a_hook_adds(*, declared: bool) -> None:
    """1,024 bytes are reserved where it does not say."""

    class Padding:
        def encrypt(self, content: bytes, /) -> bytes:
            return content + bytes(added)

        def decrypt(self, payload: bytes, /) -> bytes:
            return payload[:-added]

    added = 5_000 if declared else 1_024
    hook = Padding()
    if declared:
        hook.overhead_bytes = added  # type: ignore[attr-defined]
    full = SegmentationConfig(segment_size_bytes=1 << 20)
    async with pair(encryption=hook, segmentation=full) as (alice, bob):
        await soon(alice.channel.wait_delivered(await alice.channel.send(bytes(400_000))))
    assert bob.received == [bytes(400_000)]


@virtual_time
async def test_participants_with_different_keys_hear_nothing_and_count_it() -> None:
    async with (
        side("alice", encryption=AesGcmEncryption(bytes(32)), max_retransmissions=1) as alice,
        side("bob", encryption=AesGcmEncryption(b"\x01" * 32)) as bob,
    ):
        await alice.channel.send(b"hello")
        await asyncio.sleep(20)
        assert [type(event) for event in alice.seen if event.sequence] == [
            MessageSentEvent,
            MessageDeliveryErrorEvent,
        ]
        assert bob.seen == []
        assert bob.channel.status().dropped == {"decrypt_failed": 2}
        assert bob.channel.status().known_messages == 0


class Undecided(Hook):
    """Decrypts, raises or answers nonsense, as it is told."""

    answer: Any = Hook

    def decrypt(self, payload: bytes, /) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return super().decrypt(payload) if self.answer is Hook else self.answer


class AsyncUndecided(Undecided):
    async def decrypt(self, payload: bytes, /) -> Any:
        return super().decrypt(payload)


@pytest.mark.parametrize("kind", [Undecided, AsyncUndecided])
@pytest.mark.parametrize(
    "answer",
    [ValueError("altered"), asyncio.CancelledError(), *NONSENSE[:3], bytearray(b"x")],
    ids=["raises", "cancelled", "none", "text", "number", "bytearray"],
)
@virtual_time
async def test_what_does_not_decrypt_is_counted_and_dropped(
    kind: type[Undecided], answer: Any
) -> None:
    hook = kind()
    async with side("alice", encryption=Hook()) as alice, side("bob", encryption=hook) as bob:
        hook.answer = answer
        request_id = await alice.channel.send(b"hello")
        await asyncio.sleep(4)
        assert bob.received == []
        assert bob.channel.status().dropped == {"decrypt_failed": 1}
        hook.answer = Hook
        assert await soon(alice.channel.wait_delivered(request_id)) == ("bob",)
        await soon(bob.channel.send(b"still working"))
    assert bob.received == [b"hello"]


@virtual_time
async def test_what_the_nodes_store_has_and_does_not_decrypt_is_counted_like_the_rest() -> None:
    """A later message names it, so it is fetched; it is still not readable."""

    class Picky(Hook):
        refused = b"unreadable"

        def decrypt(self, payload: bytes, /) -> Any:
            if self.refused in flip(payload):
                raise ValueError("altered")
            return super().decrypt(payload)

    hook = Picky()
    async with side("alice", encryption=Hook()) as alice, side("bob", encryption=hook) as bob:
        for payload in (b"first", b"unreadable", b"last"):
            await alice.channel.send(payload)
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        assert bob.received == [b"first"]
        assert bob.channel.status().counters["store_queries"] > 0
        assert set(bob.channel.status().dropped) == {"decrypt_failed"}
        hook.refused = b"nothing"
        await asyncio.sleep(20)
    assert bob.received == [b"first", b"unreadable", b"last"]


@virtual_time
async def test_a_cancellation_inside_the_encryption_hook_does_not_silence_the_channel() -> None:
    hook = Failing()
    async with (
        side("alice", encryption=hook) as alice,
        side("bob", encryption=Hook()) as bob,
    ):
        hook.answer = asyncio.CancelledError()
        await alice.channel.send(b"one")
        await settle()
        hook.answer = Hook
        await outcome(alice.channel.send(b"two"))
        await asyncio.sleep(10)
        assert b"two" in bob.received


@virtual_time
async def test_what_is_refused_is_logged_at_most_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with side("alice", encryption=Hook()) as alice, side("mallory") as mallory:
        caplog.clear()
        for _ in range(500):
            await mallory.node.publish(
                "garbage", MessageEnvelope(content_topic=TOPIC, payload=b"garbage")
            )
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)
        assert alice.channel.status().dropped == {"decrypt_failed": 500}
    about_alice = [item for item in caplog.messages if "500" in item or "decrypt" in item]
    assert 1 <= len(about_alice) <= 6


@virtual_time
async def test_logs_name_the_channel_and_never_hold_payloads(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with side("alice", encryption=Hook()) as alice, side("mallory") as mallory:
        alice.channel.on("reliable:message:sent", lambda event: 1 / 0)
        caplog.clear()
        alice.store.fail()
        await outcome(alice.channel.send(b"SECRET" * 10))
        alice.store.recover()
        await alice.channel.send(b"SECRET" * 10)
        await mallory.channel.send(b"SECRET" * 10)
        await asyncio.sleep(60)
    ours = [item for item in caplog.records if item.name.startswith("reliable_channel")]
    assert len(ours) >= 3
    assert [item.getMessage() for item in ours if "room" not in item.getMessage()] == []
    assert "SECRET" not in caplog.text


# --- The cipher alone ----------------------------------------------------------------------------


@virtual_time
async def test_without_encryption_bytes_pass_through() -> None:
    cipher = Cipher(None)
    assert cipher.overhead_bytes == 0
    assert await cipher.encrypt(b"plain") == b"plain"
    assert await cipher.decrypt(b"") == b""


def test_the_overhead_is_what_the_hook_says_or_what_is_reserved() -> None:
    class Silent:
        def encrypt(self, content: bytes, /) -> bytes:
            return content

        def decrypt(self, payload: bytes, /) -> bytes:
            return payload

    assert Cipher(Silent()).overhead_bytes == 1_024
    assert Cipher(Hook()).overhead_bytes == 4
    assert Cipher(AesGcmEncryption(bytes(32))).overhead_bytes == 28
