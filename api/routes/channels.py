"""Opening, listing, showing and closing channels.

Nothing here decides what may be opened; that is `api.service`.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Body, Depends, Query, Response

from api.config_models import RequestModel
from api.models import (
    Channel,
    ChannelList,
    ChannelRequest,
    Epoch,
    UnavailableChannel,
    status_model,
)
from api.paths import quote_segment
from api.readers import rfc3339
from api.routes.common import (
    ON_A_CHANNEL,
    ChannelId,
    OpenChannel,
    ReadyService,
    json_only,
    problems,
)
from api.service import Service
from messaging_adapter import WakuNode
from reliable_channel import ReliableChannel
from reliable_channel.types import SECOND

router = APIRouter(prefix="/v1/channels", tags=["channels"])

EXAMPLES: Final = {
    "smallest": {
        "summary": "With all defaults",
        "value": {
            "channelId": "room",
            "contentTopic": "/chat/1/room/proto",
            "senderId": "alice",
        },
    },
    "encrypted": {
        "summary": "Encrypted, with parity segments and a limit of its own",
        "value": {
            "channelId": "plans/2027",
            "contentTopic": "/chat/1/plans/proto",
            "senderId": "alice",
            "encryption": {"scheme": "aes-256-gcm", "keyRef": "PLANS"},
            "sds": {"acknowledgementTimeoutMs": 2000},
            "segmentation": {"enableReedSolomon": True},
            "rateLimit": {"enabled": True, "epochPeriodSec": 600, "messagesPerEpoch": 20},
        },
    },
}


class CloseQuery(RequestModel):
    """How a channel is closed."""

    purge: Annotated[bool, Query(strict=False)] = False
    """Forget its state too, also that of a channel that is closed already."""


@router.post(
    "",
    summary="Open a channel",
    status_code=201,
    response_model=Channel,
    response_model_exclude_unset=True,
    dependencies=[Depends(json_only)],
    responses={
        200: {"model": Channel, "description": "It was open with the same settings"},
        **problems(
            "channel-conflict",
            "channel-exists",
            "too-many-channels",
            "invalid-configuration",
            "invalid-content-topic",
            "unknown-key",
            "payload-too-large",
            "unsupported-media-type",
            "channel-unavailable",
            "store-unavailable",
            "node-unavailable",
        ),
    },
)
async def create_channel(
    body: Annotated[ChannelRequest, Body(openapi_examples=EXAMPLES)],
    service: ReadyService,
    response: Response,
) -> Channel:
    """Open a channel, and open it again after a restart of the service.

    Repeating the call is harmless. A channel that was closed goes on with its kept state; other settings than before
    are taken then, but for `senderId`, `contentTopic` and the size of the bloom filter.
    """
    channel, created = await service.open_channel(body)
    response.headers["Location"] = f"/v1/channels/{quote_segment(body.channel_id)}"
    if not created:
        response.status_code = 200
    return channel_view(service, channel)


@router.get(
    "",
    summary="List the channels",
    response_model=ChannelList,
    response_model_exclude_unset=True,
    responses=problems(),
)
async def list_channels(service: ReadyService) -> ChannelList:
    """Return all channels of the service, in the order in which they were made."""
    return ChannelList(
        channels=[channel_view(service, channel) for channel in service.channels.values()],
        unavailable=[
            UnavailableChannel(
                channel_id=error.channel_id,
                reason=error.reason,
                retry_at=rfc3339(service.node.clock.now_ns() + int(error.retry_after_sec * SECOND)),
            )
            for error in service.unavailable.values()
        ],
    )


@router.get(
    "/{channelId:segment}",
    summary="Show a channel",
    response_model=Channel,
    response_model_exclude_unset=True,
    responses=problems(*ON_A_CHANNEL),
)
async def show_channel(channel: OpenChannel, service: ReadyService) -> Channel:
    """Return a channel's settings, sizes and counters."""
    return channel_view(service, channel)


@router.delete(
    "/{channelId:segment}",
    summary="Close a channel",
    status_code=204,
    response_class=Response,
    responses=problems("channel-not-found", "channel-exists", "store-unavailable"),
)
async def delete_channel(
    channel_id: ChannelId, service: ReadyService, query: Annotated[CloseQuery, Query()]
) -> Response:
    """Close a channel; its state stays in the store unless `purge` says otherwise.

    Requests that are open go on when the channel is opened again.
    """
    await service.close_channel(channel_id, purge=query.purge)
    return Response(status_code=204)


def channel_view(service: Service, channel: ReliableChannel) -> Channel:
    """Return an open channel for the wire."""
    request = service.request_of(channel.channel_id)
    return Channel(
        channel_id=channel.channel_id,
        content_topic=channel.content_topic,
        sender_id=channel.sender_id,
        encryption=request.encryption,
        sds=request.sds,
        segmentation=request.segmentation,
        rate_limit=request.rate_limit,
        last_event_sequence=channel.last_event_sequence,
        max_payload_bytes=channel.max_payload_bytes,
        status=status_model(channel.status()),
        epoch=epoch_view(service.node),
    )


def epoch_view(node: WakuNode) -> Epoch | None:
    """Return what is left of the node's epoch; None where its rate is not limited."""
    budget = node.epoch_budget
    if not budget.enabled:
        return None
    now = node.clock.now_ns()
    left = budget.remaining(now)
    return Epoch(
        enabled=True,
        epoch=budget.epoch,
        messages_per_epoch=node.rate_limit_config.messages_per_epoch,
        used=budget.used,
        left=left,
        resets_at=rfc3339(budget.epoch_end(now)),
    )
