"""``reliable-channel serve``: the service as a process, from its settings to its last transaction.

It listens, says where, and ends gracefully: on SIGTERM or Ctrl-C streams are closed, requests under way are answered,
transactions are finished; a second signal ends it at once, which loses nothing that was stored. Nothing here knows
routes, and there is one process, because a channel is driven by one.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import typer
import uvicorn

from api.connections import Connection
from api.keys import KeyRing, read_keys
from api.logs import configure_logging
from api.security import wrap
from api.settings import ServiceSettings
from api.tokens import Tokens, check_exposure, read_tokens
from messaging_adapter import NodeConfig
from messaging_adapter.factory import TRANSPORTS
from persistence import open_store
from reliable_channel import (
    ConfigurationError,
    RateLimitConfig,
    ReliableChannelError,
    SdsConfig,
    __version__,
)

if TYPE_CHECKING:
    from fastapi import FastAPI

logger = logging.getLogger("reliable_channel.serving")

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

BACKLOG: Final = 2_048
"""Connections that the system keeps until they are taken."""

MAX_UNREAD_HEADER_BYTES: Final = 256 << 10
"""The server reads so much of a request's head, so that `max_header_bytes` is refused with a document."""

SOCKET_SLACK_BYTES: Final = 1_024
"""What a WebSocket's message may have beyond a body: its other fields."""

ACCEPTING_TURNS: Final = 4
"""Turns of the loop in which a connection that was accepted becomes known to its protocol; asyncio takes three."""

COLLECT_AFTER: Final = (10_000, 10, 10)
"""When the garbage collector looks, see ``gc.set_threshold``: what hundreds of requests have under way is alive.

With the interpreter's 700 each request would be looked at several times before it ends, and what lasts as often.
"""

CLOSING_SEC: Final = 5.0
"""What closing channels and store may take after the last request, before the process ends all the same."""


class ServeFailedError(ReliableChannelError):
    """The service could not begin."""


@dataclass(frozen=True, slots=True)
class Secrets:
    """What the service knows and says to nobody."""

    keys: KeyRing
    tokens: Tokens


# --- Before --------------------------------------------------------------------------------------


def read_secrets(settings: ServiceSettings, environ: Mapping[str, str]) -> Secrets:
    """Read keys and tokens, and see whether the service may listen where it is told to.

    Raises:
        ConfigurationError: A file is unusable, or others could reach the service without a token.
    """
    keys = read_keys(settings.keys_file, environ)
    tokens = read_tokens(settings.token_file, environ)
    check_exposure(settings, tokens)
    return Secrets(keys, tokens)


def run_check(settings: ServiceSettings, environ: Mapping[str, str]) -> None:
    """Say whether the service could begin; open neither database nor network nor port.

    Raises:
        ConfigurationError: A setting, a file, or the URL of database or node is unusable.
    """
    secrets = read_secrets(settings, environ)
    open_store(settings.database)  # touched only by its own open()
    check_node(settings)
    found = f"{len(secrets.keys.names)} keys, {len(secrets.tokens)} tokens"
    where = f"{shown_host(settings.host)}:{settings.port}"
    shown = settings.shown()
    typer.echo(f"ok: {where}, database {shown['database']}, node {shown['node']}, {found}")


def check_node(settings: ServiceSettings) -> None:
    """Do nothing if the node's URL and rate limit can be used.

    Raises:
        ConfigurationError: They cannot.
    """
    limit = RateLimitConfig()
    if settings.epoch_period_sec is not None and settings.messages_per_epoch is not None:
        limit = RateLimitConfig(
            enabled=True,
            epoch_period_sec=settings.epoch_period_sec,
            messages_per_epoch=settings.messages_per_epoch,
        )
    config = NodeConfig(transport=settings.node, sds_config=SdsConfig(), rate_limit_config=limit)
    transport = TRANSPORTS.get(settings.node.partition("://")[0])
    if transport is None:
        known = ", ".join(f"{name}://" for name in TRANSPORTS)
        problem = f"node has no transport {settings.node.partition('://')[0]!r}; there is {known}"
        raise ConfigurationError(problem)
    transport.check(config)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Give a socket that listens.

    Args:
        host: Name or address of this machine.
        port: 0 is a free one.

    Raises:
        ServeFailedError: The port is in use, or the address is not this machine's.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # With the protocol named asyncio sends small answers at once (TCP_NODELAY); without, each takes 40 ms.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
        except OSError:
            sock.close()
            raise
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno and not isinstance(error, socket.gaierror):
            reason = os.strerror(error.errno)  # without the address, which stands there already
        where = f"{shown_host(host)}:{port}"
        problem = f"cannot listen on {where}: {reason}; choose others with --host and --port"
        raise ServeFailedError(problem) from error
    with sock:
        yield sock


