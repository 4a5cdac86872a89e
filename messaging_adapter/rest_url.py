"""``waku+http://HOST:PORT?…``: where a node's REST API is, and what the URL says about its use.

Nothing here opens anything, and no text made here has the URL's password in it.

Spec: none; the parameters are this project's. What they choose from is the node's REST API.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Final, Literal, Self, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from messaging_adapter.parameters import read_parameters
from reliable_channel.config import Bounds, check_bounds
from reliable_channel.errors import ConfigurationError

SCHEMES: Final = ("waku+http", "waku+https")
"""What the URL begins with; the part after ``waku+`` is what is spoken."""

PublishWay: TypeAlias = Literal["auto", "relay", "static", "lightpush", "messaging"]
ReceiveWay: TypeAlias = Literal["auto", "relay", "static", "filter", "messaging"]

CHOICES: Final = {
    "publish": ("auto", "relay", "static", "lightpush", "messaging"),
    "receive": ("auto", "relay", "static", "filter", "messaging"),
    "store": ("auto", "off"),
}
"""What the parameters that are words may be."""

BOUNDS: Final[Bounds] = {
    "poll_ms": (20, 60_000),
    "timeout_ms": (100, 120_000),
    "confirm_ms": (50, 60_000),
    "give_up_ms": (100, 3_600_000),
    "check_ms": (100, 3_600_000),
    "window_ms": (1_000, 86_400_000),
}
"""Smallest and largest accepted value of each number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestParameters:
    """What the URL of a node says.

    Raises:
        ConfigurationError: A value is out of its bounds; all problems are named.
    """

    base_url: str
    """Where the API is, ``http://HOST:PORT``, without user and password."""
    auth: tuple[str, str] | None = field(default=None, repr=False)
    """User and password for HTTP basic authentication."""
    publish: PublishWay = "auto"
    """``relay`` by content topic, ``static`` by pubsub topic, ``lightpush``, or ``messaging``."""
    receive: ReceiveWay = "auto"
    """``relay`` by content topic, ``static`` by pubsub topic, ``filter``, or ``messaging``."""
    store: Literal["auto", "off"] = "auto"
    """``off``: nothing is confirmed, no gap is closed, nothing is looked up."""
    poll_ms: int = 250
    """How often received messages are asked for, milliseconds."""
    timeout_ms: int = 10_000
    """How long an answer may take, milliseconds; the node itself gives up after 5 s."""
    confirm_ms: int = 3_000
    """How often a store is asked whether it has what was published, milliseconds."""
    give_up_ms: int = 60_000
    """How long it is tried to publish and to see a message stored, milliseconds."""
    check_ms: int = 10_000
    """How often a store is asked for messages that did not arrive, milliseconds."""
    window_ms: int = 120_000
    """How far back it is asked, milliseconds."""

    def __post_init__(self) -> None:
        problems = check_bounds(self, BOUNDS)
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                given = getattr(self, name)
                problems.append(f"{name} must be one of {', '.join(known)}, not {given!r}")
        if problems:
            raise ConfigurationError(problems)

    @classmethod
    def parse(cls, transport: str) -> Self:
        """Read ``waku+http://[USER:PASSWORD@]HOST[:PORT][/PATH][?publish=…&receive=…&…]``.

        Raises:
            ConfigurationError: Not such a URL, an unknown or repeated parameter, or a value that is
                not allowed; all problems are named, none shows the password.
        """
        parts = _split(transport)
        values = read_parameters(parts, _PARAMETERS)
        return cls(base_url=_base_url(parts), auth=_auth(parts), **values)

    def __str__(self) -> str:
        """Return the URL with the password masked and the parameters that are not the default."""
        scheme, _, rest = self.base_url.partition("://")
        user = f"{self.auth[0]}:***@" if self.auth else ""
        shown = [
            f"{item.name}={getattr(self, item.name)}"
            for item in fields(self)
            if item.name in _PARAMETERS and getattr(self, item.name) != item.default
        ]
        return f"waku+{scheme}://{user}{rest}" + (f"?{'&'.join(shown)}" if shown else "")


_PARAMETERS: Final[dict[str, Callable[[str], object]]] = {
    **dict.fromkeys(CHOICES, str),
    **dict.fromkeys(BOUNDS, int),
}


def _split(transport: str) -> SplitResult:
    shape = "waku+http://HOST:PORT, waku+https:// likewise"
    try:
        parts = urlsplit(transport)
        usable = parts.scheme in SCHEMES and parts.hostname and parts.port != 0
        if usable and not parts.fragment and not any(c.isspace() for c in transport):
            return parts
    except ValueError:
        pass
    problem = f"the node's URL cannot be read; it must be {shape}"  # shown, it may give a password
    raise ConfigurationError(problem)


def _base_url(parts: SplitResult) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme.removeprefix('waku+')}://{host}{port}{parts.path.rstrip('/')}"


def _auth(parts: SplitResult) -> tuple[str, str] | None:
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")
