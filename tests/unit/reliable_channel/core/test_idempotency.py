"""Idempotency keys in the machine: what is a repeat, what a conflict, and how long a key is remembered."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from reliable_channel.core.effects import Effects
from reliable_channel.core.idempotency import payload_digest
from reliable_channel.errors import (
    ConfigurationError,
    EmptyPayloadError,
    IdempotencyConflictError,
    InvalidPayloadError,
)
from reliable_channel.records import RequestRecord
from tests.support.builders import NO_FILTER, NOW, Participant, acknowledge, alice, deliver

KEYS = ["k", "x" * 255, "Grüße \U0001f600", " ", "a/../b", "'; DROP TABLE requests; --"]


def request_row(sender: Participant, request_id: str) -> RequestRecord:
    row = sender.rows[RequestRecord, (request_id,)]
    assert isinstance(row, RequestRecord)
    return row


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_repeat_returns_the_first_id_and_does_nothing(key: str, *, ephemeral: bool) -> None:
    sender, receiver = alice(), Participant()
    first = sender.send(b"hello", ephemeral=ephemeral, key=key)
    counters = sender.status()
    for kind in (bytes, bytearray, memoryview):
        repeated = sender.machine.send(
            kind(b"hello"), sender.now, ephemeral=ephemeral, idempotency_key=key
        )
        assert repeated == (first, Effects())
    assert sender.status() == counters
    assert request_row(sender, first).idempotency_key == key
    deliver([receiver], sender.transmissions)
    assert receiver.received == [b"hello"]


def test_messages_under_several_keys_or_none_have_nothing_to_do_with_each_other() -> None:
    sender = alice()
    keys = ["k", "K", "k ", "e\u0301", "\u00e9", None, None]
    ids = [sender.send(b"same", key=key) for key in keys]
    assert len(set(ids)) == len(keys)


@pytest.mark.parametrize(
    ("payload", "ephemeral"),
    [(b"other", False), (b"hello", True), (b"hello\0", False), (b"x" * 200, False)],
    ids=["payload", "ephemeral", "longer", "segments"],
)
def test_another_message_under_the_same_key_is_a_conflict(payload: bytes, ephemeral: bool) -> None:
    sender, twin = alice(), alice()
    first = sender.send(b"hello", key="k\u2028y")
    twin.send(b"hello", key="k\u2028y")
    with pytest.raises(IdempotencyConflictError) as caught:
        sender.send(payload, ephemeral=ephemeral, key="k\u2028y")
    assert (caught.value.channel_id, caught.value.key) == ("room", "k\u2028y")
    assert str(caught.value).isprintable()
    assert sender.send(b"hello", key="k\u2028y") == first
    # An input that raises changes nothing.
    assert sender.machine.send(b"next", NOW) == twin.machine.send(b"next", NOW)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("", "is empty"),
        ("x" * 256, "must be 1 to 255 bytes"),
        ("ä" * 128, "must be 1 to 255 bytes"),
        ("a\n", "must be 1 to 255 bytes of UTF-8 without"),
        ("a\0", "must be 1 to 255 bytes of UTF-8 without"),
        ("\ud800", "must be 1 to 255 bytes of UTF-8"),
    ],
)
def test_what_cannot_be_a_key_is_refused(key: str, problem: str) -> None:
    sender = alice()
    with pytest.raises(ConfigurationError, match=f"^idempotency_key {problem}") as caught:
        sender.send(b"hello", key=key)
    assert str(caught.value).isprintable()
    assert sender.rows_of(RequestRecord) == []


@pytest.mark.parametrize(("payload", "error"), [(b"", EmptyPayloadError), (5, InvalidPayloadError)])
def test_what_is_no_payload_is_none_under_a_known_key_either(
    payload: Any, error: type[Exception]
) -> None:
    sender = alice()
    sender.send(b"hello", key="k")
    with pytest.raises(error):
        sender.send(payload, key="k")


def test_a_full_channel_takes_repeats() -> None:
    sender = alice(sds=replace(NO_FILTER, max_outgoing_messages=1, max_outgoing_bytes=5))
    first = sender.send(b"hello", key="k")
    assert not sender.machine.has_room(1)
    assert sender.machine.knows_key("k")
    assert not sender.machine.knows_key("other")
    assert not sender.machine.knows_key(None)
    assert sender.send(b"hello", key="k") == first


def test_a_key_is_remembered_as_long_as_its_request() -> None:
    sender = alice(sds=replace(NO_FILTER, max_finished_requests=2))
    ids = []
    for number in range(3):
        ids.append(sender.send(b"hello", key=f"k{number}"))
        sender.published()
        assert sender.send(b"hello", key=f"k{number}") == ids[number]
        acknowledge(sender, ids[number])
        assert sender.send(b"hello", key=f"k{number}") == ids[number]
    assert {row[1][0] for row in sender.rows if row[0] is RequestRecord} == set(ids[1:])
    assert [sender.machine.knows_key(f"k{number}") for number in range(3)] == [False, True, True]
    again = sender.send(b"other", key="k0")
    assert again not in ids
    assert sender.send(b"other", key="k0") == again


def test_a_request_that_failed_keeps_its_key() -> None:
    sender = alice()
    first = sender.send(b"hello", key="k")
    sender.failed(retryable=False)
    assert sender.request(first).is_final
    assert sender.send(b"hello", key="k") == first


def test_a_withdrawn_request_forgets_its_key() -> None:
    sender = alice()
    first = sender.send(b"hello", key="k")
    sender.carry_out(sender.machine.withdraw(first, sender.now))
    assert not sender.machine.knows_key("k")
    assert sender.send(b"other", key="k") != first


@pytest.mark.parametrize("ending", ["open", "published", "delivered"])
def test_keys_survive_a_restart(ending: str) -> None:
    sender = alice()
    first = sender.send(b"hello", key="k")
    plain = sender.send(b"hello")
    if ending != "open":
        sender.published()
    if ending == "delivered":
        acknowledge(sender, first)
    again = sender.reopened()
    assert again.send(b"hello", key="k") == first
    with pytest.raises(IdempotencyConflictError):
        again.send(b"other", key="k")
    assert again.send(b"hello") not in (first, plain)
    again.published()
    acknowledge(again, first)
    assert (request_row(again, first).state, request_row(again, first).idempotency_key) == (
        "delivered",
        "k",
    )
    assert again.reopened().send(b"hello", key="k") == first


def test_a_repeat_succeeds_under_settings_that_would_refuse_its_payload() -> None:
    """Who repeats it must not be told that it was never sent."""
    sender = alice()
    first = sender.send(b"x" * 1_000, key="k")
    sender.settings["sds"] = replace(NO_FILTER, max_outgoing_bytes=10)
    assert sender.reopened().send(b"x" * 1_000, key="k") == first


def test_digests_tell_messages_apart() -> None:
    messages = [(b"a", False), (b"a", True), (b"\0a", False), (b"\1a", True), (b"", False)]
    digests = {payload_digest(payload, ephemeral=ephemeral) for payload, ephemeral in messages}
    assert len(digests) == len(messages)
    assert {len(digest) for digest in digests} == {32}


@pytest.mark.interpreted
def test_without_a_key_nothing_is_hashed_for_it() -> None:
    calls: list[str] = []

    def note(frame: FrameType, event: str, function: Any) -> None:
        name = function.__name__ if event == "c_call" else frame.f_code.co_name
        if event in ("call", "c_call"):
            calls.append(name)

    def called(key: str | None) -> list[str]:
        calls.clear()
        sys.setprofile(note)
        try:
            sender.send(b"x" * 1_000, key=key)
        finally:
            sys.setprofile(None)
        names = ("payload_digest", "openssl_sha256", "check_identifier", "earlier_request")
        return [name for name in calls if name in names]

    sender = alice()
    assert called(None) == []
    assert called("k").count("openssl_sha256") == 1
    assert called("k").count("openssl_sha256") == 1
    row = next(row for row in sender.rows_of(RequestRecord) if isinstance(row, RequestRecord))
    assert (row.idempotency_key, row.payload_digest) == ("", b"")