def shown_host(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


# --- While it runs -------------------------------------------------------------------------------


def run_serve(settings: ServiceSettings, environ: Mapping[str, str]) -> None:
    """Serve until a signal ends it.

    Args:
        settings: All of them.
        environ: Environment variables, for keys and tokens.

    Raises:
        ConfigurationError: Something given is unusable.
        ServeFailedError: The port cannot be had.
        ReliableChannelError: Store or network cannot be opened.
    """
    from api.application import create_app

    secrets = read_secrets(settings, environ)
    configure_logging(settings.log_level, settings.log_format)
    if not settings.is_loopback and not secrets.tokens:
        logger.warning("everybody who reaches %s can read and send", settings.host)
    with listening(settings.host, settings.port) as sock:
        app = create_app(settings, keys=secrets.keys)
        run_to_end(serve(app, settings, secrets.tokens, sock))


def run_to_end(main: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end as ``asyncio.run`` does, on uvloop where it is installed (extra ``fast``)."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return what makes the fastest event loop that is installed; None for Python's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def serve(
    app: FastAPI,
    settings: ServiceSettings,
    tokens: Tokens,
    sock: socket.socket,
) -> None:
    """Run an application inside its lifespan until a signal comes.

    Args:
        app: Of `api.application.create_app`, without anything around it yet.
        settings: Of the service.
        tokens: Who may do what.
        sock: Listens already.
    """
    service = app.state.service
    wrapped = wrap(app, settings, tokens, answered=service.metrics.request_answered)
    server = Server(server_config(wrapped, settings), settings)
    stop = Stop(server, settings.shutdown_timeout_sec, service.begin_closing)
    loop = asyncio.get_running_loop()
    for number in SIGNALS:
        loop.add_signal_handler(number, stop, number)
    logger.info("starting, version %s: %r", __version__, settings)
    async with app.router.lifespan_context(app):
        await server.serve([sock])
    stop.done()
    logger.info("stopped")


def server_config(app: object, settings: ServiceSettings) -> uvicorn.Config:
    """Return how the server is run; one place says what is refused before the application sees it."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        # h11 is the one of its parsers that bounds what it holds of a request's head.
        http=partial(Connection, request_timeout_sec=settings.request_timeout_sec),  # type: ignore[arg-type]
        ws="websockets-sansio",
        lifespan="off",  # around the server instead, so that its errors come through
        log_config=None,
        access_log=False,  # `api.security` writes it
        server_header=False,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies),
        ws_per_message_deflate=False,  # memory for each socket, and lengths that tell of what is inside
        ws_max_size=settings.max_body_bytes + SOCKET_SLACK_BYTES,
        h11_max_incomplete_event_size=MAX_UNREAD_HEADER_BYTES,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_timeout_sec),
    )


class Address(Protocol):
    """Settings that say where to listen."""

    @property
    def host(self) -> str:
        """Name or address of this machine."""
        ...

    @property
    def port(self) -> int:
        """The port, or 0."""
        ...


class Collecting:
    """How the garbage collector works while any server of this process serves; it is the process's.

    What is there when one begins stays: the collector looks at it no more, for that would take 0.1 s each time in which
    nothing is answered.
    """

    def __init__(self) -> None:
        self._servers = 0
        self._usual = gc.get_threshold()

    def begin(self) -> None:
        """Note that one more server serves."""
        if not self._servers:
            self._usual = gc.get_threshold()
            gc.set_threshold(*COLLECT_AFTER)
        self._servers += 1
        gc.collect()
        gc.freeze()

    def end(self) -> None:
        """Note that one of them has ended; after the last one everything is as before the first."""
        self._servers -= 1
        if not self._servers:
            gc.unfreeze()
            gc.set_threshold(*self._usual)


_collecting: Final = Collecting()


class Server(uvicorn.Server):
    """The server without signal handlers of its own; it says where it listens.

    Args:
        config: Its own.
        settings: Where it listens.
    """

    def __init__(self, config: uvicorn.Config, settings: Address) -> None:
        super().__init__(config)
        self.settings = settings

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn would raise them again at the end, and the process would not exit with 0."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve, and say so."""
        await super().startup(sockets)
        _collecting.begin()
        ports = [sock.getsockname()[1] for sock in sockets or ()] or [self.settings.port]
        for port in ports:
            typer.echo(f"Listening on http://{shown_host(self.settings.host)}:{port}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End serving."""
        await stop_accepting(self.servers)
        await super().shutdown(sockets)
        _collecting.end()


async def stop_accepting(servers: Iterable[asyncio.Server]) -> None:
    """Take no connections any more, and have those that were taken known to their protocols.

    Between its acceptance and ``connection_made`` a connection belongs to nobody for a few turns of the loop. A server
    that ended meanwhile would not ask it to leave: it would wait for it in vain, or never close it.

    Args:
        servers: They are closed.
    """
    loop = asyncio.get_running_loop()
    for server in servers:
        for sock in server.sockets:
            loop.remove_reader(sock)  # asyncio makes a connection only while its server is open
    await _turns(ACCEPTING_TURNS)
    for server in servers:
        server.close()
    await _turns(ACCEPTING_TURNS)  # uvloop reads by other ways, and accepts until now


async def _turns(number: int) -> None:
    """Let the loop run all that is ready, and all that follows of it."""
    for _ in range(number):
        await asyncio.sleep(0)


class Stop:
    """What signals do: the first ends gracefully, the second at once.

    Args:
        server: Told to exit.
        timeout: Seconds that requests under way may take.
        begin_closing: Called with the first signal.
    """

    def __init__(
        self, server: uvicorn.Server, timeout: float, begin_closing: Callable[[], None]
    ) -> None:
        self.server = server
        self.timeout = timeout
        self.begin_closing = begin_closing
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def deadline(self) -> float | None:
        """When the process ends all the same, in the loop's time; None before a signal and after the end."""
        return None if self._deadline is None else self._deadline.when()

    def __call__(self, number: int) -> None:
        """Take note of a signal."""
        name = signal.Signals(number).name
        if self._deadline is not None:
            end_now(128 + number, f"{name} again, ending at once")
        logger.info("%s, stopping within %g s", name, self.timeout + CLOSING_SEC)
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(
            self.timeout + CLOSING_SEC, end_now, 1, "not stopped in time, ending at once"
        )
        self.server.should_exit = True
        self.begin_closing()

    def done(self) -> None:
        """Have nothing end the process any more."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def end_now(code: int, why: str) -> None:
    """End the process without finishing anything; what was stored is stored.

    Args:
        code: To exit with.
        why: For the log.
    """
    logger.warning("%s", why)
    logging.shutdown()
    os._exit(code)
