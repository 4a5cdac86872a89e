"""Making a node: transport by URL, who owns the store, the restored budget, nothing left open."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from messaging_adapter import NodeConfig, createNode
from messaging_adapter.config import MessageValidation, NetworkingConfig, ProtocolsConfig
from messaging_adapter.factory import create_node
from messaging_adapter.memory import MemoryNode
from reliable_channel.clock import LoopClock, SystemClock
from reliable_channel.config import RateLimitConfig, SdsConfig
from reliable_channel.errors import (
    BudgetInUseError,
    ConfigurationError,
    StoreClosedError,
    StoreUnavailableError,
)
from reliable_channel.ports import MessageEnvelope, MessagingNode
from reliable_channel.records import LedgerRecord, key_of
from reliable_channel.store import LedgerLeases
from reliable_channel.types import SECOND
from reliable_channel.volatile import VolatileStore
from tests.support.failing_store import FailingStore
from tests.support.virtual_loop import START_NS, virtual_time

TOPIC = "/app/1/room/proto"
ANY_OF_THEM = r"^no transport '.*'; there is memory://, waku\+http://, waku\+https://$"


def node_config(**fields: Any) -> NodeConfig:
    return NodeConfig(**{"transport": "memory://factory", **fields})


class DeafStore(VolatileStore):
    """Cannot be opened."""

    async def open(self) -> None:
        raise StoreUnavailableError


@virtual_time
async def test_a_node_is_what_channels_stand_on() -> None:
    config = node_config(rate_limit_config=RateLimitConfig(enabled=True))
    node: MessagingNode = await create_node(config)
    assert isinstance(node, MemoryNode)
    assert node.sds_config is config.sds_config
    assert node.segmentation_config is config.segmentation_config
    assert node.rate_limit_config is config.rate_limit_config
    assert node.max_message_bytes == 153_600
    assert node.epoch_budget.enabled
    await node.close()


@virtual_time
async def test_the_name_of_the_specification_works_by_keyword_and_position() -> None:
    async with await createNode(nodeConfig=node_config()), await createNode(node_config()):
        pass


@pytest.mark.parametrize("transport", ["tcp://lab", "MEMORY://lab", "waku+ftp://user:secret@host"])
@virtual_time
async def test_an_unknown_transport_is_refused_in_one_line(transport: str) -> None:
    with pytest.raises(ConfigurationError, match=ANY_OF_THEM) as it:
        await create_node(node_config(transport=transport))
    assert "secret" not in str(it.value)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("mode", "edge", "mode"),
        ("networking_config", NetworkingConfig(p2p_tcp_port=1), "networking_config.p2p_tcp_port"),
        ("eth_rpc_endpoints", ("http://127.0.0.1",), "eth_rpc_endpoints"),
        ("protocols_config", ProtocolsConfig(entry_nodes=("x",)), "protocols_config.entry_nodes"),
    ],
)
@virtual_time
async def test_a_field_that_cannot_be_honoured_is_refused_by_name(
    field: str, value: object, path: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"^{path} cannot be honoured by memory://"):
        await create_node(node_config(**{field: value}))


@virtual_time
async def test_the_size_limit_is_honoured() -> None:
    validation = MessageValidation(max_message_size="2 KiB")
    config = node_config(protocols_config=ProtocolsConfig(message_validation=validation))
    async with await create_node(config) as node:
        assert node.max_message_bytes == 2_048


@virtual_time
async def test_a_store_of_its_own_is_closed_with_the_node() -> None:
    node = await create_node(node_config())
    assert await node.store.acquire_channel("c") == {}
    await node.close()
    with pytest.raises(StoreClosedError):
        await node.store.acquire_channel("c")


@virtual_time
async def test_a_given_store_is_opened_and_stays_open() -> None:
    store = VolatileStore()
    node = await create_node(node_config(sds_config=SdsConfig(persistence=store)))
    assert node.store is store
    await node.close()
    assert await store.acquire_channel("c") == {}


@virtual_time
async def test_the_budget_goes_on_where_it_was() -> None:
    store = VolatileStore()
    config = node_config(
        sds_config=SdsConfig(persistence=store),
        rate_limit_config=RateLimitConfig(enabled=True, messages_per_epoch=10),
    )
    clock = LoopClock(asyncio.get_running_loop(), START_NS)
    async with await create_node(config, clock=clock) as node:
        for _ in range(3):
            await node.send(MessageEnvelope(content_topic=TOPIC, payload=b"p"))
        await asyncio.sleep(1)
        used = node.epoch_budget.record()
    async with await create_node(config, clock=clock) as node:
        assert node.epoch_budget.record() == used
        assert used.used == 3


@virtual_time
async def test_a_store_that_does_not_open_leaves_nothing_behind() -> None:
    with pytest.raises(StoreUnavailableError):
        await create_node(node_config(sds_config=SdsConfig(persistence=DeafStore())))
    async with await create_node(node_config(transport="memory://factory?loss=0.5")):
        pass


@virtual_time
async def test_a_network_that_cannot_be_entered_leaves_nothing_behind() -> None:
    async with await create_node(node_config()):
        with pytest.raises(ConfigurationError, match="is open as"):
            await create_node(node_config(transport="memory://factory?loss=0.5"))


@virtual_time
async def test_the_clock_is_the_machines_unless_given() -> None:
    async with await create_node(node_config()) as node:
        assert isinstance(node.clock, SystemClock)


LIMITED = RateLimitConfig(enabled=True)


@virtual_time
async def test_two_nodes_do_not_spend_one_budget_twice() -> None:
    store = VolatileStore()
    config = node_config(sds_config=SdsConfig(persistence=store), rate_limit_config=LIMITED)
    async with await create_node(config) as node:
        with pytest.raises(BudgetInUseError, match="'node:600' is in use on this store"):
            await create_node(config)
        faster = replace(LIMITED, epoch_period_sec=601)
        with pytest.raises(BudgetInUseError, match="'node:601' is in use on this store"):
            await create_node(replace(config, rate_limit_config=faster))
        without = node_config(sds_config=SdsConfig(persistence=store))
        async with await create_node(without), await create_node(without):
            pass
        await node.close()
        async with await create_node(config):
            pass


@virtual_time
async def test_a_node_that_cannot_be_made_leaves_the_budget_to_others() -> None:
    class SickStore(VolatileStore):
        is_sick = True

        async def load_ledger(self, scope: str) -> LedgerRecord | None:
            if self.is_sick:
                raise StoreUnavailableError
            return await super().load_ledger(scope)

    store = SickStore()
    config = node_config(sds_config=SdsConfig(persistence=store), rate_limit_config=LIMITED)
    with pytest.raises(StoreUnavailableError):
        await create_node(config)
    store.is_sick = False
    other = node_config(
        transport="memory://factory?loss=0.5",
        sds_config=SdsConfig(persistence=store),
        rate_limit_config=LIMITED,
    )
    async with await create_node(node_config()):
        with pytest.raises(ConfigurationError):
            await create_node(other)
    async with await create_node(config):
        pass


@virtual_time
async def test_a_store_that_has_no_leases_for_budgets_will_do() -> None:
    store = FailingStore()
    assert not isinstance(store, LedgerLeases)
    config = node_config(sds_config=SdsConfig(persistence=store), rate_limit_config=LIMITED)
    async with await create_node(config):
        pass


@virtual_time
async def test_a_budget_that_is_ahead_of_the_clock_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A clock that was a year ahead once."""
    store = VolatileStore()
    clock = LoopClock(asyncio.get_running_loop(), START_NS)
    await store.open()
    config = node_config(sds_config=SdsConfig(persistence=store), rate_limit_config=LIMITED)
    present = START_NS // (600 * SECOND)
    for epoch, warned in ((present - 1, False), (present, False), (present + 365 * 144, True)):
        ledger = LedgerRecord(scope="node:600", epoch=epoch, used=1)
        await store.commit("", {(LedgerRecord, key_of(ledger)): ledger})
        async with await create_node(config, clock=clock):
            assert bool(caplog.records) is warned
    [record] = caplog.records
    line = record.getMessage()
    assert "node:600 was counted in an epoch that begins in 365 days" in line
    assert "--forget-future" in line
    assert "\n" not in line
    caplog.clear()
    async with await create_node(node_config(sds_config=SdsConfig(persistence=store)), clock=clock):
        assert not caplog.records, "nothing is limited"
