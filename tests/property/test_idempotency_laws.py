"""The same key any number of times is one message, whatever comes in between: ends, failures, restarts, withdrawals."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reliable_channel.core.effects import Effects
from reliable_channel.errors import IdempotencyConflictError
from reliable_channel.records import RequestRecord
from reliable_channel.types import RequestId
from tests.support.builders import (
    NO_FILTER,
    Participant,
    Transmission,
    acknowledge,
    alice,
    deliver,
)

SDS = replace(NO_FILTER, max_finished_requests=2)

KEYS = st.sampled_from(["a", "b", "c", "d"])
MESSAGES = st.tuples(st.sampled_from([b"x", b"y" * 100]), st.booleans())
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), KEYS, MESSAGES),
        st.tuples(st.just("withdraw"), KEYS, MESSAGES),
        st.tuples(st.sampled_from(["published", "failed", "acknowledged", "restart"])),
    ),
    max_size=40,
)


@dataclass
class Application:
    """Who sends with keys, and what it knows of them.

    Attributes:
        sender: Its machine.
        messages: What each request is of.
        sent: Everything that was given to the node, through all restarts.
    """

    sender: Participant = field(default_factory=lambda: alice(sds=SDS))
    messages: dict[RequestId, tuple[bytes, bool]] = field(default_factory=dict)
    sent: list[Transmission] = field(default_factory=list)

    def keys(self) -> dict[str, RequestId]:
        """Return which request each key belongs to, as the rows say."""
        rows = [row for row in self.sender.rows_of(RequestRecord) if isinstance(row, RequestRecord)]
        keys = {row.idempotency_key: row.request_id for row in rows}
        assert len(keys) == len(rows)
        by_key = self.sender.machine.outgoing.book.by_key
        assert {key: request.request_id for key, request in by_key.items()} == keys
        return keys

    def send(self, key: str, message: tuple[bytes, bool], *, is_withdrawn: bool = False) -> None:
        """Send; where the key is known, check that this is a repeat or a conflict."""
        sender, (payload, ephemeral) = self.sender, message
        before = self.keys()
        known = before.get(key)
        if known is not None and self.messages[known] != message:
            with pytest.raises(IdempotencyConflictError):
                sender.send(payload, ephemeral=ephemeral, key=key)
            return
        request_id, effects = sender.machine.send(
            payload, sender.now, ephemeral=ephemeral, idempotency_key=key
        )
        if known is not None:
            assert (request_id, effects) == (known, Effects())
            return
        assert request_id not in self.messages
        if is_withdrawn:
            effects.merge(sender.machine.withdraw(request_id, sender.now))
            effects.publishes[:] = [
                item for item in effects.publishes if not item.segment_id.startswith(request_id)
            ]
        else:
            self.messages[request_id] = message
        sender.carry_out(effects)
        if is_withdrawn:  # as if it had never been made: others stay known, too
            assert self.keys() == before
        else:
            assert self.keys().get(key) == request_id

    def step(self, name: str) -> None:
        """Let something happen to what was sent."""
        sender = self.sender
        if name == "published":
            sender.published()
        elif name == "failed":
            sender.failed(retryable=False)
        elif name == "restart":
            self.sent += sender.transmissions
            self.sender = sender.reopened()
        else:
            for request_id in self.keys().values():
                if not sender.request(request_id).is_final:
                    acknowledge(sender, request_id)
                    return


@settings(max_examples=200)
@given(steps=STEPS)
def test_the_same_key_any_number_of_times_is_one_message(steps: list[tuple[object, ...]]) -> None:
    application, receiver = Application(), Participant(sds=NO_FILTER)
    for step in steps:
        match step:
            case ("send" | "withdraw" as what, str(key), (bytes(payload), bool(ephemeral))):
                application.send(key, (payload, ephemeral), is_withdrawn=what == "withdraw")
            case (str(name),):
                application.step(name)
        application.keys()
    application.sender.published()
    sent = application.sent + application.sender.transmissions
    deliver([receiver], [item for item in sent if item.message.content is not None])
    out = {item.segment_id.partition(":")[0] for item in sent}
    expected = [message[0] for key, message in application.messages.items() if key in out]
    assert Counter(receiver.received) == Counter(expected)
