"""``reliable-channel devnode`` as a process: sockets, one application for all of them, and the end.

Nothing here knows routes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, Literal

import uvicorn

from api.devnode import (
    routes_filter,
    routes_lightpush,
    routes_messaging,
    routes_relay,
    routes_store,
    routes_system,
)
from api.devnode.http import Application, Route, Router
from api.devnode.network import Network
from api.devnode.settings import DevnodeSettings
from api.devnode.timers import LoopTimers
from api.logs import configure_logging
from api.serving import SIGNALS, Server, Stop, listening

logger = logging.getLogger("reliable_channel.devnode")

MAX_HEADER_BYTES: Final = 64 << 10

STOPPING_SEC: Final = 1
"""What requests under way may take at the end, seconds."""

PROTOCOL_ROUTES: Final = {
    "relay": routes_relay.routes,
    "filter": routes_filter.routes,
    "lightpush": routes_lightpush.routes,
    "store": routes_store.routes,
}


def make_router(settings: DevnodeSettings) -> Router:
    """Return the routes of a node."""
    routes: list[Route] = routes_system.routes()
    missing = [*settings.without]
    for name, make in PROTOCOL_ROUTES.items():
        if settings.has(name):
            routes += make()
    if settings.messaging_api != "none":
        routes += routes_messaging.routes()
    if settings.admin:
        routes += routes_system.admin_routes()
    else:
        missing.append("admin")
    return Router(routes, missing)


def make_application(network: Network, ports: Sequence[int]) -> Application:
    """Return the application that answers for all nodes.

    Args:
        network: Whose nodes they are.
        ports: One for each node.
    """
    router = make_router(network.settings)
    nodes = zip(ports, network.nodes, strict=True)
    return Application({port: (node, router) for port, node in nodes})


def server_config(application: Application) -> uvicorn.Config:
    """Return how the server is run."""
    return uvicorn.Config(
        application,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=STOPPING_SEC,
    )


def run_devnode(
    settings: DevnodeSettings, *, log_level: str, log_format: Literal["text", "json"]
) -> None:
    """Run a network until a signal ends it.

    Args:
        settings: Of the network.
        log_level: Least severe that is written.
        log_format: For people or for programs.

    Raises:
        ServeFailedError: A port cannot be had.
    """
    configure_logging(log_level, log_format)
    with ExitStack() as stack:
        ports = [settings.port + number if settings.port else 0 for number in range(settings.nodes)]
        sockets = [stack.enter_context(listening(settings.host, port)) for port in ports]
        asyncio.run(serve(settings, sockets))


async def serve(settings: DevnodeSettings, sockets: list[socket.socket]) -> None:
    """Serve a network until a signal comes.

    Args:
        settings: Of the network.
        sockets: One for each node, which listen already.
    """
    timers = LoopTimers()
    network = Network(settings, timers)
    application = make_application(network, [sock.getsockname()[1] for sock in sockets])
    server = Server(server_config(application), settings)
    stop = Stop(server, STOPPING_SEC, timers.close)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    logger.info("starting: %r", settings)
    await server.serve(sockets)
    stop.done()
    logger.info("stopped")
