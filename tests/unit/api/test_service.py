"""The service without its routes: what it opens, keeps and closes, and what it does when something fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from api.errors import (
    ChannelConflictError,
    ChannelNotFoundError,
    ChannelUnavailableError,
    ServiceClosingError,
    ServiceStartingError,
    UnknownKeyError,
)
from api.keys import KeyRing
from api.models import ChannelRequest
from api.service import Service
from api.settings import ServiceSettings
from persistence import open_store
from reliable_channel import ChannelClosedError, ChannelExistsError
from tests.support.served import channel_body, new_network


def service_on(database: str = "memory://", **settings: object) -> Service:
    given = {"node": new_network(), "database": database} | settings
    return Service(ServiceSettings.model_validate(given), keys=KeyRing())


def request(channel_id: str = "room", **more: object) -> ChannelRequest:
    return ChannelRequest.model_validate(channel_body(channel_id, **more))


async def test_its_states_are_starting_ready_closing() -> None:
    service = service_on()
    assert service.state == "starting"
    with pytest.raises(ServiceStartingError):
        await service.open_channel(request())
    async with service.running():
        await service.wait_started()
        assert service.state == "ready"
        service.check_ready()
        assert not service.closing.is_set()
    assert service.state == "closing"
    assert service.closing.is_set()
    with pytest.raises(ServiceClosingError):
        await service.open_channel(request())


async def test_closing_closes_channels_node_and_store() -> None:
    service = service_on()
    async with service.running():
        channel, created = await service.open_channel(request())
        assert created
        assert service.channels == {"room": channel}
    assert service.channels == {}
    with pytest.raises(ChannelClosedError):
        await channel.send(b"late")


async def test_an_open_that_fails_leaves_nothing_behind() -> None:
    async with (service := service_on()).running():
        secret = {"scheme": "aes-256-gcm", "keyRef": "A"}
        with pytest.raises(UnknownKeyError):
            await service.open_channel(request(encryption=secret))
        assert await service.registry.channels() == {}
        _, created = await service.open_channel(request())
        assert created


async def test_a_cancelled_open_leaves_nothing_behind(tmp_path: Path) -> None:
    async with (service := service_on(f"sqlite:///{tmp_path}/a.db")).running():
        opening = asyncio.create_task(service.open_channel(request()))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert service.channels == {}
        _, created = await service.open_channel(request())
        assert created


async def test_the_registry_has_what_is_to_be_open() -> None:
    async with (service := service_on()).running():
        asked = request("b", sds={"maxInFlight": 4})
        await service.open_channel(asked)
        await service.open_channel(request("a"))
        kept = await service.registry.channels()
        assert list(kept) == ["b", "a"]
        assert ChannelRequest.model_validate_json(kept["b"]) == asked
        with pytest.raises(ChannelConflictError, match=r"\(sds\)"):
            await service.open_channel(request("b"))
        await service.close_channel("b", purge=False)
        assert list(await service.registry.channels()) == ["a"]
        with pytest.raises(ChannelNotFoundError):
            service.get("b")
        assert service.find("b") is None
        assert service.find("a") is service.get("a")
        with pytest.raises(ChannelNotFoundError):
            await service.close_channel("b", purge=False)


async def test_a_channel_that_cannot_be_opened_is_tried_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.entries.FIRST_RETRY_SEC", 0.001)
    database = f"sqlite:///{tmp_path}/a.db"
    async with (service := service_on(database)).running():
        await service.open_channel(request())
    async with open_store(database) as other:
        await other.acquire_channel("room")
        async with (service := service_on(database)).running():
            await service.wait_started()
            with pytest.raises(ChannelUnavailableError) as caught:
                service.get("room")
            assert caught.value.retry_after_sec >= 1
            assert list(service.unavailable) == ["room"]
            await other.release_channel("room")
            await next(
                task
                for task in asyncio.all_tasks()
                if task.get_name() == "reliable-channel room opening"
            )
            assert service.get("room").channel_id == "room"


async def test_purge_waits_for_whoever_has_the_channel(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path}/a.db"
    async with (service := service_on(database)).running():
        await service.open_channel(request())
        await service.close_channel("room", purge=False)
        async with open_store(database) as other:
            await other.acquire_channel("room")
            with pytest.raises(ChannelExistsError):
                await service.close_channel("room", purge=True)
            await other.release_channel("room")
            await service.close_channel("room", purge=True)
            assert not any((await other.acquire_channel("room")).values())


async def test_revive_leaves_alone_what_works_no_longer_or_was_never_there() -> None:
    async with (service := service_on()).running():
        service.revive("none")
        await service.open_channel(request())
        service.revive("room")
        await service.close_channel("room", purge=False)
        await asyncio.sleep(0)
        assert service.channels == {}
