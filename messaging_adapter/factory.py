"""Make a node: choose the transport by its URL, open the store, restore the epoch budget.

Nothing here knows what a transport does with its URL.

Spec: MESSAGING-API, createNode; RELIABLE-CHANNEL-API, Node initialization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from messaging_adapter.base import WakuNode
from messaging_adapter.config import NodeConfig
from messaging_adapter.memory import MemoryNode
from messaging_adapter.rest_url import SCHEMES
from messaging_adapter.waku_rest import WakuRestNode
from reliable_channel.budget import acquire_budget, release_budget
from reliable_channel.clock import SystemClock
from reliable_channel.errors import ConfigurationError
from reliable_channel.ports import ChannelStore, Clock
from reliable_channel.volatile import VolatileStore

TRANSPORTS: Final[Mapping[str, type[WakuNode]]] = {
    "memory": MemoryNode,
    **dict.fromkeys(SCHEMES, WakuRestNode),
}
"""What a transport's URL may begin with, before ``://``."""


async def create_node(config: NodeConfig, *, clock: Clock | None = None) -> WakuNode:
    """Make a node that is part of its network.

    A store given in the configuration is opened, and stays open when the node closes: who made it
    closes it. Without one the node keeps everything in memory.

    Args:
        config: What the node is.
        clock: Unix time; None is the machine's clock.

    Returns:
        The node; it is an asynchronous context manager that closes itself.

    Raises:
        ConfigurationError: The transport is unknown, cannot honour a field, or contradicts what its
            network is already; nothing is left open.
        NodeError: The network cannot be entered.
        BudgetInUseError: The rate is limited, and another node counts on this store.
        StoreError: The store cannot be opened or read.

    Spec: RELIABLE-CHANNEL-API, Node initialization, steps 1 and 3.
    """
    if not isinstance(config, NodeConfig):
        text = f"create_node takes a NodeConfig, not {type(config).__name__}"
        raise ConfigurationError(text)
    transport = _transport_of(config)
    transport.check(config)
    given = config.persistence
    store = VolatileStore() if given is None else given
    try:
        return await _start(transport, config, clock or SystemClock(), store)
    except BaseException:
        if given is None:
            await store.close()
        raise


async def createNode(nodeConfig: NodeConfig) -> WakuNode:
    """Make a node; the specification's name for `create_node`."""
    return await create_node(nodeConfig)


async def _start(
    transport: type[WakuNode], config: NodeConfig, clock: Clock, store: ChannelStore
) -> WakuNode:
    await store.open()
    now = clock.now_ns()
    budget = await acquire_budget(config.rate_limit_config, store, now=now)
    try:
        owned = config.persistence is None
        node = transport(config, clock=clock, store=store, budget=budget, owns_store=owned)
        await node.start()
    except BaseException:
        await release_budget(budget, store)
        raise
    return node


def _transport_of(config: NodeConfig) -> type[WakuNode]:
    scheme = config.transport.partition("://")[0]
    if scheme not in TRANSPORTS:
        known = ", ".join(f"{name}://" for name in TRANSPORTS)
        problem = f"no transport {scheme!r}; there is {known}"
        raise ConfigurationError(problem)
    return TRANSPORTS[scheme]
