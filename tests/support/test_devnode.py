"""The tools for stand-in nodes: time by hand, a life in the test's loop, a process."""

from __future__ import annotations

import asyncio
import socket

import httpx
import pytest

from tests.support.devnode import START_NS, ManualTimers, run_devnode, run_devnode_process
from tests.support.hung_up import assert_hung_up


def test_time_passes_only_by_hand_and_in_order() -> None:
    timers = ManualTimers()
    seen: list[tuple[str, int]] = []

    def note(name: str) -> None:
        seen.append((name, timers.now() - START_NS))

    def early() -> None:
        note("early")
        timers.later(1, lambda: note("follows"))

    timers.later(2, lambda: note("late"))
    timers.later(1, early)
    timers.advance(1.5)
    assert seen == [("early", 10**9)]
    timers.advance(1)
    assert seen[1:] == [("late", 2 * 10**9), ("follows", 2 * 10**9)]
    assert timers.now() == START_NS + 2_500_000_000


async def test_a_node_in_the_loop_keeps_its_port() -> None:
    async with run_devnode(nodes=2) as devnode:
        urls = devnode.urls
        for _ in range(2):
            async with devnode.client(1) as client:
                assert (await client.get("/health")).status_code == 200
            await devnode.stop()
            await devnode.stop()
            with pytest.raises(httpx.ConnectError):
                async with devnode.client() as client:
                    await client.get("/health")
            await devnode.start()
        assert devnode.urls == urls


@pytest.mark.parametrize("turns", range(6))
async def test_who_connects_while_a_node_stops_is_hung_up_on(turns: int) -> None:
    async with run_devnode() as devnode:
        with socket.create_connection(("127.0.0.1", devnode.ports[0]), timeout=5) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await devnode.stop()
            assert_hung_up(client)


async def test_a_stop_may_leave_what_nodes_hold() -> None:
    async with run_devnode() as devnode:
        devnode.node.messaging.subscribe("/a/1/b/c")
        await devnode.stop(forget=False)
        assert devnode.node.messaging.topics == {"/a/1/b/c"}
        await devnode.stop()
        assert devnode.node.messaging.topics == set()


@pytest.mark.timeout(60)
async def test_a_process_that_cannot_begin_says_why() -> None:
    with pytest.raises(AssertionError, match="loss must be from"):
        async with run_devnode_process("--loss", "2"):
            pytest.fail("it began")
