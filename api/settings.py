"""What a running service is told: fields, bounds, and where each value comes from.

Flags beat the environment (``RELIABLE_CHANNEL_*``), which beats a TOML file. Whatever is wrong is one error that names
the field, its source and what would do. Nothing here opens a database, a network or a port, and nothing reads the
environment but what is handed in.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from reliable_channel.errors import ConfigurationError

PREFIX: Final = "RELIABLE_CHANNEL_"
"""Of the environment variables; the rest of a name is the field in upper case."""

ONE_WORKER: Final = (
    "must be 1: a channel is driven by one process; for more load give other channels "
    "to another service with a port of its own"
)

SECRET_PARAMETERS: Final = re.compile(r"(?i)([?&][^=&]*(?:pass|pwd|secret|token|key)[^=&]*=)[^&#]*")
"""Parameters of a URL whose values are shown to nobody."""


def listed(value: object) -> object:
    """Split a text at commas; environment variables and flags have no other lists."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


REPEATED_FLAGS: Final = {"cors_origins": "cors-origin", "allowed_hosts": "allowed-host"}
"""Options that may be given several times, by field."""

TextList = Annotated[tuple[str, ...], BeforeValidator(listed)]


class ServiceSettings(BaseModel):
    """Everything that ``reliable-channel serve`` can be told; frozen, unknown fields refused.

    Made by `load_settings`, or by hand in a test; then what is wrong is pydantic's own error.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True
    )

    host: str = Field("127.0.0.1", min_length=1)
    """Address to listen on. Beyond this machine (`0.0.0.0`, `::`) only with tokens or `allow_insecure`."""
    port: int = Field(8080, ge=0, le=65_535)
    """Port to listen on; 0 takes a free one, which is printed."""
    database: str = Field("sqlite:///reliable-channel.db", min_length=1)
    """URL of the database that channels and their state are kept in."""
    node: str = Field("memory://lab", min_length=1)
    """URL of the messaging node that all channels use."""
    token_file: Path | None = None
    """File with a line `read TOKEN` or `write TOKEN` for each client; nobody else on the machine may read it."""
    keys_file: Path | None = None
    """File with a line `NAME = KEY` for each encryption key, 32 bytes in hex or base64; likewise."""
    allow_insecure: bool = False
    """Listen beyond this machine without tokens. Whoever reaches the port can then read and send."""
    cors_origins: TextList = ()
    """Origins whose pages may call the service from a browser: `https://app.example`; `*` is all."""
    allowed_hosts: TextList = ()
    """Names in a request's `Host` beside localhost, 127.0.0.1 and [::1]; looked at where no tokens are needed."""
    trusted_proxies: TextList = ()
    """Addresses of reverse proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count."""
    max_body_bytes: int = Field(35 << 20, ge=1_024, le=1 << 30)
    """Largest request body, bytes; the default takes 256 segments of 102 400 bytes in base64."""
    max_header_bytes: int = Field(32 << 10, ge=1_024, le=60 << 10)
    """Largest request line and headers, bytes in all."""
    request_timeout_sec: float = Field(60, ge=0.05, le=3_600)
    """A request may take so long to arrive, head and body, seconds; what is slower gets 408."""
    requests_per_second: float | None = Field(None, ge=0, le=1_000_000)
    """Requests of one token or address, with bursts of twice as many; 0 is unlimited. None: 0 on loopback, else 50."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe log lines that are written."""
    log_format: Literal["text", "json"] = "text"
    """Log lines for people, or one JSON object a line."""
    shutdown_timeout_sec: float = Field(10, ge=0, le=3_600)
    """How long requests under way may take after SIGTERM, seconds."""
    max_channels: int = Field(1_000, ge=1, le=100_000)
    """Channels open at once."""
    max_streams: int = Field(1_000, ge=1, le=100_000)
    """Event streams and WebSockets open at once."""
    heartbeat_sec: float = Field(15, ge=0.05, le=3_600)
    """A quiet event stream says so often that it lives, seconds."""
    epoch_period_sec: int | None = Field(None, ge=1, le=1 << 31)
    """Length of an epoch of the node's rate limit, seconds; None: no limit."""
    messages_per_epoch: int | None = Field(None, ge=1, le=1 << 31)
    """Transmissions that all channels together may make in an epoch; None: no limit."""
    workers: int = 1
    """Processes that serve; only 1 is possible, because a channel is driven by one process."""

    @field_validator("workers")
    @classmethod
    def _one_worker(cls, value: int) -> int:
        if value != 1:
            raise PydanticCustomError("workers", ONE_WORKER)
        return value

    @field_validator("database", "node")
    @classmethod
    def _is_url(cls, value: str) -> str:
        if "://" not in value:
            raise PydanticCustomError(
                "url", "must be a URL, such as memory://lab or sqlite:///a.db"
            )
        return value

    @field_validator("cors_origins")
    @classmethod
    def _are_origins(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        for value in values:
            if value != "*" and not re.fullmatch(r"https?://[^/\s,]+", value):
                text = "must be origins such as https://app.example, without a path, or *"
                raise PydanticCustomError("origin", text)
        return values

    @model_validator(mode="after")
    def _whole_rate_limit(self) -> Self:
        if (self.epoch_period_sec is None) != (self.messages_per_epoch is None):
            text = "epoch_period_sec and messages_per_epoch go together; give both or neither"
            raise PydanticCustomError("rate_limit", text)
        return self

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the port."""
        return is_loopback(self.host)

    @property
    def request_rate(self) -> float:
        """Requests a second of one client; 0 is unlimited."""
        if self.requests_per_second is not None:
            return self.requests_per_second
        return 0.0 if self.is_loopback else 50.0

    def shown(self) -> dict[str, Any]:
        """Return the fields as they may be shown: no passwords."""
        values = self.model_dump(mode="json")
        return {**values, "database": masked(self.database), "node": masked(self.node)}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Give what ``repr`` and ``str`` show."""
        return self.shown().items()


def is_loopback(host: str) -> bool:
    """Say whether an address to listen on is reachable from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def masked(url: str) -> str:
    """Return a URL without passwords: neither before the host nor among the parameters."""
    address, mark, parameters = url.partition("?")
    without = re.sub(r"(://[^/:@]*):.*@", r"\1:***@", address, flags=re.DOTALL)
    return without + SECRET_PARAMETERS.sub(r"\1***", mark + parameters)


# --- Sources -------------------------------------------------------------------------------------


def load_settings(
    flags: Mapping[str, object], environ: Mapping[str, str], config: Path | None = None
) -> ServiceSettings:
    """Return the settings that flags, environment and file make together.

    Args:
        flags: By field; None, and a list without entries, is not given.
        environ: Environment variables; ``RELIABLE_CHANNEL_CONFIG`` names the file when ``config`` does not.
        config: TOML file; its keys are the fields.

    Raises:
        ConfigurationError: The file cannot be read, or a value is unusable; all problems are named.
    """
    known = ServiceSettings.model_fields
    named = environ.get(f"{PREFIX}CONFIG")
    path = config or (Path(named) if named else None)
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    if path is not None:
        for name, value in read_toml(path).items():
            values[name], sources[name] = value, str(path)
    for name in known:
        variable = f"{PREFIX}{name.upper()}"
        if environ.get(variable):
            values[name], sources[name] = environ[variable], f"environment, {variable}"
    for name, value in flags.items():
        if value is not None and value != []:
            values[name], sources[name] = value, flag_of(name)
    try:
        return ServiceSettings.model_validate(values)
    except ValidationError as error:
        problems = [_problem(detail, values, sources) for detail in error.errors()]
        raise ConfigurationError(problems) from None


def flag_of(field: str) -> str:
    """Return the option of the command line that sets a field."""
    return "--" + REPEATED_FLAGS.get(field, field.removesuffix("_sec").replace("_", "-"))


def read_toml(path: Path) -> dict[str, object]:
    """Return the keys of a TOML file.

    Raises:
        ConfigurationError: It cannot be read, or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"{path} cannot be read: {error.strerror}; name a file that can with --config"
    except UnicodeDecodeError:
        problem = f"{path} is not UTF-8; save it as UTF-8"
    except tomllib.TOMLDecodeError as error:
        problem = f"{path} is no TOML: {error}"
    raise ConfigurationError(problem)


def _problem(
    detail: Mapping[str, Any], values: Mapping[str, object], sources: Mapping[str, str]
) -> str:
    """Return one sentence for an error of pydantic's: field, value, what would do, source."""
    if not detail["loc"]:
        return str(detail["msg"])
    name = str(detail["loc"][0])
    source = sources.get(name, "default")
    if detail["type"] == "extra_forbidden":
        close = difflib.get_close_matches(name, ServiceSettings.model_fields, n=1)
        advice = f"did you mean {close[0]}?" if close else "docs/configuration.md lists all"
        return f"there is no setting {name!r} ({source}); {advice}"
    wanted = re.sub(r"^\w+ should", "must", str(detail["msg"])).split(", unable")[0]
    if detail["type"] in ("workers", "url"):  # a URL may have a password at any place
        return f"{name} ({source}) {wanted}"
    value = values.get(name)
    said = masked(value) if isinstance(value, str) else value
    return f"{name} ({source}) {wanted}, not {said!r}"
