"""Handlers: by class of event, in order, and never able to hurt the node."""

from __future__ import annotations

import asyncio
import logging

import pytest

from messaging_adapter.events import (
    EventHub,
    HandlerGuard,
    NodeEvent,
    NodeMessageErrorEvent,
    NodeMessagePropagatedEvent,
)
from reliable_channel.clock import LoopClock
from reliable_channel.errors import ConfigurationError
from tests.support.virtual_loop import START_NS, virtual_time

ERROR = NodeMessageErrorEvent(request_id="r", error="e")
PROPAGATED = NodeMessagePropagatedEvent(request_id="r", message_hash=bytes(32))


def hub_and_guard() -> tuple[EventHub, HandlerGuard]:
    guard = HandlerGuard(LoopClock(asyncio.get_running_loop(), START_NS))
    return EventHub(guard), guard


@virtual_time
async def test_handlers_get_the_events_of_their_class_in_order() -> None:
    hub, _ = hub_and_guard()
    seen: list[tuple[str, NodeEvent]] = []
    hub.on(NodeMessageErrorEvent, lambda event: seen.append(("first", event)))
    hub.on(NodeMessagePropagatedEvent, lambda event: seen.append(("other", event)))
    hub.on(NodeMessageErrorEvent, lambda event: seen.append(("second", event)))
    hub.emit(ERROR)
    hub.emit(PROPAGATED)
    assert seen == [("first", ERROR), ("second", ERROR), ("other", PROPAGATED)]


@virtual_time
async def test_a_registration_ends_once_and_alone() -> None:
    hub, _ = hub_and_guard()
    seen: list[NodeEvent] = []
    off = hub.on(NodeMessageErrorEvent, seen.append)
    hub.on(NodeMessageErrorEvent, seen.append)
    off()
    off()
    hub.emit(ERROR)
    assert seen == [ERROR]


@virtual_time
async def test_a_handler_may_end_itself_while_it_is_called() -> None:
    hub, _ = hub_and_guard()
    seen: list[NodeEvent] = []

    def once(event: NodeMessageErrorEvent) -> None:
        seen.append(event)
        off()

    off = hub.on(NodeMessageErrorEvent, once)
    hub.on(NodeMessageErrorEvent, seen.append)
    hub.emit(ERROR)
    hub.emit(ERROR)
    assert seen == [ERROR] * 3


@virtual_time
async def test_cleared_handlers_are_not_called() -> None:
    hub, _ = hub_and_guard()
    seen: list[NodeEvent] = []
    off = hub.on(NodeMessageErrorEvent, seen.append)
    hub.clear()
    hub.emit(ERROR)
    off()
    assert seen == []


@virtual_time
async def test_an_unknown_event_is_refused() -> None:
    hub, _ = hub_and_guard()
    with pytest.raises(ConfigurationError, match="NodeMessageSentEvent"):
        hub.on(str, print)  # type: ignore[type-var]


@virtual_time
async def test_a_handler_that_raises_is_counted_and_the_others_are_called() -> None:
    hub, guard = hub_and_guard()
    seen: list[NodeEvent] = []
    hub.on(NodeMessageErrorEvent, lambda _: [][0])
    hub.on(NodeMessageErrorEvent, seen.append)
    hub.emit(ERROR)
    assert (seen, guard.errors) == ([ERROR], 1)


@virtual_time
async def test_raising_handlers_make_one_line_a_second(caplog: pytest.LogCaptureFixture) -> None:
    hub, guard = hub_and_guard()
    hub.on(NodeMessageErrorEvent, lambda _: [][0])
    with caplog.at_level(logging.ERROR):
        for _ in range(30):
            hub.emit(ERROR)
            await asyncio.sleep(0.1)
    assert guard.errors == 30
    assert len(caplog.records) == 3
    assert caplog.records[0].exc_info
    assert caplog.records[0].name.startswith("reliable_channel.")


def test_events_have_the_names_of_the_specification() -> None:
    assert ERROR.name == "message_error"
    assert PROPAGATED.name == "message_propagated"
