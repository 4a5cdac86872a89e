"""REST adapters on stand-in nodes within the test's own loop: no sockets, so time may be virtual."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from api.devnode.command import make_application
from api.devnode.network import Network
from api.devnode.node import Node
from api.devnode.settings import DevnodeSettings
from api.devnode.timers import LoopTimers
from messaging_adapter import NodeConfig
from messaging_adapter.waku_rest import WakuRestNode
from reliable_channel.budget import restore_budget
from reliable_channel.clock import LoopClock
from reliable_channel.ports import ChannelStore, IncomingMessage
from reliable_channel.volatile import VolatileStore
from tests.support.virtual_loop import START_NS

TOPIC: Final = "/app/1/room/proto"
OTHER: Final = "/app/1/hall/proto"


class Wire(httpx.AsyncBaseTransport):
    """The way to the nodes of a network; it counts, and it can be cut.

    Args:
        application: Answers for all nodes, by port.
    """

    def __init__(self, application: Any) -> None:
        self._inner = httpx.ASGITransport(application)
        self.down = False
        """Whether nobody listens."""
        self.hangs = False
        """Whether nothing is ever answered."""
        self.times: list[float] = []
        """When requests came, by the loop's clock."""
        self.paths: Counter[str] = Counter()
        """Requests by method and the beginning of their path."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Carry a request over."""
        self.times.append(asyncio.get_running_loop().time())
        self.paths[f"{request.method} {'/'.join(request.url.path.split('/')[:4])}"] += 1
        if self.down:
            raise httpx.ConnectError("connection refused")
        if self.hangs:
            await asyncio.Event().wait()
        try:
            return await self._inner.handle_async_request(request)
        except AssertionError as error:  # its way to say that an answer has no end
            raise httpx.RemoteProtocolError("the answer broke off") from error

    def most_in_a_second(self) -> int:
        """Return the largest number of requests within any second."""
        return max((sum(t <= u < t + 1 for u in self.times) for t in self.times), default=0)


class StandIn:
    """A network of stand-in nodes.

    Args:
        settings: Of the network.
    """

    def __init__(self, settings: DevnodeSettings) -> None:
        self.clock = LoopClock(asyncio.get_running_loop(), START_NS)
        self.timers = LoopTimers(self.clock)
        self.network = Network(settings, self.timers)
        application = make_application(self.network, range(1, settings.nodes + 1))
        self.wires = [Wire(application) for _ in range(settings.nodes)]

    @property
    def nodes(self) -> list[Node]:
        """The stand-ins."""
        return self.network.nodes

    async def open(
        self, number: int = 0, *, store: ChannelStore | None = None, query: str = "", **fields: Any
    ) -> OverWire:
        """Return a node over one of the stand-ins.

        Args:
            number: Which one.
            store: Open.
            query: Parameters of the URL.
            fields: Further ones of `NodeConfig`.
        """
        url = f"waku+http://node:{number + 1}" + (f"?{query}" if query else "")
        config = NodeConfig(**{"transport": url, **fields})
        OverWire.check(config)
        store = store or VolatileStore()
        await store.open()
        budget = await restore_budget(config.rate_limit_config, store)
        node = OverWire(config, clock=self.clock, store=store, budget=budget, owns_store=True)
        node.wire = self.wires[number]
        node._rng = random.Random(number)
        await node.start()
        return node


class OverWire(WakuRestNode):
    """The adapter with another way to its node."""

    wire: httpx.AsyncBaseTransport

    def _http_transport(self) -> httpx.AsyncBaseTransport:
        return self.wire


@asynccontextmanager
async def stand_in(**settings: Any) -> AsyncIterator[StandIn]:
    """Run a network of stand-ins, by default two nodes, a store without lag, and no faults."""
    network = StandIn(DevnodeSettings(**{"nodes": 2, "store_lag_s": 0.0, **settings}))
    try:
        yield network
    finally:
        network.timers.close()


async def listen(node: WakuRestNode, topic: str = TOPIC) -> list[bytes]:
    """Return the list of payloads that come in on a topic from now on."""
    heard: list[bytes] = []

    def hear(message: IncomingMessage) -> None:
        heard.append(message.payload)

    await node.subscribe_topic(topic, hear)
    return heard


async def until(condition: Any, seconds: float = 60.0, step: float = 0.05) -> None:
    """Wait until a condition holds.

    Raises:
        TimeoutError: It does not.
    """
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 conditions of all kinds
            await asyncio.sleep(step)
